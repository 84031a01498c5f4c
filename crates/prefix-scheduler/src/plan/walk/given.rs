//! Nodes that are not evaluated, because the caller has their cells.

use super::{NodeId, State, Walk};

/// Source of the cells of a node that is not evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// A sequence of the caller's, which holds the node.
    Kept(usize),
    /// A saved state.
    Saved,
}

impl Walk {
    /// Registers the caller's sequence `kept`, which holds the tokens of the root `node`. The node is then copied from
    /// it instead of evaluated. Returns the number of tokens saved; 0 if the node has started, is not a root, or has
    /// logits that are read, in which case nothing is registered. Logits that only score nodes which [`Walk::restore`]
    /// registered before are not read.
    pub fn adopt(&mut self, node: NodeId, kept: usize) -> usize {
        if self.plan.nodes[node.0].parent.is_some() {
            return 0;
        }
        self.give(node, Given::Kept(kept))
    }

    /// Registers that the caller has the saved state of `node`, and its log-probabilities where its tokens are scored. The
    /// node is then restored instead of evaluated, and its tokens are no targets. Returns the number of tokens saved; 0
    /// as for [`Walk::adopt`], but for any depth.
    pub fn restore(&mut self, node: NodeId) -> usize {
        self.give(node, Given::Saved)
    }

    fn give(&mut self, node: NodeId, given: Given) -> usize {
        let known = self.given.contains_key(&node.0);
        let replaceable = match given {
            Given::Kept(_) => self.is_unread(node),
            Given::Saved => self.plan.is_context(node) || self.plan.is_scored_context(node),
        };
        if known || self.states[node.0] != State::Waiting || !replaceable {
            return 0;
        }
        self.given.insert(node.0, given);
        self.remaining -= self.limit[node.0];
        self.limit[node.0]
    }

    /// True if a node has children and no logits of it are read that are not known.
    fn is_unread(&self, node: NodeId) -> bool {
        let known = |offset| {
            let mut targets = self.plan.targets(node.0, offset).into_iter();
            self.plan.draws(node.0, offset).is_empty() && targets.all(|target| self.given.contains_key(&target.node.0))
        };
        !self.plan.is_leaf(node) && (0..self.plan.length(node)).all(known)
    }

    /// Sequences registered with [`Walk::adopt`] that are not copied yet.
    pub fn adopted(&self) -> impl Iterator<Item = usize> {
        self.given.values().filter_map(|given| match given {
            Given::Kept(kept) => Some(*kept),
            Given::Saved => None,
        })
    }
}
