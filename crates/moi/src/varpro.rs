//! Variable projection (Golub and Pereyra): utilities are eliminated exactly, position weights move by quadratic
//! programmes.
//!
//! For weights `a` the utilities solve `K w = Z's`. With `H0 = U'U - (Z'U)'K⁻¹(Z'U)`, the step solves
//! `min ½x'Px + q'x` on the simplex, `P = 2(H0 + diag ρ + μcI)`, `q = 2(U'(Ua + c - s) - H0 a - ρ a0 - μc a)`. The damping
//! `μ` falls after a step that lowers the objective and rises after one that does not (Levenberg and Marquardt).
//!
//! The objective is not convex in `(a, u)` jointly, so a fit may use several starts. At the default regularisation
//! (`super::Settings`) the prior by itself reaches the best value of any start; weaker regularisation needs more
//! starts.

use nalgebra::{DMatrix, DVector};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::problem::{Problem, factor};
use super::solve::simplex_qp;
use super::{FitError, check};
use numeric::{Interrupt, real};

/// Most accepted steps of one start.
const STEPS: usize = 200;

/// Most quadratic programmes of one step, each with more damping than the one before.
const DAMPINGS: usize = 12;

/// Starting points of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// Only the prior.
    Prior,
    /// The prior, its reverse, and both signs of the leading direction of the data.
    Spectral,
    /// `Spectral` with three directions, and eight random points of the simplex.
    Many,
}

