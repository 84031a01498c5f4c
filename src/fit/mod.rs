//! Mixture of Interventions: utilities of passages and position bias from the scores of many orders.
//!
//! Lee et al., *Inference Scaling for Bridging Retrieval and Augmented Generation*, section 3. `design` chooses the orders,
//! `domain` prepares the scores, `problem` states the least squares, `varpro` and `solve` solve it, `uncertainty` says how
//! far to believe it, and [`estimate`] runs them in that order.

pub mod adaptive;
pub mod design;
pub mod domain;
pub mod prior;
pub mod problem;
pub mod profile;
mod solve;
pub mod task;
pub mod uncertainty;
pub mod varpro;

use domain::Domain;
use nalgebra::DMatrix;
use prior::Direction;
use problem::{Group, Problem, Row};
use uncertainty::Diagnostics;
use varpro::{Starts, State};

use crate::numeric::{descending, mean, pearson, real};

/// Why a fit gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// The input is wrong; `field` is the path of the value at fault.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field, as in the JSON of `rerankd fit`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The solver gave up.
    #[error("fit not solved: {status}")]
    NotSolved {
        /// The solver's own status.
        status: String,
    },
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
    /// The paper's: least squares alone. Scale and direction are then chosen to lie nearest the prior.
    Paper,
}

/// How [`estimate`] fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Scale on which the scores are fitted. `None` for the default: `LogWinsorZ` for prompts of one length; `LogZ` for
    /// several, among which an outlier is more likely a passage that answers the query alone than a slip.
    pub domain: Option<Domain>,
    /// Objective.
    pub objective: Objective,
    /// Assumed share of noise in the score variance, in (0, 1); sets the strength of the regularisation.
    pub sigma2: f64,
    /// Position weights must not increase with the position.
    pub monotone: bool,
    /// Prior position weights for complete orders; `None` for a geometric profile whose direction is then settled.
    pub prior: Option<Vec<f64>>,
    /// Strength of the pull to the mean utility; `None` for the default that follows from `sigma2`.
    pub lam: Option<f64>,
    /// Strength of the pull to the prior weights; `None` for the default that follows from `sigma2`.
    pub rho: Option<f64>,
    /// Where the search begins.
    pub starts: Starts,
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
        }
    }
}

/// What decided which end of the prompt the fitted bias favours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orientation {
    /// Agreement of the utilities with the scores of one-passage prompts.
    OnePassageScores,
    /// The prior the caller gave.
    CallerPrior,
    /// The built-in prior: early positions weigh more. Nothing in the data spoke against it.
    DefaultPrior,
    /// Prompts of several lengths, in which direction and scale are identified.
    Lengths,
    /// One passage or constant scores: there is no direction.
    None,
}

/// Utilities and position bias.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Utility of each passage, in nats: the score expected of a prompt in which this passage held all position weight.
    pub utilities: Vec<f64>,
    /// Standard error of each utility, in nats.
    pub standard_errors: Vec<f64>,
    /// Passages by descending utility; ties keep the input order.
    pub ranking: Vec<usize>,
    /// For each place of `ranking` but the last, the probability that its passage outranks the next one.
    pub outranks_next: Vec<f64>,
    /// Position weights of each prompt length, ascending by length.
    pub bias: Vec<Vec<f64>>,
    /// Mean |2p - 1| over pairs.
    pub expected_tau: f64,
    /// What settled the direction.
    pub orientation: Orientation,
    /// Correlation of the utilities with the one-passage scores, where there were some.
    pub anchor_correlation: Option<f64>,
    /// Fit quality, in the units of the fitted scores.
    pub diagnostics: Diagnostics,
    /// Objective at the solution, in the units of the fitted scores.
    pub objective: f64,
    /// Utilities in the units of the fitted scores.
    pub fitted: Vec<f64>,
    /// Covariance of `fitted`, N × N.
    pub covariance: DMatrix<f64>,
}

