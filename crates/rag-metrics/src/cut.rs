//! How many results to take of a ranking with known probabilities of relevance.

use numeric::real;

/// Most places to try.
const MOST: usize = 100;

/// The number of first results with the greatest expected F1: at least 1, at most 100, 0 for no results; ties take
/// the least. `probabilities` are the probabilities of relevance, best first, and count as independent. F1 compares
/// the taken results with all relevant ones; if none is relevant, it is 0.
///
/// The expectation is the exact sum over the numbers of relevant results among the taken ones and among the others (Jansche,
/// "A maximum expected utility framework for binary sequence labeling", ACL 2007).
#[must_use]
pub fn best_cut(probabilities: &[f64]) -> usize {
    let most = probabilities.len().min(MOST);
    let mut taken = vec![vec![1.0]];
    for &probability in &probabilities[..most] {
        let next = with_one_more(&taken[taken.len() - 1], probability);
        taken.push(next);
    }
    let mut others = vec![1.0];
    for &probability in &probabilities[most..] {
        others = with_one_more(&others, probability);
    }
    let (mut best, mut highest) = (0, f64::NEG_INFINITY);
    for cut in (1..=most).rev() {
        let expected = expected_f1(cut, &taken[cut], &others);
        if expected >= highest - 1e-12 {
            (best, highest) = (cut, expected.max(highest));
        }
        others = with_one_more(&others, probabilities[cut - 1]);
    }
    best
}

/// Probability that none of these results is relevant. `probabilities` count as independent; 1 for no results.
#[must_use]
pub fn none_relevant(probabilities: &[f64]) -> f64 {
    probabilities.iter().map(|probability| 1.0 - bounded(*probability)).product()
}

/// Within [0, 1]; NaN counts as 0.
fn bounded(probability: f64) -> f64 {
    if probability.is_nan() { 0.0 } else { probability.clamp(0.0, 1.0) }
}

/// The distribution of a number of successes, after one more trial.
fn with_one_more(distribution: &[f64], probability: f64) -> Vec<f64> {
    let probability = bounded(probability);
    let mut next = vec![0.0; distribution.len() + 1];
    for (successes, mass) in distribution.iter().enumerate() {
        next[successes] += mass * (1.0 - probability);
        next[successes + 1] += mass * probability;
    }
    next
}

fn expected_f1(cut: usize, taken: &[f64], others: &[f64]) -> f64 {
    let f1 = |found: usize, missed: usize| 2.0 * real(found) / real(cut + found + missed);
    let of = |(found, mass): (usize, &f64)| -> f64 {
        mass * others.iter().enumerate().map(|(missed, mass)| mass * f1(found, missed)).sum::<f64>()
    };
    taken.iter().enumerate().map(of).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Over all sets of relevant results.
    fn by_enumeration(probabilities: &[f64], cut: usize) -> f64 {
        let n = probabilities.len();
        (0..1_usize << n)
            .map(|set| {
                let is = |at: usize| set >> at & 1 == 1;
                let mass = |at: usize| if is(at) { probabilities[at] } else { 1.0 - probabilities[at] };
                let (found, all) = ((0..cut).filter(|at| is(*at)).count(), (0..n).filter(|at| is(*at)).count());
                (0..n).map(mass).product::<f64>() * 2.0 * real(found) / real(cut + all)
            })
            .sum()
    }

    #[test]
    fn none_is_relevant_where_each_is_not() {
        assert!((none_relevant(&[0.5, 0.2]) - 0.4).abs() < 1e-12);
        let near = |probabilities: &[f64], expected: f64| (none_relevant(probabilities) - expected).abs() < 1e-12;
        assert!(near(&[], 1.0) && near(&[0.3, 1.0], 0.0) && near(&[f64::NAN, -1.0, 0.0], 1.0));
    }

    #[test]
    fn numbers_by_hand() {
        assert_eq!(best_cut(&[]), 0);
        assert_eq!(best_cut(&[0.0, 0.0]), 1, "at least one");
        assert_eq!(best_cut(&[1.0, 1.0, 0.0]), 2);
        // One of two: 0.9 (0.9 + 0.1 * 2 / 3) = 0.87. Both: 0.82 * 2 / 3 + 0.09 = 0.637.
        assert!((expected_f1(1, &[0.1, 0.9], &[0.9, 0.1]) - 0.87).abs() < 1e-12);
        assert_eq!(best_cut(&[0.9, 0.1]), 1);
        // Equal halves: the more are taken, the more are found.
        assert_eq!(best_cut(&[0.5; 6]), 6);
        assert_eq!(best_cut(&[0.6, f64::NAN, -1.0]), 1);
        assert_eq!(best_cut(&[2.0; 150]), MOST);
        // Many relevant results after the hundredth place do not make it take none.
        assert_eq!(best_cut(&[vec![0.9; 20], vec![0.01; 200]].concat()), 20);
    }

    proptest! {
        #[test]
        fn the_cut_has_the_greatest_expected_f1_of_all(mut probabilities in prop::collection::vec(0.0_f64..=1.0, 1..8)) {
            probabilities.sort_by(|left, right| right.total_cmp(left));
            let best = best_cut(&probabilities);
            let expected: Vec<f64> = (1..=probabilities.len()).map(|cut| by_enumeration(&probabilities, cut)).collect();
            for other in &expected {
                prop_assert!(expected[best - 1] >= other - 1e-9, "{best} of {expected:?}");
            }
        }
    }
}
