//! Why a list of passages was not scored.

use crate::model::ModelError;
use crate::model::reranker::{TextError, TooLong};
use crate::scheduler::ScheduleError;

/// Why a list was not scored.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScoreError {
    /// An error of the worker.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A text does not fit the model.
    #[error("needs {} tokens, {} available", .length.needed, .length.available)]
    TooLong {
        /// Index of the passage; `None` for the query.
        passage: Option<usize>,
        /// Its length.
        length: TooLong,
    },
    /// A text cannot be tokenised.
    #[error("cannot be tokenised: {problem}")]
    Text {
        /// Index of the passage; `None` for the query.
        passage: Option<usize>,
        /// The tokenizer's message.
        problem: String,
    },
    /// The list has more tokens than allowed.
    #[error("needs {needed} tokens, at most {allowed} allowed")]
    Budget {
        /// Tokens of the list.
        needed: usize,
        /// Tokens allowed.
        allowed: usize,
    },
}

impl ScoreError {
    /// The error of a passage, or of the query.
    pub(super) fn of_text(passage: Option<usize>, error: TextError) -> Self {
        match error {
            TextError::TooLong(length) => Self::TooLong { passage, length },
            TextError::Tokenizer(problem) => Self::Text { passage, problem },
        }
    }
}

impl From<ModelError> for ScoreError {
    fn from(error: ModelError) -> Self {
        Self::Schedule(error.into())
    }
}
