//! Quality of an answer's numbers as probabilities: `score` of a passage, and `outranks_next` of two neighbours.

use super::ask::Outcome;
use super::settings::Settings;
use crate::study::data::Question;
use crate::study::mean::Mean;
use numeric::{mean, real};
use rag_metrics::agreement::Correlation;
use rag_metrics::never;
use rag_metrics::probability::{auc, calibration_error};
use rag_metrics::resample::{Statistics, interval};

/// Quality of `score` as a probability of relevance, over all passages of all questions.
#[derive(Debug, Clone)]
pub struct Quality {
    pub calibration_error: Mean,
    pub auc: Mean,
    pub passages: usize,
    /// `None` if no answer has `outranks_next`.
    pub order: Option<Order>,
    /// `None` if no answer has a fit of all its passages.
    pub tau: Option<Tau>,
}

/// Quality of `expected_tau`, with Kendall's tau of the ranking with the labels: over pairs of a relevant and an
/// irrelevant passage, the share in the right order minus the share in the wrong order. The labels do not order
/// other pairs.
#[derive(Debug, Clone)]
pub struct Tau {
    /// Mean of `expected_tau`.
    pub expected: Mean,
    /// Mean of Kendall's tau with the labels.
    pub found: Mean,
    /// Spearman's rho of the two over questions.
    pub agreement: Mean,
}

/// Quality of `outranks_next` as the probability that two neighbours are in the right order, over neighbours with
/// one relevant passage.
#[derive(Debug, Clone)]
pub struct Order {
    /// Mean of `outranks_next`.
    pub predicted: Mean,
    /// Share of the pairs in the right order.
    pub right: Mean,
    pub calibration_error: Mean,
    pub pairs: usize,
}

/// Probabilities, and true for each right one.
type Judged = (Vec<f64>, Vec<bool>);

/// The quality of a row's numbers; `None` for a row without scores. `asked` pairs questions with their answers.
pub(super) fn of(asked: &[(&Question, Option<&Outcome>)], settings: &Settings) -> Option<Quality> {
    let answered = || asked.iter().filter_map(|(question, outcome)| Some((*question, (*outcome)?)));
    let scores = |(question, outcome): (&Question, &Outcome)| {
        let relevant = question.list.labels.iter().map(|label| *label >= settings.threshold).collect();
        (!outcome.scores.is_empty()).then(|| (outcome.scores.clone(), relevant))
    };
    let scored: Vec<Judged> = answered().filter_map(scores).collect();
    let neighbours = |(question, outcome)| neighbours(question, outcome, settings.threshold);
    let ordered: Vec<Judged> = answered().map(neighbours).filter(|pairs| !pairs.0.is_empty()).collect();
    let statistics = &settings.statistics;
    let share = |right: &[bool]| mean(&right.iter().map(|is| f64::from(u8::from(*is))).collect::<Vec<_>>());
    let order = (!ordered.is_empty()).then(|| Order {
        predicted: estimate(&ordered, statistics, |(predicted, _)| Some(mean(predicted))),
        right: estimate(&ordered, statistics, |(_, right)| Some(share(right))),
        calibration_error: error_of(&ordered, statistics),
        pairs: ordered.iter().map(|(pairs, _)| pairs.len()).sum(),
    });
    let taus: Vec<(f64, f64)> =
        answered().filter_map(|(question, outcome)| taus(question, outcome, settings.threshold)).collect();
    let tau = (!taus.is_empty()).then(|| tau(&taus, statistics));
    (!scored.is_empty()).then(|| Quality {
        calibration_error: error_of(&scored, statistics),
        auc: estimate(&scored, statistics, |(scores, relevant)| auc(scores, relevant)),
        passages: scored.iter().map(|(scores, _)| scores.len()).sum(),
        order,
        tau,
    })
}

