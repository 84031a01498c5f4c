//! The result of a method.

use crate::types::{FitReport, FusionReport, RankingStage, ScoreParts};
use numeric::{descending, real};

/// Utilities in which a passage that was not evaluated gets the lowest utility of the others, and at most 0.
pub(super) fn complete(utilities: &[f64]) -> Vec<f64> {
    let least = utilities.iter().copied().filter(|utility| utility.is_finite()).fold(0.0, f64::min);
    utilities.iter().map(|utility| if utility.is_finite() { *utility } else { least }).collect()
}

/// The outcome of a method.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scored {
    /// Utility of each passage, in the method's unit.
    pub utilities: Vec<f64>,
    /// True if a utility of 0 means "no better than no passage": above it a passage helps, below it harms.
    pub has_zero: bool,
    /// The values that the scores are made from, if not the utilities: the fused value of each passage, in the unit
    /// of the utilities.
    pub values: Option<Vec<f64>>,
    /// Utility of each passage before the first places were refined; `None` if none were.
    pub alone: Option<Vec<f64>>,
    /// The fusion, if any.
    pub fusion: Option<FusionReport>,
    /// The part of each score in a passage's value; empty without fusion.
    pub score_parts: Vec<ScoreParts>,
    /// The stage that decided each passage's place; empty for a method of one stage.
    pub stages: Vec<RankingStage>,
    /// Standard error of each utility, in the same unit.
    pub standard_errors: Option<Vec<f64>>,
    /// Passages, best first; ties keep the input order. By descending utility, unless the method says otherwise.
    pub ranking: Vec<usize>,
    /// For each place of the ranking except the last, the probability that its passage outranks the next one.
    /// `None` for a method that [`outranks_by_value`]: it then follows from the values.
    ///
    /// [`outranks_by_value`]: super::Method::outranks_by_value
    pub outranks_next: Option<Vec<f64>>,
    /// The fit, for methods that have one.
    pub fit: Option<FitReport>,
    /// One unit of `score`'s logit: the reported score of a passage is `sigmoid(utility / unit)`.
    pub unit: f64,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

impl Scored {
    /// True if a model placed any of the passages.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|stage| *stage != RankingStage::Retriever)
    }

    /// A ranking by descending utility, without errors or a fit.
    #[must_use]
    pub fn by_utility(utilities: Vec<f64>, unit: f64) -> Self {
        let ranking = descending(&utilities);
        Self { utilities, ranking, unit, ..Self::default() }
    }

    /// Only a ranking: utilities are the number of passages minus the rank.
    #[must_use]
    pub fn by_rank(ranking: Vec<usize>) -> Self {
        let mut utilities = vec![0.0; ranking.len()];
        for (rank, &passage) in ranking.iter().enumerate() {
            utilities[passage] = real(ranking.len() - rank);
        }
        // With a unit of 1 the scores of long lists would all be 1.
        let unit = real(ranking.len().max(1));
        Self { utilities, ranking, unit, ..Self::default() }
    }

    /// [`Scored::by_utility`] for utilities whose zero is a prompt without passages.
    #[must_use]
    pub fn against_none(utilities: Vec<f64>, unit: f64) -> Self {
        Self { has_zero: true, ..Self::by_utility(utilities, unit) }
    }
}
