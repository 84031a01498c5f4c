//! Labelled lists: questions as JSON lines, each with the passages that a retriever returned and a label for every passage.
//!
//! A line is read field by field, so that an error names the field. Every bad line of a file has one error.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::FileError;
use crate::engine::rerank::Passage;

/// Bad lines that one error lists.
const LISTED: usize = 20;

/// Most relevant passages that a collection may have for a question.
const MOST_RELEVANT: usize = 1_000_000;

/// A question with its list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LabelledList {
    /// Unique in the file; the line's number where the line has none.
    pub id: String,
    /// Not blank.
    pub question: String,
    /// In the retriever's order; at least one.
    pub passages: Vec<Passage>,
    /// One a passage, from 0 on.
    pub labels: Vec<f64>,
    /// Relevant passages in the whole collection, where the line says so.
    pub relevant: Option<usize>,
    /// Reference answers; empty where the line has none.
    pub answers: Vec<String>,
}

/// Reads labelled lists, at least one. A passage is relevant whose label is at least `threshold`.
///
/// # Errors
/// One a bad line: file, line, field and problem.
pub fn lists(path: &Path, threshold: f64) -> Result<Vec<LabelledList>, FileError> {
    read(path, |line, number| list(line, number, threshold).map(Some))
}

/// Reads a file line by line. `parse` gets a line and its number, and returns no list where the line is to be left out.
pub(super) fn read(
    path: &Path,
    parse: impl Fn(&str, usize) -> Result<Option<LabelledList>, String>,
) -> Result<Vec<LabelledList>, FileError> {
    let text = super::read(path)?;
    let (mut lists, mut bad) = (Vec::new(), Vec::new());
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (number, line) in super::lines(&text) {
        let outcome = parse(line, number).and_then(|list| match &list {
            None => Ok(None),
            Some(one) => match seen.insert(one.id.clone(), number) {
                Some(first) => Err(format!("id: {:?} given twice, first in line {first}", one.id)),
                None => Ok(list),
            },
        });
        match outcome {
            Ok(list) => lists.extend(list),
            Err(problem) => bad.push(format!("{}:{number}: {problem}", super::name(path))),
        }
    }
    if bad.is_empty() && lists.is_empty() {
        bad.push(format!("{}: holds no questions", super::name(path)));
    }
    if bad.is_empty() {
        return Ok(lists);
    }
    let more = bad.len().saturating_sub(LISTED);
    bad.truncate(LISTED);
    if more > 0 {
        bad.push(format!("{}: {more} more bad lines", super::name(path)));
    }
    Err(FileError(bad.join("\n")))
}

fn list(line: &str, number: usize, threshold: f64) -> Result<LabelledList, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}"))?;
    let fields = Fields::of(&value, "")?;
    let question = fields.text(&["question", "query"])?.ok_or_else(|| fields.fault("question", "is missing"))?;
    let answers = fields.texts(&["answers", "references"])?;
    let Some((name, given)) = fields.get(&["passages"]) else { return Err(fields.fault("passages", "is missing")) };
    let given = given.as_array().ok_or_else(|| fields.fault(name, "must be a list"))?;
    if given.is_empty() {
        return Err(fields.fault(name, "must not be empty"));
    }
    let (mut passages, mut labels) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
    let mut ids: HashMap<String, usize> = HashMap::new();
    for (index, value) in given.iter().enumerate() {
        let (passage, label) = labelled(value, index)?;
        if let Some(first) = ids.insert(passage.id.clone(), index) {
            return Err(format!("passages[{index}].id: {:?} given twice, first as passages[{first}]", passage.id));
        }
        passages.push(passage);
        labels.push(label);
    }
    let relevant = match fields.get(&["relevant"]) {
        None => None,
        Some((_, value)) => {
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            let problem = || fields.fault("relevant", &format!("must be a whole number from 0 to {MOST_RELEVANT}"));
            Some(count.filter(|count| *count <= MOST_RELEVANT).ok_or_else(problem)?)
        }
    };
    let found = labels.iter().filter(|label| **label >= threshold).count();
    if let Some(count) = relevant.filter(|count| *count < found) {
        let problem = format!("is {count}, but {found} passages of the list have a label of at least {threshold}");
        return Err(fields.fault("relevant", &problem));
    }
    let id = fields.identifier()?.unwrap_or_else(|| number.to_string());
    Ok(LabelledList { id, question, passages, labels, relevant, answers })
}

/// A passage with its label, both of which a list must have.
fn labelled(value: &Value, index: usize) -> Result<(Passage, f64), String> {
    let fields = Fields::of(value, &format!("passages[{index}]"))?;
    fields.text(&TEXT)?;
    let passage = passage(&fields, index)?;
    let label = label(&fields)?.ok_or_else(|| fields.fault("label", "is missing; supporting may stand for it"))?;
    Ok((passage, label))
}

