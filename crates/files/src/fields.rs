//! The fields of a JSON object, read one by one, so that an error names the field.

use serde_json::{Map, Value};

use super::names;
use rag_metrics::quoted;

/// Most bytes of a caller's data in an error.
const MOST_SHOWN: usize = 200;

/// The first whole number that is not exact in double precision.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The beginning of a text, at most [`MOST_SHOWN`] bytes.
fn shortened(text: &str) -> String {
    if text.len() <= MOST_SHOWN {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST_SHOWN - '…'.len_utf8())])
}

/// The message of a JSON error of serde. It may quote a whole value, so it is shortened.
pub(crate) fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    match (error.line(), error.column()) {
        (0, _) => shortened(message),
        (1, column) => format!("{} (column {column})", shortened(message)),
        (line, column) => format!("{} (line {line}, column {column})", shortened(message)),
    }
}

/// Names in quotes, as many as fit an error.
fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let (mut text, mut left) = (String::new(), 0);
    for name in names {
        let name = quoted(name);
        if left > 0 || text.len() + name.len() > MOST_SHOWN - 20 {
            left += 1;
            continue;
        }
        text.push_str(if text.is_empty() { "" } else { ", " });
        text.push_str(&name);
    }
    match (text.is_empty(), left) {
        (true, 0) => "no fields".to_owned(),
        (_, 0) => format!("the fields {text}"),
        (_, left) => format!("the fields {text} and {left} more"),
    }
}

