//! Prompts of a method, and their cost.

use prefix_scheduler::plan::{Cost, Grow, NodeId, Plan, Segment};
use prefix_scheduler::scheduler::generator::Kept;

/// The shape of a method's prompts. The driver cuts passages to fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptShape {
    /// Passages in the longest prompt.
    pub longest: usize,
    /// Tokens of a prompt that are neither passage nor query.
    pub overhead: usize,
}

/// A prompt to score or continue.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Its segments, in order. First segments that prompts share are evaluated once.
    pub segments: Vec<Segment>,
    /// A continuation to draw after the last segment. Without it, at least one segment has scored tokens.
    pub grow: Option<Grow>,
}

impl Prompt {
    /// A prompt whose segments are scored.
    #[must_use]
    pub fn scored(segments: Vec<Segment>) -> Self {
        Self { segments, grow: None }
    }

    /// A prompt that the generator continues.
    #[must_use]
    pub fn grown(segments: Vec<Segment>, grow: Grow) -> Self {
        Self { segments, grow: Some(grow) }
    }

    /// Adds it to a plan. Returns the node of each segment, and of the continuation.
    pub(crate) fn add_to(&self, plan: &mut Plan) -> (Vec<NodeId>, Option<NodeId>) {
        let path = plan.add(&self.segments);
        let grown = self.grow.as_ref().zip(path.last()).map(|(grow, last)| plan.sample(*last, grow.clone()));
        (path, grown)
    }
}

/// The rest of the budget.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Tokens that may still be evaluated.
    pub tokens: usize,
    /// The tokens without a latency budget, whose bound is not known beforehand. A method that can answer with less
    /// need not refuse for lack of time.
    pub counted: usize,
    /// Tokens of the longest prompt that the generator can hold.
    pub context: usize,
    /// Cached prefixes, if time is the bound.
    pub kept: Option<Kept>,
}

impl Budget {
    /// The prompts as a plan.
    pub(crate) fn plan(prompts: &[Prompt]) -> Plan {
        let mut plan = Plan::new();
        for prompt in prompts {
            prompt.add_to(&mut plan);
        }
        plan
    }

    /// The total cost of prompts.
    #[must_use]
    pub fn cost(prompts: &[Prompt]) -> Cost {
        Self::plan(prompts).cost()
    }

    /// Tokens of these prompts that take no time: the restored tokens, except a tenth for copying and attention
    /// (docs/experiments/cache.md).
    pub(crate) fn spared(&self, plan: &Plan) -> usize {
        spared(self.kept.as_ref(), plan)
    }

    /// True if this many tokens may be planned, of which `spared` take no time.
    #[must_use]
    pub const fn suffices(&self, tokens: usize, spared: usize) -> bool {
        tokens <= self.counted && tokens.saturating_sub(spared) <= self.tokens
    }

    /// True if the tokens of these prompts may be evaluated.
    #[must_use]
    pub fn affords(&self, prompts: &[Prompt]) -> bool {
        let plan = Self::plan(prompts);
        self.suffices(plan.cost().tokens, self.spared(&plan))
    }

    /// True if these prompts may be scored: their tokens may be evaluated, and the longest fits the context.
    #[must_use]
    pub fn allows(&self, prompts: &[Prompt]) -> bool {
        let plan = Self::plan(prompts);
        let cost = plan.cost();
        cost.path_cells <= self.context && self.suffices(cost.tokens, self.spared(&plan))
    }
}

/// Tokens of this plan that take no time.
pub(crate) fn spared(kept: Option<&Kept>, plan: &Plan) -> usize {
    let restored = kept.map_or(0, |kept| kept.tokens(plan));
    restored - restored / 10
}
