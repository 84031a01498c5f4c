//! The verdict of an evaluation, in one sentence: which system is best, by how much, and the evidence.
//!
//! It uses one number, chosen before the data are seen, so that there is one family of tests: the quality of the
//! answer from the whole list by token-f1, or by the first annotator if token-f1 is missing. Without such answers
//! it is the first metric over the labels, likewise. p-values are adjusted by Holm over the systems that are
//! compared with the first.

use super::summary::{Comparison, Difference, Row, Summary, System};
use crate::study::mean::{Gain, plain_p};
use engine::types::Annotator;
use numeric::real;
use rag_metrics::multiple::holm_of;
use rag_metrics::resample::Statistics;

/// The number that decides the verdict. Exact matches, the first annotator, are too rare with a small generator.
fn decisive(system: &System) -> Option<&Row> {
    let of = |rows: &'_ [Row]| rows.iter().position(|row| row.annotator == Annotator::TokenF1.name()).unwrap_or(0);
    let rows = if system.end_to_end.is_empty() { &system.metrics } else { &system.end_to_end };
    rows.get(of(rows))
}

/// "the end-to-end answers by token-f1", or "P by containment".
fn name(row: &Row) -> String {
    let what = row.metric.as_deref().unwrap_or("the end-to-end answers");
    format!("{what} by {}", row.annotator)
}

fn difference<'a>(comparison: &'a Comparison, row: &Row) -> Option<&'a Difference> {
    comparison.differences.iter().find(|one| one.annotator == row.annotator && one.metric == row.metric)
}

