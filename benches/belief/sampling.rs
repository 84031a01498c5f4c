//! The cost of sampling.

use std::path::Path;
use std::time::Instant;

use engine::types::{BeliefRequest, SampleOptions};
use prefix_scheduler::call::Call;
use rerankd::config::Config;

use super::data;
use super::report::Line;

pub const FILE: &str = "qa/nq-200-random-distractors.jsonl.gz";
/// Most tokens per passage.
pub const CAP: usize = 48;

/// Ten samples for the list, for every passage alone and for every prefix, in one plan. Compared with sampling one
/// answer at a time through the same engine, which then shares no prefixes.
pub async fn tokens(config: &Config, folder: &Path) -> anyhow::Result<()> {
    let engine = super::engine(config).await?;
    let questions = data::read(&folder.join(FILE), 2)?;
    let (mut shared, mut naive) = ((0.0, 0.0), (0.0, 0.0));
    for question in &questions {
        let n = question.passages.len();
        let mut contexts: Vec<Vec<usize>> = vec![Vec::new(), (0..n).collect()];
        contexts.extend((0..n).map(|i| vec![i]));
        contexts.extend((1..n).map(|length| (0..length).collect()));
        let request = BeliefRequest {
            question: question.question.clone(),
            passages: question.request_passages(),
            contexts: contexts.clone(),
            passage_tokens: Some(CAP),
            ..BeliefRequest::default()
        };
        // Wall time on both sides, tokenising and planning included.
        let started = Instant::now();
        let sampled = engine.sampler.sample(&Call::local(), request.clone(), None).await?;
        shared.0 += sampled.usage.tokens as f64;
        shared.1 += started.elapsed().as_secs_f64();
        naive.0 += sampled.usage.naive_tokens as f64;
        // The naive loop: every sample evaluates its prompt from the beginning.
        let started = Instant::now();
        for context in contexts {
            for seed in 0..10 {
                let options = SampleOptions { samples: Some(1), seed, ..SampleOptions::default() };
                let one = BeliefRequest { contexts: vec![context.clone()], options, ..request.clone() };
                engine.sampler.sample(&Call::local(), one, None).await?;
            }
        }
        naive.1 += started.elapsed().as_secs_f64();
    }
    let each = questions.len() as f64;
    let name = "10 samples of list, each and prefixes, 10 passages";
    Line::new(&format!("{name}: naive tokens"), naive.0 / each, "tokens a question").print();
    Line::new(&format!("{name}: tokens"), shared.0 / each, "tokens a question").ratio(naive.0 / shared.0).print();
    Line::new(&format!("{name}: naive seconds"), naive.1 / each, "s a question").print();
    Line::new(&format!("{name}: seconds"), shared.1 / each, "s a question").ratio(naive.1 / shared.1).print();
    Ok(())
}
