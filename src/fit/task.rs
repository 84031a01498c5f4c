//! A fit for scores that a caller brings: `rerankd fit` and `MetricsService.FitMoi`.

use super::domain::Domain;
use super::varpro::Starts;
use super::{Estimate, FitError, Objective, Observation, Settings, estimate};

/// Passages of a fit.
const MOST_PASSAGES: usize = 2_000;

/// Scores of orders, to be fitted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FitTask {
    /// Passages.
    pub passages: usize,
    /// Orders and their scores, all orders of one length.
    pub observations: Vec<Observation>,
    /// Scale of the scores; where `None` the scores themselves for the paper's objective and where `lam` or `rho` is given,
    /// for they belong to a scale, else winsorised z scores.
    pub domain: Option<Domain>,
    /// The paper's objective instead of the regularised one.
    pub paper: bool,
    /// Assumed share of noise; 0.5 where `None`.
    pub sigma2: Option<f64>,
    /// Prior position weights.
    pub prior: Option<Vec<f64>>,
    /// Position weights must not rise.
    pub monotone: bool,
    /// Strength of the pull to the mean utility.
    pub lam: Option<f64>,
    /// Strength of the pull to the prior.
    pub rho: Option<f64>,
    /// Scores of each passage alone.
    pub anchor: Option<Vec<f64>>,
}

/// Utilities and position bias of the scores.
///
/// # Errors
/// [`FitError`], its fields named as in the files that `rerankd fit` reads: n, permutations, scores, a0, anchor, sigma2, lam,
/// rho.
pub fn fit_moi(task: &FitTask) -> Result<Estimate, FitError> {
    let invalid = |field: &str, problem: String| Err(FitError::Invalid { field: field.to_owned(), problem });
    let n = task.passages;
    if n == 0 || n > MOST_PASSAGES {
        return invalid("n", format!("must be between 1 and {MOST_PASSAGES}, is {n}"));
    }
    let Some(length) = task.observations.first().map(|first| first.order.len()) else {
        return invalid("permutations", "must not be empty".into());
    };
    if let Some(index) = task.observations.iter().position(|observation| observation.order.len() != length) {
        return invalid(&format!("permutations[{index}]"), format!("must have {length} positions like the first"));
    }
    if let Some(anchor) = &task.anchor
        && (anchor.len() != n || anchor.iter().any(|score| !score.is_finite()))
    {
        return invalid("anchor", format!("must be {n} finite numbers"));
    }
    if let Some(given) = &task.prior
        && given.len() != length
    {
        return invalid("a0", format!("must have {length} weights, has {}", given.len()));
    }
    let as_is = task.paper || task.lam.is_some() || task.rho.is_some();
    let settings = Settings {
        domain: task.domain.or(as_is.then_some(Domain::AsIs)),
        objective: if task.paper { Objective::Paper } else { Objective::Regularised },
        sigma2: task.sigma2.unwrap_or(0.5),
        monotone: task.monotone,
        prior: task.prior.clone(),
        lam: task.lam,
        rho: task.rho,
        starts: Starts::Many,
    };
    estimate(n, &task.observations, task.anchor.as_deref(), &settings)
}
