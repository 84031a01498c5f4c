//! Questions with their passages, one JSON object per line.

use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::lines::{self, Remarks};
use super::{Empty, FileError, Warnings, names, passages};
use engine::types::Passage;

/// A question, its reference answers, and its passages.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Number of its line, from 1.
    pub line: usize,
    /// Its id; `None` if the line has none.
    pub id: Option<String>,
    /// As given; it may be empty.
    pub question: String,
    /// Reference answers; may be empty.
    pub answers: Vec<String>,
    /// The problem of the answers, for commands that use them.
    pub answers_fault: Option<String>,
    /// In the order of the line; empty if the question has a fault.
    pub passages: Vec<Passage>,
    /// Label per passage, or 1 if it is marked as relevant; 0 without either.
    pub labels: Vec<f64>,
    /// The existing labels, and the marks as 0 and 1.
    pub given: Vec<f64>,
    /// The first problem of a label, for commands that use labels.
    pub labels_fault: Option<String>,
    /// Position in the line, per passage.
    pub places: Vec<usize>,
    /// The reason why the question cannot be used: its line has no passages, or they cannot be read.
    pub fault: Option<String>,
}

/// Reads questions, at least one, like [`super::labelled::lists`], but labels and answers may be absent. A question
/// without readable passages has a fault and does not affect other questions.
///
/// # Errors
/// One per bad line.
pub fn questions(path: &Path, empty: Empty, warnings: &mut Warnings) -> Result<Vec<Question>, FileError> {
    lines::read(path, "questions", warnings, |value, number, remarks| question(value, number, empty, remarks).map(Some))
}

/// The first question's line and fault, if no question can be used.
pub fn without_passages(questions: &[Question]) -> Option<(usize, &str)> {
    let fault = |question: &'_ Question| question.fault.is_some();
    let first = questions.first().filter(|_| questions.iter().all(fault))?;
    Some((first.line, first.fault.as_deref()?))
}

fn question(value: &Value, line: usize, empty: Empty, remarks: &mut Remarks) -> Result<Question, String> {
    let fields = Fields::of(value, "")?;
    let question = fields.any_text(names::QUESTION)?.ok_or_else(|| fields.missing("question"))?;
    let (answers, answers_fault) = match fields.answers() {
        Ok(answers) => (answers, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let mut read = Question {
        line,
        id: fields.identifier(names::QUERY_ID)?,
        question,
        answers,
        answers_fault,
        ..Question::default()
    };
    match passages::of_line(&fields, empty, remarks) {
        Err(fault) => read.fault = Some(fault),
        Ok(given) => {
            for one in given {
                read.passages.push(one.passage);
                read.places.push(one.index);
                let label = one.label.unwrap_or_else(|problem| {
                    read.labels_fault.get_or_insert(problem);
                    None
                });
                read.labels.push(label.unwrap_or(0.0));
                read.given.extend(label);
            }
        }
    }
    Ok(read)
}
