//! Worked examples for the opening of prompts, as JSON lines.

use std::path::Path;

use serde::Deserialize;

use super::fields::json_fault;
use super::{FileError, Warnings, lines};
use crate::engine::opening::Example;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    passage: String,
    query: String,
    #[serde(default)]
    passage_title: String,
}

/// Reads examples, one JSON object a line, at least one.
///
/// # Errors
/// One a bad line.
pub fn examples(path: &Path, warnings: &mut Warnings) -> Result<Vec<Example>, FileError> {
    lines::read(path, "examples", warnings, |value, _, _| {
        let line = Line::deserialize(value).map_err(|error| json_fault(&error))?;
        for (field, text) in [("passage", &line.passage), ("query", &line.query)] {
            if text.trim().is_empty() {
                return Err(format!("{field}: must not be empty"));
            }
        }
        Ok(Some(Example { title: line.passage_title, passage: line.passage, query: line.query }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_examples_and_errors_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("examples.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            examples(&path, &mut Warnings::default()).map_err(|error| error.to_string())
        };
        let good = "{\"passage\": \"p\", \"query\": \"q\", \"passage_title\": \"t\"}\n\n{\"passage\": \"p\", \"query\": \"r\"}\n";
        let found = read(good).unwrap();
        assert_eq!((found[0].title.as_str(), found[0].query.as_str()), ("t", "q"));
        assert_eq!((found.len(), found[1].title.as_str(), found[1].query.as_str()), (2, "", "r"));
        assert!(read("{\"passage\": \"p\"}").unwrap_err().contains("examples.jsonl:1: missing field `query`"));
        assert!(
            read("\n{\"passage\": \"p\", \"query\": \"q\", \"titel\": \"\"}")
                .unwrap_err()
                .contains(":2: unknown field")
        );
        let blank = read("{\"passage\": \"p\", \"query\": \" \"}").unwrap_err();
        assert!(blank.ends_with("examples.jsonl:1: query: must not be empty"), "{blank}");
        assert!(read("\n").unwrap_err().ends_with("has no examples"));
    }
}
