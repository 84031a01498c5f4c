//! Selection of further prompts, and the condition to stop.
//!
//! Let `V` be the covariance of the utilities. A prompt with design row `z` lowers it by `yy' / (σ² + z'y)`,
//! `y = Vz`. The order of the first ranks matters: let `W` be the Laplacian of the pairs of adjacent ranks there,
//! each weighted by the probability that its order is wrong. The gain of a prompt is `y'Wy / (σ² + z'y)`. Prompts
//! of a round are picked one by one, and `V` is updated after each.

use std::collections::HashSet;

use nalgebra::{DMatrix, DVector};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::uncertainty::outranks;
use super::{Estimate, FitError, check};
use numeric::Interrupt;

/// Random prompts considered for each pick if there are too many to consider all.
const DRAWS: usize = 80;

/// When the ranking is certain enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Ranks that must be certain.
    pub top: usize,
    /// Least probability that the passage of such a rank outranks the next one.
    pub probability: f64,
}

impl Goal {
    /// True if every passage of the first ranks outranks the next one with at least the probability.
    #[must_use]
    pub fn reached(&self, estimate: &Estimate) -> bool {
        estimate.outranks_next.iter().take(self.top).all(|probability| *probability >= self.probability)
    }
}

/// Up to `count` orders of `length` passages that are not in `seen`, largest gain first. Candidates are drawn over
/// the positions in `named`, the passages in an order independent of the request's.
///
/// # Errors
/// [`FitError::Interrupted`].
pub fn next_orders(
    estimate: &Estimate,
    length: usize,
    count: usize,
    (seen, named): (&HashSet<Vec<usize>>, &[usize]),
    goal: Goal,
    seed: u64,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let Some(weights) = estimate.bias.iter().find(|weights| weights.len() == length) else { return Ok(Vec::new()) };
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    let mut covariance = estimate.covariance.clone();
    let noise = estimate.diagnostics.noise_variance.max(1e-9);
    let mut taken: HashSet<Vec<usize>> = HashSet::new();
    let mut picked = Vec::new();
    for _ in 0..count {
        check(interrupt)?;
        let attention = attention(estimate, &covariance, goal);
        let gain = |order: &[usize]| {
            let z = row(order, weights, named.len());
            let y = &covariance * &z;
            y.dot(&(&attention * &y)) / (noise + z.dot(&y))
        };
        let fresh = |order: &Vec<usize>| !seen.contains(order) && !taken.contains(order);
        let pool = candidates(named, length, &mut source).into_iter().filter(fresh);
        let best = pool.map(|order| (gain(&order), order)).max_by(|left, right| left.0.total_cmp(&right.0));
        let Some((_, order)) = best else { break };
        let z = row(&order, weights, named.len());
        let y = &covariance * &z;
        covariance -= &y * y.transpose() / (noise + z.dot(&y));
        taken.insert(order.clone());
        picked.push(order);
    }
    Ok(picked)
}

fn row(order: &[usize], weights: &[f64], n: usize) -> DVector<f64> {
    let mut z = DVector::zeros(n);
    for (&p, &weight) in order.iter().zip(weights) {
        z[p] = weight;
    }
    z
}

/// All ordered pairs of up to 20 passages, otherwise random orders.
fn candidates(named: &[usize], length: usize, source: &mut ChaCha8Rng) -> Vec<Vec<usize>> {
    if length == 2 && named.len() <= 20 {
        let others = |p: usize| named.iter().filter(move |q| **q != p).map(move |&q| vec![p, q]);
        return named.iter().flat_map(|&p| others(p)).collect();
    }
    let mut all = named.to_vec();
    (0..DRAWS)
        .map(|_| {
            all.shuffle(source);
            all[..length.min(named.len())].to_vec()
        })
        .collect()
}

/// Laplacian over the pairs of adjacent ranks, the last of them `goal.top` and the next.
fn attention(estimate: &Estimate, covariance: &DMatrix<f64>, goal: Goal) -> DMatrix<f64> {
    let n = estimate.utilities.len();
    let mut laplacian = DMatrix::zeros(n, n);
    for pair in estimate.ranking.windows(2).take(goal.top) {
        let (left, right) = (pair[0], pair[1]);
        let doubt = 1.0 - outranks(&estimate.fitted, covariance, left, right);
        laplacian[(left, left)] += doubt;
        laplacian[(right, right)] += doubt;
        laplacian[(left, right)] -= doubt;
        laplacian[(right, left)] -= doubt;
    }
    laplacian
}

#[cfg(test)]
mod tests {
    use super::super::{Observation, Settings, design, estimate};
    use super::*;
    use numeric::real;

    fn world(order: &[usize], utilities: &[f64]) -> f64 {
        let noise = order.iter().enumerate().map(|(j, &p)| real((j + 1) * (p + 3)).sin()).sum::<f64>();
        match order {
            [p] => utilities[*p] - 20.0 + 0.3 * noise,
            [p, q] => 0.3 * utilities[*p] + 0.7 * utilities[*q] - 15.0 + 0.3 * noise,
            _ => unreachable!("only short prompts are scored"),
        }
    }

    #[test]
    fn rounds_lower_the_errors_of_the_first_ranks() {
        let utilities = [2.0, 1.9, -1.0, 0.0, -3.0, -2.0];
        let whole = design::orders(design::Design::Latin, 6, 6, 1, &|| false).unwrap();
        let mut seen: HashSet<Vec<usize>> = design::prefixes(&whole, 2).into_iter().collect();
        let goal = Goal { top: 1, probability: 0.999 };
        let fit = |seen: &HashSet<Vec<usize>>| {
            let mut orders: Vec<&Vec<usize>> = seen.iter().collect();
            orders.sort();
            let observations: Vec<Observation> =
                orders.into_iter().map(|o| Observation { order: o.clone(), score: world(o, &utilities) }).collect();
            estimate(6, &observations, None, &Settings::default(), &|| false).unwrap()
        };
        let before = fit(&seen);
        let next = next_orders(&before, 2, 4, (&seen, &[0, 1, 2, 3, 4, 5]), goal, 0, &|| false).unwrap();
        assert_eq!(next.len(), 4);
        assert!(next.iter().all(|order| !seen.contains(order)));
        let doubtful = [before.ranking[0], before.ranking[1]];
        assert!(next[0].iter().any(|p| doubtful.contains(p)), "the first prompt holds a passage of the first ranks");
        seen.extend(next);
        let after = fit(&seen);
        let spread = |e: &Estimate| e.standard_errors.as_ref().map(|errors| errors[0] + errors[1]);
        assert!(spread(&after) < spread(&before));
    }

    #[test]
    fn a_certain_ranking_reaches_the_goal() {
        let observations: Vec<Observation> =
            (0..3).map(|p| Observation { order: vec![p], score: -10.0 * real(p) }).collect();
        let mut settled = estimate(3, &observations, None, &Settings::default(), &|| false).unwrap();
        settled.outranks_next = vec![0.95, 0.4];
        assert!(Goal { top: 1, probability: 0.9 }.reached(&settled));
        assert!(!Goal { top: 2, probability: 0.9 }.reached(&settled));
        let goal = Goal { top: 1, probability: 0.9 };
        assert!(next_orders(&settled, 2, 3, (&HashSet::new(), &[0, 1, 2]), goal, 0, &|| false).unwrap().is_empty());
        let stopped = next_orders(&settled, 1, 3, (&HashSet::new(), &[0, 1, 2]), goal, 0, &|| true);
        assert_eq!(stopped, Err(FitError::Interrupted));
    }
}
