//! The position-weight step as a quadratic programme. The only file that uses the solver crate.
//!
//! min ½ a'Pa + q'a subject to `Σ a_g = 1` for every group, `a >= 0`, and for monotone groups `a_j >= a_{j+1}`.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus, ZeroConeT};
use nalgebra::{DMatrix, DVector};

use super::FitError;
use super::problem::Problem;

/// Minimises the quadratic over the simplices of `problem`. `p` is symmetric and positive semi-definite.
///
/// # Errors
/// [`FitError::NotSolved`] with the solver's status if it does not end at a solution.
pub(super) fn simplex_qp(problem: &Problem, p: &DMatrix<f64>, q: &DVector<f64>) -> Result<DVector<f64>, FitError> {
    let n = problem.positions();
    let (constraints, bounds, equalities) = constraints(problem);
    let settings = DefaultSettings {
        verbose: false,
        max_threads: 1,
        tol_gap_abs: 1e-12,
        tol_gap_rel: 1e-12,
        tol_feas: 1e-12,
        // A programme that stalls before 1e-12 counts as solved at the solver's default accuracy.
        reduced_tol_gap_abs: 1e-8,
        reduced_tol_gap_rel: 1e-8,
        reduced_tol_feas: 1e-8,
        ..DefaultSettings::default()
    };
    let inequalities = bounds.len() - equalities;
    let cones = [ZeroConeT(equalities), NonnegativeConeT(inequalities)];
    let mut solver = DefaultSolver::new(&upper_triangle(p), q.as_slice(), &constraints, &bounds, &cones, settings)
        .map_err(|error| FitError::NotSolved { status: error.to_string() })?;
    solver.solve();
    match solver.solution.status {
        SolverStatus::Solved | SolverStatus::AlmostSolved => {}
        status => return Err(FitError::NotSolved { status: format!("{status:?}") }),
    }
    let mut weights = DVector::from_vec(solver.solution.x);
    debug_assert_eq!(weights.len(), n);
    // The interior point is off the simplex by rounding: project every group onto it.
    for group in 0..problem.groups.len() {
        let span = problem.span(group);
        let mut part = weights.rows_mut(span.start, span.len());
        part.apply(|weight| *weight = weight.max(0.0));
        let total = part.sum();
        part /= total;
    }
    Ok(weights)
}

/// `A`, `b` of `Ax + s = b`, and the number of leading equality rows.
fn constraints(problem: &Problem) -> (CscMatrix<f64>, Vec<f64>, usize) {
    let (mut rows, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut push = |row: usize, column: usize, value: f64| {
        rows.push(row);
        columns.push(column);
        values.push(value);
    };
    let equalities = problem.groups.len();
    let mut next = equalities;
    for (index, group) in problem.groups.iter().enumerate() {
        let span = problem.span(index);
        let last = span.end - 1;
        for column in span {
            push(index, column, 1.0);
            // In a monotone group a_j >= a_{j+1} .. >= a_last >= 0 implies every sign.
            push(next, column, -1.0);
            if group.monotone && column < last {
                push(next, column + 1, 1.0);
            }
            next += 1;
        }
    }
    let bounds = (0..next).map(|row| if row < equalities { 1.0 } else { 0.0 }).collect();
    let matrix = CscMatrix::new_from_triplets(next, problem.positions(), rows, columns, values);
    (matrix, bounds, equalities)
}

/// Upper triangle in compressed columns, with explicit zeros. The solver reads only this triangle; given a lower
/// one, it returns a wrong result without an error.
fn upper_triangle(p: &DMatrix<f64>) -> CscMatrix<f64> {
    let n = p.nrows();
    let (mut starts, mut rows, mut values) = (vec![0], Vec::new(), Vec::new());
    for column in 0..n {
        for row in 0..=column {
            rows.push(row);
            values.push(p[(row, column)]);
        }
        starts.push(rows.len());
    }
    CscMatrix::new(n, n, starts, rows, values)
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Group, Row};
    use super::*;

    /// min a0² + a1² + a0·a1 - ... worked by hand: P = [[2,1],[1,4]], q = 0 on the simplex gives a = (3/4, 1/4).
    #[test]
    fn off_diagonal_terms_count() {
        let groups = vec![Group { prior: vec![0.5, 0.5], rho: 0.0, monotone: false }];
        let problem = Problem::new(2, groups, vec![Row { group: 0, order: vec![0, 1], score: 0.0 }], 0.0).unwrap();
        let p = DMatrix::from_row_slice(2, 2, &[2.0, 1.0, 1.0, 4.0]);
        let a = simplex_qp(&problem, &p, &DVector::zeros(2)).unwrap();
        assert!((a[0] - 0.75).abs() < 1e-8 && (a[1] - 0.25).abs() < 1e-8, "{a}");
    }

    #[test]
    fn a_monotone_group_does_not_increase() {
        let groups = vec![Group { prior: vec![1.0 / 3.0; 3], rho: 0.0, monotone: true }];
        let problem = Problem::new(3, groups, vec![Row { group: 0, order: vec![0, 1, 2], score: 0.0 }], 0.0).unwrap();
        let q = DVector::from_vec(vec![0.0, -1.0, -4.0]);
        let a = simplex_qp(&problem, &DMatrix::identity(3, 3), &q).unwrap();
        assert!(a[0] >= a[1] - 1e-9 && a[1] >= a[2] - 1e-9 && (a.sum() - 1.0).abs() < 1e-12, "{a}");
    }
}
