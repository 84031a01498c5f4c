//! Bounds of a ranking: its budgets, and what is reserved for the steps after it.

use crate::types::RerankRequest;
use numeric::count;

/// Most tokens that a request may evaluate, what is reserved included.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub tokens: usize,
    /// The tokens without the bound of a latency budget.
    pub counted: usize,
}

/// Reserved for the steps after the ranking: compression and utility.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reserved {
    /// Tokens.
    pub tokens: usize,
    /// Tokens of them for another generator than the one that scores.
    pub other_tokens: usize,
    /// Milliseconds that other models take.
    pub other_ms: f64,
}

/// Tokens that a generator of this speed reads within the latency budget less `other_ms`; `None` without a budget or a speed.
pub(super) fn tokens_in_time(request: &RerankRequest, speed: Option<f64>, other_ms: f64) -> Option<usize> {
    let (budget, speed) = request.latency_budget_ms.zip(speed)?;
    Some(count(speed * (budget - other_ms).max(0.0) / 1e3))
}

impl RerankRequest {
    /// True if a time, or a number of tokens that so many are near to, may have left something unread. What was read then says
    /// nothing of what all takes.
    pub(super) fn was_bounded(&self, tokens: usize) -> bool {
        self.latency_budget_ms.is_some() || self.token_budget.is_some_and(|budget| tokens > budget / 2)
    }
}
