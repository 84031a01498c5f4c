//! Measures of rankings, labels and answers. Pure; randomness comes in as a seed.

pub mod agreement;
pub mod input;
pub mod lexical;
pub mod rank;
pub mod recall;
pub mod resample;

/// Metrics of one request.
pub const MOST_METRICS: usize = 256;

/// A value of the caller's that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidInput {
    /// Path of the field, as in the protocol (`queries[3].documents[0].score`).
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidInput {
    /// Names a field and what is wrong with it.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