/// The fields of an object.
pub(crate) struct Fields<'a> {
    pub object: &'a Map<String, Value>,
    /// Path of the object in its line; empty for the line itself.
    pub path: String,
}

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value, path: &str) -> Result<Self, String> {
        let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
        match value {
            Value::Object(object) => Ok(Self { object, path: path.to_owned() }),
            Value::String(text) if text.trim_start().starts_with('{') => {
                Err(format!("{at}is a string that holds JSON: it was encoded twice"))
            }
            Value::Array(_) if path.is_empty() => Err(LIST.to_owned()),
            _ => Err(format!("{at}must be an object")),
        }
    }

    /// The first of these fields whose value is neither null nor empty, otherwise the first that is not null, with its
    /// name.
    pub fn get(&self, names: &[&'static str]) -> Option<(&'static str, &'a Value)> {
        let there = || names.iter().filter_map(|name| Some((*name, self.object.get(*name).filter(|v| !v.is_null())?)));
        there().find(|(_, value)| !is_empty(value)).or_else(|| there().next())
    }

    /// The first of these fields that is not null.
    pub fn first(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.object.get(*name).is_some_and(|value| !value.is_null()))
    }

    pub fn fault(&self, name: &str, problem: &str) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}{name}: {problem}", self.path)
    }

    /// The error for a missing field. It lists the existing fields, of which one may be misspelt.
    pub fn missing(&self, name: &str) -> String {
        let what = if self.path.is_empty() { "the line" } else { "it" };
        self.fault(name, &format!("is missing; {what} has {}", self.names()))
    }

    /// The names of all fields.
    pub fn names(&self) -> String {
        listed(self.object.keys())
    }

    /// True if the object has none of these fields, not even as null.
    pub fn lacks(&self, names: &[&'static str]) -> bool {
        !names.iter().any(|name| self.object.contains_key(*name))
    }

    /// A text that may be empty; `None` if the field is absent.
    pub fn any_text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((name, _)) => Err(self.fault(name, "must be a text")),
        }
    }

    /// A text that is not blank; `None` if the field is absent.
    pub fn text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            Some((name, Value::String(text))) if text.trim().is_empty() => Err(self.fault(name, "must not be empty")),
            _ => self.any_text(names),
        }
    }

    /// A text, or a list of texts; none if the field is absent. Blank texts are left out.
    pub fn texts(&self, names: &[&'static str]) -> Result<Vec<String>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(Vec::new()) };
        texts(value).ok_or_else(|| self.fault(name, TEXTS))
    }

    /// Reference answers. `answer`, then `output`, are used only if the line has no field with another name for
    /// references: otherwise they hold a system's answer. Other programs store other things under such names, so unknown
    /// shapes are ignored for names that are not ours.
    pub fn answers(&self) -> Result<Vec<String>, String> {
        let groups = [names::ANSWERS, &["answer"], &["output"]];
        let group = groups.into_iter().find(|names| !self.lacks(names)).unwrap_or_default();
        for name in group {
            let Some(value) = self.object.get(*name).filter(|value| !value.is_null() && !is_empty(value)) else {
                continue;
            };
            match texts(value) {
                Some(texts) => return Ok(texts),
                None if names::OUR_ANSWERS.contains(name) => return Err(self.fault(name, TEXTS)),
                None => {}
            }
        }
        Ok(Vec::new())
    }

    /// As [`answers`](Self::answers), but a fault is only a remark.
    pub fn answers_or_none(&self, remarks: &mut Vec<String>) -> Vec<String> {
        self.answers().unwrap_or_else(|problem| {
            remarks.push(format!("{problem}; none is read"));
            Vec::new()
        })
    }

    /// The text of a passage or document: numbers and booleans as written, parts of a message joined; `None` if absent.
    pub fn passage_text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(None) };
        let text = scalar(value).or_else(|| if names::PARTS.contains(&name) { parts(value) } else { None });
        text.map(Some).ok_or_else(|| self.fault(name, "must be a text"))
    }

    /// An id, a text or a number.
    pub fn identifier(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(id))) => Ok(Some(id.clone())),
            Some((name, Value::Number(id))) => match id.as_f64().filter(|_| id.is_f64()) {
                None => Ok(Some(id.to_string())),
                // Programs with a single number type write 7 as 7.0.
                Some(id) if id.abs() < EXACT => Ok(Some(id.to_string())),
                Some(_) => Err(self.fault(name, "has too many digits for a number: write it as a text")),
            },
            Some((name, _)) => Err(self.fault(name, "must be a text or a number")),
        }
    }

    /// A finite number, also as a text.
    pub fn number(&self, names: &[&'static str]) -> Result<Option<f64>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(None) };
        numeric(value).map(Some).ok_or_else(|| self.fault(name, "must be a number"))
    }

    /// The list of passages.
    pub fn passages(&self) -> Result<&'a [Value], String> {
        match self.get(names::PASSAGES) {
            None => Err(self.missing("passages")),
            Some((name, Value::Array(given))) if given.is_empty() => Err(self.fault(name, "must not be empty")),
            Some((_, Value::Array(given))) => Ok(given),
            Some((name, _)) => Err(self.fault(name, "must be a list")),
        }
    }
}

/// The error for a line that is a list.
pub(super) const LIST: &str = "is a list: write one object per line";

const TEXTS: &str = "must be a text or a list of texts";

fn texts(value: &Value) -> Option<Vec<String>> {
    let texts = match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => {
            let given = values.iter().filter(|value| !value.is_null());
            given.map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        _ => return None,
    };
    Some(texts.into_iter().filter(|text| !text.trim().is_empty()).collect())
}

/// A text, or a number or boolean as written.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The texts of a message's parts. Other parts are ignored.
fn parts(value: &Value) -> Option<String> {
    let text = |part: &Value| match part {
        Value::Object(part) => Some(part.get("text").and_then(scalar).unwrap_or_default()),
        Value::Null => Some(String::new()),
        part => scalar(part),
    };
    let texts: Option<Vec<String>> = value.as_array()?.iter().map(text).collect();
    Some(texts?.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n"))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    }
}

/// A finite number, also as a text.
pub(super) fn numeric(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        value => value.as_f64(),
    }
}

