use serde_json::json;

use super::super::sampled::{bare_settings, figure};
use super::*;
use rag_metrics::resample::Statistics;

fn context(method: &str, ratio: f64, tokens: usize, soft: f64) -> Shortened {
    let (method, delta) = (method.to_owned(), Both { soft: Some(soft), hard: Some(soft / 2.0) });
    Shortened { method, ratio, tokens, delta, likelihood: Some(10.0 * soft - 10.0) }
}

fn report(questions: &[[f64; 3]], resamples: usize) -> Report {
    let question = Question::default();
    let answer = |[whole, half, quarter]: &[f64; 3]| Answer {
        question: &question,
        value: json!([context("", 1.0, 200, *whole), context("s", 0.5, 90, *half), context("s", 0.25, 50, *quarter)]),
    };
    let answers: Vec<Answer<'_>> = questions.iter().map(answer).collect();
    let statistics = Statistics { resamples, ..Statistics::default() };
    UtilityOfCompression.report(&answers, &Settings { statistics, ..bare_settings() }).unwrap()
}

#[test]
fn differences_are_paired_with_the_whole_passages() {
    let report = report(&[[0.4, 0.4, 0.0], [0.2, 0.3, 0.1]], 0);
    let near = |name: &str, expected: f64| assert!((figure(&report, name) - expected).abs() < 1e-12, "{name}");
    near("whole passages, soft, DeltaSePer", 0.3);
    near("s at 0.5, soft, DeltaSePer", 0.35);
    near("s at 0.5, soft, less whole", 0.05);
    near("s at 0.25, hard, less whole", -0.125);
    near("s at 0.25, tokens", 50.0);
    near("whole passages, log P(reference)", -7.0);
    near("s at 0.25, log P(reference), less whole", -2.5);
    assert_eq!((report.tables.len(), report.tables[2].rows[0][4].as_str()), (3, "–"));
    assert_eq!(report.tables[0].rows[1][2], "0.45");
    assert_eq!(report.tables[0].rows[0][4], "–");
    assert_eq!(report.charts.len(), 2);
    assert!(report.verdict.ends_with("too few questions, or no interval, to judge it by."), "{}", report.verdict);
}

/// Ten equal questions: the intervals have no width.
#[test]
fn a_loss_beyond_the_error_is_said() {
    let report = report(&[[0.4, 0.4, 0.1]; 10], 100);
    assert_eq!(
        report.verdict,
        "Whole passages are worth +0.400 soft DeltaSePer; worth less beyond the error are s at 0.25; the shortest of the others \
         is s at 0.5, with 45 % of the tokens and +0.400."
    );
}

/// A bound of 64 tokens includes title and prompt format, which leave 52 tokens of the second text.
#[test]
fn whole_passages_count_with_the_tokens_that_are_read() {
    let passage =
        |original_index, tokens_before| v1::CompressedPassage { original_index, tokens_before, ..Default::default() };
    let ranked = |original_index, tokens_cut| v1::RankedPassage { original_index, tokens_cut, ..Default::default() };
    let report = v1::CompressionReport { passages: vec![passage(0, 30), passage(1, 100)], ..Default::default() };
    assert_eq!(read(&report, &[ranked(1, 48), ranked(0, 0)], 2), [30, 52]);
    assert_eq!(read(&report, &[ranked(1, 0), ranked(0, 0)], 2), [30, 100], "nothing was cut");
}

#[test]
fn the_fewest_first_passages_hold_a_share_of_the_tokens() {
    assert_eq!([0.75, 0.5, 0.25].map(|share| within(&[100; 5], share)), [4, 3, 2]);
    assert_eq!([0.75, 0.5, 0.25].map(|share| within(&[300, 50, 50], share)), [1, 1, 1]);
    assert_eq!((within(&[5], 0.1), within(&[], 0.5), within(&[0, 0], 1.0)), (1, 0, 1));
}
