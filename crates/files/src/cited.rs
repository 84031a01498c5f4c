//! Long answers with the passages that they cite by number, one JSON object per line.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::{Empty, FileError, Warnings, lines, names, passages};
use engine::types::Passage;

/// An answer with its passages, which the citations number from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct CitingAnswer {
    /// Number of its line, from 1.
    pub line: usize,
    /// Not blank.
    pub answer: String,
    /// At least one. A passage without text keeps its number.
    pub passages: Vec<Passage>,
    /// May be empty.
    pub question: String,
    /// Id of the question, a text or a number, unchanged.
    pub id: Option<Value>,
    /// The system that gave the answer.
    pub system: Option<String>,
}

/// Reads answers, at least one.
///
/// # Errors
/// One per bad line.
pub fn answers(path: &Path, warnings: &mut Warnings) -> Result<Vec<CitingAnswer>, FileError> {
    lines::read(path, "answers", warnings, |value, line, remarks| {
        let fields = Fields::of(value, "")?;
        // An empty output means that the system gave no answer. The reference in the same line is not its answer.
        let name = fields.first(names::CITING_ANSWER).ok_or_else(|| fields.missing("answer"))?;
        let answer = fields.text(&[name])?.unwrap_or_default();
        let passages = passages::of_line(&fields, Empty::Numbered, remarks)?;
        Ok(Some(CitingAnswer {
            line,
            answer,
            passages: passages.into_iter().map(|one| one.passage).collect(),
            question: fields.any_text(names::QUESTION)?.unwrap_or_default(),
            id: fields.get(names::QUERY_ID).map(|(_, id)| id.clone()),
            system: fields.any_text(&["system"])?,
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odd;

    /// The reference in the same line must not be checked instead.
    #[test]
    fn an_empty_output_is_no_answer() {
        let read = |line: &str| {
            let read = odd::in_file(line, |path| answers(path, &mut Warnings::default()));
            read.map(|all| all[0].answer.clone()).map_err(|error| error.0.rsplit_once("file:").unwrap().1.to_owned())
        };
        let line = |output: &str| format!(r#"{{"output": {output}, "answer": "gold", "docs": ["x"]}}"#);
        assert_eq!(read(&line("\"It is [1].\"")).unwrap(), "It is [1].");
        assert_eq!(read(&line("null")).unwrap(), "gold");
        assert_eq!(read(&line("\"\"")).unwrap_err(), "1: output: must not be empty");
    }
}