/// Names of a passage's text.
const TEXT: [&str; 3] = ["text", "contents", "passage"];

/// A passage, whose text may be blank. Its id is its position where it has none.
pub(super) fn passage(fields: &Fields<'_>, position: usize) -> Result<Passage, String> {
    let text = match fields.get(&TEXT) {
        None => return Err(fields.fault("text", "is missing")),
        Some((_, Value::String(text))) => text.clone(),
        Some((name, _)) => return Err(fields.fault(name, "must be a text")),
    };
    let title = match fields.get(&["title"]) {
        None => String::new(),
        Some((_, Value::String(title))) => title.clone(),
        Some(_) => return Err(fields.fault("title", "must be a text")),
    };
    let retriever_score = match fields.get(&["score", "retriever_score"]) {
        None => None,
        Some((name, value)) => Some(value.as_f64().ok_or_else(|| fields.fault(name, "must be a number"))?),
    };
    let id = fields.identifier()?.unwrap_or_else(|| position.to_string());
    Ok(Passage { id, title, text, retriever_score })
}

/// The label of a passage, or 1 and 0 for a mark; `None` without either.
pub(super) fn label(fields: &Fields<'_>) -> Result<Option<f64>, String> {
    match (fields.get(&["label"]), fields.get(&["supporting", "relevant"])) {
        (Some((_, Value::Bool(is))), _) | (None, Some((_, Value::Bool(is)))) => Ok(Some(f64::from(u8::from(*is)))),
        (Some((_, value)), _) => {
            let label = value.as_f64().filter(|label| *label >= 0.0);
            label.map(Some).ok_or_else(|| fields.fault("label", "must be a number from 0 on, or true or false"))
        }
        (None, Some((name, _))) => Err(fields.fault(name, "must be true or false")),
        (None, None) => Ok(None),
    }
}

