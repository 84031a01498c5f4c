//! The cached states that a future plan would find.

use std::collections::HashSet;

use super::{Held, Key, keys};
use crate::plan::{NodeId, Plan};

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
        // A passage right after the prompt prefix can also be cached with its scores: its cells are the same.
        let passage = |node| plan.parent(node).is_some_and(|parent| plan.parent(parent).is_none());
        let cached =
            |(node, key): &&(NodeId, Key)| there(key) || !key.scored && passage(*node) && there(&key.with_scores());
        keys(plan, &self.generator).iter().filter(cached).map(|(node, _)| plan.length(*node)).sum()
    }
}