impl Starts {
    /// Most points from which the search begins.
    pub(super) const fn count(self) -> u64 {
        match self {
            Self::Prior => 1,
            Self::Spectral => 4,
            Self::Many => 16,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub weights: DVector<f64>,
    /// Utilities, then the intercepts of all groups except the first.
    pub unknowns: DVector<f64>,
    pub objective: f64,
    pub iterations: usize,
    /// True if the search ended because the objective stopped falling.
    pub converged: bool,
}

/// When the search of a start ends, and which of several solutions wins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    /// A start ends when a step lowers the objective by less than this share.
    pub tolerance: f64,
    /// A later start replaces an earlier one only if its objective is lower by more than this.
    pub slack: f64,
}

/// Minimises the objective from every start and returns the best solution.
pub(super) fn search(
    problem: &Problem,
    starts: Starts,
    stop: Stop,
    interrupt: Interrupt<'_>,
) -> Result<State, FitError> {
    let mut best: Option<State> = None;
    let mut failure = FitError::NotSolved { status: "no start".into() };
    for start in candidates(problem, starts) {
        match descend(problem, start, stop.tolerance, interrupt, &simplex_qp) {
            Ok(state) if best.as_ref().is_none_or(|held| state.objective < held.objective - stop.slack) => {
                best = Some(state);
            }
            Ok(_) => {}
            Err(FitError::Interrupted) => return Err(FitError::Interrupted),
            Err(error) => failure = error,
        }
    }
    best.ok_or(failure)
}

/// The position weights of each group, and the utilities in the units of the scores.
pub(super) fn finish(problem: &Problem, state: &State) -> (Vec<Vec<f64>>, Vec<f64>) {
    let weights = |group: usize| state.weights.as_slice()[problem.span(group)].to_vec();
    let utilities = state.unknowns.iter().take(problem.passages).copied().collect();
    ((0..problem.groups.len()).map(weights).collect(), utilities)
}

/// Solves the quadratic programme of a step: [`simplex_qp`] outside of tests.
type Programme<'a> = dyn Fn(&Problem, &DMatrix<f64>, &DVector<f64>) -> Result<DVector<f64>, FitError> + 'a;

/// Lowers the objective from one start. An unsolved quadratic programme counts as a step that does not lower the
/// objective: more damping makes the next one better conditioned. If none of a step's programmes is solved, the
/// last state is returned, marked as not converged.
fn descend(
    problem: &Problem,
    start: DVector<f64>,
    tolerance: f64,
    interrupt: Interrupt<'_>,
    programme: &Programme<'_>,
) -> Result<State, FitError> {
    let (scores, prior, pull) = (problem.scores(), problem.prior(), problem.pull());
    let mut state = evaluate(problem, start, &scores)?;
    let mut damping = 1e-3;
    while state.iterations < STEPS {
        check(interrupt)?;
        let z = problem.z(&state.weights);
        let u = problem.u(&state.unknowns);
        let cross = z.transpose() * &u;
        let curvature = u.transpose() * &u;
        let Ok(normal) = factor(&problem.normal_matrix(&z)) else { return Ok(state) };
        let projected = normal.solve(&cross);
        let mut h0 = &curvature - cross.transpose() * projected;
        h0 = (&h0 + h0.transpose()) * 0.5;
        let scale = curvature.trace() / real(problem.positions());
        let residual = &z * &state.unknowns - &scores;
        let before = state.objective;
        let (mut accepted, mut failed) = (false, false);
        for _ in 0..DAMPINGS {
            check(interrupt)?;
            let lift = damping * scale;
            let mut p = &h0 * 2.0;
            for index in 0..p.nrows() {
                p[(index, index)] += 2.0 * (pull[index] + lift);
            }
            let q =
                (u.transpose() * &residual - &h0 * &state.weights - pull.component_mul(&prior) - &state.weights * lift)
                    * 2.0;
            match programme(problem, &p, &q).and_then(|weights| evaluate(problem, weights, &scores)) {
                Ok(mut next) if next.objective <= state.objective => {
                    next.iterations = state.iterations + 1;
                    state = next;
                    damping = (damping / 8.0).max(1e-10);
                    accepted = true;
                    break;
                }
                outcome => {
                    failed |= outcome.is_err();
                    damping = (damping * 6.0).max(1e-6);
                }
            }
        }
        if !accepted || before - state.objective <= tolerance * before.max(1e-12) {
            state.converged = accepted || !failed;
            break;
        }
    }
    Ok(state)
}

/// The best utilities for the weights, and the objective there.
fn evaluate(problem: &Problem, weights: DVector<f64>, scores: &DVector<f64>) -> Result<State, FitError> {
    let unknowns = utility_step(problem, &weights, scores)?;
    let objective = problem.objective(&weights, &unknowns);
    if !objective.is_finite() {
        return Err(FitError::NotSolved { status: "the objective is not finite".into() });
    }
    Ok(State { weights, unknowns, objective, iterations: 0, converged: false })
}

/// Ridge least squares for `w` at fixed weights.
pub(super) fn utility_step(
    problem: &Problem,
    weights: &DVector<f64>,
    scores: &DVector<f64>,
) -> Result<DVector<f64>, FitError> {
    let z = problem.z(weights);
    // Weights sum to one, so a constant moves from the scores to the utilities. Utilities that no score determines
    // then stay at the mean: without a pull they would be 0, above any log-probability.
    let centre = if problem.lam > 0.0 { 0.0 } else { scores.mean() };
    let moved = scores.add_scalar(-centre);
    let mut unknowns = factor(&problem.normal_matrix(&z))?.solve(&(z.transpose() * moved));
    // The intercepts of further lengths follow the utilities; a constant does not move them.
    unknowns.rows_mut(0, problem.passages).add_scalar_mut(centre);
    Ok(unknowns)
}

/// The starting points of the search, within the constraints: an invalid start can have a lower objective than
/// every valid point, and then no step would leave it.
fn candidates(problem: &Problem, starts: Starts) -> Vec<DVector<f64>> {
    let mut points = unconstrained(problem, starts);
    for (index, _) in problem.groups.iter().enumerate().filter(|(_, group)| group.monotone) {
        for point in &mut points {
            point.as_mut_slice()[problem.span(index)].sort_by(|left, right| right.total_cmp(left));
        }
    }
    points
}

fn unconstrained(problem: &Problem, starts: Starts) -> Vec<DVector<f64>> {
    let prior = problem.prior();
    let mut points = vec![prior.clone()];
    // Several lengths identify direction and scale: one start is enough.
    if starts == Starts::Prior || problem.groups.len() > 1 || problem.positions() < 2 {
        return points;
    }
    let uniform = 1.0 / real(problem.positions());
    points.extend(along(&prior.map(|weight| uniform - weight)));
    let directions = leading_directions(problem);
    let kept = if starts == Starts::Many { 3 } else { 1 };
    for direction in directions.iter().take(kept) {
        points.extend(along(direction));
        points.extend(along(&-direction));
    }
    if starts == Starts::Many {
        let mut source = ChaCha8Rng::seed_from_u64(0);
        for _ in 0..8 {
            let draws = DVector::from_fn(problem.positions(), |_, _| -(1.0 - uniform_draw(&mut source)).ln());
            let total = draws.sum();
            points.push(draws / total);
        }
    }
    points
}

fn uniform_draw(source: &mut ChaCha8Rng) -> f64 {
    use rand::Rng;
    f64::from(source.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

/// The point of the simplex nine tenths of the distance from its centre to its boundary, along a direction that sums to zero.
fn along(direction: &DVector<f64>) -> Option<DVector<f64>> {
    let n = real(direction.len());
    let reach = -direction.min();
    (reach > 1e-12).then(|| direction.map(|step| 1.0 / n + 0.9 * step / (n * reach)))
}

/// Right singular vectors of the doubly centred passage-by-position score sums, N × positions.
fn leading_directions(problem: &Problem) -> Vec<DVector<f64>> {
    let scores = problem.scores();
    let centre = scores.mean();
    let mut sums = DMatrix::zeros(problem.passages, problem.positions());
    for (row, score) in problem.rows.iter().zip(scores.iter()) {
        for (position, &passage) in row.order.iter().enumerate() {
            sums[(passage, position)] += score - centre;
        }
    }
    let column_means = sums.row_mean();
    let row_means = sums.column_mean();
    let grand = sums.mean();
    for row in 0..sums.nrows() {
        for column in 0..sums.ncols() {
            sums[(row, column)] += grand - column_means[column] - row_means[row];
        }
    }
    let svd = sums.svd(false, true);
    let Some(right) = svd.v_t else { return Vec::new() };
    let mut order: Vec<usize> = (0..svd.singular_values.len()).collect();
    let singular: &[f64] = svd.singular_values.as_slice();
    order.sort_by(|&l, &r| singular[r].total_cmp(&singular[l]));
    order.into_iter().filter(|&index| singular[index] > 1e-9).map(|index| right.row(index).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::problem::{Group, Row};
    use super::*;

    fn noisy() -> Problem {
        let prior = vec![0.6, 0.3, 0.1];
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0]];
        let rows = orders.iter().zip([3.0, -1.0, 0.5, 2.0, -2.5]);
        let rows = rows.map(|(order, score)| Row { group: 0, order: order.to_vec(), score }).collect();
        Problem::new(3, vec![Group { prior, rho: 0.1, monotone: false }], rows, 0.1).unwrap()
    }

    fn with_failures_after(solved: usize) -> State {
        let problem = noisy();
        let count = Cell::new(0);
        let failing = |problem: &Problem, p: &DMatrix<f64>, q: &DVector<f64>| {
            count.set(count.get() + 1);
            if count.get() > solved {
                return Err(FitError::NotSolved { status: "NumericalError".into() });
            }
            simplex_qp(problem, p, q)
        };
        descend(&problem, problem.prior(), 1e-9, &|| false, &failing).unwrap()
    }

    #[test]
    fn a_programme_that_is_not_solved_keeps_the_state_before_it() {
        let (whole, cut, none) = (with_failures_after(1_000), with_failures_after(2), with_failures_after(0));
        assert!(whole.converged && whole.iterations > 2, "{whole:?}");
        assert!(!cut.converged && cut.iterations > 0, "{cut:?}");
        assert!(whole.objective < cut.objective && cut.objective < none.objective);
        assert!(!none.converged && none.weights == noisy().prior());
    }

    #[test]
    fn one_failure_is_answered_by_more_damping() {
        let problem = noisy();
        let count = Cell::new(0);
        let failing = |problem: &Problem, p: &DMatrix<f64>, q: &DVector<f64>| {
            count.set(count.get() + 1);
            if count.get() == 2 {
                return Err(FitError::NotSolved { status: "NumericalError".into() });
            }
            simplex_qp(problem, p, q)
        };
        let state = descend(&problem, problem.prior(), 1e-9, &|| false, &failing).unwrap();
        assert!(state.converged);
        assert!((state.objective - with_failures_after(1_000).objective).abs() < 1e-6 * state.objective);
    }
}
