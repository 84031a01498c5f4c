//! When the order of two passages counts as known.

use numeric::{mean, sigmoid};

/// Below this probability two neighbours are nearly tied: within one nat. In every second list, one of the first
/// two places is. For a list of twenty, resolving them costs a fifth of a passage evaluation per passage.
pub const TIE: f64 = 0.55;

/// Logit of "the better one is relevant and the other is not, rather than the reverse", per nat between two values.
/// By logistic regression on the pairs of 94 labelled lists of three collections (docs/experiments/ranking.md).
/// `rerankd calibrate --ranking` learns another one ([`per_nat`]).
pub const PER_NAT: f64 = 0.2;

/// Bisections of the slope: the resolution of a 64-bit number.
const HALVINGS: usize = 60;

/// Fewest pairs that a slope is learnt from.
const LEAST_PAIRS: usize = 20;

/// Probability that a passage outranks another whose value is lower by `difference` nats, with [`PER_NAT`] or a
/// learnt slope.
#[must_use]
pub fn outranks(difference: f64, per_nat: f64) -> f64 {
    sigmoid(per_nat * difference)
}

/// The maximum-likelihood slope. Each pair has the difference of two neighbours in nats, at least 0, and says if
/// the higher one is the relevant one. Two pairs of the mean difference, one of either kind, are added, so that the
/// slope is finite even if every pair is right. 0 if greater differences make it no likelier. `None` for fewer than
/// 20 pairs, or if the differences are all 0 or not finite.
#[must_use]
pub fn per_nat(pairs: &[(f64, bool)]) -> Option<f64> {
    let differences: Vec<f64> = pairs.iter().map(|(difference, _)| *difference).collect();
    let typical = mean(&differences);
    if pairs.len() < LEAST_PAIRS || !(typical.is_finite() && typical > 0.0) {
        return None;
    }
    let added = [(typical, true), (typical, false)];
    // The derivative of the log-likelihood, in units of the mean difference. It falls as the slope rises.
    let rises = |slope: f64| {
        let each = |&(difference, higher): &(f64, bool)| {
            let difference = difference / typical;
            difference * (f64::from(u8::from(higher)) - sigmoid(slope * difference))
        };
        pairs.iter().chain(&added).map(each).sum::<f64>() > 0.0
    };
    let (mut low, mut high) = (0.0, 1.0);
    if !rises(low) {
        return Some(0.0);
    }
    // The added wrong pair ends this.
    while rises(high) {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if rises(middle) { low = middle } else { high = middle }
    }
    Some(high / typical)
}

/// True if each of these values, in descending order, outranks the next with at least `probability`, with the slope
/// [`PER_NAT`].
#[must_use]
pub fn first_places(values: &[f64], probability: f64) -> bool {
    values.windows(2).all(|pair| outranks(pair[0] - pair[1], PER_NAT) >= probability)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tie_is_within_a_nat() {
        assert!(first_places(&[1.01, 0.0], TIE) && !first_places(&[0.99, 0.0], TIE));
    }

    #[test]
    fn equal_values_are_never_settled() {
        assert!((outranks(0.0, PER_NAT) - 0.5).abs() < 1e-15);
        assert!(!first_places(&[1.0, 1.0], 0.6) && first_places(&[40.0, 20.0, 1.0], 0.9) && first_places(&[1.0], 0.9));
        assert!(!first_places(&[40.0, 20.0, 19.9], 0.9));
    }

    /// By hand: of 38 pairs two nats apart 29 are right. With one more of either kind 30 of 40 are, so that σ(2 b)
    /// = 3/4 and b = ln 3 / 2.
    #[test]
    fn a_slope_by_hand() {
        let pairs: Vec<(f64, bool)> = (0..38).map(|number| (2.0, number < 29)).collect();
        assert!((per_nat(&pairs).unwrap() - 3.0_f64.ln() / 2.0).abs() < 1e-12);
        // All right: 39 of 40, so that the slope is finite.
        let right: Vec<(f64, bool)> = (0..38).map(|_| (2.0, true)).collect();
        assert!((per_nat(&right).unwrap() - 39.0_f64.ln() / 2.0).abs() < 1e-12);
    }

    #[test]
    fn pairs_that_tell_nothing_have_no_slope() {
        let of = |n: u8, difference: f64, right: u8| -> Vec<(f64, bool)> {
            (0..n).map(|one| (difference, one < right)).collect()
        };
        for pairs in [of(19, 1.0, 19), of(20, 0.0, 20), of(20, f64::NAN, 20), of(20, f64::INFINITY, 20), vec![]] {
            assert_eq!(per_nat(&pairs), None, "{pairs:?}");
        }
        // The order carries no information, or is reversed.
        assert_eq!((per_nat(&of(20, 1.0, 10)), per_nat(&of(20, 1.0, 3))), (Some(0.0), Some(0.0)));
    }

    proptest! {
        /// Probabilities depend neither on the unit of the differences nor on the order of the pairs, and the slope
        /// has the greatest likelihood.
        #[test]
        fn scale_order_and_maximum(
            pairs in proptest::collection::vec((0.001..9.0_f64, any::<bool>()), 20..60), factor in 0.001..1000.0_f64,
        ) {
            let Some(slope) = per_nat(&pairs) else { return Ok(()) };
            prop_assert!(slope >= 0.0 && slope.is_finite());
            let scaled: Vec<(f64, bool)> = pairs.iter().rev().map(|(one, is)| (one * factor, *is)).collect();
            let other = per_nat(&scaled).unwrap();
            prop_assert!((other * factor - slope).abs() < 1e-6 * (1.0 + slope));
            let typical = mean(&pairs.iter().map(|(one, _)| *one).collect::<Vec<_>>());
            let all: Vec<(f64, bool)> = pairs.iter().copied().chain([(typical, true), (typical, false)]).collect();
            let likelihood = |slope: f64| -> f64 {
                let of = |&(one, is): &(f64, bool)| if is { outranks(one, slope) } else { outranks(-one, slope) };
                all.iter().map(|pair| of(pair).ln()).sum()
            };
            // Rounding may change the sums near a slope of 0 as much as the slope does.
            let most = likelihood(slope) + 1e-9;
            prop_assert!(most >= likelihood(slope * 1.01) && most >= likelihood(slope * 0.99) && most >= likelihood(slope + 0.01));
        }
    }
}
