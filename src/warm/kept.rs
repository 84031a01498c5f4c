//! Which states there are, for a plan that is not made yet.

use std::collections::HashSet;

use super::{Held, Key, keys};
use crate::plan::Plan;

/// The states in memory at one time, and those that a request holds.
#[derive(Debug, Clone)]
pub struct Kept {
    pub(super) generator: Key,
    pub(super) there: HashSet<Key>,
    pub(super) held: Held,
}

impl Kept {
    /// Tokens of `plan` that would not be evaluated.
    #[must_use]
    pub fn tokens(&self, plan: &Plan) -> usize {
        let there = |key: &Key| self.there.contains(key) || self.held.get(key).is_some();
        // A state with scores has the same cells as one without.
        let kept = |key: &Key| there(key) || !key.scored && there(&key.with_scores());
        keys(plan, &self.generator).iter().filter(|(_, key)| kept(key)).map(|(node, _)| plan.length(*node)).sum()
    }
}
