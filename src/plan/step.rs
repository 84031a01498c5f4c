//! One step of a walk: copies of sequences, then runs of tokens.

use std::ops::Range;

use super::NodeId;

/// Source of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A sequence of the same walk, by the walk's number.
    Own(usize),
    /// A cached sequence that the caller registered with [`Walk::promise`](super::Walk::promise), by the caller's
    /// number.
    Kept(usize),
}

/// A copy of the leading cells of a sequence. It is made before the pieces of the same step are evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Sequence to copy from.
    pub from: Source,
    /// Destination sequence of the walk. It is empty for [`Source::Own`]. For [`Source::Kept`] it may hold cells,
    /// which are released first.
    pub to: usize,
    /// Number of leading positions to copy.
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
    /// Copies to make before the pieces are evaluated.
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
