//! Platt scaling: a score becomes a probability of being relevant (Platt, 1999, "Probabilistic Outputs for Support Vector
//! Machines").
//!
//! `P(relevant | x) = sigmoid(intercept + slope · x)`, fitted by maximum likelihood. The targets are smoothed,
//! (n₊ + 1) / (n₊ + 2) for the n₊ relevant scores and 1 / (n₋ + 2) for the n₋ others, so that perfectly separated
//! scores have a finite slope. Newton's method with backtracking (Lin, Lin and Weng, 2007, "A note on Platt's
//! probabilistic outputs").

use serde::{Deserialize, Serialize};

use numeric::{mean, real, sigmoid, standard_deviation};

/// Most Newton steps. Two parameters take about ten.
const STEPS: usize = 100;

/// Gradient below which the search ends.
const ENOUGH: f64 = 1e-9;

/// A fitted logistic function of a score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Platt {
    /// Log-odds of relevance at a score of 0.
    pub intercept: f64,
    /// Log-odds per unit of the score; above 0.
    pub slope: f64,
}

impl Platt {
    /// Fits scores to labels. `None` if all or none are relevant, the scores are equal or not finite, or higher scores are
    /// not more relevant.
    #[must_use]
    pub fn fit(scores: &[f64], relevant: &[bool]) -> Option<Self> {
        let positives = relevant.iter().filter(|is| **is).count();
        let negatives = relevant.len() - positives;
        let spread = standard_deviation(scores);
        if positives == 0 || negatives == 0 || scores.len() != relevant.len() || !(spread.is_finite() && spread > 0.0) {
            return None;
        }
        // In units of the spread, so that the steps do not depend on the unit of the scores.
        let centre = mean(scores);
        let pairs: Vec<(f64, f64)> = scores
            .iter()
            .zip(relevant)
            .map(|(score, is)| {
                let target =
                    if *is { (real(positives) + 1.0) / (real(positives) + 2.0) } else { 1.0 / (real(negatives) + 2.0) };
                ((score - centre) / spread, target)
            })
            .collect();
        let start = [((real(positives) + 1.0) / (real(negatives) + 1.0)).ln(), 0.0];
        let [intercept, slope] = minimise(&pairs, start);
        let fitted = Self { intercept: intercept - slope * centre / spread, slope: slope / spread };
        fitted.is_valid().then_some(fitted)
    }

    /// Probability that a passage with this score is relevant.
    #[must_use]
    pub fn probability(&self, score: f64) -> f64 {
        sigmoid(self.intercept + self.slope * score)
    }

    /// True if the numbers are finite and the order of scores is unchanged.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.intercept.is_finite() && self.slope.is_finite() && self.slope > 0.0
    }
}

/// Cross entropy of the targets under `[a, b]`.
fn loss(pairs: &[(f64, f64)], [a, b]: [f64; 2]) -> f64 {
    let each = |&(x, target): &(f64, f64)| {
        let z = a + b * x;
        // log(1 + exp(z)) - target · z, without overflow.
        z.max(0.0) + (-z.abs()).exp().ln_1p() - target * z
    };
    pairs.iter().map(each).sum()
}