/// `expected_tau` of an answer, and Kendall's tau of its ranking with the labels; `None` without either.
fn taus(question: &Question, outcome: &Outcome, threshold: f64) -> Option<(f64, f64)> {
    let relevant = |index: &usize| question.list.labels.get(*index).is_some_and(|label| *label >= threshold);
    let marks: Vec<bool> = outcome.ranking.iter().map(relevant).collect();
    let (mut others, mut right, mut pairs) = (0_usize, 0_usize, 0_usize);
    // From the last place on: a relevant passage is ahead of all other passages counted so far.
    for is_relevant in marks.iter().rev() {
        if *is_relevant {
            right += others;
            pairs += marks.iter().filter(|mark| !**mark).count();
        } else {
            others += 1;
        }
    }
    let found = (pairs > 0).then(|| 2.0 * real(right) / real(pairs) - 1.0)?;
    Some((outcome.expected_tau?, found))
}

/// Fewest questions with an interval of the correlation: that of fewer may exclude the correlation.
const LEAST_CORRELATED: usize = 10;

fn tau(taus: &[(f64, f64)], statistics: &Statistics) -> Tau {
    let (expected, found): (Vec<f64>, Vec<f64>) = taus.iter().copied().unzip();
    let over = |least: usize, of: &(dyn Fn(&[usize]) -> Option<f64> + Sync)| {
        let all: Vec<usize> = (0..taus.len()).collect();
        let how = statistics.correlation_intervals().filter(|_| taus.len() >= least);
        Mean::new(of(&all), how.and_then(|how| interval(all.len(), how, &never, of)), all.len())
    };
    let drawn = |values: &[f64], indices: &[usize]| indices.iter().map(|&index| values[index]).collect::<Vec<f64>>();
    Tau {
        expected: over(0, &|indices| Some(mean(&drawn(&expected, indices)))),
        found: over(0, &|indices| Some(mean(&drawn(&found, indices)))),
        agreement: over(LEAST_CORRELATED, &|indices| {
            Some(Correlation::Spearman.of(&drawn(&expected, indices), &drawn(&found, indices))?.value)
        }),
    }
}

/// `outranks_next` of neighbours with one relevant passage, and true if that is the first.
fn neighbours(question: &Question, outcome: &Outcome, threshold: f64) -> Judged {
    let relevant = |index: usize| question.list.labels.get(index).is_some_and(|label| *label >= threshold);
    let pairs = outcome.ranking.windows(2).zip(&outcome.outranks);
    let mixed = |(pair, probability): (&[usize], &f64)| {
        let (first, next) = (relevant(pair[0]), relevant(pair[1]));
        (first != next).then_some((*probability, first))
    };
    pairs.filter_map(mixed).unzip()
}

/// The calibration error of all questions together. For few numbers it is above 0 even if they are good, and more
/// so in a resample, which repeats some of them. The interval is therefore that of the basic bootstrap: the
/// quantiles, mirrored at the value.
fn error_of(judged: &[Judged], statistics: &Statistics) -> Mean {
    let drawn = estimate(judged, statistics, |(scores, relevant)| calibration_error(scores, relevant));
    let mirrored = |end: Option<f64>| Some(2.0 * drawn.value? - end?);
    let (low, high) = (mirrored(drawn.high), mirrored(drawn.low));
    Mean { low: low.map(|low| low.max(0.0)), high: high.zip(drawn.value).map(|(high, value)| high.max(value)), ..drawn }
}

