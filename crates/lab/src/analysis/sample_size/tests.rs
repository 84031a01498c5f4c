//! The report's arithmetic by hand.

use serde_json::json;

use super::super::sampled::{bare_settings, figure};
use super::*;
use files::labelled::LabelledList;

/// One answer, then all ten: SePer and DeltaSePer of the list, and DeltaSePer of two passages.
fn drawn(one: (f64, f64, [f64; 2]), all: (f64, f64, [f64; 2]), f1: f64) -> Drawn {
    let both = |soft: f64| Both { soft: Some(soft), hard: None };
    let partial = |samples, (seper, delta, passages): (f64, f64, [f64; 2])| Partial {
        samples,
        seper: both(seper),
        delta: both(delta),
        passages: passages.map(both).to_vec(),
    };
    let estimates = [1, 2, 3, 5].map(|samples| partial(samples, one)).into_iter().chain([partial(10, all)]).collect();
    Drawn { estimates, f1 }
}

fn report() -> Report {
    report_with(&bare_settings())
}

fn report_with(settings: &Settings) -> Report {
    let list = LabelledList { labels: vec![1.0, 0.0], ..LabelledList::default() };
    let question = Question { list, ..Question::default() };
    // Deviations of SePer 0.1, 0.3 and 0.2; the first two questions swap places.
    let questions = [
        drawn((0.3, 0.1, [0.2, 0.0]), (0.2, 0.1, [0.2, 0.0]), 0.0),
        drawn((0.1, 0.0, [0.0, 0.2]), (0.4, 0.1, [0.2, 0.0]), 0.5),
        drawn((0.8, 0.5, [0.2, 0.0]), (0.6, 0.6, [0.2, 0.0]), 1.0),
    ];
    let answers: Vec<Answer<'_>> =
        questions.iter().map(|one| Answer { question: &question, value: json!(one) }).collect();
    SampleSize.report(&answers, settings).unwrap()
}

/// The passages of all ten answers agree with their labels in every question, so every draw of questions has r = 1. A
/// draw of single passages could have only one label.
#[test]
fn intervals_with_labels_draw_whole_questions() {
    use rag_metrics::resample::Statistics;
    let statistics = Statistics { resamples: 100, ..Statistics::default() };
    let report = report_with(&Settings { statistics, ..bare_settings() });
    let name = "soft, 10 answers, Pearson's r with labels";
    let mean = report.figures.iter().find(|one| one.name == name).unwrap().mean;
    assert!(mean.low.is_some_and(|low| low > 1.0 - 1e-9), "{mean:?}");
    assert_eq!(mean.questions, 3, "questions, not passages");
}

#[test]
fn estimates_are_compared_with_that_of_all() {
    let report = report();
    let near = |name: &str, expected: f64| {
        let value = figure(&report, name);
        assert!((value - expected).abs() < 1e-12, "{name}: {value}");
    };
    near("soft, 1 answers, deviation of SePer", 0.2);
    near("soft, 1 answers, deviation of DeltaSePer", 0.2 / 3.0);
    near("soft, 10 answers, deviation of SePer", 0.0);
    // Two of three pairs of questions keep their order.
    near("soft, 1 answers, Kendall's tau-b with the estimate of all", 1.0 / 3.0);
    near("soft, 10 answers, Kendall's tau-b with the estimate of all", 1.0);
    near("soft, 10 answers, Pearson's r with the estimate of all", 1.0);
    near("soft, 1 answers, Kendall's tau-b with F1", 1.0 / 3.0);
    near("soft, 10 answers, Pearson's r with F1", 1.0);
    // Four of six passages agree with their labels.
    near("soft, 1 answers, Pearson's r with labels", 1.0 / 3.0);
    near("soft, 10 answers, Pearson's r with labels", 1.0);
}

#[test]
fn the_verdict_is_about_half_of_the_answers() {
    let report = report();
    assert_eq!(
        report.verdict,
        "Over 3 questions SePer (soft) of 5 answers differs from that of 10 by 0.200 in the mean (tau-b 0.333); that of 1 \
         answer by 0.200 (tau-b 0.333)."
    );
    assert_eq!((report.tables.len(), report.tables[0].rows.len(), report.charts.len()), (1, 5, 2));
}

#[test]
fn sizes_end_with_all() {
    let of = |all| sizes(all).collect::<Vec<_>>();
    assert_eq!(of(1), [1]);
    assert_eq!(of(10), [1, 2, 3, 5, 10]);
    assert_eq!(of(20), [1, 2, 3, 5, 10, 15, 20]);
    assert_eq!(of(12), [1, 2, 3, 5, 10, 12]);
}

#[test]
fn one_answer_has_nothing_to_compare() {
    let question = Question::default();
    let one = Drawn {
        estimates: vec![Partial { samples: 1, seper: Both { soft: Some(0.5), hard: None }, ..Partial::default() }],
        f1: 0.0,
    };
    let answers = [Answer { question: &question, value: json!(one) }];
    let report = SampleSize.report(&answers, &Settings { samples: 1, ..bare_settings() }).unwrap();
    assert!(report.verdict.contains("--count 2"), "{}", report.verdict);
}
