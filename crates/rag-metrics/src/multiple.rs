//! Several tests at once.
//!
//! Holm's step-down adjustment (Holm, "A simple sequentially rejective multiple test procedure", 1979). For m p-values in
//! ascending order p_(1) <= … <= p_(m), the adjusted ones are
//!
//! ```text
//! a_(i) = max over j <= i of min(1, (m - j + 1) p_(j))
//! ```
//!
//! Rejecting if a_(i) <= alpha keeps the chance of any false rejection at most alpha, however the tests depend on
//! each other. It never rejects less than Bonferroni's m p_(i) <= alpha.

use numeric::real;

/// Holm's adjusted p-values, in the order of `p_values`.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let m = p_values.len();
    let mut order: Vec<usize> = (0..m).collect();
    order.sort_by(|&left, &right| p_values[left].total_cmp(&p_values[right]));
    let mut adjusted = vec![1.0; m];
    let mut largest = 0.0_f64;
    for (before, &index) in order.iter().enumerate() {
        largest = largest.max((real(m - before) * p_values[index]).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// [`holm`] if some tests have no p-value. These are not among the m tests, and stay without one.
#[must_use]
pub fn holm_of(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let given: Vec<f64> = p_values.iter().flatten().copied().collect();
    let mut adjusted = holm(&given).into_iter();
    p_values.iter().map(|p| p.and_then(|_| adjusted.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: &[f64], right: &[f64]) -> bool {
        left.len() == right.len() && left.iter().zip(right).all(|(l, r)| (l - r).abs() < 1e-12)
    }

    #[test]
    fn hand_worked_four() {
        // Ascending: 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04. The last one may not fall below 0.06.
        assert!(near(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]));
    }

    #[test]
    fn edges() {
        assert!(holm(&[]).is_empty());
        assert!(near(&holm(&[0.2]), &[0.2]));
        assert!(near(&holm(&[0.6, 0.9]), &[1.0, 1.0]));
        assert!(near(&holm(&[0.02, 0.02]), &[0.04, 0.04]));
        assert_eq!(holm_of(&[None, Some(0.02), None, Some(0.5)]), [None, Some(0.04), None, Some(0.5)]);
    }

    proptest::proptest! {
        #[test]
        fn between_the_p_value_and_bonferroni_and_in_the_same_order(p in proptest::collection::vec(0.0..1.0_f64, 1..20)) {
            let adjusted = holm(&p);
            for (one, of_one) in p.iter().zip(&adjusted) {
                proptest::prop_assert!(one <= of_one && *of_one <= (one * real(p.len())).min(1.0) + 1e-12);
                for (other, of_other) in p.iter().zip(&adjusted) {
                    proptest::prop_assert!(one > other || of_one <= of_other);
                }
            }
        }
    }
}
