//! log P(query | passage) - log P(query | no passage), from single-passage prompts (question generation, QG; Sachan
//! et al., 2022, UPR). The subtrahend is one number per query: it changes no order, but gives the utilities a zero.

use std::sync::Arc;

use super::query_prompt::{QueryPrompt, overhead_with};
use super::{Method, Pointwise, PromptShape, Ranking, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::real;

/// Utility in nats, the sum over the query's tokens.
pub(super) struct QueryGeneration;

impl Method for QueryGeneration {
    fn name(&self) -> &'static str {
        "query-generation"
    }

    fn summary(&self) -> &'static str {
        "log P(query | passage) over no passage, each passage alone (question generation; Sachan et al.)"
    }

    fn takes_prefix(&self) -> bool {
        true
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 1, overhead: overhead_with(&request.prefix, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let prompts = (0..task.passages.len()).map(|index| prompt.with(&task, &[index], false)).collect();
        let unit = real(task.query.len().max(1));
        let none = prompt.with(&task, &[], false);
        Ok(Pointwise::against(none, task, prompts, unit, |scores, prompt| scores.last(prompt).iter().sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{order, run_on, task};
    use super::*;
    use numeric::sigmoid;

    /// Three query tokens: -1, -0.5, -0.2 after the first passage, -0.4, -2, -0.3 after the second, -2, -2.5, -1 after none.
    #[test]
    fn hand_worked() {
        let mut task = Arc::into_inner(task(2)).unwrap();
        task.query.truncate(3);
        let sum = |order: &[usize]| match order {
            [0] => -1.7,
            [1] => -2.7,
            _ => -5.5,
        };
        let ran = run_on(&QueryGeneration, Arc::new(task), usize::MAX, &|prompt| sum(&order(prompt)));
        let scored = ran.scored;
        assert_eq!((ran.rounds.len(), ran.rounds[0].len(), scored.ranking), (1, 3, vec![0, 1]));
        for (utility, (mutual, score)) in scored.utilities.iter().zip([(3.8, 0.780), (2.8, 0.718)]) {
            assert!((utility - mutual).abs() < 1e-12 && (sigmoid(utility / scored.unit) - score).abs() < 5e-4);
        }
        assert!(scored.has_zero);
    }
}
