//! log P(query | passage) - log P(query | no passage), each passage alone (question generation, QG; Sachan et al., 2022, UPR).
//! The subtrahend is one number a query: it changes no order, and gives the utilities a zero.

use std::sync::Arc;

use super::query_prompt::{QueryPrompt, overhead_with};
use super::{Method, Pointwise, PromptShape, Ranking, Task};
use crate::engine::EngineError;
use crate::engine::prompt::Language;
use crate::engine::rerank::RerankRequest;
use crate::numeric::real;

/// Utility in nats, the sum over the query's tokens.
pub(super) struct QueryGeneration;

impl Method for QueryGeneration {
    fn name(&self) -> &'static str {
        "query-generation"
    }

    fn summary(&self) -> &'static str {
        "log P(query | passage) over no passage, each passage alone (question generation; Sachan et al.)"
    }

    fn takes_opening(&self) -> bool {
        true
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 1, overhead: overhead_with(&request.opening, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let prompts = (0..task.passages.len()).map(|index| prompt.with(&task, &[index], false)).collect();
        let unit = real(task.query.len().max(1));
        let none = prompt.with(&task, &[], false);
        Ok(Pointwise::against(none, task, prompts, unit, |scores, prompt| scores.last(prompt).iter().sum()))
    }
}
