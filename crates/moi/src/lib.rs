//! Mixture of Interventions (MOI): utilities of passages and position bias from the scores of many orders.
//!
//! A generator reads passages `0..N` in an order `π` and scores an outcome, for example the log-probability of the question.
//! The score depends on the passages and on their positions. MOI separates the two (Lee et al., *Inference Scaling for Bridging
//! Retrieval and Augmented Generation*, section 3):
//!
//! ```text
//! s(π) ≈ Σ_j a_j · u[π_j]                         a_j >= 0, Σ_j a_j = 1
//!
//! minimise  Σ_π (prediction - s(π))²  +  λ Σ_p (u_p - ū)²  +  ρ |a - a0|²
//! ```
//!
//! `u_p` is the utility of passage `p`, `a_j` the weight of position `j`, `a0` a prior profile. `λ = ρ = 0` is the paper's
//! objective ([`Objective::Paper`]); the default ([`Objective::Regularised`]) takes both strengths from an assumed share of noise
//! ([`Settings::sigma2`]). Prompts of several lengths have position weights and an intercept for each length.
//!
//! **Identifiability.** If every prompt holds every passage, `(a - 1/N, u - ū)` and `(t(a - 1/N), (u - ū)/t)`
//! predict the same for every `t`, also for negative ones. The prior, or single-passage scores, then decide
//! direction and scale ([`Estimate::orientation`], [`uncertainty::Diagnostics`]). Prompts of several lengths
//! identify both.
//!
//! # Utilities and bias from exact scores
//!
//! Three passages are scored singly and in all six orders. Several lengths identify everything, so the fit finds
//! the utilities -4, -2, -3 and the position weights 0.5, 0.2, 0.3 behind the scores.
//!
//! ```
//! use moi::{Objective, Observation, Settings, estimate};
//!
//! let scores: [(&[usize], f64); 9] = [
//!     (&[0], -4.0),
//!     (&[1], -2.0),
//!     (&[2], -3.0),
//!     (&[0, 1, 2], -3.3), // 0.5 * -4 + 0.2 * -2 + 0.3 * -3
//!     (&[0, 2, 1], -3.2),
//!     (&[1, 0, 2], -2.7),
//!     (&[1, 2, 0], -2.8),
//!     (&[2, 0, 1], -2.9),
//!     (&[2, 1, 0], -3.1),
//! ];
//! let observations: Vec<Observation> =
//!     scores.into_iter().map(|(order, score)| Observation { order: order.to_vec(), score }).collect();
//! let settings = Settings { objective: Objective::Paper, ..Settings::default() };
//! let fit = estimate(3, &observations, None, &settings, &|| false)?;
//!
//! let near = |found: &[f64], exact: &[f64]| found.iter().zip(exact).all(|(f, e)| (f - e).abs() < 1e-3);
//! assert!(near(&fit.utilities, &[-4.0, -2.0, -3.0]));
//! assert!(near(&fit.bias[1], &[0.5, 0.2, 0.3])); // lengths ascend: bias[0] belongs to prompts of one passage
//! assert_eq!(fit.ranking, [1, 2, 0]);
//! # Ok::<(), moi::FitError>(())
//! ```
//!
//! # A ranking from random orders
//!
//! [`design::orders`] chooses orders to score. Here the score of an order is the sum over positions with weights
//! 0.4, 0.3, 0.2, 0.1. The default prior says that early positions weigh more, so the direction is right although
//! every prompt holds every passage.
//!
//! ```
//! use moi::design::{Design, orders};
//! use moi::{Observation, Orientation, Settings, estimate};
//!
//! let score = |order: &[usize]| -> f64 {
//!     let (weights, utilities) = ([0.4, 0.3, 0.2, 0.1], [-5.0, -3.0, -6.0, -4.0]);
//!     order.iter().zip(weights).map(|(&passage, weight)| weight * utilities[passage]).sum()
//! };
//! assert!((score(&[0, 1, 2, 3]) - -4.5).abs() < 1e-12); // -2 - 0.9 - 1.2 - 0.4
//!
//! let drawn = orders(Design::Random, 4, 12, 7, &|| false)?;
//! let observations: Vec<Observation> =
//!     drawn.into_iter().map(|order| Observation { score: score(&order), order }).collect();
//! let fit = estimate(4, &observations, None, &Settings::default(), &|| false)?;
//!
//! assert_eq!(fit.ranking, [1, 3, 0, 2]);
//! assert!(fit.bias[0].windows(2).all(|pair| pair[0] > pair[1]));
//! assert_eq!(fit.orientation, Orientation::DefaultPrior);
//! # Ok::<(), moi::FitError>(())
//! ```
//!
//! # Modules
//!
//! [`design`] and [`adaptive`] choose the orders, [`domain`] prepares the scores, [`problem`] states the least
//! squares, [`varpro`] solves it with the quadratic programmes of `solve`, `direction` decides which end of the
//! prompt the bias favours, [`uncertainty`] computes errors and diagnostics, [`work`] estimates the cost.
//! [`profile`] stores the mean bias of many requests.
//!
//! Two modules do not use the model: [`subsets`] estimates utilities from the scores of subsets of the passages (ContextCite),
//! [`aggregate`] merges several rankings into one.
#![warn(missing_docs)]

