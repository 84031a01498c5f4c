//! Errors and diagnostics of a fit: noise level, mean squared errors of the utilities, rank, leave-one-out residuals.
//!
//! **Noise.** Let `Z0 = Z(a0)` on the utilities, centred within each length, let `w_i` be the eigenvalues of
//! `Z0 C Z0'`, and `y_i` the scores in its eigenbasis. The variance of `y_i` is `κ V_i`,
//! `V_i = (1-g) w_i / D0 + g`, so `g` is the share of noise and `κ g` the noise variance. The profile likelihood is
//! `-½ Σ ln V - ½ n ln(Σ y²/V / n)`; with the prior `g (1-g)` it gives the posterior of `g` on [0.03, 0.97]. At
//! most `N` eigenvalues are not 0, so an N × N problem suffices.
//!
//! **Errors.** The fit assumes one share of noise (`Settings::sigma2`). If the scores have less, it shrinks the
//! utilities too much; if they have more, too little. Errors therefore are mean squared errors of the reported
//! utilities over the posterior of `g`: `E_g[κ g H_g⁻¹ + δ_g δ_g']`. `H_g` is the Hessian of the objective with the
//! penalties for `g`, with the position weights eliminated, and `δ_g` the Gauss-Newton step from the reported
//! solution to the minimum of that objective. Weights move in an orthonormal basis of the directions in which the
//! active weights of each length (those above 1e-7) keep their sum.
//!
//! **Whole orders** leave the scale of `(a - 1/N, u - ū)` open, so the data do not determine an error in nats. The
//! errors are those at the chosen scale, without the direction of the scale; they only serve the order of the
//! passages. If the true weights are equal, the scores are pure noise, and the prior still finds a ranking. The
//! probability that one passage outranks another is therefore `½ + π (Φ - ½)`, with `π` the posterior probability
//! of any signal, ½ before the scores are seen.

use nalgebra::{DMatrix, DVector, SymmetricEigen};
use statrs::distribution::{ContinuousCDF, Normal};

use super::problem::{Problem, factor};
use super::varpro::State;
use super::{FitError, check};
use numeric::{Interrupt, mean, real};

/// Fit quality. Ratios have no unit; `noise_variance` is in squared units of the fitted scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostics {
    /// Share of the score variance that the fit explains; `None` for constant scores. Uninformative for M <= 2N.
    pub r2: Option<f64>,
    /// The same share with every observation predicted by a fit to the others (linearised).
    pub loo_r2: Option<f64>,
    /// Rank of the Jacobian over position weights (sum fixed) and linear unknowns.
    pub jacobian_rank: usize,
    /// Rank at which the scores determine utilities and weights: 2N - 2 for whole orders.
    pub rank_needed: usize,
    /// Largest over smallest non-zero singular value of the Jacobian.
    pub condition: f64,
    /// Distinct orders among the observations.
    pub distinct: usize,
    /// Estimated noise variance, in squared units of the fitted scores.
    pub noise_variance: f64,
    /// Log-likelihood ratio of the best `g` against g = 0.97, almost only noise; above 1.35 means signal.
    pub signal: f64,
    /// True if the scores by themselves determine utilities and weights, up to the scale of whole orders; otherwise
    /// the prior determines the rest.
    pub identifiable: bool,
    /// True if the scores determine the strength of the position bias, and with it the unit of the utilities. Whole
    /// orders do not: `(a - 1/N, u - ū)` and `(c (a - 1/N), (u - ū) / c)` predict the same scores. The prior then sets
    /// both.
    pub scale_identified: bool,
    /// True if the search ended because the objective stopped falling. If not, a quadratic programme was not solved or the
    /// steps ran out, and the fit is the best state reached ([`NOT_CONVERGED`]).
    pub converged: bool,
}

impl Diagnostics {
    /// How the fit ended, in one word: `converged`, `not_converged`, or `not_identifiable` if it converged to
    /// values that the prior determines in part.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match (self.converged, self.identifiable) {
            (false, _) => "not_converged",
            (true, false) => "not_identifiable",
            (true, true) => "converged",
        }
    }
}

/// Warning for a fit that did not converge.
pub const NOT_CONVERGED: &str =
    "the fit did not converge: utilities and position bias are the best that the solver reached";

/// Warning for a fit of whole orders.
pub const SCALE_FROM_PRIOR: &str = "every prompt held every passage: the scores tell the direction and the shape of the position bias, \
                                    not its strength, so the prior set the strength and the unit of the utilities; prompts of \
                                    several lengths tell both";

