//! The retriever's own scores, or the input order if a passage has none. Asks no model.

use std::sync::Arc;

use super::{Budget, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RankingStage, RerankRequest};
use numeric::real;
use prefix_scheduler::call::Call;

/// Utility in the retriever's own unit.
pub(super) struct Retriever;

impl Method for Retriever {
    fn name(&self) -> &'static str {
        "retriever"
    }

    fn summary(&self) -> &'static str {
        "the retriever's scores, or the given order where a passage has none; asks no model"
    }

    fn asks_generator(&self) -> bool {
        false
    }

    fn uncalibrated(&self, request: &RerankRequest) -> Option<&'static str> {
        let lacks = request.passages.iter().any(|passage| passage.retriever_score.is_none());
        lacks.then_some("needs a retriever_score of every passage: without, the given order is all that it has")
    }

    /// The caller gave a score per passage.
    fn tells_copies_apart(&self, _: &RerankRequest) -> bool {
        true
    }

    fn prompts(&self, _: &RerankRequest, _: &Language) -> Option<PromptShape> {
        None
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        Ok(Box::new(ByRetriever(task)))
    }
}

struct ByRetriever(Arc<Task>);

impl Ranking for ByRetriever {
    fn next(&mut self, _: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(None)
    }

    fn absorb(&mut self, _: &Scores, _: &Call) -> Result<(), EngineError> {
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let passages = &self.0.request.passages;
        let scores: Option<Vec<f64>> = passages.iter().map(|passage| passage.retriever_score).collect();
        let mut warnings = Vec::new();
        let utilities = scores.unwrap_or_else(|| {
            warnings.push("not every passage has a retriever_score: the given order is kept".to_owned());
            (0..passages.len()).map(|index| -real(index)).collect()
        });
        let stages = vec![RankingStage::Retriever; utilities.len()];
        Ok(Scored { stages, warnings, ..Scored::by_utility(utilities, 1.0) })
    }
}
