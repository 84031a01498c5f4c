//! Fits that are evidence of the position bias.

use std::collections::{HashSet, VecDeque};

use crate::types::FitReport;
use moi::Orientation;
use moi::profile::Origin;

/// Log-likelihood ratio above which a fit found signal: 5 % of pure noise exceed it.
const SIGNAL: f64 = 1.35;
/// The ratio for learning from prompts of one length: 0.1 %. Such a fit takes its shape from a geometric prior if
/// the scores are not informative, so chance findings would add up to that prior.
const SIGNAL_BESIDE_PRIOR: f64 = 4.77;
/// Least correlation of the utilities with the single-passage scores at which these scores determine the direction.
/// Below it, the two directions differ by chance.
const ANCHOR_CORRELATION: f64 = 0.5;
/// Remembered fits, to recognise repeated requests.
const REMEMBERED: usize = 4096;

/// Why the weights of a fit are not evidence of the position bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The scores do not determine the weights: the prior decided them (cyclic and Latin designs of N orders).
    #[error("not identifiable: the scores do not determine the weights")]
    NotIdentifiable,
    /// The scores do not stand out from noise.
    #[error("without signal: the scores do not stand out from noise")]
    NoSignal,
    /// The data did not show which end of the prompt weighs more.
    #[error("without direction: the data do not settle which end of the prompt weighs more")]
    NoDirection,
}

/// The reason not to add the weights of `fit` to a profile of this origin; `None` if they are evidence.
#[must_use]
pub fn refusal(fit: &FitReport, origin: Origin) -> Option<Refusal> {
    if !fit.diagnostics.identifiable {
        return Some(Refusal::NotIdentifiable);
    }
    let settled = match fit.orientation {
        Orientation::Lengths => true,
        Orientation::OnePassageScores => {
            fit.anchor_correlation.is_some_and(|correlation| correlation >= ANCHOR_CORRELATION)
        }
        // A difference between two directions' objectives is weaker evidence than the generator's single-passage
        // scores.
        Orientation::Subsets | Orientation::CallerPrior | Orientation::DefaultPrior | Orientation::None => false,
    };
    let prior_has_shape = fit.orientation != Orientation::Lengths;
    let least = if prior_has_shape && origin == Origin::Learnt { SIGNAL_BESIDE_PRIOR } else { SIGNAL };
    if fit.diagnostics.signal <= least {
        return Some(Refusal::NoSignal);
    }
    (!settled).then_some(Refusal::NoDirection)
}

/// The last fits, each by rounded figures, because equal requests differ by the generator's rounding errors. A
/// caller who repeats one request then gives one observation.
#[derive(Debug, Default)]
pub(super) struct Recent {
    seen: HashSet<Vec<i64>>,
    order: VecDeque<Vec<i64>>,
}

impl Recent {
    /// True if this fit is not among the last ones.
    pub fn insert(&mut self, fit: &FitReport) -> bool {
        let found = &fit.diagnostics;
        let shares = [found.signal, found.r2.unwrap_or(-1.0), fit.anchor_correlation.unwrap_or(-2.0)];
        let weights = fit.bias.iter().flatten().map(|weight| rounded(*weight, 1e3));
        let key: Vec<i64> = weights.chain(shares.map(|share| rounded(share, 1e2))).collect();
        if !self.seen.insert(key.clone()) {
            return false;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[expect(clippy::cast_possible_truncation, reason = "weights and diagnostics are small, and a cast saturates")]
fn rounded(value: f64, scale: f64) -> i64 {
    (value * scale).round() as i64
}