/// Errors of a fit.
pub(super) struct Errors {
    pub diagnostics: Diagnostics,
    /// Mean squared errors of the utilities, N × N, in squared units of the fitted scores.
    pub covariance: DMatrix<f64>,
    /// Probability that the scores hold any signal; 1 for designs without that doubt.
    pub signal_probability: f64,
}

/// Diagnostics and errors of a solution. `sigma2` is the share of noise that the penalties of the problem assume.
pub(super) fn assess(
    problem: &Problem,
    state: &State,
    sigma2: f64,
    interrupt: Interrupt<'_>,
) -> Result<Errors, FitError> {
    let scores = problem.scores();
    let z = problem.z(&state.weights);
    let u = problem.u(&state.unknowns);
    check(interrupt)?;
    let (rank, condition) = jacobian(problem, &u, &z);
    check(interrupt)?;
    let needed = rank_needed(problem);
    let distinct = distinct(problem);
    let noise = noise(problem, &scores);
    check(interrupt)?;

    let total = within_length_squares(problem, &scores);
    let constant = total.sqrt() <= 1e-9 * real(problem.observations()).sqrt() * scores.mean().abs().max(1.0);
    let residual = &z * &state.unknowns - &scores;
    let share = |left: f64| (!constant).then(|| 1.0 - left / total);

    let active: Vec<bool> = state.weights.iter().map(|weight| *weight > 1e-7).collect();
    let basis = at_scale(problem, &state.weights, simplex_basis(problem, &active));
    let ub = &u * &basis;
    let pull = basis.transpose() * DMatrix::from_diagonal(&problem.pull()) * &basis;
    let k = problem.normal_matrix(&z);
    let linear = Linear { problem, state, z: &z, basis: &basis, ub: &ub, residual: &residual, sigma2 };
    let covariance = linear.squared_errors(&noise.shares, interrupt)?;
    check(interrupt)?;
    let loo = leave_one_out(&ub, &z, &pull, &k, &residual)?;
    let diagnostics = Diagnostics {
        r2: share(residual.norm_squared()),
        loo_r2: share(loo),
        jacobian_rank: rank,
        rank_needed: needed,
        condition,
        distinct,
        noise_variance: noise.variance,
        signal: noise.signal,
        identifiable: !constant && rank >= needed && distinct >= needed,
        scale_identified: !has_free_scale(problem) || problem.passages == 1,
        converged: state.converged,
    };
    let signal_probability = if has_free_scale(problem) { noise.signal_probability } else { 1.0 };
    Ok(Errors { diagnostics, covariance, signal_probability })
}

/// `Φ(Δu / sd)`, the probability that `left` outranks `right`; ½ if the difference and its variance are 0.
pub(super) fn outranks(utilities: &[f64], covariance: &DMatrix<f64>, left: usize, right: usize) -> f64 {
    let difference = utilities[left] - utilities[right];
    let variance = covariance[(left, left)] + covariance[(right, right)] - 2.0 * covariance[(left, right)];
    if variance <= 0.0 {
        return if difference == 0.0 { 0.5 } else { f64::from(u8::from(difference > 0.0)) };
    }
    Normal::standard().cdf(difference / variance.sqrt())
}

/// Mean of `|2p - 1|` over all pairs: the expected Kendall tau between this ranking and the true one.
pub(super) fn expected_tau(utilities: &[f64], covariance: &DMatrix<f64>) -> f64 {
    let mut terms = Vec::new();
    for left in 0..utilities.len() {
        for right in 0..left {
            terms.push((2.0 * outranks(utilities, covariance, left, right) - 1.0).abs());
        }
    }
    if terms.is_empty() { 1.0 } else { mean(&terms) }
}

fn rank_needed(problem: &Problem) -> usize {
    let moves: usize = problem.groups.iter().map(|group| group.prior.len().saturating_sub(1)).sum();
    let free = moves + problem.unknowns();
    free - usize::from(has_free_scale(problem))
}

/// True if the prompts are whole orders, which leave scale and sign of `(a - 1/N, u - ū)` open.
fn has_free_scale(problem: &Problem) -> bool {
    problem.groups.len() == 1 && problem.positions() == problem.passages
}

fn distinct(problem: &Problem) -> usize {
    let orders: std::collections::BTreeSet<&[usize]> = problem.rows.iter().map(|row| row.order.as_slice()).collect();
    orders.len()
}

