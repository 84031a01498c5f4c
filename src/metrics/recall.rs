//! Measures for when the number of relevant documents may be unknown (*Beyond recall*, section 2.1).
//!
//! With K the cut-off, K+ the positives in the top K, K- = K - K+, N all positives, alpha in [0, 1]:
//!
//! | measure | formula | needs N |
//! |---|---|---|
//! | F (Eq. 1, 2) | K+ / (alpha K + (1 - alpha) N), alpha = 1 / (1 + beta^2) | yes |
//! | Fe | F with N = positives in the top 2K | no, a list of 2K |
//! | T (Eq. 3) | (1 - alpha) K+ - alpha K- / K | no |
//! | T' (Eq. 4) | (1 - alpha) K+ - alpha K- | no |
//!
//! alpha = 1 makes F the precision, alpha = 0 the recall; T is then -K-/K and K+. The nDCG of the paper takes its ideal from
//! the list: `nDCG(ideal='list')` of [`super::rank`]. A value that would divide by 0 is not defined.

use super::agreement::{Agreement, Correlation};
use crate::numeric::real;

/// F_alpha of `positives` in the top `k` of `all`; not defined where the denominator is 0.
#[must_use]
pub fn f_alpha(positives: usize, k: usize, all: usize, alpha: f64) -> Option<f64> {
    let denominator = alpha * real(k) + (1.0 - alpha) * real(all);
    (denominator > 0.0).then(|| real(positives) / denominator)
}

/// alpha of the more common beta: 1 / (1 + beta^2).
#[must_use]
pub fn alpha_of_beta(beta: f64) -> f64 {
    1.0 / (1.0 + beta * beta)
}

/// Fe over the list's marks; not defined for a list shorter than 2K.
#[must_use]
pub fn fe(marks: &[bool], k: usize, alpha: f64) -> Option<f64> {
    let count = |marks: &[bool]| marks.iter().filter(|mark| **mark).count();
    let wide = marks.get(..2 * k)?;
    f_alpha(count(&wide[..k]), k, count(wide), alpha)
}

/// T; not defined for K = 0.
#[must_use]
pub fn t(positives: usize, k: usize, alpha: f64) -> Option<f64> {
    let negatives = real(k) - real(positives);
    (k > 0).then(|| (1.0 - alpha) * real(positives) - alpha * negatives / real(k))
}

/// T', without the normalisation.
#[must_use]
pub fn t_prime(positives: usize, k: usize, alpha: f64) -> f64 {
    (1.0 - alpha) * real(positives) - alpha * (real(k) - real(positives))
}

/// One list with the score of the response that was made from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Marks of the list, first rank first.
    pub marks: Vec<bool>,
    /// Cut-off.
    pub k: usize,
    /// All positives of the query, where known.
    pub all: Option<usize>,
    /// Score of the response.
    pub response: f64,
}

/// Measures with an alpha to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// F.
    F,
    /// Fe.
    Fe,
    /// T.
    T,
    /// T'.
    TPrime,
}

impl Family {
    /// The measure of a sample at an alpha.
    #[must_use]
    pub fn of(self, sample: &Sample, alpha: f64) -> Option<f64> {
        let positives = || sample.marks.iter().take(sample.k).filter(|mark| **mark).count();
        match self {
            Self::F => f_alpha(positives(), sample.k, sample.all?, alpha),
            Self::Fe => fe(&sample.marks, sample.k, alpha),
            Self::T => t(positives(), sample.k, alpha),
            Self::TPrime => Some(t_prime(positives(), sample.k, alpha)),
        }
    }
}

/// The alphas that are tried, ascending: 0, 0.95^i for i = 1..=350, their complements, 1.
#[must_use]
pub fn alphas() -> Vec<f64> {
    let powers = (1..=350).map(|power| 0.95_f64.powi(power));
    let mut grid: Vec<f64> = powers.flat_map(|power| [power, 1.0 - power]).chain([0.0, 1.0]).collect();
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    grid
}

/// The alpha with the highest correlation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// The alpha; the smallest of several that do equally well.
    pub alpha: f64,
    /// The correlation there, with its p-value. The p-value does not know that alpha was searched for.
    pub agreement: Agreement,
    /// Samples on which the measure is defined there.
    pub samples: usize,
}

