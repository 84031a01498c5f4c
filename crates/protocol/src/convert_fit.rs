//! Conversions of MOI fits between messages and domain types.

use super::convert_parts::{known, narrow};
use super::v1;
use engine::types::{EngineError, FitReport};
use moi::domain::Domain;
use moi::uncertainty::Diagnostics;
use moi::{Estimate, Orientation};

/// Converts a score domain. `None` if unspecified: objective and design then determine the default. The temperature is
/// checked even if the domain does not use it.
pub(super) fn domain(field: &str, wire: i32, temperature: Option<f64>) -> Result<Option<Domain>, EngineError> {
    if temperature.is_some_and(|temperature| !(temperature.is_finite() && temperature > 0.0)) {
        let field = field.replace("score_domain", "softmax_temperature");
        return Err(EngineError::invalid(field, "must be a finite number above 0"));
    }
    Ok(match known(field, wire)? {
        v1::ScoreDomain::Unspecified => None,
        v1::ScoreDomain::LogWinsorZ => Some(Domain::LogWinsorZ),
        v1::ScoreDomain::LogZ => Some(Domain::LogZ),
        v1::ScoreDomain::RankNormal => Some(Domain::RankNormal),
        v1::ScoreDomain::Softmax => Some(Domain::Softmax { temperature: temperature.unwrap_or(1.0) }),
    })
}

/// True if the request selects the paper's objective.
pub(super) fn paper_objective(field: &str, wire: i32) -> Result<bool, EngineError> {
    Ok(match known(field, wire)? {
        v1::Objective::Unspecified | v1::Objective::Regularised => false,
        v1::Objective::Paper => true,
    })
}

/// Converts the diagnostics of a reranking's fit.
pub(super) fn report_diagnostics(fit: &FitReport) -> v1::FitDiagnostics {
    v1::FitDiagnostics {
        expected_tau: fit.expected_tau,
        anchor_correlation: fit.anchor_correlation,
        objective: fit.objective,
        ..diagnostics(&fit.diagnostics, fit.orientation)
    }
}

/// Converts the diagnostics of a fit to scores from the caller.
pub(super) fn estimate_diagnostics(fit: &Estimate) -> v1::FitDiagnostics {
    v1::FitDiagnostics {
        expected_tau: fit.expected_tau,
        anchor_correlation: fit.anchor_correlation,
        objective: fit.objective,
        ..diagnostics(&fit.diagnostics, fit.orientation)
    }
}

fn diagnostics(inner: &Diagnostics, orientation: Orientation) -> v1::FitDiagnostics {
    let orientation = match orientation {
        Orientation::OnePassageScores => v1::Orientation::OnePassageScores,
        Orientation::CallerPrior => v1::Orientation::CallerPrior,
        Orientation::DefaultPrior => v1::Orientation::DefaultPrior,
        Orientation::Lengths => v1::Orientation::Lengths,
        Orientation::Subsets => v1::Orientation::Subsets,
        Orientation::None => v1::Orientation::None,
    };
    v1::FitDiagnostics {
        r2: inner.r2,
        loo_r2: inner.loo_r2,
        jacobian_rank: narrow(inner.jacobian_rank),
        rank_needed: narrow(inner.rank_needed),
        condition: inner.condition,
        distinct_orders: narrow(inner.distinct),
        noise_variance: inner.noise_variance,
        signal: inner.signal,
        identifiable: inner.identifiable,
        scale_identified: inner.scale_identified,
        // Constant scores have no r2. Nothing is fitted to them, so the prior cannot dominate.
        prior_dominated: !inner.identifiable && inner.r2.is_some(),
        orientation: orientation.into(),
        converged: Some(inner.converged),
        ..v1::FitDiagnostics::default()
    }
}