/// Rank and condition number of the Jacobian of the predictions over position weights and linear unknowns.
fn jacobian(problem: &Problem, u: &DMatrix<f64>, z: &DMatrix<f64>) -> (usize, f64) {
    let by_weights = u * simplex_basis(problem, &vec![true; problem.positions()]);
    let mut j = DMatrix::zeros(z.nrows(), by_weights.ncols() + z.ncols());
    j.view_mut((0, 0), by_weights.shape()).copy_from(&by_weights);
    j.view_mut((0, by_weights.ncols()), z.shape()).copy_from(z);
    // R of J = QR has the same singular values. J'J would square them, and zeros would not stand out.
    let tall = j.nrows() > 2 * j.ncols();
    let singular = if tall { j.qr().r().singular_values() } else { j.singular_values() };
    let largest = singular.max();
    let kept: Vec<f64> = singular.iter().copied().filter(|value| *value > 1e-7 * largest).collect();
    let smallest = kept.iter().copied().fold(f64::INFINITY, f64::min);
    (kept.len(), if kept.is_empty() { f64::INFINITY } else { largest / smallest })
}

/// Orthonormal basis (Helmert contrasts) of the changes of active weights that keep the sum of every group.
fn simplex_basis(problem: &Problem, active: &[bool]) -> DMatrix<f64> {
    let mut columns = Vec::new();
    for group in 0..problem.groups.len() {
        let members: Vec<usize> = problem.span(group).filter(|&index| active[index]).collect();
        for size in 1..members.len() {
            let norm = (real(size) * real(size + 1)).sqrt();
            let mut column = DVector::zeros(problem.positions());
            for &member in &members[..size] {
                column[member] = 1.0 / norm;
            }
            column[members[size]] = -real(size) / norm;
            columns.push(column);
        }
    }
    if columns.is_empty() { DMatrix::zeros(problem.positions(), 0) } else { DMatrix::from_columns(&columns) }
}

/// The basis without the direction in which only the scale of whole orders changes. Errors are those at the chosen
/// scale.
fn at_scale(problem: &Problem, weights: &DVector<f64>, basis: DMatrix<f64>) -> DMatrix<f64> {
    if !has_free_scale(problem) || weights.iter().any(|weight| *weight <= 1e-7) {
        return basis;
    }
    let gauge = basis.transpose() * weights.add_scalar(-1.0 / real(problem.passages));
    let squares = gauge.norm_squared();
    if squares <= 1e-12 {
        return basis;
    }
    let along = &basis * &gauge;
    basis - along * gauge.transpose() / squares
}

/// Subtracts from every column the mean of each length.
fn centre_lengths(problem: &Problem, matrix: &mut DMatrix<f64>) {
    for group in 0..problem.groups.len() {
        let members: Vec<usize> = (0..problem.rows.len()).filter(|&i| problem.rows[i].group == group).collect();
        for column in 0..matrix.ncols() {
            let centre = members.iter().map(|&i| matrix[(i, column)]).sum::<f64>() / real(members.len().max(1));
            for &i in &members {
                matrix[(i, column)] -= centre;
            }
        }
    }
}

/// Sum of squares of the scores around the mean of their length.
pub(super) fn within_length_squares(problem: &Problem, scores: &DVector<f64>) -> f64 {
    let mut column = DMatrix::from_column_slice(scores.len(), 1, scores.as_slice());
    centre_lengths(problem, &mut column);
    column.norm_squared()
}

/// The noise in the scores.
struct Noise {
    /// The likeliest noise variance, in squared units of the fitted scores.
    variance: f64,
    /// Log-likelihood ratio of the best share of noise against 0.97, almost only noise.
    signal: f64,
    /// Posterior probability that the scores hold any signal, ½ before they are seen.
    signal_probability: f64,
    /// Equally likely shares of noise `g` with their `κ`, ascending.
    shares: Vec<(f64, f64)>,
}

impl Noise {
    const fn none() -> Self {
        Self { variance: 0.0, signal: 0.0, signal_probability: 0.5, shares: Vec::new() }
    }
}

/// Shares of noise that represent the posterior.
const SHARES: u32 = 8;

