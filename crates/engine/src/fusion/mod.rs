//! Fusion of the model's scores with the retriever's: two lists of scores for the same passages become one.
//!
//! `f = α·φ(model) + (1 - α)·φ(retriever)`; φ scales each side within the list (Bruch et al., 2023, "An Analysis of
//! Fusion Functions for Hybrid Retrieval", sections 3 and 4). Scaling is per query, because the range of scores
//! differs between queries. Fused values order one list; they are not comparable between lists.

pub mod bm25;
pub mod calibration;
pub mod certainty;
pub mod mixture;
pub mod platt;

use crate::types::Scaling;
use numeric::{mean, mid_ranks, real, standard_deviation};

/// One side of a fusion.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Scores, higher is better; finite.
    pub scores: &'a [f64],
    /// The score of a passage without evidence; `None` if the scores have no such value.
    pub floor: Option<f64>,
}

impl<'a> Side<'a> {
    /// A retriever's scores. Their floor is 0 if none of them is negative, as for BM25.
    #[must_use]
    pub fn retriever(scores: &'a [f64]) -> Self {
        Self { scores, floor: scores.iter().all(|score| *score >= 0.0).then_some(0.0) }
    }
}

/// The scaling that replaces `asked`: floors need a floor on both sides.
#[must_use]
pub const fn applied(asked: Scaling, model: Side<'_>, retriever: Side<'_>) -> Scaling {
    match (asked, model.floor, retriever.floor) {
        (Scaling::Floor, None, _) | (Scaling::Floor, _, None) => Scaling::Standard,
        (scaling, ..) => scaling,
    }
}

/// A typical standard deviation counts as much as `TYPICAL_WEIGHT / n²` scores of a list of n: half a score in a
/// list of two. Any two scores are one standard deviation from their mean, so by itself a list of two would show
/// the sign of a difference but not its size. Long lists have a reliable deviation (docs/experiments/ranking.md,
/// "Short lists").
const TYPICAL_WEIGHT: f64 = 2.0;

/// Below this share of the largest score, a spread is rounding noise.
const FLAT: f64 = 1e-13;

/// A list's mean and standard deviation. With a `typical` deviation, the variance includes 2 / n² more scores at
/// that distance from the mean.
#[must_use]
pub fn centre_and_spread(scores: &[f64], typical: Option<f64>) -> (f64, f64) {
    // The unit does not matter. Within [-1, 1] no sum or square of finite scores overflows.
    let largest = scores.iter().fold(0.0_f64, |largest, score| largest.max(score.abs()));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let scores: Vec<f64> = scores.iter().map(|score| score / unit).collect();
    let spread = standard_deviation(&scores);
    let spread = if spread > FLAT { spread } else { 0.0 };
    let spread = typical.map_or(spread, |typical| {
        let (n, typical) = (real(scores.len()).max(1.0), typical / unit);
        let weight = TYPICAL_WEIGHT / n.powi(2);
        ((n * spread.powi(2) + weight * typical.powi(2)) / (n + weight)).sqrt()
    });
    (mean(&scores) * unit, spread * unit)
}

/// Scores minus their mean, divided by the deviation of [`centre_and_spread`]; all 0 if there is none.
#[must_use]
pub fn standardised(scores: &[f64], typical: Option<f64>) -> Vec<f64> {
    standardised_among(scores, &(0..scores.len()).collect::<Vec<_>>(), typical)
}

/// [`standardised`] with the mean and deviation of the scores at these indices.
#[must_use]
pub fn standardised_among(scores: &[f64], among: &[usize], typical: Option<f64>) -> Vec<f64> {
    let part: Vec<f64> = among.iter().map(|&index| scores[index]).collect();
    let (centre, spread) = centre_and_spread(&part, typical);
    scores.iter().map(|score| if spread > 0.0 { (score / spread) - (centre / spread) } else { 0.0 }).collect()
}

