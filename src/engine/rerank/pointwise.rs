//! Methods that look at each passage alone: one prompt a passage, the instruction shared.

use super::super::{Engine, EngineError};
use super::prepared::Prepared;
use super::{Method, Scored};
use crate::numeric::descending;
use crate::plan::Plan;

pub(super) async fn score(engine: &Engine, task: &mut Prepared) -> Result<Scored, EngineError> {
    let joint = task.request.method == Method::BayesSaliency;
    let mut plan = Plan::new();
    let paths: Vec<_> =
        (0..task.passages.len()).map(|index| task.add_prompt(engine, &mut plan, &[index], joint)).collect();
    let outcome = task.run(engine, plan, |_, _| None).await?;
    let sum = |scores: &[f64]| scores.iter().sum::<f64>();
    let utilities: Vec<f64> = paths
        .iter()
        .map(|path| {
            let query = path.last().map_or(&[][..], |node| &outcome.scores[node.0]);
            match task.request.method {
                Method::LongLlmLingua => query.iter().map(|score| score.exp() * score).sum(),
                _ => path.iter().map(|node| sum(&outcome.scores[node.0])).sum(),
            }
        })
        .collect();
    let ranking = descending(&utilities);
    Ok(Scored { utilities, standard_errors: None, ranking, outranks_next: None, fit: None })
}
