//! Shared state of the rounds of one request.

use crate::warm::Held;

/// The rounds of one request: plans that run one after another. A round restores the states of earlier
/// rounds, even if the store had no room for them. Nothing is held if no states are cached.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    pub(super) held: Held,
    /// Segments after the prompt prefix that later rounds may share; 0 if none follows.
    pub(super) shares: usize,
}

impl Rounds {
    /// These rounds before the next one, whose first `shares` segments after the prompt prefix later rounds may
    /// share.
    #[must_use]
    pub fn of(&self, shares: usize) -> Self {
        Self { held: self.held.clone(), shares }
    }
}