/// A boolean, also as 1 and 0, and as a text in any letter case.
pub(super) fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(is) => Some(*is),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        value if value.as_f64() == Some(1.0) => Some(true),
        value if value.as_f64() == Some(0.0) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_name_with_a_value_counts() {
        let value = json!({ "a": null, "b": " ", "c": "x", "d": "y", "e": [] });
        let fields = Fields::of(&value, "").unwrap();
        let of = |names: &[&'static str]| fields.get(names).map(|(name, _)| name);
        assert_eq!(of(&["a", "b", "c", "d"]), Some("c"));
        assert_eq!(of(&["d", "c"]), Some("d"));
        assert_eq!(of(&["a", "b"]), Some("b"));
        assert_eq!((of(&["e", "d"]), of(&["e"]), of(&["a"])), (Some("d"), Some("e"), None));
    }

    /// Answers of other programs' shapes must not refuse the file, and a system's answer must not become the reference.
    #[test]
    fn answers_of_other_programs_are_references_or_not_read() {
        let of = |value: Value| Fields::of(&value, "").unwrap().answers();
        let some = |answer: &str| Ok(vec![answer.to_owned()]);
        assert_eq!(of(json!({ "answer": "a", "output": "o" })), some("a"));
        assert_eq!(of(json!({ "output": "o" })), some("o"));
        assert_eq!(of(json!({ "golden_answers": ["g"], "answer": "a" })), some("g"));
        assert_eq!(of(json!({ "ground_truth": null, "reference": "r", "answer": "a" })), some("r"));
        for none in [
            json!({ "ground_truth": null, "answer": "a" }),
            json!({ "answers": [], "output": "o" }),
            json!({ "answer": "", "output": "o" }),
            json!({ "answer": { "value": "v" } }),
            json!({ "answer": true }),
            json!({ "gold": 3, "answer": "a" }),
        ] {
            assert_eq!(of(none.clone()), Ok(Vec::new()), "{none}");
        }
        assert_eq!(of(json!({ "answers": [["a"], ["b"]] })).unwrap_err(), "answers: must be a text or a list of texts");
    }

    #[test]
    fn ids_are_texts_or_exact_numbers() {
        let id = |value: Value| Fields::of(&json!({ "id": value }), "").unwrap().identifier(&["id"]);
        let some = |id: &str| Ok(Some(id.to_owned()));
        assert_eq!((id(json!(7)), id(json!(7.0)), id(json!(" a"))), (some("7"), some("7"), some(" a")));
        assert_eq!(
            (id(json!(-0.5)), id(json!(u64::MAX)), id(json!(null))),
            (some("-0.5"), some("18446744073709551615"), Ok(None))
        );
        for wrong in [json!(1e20), json!([]), json!(true)] {
            assert!(id(wrong.clone()).unwrap_err().starts_with("id: "), "{wrong}");
        }
    }

    #[test]
    fn the_error_for_a_missing_field_lists_the_existing_ones() {
        let fault = |value: &Value| Fields::of(value, "").unwrap().missing("passages");
        assert_eq!(
            fault(&json!({ "ctx": [], "question": "q" })),
            r#"passages: is missing; the line has the fields "ctx", "question""#
        );
        assert_eq!(fault(&json!({})), "passages: is missing; the line has no fields");
        let many: Map<String, Value> = (0..100).map(|at| (format!("{at:03}{}", "é".repeat(500)), json!(1))).collect();
        let error = fault(&Value::Object(many));
        assert!(error.len() < 260 && error.ends_with(" more"), "{error}");
    }

    #[test]
    fn an_error_holds_200_bytes_of_a_value() {
        let error = serde_json::from_str::<u8>(&format!("\"{}\"", "é".repeat(10_000))).unwrap_err();
        let error = json_fault(&error);
        assert!(error.len() < 230 && error.contains("(column "), "{error}");
        let error = serde_json::from_str::<Value>("{\n[").unwrap_err();
        assert_eq!(json_fault(&error), "key must be a string (line 2, column 1)");
    }

    #[test]
    fn a_line_that_was_encoded_twice_is_reported() {
        let error = Fields::of(&json!("{\"question\": \"q\"}"), "").err().unwrap();
        assert_eq!(error, "is a string that holds JSON: it was encoded twice");
    }
}
