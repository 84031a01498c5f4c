//! Pointwise methods: one single-passage prompt per passage.

use std::sync::Arc;

use super::{Budget, Prompt, Ranking, Scored, Scores, Task};
use crate::types::EngineError;
use prefix_scheduler::call::Call;

/// The zero of the utilities.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// They have none.
    None,
    /// Given by the method's utility.
    Own,
    /// The score of a last prompt without passages.
    LastPrompt,
    /// None: the score of the last prompt is subtracted, but 0 has no meaning.
    Shifted,
}

/// A ranking by one prompt per passage.
pub(super) struct Pointwise<S> {
    task: Arc<Task>,
    prompts: Option<Vec<Prompt>>,
    zero: Zero,
    utilities: Vec<f64>,
    unit: f64,
    /// The utility of a passage from the scores of its prompt.
    utility: S,
}

impl<S: Fn(&Scores, usize) -> f64 + Send + 'static> Pointwise<S> {
    /// Utilities without a zero, unchanged from the prompts.
    pub fn boxed(task: Arc<Task>, prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        Self::with(Zero::None, task, prompts, unit, utility)
    }

    /// Utilities whose zero `utility` defines.
    pub fn zeroed(task: Arc<Task>, prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        Self::with(Zero::Own, task, prompts, unit, utility)
    }

    /// Utilities minus the utility of `null`, a prompt without a passage. One number per query: the ranking is
    /// unchanged, and above 0 a passage made the query likelier (pointwise mutual information).
    pub fn against(null: Prompt, task: Arc<Task>, mut prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        prompts.push(null);
        Self::with(Zero::LastPrompt, task, prompts, unit, utility)
    }

    /// As [`Self::against`], if `null` is not a fair prompt without a passage.
    pub fn shifted(null: Prompt, task: Arc<Task>, mut prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        prompts.push(null);
        Self::with(Zero::Shifted, task, prompts, unit, utility)
    }

    fn with(zero: Zero, task: Arc<Task>, prompts: Vec<Prompt>, unit: f64, utility: S) -> Box<dyn Ranking> {
        Box::new(Self { task, prompts: Some(prompts), zero, utilities: Vec::new(), unit, utility })
    }
}

impl<S: Fn(&Scores, usize) -> f64 + Send> Ranking for Pointwise<S> {
    fn next(&mut self, _: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(self.prompts.take())
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        let passages = self.task.passages.len();
        let subtracts = matches!(self.zero, Zero::LastPrompt | Zero::Shifted);
        let none = if subtracts { (self.utility)(scores, passages) } else { 0.0 };
        self.utilities = (0..passages).map(|passage| (self.utility)(scores, passage) - none).collect();
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let utilities = std::mem::take(&mut self.utilities);
        Ok(Scored {
            has_zero: matches!(self.zero, Zero::Own | Zero::LastPrompt),
            ..Scored::by_utility(utilities, self.unit)
        })
    }
}