fn noise(problem: &Problem, scores: &DVector<f64>) -> Noise {
    let d0 = problem.leverage();
    if d0 <= 1e-12 || problem.observations() < 2 {
        return Noise::none();
    }
    let mut z0 = problem.z(&problem.prior()).columns(0, problem.passages).into_owned();
    for row in 0..z0.nrows() {
        let centre = z0.row(row).mean();
        z0.row_mut(row).add_scalar_mut(-centre);
    }
    centre_lengths(problem, &mut z0);
    let mut centred = DMatrix::from_column_slice(scores.len(), 1, scores.as_slice());
    centre_lengths(problem, &mut centred);
    // Equal scores show no signal: their likelihood depends on rounding.
    let largest = scores.iter().fold(0.0_f64, |largest, score| largest.max(score.abs()));
    if centred.norm() <= 1e-12 * largest * real(scores.len()).sqrt() {
        return Noise::none();
    }
    // The other directions share the eigenvalue 0; the removed means are not among them.
    let signal: Vec<(f64, f64)> =
        spectrum(&z0, &centred).into_iter().map(|(value, square)| (value / d0, square)).collect();
    let rest = problem.observations().saturating_sub(problem.groups.len() + signal.len());
    let rest_squares = (centred.norm_squared() - signal.iter().map(|(_, square)| square).sum::<f64>()).max(0.0);
    let n = real(signal.len() + rest).max(1.0);
    let profile = |g: f64| {
        let variance = |w: f64| (1.0 - g) * w + g;
        let mut squares = signal.iter().map(|(w, square)| square / variance(*w)).sum::<f64>();
        let mut logs = signal.iter().map(|(w, _)| variance(*w).ln()).sum::<f64>();
        if rest > 0 {
            squares += rest_squares / g;
            logs += real(rest) * g.ln();
        }
        let scale = squares / n;
        (-0.5 * logs - 0.5 * n * scale.max(1e-300).ln(), scale)
    };
    let grid: Vec<f64> = (3..=97_u8).map(|percent| f64::from(percent) / 100.0).collect();
    let profiles: Vec<(f64, f64)> = grid.iter().map(|&g| profile(g)).collect();
    let free = profiles.iter().map(|(likelihood, _)| *likelihood).fold(f64::NEG_INFINITY, f64::max);
    let (without, _) = profile(1.0);
    let prior: f64 = grid.iter().map(|g| g * (1.0 - g)).sum();
    let weights: Vec<f64> = grid
        .iter()
        .zip(&profiles)
        .map(|(g, (likelihood, _))| g * (1.0 - g) / prior * (likelihood - free).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let best = (0..grid.len()).max_by(|&left, &right| weights[left].total_cmp(&weights[right])).unwrap_or(0);
    Noise {
        variance: grid[best] * profiles[best].1,
        signal: free - profile(0.97).0,
        signal_probability: total / (total + (without - free).exp()),
        shares: quantiles(&weights).map(|index| (grid[index], profiles[index].1)).collect(),
    }
}

/// The indices at which the cumulated weights reach the middles of [`SHARES`] equal parts.
fn quantiles(weights: &[f64]) -> impl Iterator<Item = usize> {
    let total: f64 = weights.iter().sum();
    let cumulated: Vec<f64> = weights
        .iter()
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect();
    (0..SHARES).map(move |part| {
        let middle = (f64::from(part) + 0.5) / f64::from(SHARES);
        cumulated.partition_point(|sum| *sum < middle).min(cumulated.len() - 1)
    })
}

/// The fit linearised at its solution.
struct Linear<'a> {
    problem: &'a Problem,
    state: &'a State,
    z: &'a DMatrix<f64>,
    /// Directions in which the weights move, and the effect on the predictions.
    basis: &'a DMatrix<f64>,
    ub: &'a DMatrix<f64>,
    residual: &'a DVector<f64>,
    /// Share of noise that the penalties of the problem assume.
    sigma2: f64,
}

impl Linear<'_> {
    /// Mean squared errors of the utilities over the shares of noise, N × N.
    fn squared_errors(&self, shares: &[(f64, f64)], interrupt: Interrupt<'_>) -> Result<DMatrix<f64>, FitError> {
        let n = self.problem.passages;
        let mut sum = DMatrix::zeros(n, n);
        for group in shares.chunk_by(|left, right| left.0.total_cmp(&right.0).is_eq()) {
            check(interrupt)?;
            sum += self.at(group[0].0, group[0].1)? * (real(group.len()) / real(shares.len()));
        }
        Ok(sum)
    }

    /// The matrix for a share of noise `g` and a noise variance `κ g`.
    fn at(&self, g: f64, kappa: f64) -> Result<DMatrix<f64>, FitError> {
        let (problem, n) = (self.problem, self.problem.passages);
        let lam = problem.lam * (g / (1.0 - g)) / (self.sigma2 / (1.0 - self.sigma2));
        let pull = problem.pull() * (g * kappa / self.sigma2);
        let normal = problem.normal_matrix_at(self.z, lam);
        let mut gradient = self.z.transpose() * self.residual;
        let utilities = self.state.unknowns.rows(0, n);
        let spread = utilities.add_scalar(-utilities.mean()) * lam;
        let mut by_utilities = gradient.rows_mut(0, n);
        by_utilities += spread;
        let (normal, gradient) = if self.basis.ncols() == 0 {
            (normal, gradient)
        } else {
            let drift = (&self.state.weights - problem.prior()).component_mul(&pull);
            let by_weights = self.ub.transpose() * self.residual + self.basis.transpose() * drift;
            let pull = self.basis.transpose() * DMatrix::from_diagonal(&pull) * self.basis;
            let inner = factor(&(self.ub.transpose() * self.ub + pull))?;
            let cross = self.ub.transpose() * self.z;
            let eliminated = normal - cross.transpose() * inner.solve(&cross);
            (eliminated, gradient - cross.transpose() * inner.solve(&by_weights))
        };
        let normal = factor(&((&normal + normal.transpose()) * 0.5))?;
        let step = normal.solve(&gradient).rows(0, n).into_owned();
        Ok(normal.inverse().view((0, 0), (n, n)) * (g * kappa) + &step * step.transpose())
    }
}

