//! Worked examples for the opening of prompts, as JSON lines.

use std::path::Path;

use serde::Deserialize;

use super::{FileError, lines, name, read};
use crate::engine::opening::Example;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    passage: String,
    query: String,
    #[serde(default)]
    passage_title: String,
}

/// Reads examples, one JSON object a line. Empty lines are skipped.
///
/// # Errors
/// [`FileError`] with file and line; a file without examples is an error, too.
pub fn examples(path: &Path) -> Result<Vec<Example>, FileError> {
    let text = read(path)?;
    let example = |(number, line): (usize, &str)| {
        let parsed: Line =
            serde_json::from_str(line).map_err(|error| FileError(format!("{}:{number}: {error}", name(path))))?;
        for (field, text) in [("passage", &parsed.passage), ("query", &parsed.query)] {
            if text.trim().is_empty() {
                return Err(FileError(format!("{}:{number}: {field}: must not be empty", name(path))));
            }
        }
        Ok(Example { title: parsed.passage_title, passage: parsed.passage, query: parsed.query })
    };
    let examples = lines(&text).map(example).collect::<Result<Vec<_>, FileError>>()?;
    if examples.is_empty() {
        return Err(FileError(format!("{}: holds no examples", name(path))));
    }
    Ok(examples)
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
            examples(&path).map_err(|error| error.to_string())
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
        assert!(read("\n").unwrap_err().ends_with("holds no examples"));
    }
}
