//! Nodes that are not evaluated, because their cells are cached.

use super::{NodeId, State, Walk};

/// Source of the cells of a node that is not evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cached {
    /// A sequence of the generator that holds the node, a prompt prefix.
    Prefix(usize),
    /// A saved state.
    Saved,
}

impl Walk {
    /// Registers the caller's `sequence`, which holds the tokens of the root `node`. The node is then copied from
    /// it instead of evaluated. Returns the number of saved tokens. Returns 0 and registers nothing if the node has
    /// started, is not a root, or has logits that are needed. Logits that only score restored nodes
    /// ([`Walk::restore`]) are not needed.
    pub fn adopt(&mut self, node: NodeId, sequence: usize) -> usize {
        if self.plan.nodes[node.0].parent.is_some() {
            return 0;
        }
        self.reuse(node, Cached::Prefix(sequence))
    }

    /// Registers that the caller has the saved state of `node`, and its log-probabilities if its tokens are scored.
    /// The node is then restored instead of evaluated, and its tokens are not targets. Returns the number of saved
    /// tokens; 0 as for [`Walk::adopt`], but any depth is allowed.
    pub fn restore(&mut self, node: NodeId) -> usize {
        self.reuse(node, Cached::Saved)
    }

    fn reuse(&mut self, node: NodeId, source: Cached) -> usize {
        let known = self.cached.contains_key(&node.0);
        let replaceable = match source {
            Cached::Prefix(_) => self.is_unread(node),
            Cached::Saved => self.plan.is_context(node) || self.plan.is_scored_context(node),
        };
        if known || self.states[node.0] != State::Waiting || !replaceable {
            return 0;
        }
        self.cached.insert(node.0, source);
        self.remaining -= self.limit[node.0];
        self.limit[node.0]
    }

    /// True if a node has children and all of its needed logits are known.
    fn is_unread(&self, node: NodeId) -> bool {
        let known = |offset| {
            let mut targets = self.plan.targets(node.0, offset).into_iter();
            self.plan.draws(node.0, offset).is_empty() && targets.all(|target| self.cached.contains_key(&target.node.0))
        };
        !self.plan.is_leaf(node) && (0..self.plan.length(node)).all(known)
    }

    /// Sequences registered with [`Walk::adopt`] that are not copied yet.
    pub fn adopted(&self) -> impl Iterator<Item = usize> {
        self.cached.values().filter_map(|source| match source {
            Cached::Prefix(sequence) => Some(*sequence),
            Cached::Saved => None,
        })
    }
}