/// Fits `observations` of `passages` passages. `anchor` holds one-passage scores log P(q|p) by passage, in nats.
///
/// # Errors
/// [`FitError`]: bad input with its field, or an unsolved programme.
pub fn estimate(
    passages: usize,
    observations: &[Observation],
    anchor: Option<&[f64]>,
    settings: &Settings,
) -> Result<Estimate, FitError> {
    let lengths: std::collections::BTreeSet<usize> = observations.iter().map(|o| o.order.len()).collect();
    let lengths: Vec<usize> = lengths.into_iter().collect();
    let group_of: Vec<usize> =
        observations.iter().map(|o| lengths.iter().position(|l| *l == o.order.len()).unwrap_or(0)).collect();
    let raw: Vec<f64> = observations.iter().map(|o| o.score).collect();
    if let Some(index) = raw.iter().position(|score| !score.is_finite()) {
        return Err(FitError::Invalid { field: format!("scores[{index}]"), problem: "must be a finite number".into() });
    }
    let default = if lengths.len() > 1 { Domain::LogZ } else { Domain::LogWinsorZ };
    let prepared = domain::prepare(&raw, &group_of, settings.domain.unwrap_or(default));
    let build = |direction: Direction| {
        let rows = observations
            .iter()
            .zip(&group_of)
            .zip(&prepared.values)
            .map(|((observation, &group), &score)| Row { group, order: observation.order.clone(), score })
            .collect();
        assemble(passages, &lengths, rows, direction, settings)
    };
    let primacy = build(Direction::Primacy)?;
    let flat = primacy.scores().iter().all(|score| score.total_cmp(&primacy.rows[0].score).is_eq());
    let ambiguous = lengths.len() == 1 && passages > 1 && lengths[0] > 1 && !flat && lengths[0] == passages;
    let mut chosen = (minimise(&primacy, settings)?, primacy);
    let mut orientation = match (&settings.prior, ambiguous) {
        _ if flat || passages == 1 => Orientation::None,
        (Some(_), _) => Orientation::CallerPrior,
        (None, true) => Orientation::DefaultPrior,
        (None, false) => Orientation::Lengths,
    };
    let agreement = |state: &State| anchor.and_then(|scores| pearson(&state.unknowns.as_slice()[..passages], scores));
    if orientation == Orientation::DefaultPrior
        && let Some(kept) = agreement(&chosen.0)
    {
        orientation = Orientation::OnePassageScores;
        let recency = build(Direction::Recency)?;
        let other = minimise(&recency, settings)?;
        if agreement(&other).is_some_and(|turned| turned > kept) {
            chosen = (other, recency);
        }
    }
    let anchor_correlation = agreement(&chosen.0);
    summarise(&chosen.1, &chosen.0, &prepared, orientation, anchor_correlation)
}

fn assemble(
    passages: usize,
    lengths: &[usize],
    rows: Vec<Row>,
    direction: Direction,
    settings: &Settings,
) -> Result<Problem, FitError> {
    let complete = lengths.len() == 1;
    let paper = settings.objective == Objective::Paper;
    let priors: Vec<Vec<f64>> = lengths
        .iter()
        .map(|&length| match &settings.prior {
            Some(given) if complete => given.clone(),
            _ if complete => prior::geometric(length, direction),
            // Several lengths settle direction and scale themselves; a flat prior favours neither end.
            _ => vec![1.0 / real(length); length],
        })
        .collect();
    if let Some(given) = &settings.prior
        && complete
        && passages > 1
        && lengths[0] == passages
        && prior::orientation(given, passages) < 1e-9
    {
        let problem = "has no direction: all weights are equal".to_owned();
        return Err(FitError::Invalid { field: "a0".into(), problem });
    }
    if !(settings.sigma2 > 0.0 && settings.sigma2 < 1.0) {
        return Err(FitError::Invalid { field: "sigma2".into(), problem: "must lie between 0 and 1".into() });
    }
    let groups = |lam_only: bool| -> Vec<Group> {
        priors
            .iter()
            .map(|profile| {
                let length = real(profile.len());
                let default = 11.0 * settings.sigma2 * length * length;
                let rho = if paper || lam_only { 0.0 } else { settings.rho.unwrap_or(default) };
                Group { prior: profile.clone(), rho, monotone: settings.monotone }
            })
            .collect()
    };
    let draft = Problem::new(passages, groups(true), rows, 0.0)?;
    let default = settings.sigma2 / (1.0 - settings.sigma2) * draft.leverage().max(1e-12);
    let lam = if paper { 0.0 } else { settings.lam.unwrap_or(default) };
    Problem::new(passages, groups(false), draft.rows, lam)
}