/// Searches [`alphas`] for the highest correlation of the measure with the response scores, at each alpha over the samples
/// on which the measure is defined there. `None` where the correlation is nowhere defined.
#[must_use]
pub fn choose_alpha(samples: &[Sample], family: Family, correlation: Correlation) -> Option<Chosen> {
    let mut best: Option<Chosen> = None;
    for alpha in alphas() {
        let pairs: Vec<(f64, f64)> =
            samples.iter().filter_map(|sample| Some((rounded(family.of(sample, alpha)?), sample.response))).collect();
        let (values, responses): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let Some(agreement) = correlation.of(&values, &responses) else { continue };
        if best.is_none_or(|best| agreement.value > best.agreement.value) {
            best = Some(Chosen { alpha, agreement, samples: values.len() });
        }
    }
    best
}

/// To twelve decimals: lists that a formula cannot tell apart (3 of 6 and 2 of 4) are ties for a rank correlation, whatever
/// rounding makes of them.
fn rounded(value: f64) -> f64 {
    (value * 1e12).round() / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: Option<f64>, right: f64) {
        let left = left.unwrap();
        assert!((left - right).abs() < 1e-12, "{left} {right}");
    }

    #[test]
    fn hand_worked_five_of_ten() {
        // K = 5 with 3 positives, N = 4: P = .6, R = .75.
        near(f_alpha(3, 5, 4, 0.5), 2.0 * 0.6 * 0.75 / (0.6 + 0.75));
        near(f_alpha(3, 5, 4, alpha_of_beta(2.0)), 5.0 * 0.6 * 0.75 / (4.0 * 0.6 + 0.75));
        near(t(3, 5, 0.25), 0.75 * 3.0 - 0.25 * 2.0 / 5.0);
        near(Some(t_prime(3, 5, 0.25)), 0.75 * 3.0 - 0.25 * 2.0);
        let marks = [true, false, true, true, false, false, true, false, false, false];
        near(fe(&marks, 5, 0.5), 3.0 / (2.5 + 2.0));
        assert_eq!(fe(&marks[..9], 5, 0.5), None);
    }

    #[test]
    fn limits_are_precision_and_recall() {
        near(f_alpha(3, 5, 4, 1.0), 0.6);
        near(f_alpha(3, 5, 4, 0.0), 0.75);
        near(t(3, 5, 1.0), -0.4);
        near(t(3, 5, 0.0), 3.0);
        assert_eq!(f_alpha(0, 5, 0, 0.0), None);
        near(f_alpha(0, 5, 0, 0.5), 0.0);
        assert_eq!((f_alpha(0, 0, 0, 0.5), t(0, 0, 0.5)), (None, None));
    }

    #[test]
    fn t_stays_in_its_range() {
        for k in 1..6 {
            for positives in 0..=k {
                for alpha in [0.0, 0.2, 0.5, 0.9, 1.0] {
                    let value = t(positives, k, alpha).unwrap();
                    assert!(value >= -alpha - 1e-12 && value <= (1.0 - alpha) * real(k) + 1e-12);
                }
            }
        }
    }

    #[test]
    fn the_grid_is_that_of_the_paper() {
        let grid = alphas();
        assert_eq!(grid.len(), 702);
        assert!(grid[0].abs() < 1e-300 && (grid[701] - 1.0).abs() < 1e-300);
        assert!(grid.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_search_finds_what_made_the_scores() {
        let sample = |k: usize, positives: usize| {
            let marks = (0..2 * k).map(|index| index < positives).collect();
            let response = t(positives, k, 0.95_f64.powi(14)).unwrap();
            Sample { marks, k, all: Some(positives + 1), response }
        };
        let samples: Vec<Sample> = (1..8).flat_map(|k| (0..=k).map(move |positives| sample(k, positives))).collect();
        let chosen = choose_alpha(&samples, Family::T, Correlation::Pearson).unwrap();
        assert!((chosen.alpha - 0.95_f64.powi(14)).abs() < 1e-12, "{chosen:?}");
        assert!((chosen.agreement.value - 1.0).abs() < 1e-12);
        assert_eq!(choose_alpha(&samples[..1], Family::T, Correlation::Pearson), None);
    }
}
