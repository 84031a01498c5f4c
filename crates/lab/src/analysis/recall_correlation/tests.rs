use serde_json::{Value, json};

use super::pool::{Measure, Pool};
use super::*;
use files::labelled::LabelledList;
use rag_metrics::agreement::Correlation;
use rag_metrics::recall::Family;
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

fn question(labels: &[f64], relevant: Option<usize>) -> Question {
    let list = LabelledList { labels: labels.to_vec(), relevant, ..LabelledList::default() };
    Question { id: "q".to_owned(), list, ..Question::default() }
}

/// Qualities of the answers from the first one and two passages. The likelihood is constant.
fn answered(f1: [f64; 2]) -> Value {
    json!({ "token_f1": f1, "log_likelihood": [-1.0, -1.0] })
}

fn report(lists: &[(Question, Value)]) -> Report {
    let answers: Vec<Answer<'_>> =
        lists.iter().map(|(question, value)| Answer { question, value: value.clone() }).collect();
    RecallCorrelation.report(&answers, &settings()).unwrap()
}

fn figure(report: &Report, name: &str) -> Option<f64> {
    report.figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name}")).mean.value
}

fn near(left: Option<f64>, right: f64) {
    assert!((left.unwrap() - right).abs() < 1e-9, "{left:?} {right}");
}

/// Four lists whose answers improve with the number of positives. The last list does not state N.
fn four() -> Vec<(Question, Value)> {
    vec![
        (question(&[1.0, 1.0, 0.0, 0.0], Some(2)), answered([0.1, 0.2])),
        (question(&[1.0, 0.0, 0.0, 0.0], Some(4)), answered([0.1, 0.1])),
        (question(&[0.0, 0.0, 0.0, 0.0], Some(1)), answered([0.0, 0.0])),
        (question(&[0.0, 0.0], None), answered([0.0, 0.0])),
    ]
}

#[test]
fn measures_are_correlated_over_lists_and_cutoffs() {
    let report = report(&four());
    // T at alpha 0, the smallest, is the number of positives, and orders the answers correctly.
    near(figure(&report, "rho of T with token F1, all lists and cut-offs"), 1.0);
    let row = |name: &str| report.tables[0].rows.iter().find(|row| row[0] == name).unwrap().clone();
    assert_eq!(row("T")[3], "0");
    // Precision is 1, 1; 1, 1/2; 0, 0; 0, 0. Of 28 pairs 9 tie on each side, and 17 agree: 16 against the zeros, and
    // one more.
    near(figure(&report, "tau-b of precision with token F1, all lists and cut-offs"), 17.0 / 19.0);
    assert_eq!(row("precision")[5], "–");
    // F has no N for the last list, and Fe no top 4.
    assert_eq!(["F", "Fe", "T", "recall"].map(|name| row(name)[8].clone()), ["6", "7", "8", "6"]);
    assert_eq!((row("F")[1].as_str(), row("T")[1].as_str()), ("N", "nothing"));
    // Recall over the six: 1/2, 1; 1/4, 1/4; 0, 0 with 0.1, 0.2; 0.1, 0.1; 0, 0. Of 15 pairs 2 tie on the left and 4 on
    // the right; 8 agree against the zeros, and the first list's second against the three others above them.
    near(figure(&report, "tau-b of recall with token F1, all lists and cut-offs"), 11.0 / (13.0_f64 * 11.0).sqrt());
    assert!(figure(&report, "rho of T less precision with token F1").unwrap() > 0.0);
}