/// The non-zero eigenvalues of `Z0 Z0'`, M × M, each with the squared score along its eigenvector. They equal those
/// of the smaller of `Z0 Z0'` and `Z0' Z0`: for `Z0' Z0 v = wv` the eigenvector of `Z0 Z0'` is `Z0 v / √w`.
fn spectrum(z0: &DMatrix<f64>, scores: &DMatrix<f64>) -> Vec<(f64, f64)> {
    let tall = z0.nrows() > z0.ncols();
    let eigen = SymmetricEigen::new(if tall { z0.transpose() * z0 } else { z0 * z0.transpose() });
    let projected = eigen.eigenvectors.transpose() * if tall { z0.transpose() * scores } else { scores.clone_owned() };
    let floor = 1e-9 * eigen.eigenvalues.max().max(1e-300);
    (0..eigen.eigenvalues.len())
        .map(|i| (eigen.eigenvalues[i], projected[i].powi(2)))
        .filter(|(value, _)| *value > floor)
        .map(|(value, square)| (value, if tall { square / value } else { square }))
        .collect()
}

/// Sum of squared residuals, each divided by one minus its leverage in the linearised fit.
fn leave_one_out(
    ub: &DMatrix<f64>,
    z: &DMatrix<f64>,
    pull: &DMatrix<f64>,
    k: &DMatrix<f64>,
    residual: &DVector<f64>,
) -> Result<f64, FitError> {
    let (b, w) = (ub.ncols(), z.ncols());
    let mut j = DMatrix::zeros(z.nrows(), b + w);
    j.view_mut((0, 0), (z.nrows(), b)).copy_from(ub);
    j.view_mut((0, b), (z.nrows(), w)).copy_from(z);
    let mut normal = j.transpose() * &j;
    let mut corner = normal.view_mut((0, 0), (b, b));
    corner += pull;
    normal.view_mut((b, b), (w, w)).copy_from(k);
    let solved = factor(&normal)?.solve(&j.transpose());
    let leverage = |i: usize| j.row(i).transpose().dot(&solved.column(i));
    Ok((0..z.nrows()).map(|i| (residual[i] / (1.0 - leverage(i)).max(1e-6)).powi(2)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More rows than columns: the N × N problem gives the non-zero part of the M × M one.
    #[test]
    fn the_small_spectrum_is_that_of_the_large_matrix() {
        let (m, n) = (40, 6);
        let z0 = DMatrix::from_fn(m, n, |i, j| (real((i + 2) * (j + 3)) * 0.7).sin() + if j == 1 { 3.0 } else { 0.0 });
        let scores = DMatrix::from_fn(m, 1, |i, _| (real(i) * 1.3).cos());
        let sorted = |mut pairs: Vec<(f64, f64)>| {
            pairs.sort_by(|left, right| left.0.total_cmp(&right.0));
            pairs
        };
        let large = SymmetricEigen::new(&z0 * z0.transpose());
        let squares = large.eigenvectors.transpose() * &scores;
        let floor = 1e-9 * large.eigenvalues.max();
        let expected = (0..m).map(|i| (large.eigenvalues[i], squares[i].powi(2))).filter(|(value, _)| *value > floor);
        let (found, expected) = (sorted(spectrum(&z0, &scores)), sorted(expected.collect()));
        assert_eq!((found.len(), expected.len()), (n, n));
        for (ours, theirs) in found.iter().zip(&expected) {
            assert!((ours.0 - theirs.0).abs() < 1e-10 * theirs.0, "{ours:?} {theirs:?}");
            assert!((ours.1 - theirs.1).abs() < 1e-10 * theirs.1.max(1e-3), "{ours:?} {theirs:?}");
        }
    }
}
