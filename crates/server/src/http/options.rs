//! Options of the HTTP edge.

use std::time::Duration;

use engine::types::MethodRef;

/// Options of the HTTP edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// Largest body in bytes.
    pub body_bytes: usize,
    /// Method of requests that name none; `None` for the engine's default.
    pub method: Option<MethodRef>,
    /// Timeout of requests that state none; `None` for no timeout.
    pub timeout: Option<Duration>,
    /// Latency budget, in milliseconds, of rankings by the default method that state none; `None` for no budget.
    pub latency_budget_ms: Option<u32>,
    /// True if the page to try the server is served.
    pub page: bool,
}

impl Default for HttpOptions {
    /// Bodies of 1 MiB, the engine's method, no timeout, no latency budget, and the page.
    fn default() -> Self {
        Self { body_bytes: 1 << 20, method: None, timeout: None, latency_budget_ms: None, page: true }
    }
}
