//! The models' threads and queues.
//!
//! `worker` is the thread that owns a model of any kind: loading, supervision, status. `generator` schedules plans on a
//! causal language model, `entailment` judges pairs of texts, `reranker` scores passages; the lists of both take `turns`.
//! `estimate` predicts the tokens of a request, `pace` measures the speed of a model, and `order` decides which
//! waiting work begins next. Work carries its [`Call`](crate::call::Call): a plan or a list of pairs is dropped
//! before its next step when the call stops.

pub mod entailment;
pub mod estimate;
pub mod generator;
mod order;
pub mod pace;
pub mod reranker;
mod turns;
pub mod worker;

pub use worker::{Load, Status};

use crate::call::Stopped;
use crate::model::ModelError;

/// A resource that a plan may need too much of ([`ScheduleError::TooLarge`]).
pub const SEQUENCES: &str = "sequences";

/// Why work was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The call was cancelled, or its deadline passed or would pass before the work ends.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Earlier admitted work takes longer than its deadline, or the longest wait, allows.
    #[error("the work admitted before this request takes too long")]
    Overloaded {
        /// When it would have been admitted, without other requests.
        retry_after: std::time::Duration,
    },
    /// The model is loading, its worker failed, or the server is draining.
    #[error("the model is not available")]
    Unavailable,
    /// The plan exceeds the cache.
    #[error("needs {needed} {what}, {available} available")]
    TooLarge {
        /// Cells or sequences.
        what: &'static str,
        /// Least number needed.
        needed: usize,
        /// Available number.
        available: usize,
    },
    /// The model failed on this work.
    #[error(transparent)]
    Model(#[from] ModelError),
}
