use serde_json::{Value, json};

use super::*;
use rag_metrics::resample::Statistics;

fn settings() -> Settings {
    Settings {
        task: engine::types::Task::default(),
        passages: None,
        passage_tokens: None,
        samples: 5,
        repeats: 3,
        depths: Vec::new(),
        threshold: 0.5,
        seed: 0,
        statistics: Statistics { resamples: 50, ..Statistics::default() },
    }
}

/// A question of two passages, with the labels by the answers' F1, and the F1 of the answers from one passage and from
/// both.
fn labelled(f1: [f64; 2], contains: [f64; 2], quality: [f64; 2]) -> Value {
    let labels = |annotator: &Annotator| match annotator {
        Annotator::TokenF1 => json!(f1),
        Annotator::ContainsAnswer => json!(contains),
        _ => json!([0.0, 0.0]),
    };
    let labels: BTreeMap<&str, Value> = ANNOTATORS.iter().map(|one| (one.name(), labels(one))).collect();
    json!({ "cutoffs": [1, 2], "labels": labels,
        "quality": { "token-f1": quality, "containment": [0.0, 0.0], "exact-match": [0.0, 0.0], "rouge-l": [0.0, 0.0] } })
}

fn report(values: &[Value]) -> Report {
    let question = Question::default();
    let answers: Vec<Answer<'_>> =
        values.iter().map(|value| Answer { question: &question, value: value.clone() }).collect();
    EragCorrelation.report(&answers, &settings()).unwrap()
}

fn figure(report: &Report, name: &str) -> Option<f64> {
    report.figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name}")).mean.value
}

fn near(value: Option<f64>, expected: f64) {
    assert!((value.unwrap() - expected).abs() < 1e-12, "{value:?} {expected}");
}

/// Four questions. The label of the second passage predicts the answer from both; the baseline predicts the reverse.
fn four() -> Vec<Value> {
    vec![
        labelled([0.0, 0.2], [1.0, 1.0], [0.0, 0.1]),
        labelled([0.0, 0.4], [1.0, 0.0], [0.0, 0.2]),
        labelled([0.0, 0.6], [0.0, 1.0], [0.0, 0.3]),
        labelled([0.0, 0.8], [0.0, 0.0], [0.0, 0.4]),
    ]
}

#[test]
fn metrics_over_labels_are_correlated_with_the_answer() {
    let report = report(&four());
    // P = 0.1, 0.2, 0.3, 0.4 orders the answers correctly; so does Success.
    near(figure(&report, "tau-b of P by token-f1 with token-f1"), 1.0);
    near(figure(&report, "rho of Success by token-f1 with token-f1"), 1.0);
    // RR counts labels from 0.5 on: 0, 0, 1/2, 1/2. Of six pairs four are ordered and two tied: 4 / sqrt(6 x 4).
    near(figure(&report, "tau-b of RR by token-f1 with token-f1"), 4.0 / 24.0_f64.sqrt());
    // The baseline's P = 1, 0.5, 0.5, 0: five pairs reversed, one tied.
    near(figure(&report, "tau-b of P by contains-answer with token-f1"), -5.0 / 30.0_f64.sqrt());
    // Constant labels have no correlation.
    assert_eq!(figure(&report, "tau-b of P by provenance with token-f1"), None);
    assert_eq!(figure(&report, "tau-b of P by token-f1 with containment"), None);
}

/// With the data's threshold of 2, no label in [0, 1] would count.
#[test]
fn the_threshold_of_the_data_applies_to_provenance_only() {
    let question = Question::default();
    let values: Vec<Value> = four()
        .into_iter()
        .zip([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0], [0.0, 3.0]])
        .map(|(mut value, given)| {
            value["labels"]["provenance"] = json!(given);
            value
        })
        .collect();
    let answers: Vec<Answer<'_>> =
        values.iter().map(|value| Answer { question: &question, value: value.clone() }).collect();
    let report = EragCorrelation.report(&answers, &Settings { threshold: 2.0, ..settings() }).unwrap();
    // RR by token F1 counts from 0.5 on, for all grades of the data: 0, 0, 1/2, 1/2.
    near(figure(&report, "tau-b of RR by token-f1 with token-f1"), 4.0 / 24.0_f64.sqrt());
    // RR by the data's labels counts from 2 on: 0, 1/2, 0, 1/2. Three pairs are ordered, one is not, two are tied.
    near(figure(&report, "tau-b of RR by provenance with token-f1"), 2.0 / 24.0_f64.sqrt());
    assert!(
        report.notes.iter().any(|note| note.contains("at least 0.5, and the data's own (provenance) of at least 2."))
    );
}

