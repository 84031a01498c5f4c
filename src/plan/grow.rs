//! Samples: continuations whose tokens are not known before they are drawn.

use std::sync::Arc;

use super::Token;
use crate::numeric::sampling::Sampling;

/// Why a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    EndOfTurn,
    /// A stop string came.
    StopString,
    /// It has as many tokens as it may.
    Length,
}

/// Knows when a sample is at its end.
pub trait Stop: Send + Sync {
    /// Whether a sample of these tokens, the last one just drawn, is at its end.
    fn ended(&self, tokens: &[Token]) -> Option<Finish>;
}

/// How a continuation is sampled.
#[derive(Clone)]
pub struct Grow {
    /// How its tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens; at least 1.
    pub most: usize,
    /// Seed of its own random numbers.
    pub seed: u64,
    /// When it ends before that.
    pub stop: Arc<dyn Stop>,
}

impl Grow {
    /// Tokens that are evaluated at most: the last one is drawn, never read.
    #[must_use]
    pub fn evaluated(&self) -> usize {
        self.most.saturating_sub(1)
    }
}

impl std::fmt::Debug for Grow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Grow").field("most", &self.most).field("seed", &self.seed).finish_non_exhaustive()
    }
}
