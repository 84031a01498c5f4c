//! Quality of numbers as probabilities of relevance.
//!
//! - Expected calibration error (Naeini, Cooper and Hauskrecht, 2015) over B bins of equal count: the n pairs are sorted by
//!   probability and cut at b n / B; ECE = sum over bins of n_b / n times |mean probability - share of relevant|. 0 is best,
//!   1 is worst. Pairs of equal probability share their labels' mean, so the order of the input does not matter.
//! - AUC: the probability that a relevant passage has a higher number than one that is not, ties counted half
//!   (Mann and Whitney). It needs only the order of the numbers. 0.5 is chance, 1 is best.

use numeric::{mean, mid_ranks, real};

/// Most bins of [`calibration_error`].
const BINS: usize = 10;

/// Fewest numbers in a bin. With fewer the error would reflect few draws, however good the probabilities are.
const IN_A_BIN: usize = 20;

/// [`expected_calibration_error`] over ten bins, or over fewer with at least twenty numbers each.
#[must_use]
pub fn calibration_error(probabilities: &[f64], relevant: &[bool]) -> Option<f64> {
    expected_calibration_error(probabilities, relevant, (probabilities.len() / IN_A_BIN).clamp(1, BINS))
}

/// Expected calibration error of `probabilities` over `bins` bins of equal count. With fewer pairs than bins each
/// pair is a bin. `None` without pairs or bins, or for lists of different lengths. Numbers must be finite.
#[must_use]
pub fn expected_calibration_error(probabilities: &[f64], relevant: &[bool], bins: usize) -> Option<f64> {
    let n = probabilities.len();
    if n == 0 || bins == 0 || relevant.len() != n {
        return None;
    }
    let mut pairs: Vec<(f64, f64)> =
        probabilities.iter().zip(relevant).map(|(p, is)| (p + 0.0, f64::from(u8::from(*is)))).collect();
    pairs.sort_by(|left, right| left.0.total_cmp(&right.0));
    for tied in pairs.chunk_by_mut(|left, right| left.0.total_cmp(&right.0).is_eq()) {
        let share = mean(&tied.iter().map(|pair| pair.1).collect::<Vec<_>>());
        for pair in tied {
            pair.1 = share;
        }
    }
    let gap = |bin: usize| {
        let within = &pairs[bin * n / bins..(bin + 1) * n / bins];
        // The bin's weight times the difference of its means is the difference of its sums over n.
        within.iter().map(|pair| pair.0 - pair.1).sum::<f64>().abs() / real(n)
    };
    Some((0..bins).map(gap).sum())
}

/// AUC of `numbers`. `None` if all or none are relevant, or for lists of different lengths. Numbers must be finite.
#[must_use]
pub fn auc(numbers: &[f64], relevant: &[bool]) -> Option<f64> {
    let positives = relevant.iter().filter(|is| **is).count();
    let negatives = relevant.len() - positives;
    if positives == 0 || negatives == 0 || numbers.len() != relevant.len() {
        return None;
    }
    let ranks = mid_ranks(numbers);
    let sum: f64 = ranks.iter().zip(relevant).filter(|(_, is)| **is).map(|(rank, _)| rank).sum();
    Some((sum - real(positives) * real(positives + 1) / 2.0) / (real(positives) * real(negatives)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-12)
    }

    #[test]
    fn calibration_by_hand() {
        // Two bins: (0.1, 0.3) with shares (0, 1) and (0.6, 0.8) with (1, 1). Gaps: |0.4 - 1| / 4 + |1.4 - 2| / 4 = 0.3.
        let (p, relevant) = ([0.8, 0.1, 0.3, 0.6], [true, false, true, true]);
        assert!(near(expected_calibration_error(&p, &relevant, 2), 0.3));
        // One bin: |1.8 - 3| / 4. Four or more: 0.1 + 0.7 + 0.4 + 0.2 over 4.
        assert!(near(expected_calibration_error(&p, &relevant, 1), 0.3));
        assert!(near(expected_calibration_error(&p, &relevant, 4), 0.35));
        assert!(near(expected_calibration_error(&p, &relevant, 10), 0.35));
        assert!(near(expected_calibration_error(&[0.25; 4], &[false, false, true, false], 4), 0.0));
        assert!(near(expected_calibration_error(&[1.0, 0.0], &[false, true], 10), 1.0));
    }

    #[test]
    fn auc_by_hand() {
        // Pairs (0.8 > 0.1), (0.8 > 0.3), (0.2 > 0.1), not (0.2 > 0.3): three of four.
        assert!(near(auc(&[0.8, 0.1, 0.2, 0.3], &[true, false, true, false]), 0.75));
        assert!(near(auc(&[0.5, 0.5, 0.1], &[true, false, false]), 0.75));
        assert!(near(auc(&[0.5; 5], &[true, false, true, false, false]), 0.5));
    }

    #[test]
    fn without_both_kinds_there_is_no_auc() {
        assert_eq!(auc(&[0.1, 0.2], &[true, true]), None);
        assert_eq!(auc(&[0.1, 0.2], &[false, false]), None);
        assert_eq!(auc(&[], &[]), None);
        assert_eq!(auc(&[0.1], &[true, false]), None);
        assert_eq!(expected_calibration_error(&[], &[], 10), None);
        assert_eq!(expected_calibration_error(&[0.1], &[true], 0), None);
        assert_eq!(expected_calibration_error(&[0.1], &[true, false], 10), None);
    }

    proptest::proptest! {
        #[test]
        fn bounded_and_blind_to_the_order(pairs in proptest::collection::vec((0..8_u8, proptest::bool::ANY), 2..40)) {
            let split = |pairs: &[(u8, bool)]| -> (Vec<f64>, Vec<bool>) {
                pairs.iter().map(|(p, is)| (f64::from(*p) / 7.0, *is)).unzip()
            };
            let (p, relevant) = split(&pairs);
            let mut turned = pairs.clone();
            turned.reverse();
            let (turned_p, turned_relevant) = split(&turned);
            let error = expected_calibration_error(&p, &relevant, 10).unwrap();
            proptest::prop_assert!((0.0..=1.0 + 1e-12).contains(&error));
            let again = expected_calibration_error(&turned_p, &turned_relevant, 10).unwrap();
            proptest::prop_assert!((error - again).abs() < 1e-12);
            if let Some(area) = auc(&p, &relevant) {
                proptest::prop_assert!((0.0..=1.0).contains(&area));
                let mirrored: Vec<f64> = p.iter().map(|p| -p).collect();
                proptest::prop_assert!((auc(&mirrored, &relevant).unwrap() + area - 1.0).abs() < 1e-12);
            }
        }
    }
}
