//! The least-squares problem of MOI, as matrices.
//!
//! Observation `i` is the score `s_i` of a prompt with passages `π_i[0..ℓ]` at positions `0..ℓ` (MOI, section 3.1, Eq. 4).
//! Prompts of one length form a group `g` with its own position weights `a_g` in the simplex and, except for the first
//! group, its own intercept `c_g`:
//!
//! `pred_i = c_g + Σ_j a_{g,j} · u[π_i[j]]`
//!
//! The objective is, with `ū` the mean utility,
//!
//! `F = Σ_i (pred_i - s_i)² + λ Σ_p (u_p - ū)² + Σ_g ρ_g |a_g - a0_g|²`
//!
//! With `λ = ρ = 0` and one group it is the paper's objective. `super::domain` transforms the scores before.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

use super::FitError;
use numeric::{mean, real, standard_deviation};

/// Position weights of the prompts of one length: their prior and constraint.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Prior position weights `a0_g`: length ℓ, non-negative, summing to one.
    pub prior: Vec<f64>,
    /// Strength `ρ_g` of the pull to the prior.
    pub rho: f64,
    /// True if the weights must not increase with the position.
    pub monotone: bool,
}

/// One scored prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index into the groups of the problem.
    pub group: usize,
    /// Passage at each position; as many as the group's prior has weights.
    pub order: Vec<usize>,
    /// The observed score.
    pub score: f64,
}

/// A validated fit problem. Build it with [`Problem::new`].
#[derive(Debug, Clone)]
pub struct Problem {
    pub(super) passages: usize,
    pub(super) groups: Vec<Group>,
    pub(super) rows: Vec<Row>,
    pub(super) lam: f64,
    offsets: Vec<usize>,
}

