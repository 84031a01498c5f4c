//! Shared state of the rounds of one request.

use std::time::Instant;

use crate::warm::Held;

/// The rounds of one request: plans that run one after another. A round restores the states of earlier
/// rounds, even if the store had no room for them. Nothing is held if no states are cached.
#[derive(Debug, Clone)]
pub struct Rounds {
    pub(super) held: Held,
    /// When the first round was planned: later rounds keep its place in the order.
    pub(super) since: Instant,
    /// Segments after the prompt prefix that later rounds may share; 0 if none follows.
    pub(super) shares: usize,
    /// True if the request has an answer without the next round, which is then given up early if it would end late.
    pub(super) optional: bool,
}

impl Rounds {
    /// These rounds before the next one, whose first `shares` segments after the prompt prefix later rounds may
    /// share. `optional`: the request has an answer without that round.
    #[must_use]
    pub fn of(&self, shares: usize, optional: bool) -> Self {
        Self { shares, optional, ..self.clone() }
    }
}