pub mod adaptive;
pub mod aggregate;
pub mod design;
mod direction;
pub mod domain;
pub mod prior;
mod problem;
pub mod profile;
mod solve;
pub mod subsets;
pub mod task;
pub mod uncertainty;
pub mod varpro;
pub mod work;

use direction::Evidence;
use domain::Domain;
use nalgebra::DMatrix;
use uncertainty::Diagnostics;
use varpro::Starts;

use numeric::{Interrupt, descending, mean};

/// Why a fit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// The input is invalid.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field, as in the JSON of `rerankd fit`.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// The solver found no solution.
    #[error("fit not solved: {status}")]
    NotSolved {
        /// The solver's status.
        status: String,
    },
    /// The caller's [`Interrupt`] stopped it.
    #[error("fit interrupted")]
    Interrupted,
}

/// A scored prompt: the passages in their order, and the score in nats.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Passage index at each position.
    pub order: Vec<usize>,
    /// Log-probability of the outcome, in nats.
    pub score: f64,
}

/// The objective to minimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Least squares with a prior on position weights and utilities. The default.
    Regularised,
    /// The paper's objective (section 3.1): only least squares, on unchanged scores unless a domain is set. For
    /// whole orders it leaves scale and direction open; the solution nearest the prior is taken.
    Paper,
}

/// Use of single-passage scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Anchors {
    /// They decide the direction. If prompts do not hold all passages and the objective is the regularised one, they
    /// are also fitted, as prompts of length 1. For anchors that score the observations' outcome. The default.
    #[default]
    Observations,
    /// They only decide the direction. For anchors that score a different outcome than the observations.
    Direction,
}

/// Options of [`estimate`].
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Scale on which the scores are fitted. `None` for the default: `AsIs` for the paper's objective; otherwise
    /// `LogWinsorZ` for prompts of one length, and `LogZ` for several, where an outlier is more likely a passage
    /// that answers the query alone than an error.
    pub domain: Option<Domain>,
    /// Objective.
    pub objective: Objective,
    /// Assumed share of noise in the score variance, in (0, 1); sets the strength of the regularisation.
    pub sigma2: f64,
    /// Position weights must not increase with the position.
    pub monotone: bool,
    /// Prior position weights, at least as many as the longest prompt has positions; they sum to one. A shorter
    /// prompt takes the first of them, renormalised, or equal weights if those sum to 0. `None` for the defaults:
    /// geometric for prompts of one length, equal weights for several lengths.
    pub prior: Option<Vec<f64>>,
    /// Strength of the pull to the mean utility; `None` for the default, which follows from `sigma2`.
    pub lam: Option<f64>,
    /// Strength of the pull to the prior weights; `None` for the default, which follows from `sigma2`.
    pub rho: Option<f64>,
    /// Starting points of the search. [`Objective::Paper`] always uses [`Starts::Many`].
    pub starts: Starts,
    /// Use of the single-passage scores.
    pub anchors: Anchors,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domain: None,
            objective: Objective::Regularised,
            sigma2: 0.5,
            monotone: false,
            prior: None,
            lam: None,
            rho: None,
            starts: Starts::Prior,
            anchors: Anchors::Observations,
        }
    }
}

/// The evidence that decided which end of the prompt the fitted bias favours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orientation {
    /// Single-passage scores.
    OnePassageScores,
    /// The caller's prior, without which the data would not decide the direction, or would favour the other end.
    /// Also, for prompts of one length, the caller's constraint that the weights do not increase.
    CallerPrior,
    /// The built-in prior: early positions weigh more. The data do not decide the direction.
    DefaultPrior,
    /// Prompts of several lengths, which identify direction and scale.
    Lengths,
    /// Prompts of one length with only some of the passages. Both directions were fitted; the lower objective won.
    Subsets,
    /// There is no direction: one passage, prompts of one passage, or constant scores.
    None,
}

