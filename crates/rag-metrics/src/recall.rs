//! Measures for lists whose number of relevant documents may be unknown ("Beyond recall", section 2.1).
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
//! With alpha = 1, F is the precision and T is -K-/K; with alpha = 0, F is the recall and T is K+. The paper's nDCG
//! takes its ideal from the list, like `nDCG(ideal='list')` of [`super::rank`]. A value that would divide by 0 is
//! undefined.

use super::agreement::{Agreement, Correlation};
use numeric::{Interrupt, real, rounded};

/// F of `positives` in the top `k`, of `all` positives of the query; undefined if the denominator is 0.
#[must_use]
pub fn f_alpha(positives: usize, k: usize, all: usize, alpha: f64) -> Option<f64> {
    let denominator = alpha * real(k) + (1.0 - alpha) * real(all);
    (denominator > 0.0).then(|| real(positives) / denominator)
}

/// The alpha of an F-beta: 1 / (1 + beta^2).
#[must_use]
pub fn alpha_of_beta(beta: f64) -> f64 {
    1.0 / (1.0 + beta * beta)
}

/// Fe over the list's marks; undefined for a list shorter than 2K.
#[must_use]
pub fn fe(marks: &[bool], k: usize, alpha: f64) -> Option<f64> {
    let twice = marks.get(..k.checked_mul(2)?)?;
    f_alpha(count(&twice[..k]), k, count(twice), alpha)
}

fn count(marks: &[bool]) -> usize {
    marks.iter().filter(|mark| **mark).count()
}

/// T; undefined for K = 0.
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

/// One list with the score of the response generated from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// True if the document at each rank is relevant, first rank first.
    pub marks: Vec<bool>,
    /// Cut-off K.
    pub k: usize,
    /// All positives of the query; `None` if their number is unknown.
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

/// Counts of a sample that the measures need, the same for all alphas.
struct Counts {
    positives: usize,
    k: usize,
    all: Option<usize>,
    /// Positives of the top 2K; `None` for a shorter list.
    twice: Option<usize>,
}

impl Counts {
    fn new(sample: &Sample) -> Self {
        Self {
            positives: count(&sample.marks[..sample.k.min(sample.marks.len())]),
            k: sample.k,
            all: sample.all,
            twice: sample.k.checked_mul(2).and_then(|twice| sample.marks.get(..twice)).map(count),
        }
    }
}

impl Family {
    /// The measure of a sample at an alpha; `None` if undefined.
    #[must_use]
    pub fn of(self, sample: &Sample, alpha: f64) -> Option<f64> {
        self.of_counts(&Counts::new(sample), alpha)
    }

    fn of_counts(self, counts: &Counts, alpha: f64) -> Option<f64> {
        match self {
            Self::F => f_alpha(counts.positives, counts.k, counts.all?, alpha),
            Self::Fe => f_alpha(counts.positives, counts.k, counts.twice?, alpha),
            Self::T => t(counts.positives, counts.k, alpha),
            Self::TPrime => Some(t_prime(counts.positives, counts.k, alpha)),
        }
    }
}

/// The alphas to try, ascending: 0, 0.95^i for i = 1..=350, their complements, 1.
#[must_use]
pub fn alphas() -> Vec<f64> {
    let powers = (1..=350).map(|power| 0.95_f64.powi(power));
    let mut grid: Vec<f64> = powers.flat_map(|power| [power, 1.0 - power]).chain([0.0, 1.0]).collect();
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    grid
}

/// An alpha, and the correlation there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// The alpha; [`choose_alpha`] takes the smallest if several have the same correlation.
    pub alpha: f64,
    /// The correlation there. Its p-value does not account for the search over alphas.
    pub agreement: Agreement,
    /// Samples on which the measure is defined there.
    pub samples: usize,
}

/// Correlations that differ by less count as equal.
const SAME_CORRELATION: f64 = 1e-9;

/// Searches [`alphas`] for the highest correlation of the measure with the response scores. At each alpha the
/// correlation covers the samples with a value. `None` if no alpha has a correlation, and when interrupted.
#[must_use]
pub fn choose_alpha(
    samples: &[Sample],
    family: Family,
    correlation: Correlation,
    interrupt: Interrupt<'_>,
) -> Option<Chosen> {
    let every = over_alphas(samples, family, correlation, interrupt)?;
    // If all lists have one length, Pearson's r of T is the same at every alpha except for rounding.
    let highest = every.iter().map(|one| one.agreement.value).reduce(f64::max)?;
    every.into_iter().find(|one| one.agreement.value >= highest - SAME_CORRELATION)
}

