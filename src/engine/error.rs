//! What can go wrong with a request, in the caller's terms.

use std::time::Duration;

use crate::call::Stopped;
use crate::fit::FitError;
use crate::metrics::InvalidInput;
use crate::model::ModelError;
use crate::scheduler::ScheduleError;

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// A field is wrong.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field, as in the protocol (`passages[3].text`).
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The request does not fit the context and may not be cut.
    #[error("{field}: needs {needed} tokens, {available} available")]
    TooLong {
        /// Path of the field.
        field: String,
        /// Tokens needed.
        needed: usize,
        /// Tokens available for it.
        available: usize,
    },
    /// The work is larger than one request may be.
    #[error("the request needs {needed} tokens, at most {allowed} allowed")]
    Budget {
        /// Tokens needed.
        needed: usize,
        /// Tokens allowed.
        allowed: usize,
    },
    /// The entailment model would have to judge more pairs than one request may ask for.
    #[error("the request needs more than {allowed} entailment judgements")]
    Pairs {
        /// Pairs allowed.
        allowed: usize,
    },
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull {
        /// When to try again.
        retry_after: Duration,
    },
    /// The deadline passed or would surely pass.
    #[error("the deadline passed, or would surely pass before the work ends")]
    DeadlineExceeded,
    /// The caller left or the server shuts down: nobody reads this.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server lacks what the request needs; the text says what to do.
    #[error("{0}")]
    Precondition(String),
    /// No model at the moment.
    #[error("the generator is not available")]
    Unavailable,
    /// Our fault; the text is for the log.
    #[error("internal error: {0}")]
    Internal(String),
}

impl EngineError {
    /// A field at fault.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}

impl From<ScheduleError> for EngineError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Stopped(stopped) => stopped.into(),
            ScheduleError::Unavailable => Self::Unavailable,
            ScheduleError::TooLarge { needed, available, .. } => {
                Self::TooLong { field: "passages".into(), needed, available }
            }
            // A generator that cannot be loaded is unavailable. A model that is loaded on demand and cannot be is named by the
            // server's settings: the message says which file is at fault.
            ScheduleError::Model(ModelError::Unusable { .. }) => Self::Precondition(error.to_string()),
            ScheduleError::Model(error) => Self::Internal(error.to_string()),
        }
    }
}

impl From<Stopped> for EngineError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => Self::Cancelled,
            Stopped::DeadlineExceeded => Self::DeadlineExceeded,
            Stopped::Panicked(problem) => Self::Internal(format!("a computation panicked: {problem}")),
        }
    }
}

impl From<InvalidInput> for EngineError {
    fn from(error: InvalidInput) -> Self {
        Self::Invalid { field: error.field, problem: error.problem }
    }
}

impl From<FitError> for EngineError {
    fn from(error: FitError) -> Self {
        match error {
            // The only numbers of a fit that come from the caller are the options of the method.
            // Only a call that stopped interrupts its fit.
            FitError::Interrupted => Self::Cancelled,
            FitError::Invalid { field, problem } if field == "a0" => Self::invalid("moi.position_prior", problem),
            FitError::Invalid { field, problem } if field == "sigma2" => Self::invalid("moi.sigma2", problem),
            other => Self::Internal(other.to_string()),
        }
    }
}