/// Utilities and position bias.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Utility of each passage, in nats: the expected score of a prompt in which this passage had all position
    /// weight.
    pub utilities: Vec<f64>,
    /// Standard error of each utility, in nats; `None` if the scores do not determine the scale
    /// ([`Diagnostics::scale_identified`]).
    pub standard_errors: Option<Vec<f64>>,
    /// Passages by descending utility; ties keep the input order.
    pub ranking: Vec<usize>,
    /// For each rank except the last, the probability that its passage outranks the next one.
    pub outranks_next: Vec<f64>,
    /// Position weights of each length of the observations, ascending by length.
    pub bias: Vec<Vec<f64>>,
    /// The prior position weights in use, in the form of `bias`.
    pub prior: Vec<Vec<f64>>,
    /// Mean |2p - 1| over pairs.
    pub expected_tau: f64,
    /// The evidence that decided the direction.
    pub orientation: Orientation,
    /// Pearson correlation of the utilities with the single-passage scores; `None` without them, or if either is
    /// constant.
    pub anchor_correlation: Option<f64>,
    /// Fit quality, in the units of the fitted scores.
    pub diagnostics: Diagnostics,
    /// Objective at the solution, in the units of the fitted scores.
    pub objective: f64,
    /// Utilities in the units of the fitted scores.
    pub fitted: Vec<f64>,
    /// Mean squared errors of `fitted`, N × N; for whole orders at the chosen scale.
    pub covariance: DMatrix<f64>,
}

/// Fits `observations` of `passages` passages. `anchor` holds single-passage scores by passage, log P(q|p) in nats;
/// a score that is not finite counts as missing. [`Anchors`] explains their use.
///
/// # Errors
/// [`FitError`]: invalid input with its field, an unsolved programme, or an interruption.
pub fn estimate(
    passages: usize,
    observations: &[Observation],
    anchor: Option<&[f64]>,
    settings: &Settings,
    interrupt: Interrupt<'_>,
) -> Result<Estimate, FitError> {
    let evidence = Evidence::new(passages, observations, anchor, settings)?;
    let chosen = evidence.choose(interrupt)?;
    let errors = uncertainty::assess(&chosen.problem, &chosen.state, settings.sigma2, interrupt)?;
    let (diagnostics, covariance) = (errors.diagnostics, errors.covariance);
    let (mut bias, fitted) = varpro::finish(&chosen.problem, &chosen.state);
    let prepared = &evidence.prepared;
    // The fitted values give the order: the map back to nats loses it if the scores were constant.
    let ranking = if prepared.scale == 0.0 { (0..passages).collect() } else { descending(&snap(&fitted)) };
    // Utilities that differ only by rounding are equal, however certain the fit is of them.
    let alike = snap(&fitted).iter().all(|utility| *utility == 0.0);
    let compared = if alike { vec![0.0; passages] } else { fitted.clone() };
    let utilities: Vec<f64> = fitted.iter().map(|u| u * prepared.scale + prepared.centre).collect();
    let standard_errors = diagnostics
        .scale_identified
        .then(|| (0..passages).map(|p| covariance[(p, p)].max(0.0).sqrt() * prepared.scale).collect());
    let hedged = |probability: f64| 0.5 + errors.signal_probability * (probability - 0.5);
    let outranks_next = ranking
        .windows(2)
        .map(|pair| hedged(uncertainty::outranks(&compared, &covariance, pair[0], pair[1])))
        .collect();
    let is_observed =
        |weights: &Vec<f64>| observations.iter().any(|observation| observation.order.len() == weights.len());
    let prior = chosen.problem.groups.iter().map(|group| group.prior.clone());
    bias.retain(is_observed);
    let prior = prior.filter(is_observed).collect();
    Ok(Estimate {
        utilities,
        standard_errors,
        outranks_next,
        expected_tau: uncertainty::expected_tau(&compared, &covariance) * errors.signal_probability,
        ranking,
        bias,
        prior,
        orientation: chosen.orientation,
        anchor_correlation: evidence.agreement(&chosen.state),
        diagnostics,
        objective: chosen.state.objective,
        fitted,
        covariance,
    })
}

/// Ends an interrupted computation.
fn check(interrupt: Interrupt<'_>) -> Result<(), FitError> {
    if interrupt() { Err(FitError::Interrupted) } else { Ok(()) }
}

/// Rounds to a millionth of the spread. Smaller differences are rounding errors: such passages tie and keep the input order.
fn snap(utilities: &[f64]) -> Vec<f64> {
    let centre = mean(utilities);
    let spread = utilities.iter().map(|u| (u - centre).abs()).fold(0.0, f64::max);
    if spread <= 1e-9 * centre.abs().max(1.0) {
        return vec![0.0; utilities.len()];
    }
    // A negative zero would come after a positive one.
    utilities.iter().map(|u| ((u - centre) / spread * 1e6).round() + 0.0).collect()
}

#[cfg(test)]
mod tests;
