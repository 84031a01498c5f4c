//! Reads JSON in bounded memory: stores only the requested fields, as slices of the body, and bounds lists. A body of
//! many small values would otherwise take twenty times its size.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use engine::types::EngineError;
use files::json::without_half_surrogates;
use rag_metrics::quoted;

/// Most elements of a list: the most passages that a configuration can allow.
const MOST: usize = 10_000;

/// Longest name of a model, method or field in the body, in bytes. An error quotes it several times, escaped each time.
const LONGEST_WORD: usize = 1_024;

/// Most unknown fields of an object that are compared with the known ones.
const MOST_COMPARED: usize = 32;

/// Longest unknown name that is compared, in bytes. The longest known name has 24.
const LONGEST_COMPARED: usize = 32;

/// The wanted fields of an object. A field that is null counts as absent. If a field occurs twice, the last one counts.
#[derive(Debug)]
pub(super) struct Object<'a, 'k> {
    path: String,
    fields: HashMap<&'k str, &'a RawValue>,
    /// Unknown names that resemble a wanted one, each with it.
    misspelt: Vec<(String, &'k str)>,
}

impl<'a, 'k> Object<'a, 'k> {
    /// Reads an object. `path` is its path in the body: empty for the body itself, else ending in a dot.
    pub fn read(json: &'a str, path: &str, wanted: &[&'k str]) -> Result<Self, serde_json::Error> {
        let mut source = serde_json::Deserializer::from_str(json);
        // Documents have many fields of their own.
        let compared = if path.is_empty() { MOST_COMPARED } else { 0 };
        let (fields, misspelt) = Fields { wanted, compared }.deserialize(&mut source)?;
        source.end()?;
        Ok(Self { path: path.to_owned(), fields, misspelt })
    }

    /// Warnings about fields without effect whose names resemble a known one. Other unknown fields are ignored silently,
    /// because clients of other servers send many of them.
    pub fn misspelt(&self) -> impl Iterator<Item = String> {
        self.misspelt.iter().map(|(name, meant)| format!("{} has no effect; did you mean {meant}?", self.path(name)))
    }

    /// The error for a required field that is not set.
    pub fn missing(&self, field: &str) -> EngineError {
        let similar = self.misspelt.iter().find(|(_, meant)| *meant == field);
        let similar = similar.map_or_else(String::new, |(name, _)| format!("; the body has {}", quoted(name)));
        EngineError::invalid(self.path(field), format!("must be set{similar}"))
    }

    /// An object inside a body that was already parsed.
    pub fn inside(value: &'a RawValue, path: &str, wanted: &[&'k str]) -> Result<Self, EngineError> {
        Self::read(value.get(), &format!("{path}."), wanted)
            .map_err(|_| EngineError::invalid(path, "must be an object"))
    }

    /// True if the object has the field, even as null.
    pub fn names(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    pub fn has(&self, field: &str) -> bool {
        self.raw(field).is_some()
    }

    /// Path of a field in the body.
    pub fn path(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    pub fn raw(&self, field: &str) -> Option<&'a RawValue> {
        self.fields.get(field).copied().filter(|value| value.get() != "null")
    }

    /// A string.
    pub fn string(&self, field: &str) -> Result<Option<String>, EngineError> {
        let refused = || EngineError::invalid(self.path(field), "must be a string");
        self.raw(field).map(|value| string(value).ok_or_else(refused)).transpose()
    }

    /// A string; also a number, true or false, as written in the body.
    pub fn text(&self, field: &str) -> Result<Option<Text>, EngineError> {
        let refused = || EngineError::invalid(self.path(field), "must be a string");
        self.raw(field).map(|value| text(value).ok_or_else(refused)).transpose()
    }

    /// A name, short enough to be quoted in an error.
    pub fn word(&self, field: &str) -> Result<Option<String>, EngineError> {
        self.raw(field).map_or(Ok(None), |value| word(value, &self.path(field)).map(Some))
    }

    /// true or false, also as a string, which some clients send.
    pub fn flag(&self, field: &str) -> Result<Option<bool>, EngineError> {
        match self.raw(field).map(RawValue::get) {
            Some(value) if value.eq_ignore_ascii_case(r#""true""#) => Ok(Some(true)),
            Some(value) if value.eq_ignore_ascii_case(r#""false""#) => Ok(Some(false)),
            _ => self.parse(field, "must be true or false"),
        }
    }

    /// A whole number. A zero fraction (`5.0`) is allowed, for clients with one number type.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
    pub fn integer(&self, field: &str) -> Result<Option<i64>, EngineError> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        self.parse::<i64>(field, "must be a whole number").or_else(|refused| match self.number(field) {
            Ok(Some(number)) if number.fract() == 0.0 && number.abs() < EXACT => Ok(Some(number as i64)),
            _ => Err(refused),
        })
    }

    pub fn number(&self, field: &str) -> Result<Option<f64>, EngineError> {
        self.parse(field, "must be a number")
    }

    /// A count of at least `least`.
    pub fn count(&self, field: &str, least: usize) -> Result<Option<usize>, EngineError> {
        let refused = || EngineError::invalid(self.path(field), format!("must be a whole number of {least} or more"));
        let Some(number) = self.integer(field).map_err(|_| refused())? else { return Ok(None) };
        usize::try_from(number).ok().filter(|number| *number >= least).map(Some).ok_or_else(refused)
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, field: &str, problem: &str) -> Result<Option<T>, EngineError> {
        let parsed = self.raw(field).map(|value| serde_json::from_str(value.get())).transpose();
        parsed.map_err(|_| EngineError::invalid(self.path(field), problem))
    }
}

/// The known name that another one probably means: equal but for case and punctuation, or at most one edit in four
/// letters.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let letters = |name: &str| name.to_lowercase().replace(['_', '-', ' '], "");
    let own = letters(name);
    let distances = known.map(|known| {
        let other = letters(known);
        (strsim::osa_distance(&own, &other), other.chars().count(), known)
    });
    let close = distances.filter(|(distance, length, _)| distance * 4 <= *length);
    close.min_by_key(|(distance, _, _)| *distance).map(|(_, _, known)| known)
}

