//! The weight of each passage in an outcome that was observed for subsets of the passages (ContextCite).
//!
//! ```text
//! outcome of subset v  ≈  b + Σ_j w_j · v_j          v_j in {0, 1}: whether passage j is in the subset
//! minimise  1/(2n) Σ (outcome − prediction)²  +  α Σ_j |w_j| · s_j
//! ```
//!
//! n subsets, s_j the standard deviation of v_j over them: a Lasso on standardised columns, with its weights scaled
//! back (Cohen-Wang et al., *ContextCite: Attributing Model Generation to Context*, and `LassoRegression.fit` of
//! their program). Weights below the penalty are exactly 0. A passage in every subset, or in none, has no weight.
//!
//! Cyclic coordinate descent (Friedman et al., 2010): each standardised weight in turn takes its best value for the
//! current others, a soft threshold, until no weight changes. Of two passages with equal columns the earlier one
//! takes the weight.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::FitError;
use numeric::{Interrupt, mean, real};

/// The descent ends when a sweep moves no standardised weight by more than this, relative to the largest outcome if that
/// exceeds 1.
const TOLERANCE: f64 = 1e-10;
/// Bound on the sweeps. Random subsets take a few hundred.
const MOST_SWEEPS: usize = 20_000;

/// Subsets of `0..n` to observe. Entry `j` of a mask is true if `j` is in the subset.
///
/// If there are at most `most` subsets, each comes once, with the first elements changing fastest. Otherwise `most`
/// independent draws, in which each element is included with probability 1/2; a subset may come twice.
#[must_use]
pub fn subsets(n: usize, most: usize, seed: u64) -> Vec<Vec<bool>> {
    let all = u32::try_from(n).ok().and_then(|n| 1_usize.checked_shl(n)).filter(|all| (1..=most).contains(all));
    if let Some(all) = all {
        return (0..all).map(|number| (0..n).map(|element| (number >> element) & 1 == 1).collect()).collect();
    }
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    // The top bit of a word is a fair coin.
    (0..most).map(|_| (0..n).map(|_| source.next_u32() >> 31 == 1).collect()).collect()
}

/// Weights of a linear model of the subsets.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Contribution of each passage to the outcome, in the unit of the outcome.
    pub passages: Vec<f64>,
    /// Predicted outcome without passages.
    pub intercept: f64,
    /// True if the descent ended before the maximum number of sweeps.
    pub converged: bool,
}

/// A standardised column, and the factor that scales its weight back.
struct Column {
    passage: usize,
    mean: f64,
    deviation: f64,
    values: Vec<f64>,
}

/// Fits the Lasso with penalty `alpha` to the outcomes of subsets.
///
/// # Errors
/// [`FitError::Invalid`] if masks and outcomes do not match or an outcome is not finite, and
/// [`FitError::Interrupted`].
pub fn lasso(masks: &[Vec<bool>], outcomes: &[f64], alpha: f64, interrupt: Interrupt<'_>) -> Result<Weights, FitError> {
    let passages = check(masks, outcomes)?;
    let columns: Vec<Column> = (0..passages).filter_map(|passage| column(masks, passage)).collect();
    let centre = mean(outcomes);
    let mut residuals: Vec<f64> = outcomes.iter().map(|outcome| outcome - centre).collect();
    let tolerance = TOLERANCE * residuals.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
    let mut standardised = vec![0.0; columns.len()];
    let mut converged = false;
    for _ in 0..MOST_SWEEPS {
        if interrupt() {
            return Err(FitError::Interrupted);
        }
        if sweep(&columns, alpha, &mut standardised, &mut residuals) <= tolerance {
            converged = true;
            break;
        }
    }
    let mut weights = vec![0.0; passages];
    // A column that ties with a weighted one lies at the border of the penalty. A weight left there by rounding
    // counts as 0, because it would break ties among passages without weight.
    for (column, weight) in columns.iter().zip(&standardised).filter(|(_, weight)| weight.abs() > tolerance) {
        weights[column.passage] = weight / column.deviation;
    }
    let at_means: f64 = columns.iter().map(|column| weights[column.passage] * column.mean).sum();
    Ok(Weights { passages: weights, intercept: centre - at_means, converged })
}

/// Returns the number of passages.
fn check(masks: &[Vec<bool>], outcomes: &[f64]) -> Result<usize, FitError> {
    let invalid = |field: &str, problem: &str| FitError::Invalid { field: field.into(), problem: problem.into() };
    let Some(first) = masks.first() else { return Err(invalid("masks", "must not be empty")) };
    if masks.iter().any(|mask| mask.len() != first.len()) {
        return Err(invalid("masks", "must have one length"));
    }
    if outcomes.len() != masks.len() || outcomes.iter().any(|outcome| !outcome.is_finite()) {
        return Err(invalid("outcomes", "must be one finite number for each mask"));
    }
    Ok(first.len())
}

/// `None` for a constant column.
fn column(masks: &[Vec<bool>], passage: usize) -> Option<Column> {
    let inside = masks.iter().filter(|mask| mask[passage]).count();
    if inside == 0 || inside == masks.len() {
        return None;
    }
    let share = real(inside) / real(masks.len());
    let deviation = (share * (1.0 - share)).sqrt();
    let values = masks.iter().map(|mask| (f64::from(u8::from(mask[passage])) - share) / deviation).collect();
    Some(Column { passage, mean: share, deviation, values })
}

