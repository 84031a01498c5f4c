//! Selective-Context: units with self-information below a percentile are dropped.
//!
//! The authors' program takes the percentile over units, so a ratio is a share of units. Here each unit counts once
//! per token, so a ratio is a share of tokens. For units of one token both are the same. The percentile is
//! interpolated linearly, as numpy does by default. Values equal to the threshold are kept.

use super::Valued;
use numeric::{count, real};

/// A rank this near to a whole number is whole. In binary, 1 - 0.7 is not 0.3, so a threshold a rounding error
/// above a value would drop that value.
const ROUNDING: f64 = 1e-9;

/// The value with a share `share` of `values` below it, interpolated linearly between the two nearest ranks. `None`
/// for no values. Values are not NaN.
#[must_use]
pub fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let exact = real(sorted.len().checked_sub(1)?) * share.clamp(0.0, 1.0);
    let rank = if (exact - exact.round()).abs() < ROUNDING { exact.round() } else { exact };
    let below = count(rank);
    let (low, high) = (sorted[below], sorted[sorted.len().min(below + 2) - 1]);
    Some(low + (high - low) * (rank - real(below)))
}

/// The units of all texts together to keep, so that a share `ratio` of the tokens is left, within one unit. Units
/// of equal value are kept or dropped together.
#[must_use]
pub fn keep(texts: &[Vec<Valued>], ratio: f64) -> Vec<Vec<bool>> {
    let by_token: Vec<f64> =
        texts.iter().flatten().flat_map(|unit| std::iter::repeat_n(unit.value, unit.tokens)).collect();
    let threshold = percentile(&by_token, 1.0 - ratio).unwrap_or(f64::NEG_INFINITY);
    // Interpolation rounds, so the least value could fall below the threshold.
    let all = ratio >= 1.0;
    texts.iter().map(|units| units.iter().map(|unit| all || unit.value >= threshold).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tokens;
    use super::*;

    fn units(values: &[f64]) -> Vec<Vec<Valued>> {
        vec![values.iter().map(|&value| Valued { tokens: 1, value }).collect()]
    }

    /// The hand-worked case of the design notes: at 0.35 the threshold of 1, 2, 3, 4 is 2.05.
    #[test]
    fn the_percentile_is_numpys() {
        let values = [3.0, 1.0, 4.0, 2.0];
        assert!((percentile(&values, 0.35).unwrap() - 2.05).abs() < 1e-12);
        assert_eq!(keep(&units(&values), 0.65), vec![vec![true, false, true, false]], "two of four, not .65 of them");
        assert_eq!((percentile(&values, 0.0), percentile(&values, 1.0)), (Some(1.0), Some(4.0)));
        assert_eq!((percentile(&[], 0.5), percentile(&[7.0], 0.5)), (None, Some(7.0)));
    }

    #[test]
    fn what_equals_the_threshold_is_kept() {
        assert_eq!(keep(&units(&[2.0, 2.0, 2.0]), 0.1), vec![vec![true; 3]]);
        // The rank is 1, a whole number: the threshold is the second value itself.
        assert_eq!(keep(&units(&[1.0, 2.0, 3.0]), 0.5), vec![vec![false, true, true]]);
    }

    /// 10 (1 - 0.7) is 3.0000000000000004 in binary: the fourth value is the threshold nevertheless.
    #[test]
    fn a_rank_that_is_whole_but_for_rounding_is_whole() {
        let far = |rank: u32| if rank < 4 { 1.0 } else { 1e6 };
        let values: Vec<f64> = (0..11_u32).map(|rank| f64::from(rank) * far(rank)).collect();
        assert_eq!(percentile(&values, 1.0 - 0.7), Some(3.0));
        assert_eq!(keep(&units(&values), 0.7)[0].iter().filter(|kept| **kept).count(), 8);
    }

    #[test]
    fn a_unit_counts_as_often_as_it_has_tokens() {
        let texts = vec![
            vec![Valued { tokens: 6, value: 1.0 }, Valued { tokens: 2, value: 3.0 }],
            vec![Valued { tokens: 2, value: 2.0 }],
        ];
        // Ten tokens: at 0.4 the rank is 9 * 0.6 = 5.4, between the last 1 and the first 2.
        assert_eq!(keep(&texts, 0.4), vec![vec![false, true], vec![true]]);
        assert_eq!(keep(&texts, 0.2), vec![vec![false, true], vec![false]]);
    }

    proptest! {
        #[test]
        fn the_budget_holds_to_a_unit_and_more_is_kept_of_more(
            units in proptest::collection::vec((1_usize..9, -50.0..0.0_f64), 1..60),
            ratios in (0.01..1.0_f64, 0.01..1.0_f64),
        ) {
            let units: Vec<Valued> = units.into_iter().map(|(tokens, value)| Valued { tokens, value }).collect();
            let all: usize = units.iter().map(|unit| unit.tokens).sum();
            let longest = units.iter().map(|unit| unit.tokens).max().unwrap_or(0);
            let (less, more) = (ratios.0.min(ratios.1), ratios.0.max(ratios.1));
            let kept = |ratio: f64| keep(std::slice::from_ref(&units), ratio).remove(0);
            let gap = (real(tokens(&units, &kept(less))) - less * real(all)).abs();
            prop_assert!(gap <= real(longest), "{gap} of {all}");
            prop_assert!(kept(less).iter().zip(kept(more)).all(|(less, more)| !less || more));
            prop_assert!(kept(1.0).iter().all(|kept| *kept));
        }
    }
}