/// A statistic of all questions together. Resamples draw whole questions.
fn estimate(judged: &[Judged], statistics: &Statistics, statistic: impl Fn(&Judged) -> Option<f64> + Sync) -> Mean {
    let all: Vec<usize> = (0..judged.len()).collect();
    let pooled = |indices: &[usize]| -> Judged {
        let of = |index: &usize| judged[*index].0.iter().copied().zip(judged[*index].1.iter().copied());
        indices.iter().flat_map(of).unzip()
    };
    let how = statistics.correlation_intervals();
    let interval = how.and_then(|how| interval(all.len(), how, &never, |indices| statistic(&pooled(indices))));
    Mean::new(statistic(&pooled(&all)), interval, all.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::labelled::LabelledList;

    /// Percentile intervals of such scores lie wholly above 0, and some above their value.
    #[test]
    fn a_calibration_error_lies_in_its_interval_and_may_be_none() {
        // Relevant with the probability that the score states, by a fixed sequence.
        let of = |question: usize| -> Judged {
            let score = |place: usize| real((7 * question + 3 * place) % 20) / 20.0 + 0.025;
            let scores: Vec<f64> = (0..20).map(score).collect();
            let relevant =
                scores.iter().enumerate().map(|(place, score)| real((11 * question + 13 * place) % 40) / 40.0 < *score);
            (scores.clone(), relevant.collect())
        };
        let judged: Vec<Judged> = (0..40).map(of).collect();
        let error = error_of(&judged, &Statistics::default());
        let (low, high) = (error.low.unwrap(), error.high.unwrap());
        assert!((low..=high).contains(&error.value.unwrap()), "{error:?}");
        let percentile =
            estimate(&judged, &Statistics::default(), |(scores, relevant)| calibration_error(scores, relevant));
        assert!(low < percentile.low.unwrap(), "{low} {percentile:?}");
    }

    #[test]
    fn neighbours_by_hand() {
        let list = LabelledList { labels: vec![0.0, 1.0, 0.0, 1.0], ..LabelledList::default() };
        let question = Question { list, ..Question::default() };
        let outcome = Outcome { ranking: vec![1, 3, 0, 2], outranks: vec![0.9, 0.8, 0.7], ..Outcome::default() };
        // Of two relevant neighbours, and of two others, neither should be first.
        assert_eq!(neighbours(&question, &outcome, 0.5), (vec![0.8], vec![true]));
        let outcome = Outcome { ranking: vec![0, 1, 2, 3], ..outcome };
        assert_eq!(neighbours(&question, &outcome, 0.5), (vec![0.9, 0.8, 0.7], vec![false, true, false]));
        assert_eq!(neighbours(&question, &Outcome { outranks: Vec::new(), ..outcome }, 0.5), (vec![], vec![]));
    }

    /// Of four pairs of a relevant and an irrelevant passage, three are in the right order.
    #[test]
    fn taus_by_hand() {
        let list = LabelledList { labels: vec![0.0, 1.0, 0.0, 1.0], ..LabelledList::default() };
        let question = Question { list, ..Question::default() };
        let outcome = Outcome { ranking: vec![1, 0, 3, 2], expected_tau: Some(0.9), ..Outcome::default() };
        assert_eq!(taus(&question, &outcome, 0.5), Some((0.9, 0.5)));
        assert_eq!(taus(&question, &Outcome { expected_tau: None, ..outcome.clone() }, 0.5), None);
        assert_eq!(taus(&question, &outcome, 2.0), None, "nothing is relevant");
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        let all = tau(&[(0.9, 0.5), (0.8, 0.7), (0.2, -1.0)], &statistics);
        assert!(
            (all.expected.value.unwrap() - 1.9 / 3.0).abs() < 1e-12
                && (all.found.value.unwrap() - 0.2 / 3.0).abs() < 1e-12
        );
        assert!((all.agreement.value.unwrap() - 0.5).abs() < 1e-12, "ranks 3 2 1 and 2 3 1");
    }

    #[test]
    fn the_correlation_of_few_questions_has_no_interval() {
        let of = |questions: u32| {
            let taus: Vec<(f64, f64)> = (0..questions).map(|at| (f64::from(at), f64::from(at % 4))).collect();
            tau(&taus, &Statistics::default())
        };
        assert_eq!([of(9), of(10)].map(|tau| tau.agreement.low.is_some()), [false, true]);
        assert!(of(9).expected.low.is_some() && of(9).found.low.is_some());
    }

    #[test]
    fn questions_are_pooled() {
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        let judged = [(vec![0.9, 0.6], vec![true, false]), (vec![0.3], vec![true])];
        let predicted = estimate(&judged, &statistics, |(predicted, _)| Some(mean(predicted)));
        assert!((predicted.value.unwrap() - 0.6).abs() < 1e-12 && predicted.questions == 2);
        // Three numbers make one bin: |0.6 - 2/3|.
        let error = estimate(&judged, &statistics, |(predicted, right)| calibration_error(predicted, right));
        assert!((error.value.unwrap() - 0.2 / 3.0).abs() < 1e-12, "{error:?}");
    }
}
