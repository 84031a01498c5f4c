//! Measures of rankings, labels and answers: rank metrics, lexical scores, citations, probabilities, how many results to take,
//! correlations, resampling, several tests at once. Pure; random numbers come from a seed.
#![warn(missing_docs)]

pub mod agreement;
pub mod belief;
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
pub mod sentences;

use std::borrow::Cow;

/// Most metrics in one request.
pub const MOST_METRICS: usize = 256;

/// Bytes of a name that an error quotes, and some for its quotes. Errors travel in HTTP headers, which are small.
const QUOTED: usize = 100;

/// Bytes of the caller's data that an error repeats at most.
pub const MOST_REPEATED: usize = 200;

/// A message of more bytes is none of ours but for the caller's data in it.
const LONGEST_MESSAGE: usize = 700;

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
    /// The caller's [`numeric::Interrupt`] asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The [`numeric::Interrupt`] of a caller that waits for the result.
pub fn never() -> bool {
    false
}

/// The caller's text in quotes, shortened so that it can stand in an error several times.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut said = String::from('"');
    for letter in text.chars() {
        let before = said.len();
        match letter {
            '\'' => said.push(letter),
            _ => said.extend(letter.escape_debug()),
        }
        if said.len() > QUOTED {
            said.truncate(before);
            said.push('…');
            break;
        }
    }
    said + "\""
}

/// A text of at most `most` bytes: of a longer one the beginning and the end.
#[must_use]
pub fn clipped(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (head, tail) = (most * 2 / 3, most / 3 - 3);
    let begin = &text[..text.floor_char_boundary(head)];
    let end = &text[text.ceil_char_boundary(text.len() - tail)..];
    Cow::Owned(format!("{begin}…{end}"))
}

/// A message as it leaves the server. One that is longer than any of ours repeats what its caller sent, whatever library wrote it:
/// its beginning and its end are left.
#[must_use]
pub fn brief(message: &str) -> Cow<'_, str> {
    if message.len() > LONGEST_MESSAGE { clipped(message, MOST_REPEATED) } else { Cow::Borrowed(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_quoted_by_its_beginning() {
        for short in ["", "P@\"5\"", "it's\n\u{7f}", "ä"] {
            assert_eq!(quoted(short), format!("{short:?}"));
        }
        assert_eq!(quoted(&"a".repeat(1_000)), format!("\"{}…\"", "a".repeat(QUOTED - 1)));
        for letter in ["ä", "\u{7f}", "\u{1f600}", "\""] {
            let said = quoted(&letter.repeat(1_000));
            assert!(said.len() <= QUOTED + 4 && said.ends_with("…\""), "{said}");
        }
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        let long = format!("body: {}, expected an object at line 1", "ä".repeat(1_000));
        let said = brief(&long);
        assert!(said.len() <= MOST_REPEATED + 3, "{} bytes", said.len());
        assert!(said.starts_with("body: ä") && said.ends_with("expected an object at line 1"), "{said}");
        assert_eq!(brief(&long[..600]), long[..600]);
    }
}
