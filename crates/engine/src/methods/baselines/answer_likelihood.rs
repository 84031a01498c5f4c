//! log P(a | q, p) − log P(a | q): how much likelier a single passage makes the generator's own answer a.
//!
//! Zero means that a passage changes nothing; below zero it makes the answer less likely. If two passages both hold
//! the answer, both are credited; leaving one out would show no effect.

use std::sync::Arc;

use super::super::own_answer::{self, Attribution, OwnAnswer};
use super::super::{Method, PromptShape, Ranking, Scored, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use prefix_scheduler::call::Call;

/// Utility in nats, a sum over the answer's tokens.
pub(in crate::methods) struct AnswerLikelihood;

impl Method for AnswerLikelihood {
    fn name(&self) -> &'static str {
        "answer-likelihood"
    }

    fn summary(&self) -> &'static str {
        "log P(own answer | passage) - log P(own answer | none), the answer drawn from the whole list"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(own_answer::shape(request, language))
    }

    fn reads_own_answer(&self) -> bool {
        true
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        own_answer::begin(&task, Alone { passages: task.passages.len() })
    }
}

struct Alone {
    passages: usize,
}

impl Attribution for Alone {
    const HAS_ZERO: bool = true;

    fn contexts(&self) -> Vec<Vec<usize>> {
        (0..self.passages).map(|passage| vec![passage]).collect()
    }

    fn rank(&self, answer: &OwnAnswer, _: &Call) -> Result<Scored, EngineError> {
        let scored = answer.ranked(answer.contexts.iter().map(|alone| alone - answer.none).collect());
        Ok(Scored { has_zero: Self::HAS_ZERO, ..scored })
    }
}
