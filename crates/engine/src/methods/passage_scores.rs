//! Scores by a ranking model: a cross-encoder, which reads query and passage together (Nogueira and Cho, 2019), or
//! an embedding model, which reads them separately (Reimers and Gurevych, 2019).

use std::sync::Arc;

use super::scored::complete;
use super::{Budget, Method, Needs, PromptShape, Ranking, Scored, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RankingStage, RerankRequest, Role};
use numeric::descending;
use prefix_scheduler::call::Call;

/// Utility is a logit: its sigmoid, `score`, is the probability that the model was trained for.
pub(super) const CROSS_ENCODER: ScoredApart = ScoredApart {
    name: "cross-encoder",
    summary: "the logit of the cross-encoder `reranker.model` for query and passage together (Nogueira and Cho)",
    role: Role::Reranker,
};

/// Utility is a cosine, from -1 to 1.
pub(super) const EMBEDDING: ScoredApart = ScoredApart {
    name: "embedding",
    summary: "cosine of query and passage, embedded apart by `embedding.model` (Reimers and Gurevych)",
    role: Role::Embedding,
};

/// A method whose utilities are the raw scores of one model. They have no zero: for a cross-encoder, 0 is an even
/// chance of relevance, which is unrelated to the generator.
pub(super) struct ScoredApart {
    name: &'static str,
    summary: &'static str,
    role: Role,
}

impl Method for ScoredApart {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn prompts(&self, _: &RerankRequest, _: &Language) -> Option<PromptShape> {
        None
    }

    fn passage_model(&self) -> Option<Role> {
        Some(self.role)
    }

    fn begin(&self, _: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        Ok(Box::new(ByModel { role: self.role, utilities: None }))
    }
}

struct ByModel {
    role: Role,
    utilities: Option<Vec<f64>>,
}

impl Ranking for ByModel {
    fn needs(&mut self, _: &Budget, _: &Call) -> Result<Option<Needs>, EngineError> {
        Ok(self.utilities.is_none().then_some(Needs::PassageScores(self.role)))
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        let read = |(&score, &unreadable): (&f64, &bool)| if unreadable { f64::NAN } else { score };
        self.utilities = Some(scores.passages().iter().zip(scores.unreadable()).map(read).collect());
        Ok(())
    }

    /// Passages that the model cannot read come last, in input order.
    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let known = self.utilities.take().unwrap_or_default();
        let stage = |utility: &f64| if utility.is_nan() { RankingStage::Retriever } else { RankingStage::Alone };
        let all_read = known.iter().all(|utility| utility.is_finite());
        let stages = if all_read { Vec::new() } else { known.iter().map(stage).collect() };
        let place = |utility: &f64| if utility.is_nan() { f64::NEG_INFINITY } else { *utility };
        let ranking = descending(&known.iter().map(place).collect::<Vec<_>>());
        Ok(Scored { stages, ranking, ..Scored::by_utility(complete(&known), 1.0) })
    }
}
