//! The report's arithmetic by hand.

use serde_json::json;

use super::super::readings::tests::settings;
use super::*;

fn quality(likelihood: f64) -> Quality {
    Quality { likelihood, f1: 0.5, contains: 1.0 }
}

/// The first of two passages is relevant. Complete orders find it, `cyclic` does not.
fn value(answered: bool, scored: bool) -> Asked {
    let mut asked = Asked::default();
    for (name, _, variable) in DESIGNS.into_iter().filter(|(_, _, variable)| scored || !variable) {
        let order = if name == "cyclic" { vec![1, 0] } else { vec![0, 1] };
        let tokens = if name == COMPLETE {
            1_000.0
        } else if variable {
            100.0
        } else {
            250.0
        };
        asked.orders.insert(name.to_owned(), vec![order]);
        asked.costs.insert(name.to_owned(), Cost { tokens, naive: 2.0 * tokens });
        if answered {
            asked.quality.insert(name.to_owned(), quality(if name == COMPLETE { -1.0 } else { -1.5 }));
        }
    }
    asked.orders.insert(RANDOM.to_owned(), vec![vec![0, 1], vec![1, 0]]);
    asked
}

fn report(values: &[Asked], labels: &[f64]) -> Report {
    let mut question = Question::default();
    question.list.labels = labels.to_vec();
    let answers: Vec<Answer<'_>> =
        values.iter().map(|value| Answer { question: &question, value: json!(value) }).collect();
    Designs.report(&answers, &settings()).unwrap()
}

fn figure(report: &Report, name: &str) -> Option<f64> {
    report.figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.mean.value)
}

#[test]
fn designs_are_set_against_complete_orders() {
    let report = report(&std::array::from_fn::<_, 6, _>(|_| value(true, true)), &[1.0, 0.0]);
    let of = |name: &str| figure(&report, name).unwrap();
    let second = 1.0 / 3.0_f64.log2();
    assert!((of("cyclic: nDCG@10") - second).abs() < 1e-12);
    assert!((of("cyclic: RR") - 0.5).abs() < 1e-12);
    assert!((of("cyclic − complete: nDCG@10") - (second - 1.0)).abs() < 1e-12);
    assert!((of("pruned − complete: log P(reference) a token") + 0.5).abs() < 1e-12);
    // The mean over both random orders.
    assert!((of("random orders: nDCG@10") - f64::midpoint(1.0, second)).abs() < 1e-12);
    assert!((of("variable pruning: tokens over the complete design's") - 0.1).abs() < 1e-12);
    assert!((of("cyclic: unshared tokens over the complete design's") - 0.25).abs() < 1e-12);
    assert!(
        report.verdict.starts_with("The paper's cheapest design, variable pruning, takes 10 % of the tokens"),
        "{}",
        report.verdict
    );
    assert!(report.verdict.contains("nDCG@10 differs within the error"), "{}", report.verdict);
    // Five designs and the random orders. Orders that were not asked have no rows.
    assert_eq!((report.tables[0].rows.len(), report.tables[1].rows.len()), (6, 5));
    assert_eq!(report.charts.len(), 1);
}

#[test]
fn lists_without_labels_are_compared_by_their_answers() {
    let few = self::report(&[value(true, false), value(true, false)], &[0.0, 0.0]);
    assert!(few.verdict.contains("differs, with too few questions, or no interval"), "{}", few.verdict);
    let report = report(&std::array::from_fn::<_, 6, _>(|_| value(true, false)), &[0.0, 0.0]);
    assert_eq!(figure(&report, "cyclic: nDCG@10"), None);
    assert!(report.verdict.contains("its log P(reference) a token is worse, by -0.500"), "{}", report.verdict);
    assert!(!report.verdict.contains("variable"), "{}", report.verdict);
    assert!(report.notes.iter().any(|note| note.starts_with("6 questions have no variable pruning")));
    assert!(report.charts.is_empty(), "there is no nDCG to draw");
}

#[test]
fn lists_without_answers_have_rankings_only() {
    let report = report(&[value(false, true)], &[1.0, 0.0]);
    assert_eq!(figure(&report, "complete: token F1"), None);
    assert!(figure(&report, "complete: nDCG@10").is_some());
}

#[test]
fn each_question_has_its_own_designs() {
    let question = |id: &str| Question { id: id.into(), ..Question::default() };
    let seed = |id: &str| options(&question(id), (Scheme::Random, false), &settings()).seed;
    assert_ne!(seed("q1"), seed("q2"));
    assert_eq!(seed("q1"), seed("q1"), "an interrupted analysis continues with the same");
}

#[test]
fn the_relevant_passage_moves_and_the_others_keep_their_order() {
    assert_eq!(moved(4, 2, 0), vec![2, 0, 1, 3]);
    assert_eq!(moved(4, 0, 3), vec![1, 2, 3, 0]);
    assert_eq!(moved(2, 0, 9), vec![1, 0]);
}