#[test]
fn the_whole_list_is_not_its_first_passage() {
    let report = report(&four());
    // Over one passage every label and every answer is 0.
    assert_eq!(figure(&report, "tau-b of token-f1, P over 1 passages"), None);
    near(figure(&report, "tau-b of token-f1, P over 2 passages"), 1.0);
    let table = report.tables.last().unwrap();
    assert_eq!(table.rows.len(), 2);
    assert_eq!(table.rows[1].last().unwrap(), "4");
    assert!(report.charts[0].svg.contains("token-f1, P"), "{}", report.charts[0].svg);
    // Two tables of token F1, and the table over the cut-offs. The other qualities are constant.
    assert_eq!(report.tables.len(), 3);
    assert!(report.notes.last().unwrap().starts_with("containment, exact-match of the answers"), "{:?}", report.notes);
}

#[test]
fn the_verdict_compares_with_the_best_baseline() {
    let of_four = report(&four());
    assert!(
        of_four.verdict.contains("tau-b of 1.000") && of_four.verdict.contains("contains-answer"),
        "{}",
        of_four.verdict
    );
    // The baseline's best metric is the least bad one: Success is 1, 1, 1, 0, three of six pairs reversed.
    let less = of_four.figures.iter().find(|one| one.name.contains(" less that of ")).unwrap();
    assert!(less.mean.value.unwrap() > 1.0, "{less:?}");
    let constant = report(&[labelled([0.0; 2], [0.0; 2], [0.0; 2]), labelled([0.0; 2], [1.0; 2], [0.0; 2])]);
    assert!(constant.verdict.starts_with("Nothing can be compared"), "{}", constant.verdict);
}

#[test]
fn shorter_lists_count_up_to_their_length() {
    let mut values = four();
    let short = json!({ "cutoffs": [1], "labels": { "token-f1": [1.0] }, "quality": { "token-f1": [0.9] } });
    values.push(short);
    let report = report(&values);
    // Its whole list is its only passage, which agrees with the others.
    near(figure(&report, "tau-b of P by token-f1 with token-f1"), 1.0);
    let table = report.tables.last().unwrap();
    assert_eq!((table.rows[0].last().unwrap().as_str(), table.rows[1].last().unwrap().as_str()), ("5", "4"));
}

#[test]
fn changed_results_are_refused() {
    let question = Question { id: "q1".to_owned(), ..Question::default() };
    let answers = [Answer { question: &question, value: json!({ "cutoffs": [1], "labels": [] }) }];
    let error = EragCorrelation.report(&answers, &settings()).unwrap_err().to_string();
    assert!(error.contains("\"q1\""), "{error}");
}

/// AP of these labels is 5/6, 5/6, 1 and 1/2, the first two by different sums: five pairs are ordered like the answers,
/// one is tied.
#[test]
fn equal_values_tie_in_spite_of_rounding() {
    let of = |f1: [f64; 6], quality: f64| {
        let labels = |annotator: &Annotator| json!(if *annotator == Annotator::TokenF1 { f1 } else { [0.0; 6] });
        let labels: BTreeMap<&str, Value> = ANNOTATORS.iter().map(|one| (one.name(), labels(one))).collect();
        json!({ "cutoffs": [6], "labels": labels,
            "quality": { "token-f1": [quality], "containment": [0.0], "exact-match": [0.0], "rouge-l": [0.0] } })
    };
    let report = report(&[
        of([1.0, 0.0, 1.0, 0.0, 0.0, 0.0], 0.6),
        of([1.0, 1.0, 0.0, 0.0, 0.0, 1.0], 0.4),
        of([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0.8),
        of([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 0.2),
    ]);
    near(figure(&report, "tau-b of AP by token-f1 with token-f1"), 5.0 / 30.0_f64.sqrt());
}
