//! Boundaries of sentences against NLTK's Punkt, which ALCE's program uses, and against those that a reader would set. Values and
//! program are in tests/golden/sentences.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

use rag_metrics::sentences::sentences;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    kind: String,
    text: String,
    /// The sentences that a reader sees.
    right: Vec<String>,
    /// The sentences that Punkt finds.
    punkt: Vec<String>,
}

fn cut(text: &str) -> Vec<&str> {
    let borders = sentences(text);
    let starts = std::iter::once(0).chain(borders.iter().map(|border| border.end));
    let ends = borders.iter().map(|border| border.start).chain(std::iter::once(text.len()));
    starts.zip(ends).map(|(start, end)| &text[start..end]).collect()
}

/// Exactly the texts of the kind `missed` are cut otherwise than by a reader.
#[test]
fn sentences_are_those_of_a_reader() {
    let path = format!("{}/tests/golden/sentences/cases.json", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| (cut(&case.text) == case.right) == (case.kind == "missed"))
        .map(|case| format!("{}: {:?}\n  not {:?}", case.kind, cut(&case.text), case.right))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The figures of docs/experiments/differences.md and golden/sentences/README.md.
    let count = |is: fn(&Case) -> bool| cases.iter().filter(|case| is(case)).count();
    let (ours, punkt) = (count(|case| cut(&case.text) == case.right), count(|case| case.punkt == case.right));
    assert_eq!((cases.len(), ours, punkt), (194, 189, 118));
}