/// The elements of a list; `None` if the value is not a list.
pub(super) fn elements<'a>(value: &'a RawValue, path: &str) -> Result<Option<Vec<&'a RawValue>>, EngineError> {
    if !value.get().starts_with('[') {
        return Ok(None);
    }
    let read = Elements.deserialize(&mut serde_json::Deserializer::from_str(value.get()));
    match read {
        Ok(Some(elements)) => Ok(Some(elements)),
        _ => Err(EngineError::invalid(path, format!("more than {MOST} given, at most {MOST} allowed"))),
    }
}

/// A string short enough to be quoted in an error. `path` is its path in the body.
pub(super) fn word(value: &RawValue, path: &str) -> Result<String, EngineError> {
    if value.get().len() > LONGEST_WORD {
        return Err(EngineError::invalid(path, format!("is longer than {LONGEST_WORD} bytes")));
    }
    string(value).ok_or_else(|| EngineError::invalid(path, "must be a string"))
}

/// A string. An unpaired surrogate becomes the replacement character. `None` if the value is not a string.
pub(super) fn string(value: &RawValue) -> Option<String> {
    text(value).filter(|_| value.get().starts_with('"')).map(|text| text.text)
}

/// A text of a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Text {
    pub text: String,
    /// True if an unpaired surrogate was replaced.
    pub repaired: bool,
}

/// A string; also a number, true or false, as written in the body; empty for null. `None` for a list or an object.
pub(super) fn text(value: &RawValue) -> Option<Text> {
    match value.get().as_bytes().first() {
        Some(b'"') => match serde_json::from_str(value.get()) {
            Ok(text) => Some(Text { text, repaired: false }),
            Err(_) => {
                let text = serde_json::from_str(&without_half_surrogates(value.get())).ok()?;
                Some(Text { text, repaired: true })
            }
        },
        Some(b'[' | b'{') | None => None,
        Some(b'n') => Some(Text::default()),
        Some(_) => Some(Text { text: value.get().to_owned(), repaired: false }),
    }
}

/// The name of a field, as bytes: a name with an unpaired surrogate is valid JSON but not UTF-8.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] std::borrow::Cow<'a, [u8]>);

struct Fields<'w, 'k> {
    wanted: &'w [&'k str],
    /// Unknown fields that are compared with the wanted ones.
    compared: usize,
}

