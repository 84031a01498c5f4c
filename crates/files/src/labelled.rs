//! Labelled lists: questions as JSON lines, each with its retrieved passages and a label per passage.
//!
//! A line is read field by field, so that an error names the field. Every bad line of a file has one error.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::lines::{self, Remarks};
use super::{Empty, FileError, Warnings, names, passages};
use engine::types::Passage;
use rag_metrics::quoted;

/// Most relevant passages that a collection may have for a question.
const MOST_RELEVANT: usize = 1_000_000;

/// A question with its list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LabelledList {
    /// Unique in the file; defaults to the line's number.
    pub id: String,
    /// Not blank.
    pub question: String,
    /// In first-stage order; at least one.
    pub passages: Vec<Passage>,
    /// One per passage, at least 0.
    pub labels: Vec<f64>,
    /// Number of relevant passages in the whole collection, if the line states it.
    pub relevant: Option<usize>,
    /// Reference answers; may be empty.
    pub answers: Vec<String>,
}

/// Reads labelled lists, at least one. A passage is relevant if its label is at least `threshold`.
///
/// # Errors
/// One per bad line: file, line, field and problem.
pub fn lists(
    path: &Path,
    threshold: f64,
    empty: Empty,
    warnings: &mut Warnings,
) -> Result<Vec<LabelledList>, FileError> {
    read(path, warnings, |value, number, remarks| list(value, number, (threshold, empty), remarks).map(Some))
}

/// Reads lists whose ids are unique. `parse` gets the value of a line and its number, and returns no list if the line is
/// to be left out.
pub(super) fn read(
    path: &Path,
    warnings: &mut Warnings,
    parse: impl Fn(&Value, usize, &mut Remarks) -> Result<Option<LabelledList>, String>,
) -> Result<Vec<LabelledList>, FileError> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    lines::read(path, "questions", warnings, |value, number, remarks| {
        let list = parse(value, number, remarks)?;
        if let Some(list) = &list {
            let first = *seen.entry(list.id.clone()).or_insert(number);
            if first != number {
                return Err(format!("id: {} given twice, first in line {first}", quoted(&list.id)));
            }
        }
        Ok(list)
    })
}

fn list(
    value: &Value,
    number: usize,
    (threshold, empty): (f64, Empty),
    remarks: &mut Remarks,
) -> Result<LabelledList, String> {
    let fields = Fields::of(value, "")?;
    let question = fields.text(names::QUESTION)?.ok_or_else(|| fields.missing("question"))?;
    // A fault of the answers is only a warning, because not every command uses them.
    let answers = fields.answers_or_none(remarks);
    let given = passages::of_line(&fields, empty, remarks)?;
    let (mut passages, mut labels) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
    for one in given {
        let unlabelled = || passages::unlabelled(&fields, one.index).map_or(Ok(0.0), Err);
        labels.push(one.label?.map_or_else(unlabelled, Ok)?);
        passages.push(one.passage);
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
    let id = fields.identifier(names::QUERY_ID)?.unwrap_or_else(|| number.to_string());
    Ok(LabelledList { id, question, passages, labels, relevant, answers })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<LabelledList>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let name = format!("{}:", file.path().display());
        lists(file.path(), 0.5, Empty::Ranked, &mut Warnings::default()).map_err(|error| error.0.replace(&name, ""))
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
            ("[1]".to_owned(), "is a list: write one object per line"),
            (r#"{"passages": []}"#.to_owned(), "question: is missing; the line has the fields \"passages\""),
            (r#"{"query": " ", "passages": []}"#.to_owned(), "query: must not be empty"),
            (r#"{"question": 5}"#.to_owned(), "question: must be a text"),
            (r#"{"question": "Who?"}"#.to_owned(), "passages: is missing; the line has the fields \"question\""),
            (r#"{"question": "Who?", "passages": {}}"#.to_owned(), "passages: must be a list"),
            (r#"{"question": "Who?", "passages": []}"#.to_owned(), "passages: must not be empty"),
            (r#"{"question": "Who?", "answers": 5, "passages": []}"#.to_owned(), "passages: must not be empty"),
            (one("[5]"), "passages[0]: must be a text or an object with text"),
            (one("5"), "passages[0]: must be an object with a label"),
            (one("\"x\""), "passages[0]: must be an object with a label"),
            (one(r#"{"label": 1}"#), "passages: none has a text; passages[0] has the fields \"label\""),
            (one(r#"{"text": "x"}"#), "passages[0].label: is missing; it has the fields \"text\""),
            (one(r#"{"text": "x", "label": -1}"#), "passages[0].label: must be a number from 0 on, or true or false"),
            (one(r#"{"text": "x", "supporting": 2}"#), "passages[0].supporting: must be true or false"),
            (one(r#"{"text": "x", "label": 1, "score": "high"}"#), "passages[0].score: must be a number"),
            (one(r#"{"text": "x", "label": 1, "title": []}"#), "passages[0].title: must be a text"),
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

    /// Measures allocate a label for each relevant passage, so a placeholder for "unknown" must not be accepted.
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
        assert_eq!(error.lines().count(), 21);
        assert!(error.ends_with(" 5 more bad lines"), "{error}");
        assert!(read(b"{\"question\n").unwrap_err().starts_with("1: is not valid JSON: "));
        assert!(read(b"\n").unwrap_err().ends_with(" has no questions"));
        let thrice = format!("{0}\n{0}\n{0}\n", GOOD.replace('\n', " "));
        let problem = "id: \"q\" given twice, first in line 1";
        assert_eq!(read(thrice.as_bytes()).unwrap_err(), format!("2: {problem}\n3: {problem}"));
    }

    /// A warning, because not every command reads answers.
    #[test]
    fn answers_at_fault_and_equal_ids_are_warnings() {
        let line = r#"{"question": "Who?", "answers": [["a"]], "passages": [
            {"id": "1", "text": "x", "label": 1}, {"text": "y", "label": 1}]}"#;
        let mut warnings = Warnings::default();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(line.replace('\n', " ").as_bytes()).unwrap();
        let read = lists(file.path(), 0.5, Empty::LeftOut, &mut warnings).unwrap();
        assert_eq!((read[0].passages.len(), read[0].answers.len()), (2, 0));
        let name = format!("{}:1: ", file.path().display());
        let warnings: Vec<String> = warnings.lines().map(|line| line.replace(&name, "")).collect();
        let id = "passages[1].id: \"1\" is also the id of passages[0]; both count";
        assert_eq!(warnings, ["answers: must be a text or a list of texts; none is read", id]);
    }
}
