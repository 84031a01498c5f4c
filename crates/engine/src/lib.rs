//! Use cases: what a caller asks for, done with plans, scores and measures. Nothing here knows a wire format or a runtime.
//!
//! `models` says what serves a request, `rerank` drives a method of `methods`, `belief`, `utility` and `evaluate` sample answers
//! and measure them, `task` words their prompts, `citations` checks what answers cite, `opening` is what a caller puts before
//! passages, `position_bias` arranges contexts, `warm` reads passages ahead of time. Every use case takes the
//! [`Call`](prefix_scheduler::call::Call) it works for.
#![warn(missing_docs)]

mod answers;
pub mod belief;
pub mod calibrate;
mod calibrations;
pub mod citations;
pub mod compress;
pub mod contexts;
mod error;
mod estimate;
pub mod evaluate;
pub mod fusing;
pub mod fusion;
mod judgement;
pub mod methods;
pub mod models;
pub mod opening;
pub mod position_bias;
pub mod preferences;
pub mod prompt;
pub mod rerank;
mod role;
pub mod task;
mod truncate;
pub mod utility;
pub mod warm;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use error::{EngineError, MOST_REPEATED, brief, clipped, quoted};
use models::{Models, ServedGenerator};

use prefix_scheduler::call::Place;

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
    /// Longest wait of a stream's question for its permit; `None` for no bound.
    pub permit_wait: Option<Duration>,
}

impl Limits {
    /// Bounds that a unit test does not reach, but for those it sets.
    pub const WIDE: Self = Self {
        passages: 1_000,
        query_bytes: 1_000,
        passage_bytes: 60_000,
        orders: 1_000,
        tokens: 1_000_000,
        pairs: 10_000,
        truncate: true,
        permit_wait: None,
    };
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

    /// The same engine, which draws the context-free answers of a question anew each time. What is drawn beside other prompts differs
    /// from them in its last digits, so kept ones would make equal requests differ.
    #[must_use]
    pub fn without_kept_answers(self) -> Self {
        Self { context_free: Arc::new(utility::ContextFreeCache::none()), ..self }
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

    /// The generator that scores passages where a request does not say: the scorer, or the default generator.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loaded.
    pub fn scorer(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.models.scoring("")?.get()
    }

    /// What computes the steps of the generator that scores: `cpu`, or the kind of the accelerator; `cpu` until it is loaded.
    #[must_use]
    pub fn compute(&self) -> String {
        self.scorer().map_or_else(|_| "cpu".to_owned(), |served| served.info.compute.clone())
    }

    /// The error of a request for which no place is free, with the time after which the backlog will be done.
    #[must_use]
    pub fn queue_full(&self) -> EngineError {
        let retry_after = self.models.generators().iter().map(|model| model.scheduler().retry_after()).max();
        EngineError::QueueFull { retry_after: retry_after.unwrap_or(Duration::from_secs(1)) }
    }

    /// The same for a place of a kind. What works beside the generator does not say when it will be done.
    pub fn queue_full_at(&self, place: Place) -> EngineError {
        match place {
            Place::Generator => self.queue_full(),
            Place::Beside => EngineError::QueueFull { retry_after: Duration::from_secs(1) },
        }
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
