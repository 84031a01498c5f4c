//! One step of a walk: copies of sequences, then runs of tokens.

use std::ops::Range;

use super::NodeId;

/// Source of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A sequence of the same walk, by the walk's number.
    Own(usize),
    /// A sequence that holds a root and that the caller registered with [`Walk::adopt`](super::Walk::adopt), by the
    /// caller's number.
    Prefix(usize),
    /// The saved state of a node, which the caller registered with [`Walk::restore`](super::Walk::restore). It is
    /// appended to the destination, which holds the positions before the node.
    Saved(NodeId),
}

/// A copy of cells into a sequence. The copies of a step are made in order, before its pieces are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Sequence to copy from.
    pub from: Source,
    /// Destination sequence of the walk; empty unless the source is [`Source::Saved`].
    pub to: usize,
    /// Number of leading positions that the destination holds after the copy.
    pub length: usize,
}

/// A run of tokens of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Node that the tokens belong to.
    pub node: NodeId,
    /// Range of token indices within the node.
    pub tokens: Range<usize>,
    /// Sequence that the tokens extend.
    pub sequence: usize,
}

/// The work of one call of the generator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Copies to make before the pieces are evaluated, in this order.
    pub forks: Vec<Fork>,
    /// Token runs. Every run comes after the runs it depends on.
    pub pieces: Vec<Piece>,
}

impl Step {
    /// Number of tokens over all pieces.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens.len()).sum()
    }
}
