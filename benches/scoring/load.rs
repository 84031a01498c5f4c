//! The engine under load: latency and throughput of concurrent requests, and memory.

use std::future::Future;
use std::time::{Duration, Instant};

use engine::Engine;
use engine::types::{BeliefRequest, Passage, RerankRequest, SampleOptions, Scheme};
use prefix_scheduler::call::Call;
use tokio::runtime::Runtime;

use super::data::Question;
use super::engine::{median, request};
use super::report::Line;

/// Latency of a request with three passages, alone and next to a request with twenty.
pub fn fairness(runtime: &Runtime, engine: &Engine, questions: &[Question]) -> anyhow::Result<()> {
    let mut large = questions[1].clone();
    large.passages = questions.iter().flat_map(|question| question.passages.iter().take(1).cloned()).take(20).collect();
    let large = request(&large, 20, Some(Scheme::Latin));
    let small = || request(&questions[0], 3, None);
    let timed = || {
        let started = Instant::now();
        let answer = runtime.block_on(engine.reranker.rerank(&Call::local(), small(), None));
        answer.map(|_| started.elapsed().as_secs_f64())
    };
    timed()?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..9 {
        alone.push(timed()?);
        let (engine, large) = (engine.clone(), large.clone());
        let other = runtime.spawn(async move { engine.reranker.rerank(&Call::local(), large, None).await });
        // Each repetition starts at a different point of the large request's step.
        std::thread::sleep(Duration::from_millis(1_500 + 41 * round));
        beside.push(timed()?);
        other.abort();
        let _ = runtime.block_on(other);
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let (alone, beside) = (median(&mut alone), median(&mut beside));
    Line::new("3 passages alone", alone, "s").print();
    Line::new("3 passages beside 20", beside, "s").ratio(beside / alone).at_most(1.5).print();
    Ok(())
}

/// Seconds for `works` one after another and concurrently, and the median of their ratio over a few repetitions.
fn together<F>(runtime: &Runtime, works: impl Fn() -> Vec<F>) -> anyhow::Result<(f64, f64)>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut turns = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        for work in works() {
            runtime.block_on(work)?;
        }
        let apart = started.elapsed().as_secs_f64();
        let started = Instant::now();
        runtime.block_on(async {
            for running in works().into_iter().map(tokio::spawn).collect::<Vec<_>>() {
                running.await??;
            }
            anyhow::Ok(())
        })?;
        turns.push((started.elapsed().as_secs_f64(), apart));
    }
    let ratio = median(&mut turns.iter().map(|(at_once, apart)| apart / at_once).collect::<Vec<_>>());
    Ok((median(&mut turns.iter().map(|(at_once, _)| *at_once).collect::<Vec<_>>()), ratio))
}

/// Sixteen requests of two short passages, sequential and concurrent: the gain of small requests from shared steps.
pub fn small(runtime: &Runtime, engine: &Engine, questions: &[Question]) -> anyhow::Result<()> {
    let works = || {
        let work = |question: &Question| {
            let (engine, request) = (engine.clone(), request(question, 2, None));
            let request = RerankRequest { passage_tokens: Some(24), ..request };
            async move { Ok(engine.reranker.rerank(&Call::local(), request, None).await.map(drop)?) }
        };
        questions[..16].iter().map(work).collect()
    };
    let (seconds, ratio) = together(runtime, works)?;
    Line::new("16 reranks of 2 short passages at once", 16.0 / seconds, "requests/s").ratio(ratio).print();
    Ok(())
}

/// Four requests of five samples each, sequential and concurrent: samples of several requests share steps.
pub fn samples(runtime: &Runtime, engine: &Engine, questions: &[Question]) -> anyhow::Result<()> {
    let works = || {
        let work = |question: &Question| {
            let request = BeliefRequest {
                question: question.question.clone(),
                passages: question.request_passages(),
                contexts: vec![vec![0, 1, 2]],
                passage_tokens: Some(24),
                options: SampleOptions { samples: Some(5), ..SampleOptions::default() },
                ..BeliefRequest::default()
            };
            let engine = engine.clone();
            async move { Ok(engine.sampler.sample(&Call::local(), request, None).await.map(drop)?) }
        };
        questions[..4].iter().map(work).collect()
    };
    let (seconds, ratio) = together(runtime, works)?;
    Line::new("4 requests of 5 samples at once", 4.0 / seconds, "requests/s").ratio(ratio).print();
    Ok(())
}

/// Resident memory after the first and after the last of 1,000 mixed requests, of which every third is cancelled.
pub fn memory(runtime: &Runtime, engine: &Engine) -> anyhow::Result<()> {
    let resident = || -> anyhow::Result<f64> {
        let pages: f64 = std::fs::read_to_string("/proc/self/statm")?.split(' ').nth(1).unwrap_or("0").parse()?;
        Ok(pages * 4096.0 / 1e6)
    };
    let text = |seed: usize| format!("Passage {seed} tells of wheel {} and weir {}.", seed * 7 % 31, seed * 13 % 17);
    let mixed = |index: usize| RerankRequest {
        query: format!("which wheel is {index}?"),
        passages: (0..=index % 5)
            .map(|p| Passage { id: p.to_string(), text: text(index + p), ..Passage::default() })
            .collect(),
        method: engine::methods::find("moi"),
        ..RerankRequest::default()
    };
    let mut before = 0.0;
    for index in 0..1_000 {
        let call = Call::local();
        let work = engine.reranker.rerank(&call, mixed(index), None);
        let patience = if index % 3 == 0 { Duration::from_millis(5) } else { Duration::from_mins(10) };
        let _ = runtime.block_on(async { tokio::time::timeout(patience, work).await });
        if index == 100 {
            before = resident()?;
        }
    }
    let after = resident()?;
    Line::new("resident memory after 1,000 mixed requests", after, "MB").ratio(after / before).at_most(1.02).print();
    Ok(())
}
