//! One prompt a passage, scored alone: what every pointwise method asks for.

use std::sync::Arc;

use super::{Budget, Prompt, Ranking, Scored, Scores, Task};
use crate::call::Call;
use crate::engine::EngineError;

/// A ranking by one prompt a passage.
pub(super) struct Pointwise<S> {
    task: Arc<Task>,
    prompts: Option<Vec<Prompt>>,
    /// Whether a last prompt holds no passage and gives the utilities their zero.
    null: bool,
    /// Whether the utilities have a zero.
    has_zero: bool,
    utilities: Vec<f64>,
    unit: f64,
    /// The utility of a passage from the scores of its prompt.
    utility: S,
}

impl<S: Fn(&Scores, usize) -> f64 + Send + 'static> Pointwise<S> {
    /// Utilities as the prompts give them, without a zero.
    pub fn boxed(task: Arc<Task>, prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        let utilities = Vec::new();
        Box::new(Self { task, prompts: Some(prompts), null: false, has_zero: false, utilities, unit, utility })
    }

    /// Utilities that `utility` itself gives their zero.
    pub fn zeroed(task: Arc<Task>, prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        let utilities = Vec::new();
        Box::new(Self { task, prompts: Some(prompts), null: false, has_zero: true, utilities, unit, utility })
    }

    /// Utilities minus that of `null`, a prompt without a passage. One number a query: the ranking is the same, and above 0 a
    /// passage made the query likelier (pointwise mutual information).
    pub fn against(null: Prompt, task: Arc<Task>, mut prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        prompts.push(null);
        let utilities = Vec::new();
        Box::new(Self { task, prompts: Some(prompts), null: true, has_zero: true, utilities, unit, utility })
    }
}

impl<S: Fn(&Scores, usize) -> f64 + Send> Ranking for Pointwise<S> {
    fn next(&mut self, _: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(self.prompts.take())
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        let passages = self.task.passages.len();
        let none = if self.null { (self.utility)(scores, passages) } else { 0.0 };
        self.utilities = (0..passages).map(|passage| (self.utility)(scores, passage) - none).collect();
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let utilities = std::mem::take(&mut self.utilities);
        Ok(Scored { has_zero: self.has_zero, ..Scored::by_utility(utilities, self.unit) })
    }
}
