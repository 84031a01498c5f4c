//! How good the numbers of an answer are as probabilities: `score` of a passage, and `outranks_next` of two neighbours.

use serde::Serialize;

use super::Settings;
use super::ask::Outcome;
use super::data::Question;
use super::summary::bounded;
use crate::evaluation::summary::Mean;
use crate::metrics::never;
use crate::metrics::probability::{auc, expected_calibration_error};
use crate::metrics::resample::{Statistics, interval};
use crate::numeric::mean;

/// Most bins of the calibration errors.
const BINS: usize = 10;

/// Least numbers in a bin. In smaller ones the error would be that of few draws, however good the probabilities are.
const IN_A_BIN: usize = 20;

/// How good `score` is as a probability of being relevant, over all passages of all questions.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Quality {
    pub calibration_error: Mean,
    pub auc: Mean,
    pub passages: usize,
    /// `None` where no answer says how surely a place is ahead of the next.
    pub order: Option<Order>,
}

/// How good `outranks_next` is as the probability that two neighbours stand in the right order, over those of which one is
/// relevant and the other is not.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Order {
    /// Mean of `outranks_next`.
    pub predicted: Mean,
    /// Share of the pairs that stand right.
    pub right: Mean,
    pub calibration_error: Mean,
    pub pairs: usize,
}

/// Probabilities, and which of them were of something true.
type Judged = (Vec<f64>, Vec<bool>);

/// The quality of a row's numbers; `None` for a row without scores. Questions stand beside their answers.
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
        calibration_error: estimate(&ordered, statistics, |(predicted, right)| calibration_error(predicted, right)),
        pairs: ordered.iter().map(|(pairs, _)| pairs.len()).sum(),
    });
    (!scored.is_empty()).then(|| Quality {
        calibration_error: estimate(&scored, statistics, |(scores, relevant)| calibration_error(scores, relevant)),
        auc: estimate(&scored, statistics, |(scores, relevant)| auc(scores, relevant)),
        passages: scored.iter().map(|(scores, _)| scores.len()).sum(),
        order,
    })
}

fn calibration_error(probabilities: &[f64], is: &[bool]) -> Option<f64> {
    expected_calibration_error(probabilities, is, (probabilities.len() / IN_A_BIN).clamp(1, BINS))
}

/// `outranks_next` of neighbours of which one is relevant and the other is not, and whether the relevant one stands first.
fn neighbours(question: &Question, outcome: &Outcome, threshold: f64) -> Judged {
    let relevant = |index: usize| question.list.labels.get(index).is_some_and(|label| *label >= threshold);
    let pairs = outcome.ranking.windows(2).zip(&outcome.outranks);
    let told = |(pair, probability): (&[usize], &f64)| {
        let (first, next) = (relevant(pair[0]), relevant(pair[1]));
        (first != next).then_some((*probability, first))
    };
    pairs.filter_map(told).unzip()
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
    bounded(statistic(&pooled(&all)), interval, all.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::labelled::LabelledList;

    #[test]
    fn neighbours_by_hand() {
        let list = LabelledList { labels: vec![0.0, 1.0, 0.0, 1.0], ..LabelledList::default() };
        let question = Question { list, ..Question::default() };
        let outcome = Outcome { ranking: vec![1, 3, 0, 2], outranks: vec![0.9, 0.8, 0.7], ..Outcome::default() };
        // Of the two relevant ones, and of the two others, none should stand first.
        assert_eq!(neighbours(&question, &outcome, 0.5), (vec![0.8], vec![true]));
        let outcome = Outcome { ranking: vec![0, 1, 2, 3], ..outcome };
        assert_eq!(neighbours(&question, &outcome, 0.5), (vec![0.9, 0.8, 0.7], vec![false, true, false]));
        assert_eq!(neighbours(&question, &Outcome { outranks: Vec::new(), ..outcome }, 0.5), (vec![], vec![]));
    }

    #[test]
    fn questions_are_pooled() {
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        let judged = [(vec![0.9, 0.6], vec![true, false]), (vec![0.3], vec![true])];
        let predicted = estimate(&judged, &statistics, |(predicted, _)| Some(mean(predicted)));
        assert!((predicted.value.unwrap() - 0.6).abs() < 1e-12 && predicted.questions == 2);
        // Three numbers make one bin: |.6 - 2/3|.
        let error = estimate(&judged, &statistics, |(predicted, right)| calibration_error(predicted, right));
        assert!((error.value.unwrap() - 0.2 / 3.0).abs() < 1e-12, "{error:?}");
    }
}
