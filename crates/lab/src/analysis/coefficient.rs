//! Shared by the analyses of correlations: cut-offs, their values, and coefficients with intervals.

use crate::study::mean::Mean;
use rag_metrics::agreement::Correlation;
use rag_metrics::never;
use rag_metrics::resample::{Statistics, interval};

/// Pairs of numbers by question. A question is resampled with all of its pairs.
pub(super) type Pairs = Vec<Vec<(f64, f64)>>;

/// Cut-offs of a list: 1, 2, 5, 10, 20, 50 and so on below its length, then its length.
pub(super) fn cutoffs(length: usize) -> Vec<usize> {
    let tens = std::iter::successors(Some(1_usize), |ten| ten.checked_mul(10));
    let series = tens.flat_map(|ten| [ten, ten.saturating_mul(2), ten.saturating_mul(5)]);
    series.take_while(|cutoff| *cutoff < length).chain((length > 0).then_some(length)).collect()
}

/// Pairs of values that both exist; at most one per question.
pub(super) fn paired(left: &[Option<f64>], right: &[Option<f64>]) -> Pairs {
    left.iter().zip(right).map(|(left, right)| left.zip(*right).into_iter().collect()).collect()
}

/// A correlation over the pairs of these questions.
fn over(kind: Correlation, pairs: &Pairs, questions: &[usize]) -> Option<f64> {
    let (left, right): (Vec<f64>, Vec<f64>) = questions.iter().flat_map(|&one| pairs[one].iter().copied()).unzip();
    Some(kind.of(&left, &right)?.value)
}

/// A statistic of `count` questions with its bootstrap interval. Each resample sorts, so there are a fifth as many
/// resamples as for means.
pub(super) fn resampled(count: usize, statistics: &Statistics, statistic: impl Fn(&[usize]) -> Option<f64>) -> Mean {
    let every: Vec<usize> = (0..count).collect();
    let value = statistic(&every);
    let interval =
        value.and_then(|_| interval(count, statistics.correlation_intervals()?, &never, |drawn| statistic(drawn)));
    Mean::new(value, interval, count)
}

/// The questions that have pairs.
fn answered(pairs: &Pairs) -> Pairs {
    pairs.iter().filter(|pairs| !pairs.is_empty()).cloned().collect()
}

/// A correlation with its interval; without a value if one side is constant.
pub(super) fn coefficient(kind: Correlation, pairs: &Pairs, statistics: &Statistics) -> Mean {
    let pairs = answered(pairs);
    resampled(pairs.len(), statistics, |drawn| over(kind, &pairs, drawn))
}

/// The first correlation minus the second, over the same questions, with its interval.
pub(super) fn difference(kind: Correlation, first: &Pairs, second: &Pairs, statistics: &Statistics) -> Mean {
    let both = first.iter().zip(second).filter(|(first, second)| !first.is_empty() && !second.is_empty());
    let (first, second): (Pairs, Pairs) = both.map(|(first, second)| (first.clone(), second.clone())).unzip();
    resampled(first.len(), statistics, |drawn| Some(over(kind, &first, drawn)? - over(kind, &second, drawn)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoffs_end_with_the_list() {
        assert_eq!(cutoffs(5), [1, 2, 5]);
        assert_eq!(cutoffs(8), [1, 2, 5, 8]);
        assert_eq!(cutoffs(20), [1, 2, 5, 10, 20]);
        assert_eq!(cutoffs(1), [1]);
        assert!(cutoffs(0).is_empty());
    }

    #[test]
    fn a_coefficient_leaves_out_questions_without_both_sides() {
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        let left = [Some(1.0), Some(2.0), None, Some(3.0)];
        let right = [Some(1.0), Some(3.0), Some(9.0), Some(2.0)];
        // Of three pairs of questions two agree and one does not: (2 - 1) / 3.
        let tau = coefficient(Correlation::KendallB, &paired(&left, &right), &statistics);
        assert!((tau.value.unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!((tau.low, tau.questions), (None, 3));
        let constant = coefficient(Correlation::KendallB, &paired(&[Some(1.0); 4], &right), &statistics);
        assert_eq!((constant.value, constant.questions), (None, 4));
    }

    #[test]
    fn a_difference_is_over_the_same_questions() {
        let statistics = Statistics::default();
        let right: Vec<Option<f64>> = (0..20).map(|at| Some(f64::from(at))).collect();
        let turned: Vec<Option<f64>> = right.iter().rev().copied().collect();
        let (same, other) = (paired(&right, &right), paired(&turned, &right));
        let mean = difference(Correlation::Spearman, &same, &other, &statistics);
        assert!((mean.value.unwrap() - 2.0).abs() < 1e-12);
        assert!(mean.low.zip(mean.high).is_some_and(|(low, high)| low > 1.99 && high < 2.01), "{mean:?}");
        // A question without the second correlation is left out of the first, too.
        let mut fewer = other.clone();
        fewer[3].clear();
        assert_eq!(difference(Correlation::Spearman, &same, &fewer, &statistics).questions, 19);
    }

    #[test]
    fn pairs_of_a_question_are_drawn_together() {
        // Two questions with agreeing pairs: each resample holds whole questions, so the coefficient is always 1.
        let pairs: Pairs = vec![vec![(0.0, 0.0), (1.0, 1.0)], vec![(2.0, 2.0), (3.0, 3.0)]];
        let mean = coefficient(Correlation::KendallB, &pairs, &Statistics::default());
        assert!([mean.value, mean.low, mean.high].iter().all(|one| (one.unwrap() - 1.0).abs() < 1e-12), "{mean:?}");
        assert_eq!(mean.questions, 2);
    }
}