/// The fused value of each passage. `weight` in [0, 1] is the model's share.
#[must_use]
pub fn fuse(scaling: Scaling, weight: f64, model: Side<'_>, retriever: Side<'_>) -> Vec<f64> {
    let scaling = applied(scaling, model, retriever);
    let (model, retriever) = (scaled(scaling, model), scaled(scaling, retriever));
    model.iter().zip(&retriever).map(|(m, r)| weight * m + (1.0 - weight) * r).collect()
}

/// A side without range, or with nothing above its floor, has the same value everywhere: 0, except for reciprocal
/// ranks.
fn scaled(scaling: Scaling, side: Side<'_>) -> Vec<f64> {
    // No scaling depends on the unit. Within [-1, 1] no sum or square of finite scores overflows.
    let largest = side.scores.iter().fold(0.0_f64, |largest, score| largest.max(score.abs()));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let scores: Vec<f64> = side.scores.iter().map(|score| score / unit).collect();
    let (scores, floor) = (scores.as_slice(), side.floor.map(|floor| floor / unit));
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let between = |least: f64| -> Vec<f64> {
        let range = most - least;
        if range > 0.0 {
            scores.iter().map(|score| ((score - least) / range).max(0.0)).collect()
        } else {
            vec![0.0; scores.len()]
        }
    };
    match scaling {
        Scaling::Floor => between(floor.unwrap_or(most)),
        Scaling::MinMax => between(scores.iter().copied().fold(f64::INFINITY, f64::min)),
        Scaling::Standard => standardised(scores, None),
        Scaling::ReciprocalRank => {
            // Equal scores share their mean rank: a side with ties must not decide between them.
            let from_below = mid_ranks(scores);
            from_below.into_iter().map(|rank| 1.0 / (61.0 + real(scores.len()) - rank)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use numeric::descending;

    const BM25: [f64; 3] = [12.0, 9.0, 3.0];
    const MODEL: [f64; 3] = [-10.0, -7.0, -9.0];
    const NULL: f64 = -12.0;

    fn fused(scaling: Scaling, weight: f64) -> Vec<f64> {
        fuse(scaling, weight, Side { scores: &MODEL, floor: Some(NULL) }, Side::retriever(&BM25))
    }

    fn close(left: &[f64], right: &[f64], tolerance: f64) {
        assert!(left.iter().zip(right).all(|(l, r)| (l - r).abs() < tolerance), "{left:?} {right:?}");
    }

    /// By hand, from the design notes; the reciprocal ranks are sums there, twice these means.
    #[test]
    fn the_hand_worked_lists() {
        close(&fused(Scaling::MinMax, 0.8), &[0.2, 0.933_333, 0.266_667], 1e-6);
        close(&fused(Scaling::Floor, 0.8), &[0.52, 0.95, 0.53], 1e-12);
        let standard: Vec<f64> = fused(Scaling::Standard, 0.5).iter().map(|value| 2.0 * value).collect();
        close(&standard, &[0.0, 1.604, -1.604], 1e-3);
        let ranks: Vec<f64> = fused(Scaling::ReciprocalRank, 0.5).iter().map(|value| 2.0 * value).collect();
        close(&ranks, &[0.032_266, 0.032_523, 0.032_002], 1e-6);
    }

    /// The mean of these scores is not a finite number.
    #[test]
    fn huge_scores_are_ordered_like_others() {
        let huge = [1e308, 1.5e308, -1e308];
        for scaling in [Scaling::Floor, Scaling::MinMax, Scaling::Standard, Scaling::ReciprocalRank] {
            let fused = fuse(scaling, 0.0, Side { scores: &MODEL, floor: None }, Side::retriever(&huge));
            assert_eq!(descending(&fused), [1, 0, 2], "{scaling:?}");
            assert!(fused.iter().all(|value| value.is_finite()), "{scaling:?}");
        }
    }

    #[test]
    fn a_negative_score_has_no_floor() {
        let cosine = [0.4, -0.1, 0.2];
        let model = Side { scores: &MODEL, floor: Some(NULL) };
        let fused = fuse(Scaling::Floor, 0.5, model, Side::retriever(&cosine));
        assert_eq!(fused, fuse(Scaling::Standard, 0.5, model, Side::retriever(&cosine)));
    }

    #[test]
    fn a_side_that_says_nothing_changes_nothing() {
        let flat = [3.0; 3];
        let (model, retriever) = (Side { scores: &MODEL, floor: Some(NULL) }, Side::retriever(&flat));
        for scaling in [Scaling::MinMax, Scaling::Standard, Scaling::Floor, Scaling::ReciprocalRank] {
            assert_eq!(descending(&fuse(scaling, 0.5, model, retriever)), descending(&MODEL), "{scaling:?}");
        }
        // No passage is better than none: only the retriever counts.
        let model = Side { scores: &MODEL, floor: Some(-1.0) };
        assert_eq!(descending(&fuse(Scaling::Floor, 0.8, model, Side::retriever(&BM25))), [0, 1, 2]);
    }

    #[test]
    fn a_short_list_has_a_typical_spread() {
        // Two scores: variance 25, and half a score more at 1: (2 · 25 + 0.5) / 2.5 = 20.2.
        close(&standardised(&[8.0, -2.0], Some(1.0)), &[5.0 / 20.2_f64.sqrt(), -5.0 / 20.2_f64.sqrt()], 1e-12);
        close(&standardised(&[8.0, -2.0], None), &[1.0, -1.0], 1e-12);
        // A difference of 0.001 hardly counts if 0.16 is usual.
        assert!(standardised(&[0.501, 0.5], Some(0.16))[0] < 0.01);
        // For twenty scores the list's own spread dominates.
        let many: Vec<f64> = (0..20).map(f64::from).collect();
        let (own, typical) = (standardised(&many, None), standardised(&many, Some(3.0)));
        assert!(own.iter().zip(&typical).all(|(own, typical)| (own - typical).abs() < 1e-3));
    }

    /// Equal up to rounding: 0.1 + 0.2 is not 0.3.
    #[test]
    fn equal_scores_have_no_spread() {
        for typical in [None, Some(0.5)] {
            let flat = standardised(&[0.1 + 0.2, 0.3], typical);
            assert!(flat.iter().all(|value| value.abs() < 1e-12), "{flat:?}");
        }
        assert_eq!(standardised(&[], Some(1.0)), [0.0; 0]);
    }

    proptest! {
        /// The order depends neither on the unit of the retriever's scores nor on the order of the passages.
        #[test]
        fn scale_and_permutation(
            pairs in proptest::collection::vec((-50.0..0.0_f64, 0.0..30.0_f64), 1..12), factor in 0.1..100.0_f64,
            weight in 0.0..=1.0_f64,
        ) {
            let (model, retriever): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            let scaled: Vec<f64> = retriever.iter().map(|score| score * factor).collect();
            for scaling in [Scaling::Floor, Scaling::MinMax, Scaling::Standard] {
                let side = |scores| Side { scores, floor: Some(-30.0) };
                let fused = fuse(scaling, weight, side(&model), Side::retriever(&retriever));
                let other = fuse(scaling, weight, side(&model), Side::retriever(&scaled));
                prop_assert!(fused.iter().zip(&other).all(|(l, r)| (l - r).abs() < 1e-9));
                let back = |values: &[f64]| values.iter().rev().copied().collect::<Vec<_>>();
                let reversed = fuse(scaling, weight, side(&back(&model)), Side::retriever(&back(&retriever)));
                prop_assert!(back(&fused).iter().zip(&reversed).all(|(l, r)| (l - r).abs() < 1e-9));
                prop_assert!(fused.iter().all(|value| value.is_finite()));
            }
        }
    }
}
