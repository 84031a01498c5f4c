//! Citation recall and precision against the authors' program (princeton-nlp/ALCE at 246c476, MIT), its entailment model replaced by
//! a table, and against the definition written anew in Python. Values and programs are in tests/golden/citations.
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

use rag_metrics::citation::{Check, Citations, OutOfRange, statements};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    answer: String,
    passages: usize,
    table: String,
    /// Recall and precision of the authors' program; without a value where it takes citations for a sentence.
    program: Option<(f64, f64)>,
    definition: (f64, Option<f64>),
}

/// The verdict of the table, as in reference.py.
fn supports(table: u64, passages: &[usize], statement: usize) -> bool {
    let bits = passages.iter().fold(0_u64, |bits, passage| bits | 1 << passage);
    (table >> ((bits * 7 + statement as u64 * 13) % 64)) & 1 == 1
}

fn checked(case: &Case, out_of_range: OutOfRange) -> Citations {
    let table = case.table.parse().unwrap();
    let mut check = Check::new(&statements(&case.answer), case.passages);
    loop {
        let needed = check.needed();
        if needed.is_empty() {
            return check.finish(out_of_range).unwrap();
        }
        for pair in needed {
            let verdict = supports(table, &pair.passages, pair.statement);
            check.absorb(pair, verdict);
        }
    }
}

#[test]
fn two_hundred_answers_are_measured_as_by_the_definition_and_by_the_authors_program() {
    let path = format!("{}/tests/golden/citations/cases.json", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 200);
    let near = |left: f64, right: f64| (left - right).abs() < 1e-12;
    let mut others = Vec::new();
    for case in &cases {
        let found = checked(case, OutOfRange::Imprecise);
        let precise = match (found.precision, case.definition.1) {
            (Some(left), Some(right)) => near(left, right),
            (left, right) => left.is_none() && right.is_none(),
        };
        assert!(near(found.recall, case.definition.0) && precise, "{}: {found:?}, {:?}", case.name, case.definition);
        let found = checked(case, OutOfRange::LeftOut);
        let same = |(recall, precision): (f64, f64)| {
            near(found.recall, recall) && near(found.precision.unwrap_or(0.0), precision)
        };
        if !case.program.is_some_and(same) {
            others.push(case.name.as_str());
        }
    }
    // The program counts a citation that is repeated twice, takes [0] for the last passage, and reads a citation behind a full
    // stop as the beginning of the next sentence.
    assert_eq!(others, ["twice", "number zero", "behind the stop"]);
}