/// The verdict at the confidence of these statistics.
pub(super) fn of(summary: &Summary, statistics: &Statistics) -> String {
    let confidence = statistics.confidence;
    let Some((first, row)) = summary.systems.first().and_then(|system| Some((system, decisive(system)?))) else {
        return "No verdict: nothing was measured.".to_owned();
    };
    if row.mean.questions == 0 {
        return format!("No verdict: no question has a value for {}.", name(row));
    }
    let compared = summary.comparisons.iter();
    let compared = compared.filter_map(|one| Some((one.system.as_str(), &difference(one, row)?.gain)));
    let compared: Vec<(&str, &Gain)> = compared.collect();
    if compared.is_empty() {
        let (name, shown) = (name(row), row.mean.cell(3));
        let questions = row.mean.questions;
        return format!("{}: {name} {shown} over {questions} questions; nothing was compared with it.", first.name);
    }
    let adjusted = holm_of(&compared.iter().map(|(_, gain)| gain.p_value).collect::<Vec<_>>());
    if adjusted.iter().all(Option::is_none) {
        return "No verdict: no difference was tested (--test-resamples 0, or fewer than two questions in common)."
            .to_owned();
    }
    let (all, family) = (compared.len(), adjusted.iter().flatten().count());
    let compared = compared.into_iter().zip(adjusted);
    let compared: Vec<(&str, Gain)> =
        compared.map(|((system, gain), adjusted)| (system, Gain { adjusted, ..gain.clone() })).collect();
    let significant = |sign: f64| compared.iter().filter(move |one| one.1.is_significant(1.0 - confidence, sign));
    let best = |sign| significant(sign).max_by(|left, right| left.1.difference.total_cmp(&right.1.difference));
    let ground = |gain: &Gain| format!("{}, {} after Holm", gain.cell(), plain_p(gain.adjusted));
    if let Some((system, gain)) = best(1.0) {
        return format!("{system} is better than {} in {}: {}.", first.name, name(row), ground(gain));
    }
    if significant(-1.0).count() == all {
        let next = best(-1.0).map(|(system, gain)| format!(" (next: {system}, {})", ground(gain)));
        let next = next.unwrap_or_default();
        return format!("{} is better than every other in {}{next}.", first.name, name(row));
    }
    let questions = row.mean.questions;
    if let Some(least) = statistics.least_p_value(questions).filter(|p| p * real(family) > 1.0 - confidence) {
        return format!(
            "No verdict: {questions} questions with {} resamples cannot tell {family} systems from {} (p is at least {:.3} after Holm).",
            statistics.test_resamples,
            first.name,
            (least * real(family)).min(1.0)
        );
    }
    format!("No system is better than {} beyond its error in {}: {}.", first.name, name(row), row.mean.cell(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::summary::Cost;
    use crate::study::mean::Mean;

    fn mean(value: f64) -> Mean {
        Mean { value: Some(value), low: Some(value - 0.1), high: Some(value + 0.1), questions: 9 }
    }

    fn summary(differences: &[(f64, f64)]) -> Summary {
        let system = |number: usize| System {
            name: format!("s{number}"),
            metrics: vec![Row { annotator: "provenance", metric: Some("P".into()), mean: mean(0.4) }],
            end_to_end: ["exact-match", "token-f1"]
                .map(|annotator| Row { annotator, metric: None, mean: mean(0.3) })
                .into(),
            cost: Vec::new(),
            contexts: Vec::new(),
            rerank_tokens: 0,
        };
        let comparison = |(at, (difference, p)): (usize, &(f64, f64))| Comparison {
            system: format!("s{}", at + 1),
            against: "s0".into(),
            test: "randomisation",
            differences: vec![Difference {
                annotator: "token-f1",
                metric: None,
                gain: Gain {
                    difference: *difference,
                    low: None,
                    high: None,
                    p_value: Some(*p),
                    adjusted: None,
                    wins: 0,
                    ties: 0,
                    losses: 0,
                },
            }],
        };
        Summary {
            questions: 9,
            evaluated: 9,
            failed: Vec::new(),
            systems: (0..=differences.len()).map(system).collect(),
            correlations: Vec::new(),
            comparisons: differences.iter().enumerate().map(comparison).collect(),
            delta_seper: Vec::new(),
            warned: Vec::new(),
            utility_by_rank: Vec::new(),
            position_bias: Vec::new(),
            cost: Cost { tokens: 0, naive_tokens: 0, judged_pairs: 0, seconds: 0.0, timed: 0 },
        }
    }

    #[test]
    fn one_sentence_for_each_case() {
        let said = |differences: &[(f64, f64)]| of(&summary(differences), &Statistics::default());
        let alone = "s0: the end-to-end answers by token-f1 0.300 [0.200, 0.400] over 9 questions; nothing was compared with it.";
        assert_eq!(said(&[]), alone);
        let mut untested = summary(&[(0.5, 0.0)]);
        untested.comparisons[0].differences[0].gain.p_value = None;
        assert!(of(&untested, &Statistics::default()).starts_with("No verdict: no difference was tested"));
        let better = "s2 is better than s0 in the end-to-end answers by token-f1: +0.200, p = 0.020 after Holm.";
        assert_eq!(said(&[(0.1, 0.02), (0.2, 0.01)]), better);
        // Each by itself would be significant; together they are not.
        let none =
            "No system is better than s0 beyond its error in the end-to-end answers by token-f1: 0.300 [0.200, 0.400].";
        assert_eq!(said(&[(0.1, 0.04), (0.2, 0.03)]), none);
        let worse = "s0 is better than every other in the end-to-end answers by token-f1 (next: s1, -0.100, p = 0.010 after Holm).";
        assert_eq!(said(&[(-0.1, 0.01)]), worse);
        assert_eq!(said(&[(-0.1, 0.01), (-0.1, 0.5)]), none);
        // With five wins of five, the randomisation test has p = 0.0625 at best.
        let mut few = summary(&[(0.1, 0.0625)]);
        for row in &mut few.systems[0].end_to_end {
            row.mean.questions = 5;
        }
        assert!(of(&few, &Statistics::default()).starts_with("No verdict: 5 questions"));
        assert_eq!((plain_p(Some(0.0)), plain_p(None)), ("p < 1e-15".into(), "without a p-value".into()));
    }
}
