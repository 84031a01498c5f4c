//! Fits that are evidence of the position bias.

use std::collections::{HashSet, VecDeque};

use crate::types::FitReport;
use moi::Orientation;
use moi::profile::Origin;

/// Log-likelihood ratio above which a fit found signal: 5 % of fits without any exceed it.
const SIGNAL: f64 = 1.35;
/// The ratio for learning from prompts of one length: 0.1 %. Such a fit takes its shape from a geometric prior where the
/// scores say nothing, so an endless stream of chance findings would add up to that prior.
const SIGNAL_BESIDE_PRIOR: f64 = 4.77;
/// Least correlation of the utilities with the one-passage scores at which those scores settle the direction. Below it, the
/// two directions differ by chance.
const ANCHOR_CORRELATION: f64 = 0.5;
/// Fits remembered to recognise repeated requests.
const REMEMBERED: usize = 4096;

/// Why the weights of a fit are no evidence of the position bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The scores alone do not determine the weights: the prior decided them (cyclic and Latin designs of N orders).
    #[error("not identifiable: the scores do not determine the weights")]
    NotIdentifiable,
    /// The scores do not stand out from noise.
    #[error("without signal: the scores do not stand out from noise")]
    NoSignal,
    /// The data did not settle which end of the prompt weighs more.
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
        // Two directions whose objectives differ are weaker evidence than the generator's one-passage scores.
        Orientation::Subsets | Orientation::CallerPrior | Orientation::DefaultPrior | Orientation::None => false,
    };
    let prior_has_shape = fit.orientation != Orientation::Lengths;
    let least = if prior_has_shape && origin == Origin::Learnt { SIGNAL_BESIDE_PRIOR } else { SIGNAL };
    if fit.diagnostics.signal <= least {
        return Some(Refusal::NoSignal);
    }
    (!settled).then_some(Refusal::NoDirection)
}

/// The last fits, each by rounded figures: equal requests differ by rounding errors of the generator. A caller who repeats one
/// request then gives one observation.
#[derive(Debug, Default)]
pub(super) struct Recent {
    seen: HashSet<Vec<i64>>,
    order: VecDeque<Vec<i64>>,
}

impl Recent {
    /// True where this fit was not among the last ones.
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
