//! Errors of a request, in the caller's terms.

use std::time::Duration;

use moi::FitError;
use prefix_scheduler::call::Stopped;
use prefix_scheduler::model::ModelError;
use prefix_scheduler::scheduler::reranker::ScoreError;
use prefix_scheduler::scheduler::{SEQUENCES, ScheduleError};
use rag_metrics::InvalidInput;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// A field is invalid.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field, as in the protocol (`passages[3].text`).
        field: String,
        /// The problem.
        problem: String,
    },
    /// The request does not fit the model's context and may not be truncated further.
    #[error("{field}: needs {needed} tokens, {available} available")]
    TooLong {
        /// Path of the field, as in the protocol.
        field: String,
        /// Tokens needed.
        needed: usize,
        /// Tokens available for the field.
        available: usize,
    },
    /// The request exceeds its token budget or the limit of the server.
    #[error("the request needs {needed} tokens, at most {allowed} allowed")]
    Budget {
        /// Tokens needed.
        needed: usize,
        /// Tokens allowed.
        allowed: usize,
    },
    /// The request needs more entailment judgements than the server allows.
    #[error("the request needs more than {allowed} entailment judgements")]
    Pairs {
        /// Pairs allowed.
        allowed: usize,
    },
    /// Too many requests are queued or running, or their work takes longer than this request may wait.
    #[error("the queue is full, or its work takes longer than this request may wait")]
    QueueFull {
        /// Suggested delay before a retry.
        retry_after: Duration,
    },
    /// The deadline has passed, or the work cannot end before it.
    #[error("the deadline has passed, or the work cannot end before it")]
    DeadlineExceeded,
    /// The caller disconnected or the server shuts down. Usually nobody receives this error.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server is not set up for this request; the text says what to change.
    #[error("{0}")]
    Precondition(String),
    /// A model is loading or restarting. A retry may succeed.
    #[error("the model is not available: it is loading, or restarting after a fault")]
    Unavailable,
    /// A fault of the server. The text is logged and not sent to callers.
    #[error("internal error: {0}")]
    Internal(String),
}

/// The index of the passage in a field path, and the rest of the path.
pub(crate) fn passage_of(field: &str) -> Option<(usize, &str)> {
    let (index, rest) = field.strip_prefix("passages[")?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

impl EngineError {
    /// The error of a request that needs an entailment model.
    pub(crate) fn no_judge() -> Self {
        Self::Precondition("no entailment model is configured: set entailment.model".into())
    }

    /// Creates an [`EngineError::Invalid`].
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }

    /// True if the request is at fault. Other requests may be answered.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::TooLong { .. } | Self::Budget { .. } | Self::Pairs { .. })
    }

    /// The error with its field as a part of the message `of`.
    #[must_use]
    pub fn under(mut self, of: &str) -> Self {
        if let Self::Invalid { field, .. } | Self::TooLong { field, .. } = &mut self {
            *field = format!("{of}.{field}");
        }
        self
    }

    /// The error with another passage index; unchanged if its field is not part of a passage.
    pub(crate) fn at_passage(mut self, index: impl Fn(usize) -> Option<usize>) -> Self {
        if let Self::Invalid { field, .. } | Self::TooLong { field, .. } = &mut self
            && let Some((passage, rest)) = passage_of(field)
            && let Some(index) = index(passage)
        {
            *field = format!("passages[{index}]{rest}");
        }
        self
    }
}

impl From<ScheduleError> for EngineError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Stopped(stopped) => stopped.into(),
            ScheduleError::Overloaded { retry_after } => Self::QueueFull { retry_after },
            ScheduleError::Unavailable => Self::Unavailable,
            // Shorter passages do not help.
            ScheduleError::TooLarge { what: SEQUENCES, needed, available } => {
                let problem = format!(
                    "their prompts need {needed} sequences at once, {available} available: send fewer passages, or raise a batch \
                     below 256 of the model that scores"
                );
                Self::invalid("passages", problem)
            }
            ScheduleError::TooLarge { needed, available, .. } => {
                Self::TooLong { field: "passages".into(), needed, available }
            }
            // Only models that are loaded on demand report `Unusable`; the message names the file. A generator that
            // cannot be loaded is `Unavailable`.
            ScheduleError::Model(ModelError::Unusable { .. }) => Self::Precondition(error.to_string()),
            ScheduleError::Model(error) => Self::Internal(error.to_string()),
        }
    }
}

impl From<ScoreError> for EngineError {
    fn from(error: ScoreError) -> Self {
        let field = |passage: Option<usize>| match passage {
            None => "query".to_owned(),
            Some(index) => format!("passages[{index}].text"),
        };
        match error {
            ScoreError::Schedule(error) => error.into(),
            ScoreError::Text { passage, problem } => {
                Self::Invalid { field: field(passage), problem: format!("cannot be tokenised: {problem}") }
            }
            ScoreError::TooLong { passage, length } => {
                let field = field(passage);
                Self::TooLong { field, needed: length.needed, available: length.available }
            }
            ScoreError::Budget { needed, allowed } => Self::Budget { needed, allowed },
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
            // A fit is interrupted only when its call has stopped.
            FitError::Interrupted => Self::Cancelled,
            // Prior and noise share are the only inputs of a fit that the caller sets.
            FitError::Invalid { field, problem } if field == "a0" => Self::invalid("moi.position_prior", problem),
            FitError::Invalid { field, problem } if field == "sigma2" => Self::invalid("moi.sigma2", problem),
            other => Self::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error named tokens, but cutting the passages did not help. It concerns one request: a file of lists
    /// continues after it.
    #[test]
    fn prompts_that_need_too_many_sequences_are_told_so() {
        let of = |what| EngineError::from(ScheduleError::TooLarge { what, needed: 64, available: 63 });
        let refused = of(SEQUENCES).to_string();
        assert!(
            refused.starts_with("passages: ") && refused.contains("need 64 sequences at once, 63 available"),
            "{refused}"
        );
        assert!(matches!(of("cells"), EngineError::TooLong { needed: 64, available: 63, .. }));
    }
}