/// The correlation at each of [`alphas`], ascending. Alphas without a correlation are left out. `None` when interrupted.
#[must_use]
pub fn over_alphas(
    samples: &[Sample],
    family: Family,
    correlation: Correlation,
    interrupt: Interrupt<'_>,
) -> Option<Vec<Chosen>> {
    let counts: Vec<Counts> = samples.iter().map(Counts::new).collect();
    let mut every = Vec::new();
    for alpha in alphas() {
        if interrupt() {
            return None;
        }
        let measured =
            |(counts, sample): (&Counts, &Sample)| Some((rounded(family.of_counts(counts, alpha)?), sample.response));
        let (values, responses): (Vec<f64>, Vec<f64>) = counts.iter().zip(samples).filter_map(measured).unzip();
        let Some(agreement) = correlation.of(&values, &responses) else { continue };
        every.push(Chosen { alpha, agreement, samples: values.len() });
    }
    Some(every)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::never;

    fn near(left: Option<f64>, right: f64) {
        let left = left.unwrap();
        assert!((left - right).abs() < 1e-12, "{left} {right}");
    }

    #[test]
    fn hand_worked_five_of_ten() {
        // K = 5 with 3 positives, N = 4: P = 0.6, R = 0.75.
        near(f_alpha(3, 5, 4, 0.5), 2.0 * 0.6 * 0.75 / (0.6 + 0.75));
        near(f_alpha(3, 5, 4, alpha_of_beta(2.0)), 5.0 * 0.6 * 0.75 / (4.0 * 0.6 + 0.75));
        near(t(3, 5, 0.25), 0.75 * 3.0 - 0.25 * 2.0 / 5.0);
        near(Some(t_prime(3, 5, 0.25)), 0.75 * 3.0 - 0.25 * 2.0);
        let marks = [true, false, true, true, false, false, true, false, false, false];
        near(fe(&marks, 5, 0.5), 3.0 / (2.5 + 2.0));
        assert_eq!(fe(&marks[..9], 5, 0.5), None);
        // 2K of this K is 0 in 64 bits.
        assert_eq!(fe(&marks, 1 << 63, 0.5), None);
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
        let chosen = choose_alpha(&samples, Family::T, Correlation::Pearson, &never).unwrap();
        assert!((chosen.alpha - 0.95_f64.powi(14)).abs() < 1e-12, "{chosen:?}");
        assert!((chosen.agreement.value - 1.0).abs() < 1e-12);
        // Rounding noise counted as a better alpha.
        let alike = [(0, 0.1), (1, 0.5), (2, 0.6)].map(|(found, response)| Sample {
            marks: (0..2).map(|rank| rank < found).collect(),
            k: 2,
            all: None,
            response,
        });
        let chosen = choose_alpha(&alike, Family::T, Correlation::Pearson, &never).unwrap();
        assert_eq!(chosen.alpha.to_bits(), 0.0_f64.to_bits(), "{chosen:?}");
        assert_eq!(choose_alpha(&samples[..1], Family::T, Correlation::Pearson, &never), None);
    }

    #[test]
    fn two_lists_over_all_alphas_by_hand() {
        // K = 2: two of two positives against one, with the better response. T = 2 (1 - a) against (1 - a) - a / 2:
        // the first is greater by 1 - a / 2 at every alpha. F = 2 / (2a + 4 (1 - a)) against 1 / (2a + (1 - a)): at
        // a = 0 recall prefers the second (1/2 against 1), at a = 1 precision the first.
        let sample = |positives: usize, all: usize, response: f64| Sample {
            marks: (0..2).map(|index| index < positives).collect(),
            k: 2,
            all: Some(all),
            response,
        };
        let samples = [sample(2, 4, 1.0), sample(1, 1, 0.0)];
        let over = |family| over_alphas(&samples, family, Correlation::KendallB, &never).unwrap();
        let every = over(Family::T);
        assert_eq!(every.len(), 702);
        assert!(every.iter().all(|one| (one.agreement.value - 1.0).abs() < 1e-12 && one.samples == 2));
        let (first, last) = (over(Family::F)[0], over(Family::F).pop().unwrap());
        assert!((first.agreement.value + 1.0).abs() < 1e-12 && (last.agreement.value - 1.0).abs() < 1e-12);
        // Lists of two have no top 4.
        assert!(over(Family::Fe).is_empty());
        assert_eq!(over_alphas(&samples, Family::T, Correlation::KendallB, &|| true), None);
    }
}
