//! Use cases: what a caller asks for, done with plans, scores and measures. Nothing here knows a wire format or a runtime.
//!
//! `models` says what serves a request, `rerank` drives a method of `methods`, `belief`, `utility` and `evaluate` sample answers
//! and measure them, `position_bias` arranges contexts. Every use case takes the [`Call`](crate::call::Call) it works for.

mod answers;
pub mod belief;
pub mod calibrate;
mod error;
pub mod evaluate;
pub mod fusing;
mod judgement;
pub mod methods;
pub mod models;
pub mod position_bias;
pub mod prompt;
pub mod rerank;
mod truncate;
pub mod utility;

use std::sync::Arc;
use std::time::Instant;

pub use error::EngineError;
use models::{Models, ServedGenerator};

/// Bounds on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Passages.
    pub passages: usize,
    /// Bytes of a query.
    pub query_bytes: usize,
    /// Bytes of a passage, its title included.
    pub passage_bytes: usize,
    /// Orders of the passages.
    pub orders: usize,
    /// Tokens evaluated for one request.
    pub tokens: usize,
    /// Pairs of texts that the entailment model judges for one request.
    pub pairs: usize,
    /// Whether passages are cut to fit the context where the request does not say.
    pub truncate: bool,
}

/// The use cases over the models of a server.
#[derive(Clone)]
pub struct Engine {
    models: Models,
    limits: Limits,
    context_free: Arc<utility::ContextFreeCache>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Engine {
    /// Puts the parts together. The models need not be loaded yet.
    #[must_use]
    pub fn new(models: Models, limits: Limits) -> Self {
        Self { models, limits, context_free: Arc::default() }
    }

    /// The models.
    #[must_use]
    pub const fn models(&self) -> &Models {
        &self.models
    }

    /// The default generator.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loaded.
    pub fn generator(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.models.generator(None)?.get()
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
}

fn no_judge() -> EngineError {
    EngineError::Precondition("no entailment model is configured: set entailment.model".into())
}

/// Milliseconds since `start`.
fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
