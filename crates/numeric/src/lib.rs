//! Arithmetic that `moi`, `rag-metrics` and `prefix-scheduler` share: means, ranks, correlation, log-sum-exp ([`logspace`]), and
//! the draw of a token from logits ([`sampling`]). It is pure: no model, no clock, no input or output.
//!
//! ```
//! assert_eq!(moi_numeric::mid_ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
//! // ln(1/2 + 1/4) = ln(3/4)
//! let sum = moi_numeric::logspace::log_sum_exp(&[0.5_f64.ln(), 0.25_f64.ln()]);
//! assert!((sum - 0.75_f64.ln()).abs() < 1e-12);
//! ```
#![warn(missing_docs)]

pub mod logspace;
pub mod sampling;

/// Callback that a long computation calls between its steps. `true` means stop; the computation then returns its own
/// error for an interruption.
pub type Interrupt<'a> = &'a (dyn Fn() -> bool + Sync);

/// A count as a floating-point number. Exact, because all counts are far below 2^52.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub const fn real(count: usize) -> f64 {
    count as f64
}

/// A finite number as a count, rounded down; 0 below 0.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what a count can hold")]
pub fn count(number: f64) -> usize {
    number.clamp(0.0, 4.5e15) as usize
}

/// Logistic function `1 / (1 + exp(-x))`. Large `|x|` does not overflow.
#[must_use]
pub fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

/// Arithmetic mean; 0 for an empty slice.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / real(values.len()) }
}

/// True if all values are the same. Deviations from the mean do not show this: the mean of ten times 0.1 is not 0.1.
#[must_use]
#[expect(clippy::float_cmp, reason = "without spread is equality")]
pub fn is_constant(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Population standard deviation (divides by n); 0 for an empty slice, and for equal values.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> f64 {
    if is_constant(values) {
        return 0.0;
    }
    let centre = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - centre).powi(2)).collect();
    mean(&squares).sqrt()
}

/// Indices sorted by descending value. The sort is stable: equal values keep the input order.
#[must_use]
pub fn descending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&left, &right| values[right].total_cmp(&values[left]));
    order
}

/// Ranks from 1; equal values share the mean of their ranks.
#[must_use]
pub fn mid_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&l, &r| values[l].total_cmp(&values[r]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    // The total order distinguishes 0 from -0, `same` does not. Both sort next to each other, so a group stays contiguous.
    for group in order.chunk_by(|&l, &r| same(values[l], values[r])) {
        let middle = real(2 * before + group.len() + 1) / 2.0;
        for &index in group {
            ranks[index] = middle;
        }
        before += group.len();
    }
    ranks
}

/// True if two values tie.
#[must_use]
#[expect(clippy::float_cmp, reason = "a tie is equality")]
pub fn same(left: f64, right: f64) -> bool {
    left == right
}

/// To twelve decimals. Values that are equal but for rounding (3 of 6 and 2 of 4, or 5/6 as the mean of two numbers and of three)
/// must tie for a rank correlation.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 1e12).round() / 1e12
}

/// Values that never rise from one place of `ranking` to the next, so that they sort as it does. They do already where it is by
/// value.
#[must_use]
pub fn lowered(values: &[f64], ranking: &[usize]) -> Vec<f64> {
    let mut lowered = values.to_vec();
    let mut least = f64::INFINITY;
    for &place in ranking {
        least = least.min(values[place]);
        lowered[place] = least;
    }
    lowered
}

/// Pearson correlation, between -1 and 1. `None` if the lengths differ, are below two, or either side is constant.
#[must_use]
pub fn pearson(left: &[f64], right: &[f64]) -> Option<f64> {
    if left.len() != right.len() || left.len() < 2 || is_constant(left) || is_constant(right) {
        return None;
    }
    let (mut covariance, mut scale) = moments(left, right);
    if !(covariance.is_finite() && scale.is_finite() && scale > 1e-100) {
        // Squares of numbers beyond 1e150, or below 1e-150, overflow or underflow 64 bits.
        (covariance, scale) = moments(&in_largest(left), &in_largest(right));
    }
    (scale > 1e-300).then(|| (covariance / scale).clamp(-1.0, 1.0))
}

/// The sum of products of deviations, and its largest possible value.
fn moments(left: &[f64], right: &[f64]) -> (f64, f64) {
    let (centre_left, centre_right) = (mean(left), mean(right));
    let covariance = left.iter().zip(right).map(|(l, r)| (l - centre_left) * (r - centre_right)).sum();
    let scale = (left.iter().map(|l| (l - centre_left).powi(2)).sum::<f64>()
        * right.iter().map(|r| (r - centre_right).powi(2)).sum::<f64>())
    .sqrt();
    (covariance, scale)
}

/// The values in units of the largest of them.
fn in_largest(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    values.iter().map(|value| value / largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmoid_is_symmetric_and_never_overflows() {
        assert!((sigmoid(0.0) - 0.5).abs() < 1e-15);
        assert!((sigmoid(3.0) + sigmoid(-3.0) - 1.0).abs() < 1e-15);
        assert!(sigmoid(-800.0) >= 0.0 && sigmoid(800.0) <= 1.0);
    }

    #[test]
    fn equal_values_keep_the_input_order() {
        assert_eq!(descending(&[1.0, 2.0, 1.0, 2.0]), vec![1, 3, 0, 2]);
    }

    #[test]
    fn pearson_of_a_constant_is_undefined() {
        assert_eq!(pearson(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(pearson(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), Some(1.0));
    }

    /// The mean of ten times 0.1 is 0.1 less 1e-17: the correlation was that of the rounding, and a score was divided by it.
    #[test]
    fn equal_values_have_no_spread_though_their_mean_is_rounded() {
        let equal = [0.1; 10];
        assert!(equal.iter().any(|value| (value - mean(&equal)).abs() > 0.0), "the case has a rounded mean");
        let rising: Vec<f64> = (0..10).map(real).collect();
        assert_eq!((pearson(&equal, &rising), pearson(&rising, &equal), pearson(&equal, &equal)), (None, None, None));
        assert_eq!(pearson(&[0.0, -0.0], &[1.0, 2.0]), None);
        assert!(standard_deviation(&equal).abs() < f64::MIN_POSITIVE);
        assert!(standard_deviation(&[0.1, 0.3]) > 0.09);
    }

    /// Found by a fuzz target: the square of 1e233 is infinite, and the correlation was no number.
    #[test]
    fn pearson_of_huge_values_is_a_correlation() {
        assert!((pearson(&[1.0, 0.0, 3.0], &[1.0, 3.0, 1e233]).unwrap() - 5.0 / 28.0_f64.sqrt()).abs() < 1e-12);
        assert!((pearson(&[1.0, 2.0, 3.0], &[-1e308, 0.0, 1e308]).unwrap() - 1.0).abs() < 1e-12);
        assert!((pearson(&[-1.7e308, 1.7e308], &[1.7e308, -1.7e308]).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(pearson(&[f64::MAX, f64::MAX], &[1.0, 2.0]), None);
        // Products of probabilities are that small.
        for tiny in [1.0, 1e-162, 1e-200] {
            let left = [1.0, 2.0, 4.0].map(|value| value * tiny);
            assert!((pearson(&left, &[1.0, 2.0, 3.0]).unwrap() - 0.981_980_506_061_965_7).abs() < 1e-12, "{tiny}");
        }
    }
}
