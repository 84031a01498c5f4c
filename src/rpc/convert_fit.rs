//! Wire types of MOI fits.

use super::convert::{known, narrow};
use super::v1;
use crate::engine::EngineError;
use crate::engine::rerank::FitReport;
use crate::fit::domain::Domain;
use crate::fit::uncertainty::Diagnostics;
use crate::fit::{Estimate, Orientation};

/// A score domain; `None` where the caller left it to the server.
pub(super) fn domain(field: &str, wire: i32, temperature: Option<f64>) -> Result<Option<Domain>, EngineError> {
    Ok(match known(field, wire)? {
        v1::ScoreDomain::Unspecified => None,
        v1::ScoreDomain::LogWinsorZ => Some(Domain::LogWinsorZ),
        v1::ScoreDomain::LogZ => Some(Domain::LogZ),
        v1::ScoreDomain::RankNormal => Some(Domain::RankNormal),
        v1::ScoreDomain::Softmax => Some(Domain::Softmax { temperature: temperature.unwrap_or(1.0) }),
    })
}

/// Whether the paper's objective is asked for.
pub(super) fn paper_objective(field: &str, wire: i32) -> Result<bool, EngineError> {
    Ok(match known(field, wire)? {
        v1::Objective::Unspecified | v1::Objective::Regularised => false,
        v1::Objective::Paper => true,
    })
}

/// What the fit of a rerank says of itself.
pub(super) fn report_diagnostics(fit: &FitReport) -> v1::FitDiagnostics {
    v1::FitDiagnostics {
        expected_tau: fit.expected_tau,
        anchor_correlation: fit.anchor_correlation,
        objective: fit.objective,
        ..diagnostics(&fit.diagnostics, fit.orientation)
    }
}

/// What a fit of its own says of itself.
pub(super) fn estimate_diagnostics(fit: &Estimate) -> v1::FitDiagnostics {
    v1::FitDiagnostics {
        expected_tau: fit.expected_tau,
        anchor_correlation: fit.anchor_correlation,
        objective: fit.objective,
        ..diagnostics(&fit.diagnostics, fit.orientation)
    }
}

fn diagnostics(inner: &Diagnostics, settled: Orientation) -> v1::FitDiagnostics {
    let orientation = match settled {
        Orientation::OnePassageScores => v1::Orientation::OnePassageScores,
        Orientation::CallerPrior => v1::Orientation::CallerPrior,
        Orientation::DefaultPrior => v1::Orientation::DefaultPrior,
        Orientation::Lengths => v1::Orientation::Lengths,
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
        prior_dominated: !inner.identifiable && settled != Orientation::None,
        orientation: orientation.into(),
        ..v1::FitDiagnostics::default()
    }
}
