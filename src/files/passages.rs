//! Passages, in lists and in files of their own. One policy for all of them, which is also that of HTTP: a passage that is only a
//! title has the title for its text, and a passage without text costs itself, not its list.

use std::path::Path;

use serde_json::Value;

use super::fields::{Fields, flag, numeric};
use super::lines::{self, Remarks};
use super::{FileError, Warnings, names};
use crate::engine::rerank::Passage;

/// What becomes of a passage without text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Empty {
    /// It stays in its list: the ranking puts it last, with the score 0.
    Ranked,
    /// It stays in its list, whose passages are numbered: it supports nothing.
    Numbered,
    /// It is left out: nothing can be measured of it.
    LeftOut,
}

/// A passage with what else its line says of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Given {
    /// Its place in the list.
    pub index: usize,
    pub passage: Passage,
    /// Its label, or 1 and 0 for a mark; `None` without either.
    pub label: Option<f64>,
    /// The error of an absent label; `None` for a passage that is null.
    pub unlabelled: Option<String>,
}

impl Given {
    fn is_empty(&self) -> bool {
        self.passage.text.trim().is_empty()
    }
}

/// Title and text. A title alone is the text.
pub(super) fn settled(title: String, text: String) -> (String, String) {
    if text.trim().is_empty() && !title.trim().is_empty() { (String::new(), title) } else { (title, text) }
}

/// The passage at this position of a list, or of a file if `path` is empty. Its id is its position if it has none.
fn given(value: &Value, path: &str, position: usize) -> Result<Given, String> {
    let at = |problem: &str| if path.is_empty() { problem.to_owned() } else { format!("{path}: {problem}") };
    let missing = || Some(at("must be an object with a label"));
    let plain = |text: &str, unlabelled| Given {
        index: position,
        passage: Passage { id: position.to_string(), text: text.to_owned(), ..Passage::default() },
        label: None,
        unlabelled,
    };
    let fields = match value {
        Value::Null => return Ok(plain("", None)),
        Value::String(text) => return Ok(plain(text, missing())),
        Value::Object(_) => Fields::of(value, path)?,
        _ => return Err(at("must be a text or an object with text")),
    };
    let text = fields.any_text(names::TEXT)?.unwrap_or_default();
    let (title, text) = settled(fields.any_text(names::TITLE)?.unwrap_or_default(), text);
    let id = fields.identifier(names::DOCUMENT_ID)?.unwrap_or_else(|| position.to_string());
    let passage = Passage { id, title, text, retriever_score: fields.number(names::SCORE)? };
    let label = label(&fields)?;
    let unlabelled = label.is_none().then(|| fields.missing("label"));
    Ok(Given { index: position, passage, label, unlabelled })
}

fn label(fields: &Fields<'_>) -> Result<Option<f64>, String> {
    match (fields.get(&["label"]), fields.get(names::MARK)) {
        (None, None) => Ok(None),
        (Some((name, value)), _) => {
            let number = numeric(value).filter(|label| *label >= 0.0);
            let label = number.or_else(|| flag(value).map(|is| f64::from(u8::from(is))));
            label.map(Some).ok_or_else(|| fields.fault(name, "must be a number from 0 on, or true or false"))
        }
        (None, Some((name, value))) => {
            let mark = flag(value).ok_or_else(|| fields.fault(name, "must be true or false"))?;
            Ok(Some(f64::from(u8::from(mark))))
        }
    }
}

/// The passages of a line. Those without text are told, and stay or not; if none has a text, the line is bad.
pub(super) fn of_line(fields: &Fields<'_>, empty: Empty, remarks: &mut Remarks) -> Result<Vec<Given>, String> {
    let values = fields.passages()?;
    let mut all = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let one = given(value, &format!("passages[{index}]"), index)?;
        if one.is_empty() {
            remarks.push(format!("passages[{index}] {}", no_text(value, empty)));
        }
        all.push(one);
    }
    if all.iter().all(Given::is_empty) {
        remarks.clear();
        let named = unnamed(&values[0]).map_or_else(String::new, |fields| format!("; passages[0] has {fields}"));
        return Err(format!("passages: none has a text{named}"));
    }
    if empty == Empty::LeftOut {
        all.retain(|one| !one.is_empty());
    }
    Ok(all)
}

/// The fields of an object that has none for the text: one of them may hold it.
fn unnamed(value: &Value) -> Option<String> {
    Fields::of(value, "").ok().filter(|fields| fields.lacks(names::TEXT)).map(|fields| fields.names())
}

