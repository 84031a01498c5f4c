//! Long answers with the passages that they cite by number, one JSON object a line.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::{Empty, FileError, Warnings, lines, names, passages};
use crate::engine::rerank::Passage;

/// An answer with the passages that its citations number from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct CitingAnswer {
    /// Number of its line, from 1.
    pub line: usize,
    /// Not blank.
    pub answer: String,
    /// At least one. One without text keeps its number.
    pub passages: Vec<Passage>,
    /// May be empty.
    pub question: String,
    /// Of the question, a text or a number, as it is in the line.
    pub id: Option<Value>,
    /// The system that gave the answer.
    pub system: Option<String>,
}

/// Reads answers, at least one.
///
/// # Errors
/// One a bad line.
pub fn answers(path: &Path, warnings: &mut Warnings) -> Result<Vec<CitingAnswer>, FileError> {
    lines::read(path, "answers", warnings, |value, line, remarks| {
        let fields = Fields::of(value, "")?;
        let answer = fields.text(names::CITING_ANSWER)?.ok_or_else(|| fields.missing("answer"))?;
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