/// Moves each weight to its best value for the current others. Returns the largest move.
fn sweep(columns: &[Column], alpha: f64, weights: &mut [f64], residuals: &mut [f64]) -> f64 {
    let n = real(residuals.len());
    let mut largest = 0.0_f64;
    for (column, weight) in columns.iter().zip(weights) {
        let along: f64 = column.values.iter().zip(&*residuals).map(|(value, residual)| value * residual).sum();
        // The mean square of a standardised column is 1.
        let best = soft_threshold(along / n + *weight, alpha);
        let step = best - *weight;
        if step != 0.0 {
            for (residual, value) in residuals.iter_mut().zip(&column.values) {
                *residual -= step * value;
            }
            *weight = best;
            largest = largest.max(step.abs());
        }
    }
    largest
}

/// The minimum of `(w - value)² / 2 + alpha |w|`.
fn soft_threshold(value: f64, alpha: f64) -> f64 {
    value.signum() * (value.abs() - alpha).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fit(masks: &[Vec<bool>], outcomes: &[f64], alpha: f64) -> Weights {
        lasso(masks, outcomes, alpha, &|| false).unwrap()
    }

    /// Masks 00 10 01 11 are ±1 when standardised, and orthogonal: weights 1/2 and 1 lose 0.01 each, and are doubled.
    #[test]
    fn two_passages_by_hand() {
        let masks = subsets(2, 32, 0);
        assert_eq!(masks, [[false, false], [true, false], [false, true], [true, true]]);
        let fitted = fit(&masks, &[0.0, 1.0, 2.0, 3.0], 0.01);
        // With an answer of 5 tokens: 4.9, 9.9 and 0.1.
        for (value, expected) in [(fitted.passages[0], 0.98), (fitted.passages[1], 1.98), (fitted.intercept, 0.02)] {
            assert!((value - expected).abs() < 1e-12, "{value} {expected}");
        }
        assert!(fitted.converged);
    }

    #[test]
    fn small_effects_and_constant_columns_have_no_weight() {
        let masks = [vec![true, false], vec![true, true], vec![true, false], vec![true, true]];
        let fitted = fit(&masks, &[1.0, 1.019, 1.0, 1.019], 0.01);
        assert_eq!(fitted.passages, vec![0.0, 0.0]);
        assert!((fitted.intercept - 1.0095).abs() < 1e-12);
        assert_eq!(fit(&[vec![true]], &[3.0], 0.01), Weights { passages: vec![0.0], intercept: 3.0, converged: true });
    }

    #[test]
    fn equal_columns_give_their_weight_to_the_earlier_passage() {
        let masks = [vec![false, false], vec![true, true]];
        let fitted = fit(&masks, &[0.0, 1.0], 0.01);
        assert!((fitted.passages[0] - 0.98).abs() < 1e-12 && fitted.passages[1] == 0.0);
    }

    #[test]
    fn few_passages_have_all_their_subsets_and_many_have_fair_draws() {
        for (n, count) in [(0, 1), (1, 2), (5, 32), (6, 32), (64, 32), (100, 32)] {
            let masks = subsets(n, 32, 7);
            assert_eq!((masks.len(), masks[0].len()), (count, n));
            assert_eq!(masks, subsets(n, 32, 7));
        }
        let mut five = subsets(5, 32, 0);
        five.sort();
        five.dedup();
        assert_eq!(five.len(), 32);
        assert_ne!(subsets(9, 32, 0), subsets(9, 32, 1));
        let kept = subsets(1_000, 32, 3).iter().flatten().filter(|kept| **kept).count();
        // Half of 32,000, and more than five standard deviations on either side.
        assert!(kept.abs_diff(16_000) < 500, "{kept}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let refused = |masks: &[Vec<bool>], outcomes: &[f64]| lasso(masks, outcomes, 0.01, &|| false).is_err();
        assert!(refused(&[], &[]) && refused(&[vec![true]], &[]) && refused(&[vec![true]], &[f64::NAN]));
        assert!(refused(&[vec![true], vec![]], &[1.0, 2.0]));
        assert_eq!(lasso(&[vec![true]], &[1.0], 0.01, &|| true), Err(FitError::Interrupted));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Optimality: the residuals' covariance with a standardised column is alpha times the weight's sign if the
        /// weight is not 0, and at most alpha if it is. Also with more passages than subsets. With a penalty far
        /// below the usual 0.01, and nearly as many passages as subsets, the descent may not end within its sweeps,
        /// and reports that.
        #[test]
        fn the_conditions_of_optimality_hold(n in 1_usize..48, seed in any::<u64>(), alpha in 0.01_f64..0.5, noise in proptest::collection::vec(-3.0_f64..3.0, 32)) {
            let masks = subsets(n, 32, seed);
            let effect = |mask: &Vec<bool>| if mask[0] { 2.0 } else { 0.0 };
            let outcomes: Vec<f64> = masks.iter().zip(&noise).map(|(mask, noise)| effect(mask) + noise).collect();
            let fitted = fit(&masks, &outcomes, alpha);
            prop_assert!(fitted.converged);
            let predicted = |mask: &Vec<bool>| {
                let inside = mask.iter().zip(&fitted.passages).filter(|(inside, _)| **inside);
                fitted.intercept + inside.map(|(_, weight)| weight).sum::<f64>()
            };
            let residuals: Vec<f64> = masks.iter().zip(&outcomes).map(|(mask, y)| y - predicted(mask)).collect();
            prop_assert!(mean(&residuals).abs() < 1e-9, "the intercept");
            for passage in 0..n {
                let Some(column) = column(&masks, passage) else { continue };
                let products: Vec<f64> = column.values.iter().zip(&residuals).map(|(z, r)| z * r).collect();
                let (along, weight) = (mean(&products), fitted.passages[passage]);
                if weight == 0.0 {
                    prop_assert!(along.abs() <= alpha + 1e-7, "{along} {alpha}");
                } else {
                    prop_assert!((along - alpha * weight.signum()).abs() < 1e-7, "{along} {alpha} {weight}");
                }
            }
        }
    }
}
