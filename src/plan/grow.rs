//! Sampled continuations. Their tokens are drawn while the plan runs.

use std::sync::Arc;

use super::Token;
use crate::numeric::sampling::Sampling;

/// Why a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    EndOfTurn,
    /// The text contains a stop string.
    StopString,
    /// The sample reached [`Grow::most`] tokens.
    Length,
}

/// Decides after each drawn token whether a sample ends.
pub trait Stop: Send + Sync {
    /// Returns the reason if the sample ends after the last of `tokens`, otherwise `None`.
    fn ended(&self, tokens: &[Token]) -> Option<Finish>;
}

/// How a continuation is sampled.
#[derive(Clone)]
pub struct Grow {
    /// Temperature and cuts of each draw.
    pub sampling: Sampling,
    /// Maximum number of tokens; at least 1.
    pub most: usize,
    /// Seed of the random numbers of this sample. Each sample has its own, so other samples do not change it.
    pub seed: u64,
    /// Stop condition that may end the sample before `most` tokens.
    pub stop: Arc<dyn Stop>,
}

impl Grow {
    /// Maximum number of evaluated tokens. The last token is drawn but never evaluated.
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
