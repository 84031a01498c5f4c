//! Passages, in lists and in separate files. The rules are the same as over HTTP: a title without text becomes the text,
//! and a passage without text affects only itself, not its list.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::fields::{Fields, LIST, flag, numeric, scalar};
use super::lines::{self, Remarks};
use super::{FileError, MARK, Warnings, names};
use engine::types::Passage;
use rag_metrics::quoted;

/// Treatment of a passage without text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Empty {
    /// It stays in its list: the ranking puts it last, with the score 0.
    Ranked,
    /// It stays in its list, to keep the numbering: it supports nothing.
    Numbered,
    /// It is left out, because it cannot be measured.
    LeftOut,
}

/// A passage with the other fields of its line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Given {
    /// Its position in the list.
    pub index: usize,
    pub passage: Passage,
    /// Its label, or 1 and 0 for a mark; `None` without either. A fault matters only to commands that use labels.
    pub label: Result<Option<f64>, String>,
}

impl Given {
    fn is_empty(&self) -> bool {
        self.passage.text.trim().is_empty()
    }
}

/// Title and text without their leading byte-order marks. A title without text becomes the text.
pub(super) fn title_as_text(title: &str, text: &str) -> (String, String) {
    let (title, text) = (title.trim_start_matches(MARK), text.trim_start_matches(MARK));
    let alone = text.trim().is_empty() && !title.trim().is_empty();
    let (title, text) = if alone { ("", title) } else { (title, text) };
    (title.to_owned(), text.to_owned())
}

/// The passage at this position of a list, or of a file if `path` is empty. Its id defaults to its position.
fn given(value: &Value, path: &str, position: usize) -> Result<Given, String> {
    let plain = |text: &str| {
        let (title, text) = title_as_text("", text);
        let passage = Passage { id: position.to_string(), title, text, retriever_score: None };
        Given { index: position, passage, label: Ok(None) }
    };
    let fields = match value {
        Value::Null => return Ok(plain("")),
        Value::Object(_) => Fields::of(value, path)?,
        Value::Array(_) if path.is_empty() => return Err(LIST.to_owned()),
        Value::Array(_) => return Err(format!("{path}: must be a text or an object with text")),
        value => return Ok(plain(&scalar(value).unwrap_or_default())),
    };
    let text = fields.passage_text(names::TEXT)?.unwrap_or_default();
    let (title, text) = title_as_text(&fields.passage_text(names::TITLE)?.unwrap_or_default(), &text);
    let id = fields.identifier(names::DOCUMENT_ID)?.unwrap_or_else(|| position.to_string());
    let passage = Passage { id, title, text, retriever_score: fields.number(names::SCORE)? };
    Ok(Given { index: position, passage, label: label(&fields) })
}

