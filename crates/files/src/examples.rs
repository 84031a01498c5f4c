//! Worked examples for the prompt prefix, as JSON lines.

use std::path::Path;

use super::fields::Fields;
use super::{FileError, Warnings, lines};
use engine::types::Example;

/// Reads examples, one JSON object per line, at least one.
///
/// # Errors
/// One per bad line.
pub fn examples(path: &Path, warnings: &mut Warnings) -> Result<Vec<Example>, FileError> {
    lines::read(path, "examples", warnings, |value, _, _| {
        let fields = Fields::of(value, "")?;
        let text = |name: &'static str| fields.text(&[name])?.ok_or_else(|| fields.missing(name));
        let title = fields.any_text(&["passage_title"])?.unwrap_or_default();
        Ok(Some(Example { title, passage: text("passage")?, query: text("query")? }))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::odd;

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
        let missing = read("\n{\"passage\": \"p\"}").unwrap_err();
        assert!(
            missing.ends_with("examples.jsonl:2: query: is missing; the line has the fields \"passage\""),
            "{missing}"
        );
        let untitled = read("{\"passage\": \"p\", \"query\": \"q\", \"passage_title\": null}").unwrap();
        assert_eq!(untitled[0].title, "");
        let blank = read("{\"passage\": \"p\", \"query\": \" \"}").unwrap_err();
        assert!(blank.ends_with("examples.jsonl:1: query: must not be empty"), "{blank}");
        assert!(read("\n").unwrap_err().ends_with("has no examples"));
    }

    proptest! {
        #[test]
        fn examples_are_read_as_they_were_written(passage in odd::words(), query in odd::words(), title in odd::text()) {
            let line = serde_json::json!({ "passage": passage, "query": query, "passage_title": title });
            let read = odd::in_file(&format!("{line}\n"), |path| examples(path, &mut Warnings::default()).unwrap());
            prop_assert_eq!(read, [Example { title, passage, query }]);
        }
    }
}
