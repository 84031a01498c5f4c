//! What a walk asks for next.

use std::ops::Range;

use super::NodeId;

/// Where a fork copies from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A sequence of the walk.
    Own(usize),
    /// A sequence that the caller promised with [`Walk::promise`](super::Walk::promise), by the caller's number.
    Kept(usize),
}

/// A copy of the leading cells of a sequence, to be made before the pieces of the same step are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Sequence to copy from.
    pub from: Source,
    /// Sequence of the walk that receives them. It is a fresh one, unless `from` is kept: then what it holds goes first.
    pub to: usize,
    /// Number of leading positions to copy.
    pub length: usize,
}

/// A run of tokens of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The node.
    pub node: NodeId,
    /// Range of its tokens.
    pub tokens: Range<usize>,
    /// Sequence that the tokens extend.
    pub sequence: usize,
}

/// What to evaluate next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Copies to make first.
    pub forks: Vec<Fork>,
    /// Token runs, in an order in which every run follows what it depends on.
    pub pieces: Vec<Piece>,
}

impl Step {
    /// Tokens in the step.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens.len()).sum()
    }
}
