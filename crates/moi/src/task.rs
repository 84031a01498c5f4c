//! Fits of scores that the caller supplies: `rerankd fit` and `MetricsService.FitMoi`.

use super::domain::Domain;
use super::varpro::Starts;
use super::{Estimate, FitError, Objective, Observation, Settings, estimate, work};
use numeric::Interrupt;

/// Most passages of a fit.
const MOST_PASSAGES: usize = 2_000;

/// Scores of orders to fit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FitTask {
    /// Number of passages, N.
    pub passages: usize,
    /// Orders and their scores, all orders of one length.
    pub observations: Vec<Observation>,
    /// Scale of the fit. `None` for unchanged scores if the objective is the paper's or `lam` or `rho` is set,
    /// whose values depend on the scale; otherwise the default of [`Settings`].
    pub domain: Option<Domain>,
    /// The paper's objective instead of the regularised one.
    pub paper: bool,
    /// Assumed share of noise in the score variance; 0.5 if `None`.
    pub sigma2: Option<f64>,
    /// Prior position weights, one per position.
    pub prior: Option<Vec<f64>>,
    /// Position weights must not increase with the position.
    pub monotone: bool,
    /// Strength of the pull to the mean utility.
    pub lam: Option<f64>,
    /// Strength of the pull to the prior weights.
    pub rho: Option<f64>,
    /// Single-passage scores, N of them, used as [`super::Anchors::Observations`].
    pub anchor: Option<Vec<f64>>,
}

impl FitTask {
    /// Estimated cost, to be compared with [`work::LARGEST`] before the fit.
    #[must_use]
    pub fn work(&self) -> u64 {
        let lengths = self.observations.iter().map(|observation| (observation.order.len(), 1));
        work::estimate(self.passages, lengths, self.anchor.is_some(), &self.settings())
    }

    fn settings(&self) -> Settings {
        let as_is = self.lam.is_some() || self.rho.is_some();
        Settings {
            domain: self.domain.or(as_is.then_some(Domain::AsIs)),
            objective: if self.paper { Objective::Paper } else { Objective::Regularised },
            sigma2: self.sigma2.unwrap_or(0.5),
            monotone: self.monotone,
            prior: self.prior.clone(),
            lam: self.lam,
            rho: self.rho,
            starts: Starts::Many,
            ..Settings::default()
        }
    }
}

/// Utilities and position bias of the scores.
///
/// # Errors
/// [`FitError`]. Its fields are named as in the files of `rerankd fit`: n, permutations, scores, a0, anchor, sigma2, lam, rho.
pub fn fit_moi(task: &FitTask, interrupt: Interrupt<'_>) -> Result<Estimate, FitError> {
    let invalid = |field: &str, problem: String| Err(FitError::Invalid { field: field.to_owned(), problem });
    let n = task.passages;
    if n == 0 || n > MOST_PASSAGES {
        return invalid("n", format!("must be between 1 and {MOST_PASSAGES}, is {n}"));
    }
    let Some(length) = task.observations.first().map(|first| first.order.len()) else {
        return invalid("permutations", "must not be empty".into());
    };
    if length == 0 {
        return invalid("permutations[0]", "must not be empty".into());
    }
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
    for (field, given) in [("lam", task.lam), ("rho", task.rho)] {
        if task.paper && given.is_some_and(|strength| strength != 0.0) {
            return invalid(field, "has no effect with the paper's objective, which has no such penalty".into());
        }
    }
    estimate(n, &task.observations, task.anchor.as_deref(), &task.settings(), interrupt)
}
