//! Search for the shares of a mixture that rank labelled lists best.

use super::{Observed, ROUNDING, standard_error};
use engine::fusion::mixture;
use engine::types::Shares;
use numeric::{mean, real};

/// Shares of the model to try, as the number of steps from 0 to 1.
const MODEL: usize = 20;

/// Shares of the cosines in the other side to try, as the number of steps from 0 to 1.
const COSINES: usize = 10;

/// Shares, and their value on lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriedMix {
    pub shares: Shares,
    /// Mean nDCG@10 of the lists with a relevant passage, before any refinement.
    pub ndcg: f64,
}

/// The shares of these lists without a calibration.
pub(super) fn built_in(lists: &[&Observed]) -> Shares {
    let alone = Shares { weight: mixture::WEIGHT, embedding: 0.0 };
    lists.first().map_or(alone, |one| one.built_in())
}

/// Every mix that is tried, the built-in one first and again in its place; empty for lists without a mixture or without
/// a relevant passage.
pub(super) fn tried(lists: &[&Observed]) -> Vec<TriedMix> {
    let preset = built_in(lists);
    if lists.iter().all(|one| one.source().is_none()) || ndcgs(lists, preset).is_empty() {
        return Vec::new();
    }
    let steps = |count: usize| (0..=count).map(move |step| real(step) / real(count));
    let cosines: Vec<f64> =
        if lists.iter().any(|one| one.has_cosines()) { steps(COSINES).collect() } else { vec![preset.embedding] };
    let others = steps(MODEL).flat_map(|weight| cosines.iter().map(move |&embedding| Shares { weight, embedding }));
    let all = std::iter::once(preset).chain(others);
    all.map(|shares| TriedMix { shares, ndcg: mean(&ndcgs(lists, shares)) }).collect()
}

/// nDCG of the lists with a relevant passage, in their order.
fn ndcgs(lists: &[&Observed], shares: Shares) -> Vec<f64> {
    lists.iter().filter_map(|one| one.ndcg(shares)).collect()
}

/// The mix with the best mean nDCG@10 on these lists, or the built-in one if the gain is within a standard error,
/// because the maximum over many would follow noise. Ties take the mix nearest to the built-in one.
pub(super) fn best(lists: &[&Observed], mixes: &[TriedMix]) -> Shares {
    let preset = built_in(lists);
    let distance = |shares: Shares| (shares.weight - preset.weight).abs() + (shares.embedding - preset.embedding).abs();
    let Some(mut most) = mixes.first().copied() else { return preset };
    for &one in mixes {
        let (higher, equal) = (one.ndcg > most.ndcg + ROUNDING, (one.ndcg - most.ndcg).abs() <= ROUNDING);
        if higher || equal && distance(one.shares) < distance(most.shares) {
            most = one;
        }
    }
    let (learnt, before) = (ndcgs(lists, most.shares), ndcgs(lists, preset));
    let gains: Vec<f64> = learnt.iter().zip(&before).map(|(learnt, before)| learnt - before).collect();
    // One list has no standard error.
    if gains.len() > 1 && mean(&gains) > standard_error(&gains) { most.shares } else { preset }
}
