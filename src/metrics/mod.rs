//! Measures of rankings, labels and answers: rank metrics, lexical scores, citations, probabilities, how many results to take,
//! correlations, resampling, several tests at once. Pure; random numbers come from a seed.

pub mod agreement;
pub mod bert_score;
pub mod bleu;
pub mod citation;
pub mod cut;
pub mod input;
pub mod lexical;
pub mod multiple;
pub mod probability;
pub mod rank;
pub mod recall;
pub mod resample;

/// Most metrics in one request.
pub const MOST_METRICS: usize = 256;

/// Characters of the caller's text that an error repeats. Errors travel in HTTP headers, which are small.
const QUOTED: usize = 60;

/// A field that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidInput {
    /// Path of the field, as in the protocol (`queries[3].documents[0].score`).
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl InvalidInput {
    /// An error about `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Why a computation has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The input is at fault.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The caller's [`crate::numeric::Interrupt`] asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The [`crate::numeric::Interrupt`] of a caller that waits for the result.
pub fn never() -> bool {
    false
}

/// The caller's text in quotes, shortened so that it can stand in an error.
#[must_use]
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_quoted_by_its_beginning() {
        assert_eq!(quoted("P@\"5\""), "\"P@\\\"5\\\"\"");
        assert_eq!(quoted(&"ä".repeat(1_000)), format!("\"{}…\"", "ä".repeat(QUOTED)));
    }
}