impl Problem {
    /// Validates shapes and numbers.
    ///
    /// # Errors
    /// [`FitError::Invalid`] with the field at fault: no passages, no rows, a passage out of range or twice in one order, a length
    /// that does not match the group, a number that is not finite, a prior outside the simplex, a negative penalty.
    pub fn new(passages: usize, groups: Vec<Group>, rows: Vec<Row>, lam: f64) -> Result<Self, FitError> {
        let invalid = |field: String, problem: &str| Err(FitError::Invalid { field, problem: problem.to_owned() });
        if passages == 0 {
            return invalid("n".into(), "must be at least 1");
        }
        if rows.is_empty() {
            return invalid("permutations".into(), "must not be empty");
        }
        if !lam.is_finite() || lam < 0.0 {
            return invalid("lam".into(), "must be a finite number of 0 or more");
        }
        for group in &groups {
            if !group.rho.is_finite() || group.rho < 0.0 {
                return invalid("rho".into(), "must be a finite number of 0 or more");
            }
            let sum: f64 = group.prior.iter().sum();
            if group.prior.iter().any(|weight| !weight.is_finite() || *weight < 0.0) || (sum - 1.0).abs() > 1e-6 {
                return invalid("a0".into(), "must be non-negative and sum to 1");
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let path = format!("permutations[{index}]");
            let Some(group) = groups.get(row.group) else {
                return invalid(path, "belongs to no group");
            };
            if row.order.len() != group.prior.len() {
                return invalid(path, &format!("must have {} positions, has {}", group.prior.len(), row.order.len()));
            }
            let mut seen = vec![false; passages];
            for (position, &passage) in row.order.iter().enumerate() {
                match seen.get_mut(passage) {
                    None => return invalid(format!("{path}[{position}]"), &format!("must be below n = {passages}")),
                    Some(true) => return invalid(format!("{path}[{position}]"), "names a passage twice"),
                    Some(fresh) => *fresh = true,
                }
            }
            if !row.score.is_finite() {
                return invalid(format!("scores[{index}]"), "must be a finite number");
            }
        }
        let mut offsets = vec![0];
        for group in &groups {
            offsets.push(offsets.last().copied().unwrap_or(0) + group.prior.len());
        }
        Ok(Self { passages, groups, rows, lam, offsets })
    }

    /// Number of observations, M.
    #[must_use]
    pub const fn observations(&self) -> usize {
        self.rows.len()
    }

    /// Position weights of all groups together.
    pub(super) fn positions(&self) -> usize {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Range of the weights of group `g` in the concatenated vector.
    pub(super) fn span(&self, group: usize) -> std::ops::Range<usize> {
        self.offsets[group]..self.offsets[group + 1]
    }

    /// Number of linear unknowns `w = [u; c_1 ..]`: utilities, then an intercept for every group except the first.
    pub(super) fn unknowns(&self) -> usize {
        self.passages + self.groups.len().saturating_sub(1)
    }

    pub(super) fn scores(&self) -> DVector<f64> {
        DVector::from_iterator(self.rows.len(), self.rows.iter().map(|row| row.score))
    }

    pub(super) fn prior(&self) -> DVector<f64> {
        DVector::from_iterator(self.positions(), self.groups.iter().flat_map(|group| group.prior.iter().copied()))
    }

    /// `ρ_g` of every position weight.
    pub(super) fn pull(&self) -> DVector<f64> {
        let strengths = self.groups.iter().flat_map(|group| std::iter::repeat_n(group.rho, group.prior.len()));
        DVector::from_iterator(self.positions(), strengths)
    }

    /// `Z(a)`: M × unknowns, so that `pred = Z(a) w`.
    pub(super) fn z(&self, weights: &DVector<f64>) -> DMatrix<f64> {
        let mut z = DMatrix::zeros(self.rows.len(), self.unknowns());
        for (i, row) in self.rows.iter().enumerate() {
            let start = self.offsets[row.group];
            for (j, &passage) in row.order.iter().enumerate() {
                z[(i, passage)] = weights[start + j];
            }
            if row.group > 0 {
                z[(i, self.passages + row.group - 1)] = 1.0;
            }
        }
        z
    }

    /// `U(u)`: M × positions, so that `pred = U(u) a + intercepts`.
    pub(super) fn u(&self, unknowns: &DVector<f64>) -> DMatrix<f64> {
        let mut u = DMatrix::zeros(self.rows.len(), self.positions());
        for (i, row) in self.rows.iter().enumerate() {
            let start = self.offsets[row.group];
            for (j, &passage) in row.order.iter().enumerate() {
                u[(i, start + j)] = unknowns[passage];
            }
        }
        u
    }

    /// Normal matrix of the utility step, `K = Z'Z + λC` with `C = I - 11'/N` on the utilities.
    pub(super) fn normal_matrix(&self, z: &DMatrix<f64>) -> DMatrix<f64> {
        self.normal_matrix_at(z, self.lam)
    }

    /// [`Self::normal_matrix`] with another `λ`.
    pub(super) fn normal_matrix_at(&self, z: &DMatrix<f64>, lam: f64) -> DMatrix<f64> {
        let mut k = z.transpose() * z;
        let share = lam / real(self.passages);
        for row in 0..self.passages {
            for column in 0..self.passages {
                k[(row, column)] -= share;
            }
            k[(row, row)] += lam;
        }
        k
    }

    /// The value of the objective.
    pub(super) fn objective(&self, weights: &DVector<f64>, unknowns: &DVector<f64>) -> f64 {
        let utilities: Vec<f64> = unknowns.iter().take(self.passages).copied().collect();
        let spread = standard_deviation(&utilities).powi(2) * real(self.passages);
        let drift = weights - self.prior();
        self.residual_sum(weights, unknowns) + self.lam * spread + drift.component_mul(&drift).dot(&self.pull())
    }

    /// Residual sum of squares.
    pub(super) fn residual_sum(&self, weights: &DVector<f64>, unknowns: &DVector<f64>) -> f64 {
        (self.z(weights) * unknowns - self.scores()).norm_squared()
    }

    /// Mean over the observations of `|a0_g|² - 1/N`: score variance per unit of utility variance under the prior weights.
    pub(super) fn leverage(&self) -> f64 {
        let per_group: Vec<f64> = self
            .groups
            .iter()
            .map(|group| group.prior.iter().map(|weight| weight * weight).sum::<f64>() - 1.0 / real(self.passages))
            .collect();
        mean(&self.rows.iter().map(|row| per_group[row.group]).collect::<Vec<f64>>())
    }
}

/// Cholesky factor of a positive semi-definite matrix plus the least multiple of the identity, in steps of 100, that makes
/// it definite.
pub(super) fn factor(matrix: &DMatrix<f64>) -> Result<Cholesky<f64, Dyn>, FitError> {
    let scale = (matrix.trace() / real(matrix.nrows().max(1))).max(1.0);
    let mut jitter = 1e-12;
    while jitter < 1.0 {
        let mut lifted = matrix.clone();
        for index in 0..lifted.nrows() {
            lifted[(index, index)] += jitter * if jitter > 1e-12 { scale } else { 1.0 };
        }
        if let Some(cholesky) = lifted.cholesky() {
            return Ok(cholesky);
        }
        jitter *= 100.0;
    }
    Err(FitError::NotSolved { status: "normal matrix is not positive definite".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(prior: &[f64]) -> Group {
        Group { prior: prior.to_vec(), rho: 0.0, monotone: false }
    }

    fn row(order: &[usize], score: f64) -> Row {
        Row { group: 0, order: order.to_vec(), score }
    }

    #[test]
    fn errors_name_the_field() {
        let field = |passages, groups: Vec<Group>, rows: Vec<Row>, lam| match Problem::new(passages, groups, rows, lam)
        {
            Err(FitError::Invalid { field, .. }) => field,
            other => format!("{other:?}"),
        };
        let two = || vec![group(&[0.8, 0.2])];
        assert_eq!(field(0, two(), vec![row(&[0, 1], 0.0)], 0.0), "n");
        assert_eq!(field(2, two(), vec![], 0.0), "permutations");
        assert_eq!(field(2, two(), vec![row(&[0, 2], 0.0)], 0.0), "permutations[0][1]");
        assert_eq!(field(2, two(), vec![row(&[0, 0], 0.0)], 0.0), "permutations[0][1]");
        assert_eq!(field(2, two(), vec![row(&[0], 0.0)], 0.0), "permutations[0]");
        assert_eq!(field(2, two(), vec![row(&[0, 1], f64::NAN)], 0.0), "scores[0]");
        assert_eq!(field(2, two(), vec![row(&[0, 1], 0.0)], -1.0), "lam");
        assert_eq!(field(2, vec![group(&[0.8, 0.8])], vec![row(&[0, 1], 0.0)], 0.0), "a0");
    }

    #[test]
    fn both_matrices_give_the_same_prediction() {
        let groups = vec![group(&[1.0]), group(&[0.7, 0.3])];
        let rows = vec![row(&[2], 1.0), Row { group: 1, order: vec![0, 1], score: 2.0 }];
        let problem = Problem::new(3, groups, rows, 0.1).unwrap();
        let weights = DVector::from_vec(vec![1.0, 0.6, 0.4]);
        let unknowns = DVector::from_vec(vec![1.0, 2.0, 3.0, 10.0]);
        let by_z = problem.z(&weights) * &unknowns;
        assert!((by_z[0] - 3.0).abs() < 1e-12 && (by_z[1] - 11.4).abs() < 1e-12);
        let by_u = problem.u(&unknowns) * &weights;
        assert!((by_u[1] + 10.0 - by_z[1]).abs() < 1e-12);
    }
}