/// The warning of a passage without text.
fn no_text(value: &Value, empty: Empty) -> String {
    let end = match empty {
        Empty::Ranked => "it is ranked last, with the score 0",
        Empty::Numbered => "it supports nothing",
        Empty::LeftOut => "it is left out",
    };
    let named = unnamed(value).map_or_else(String::new, |fields| format!("; it has {fields}"));
    format!("has no text: {end}{named}")
}

/// Reads passages, one JSON value a line, at least one of them with a text.
///
/// # Errors
/// One a bad line.
pub fn passages(path: &Path, warnings: &mut Warnings) -> Result<Vec<Passage>, FileError> {
    Ok(numbered_passages(path, Empty::Ranked, warnings)?.into_iter().map(|(_, passage)| passage).collect())
}

/// The same with the number of each line, from 1. Those without text are told as `empty` says, and are among them.
///
/// # Errors
/// One a bad line.
pub fn numbered_passages(
    path: &Path,
    empty: Empty,
    warnings: &mut Warnings,
) -> Result<Vec<(usize, Passage)>, FileError> {
    let (mut position, mut without) = (0, None);
    let all = lines::read(path, "passages", warnings, |value, number, remarks| {
        let one = given(value, "", position)?;
        position += 1;
        if one.is_empty() {
            remarks.push(no_text(value, empty));
            without.get_or_insert((number, unnamed(value)));
        }
        Ok(Some((number, one.passage)))
    })?;
    let has_text = |(_, passage): &(usize, Passage)| !passage.text.trim().is_empty();
    if let Some((number, fields)) = without.filter(|_| !all.iter().any(has_text)) {
        let named = fields.map_or_else(String::new, |fields| format!("; the line has {fields}"));
        return Err(FileError(format!("{}:{number}: no passage of the file has a text{named}", super::name(path))));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, empty: Empty) -> (Result<Vec<(usize, Passage)>, String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Warnings::default();
        let name = format!("{}:", path.display());
        let read = numbered_passages(&path, empty, &mut warnings).map_err(|error| error.0.replace(&name, ""));
        (read, warnings.lines().map(|line| line.replace(&name, "")).collect())
    }

    #[test]
    fn a_passage_without_text_costs_itself() {
        let file = "\"a lamp\"\n\"\"\nnull\n{\"text\": null}\n{\"id\": 7}\n{\"title\": \"T\", \"text\": \" \"}\n{\"title\": \"U\"}\n";
        let (kept, warnings) = read(file, Empty::Ranked);
        let kept: Vec<(String, String, String)> =
            kept.unwrap().into_iter().map(|(_, one)| (one.id, one.title, one.text)).collect();
        let of = |id: &str, text: &str| (id.to_owned(), String::new(), text.to_owned());
        let empty = ["1", "2", "3", "7"].map(|id| of(id, ""));
        assert_eq!(kept, [&[of("0", "a lamp")], &empty[..], &[of("5", "T"), of("6", "U")]].concat());
        let told = |end: &str| {
            let named = "; it has the fields \"id\"";
            [("2", ""), ("3", ""), ("4", ""), ("5", named)]
                .map(|(line, named)| format!("{line}: has no text: {end}{named}"))
        };
        assert_eq!(warnings, told("it is ranked last, with the score 0"));
        assert_eq!(read(file, Empty::LeftOut).1, told("it is left out"));
    }

    /// A misspelt field was no text of any passage.
    #[test]
    fn a_file_without_any_text_is_refused() {
        let (refused, _) = read("{\"id\": 1, \"txt\": \"x\"}\n{\"txt\": \"y\"}\n", Empty::Ranked);
        assert_eq!(
            refused.unwrap_err(),
            "1: no passage of the file has a text; the line has the fields \"id\", \"txt\""
        );
        assert_eq!(read("\"\"\n", Empty::LeftOut).0.unwrap_err(), "1: no passage of the file has a text");
        assert!(read("# nothing\n", Empty::Ranked).0.unwrap_err().ends_with(" has no passages"));
    }

    #[test]
    fn names_of_other_programs_are_read() {
        let file = r#"{"docid": "a", "page_content": "1"}
            {"_id": "b", "id": "c", "contents": "2", "text": ""}
            {"pid": 4, "context": "3", "title": null, "score": "80.5"}
            "cut \ud83d""#;
        let (all, warnings) = read(file, Empty::Ranked);
        let all: Vec<Passage> = all.unwrap().into_iter().map(|(_, one)| one).collect();
        let shown: Vec<(&str, &str)> = all.iter().map(|one| (one.id.as_str(), one.text.as_str())).collect();
        assert_eq!(shown, [("a", "1"), ("b", "2"), ("4", "3"), ("3", "cut \u{fffd}")]);
        assert_eq!(all[2].retriever_score, Some(80.5));
        assert_eq!(warnings, ["4: holds half of a surrogate pair, which is read as U+FFFD"]);
    }
}
