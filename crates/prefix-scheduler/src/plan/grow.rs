//! Sampled continuations. Their tokens are drawn while the plan runs.

use std::sync::Arc;

use super::Token;
use numeric::sampling::Sampling;

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

/// Decides after each drawn token if a sample ends.
pub trait Stop: Send + Sync {
    /// Returns the reason if the sample ends after the last of `tokens`, otherwise `None`.
    fn ended(&self, tokens: &[Token]) -> Option<Finish>;
}

/// Limits a sample to a set of tokens at every position, so that its text has a given form.
pub trait Allowed: Send + Sync {
    /// The tokens that may follow `drawn`, the sample so far; not empty before the sample has ended. A single token is
    /// forced: it takes no random number, its log-probability is 0, and it is evaluated together with the token before it.
    fn after(&self, drawn: &[Token]) -> Vec<Token>;
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
    /// The tokens that may be drawn; `None` allows all. Log-probabilities then belong to the distribution over the
    /// allowed tokens, which sums to 1.
    pub allowed: Option<Arc<dyn Allowed>>,
}

impl Grow {
    /// Maximum number of evaluated tokens. The last token is drawn but never evaluated.
    #[must_use]
    pub fn evaluated(&self) -> usize {
        self.most.saturating_sub(1)
    }

    /// The tokens that may follow `drawn`; `None` if all may.
    #[must_use]
    pub fn allowed_after(&self, drawn: &[Token]) -> Option<Vec<Token>> {
        self.allowed.as_ref().map(|allowed| allowed.after(drawn))
    }

    /// The only token that may follow `drawn`; `None` if there is a choice.
    #[must_use]
    pub fn forced_after(&self, drawn: &[Token]) -> Option<Token> {
        match self.allowed_after(drawn)?[..] {
            [token] => Some(token),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Grow {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Grow").field("most", &self.most).field("seed", &self.seed).finish_non_exhaustive()
    }
}