fn minimise(pairs: &[(f64, f64)], start: [f64; 2]) -> [f64; 2] {
    let mut at = start;
    let mut least = loss(pairs, at);
    for _ in 0..STEPS {
        let (mut gradient, mut curvature) = ([0.0; 2], [1e-12, 0.0, 1e-12]);
        for &(x, target) in pairs {
            let p = sigmoid(at[0] + at[1] * x);
            let (error, weight) = (p - target, p * (1.0 - p));
            gradient[0] += error;
            gradient[1] += error * x;
            curvature[0] += weight;
            curvature[1] += weight * x;
            curvature[2] += weight * x * x;
        }
        if gradient[0].abs() + gradient[1].abs() < ENOUGH * real(pairs.len()) {
            break;
        }
        let determinant = curvature[0] * curvature[2] - curvature[1] * curvature[1];
        let step = [
            (curvature[2] * gradient[0] - curvature[1] * gradient[1]) / determinant,
            (curvature[0] * gradient[1] - curvature[1] * gradient[0]) / determinant,
        ];
        let mut length = 1.0;
        let moved = loop {
            let next = [at[0] - length * step[0], at[1] - length * step[1]];
            let value = loss(pairs, next);
            if value < least {
                break Some((next, value));
            }
            length /= 2.0;
            if length < 1e-10 {
                break None;
            }
        };
        let Some((next, value)) = moved else { break };
        (at, least) = (next, value);
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By hand: at x = 0 one of four is relevant, at x = 1 three of four. With four of each the targets are 5/6 and
    /// 1/6, so the logistic function passes through (1 · 5/6 + 3 · 1/6) / 4 = 1/3 and 2/3: intercept -ln 2, slope 2
    /// ln 2.
    #[test]
    fn two_scores_by_hand() {
        let scores = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        let relevant = [true, false, false, false, true, true, true, false];
        let fitted = Platt::fit(&scores, &relevant).unwrap();
        let two = 2.0_f64.ln();
        assert!((fitted.intercept + two).abs() < 1e-6 && (fitted.slope - 2.0 * two).abs() < 1e-6, "{fitted:?}");
        assert!((fitted.probability(1.0) - 2.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn scores_that_part_both_kinds_have_a_finite_slope() {
        let fitted = Platt::fit(&[-2.0, -1.0, 1.0, 2.0], &[false, false, true, true]).unwrap();
        assert!(fitted.is_valid() && fitted.probability(2.0) > 0.7 && fitted.probability(-2.0) < 0.3, "{fitted:?}");
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        for (scores, relevant) in [
            (&[1.0, 2.0][..], &[true, true][..]),
            (&[1.0, 2.0], &[false, false]),
            (&[1.0, 1.0], &[true, false]),
            (&[1.0, 2.0], &[true, false]),
            (&[f64::NAN, 2.0], &[false, true]),
            (&[], &[]),
            (&[1.0], &[true, false]),
        ] {
            assert_eq!(Platt::fit(scores, relevant), None, "{scores:?} {relevant:?}");
        }
    }

    proptest! {
        /// The probabilities depend neither on the unit of the scores nor on the order of the pairs. Their mean is
        /// the mean of the targets.
        #[test]
        fn scale_order_and_mean(
            pairs in proptest::collection::vec((-5.0..5.0_f64, any::<bool>()), 4..40), factor in 0.01..100.0_f64,
        ) {
            let (scores, relevant): (Vec<f64>, Vec<bool>) = pairs.iter().copied().unzip();
            let Some(fitted) = Platt::fit(&scores, &relevant) else { return Ok(()) };
            let scaled: Vec<f64> = scores.iter().map(|score| 3.0 + factor * score).collect();
            let other = Platt::fit(&scaled, &relevant);
            prop_assume!(fitted.slope * standard_deviation(&scores) > 1e-6);
            let other = other.unwrap();
            for (score, scaled) in scores.iter().zip(&scaled) {
                prop_assert!((fitted.probability(*score) - other.probability(*scaled)).abs() < 1e-6);
            }
            let reversed = |values: &[f64]| values.iter().rev().copied().collect::<Vec<_>>();
            let back: Vec<bool> = relevant.iter().rev().copied().collect();
            let turned = Platt::fit(&reversed(&scores), &back).unwrap();
            prop_assert!((turned.intercept - fitted.intercept).abs() < 1e-6);
            let (n, positives) = (real(scores.len()), real(relevant.iter().filter(|is| **is).count()));
            let targets = positives * (positives + 1.0) / (positives + 2.0) + (n - positives) / (n - positives + 2.0);
            let sum: f64 = scores.iter().map(|score| fitted.probability(*score)).sum();
            prop_assert!((sum - targets).abs() < 1e-6 * n);
        }
    }
}
