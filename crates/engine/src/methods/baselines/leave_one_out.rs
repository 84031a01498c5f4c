//! log P(a | q, all) − log P(a | q, all but p): how much less likely the generator's own answer a is without each passage
//! (AttriBoT's target).
//!
//! Zero means that the passage is not missed; below zero it distracts. **Redundancy hides**: if two passages hold
//! the answer, neither is missed and both score near 0. The others keep their order, so that the prompts share
//! prefixes and a removal only evaluates the passages after it: N (N + 1) / 2 passage evaluations instead of N².

use std::sync::Arc;

use super::super::own_answer::{self, Attribution, OwnAnswer};
use super::super::{Method, PromptShape, Ranking, Scored, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use prefix_scheduler::call::Call;

/// Utility in nats, a sum over the answer's tokens.
pub(in crate::methods) struct LeaveOneOut;

impl Method for LeaveOneOut {
    fn name(&self) -> &'static str {
        "leave-one-out"
    }

    fn summary(&self) -> &'static str {
        "log P(own answer | all) - log P(own answer | all but the passage), the answer drawn from the whole list"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(own_answer::shape(request, language))
    }

    fn reads_own_answer(&self) -> bool {
        true
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        own_answer::begin(&task, Without { passages: task.passages.len() })
    }
}

struct Without {
    passages: usize,
}

impl Attribution for Without {
    /// All passages first. They are scored again, for one passage evaluation. Both sides of a difference then come
    /// from the same kind of evaluation. Rounding in the draw, which evaluates one token at a time, does not look
    /// like a utility.
    fn contexts(&self) -> Vec<Vec<usize>> {
        let all = 0..self.passages;
        let without = |left_out: usize| all.clone().filter(|passage| *passage != left_out).collect();
        std::iter::once(all.clone().collect()).chain(all.clone().map(without)).collect()
    }

    fn rank(&self, answer: &OwnAnswer, _: &Call) -> Result<Scored, EngineError> {
        let [all, without @ ..] = &answer.contexts[..] else {
            return Err(EngineError::Internal("nothing was scored".into()));
        };
        Ok(answer.ranked(without.iter().map(|rest| all - rest).collect()))
    }
}