/// The error for a passage without label. None for a null passage, which has no fields.
pub(super) fn unlabelled(fields: &Fields<'_>, index: usize) -> Option<String> {
    let path = format!("passages[{index}]");
    match fields.passages().ok()?.get(index)? {
        Value::Null => None,
        value @ Value::Object(_) => Some(Fields::of(value, &path).ok()?.missing("label")),
        _ => Some(format!("{path}: must be an object with a label")),
    }
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

/// The passages of a line. Passages without text are reported and treated as `empty` says; if none has a text, the line
/// is bad.
pub(super) fn of_line(fields: &Fields<'_>, empty: Empty, remarks: &mut Remarks) -> Result<Vec<Given>, String> {
    let values = fields.passages()?;
    let mut all = Vec::with_capacity(values.len());
    let mut ids: HashMap<String, usize> = HashMap::new();
    for (index, value) in values.iter().enumerate() {
        let one = given(value, &format!("passages[{index}]"), index)?;
        let first = *ids.entry(one.passage.id.clone()).or_insert(index);
        // A ranking warns of equal ids itself, and numbered passages do not use them.
        if first < index && empty == Empty::LeftOut {
            let id = quoted(&one.passage.id);
            remarks.push(format!("passages[{index}].id: {id} is also the id of passages[{first}]; both count"));
        }
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

/// The fields of an object without a text field: one of them may be a misspelt one.
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

/// Reads passages, one JSON value per line, at least one of them with a text.
///
/// # Errors
/// One per bad line.
pub fn passages(path: &Path, warnings: &mut Warnings) -> Result<Vec<Passage>, FileError> {
    Ok(numbered_passages(path, Empty::Ranked, warnings)?.into_iter().map(|(_, passage)| passage).collect())
}

/// Reads passages with the number of each line, from 1. Passages without text are reported as `empty` says, and are
/// included.
///
/// # Errors
/// One per bad line.
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
    use proptest::prelude::*;

    use super::super::odd;
    use super::*;

    type Read = Result<Vec<(usize, Passage)>, String>;

    fn read(text: &str, empty: Empty) -> (Read, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Warnings::default();
        let name = format!("{}:", path.display());
        let read = numbered_passages(&path, empty, &mut warnings).map_err(|error| error.0.replace(&name, ""));
        (read, warnings.lines().map(|line| line.replace(&name, "")).collect())
    }

    #[test]
    fn a_passage_without_text_affects_only_itself() {
        let file = "\"a lamp\"\n\"\"\nnull\n{\"text\": null}\n{\"id\": 7}\n{\"title\": \"T\", \"text\": \" \"}\n{\"title\": \"U\"}\n";
        let (kept, warnings) = read(file, Empty::Ranked);
        let kept: Vec<(String, String, String)> =
            kept.unwrap().into_iter().map(|(_, one)| (one.id, one.title, one.text)).collect();
        let of = |id: &str, text: &str| (id.to_owned(), String::new(), text.to_owned());
        let empty = ["1", "2", "3", "7"].map(|id| of(id, ""));
        assert_eq!(kept, [&[of("0", "a lamp")], &empty[..], &[of("5", "T"), of("6", "U")]].concat());
        let expected = |end: &str| {
            let named = "; it has the fields \"id\"";
            [("2", ""), ("3", ""), ("4", ""), ("5", named)]
                .map(|(line, named)| format!("{line}: has no text: {end}{named}"))
        };
        assert_eq!(warnings, expected("it is ranked last, with the score 0"));
        assert_eq!(read(file, Empty::LeftOut).1, expected("it is left out"));
    }

    /// A label of another type must not refuse files of commands that ignore labels.
    #[test]
    fn a_passage_is_read_as_over_http() {
        let file = "1871\ntrue\n{\"text\": 1.5, \"title\": 7}\n{\"content\": [\"a\", {\"type\": \"text\", \"text\": \"b\"}, \
                    {\"type\": \"image_url\"}]}\n\"\u{feff}marked\"\n{\"text\": \"x\", \"label\": \"sports\", \"relevant\": 2}\n\
                    {\"id\": 0, \"content\": []}\n";
        let (all, warnings) = read(file, Empty::Ranked);
        let all: Vec<(String, String)> = all.unwrap().into_iter().map(|(_, one)| (one.title, one.text)).collect();
        let texts = ["1871", "true", "1.5", "a\nb", "marked", "x", ""];
        assert_eq!(all.iter().map(|one| one.1.as_str()).collect::<Vec<_>>(), texts);
        assert_eq!(all[2].0, "7");
        assert_eq!(warnings, ["7: has no text: it is ranked last, with the score 0"]);
        for (refused, problem) in [
            ("{\"text\": [\"a\"]}", "1: text: must be a text"),
            ("{\"content\": {}}", "1: content: must be a text"),
            ("[{\"text\": \"a\"}]", "1: is a list: write one object per line"),
        ] {
            assert_eq!(read(refused, Empty::Ranked).0.unwrap_err(), problem);
        }
    }

    /// A misspelt field leaves all passages without text.
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
    proptest! {
        #[test]
        fn passages_are_read_as_they_were_written(ids in odd::ids(), title in odd::text(), text in odd::words(), score in odd::number()) {
            let line = |id: &String| {
                format!("{}\n", serde_json::json!({ "id": id, "title": title, "text": text, "score": score }))
            };
            let file: String = ids.iter().map(line).collect();
            let (read, warnings) = read(&file, Empty::Ranked);
            let (title, text) = title_as_text(&title, &text);
            let passage = |id: &String| Passage { id: id.clone(), title: title.clone(), text: text.clone(), retriever_score: Some(score) };
            let expected: Vec<_> = ids.iter().enumerate().map(|(at, id)| (at + 1, passage(id))).collect();
            prop_assert_eq!((read, warnings), (Ok(expected), Vec::new()));
        }
    }
}