/// Fe is not defined at the third and fourth cut-off of four passages, so neither is a difference from it.
#[test]
fn a_gain_is_over_the_samples_of_both_measures() {
    let lists = [
        ([true, false, true, true], [0.9, 0.4, 0.0, 0.0]),
        ([false, true, false, false], [0.2, 0.5, 0.9, 0.8]),
        ([true, true, false, true], [0.8, 0.7, 0.1, 0.0]),
        ([false, false, true, true], [0.0, 0.1, 0.7, 0.2]),
    ];
    let listed = |(marks, responses): &([bool; 4], [f64; 4])| {
        let sample =
            |(at, response): (usize, &f64)| Sample { marks: marks.to_vec(), k: at + 1, all: None, response: *response };
        responses.iter().enumerate().map(sample).collect::<Listed>()
    };
    let lists: Vec<Listed> = lists.iter().map(listed).collect();
    let statistics = Statistics { resamples: 0, ..Statistics::default() };
    let of = |holds: fn(&Sample) -> bool| {
        let pool = Pool::new("all", &lists, holds);
        let reach = |measure| pool.reach(measure, Correlation::Spearman, &statistics);
        let (precision, fe) = (reach(Measure::Precision), reach(Measure::Weighed(Family::Fe)));
        (
            precision.mean.value.unwrap(),
            precision.gain(&fe, Correlation::Spearman, &statistics).value.unwrap(),
            fe.samples,
        )
    };
    let (every, gain, samples) = of(|_| true);
    let (first, of_first, _) = of(|sample| sample.k <= 2);
    assert!((every - first).abs() > 0.1, "the deeper cut-offs differ: {every} {first}");
    assert!((gain - of_first).abs() < 1e-12, "{gain} {of_first}");
    assert_eq!(samples, 8);
}

#[test]
fn narrow_and_wide_lists_and_cutoffs_have_separate_rows() {
    let report = report(&four());
    let table = |caption: &str| report.tables.iter().find(|table| table.caption.ends_with(caption)).unwrap();
    let last = |caption: &str| table(caption).rows.iter().map(|row| row.last().unwrap().as_str()).collect::<Vec<_>>();
    // K < N: the first list's first cut-off, and both of the second.
    assert_eq!(last("with token F1, narrow and wide lists"), ["3", "3"]);
    assert_eq!(last("with token F1, each cut-off K"), ["4", "4"]);
    // At one K, precision and T order alike.
    for k in [1, 2] {
        let of = |measure: &str| figure(&report, &format!("rho of {measure} with token F1, each cut-off K: {k}"));
        assert_eq!((of("T"), of("T'")), (of("precision"), of("precision")));
    }
    assert_eq!(report.charts.len(), 4);
}

#[test]
fn answers_that_do_not_vary_have_no_correlation() {
    let report = report(&four());
    assert_eq!(figure(&report, "rho of T with log P(reference), all lists and cut-offs"), None);
    assert!(report.verdict.starts_with("T, which needs no N, agrees with the token F1"), "{}", report.verdict);
    assert!(report.verdict.ends_with("that suits these lists best, which flatters them."), "{}", report.verdict);
    // T at alpha 1 orders like precision, so its best alpha cannot do worse.
    assert!(!report.verdict.contains("precision"), "{}", report.verdict);
    let constant: Vec<(Question, Value)> = four().into_iter().map(|(list, _)| (list, answered([0.5, 0.5]))).collect();
    let constant = self::report(&constant);
    assert!(constant.verdict.starts_with("Nothing can be compared"), "{}", constant.verdict);
}

#[test]
fn segments_by_the_share_of_positives_have_their_answers() {
    // Twelve lists of two positives, at the first place or at the second.
    let list = |at: u32| {
        let labels = if at.is_multiple_of(2) { [1.0, 1.0] } else { [0.0, 1.0] };
        let found = labels.map(|label| label * 0.25);
        (question(&labels, Some(2)), answered([found[0], found[0] + found[1]]))
    };
    let report = report(&(0..12).map(list).collect::<Vec<_>>());
    let table = report.tables.iter().find(|table| table.caption.starts_with("token F1 of the answers")).unwrap();
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["0.5", "1.0"]);
    near(figure(&report, "token F1, K/N 0.5"), 0.125);
    near(figure(&report, "token F1, K/N 1.0"), 0.375);
    near(figure(&report, "rho of T with token F1, K/N 0.5"), 1.0);
    near(figure(&report, "rho of T less F with token F1, K/N 1.0"), 0.0);
    // Twelve lists without the number of positives have no segments.
    let unknown: Vec<(Question, Value)> = (0..12)
        .map(list)
        .map(|(mut question, value)| {
            question.list.relevant = None;
            (question, value)
        })
        .collect();
    assert!(self::report(&unknown).tables.iter().all(|table| !table.caption.contains("K/N")));
}

#[test]
fn changed_results_are_refused() {
    let list = question(&[1.0], None);
    let answers = [Answer { question: &list, value: json!({ "token_f1": [0.5], "log_likelihood": "none" }) }];
    let error = RecallCorrelation.report(&answers, &settings()).unwrap_err().to_string();
    assert!(error.contains("\"q\"") && error.contains("--restart"), "{error}");
}
