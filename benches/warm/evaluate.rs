//! Evaluations that repeat a list: eRAG twice, and three runs of utility with other seeds, with the store and without.

use std::time::Instant;

use protocol::v1;

use crate::report::Line;
use crate::server::{Server, request};
use crate::texts::Texts;

const LISTS: u64 = 4;

pub async fn run(model: Option<&str>, texts: &Texts) -> anyhow::Result<()> {
    let servers = [Server::start(model, 0).await?, Server::start(model, 1 << 30).await?];
    // By server: seconds and evaluated tokens of the first turn and of those after it.
    let mut erag = [[(0.0, 0); 2]; 2];
    let mut utility = [[(0.0, 0); 2]; 2];
    for list in 0..LISTS {
        let passages: Vec<String> = (0..10).map(|index| texts.passage(4_000_000 + 100 * list + index, 110)).collect();
        let question = texts.query(4_000_000 + list, 17);
        let asked = request(v1::Method::Unspecified, &question, &passages);
        for turn in 0..3_u64 {
            for (place, server) in servers.iter().enumerate() {
                let slot = usize::from(turn > 0);
                let mut client = server.utility();
                let sampling = Some(v1::SamplingOptions {
                    samples: 5,
                    max_tokens: 12,
                    seed: turn,
                    ..v1::SamplingOptions::default()
                });
                let started = Instant::now();
                if turn < 2 {
                    let request = v1::EvaluateRetrievalRequest {
                        question: question.clone(),
                        passages: asked.passages.clone(),
                        references: vec!["the old bridge".into()],
                        answer_tokens: 12,
                        ..v1::EvaluateRetrievalRequest::default()
                    };
                    let usage = client.evaluate_retrieval(request).await?.into_inner().usage.unwrap_or_default();
                    erag[place][slot].0 += started.elapsed().as_secs_f64();
                    erag[place][slot].1 += usage.tokens;
                }
                let started = Instant::now();
                let request = v1::MeasureUtilityRequest {
                    question: question.clone(),
                    passages: asked.passages.clone(),
                    references: vec!["the old bridge".into()],
                    measure_each: true,
                    sampling,
                    ..v1::MeasureUtilityRequest::default()
                };
                let usage = client.measure_utility(request).await?.into_inner().usage.unwrap_or_default();
                utility[place][slot].0 += started.elapsed().as_secs_f64();
                utility[place][slot].1 += usage.tokens;
            }
        }
    }
    for (name, [without, with]) in [("eRAG", erag), ("utility of each passage", utility)] {
        for (slot, turn) in [(0, "the first time"), (1, "asked again")] {
            Line::new(&format!("{name}, {turn}, with the store"), with[slot].0, "s")
                .ratio(without[slot].0 / with[slot].0)
                .print();
            Line::new(&format!("{name}, {turn}, with the store"), with[slot].1 as f64, "tokens")
                .ratio(without[slot].1 as f64 / with[slot].1 as f64)
                .print();
        }
    }
    Ok(())
}