/// The wanted fields of an object, and unknown names with the wanted ones that they resemble.
type Found<'de, 'k> = (HashMap<&'k str, &'de RawValue>, Vec<(String, &'k str)>);

impl<'de, 'k> DeserializeSeed<'de> for Fields<'_, 'k> {
    type Value = Found<'de, 'k>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de, 'k> Visitor<'de> for Fields<'_, 'k> {
    type Value = Found<'de, 'k>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut misspelt, mut compared) = (HashMap::new(), Vec::new(), 0);
        while let Some(Key(key)) = map.next_key::<Key<'de>>()? {
            match self.wanted.iter().find(|wanted| wanted.as_bytes() == &*key) {
                Some(wanted) => {
                    found.insert(*wanted, map.next_value::<&RawValue>()?);
                }
                None => {
                    let name = std::str::from_utf8(&key).ok().filter(|name| name.len() <= LONGEST_COMPARED);
                    if let Some(name) = name.filter(|_| compared < self.compared) {
                        compared += 1;
                        // Other protocols have the same fields without the prefix.
                        let own = |wanted: &&&str| wanted.strip_prefix("rerankd_") == Some(name);
                        let own = self.wanted.iter().find(own).copied();
                        let meant = own.or_else(|| nearest(name, self.wanted.iter().copied()));
                        misspelt.extend(meant.map(|meant| (name.to_owned(), meant)));
                    }
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok((found, misspelt))
    }
}

struct Elements;

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Option<Vec<&'de RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Option<Vec<&'de RawValue>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(value) = list.next_element::<&RawValue>()? {
            if found.len() == MOST {
                return Ok(None);
            }
            found.push(value);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_wanted_fields_are_kept_and_the_last_of_two_counts() {
        let body = r#"{"a": 1, "b": [{"c": 2}], "a": "\u00e9", "n": null}"#;
        let object = Object::read(body, "", &["a", "n", "z"]).unwrap();
        assert_eq!(object.fields.len(), 2);
        assert_eq!(object.text("a").unwrap().unwrap().text, "é");
        assert!(!object.has("n") && !object.has("z") && !object.has("b"));
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_nearest_one() {
        let wanted = ["query", "documents", "top_n", "return_documents", "model", "rerankd_method"];
        let body =
            r#"{"method": 0, "retrun_documents": 1, "topN": 2, "user": "x", "return_embeddings": 3, "documnets": []}"#;
        let object = Object::read(body, "", &wanted).unwrap();
        let told: Vec<String> = object.misspelt().collect();
        let expected = [
            ("method", "rerankd_method"),
            ("retrun_documents", "return_documents"),
            ("topN", "top_n"),
            ("documnets", "documents"),
        ];
        assert_eq!(told, expected.map(|(name, meant)| format!("{name} has no effect; did you mean {meant}?")));
        let missing = |field| object.missing(field).to_string();
        assert_eq!(missing("documents"), "documents: must be set; the body has \"documnets\"");
        assert_eq!(missing("query"), "query: must be set");
        let many: Vec<String> = (0..1_000).map(|at| format!("\"quer{at}\": 1")).collect();
        let many = format!("{{{}, \"querry\": 1}}", many.join(", "));
        let found = Object::read(&many, "", &wanted).unwrap().misspelt;
        assert!(found.len() == 10 && found.iter().all(|(name, _)| name != "querry"), "only the first are compared");
    }

    #[test]
    fn an_error_names_the_field() {
        let body = r#"{"a": [1], "o": {"t": 5}, "u": -1}"#;
        let object = Object::read(body, "", &["a", "o", "u"]).unwrap();
        assert_eq!(object.text("a").unwrap_err().to_string(), "a: must be a string");
        assert_eq!(object.count("u", 0).unwrap_err().to_string(), "u: must be a whole number of 0 or more");
        let inner = Object::inside(object.raw("o").unwrap(), "o", &["t"]).unwrap();
        assert_eq!(inner.flag("t").unwrap_err().to_string(), "o.t: must be true or false");
        assert!(Object::inside(object.raw("u").unwrap(), "u", &[]).is_err());
    }

    #[test]
    fn half_a_surrogate_pair_costs_no_field() {
        let body = r#"{"\ud83d": 1, "a\u0062": "cut \ud83d", "n": 1.50, "list": [], "none": null}"#;
        let object = Object::read(body, "", &["ab", "n", "list", "none"]).unwrap();
        let text = |field: &str| object.text(field).map(|text| text.map(|text| (text.text, text.repaired)));
        assert_eq!(text("ab").unwrap(), Some(("cut \u{fffd}".to_owned(), true)));
        assert_eq!(text("n").unwrap(), Some(("1.50".to_owned(), false)));
        assert_eq!((text("none").unwrap(), object.names("none"), object.names("gone")), (None, true, false));
        assert!(text("list").is_err() && string(object.raw("n").unwrap()).is_none());
    }

    #[test]
    fn lists_end_at_a_bound() {
        let list = |count: usize| RawValue::from_string(format!("[{}]", vec!["0"; count].join(","))).unwrap();
        assert_eq!(elements(&list(MOST), "x").unwrap().unwrap().len(), MOST);
        assert!(elements(&list(MOST + 1), "x").unwrap_err().to_string().starts_with("x: more than"));
        assert!(elements(&RawValue::from_string("7".into()).unwrap(), "x").unwrap().is_none());
    }

    #[test]
    fn a_body_that_is_not_an_object_is_refused() {
        for body in ["", "[]", "7", "{", "{\"a\": 1} x", "{\"a\": \u{7}}"] {
            assert!(Object::read(body, "", &["a"]).is_err(), "{body}");
        }
    }

    proptest! {
        /// No body may panic.
        #[test]
        fn any_text(body in "[{}\\[\\]\"a:,0-9nul\\\\ ]{0,60}") {
            if let Ok(object) = Object::read(&body, "", &["a", "n"]) {
                let _ = (object.text("a"), object.count("n", 1), object.raw("a").map(|value| elements(value, "a")));
            }
        }
    }
}