fn minimise(problem: &Problem, settings: &Settings) -> Result<State, FitError> {
    match settings.objective {
        Objective::Regularised => varpro::search(problem, settings.starts, 1e-9),
        Objective::Paper => {
            let mut state = varpro::search(problem, Starts::Many, 1e-12)?;
            turn_to_prior(problem, &mut state);
            Ok(state)
        }
    }
}

/// Moves an optimum of the paper's objective along its gauge `(a - 1/N, u - ū) -> (t(a - 1/N), (u - ū)/t)` to the point
/// nearest the prior, on the prior's side.
fn turn_to_prior(problem: &Problem, state: &mut State) {
    let n = problem.passages;
    if problem.groups.len() != 1 || problem.positions() != n || n < 2 {
        return;
    }
    let uniform = 1.0 / real(n);
    let d = state.weights.map(|weight| weight - uniform);
    let toward = problem.prior().map(|weight| weight - uniform);
    let norm = d.norm_squared();
    if norm < 1e-18 {
        return;
    }
    // A negative t turns the direction; either way the weights must stay non-negative.
    let wanted = d.dot(&toward) / norm;
    let oriented = &d * wanted.signum();
    let reach = uniform / (-oriented.min()).max(1e-300);
    let t = wanted.abs().min(reach) * wanted.signum();
    if t.abs() < 1e-9 {
        return;
    }
    state.weights = d.map(|step| (t * step + uniform).max(0.0));
    let centre = state.unknowns.rows(0, n).mean();
    state.unknowns.apply(|utility| *utility = centre + (*utility - centre) / t);
}

fn summarise(
    problem: &Problem,
    state: &State,
    prepared: &domain::Prepared,
    orientation: Orientation,
    anchor_correlation: Option<f64>,
) -> Result<Estimate, FitError> {
    let (diagnostics, covariance) = uncertainty::assess(problem, state)?;
    let fit = varpro::finish(problem, state);
    // Order by the fitted values: the map back to nats loses all order where the scores were constant.
    let ranking =
        if prepared.scale == 0.0 { (0..problem.passages).collect() } else { descending(&snap(&fit.utilities)) };
    let utilities: Vec<f64> = fit.utilities.iter().map(|u| u * prepared.scale + prepared.centre).collect();
    let standard_errors = (0..problem.passages).map(|p| covariance[(p, p)].max(0.0).sqrt() * prepared.scale).collect();
    let outranks_next =
        ranking.windows(2).map(|pair| uncertainty::outranks(&fit.utilities, &covariance, pair[0], pair[1])).collect();
    Ok(Estimate {
        utilities,
        standard_errors,
        outranks_next,
        expected_tau: uncertainty::expected_tau(&fit.utilities, &covariance),
        ranking,
        bias: fit.weights,
        orientation,
        anchor_correlation,
        diagnostics,
        objective: fit.objective,
        fitted: fit.utilities,
        covariance,
    })
}

/// Differences of a millionth of the spread are rounding: such passages tie, and ties keep the input order.
fn snap(utilities: &[f64]) -> Vec<f64> {
    let centre = mean(utilities);
    let spread = utilities.iter().map(|u| (u - centre).abs()).fold(0.0, f64::max);
    if spread <= 1e-9 * centre.abs().max(1.0) {
        return vec![0.0; utilities.len()];
    }
    utilities.iter().map(|u| ((u - centre) / spread * 1e6).round()).collect()
}

#[cfg(test)]
mod tests;