/// The fields of an object.
pub(super) struct Fields<'a> {
    pub object: &'a Map<String, Value>,
    /// Path of the object in its line; empty for the line itself.
    pub path: String,
}

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value, path: &str) -> Result<Self, String> {
        match value.as_object() {
            Some(object) => Ok(Self { object, path: path.to_owned() }),
            None if path.is_empty() => Err("must be an object".to_owned()),
            None => Err(format!("{path}: must be an object")),
        }
    }

    /// The first of these fields that is there, with its name. Null is absent.
    pub fn get(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        names.iter().find_map(|name| Some((*name, self.object.get(*name).filter(|value| !value.is_null())?)))
    }

    pub fn fault(&self, name: &str, problem: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}: {problem}", self.path)
    }

    /// A text that is not empty; `None` where the field is absent.
    pub fn text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some((name, Value::String(_))) => Err(self.fault(name, "must not be empty")),
            Some((name, _)) => Err(self.fault(name, "must be a text")),
        }
    }

    /// A list of texts; empty where the field is absent. Empty texts are left out.
    pub fn texts(&self, names: &[&'static str]) -> Result<Vec<String>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(Vec::new()) };
        let values = value.as_array().ok_or_else(|| self.fault(name, "must be a list"))?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| self.fault(name, "must be texts"));
        let texts: Result<Vec<String>, String> = values.iter().map(text).collect();
        Ok(texts?.into_iter().filter(|text| !text.trim().is_empty()).collect())
    }

    /// The id, a text or a number.
    pub fn identifier(&self) -> Result<Option<String>, String> {
        match self.get(&["id", "_id", "query_id", "qid"]) {
            None => Ok(None),
            Some((_, Value::String(id))) => Ok(Some(id.clone())),
            Some((_, Value::Number(id))) => Ok(Some(id.to_string())),
            Some((name, _)) => Err(self.fault(name, "must be a text or a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<LabelledList>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let name = format!("{}:", file.path().display());
        lists(file.path(), 0.5).map_err(|error| error.0.replace(&name, ""))
    }

    const GOOD: &str = r#"{"id": "q", "question": "Who?", "answers": [], "relevant": 3, "passages": [
        {"id": 7, "title": "T", "text": "one", "score": 2.5, "label": 2, "supporting": false},
        {"text": "two", "supporting": true}, {"id": null, "text": "three", "label": 0}]}"#;

    #[test]
    fn a_list_is_read_gzipped_or_not() {
        let line = GOOD.replace('\n', " ");
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(line.as_bytes()).unwrap();
        let plain = read(line.as_bytes()).unwrap();
        assert_eq!(read(&packed.finish().unwrap()).unwrap(), plain);
        let list = &plain[0];
        assert_eq!((list.id.as_str(), list.relevant), ("q", Some(3)));
        // The label is read before `supporting`.
        assert_eq!(list.labels, [2.0, 1.0, 0.0]);
        let ids: Vec<&str> = list.passages.iter().map(|passage| passage.id.as_str()).collect();
        assert_eq!(ids, ["7", "1", "2"]);
        assert_eq!(list.passages[0].retriever_score, Some(2.5));
        assert_eq!(list.passages[1].retriever_score, None);
    }

    #[test]
    fn every_bad_line_has_one_error_with_its_field() {
        let one = |passage: &str| format!(r#"{{"question": "Who?", "passages": [{passage}]}}"#);
        let good = r#"{"text": "x", "label": 1}"#;
        let cases = [
            ("[1]".to_owned(), "must be an object"),
            (r#"{"passages": []}"#.to_owned(), "question: is missing"),
            (r#"{"query": " ", "passages": []}"#.to_owned(), "query: must not be empty"),
            (r#"{"question": 5}"#.to_owned(), "question: must be a text"),
            (r#"{"question": "Who?"}"#.to_owned(), "passages: is missing"),
            (r#"{"question": "Who?", "passages": {}}"#.to_owned(), "passages: must be a list"),
            (r#"{"question": "Who?", "passages": []}"#.to_owned(), "passages: must not be empty"),
            (r#"{"question": "Who?", "answers": "x", "passages": []}"#.to_owned(), "answers: must be a list"),
            (one("5"), "passages[0]: must be an object"),
            (one(&format!(r#"{good}, {{"text": "", "label": 1}}"#)), "passages[1].text: must not be empty"),
            (one(r#"{"label": 1}"#), "passages[0].text: is missing"),
            (one(r#"{"text": "x"}"#), "passages[0].label: is missing; supporting may stand for it"),
            (one(r#"{"text": "x", "label": -1}"#), "passages[0].label: must be a number from 0 on, or true or false"),
            (one(r#"{"text": "x", "supporting": 1}"#), "passages[0].supporting: must be true or false"),
            (one(r#"{"text": "x", "label": 1, "score": "2"}"#), "passages[0].score: must be a number"),
            (one(r#"{"text": "x", "label": 1, "title": 2}"#), "passages[0].title: must be a text"),
            (
                one(r#"{"id": "1", "text": "x", "label": 1}, {"text": "y", "label": 1}"#),
                "passages[1].id: \"1\" given twice, first as passages[0]",
            ),
            (
                format!(r#"{{"question": "Who?", "relevant": 0, "passages": [{good}]}}"#),
                "relevant: is 0, but 1 passages of the list have a label of at least 0.5",
            ),
            (
                format!(r#"{{"question": "Who?", "relevant": 1.5, "passages": [{good}]}}"#),
                "relevant: must be a whole number from 0 to 1000000",
            ),
            (format!(r#"{{"id": [], "question": "Who?", "passages": [{good}]}}"#), "id: must be a text or a number"),
        ];
        let file: Vec<&str> = cases.iter().map(|case| case.0.as_str()).collect();
        let expected: Vec<String> =
            cases.iter().enumerate().map(|(at, case)| format!("{}: {}", at + 1, case.1)).collect();
        assert_eq!(read(file.join("\n").as_bytes()), Err(expected.join("\n")));
    }

    /// Measures hold a label for each: a number that stood for "unknown" ended the command after all rankings.
    #[test]
    fn relevant_passages_have_a_bound() {
        let of = |relevant: u64| {
            let line =
                format!(r#"{{"question": "Who?", "relevant": {relevant}, "passages": [{{"text": "x", "label": 1}}]}}"#);
            read(line.as_bytes())
        };
        assert_eq!(of(1_000_000).unwrap()[0].relevant, Some(1_000_000));
        for beyond in [1_000_001, u64::MAX] {
            assert_eq!(of(beyond).unwrap_err(), "1: relevant: must be a whole number from 0 to 1000000");
        }
    }

    #[test]
    fn the_rest_of_many_bad_lines_is_counted() {
        let error = read("{}\n".repeat(25).as_bytes()).unwrap_err();
        assert_eq!(error.lines().count(), LISTED + 1);
        assert!(error.ends_with(" 5 more bad lines"), "{error}");
        assert!(read(b"{\"question\n").unwrap_err().starts_with("1: is not JSON: "));
        assert!(read(b"\n").unwrap_err().ends_with(" holds no questions"));
        let twice = format!("{0}\n{0}\n", GOOD.replace('\n', " "));
        assert_eq!(read(twice.as_bytes()).unwrap_err(), "2: id: \"q\" given twice, first in line 1");
    }
}
