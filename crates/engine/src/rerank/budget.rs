//! Bounds of a ranking: its budgets, and the reserve for later steps.

use crate::types::RerankRequest;
use numeric::count;

/// Most tokens that a request may evaluate, including reserved ones.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub tokens: usize,
    /// The tokens without a latency budget.
    pub counted: usize,
}

/// Reserved for the steps after the ranking: compression and utility.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reserved {
    /// Tokens.
    pub tokens: usize,
    /// The share of these for another generator than the one that scores.
    pub other_tokens: usize,
    /// Milliseconds that other models take.
    pub other_ms: f64,
}

/// Tokens that a generator of this speed reads within the latency budget minus `other_ms`; `None` without a budget
/// or a speed.
pub(super) fn tokens_in_time(request: &RerankRequest, speed: Option<f64>, other_ms: f64) -> Option<usize> {
    let (budget, speed) = request.latency_budget_ms.zip(speed)?;
    Some(count(speed * (budget - other_ms).max(0.0) / 1e3))
}

impl RerankRequest {
    /// True if a time limit, or a token limit close to `tokens`, may have cut the work short. The cost is then not
    /// typical.
    pub(super) fn was_bounded(&self, tokens: usize) -> bool {
        self.latency_budget_ms.is_some() || self.token_budget.is_some_and(|budget| tokens > budget / 2)
    }
}
