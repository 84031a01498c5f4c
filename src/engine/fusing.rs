//! Fusion of a method's utilities with the retriever's scores, for a request.
//!
//! The retriever's side is the passages' `retriever_score`, or BM25 inside the list where they have none. The arithmetic is in
//! [`crate::fusion`].

use std::sync::Arc;

use super::EngineError;
use super::rerank::{Passage, RerankRequest};
use crate::fusion::bm25::{self, Background};
pub use crate::fusion::calibration::Source;
use crate::fusion::{Scaling, Side, applied, centre_and_spread, fuse, standardised};
use crate::numeric::descending;

/// The model's share where neither the request nor a calibration says otherwise.
pub const WEIGHT: f64 = 0.6;

/// Beside an embedding model: the model's share, and the cosines' in the other side. BM25 inside a list says less than a retriever.
pub(crate) const fn beside_embedding(source: Source) -> (f64, f64) {
    match source {
        Source::Retriever => (0.35, 0.6),
        Source::Bm25 => (0.4, 0.7),
    }
}

/// Usual standard deviations within a list (docs/ranking.md, "Short lists").
mod typical {
    /// Of utilities, in nats a token of the query.
    pub const UTILITY: f64 = 0.55;
    /// Of cosines.
    pub const COSINE: f64 = 0.165;
    /// Of cosine and retriever's score together, both standardised.
    pub const OTHER_SIDE: f64 = 0.94;
    /// Of a retriever's scores, as a share of the largest: their scale is not known.
    pub const RETRIEVER: f64 = 0.3;
}

/// Spread of utilities that are all alike, as a share of the largest: so little that their values are alike, too, and more than
/// rounding, so that the other side tells them apart.
const ALIKE: f64 = 1e-8;

/// Most words with a document frequency. Only those of the query matter.
const MOST_FREQUENCIES: usize = 10_000;

/// Whether utilities are fused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FusionMode {
    /// As the method does: `cascade` fuses, the others do not.
    #[default]
    ByMethod,
    /// The model alone.
    Off,
    /// With the retriever's scores, or BM25 where they are missing.
    On,
    /// With BM25 even where the retriever's scores are there.
    Bm25,
}

/// Options of a fusion. `None` selects the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FusionOptions {
    /// Whether, and with what.
    pub mode: FusionMode,
    /// The model's share, in [0, 1].
    pub weight: Option<f64>,
    /// How both sides are scaled.
    pub scaling: Option<Scaling>,
    /// Document frequencies of the collection, for BM25.
    pub background: Option<Arc<Background>>,
    /// The shares that calibrations found, where `weight` is `None`. The engine sets them.
    pub learnt: Learnt,
}

/// The model's shares that calibrations found.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Learnt {
    /// Where the other side is the retriever's, or that of BM25.
    pub alone: Option<f64>,
    /// Where the cosines of an embedding model are a part of it.
    pub beside_embedding: Option<f64>,
}

impl FusionOptions {
    /// Whether the mix is left to the method and its calibration.
    pub(super) fn is_default(&self) -> bool {
        self.mode == FusionMode::ByMethod
            && self.weight.is_none()
            && self.scaling.is_none()
            && self.background.is_none()
    }

    /// The model's share. `beside` is the other side where it has a part by an embedding model.
    fn share(&self, beside: Option<Source>) -> f64 {
        let (learnt, built_in) = match beside {
            Some(source) => (self.learnt.beside_embedding, beside_embedding(source).0),
            None => (self.learnt.alone, WEIGHT),
        };
        self.weight.or(learnt).unwrap_or(built_in)
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        if self.background.as_ref().is_some_and(|background| background.frequencies.len() > MOST_FREQUENCIES) {
            let problem = format!("more than {MOST_FREQUENCIES} given: only the words of the query are needed");
            return Err(EngineError::invalid("fusion.background.frequencies", problem));
        }
        match self.weight {
            Some(weight) if !(0.0..=1.0).contains(&weight) => {
                Err(EngineError::invalid("fusion.weight", "must lie between 0 and 1"))
            }
            _ => Ok(()),
        }
    }
}

/// What was mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionReport {
    /// The other side.
    pub source: Source,
    /// How both sides were scaled.
    pub scaling: Scaling,
    /// The model's share.
    pub weight: f64,
    /// The embedding model's share of the other side; `None` where it has no part in it.
    pub embedding: Option<f64>,
}

/// The retriever's side of a request, ready to be mixed.
#[derive(Debug, Clone)]
pub struct Fusion {
    /// The retriever's score of each passage.
    pub scores: Vec<f64>,
    /// What is mixed.
    pub report: FusionReport,
    /// What the caller should know.
    pub warning: Option<String>,
    /// Whether the list's scores have 0 as their floor. It is that of all of them where `scores` are a part.
    pub has_floor: bool,
}

impl Fusion {
    /// Which other side a request has, and the number of passages that have no score. BM25 takes the place of scores that more
    /// than half of the passages lack: they would say too little about the rest.
    pub(super) fn source(request: &RerankRequest) -> (Source, usize) {
        let missing = request.passages.iter().filter(|passage| passage.retriever_score.is_none()).count();
        let lexical = request.fusion.mode == FusionMode::Bm25 || 2 * missing > request.passages.len();
        (if lexical { Source::Bm25 } else { Source::Retriever }, missing)
    }

    /// The retriever's side of a request.
    #[must_use]
    pub fn of(request: &RerankRequest) -> Self {
        let options = &request.fusion;
        let weight = options.share(None);
        let scaling = options.scaling.unwrap_or_default();
        let report = |source| FusionReport { source, scaling, weight, embedding: None };
        let given: Vec<f64> = request.passages.iter().filter_map(|passage| passage.retriever_score).collect();
        let (source, missing) = Self::source(request);
        if source == Source::Bm25 {
            let texts: Vec<String> = request.passages.iter().map(Passage::whole_text).collect();
            let scores = bm25::scores(&request.query, &texts, options.background.as_deref());
            let warning = (missing > 0 && !given.is_empty() && options.mode != FusionMode::Bm25)
                .then(|| format!("{missing} passages have no retriever_score: BM25 inside the list took its place"));
            return Self { scores, report: report(Source::Bm25), warning, has_floor: true };
        }
        let least = given.iter().copied().fold(f64::INFINITY, f64::min);
        let scores = request.passages.iter().map(|passage| passage.retriever_score.unwrap_or(least)).collect();
        let warning =
            (missing > 0).then(|| format!("{missing} passages have no retriever_score and count as the list's lowest"));
        Self { scores, report: report(Source::Retriever), warning, has_floor: least >= 0.0 }
    }

    /// Mixes the cosines of an embedding model, one a passage, into the retriever's side. Both are standardised within the list,
    /// because a cosine has no floor: texts that have nothing to do with each other are not at 0. In a short list differences that
    /// are far below the usual ones count for little. The model's share is that of `options`.
    #[must_use]
    pub fn with_embedding(mut self, cosines: &[f64], options: &FusionOptions) -> Self {
        let cosines = standardised(cosines, Some(typical::COSINE));
        let largest = self.scores.iter().fold(0.0_f64, |largest, score| largest.max(score.abs()));
        let retriever = standardised(&self.scores, Some(typical::RETRIEVER * largest));
        let share = beside_embedding(self.report.source).1;
        self.scores = mixed(share, &cosines, &retriever);
        self.report.weight = options.share(Some(self.report.source));
        self.report.embedding = Some(share);
        // A mixture with cosines has none, even where all that is left of a list lies above its mean.
        self.has_floor = false;
        self
    }

    /// Utilities and the retriever's scores as one value a passage, in the unit of the utilities. With `f` the convex
    /// combination, the value is `max · (f - f_0) / (f_max - f_0)`, where `max` is the largest utility: the best passage keeps
    /// it, so that values stay comparable between queries. `f_0` has the value 0. It is 0 where both sides have a floor.
    /// Standardised, it is that of a utility of 0 and an average score of the other side. A list with its best passage near
    /// zero is not torn apart then: the divisor is at least half of the range of `f`, and so large that two values differ by no more
    /// than the utilities that would make the same difference of `f` alone. The best passage's value is then at most `max`, and
    /// below 0 where `f_0` lies above it. Without a zero of the utilities `f_0` is the smallest `f`. The order is that of `f`.
    /// Where no utility is above 0, every value stays at or below the largest utility, and with floors only the retriever tells
    /// passages apart. Also says what was mixed. `unit` is the tokens of the query where utilities are sums over them.
    #[must_use]
    pub fn values(&self, utilities: &[f64], has_zero: bool, unit: f64) -> (Vec<f64>, FusionReport) {
        let FusionReport { scaling, weight, embedding, .. } = self.report;
        let model = Side { scores: utilities, floor: has_zero.then_some(0.0) };
        let beside_embedding = embedding.is_some();
        let retriever = Side { scores: &self.scores, floor: self.has_floor.then_some(0.0) };
        let scaling = applied(scaling, model, retriever);
        let usual = beside_embedding.then_some(typical::UTILITY * unit);
        let fused = if beside_embedding && scaling == Scaling::Standard {
            let other = standardised(&self.scores, Some(typical::OTHER_SIDE));
            mixed(weight, &standardised(utilities, usual), &other)
        } else {
            fuse(scaling, weight, model, retriever)
        };
        let top = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (most, best) = (top(utilities), top(&fused));
        let least = fused.iter().copied().fold(f64::INFINITY, f64::min);
        let (zero, range) = match scaling {
            Scaling::Floor => (0.0, best),
            Scaling::Standard if has_zero => {
                let (centre, spread) = centre_and_spread(utilities, usual);
                // Of `f` for each nat of a utility.
                // Utilities that are all alike are far from a zero that is not among them.
                let slope = weight / spread.max(ALIKE * most.abs().max(f64::MIN_POSITIVE));
                let zero = 0.0 - slope * centre;
                (zero, (best - zero).max((best - least) / 2.0).max(slope * most))
            }
            _ => (least, best - least),
        };
        let value = |fused: f64| {
            let share = if range > 0.0 { (fused - zero) / range } else { 1.0 };
            if most > 0.0 { most * share } else { most + fused - best }
        };
        (fused.into_iter().map(value).collect(), FusionReport { scaling, ..self.report })
    }

    /// Passages by descending score of the retriever; ties keep the given order.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        descending(&self.scores)
    }
}

/// `share` of one side and the rest of the other.
fn mixed(share: f64, one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| share * one + (1.0 - share) * other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(scores: &[Option<f64>]) -> RerankRequest {
        let passage = |(index, score): (usize, &Option<f64>)| Passage {
            id: index.to_string(),
            text: if index == 1 { "the mill wheel".into() } else { "a weir".into() },
            retriever_score: *score,
            ..Passage::default()
        };
        let passages = scores.iter().enumerate().map(passage).collect();
        RerankRequest { query: "which mill?".into(), passages, ..RerankRequest::default() }
    }

    #[test]
    fn the_retrievers_scores_or_bm25() {
        let given = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)]));
        assert_eq!((given.report.source, given.warning), (Source::Retriever, None));
        let one_missing = Fusion::of(&request(&[Some(3.0), Some(2.0), None]));
        assert_eq!(one_missing.scores, [3.0, 2.0, 2.0]);
        assert!(one_missing.warning.unwrap().starts_with("1 passages"));
        let most_missing = Fusion::of(&request(&[Some(3.0), None, None]));
        assert_eq!((most_missing.report.source, most_missing.order()[0]), (Source::Bm25, 1));
        assert!(most_missing.warning.is_some());
        assert_eq!(Fusion::of(&request(&[None, None])).warning, None, "no score at all is nothing to warn of");
    }

    #[test]
    fn an_embedding_model_is_a_part_of_the_other_side() {
        let fusion = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)]))
            .with_embedding(&[0.2, 0.4, 0.6], &FusionOptions::default());
        // The cosines' variance is (3 · .08 / 3 + 2/9 · .165²) / (3 + 2/9) = .026705, their deviation .163417:
        // That of the scores is (3 · 2 / 3 + 2/9 · .9²) / (3 + 2/9) = .676552, their deviation .822528:
        // .6 · (-1.22386, 0, 1.22386) + .4 · (1.21576, 0, -1.21576)
        let expected = [-0.248_011, 0.0, 0.248_011];
        let close = |(one, other): (&f64, f64)| (one - other).abs() < 1e-5;
        assert!(fusion.scores.iter().zip(expected).all(close), "{:?}", fusion.scores);
        assert_eq!((fusion.report.weight, fusion.report.embedding), (0.35, Some(0.6)));
        let lexical = Fusion::of(&request(&[None; 3])).with_embedding(&[0.2, 0.4, 0.6], &FusionOptions::default());
        assert_eq!((lexical.report.weight, lexical.report.embedding), (0.4, Some(0.7)));
        assert_eq!(fusion.order(), [2, 1, 0]);
        // Cosines that tell nothing apart leave the retriever's order.
        let asked = FusionOptions { weight: Some(0.9), ..FusionOptions::default() };
        let flat = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)])).with_embedding(&[0.5; 3], &asked);
        assert_eq!((flat.order(), flat.report.weight), (vec![0, 1, 2], 0.9));
        // A learnt share is for the other side that it was learnt with.
        let learnt = Learnt { alone: Some(0.7), beside_embedding: None };
        let learnt = FusionOptions { learnt, ..FusionOptions::default() };
        let given = Some(Source::Retriever);
        assert_eq!((learnt.share(None), learnt.share(given)), (0.7, 0.35));
        let beside = Learnt { alone: None, beside_embedding: Some(0.2) };
        let asked = FusionOptions { weight: Some(0.9), learnt: beside, ..FusionOptions::default() };
        assert_eq!((FusionOptions { weight: None, ..asked.clone() }.share(given), asked.share(given)), (0.2, 0.9));
    }

    /// The model prefers the first by 45 nats, the other side the second by as much: all but a tie. The values were -50.9 and -90.9.
    #[test]
    fn a_tie_of_two_sides_is_a_tie() {
        let mut fusion = Fusion::of(&request(&[Some(1.0), Some(2.0)]));
        fusion.scores = vec![-0.3925, 0.3925];
        fusion.report.embedding = Some(0.6);
        fusion.has_floor = false;
        fusion.report.weight = 0.4;
        let (values, _) = fusion.values(&[20.0, -25.0], true, 10.0);
        // Utilities less their mean -2.5, over √((2 · 22.5² + 2/4 · 5.5²) / 2.5) = 20.274: ±1.1098, zero at .4 · 2.5 / 20.274 =
        // .0493. The others over √((2 · .3925² + 2/4 · .94²) / 2.5) = .5477: ∓.7167. f = ±(.4439 - .4300) = ±.0139.
        // A nat is .4 / 20.274 = .01973 of f.
        let expected = [-1.79, -3.21];
        assert!(values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.05), "{values:?}");
    }

    /// Of a long list the best are read: all of them above the list's mean. They are standardised all the same.
    #[test]
    fn a_part_of_a_list_beside_an_embedding_model_is_standardised() {
        let mut fusion = Fusion::of(&request(&[Some(9.0), Some(8.0), Some(7.0)]));
        fusion.scores = vec![1.5, 0.9, 0.3];
        fusion.report.embedding = Some(0.6);
        fusion.has_floor = false;
        fusion.report.weight = 0.5;
        let (values, report) = fusion.values(&[6.0, -2.0, -1.0], true, 1.0);
        assert_eq!(report.scaling, Scaling::Standard);
        // Utilities less their mean 1 over 3.4371: 1.4547, -.8728, -.5819, zero at -.2909. The others over .5333: ±1.1251 and 0.
        // f = 1.2899, -.4364, -.8535, and -.1455 at the zero: values 6 · (1, -.2027, -.4933).
        let expected = [6.0, -1.2162, -2.9596];
        assert!(values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3), "{values:?}");
        // A best passage near the zero does not throw the others far away: half of the range is the least divisor.
        let (near, _) = fusion.values(&[0.01, -8.0, -9.0], true, 1.0);
        assert!(near.iter().all(|value| value.abs() <= 0.03), "{near:?}");
        // A gain of all passages alike has no spread: only the other side tells them apart.
        let (flat, _) = fusion.values(&[2.0; 3], true, 1.0);
        assert_eq!(descending(&flat), [0, 1, 2]);
        assert!(flat.iter().all(|value| value.is_finite()), "{flat:?}");
    }

    /// Standardised alone, each of two scores is one deviation from their mean: the sign of a difference of .001 between cosines
    /// then decided against fifty nats.
    #[test]
    fn in_a_short_list_the_size_of_differences_counts() {
        let order = |scores: &[f64], cosines: &[f64], utilities: &[f64]| {
            let scores: Vec<_> = scores.iter().copied().map(Some).collect();
            let fusion = Fusion::of(&request(&scores)).with_embedding(cosines, &FusionOptions::default());
            descending(&fusion.values(utilities, true, 10.0).0)
        };
        assert_eq!(order(&[3.0, 2.0], &[0.500, 0.501], &[40.0, -10.0]), [0, 1]);
        assert_eq!(order(&[2.5, 3.0], &[0.500, 0.501], &[40.0, -10.0]), [0, 1]);
        assert_eq!(order(&[3.0, 2.0, 1.0], &[0.50, 0.51, 0.50], &[40.0, -10.0, -10.0])[0], 0);
        // A retriever's scores may be as near to each other.
        assert_eq!(order(&[3.0, 3.000_000_1], &[0.5, 0.5], &[17.0, 10.0]), [0, 1]);
        assert_eq!(order(&[3.000_000_1, 3.0], &[0.5, 0.5], &[10.0, 17.0]), [1, 0]);
        // A tenth of a nat is as little; the cosines' usual difference then decides.
        assert_eq!(order(&[2.0, 3.0], &[0.2, 0.5], &[10.1, 10.0]), [1, 0]);
    }

    /// Three copies of one passage that helps: the other side orders them, and none of them is worth less for it.
    #[test]
    fn passages_that_are_alike_have_like_values() {
        let fusion = Fusion::of(&request(&[Some(-1.0), Some(-2.0), Some(-3.0)]));
        for utilities in [[5.0; 3], [5.0, 5.0 + 1e-7, 5.0]] {
            let (values, report) = fusion.values(&utilities, true, 10.0);
            assert_eq!(report.scaling, Scaling::Standard);
            assert!(values.iter().all(|value| (value - 5.0).abs() < 1e-4), "{values:?}");
        }
        assert_eq!(descending(&fusion.values(&[5.0; 3], true, 10.0).0), [0, 1, 2]);
        let (harmful, _) = fusion.values(&[-5.0; 3], true, 10.0);
        assert!(harmful.iter().all(|value| *value <= -5.0), "{harmful:?}");
    }

    /// The passages that are read are the first ones: their scores alone had a floor where the list has none.
    #[test]
    fn a_part_of_a_list_has_the_floor_of_the_list() {
        let list = Fusion::of(&request(&[Some(3.0), Some(1.0), Some(-2.0)]));
        let part = Fusion { scores: vec![3.0, 1.0], ..list };
        assert_eq!(part.values(&[5.0, 2.0], true, 1.0).1.scaling, Scaling::Standard);
        let all_above = Fusion::of(&request(&[Some(3.0), Some(1.0), Some(0.0)]));
        assert_eq!(all_above.values(&[5.0, 2.0, 1.0], true, 1.0).1.scaling, Scaling::Floor);
    }

    #[test]
    fn values_keep_the_unit_and_the_fused_order() {
        let fusion = Fusion::of(&request(&[Some(12.0), Some(9.0), Some(3.0)]));
        let (values, report) = fusion.values(&[2.0, 5.0, 3.0], true, 1.0);
        assert_eq!(report.scaling, Scaling::Floor);
        // f = .6 · (.4, 1, .6) + .4 · (1, .75, .25) = .64, .9, .46
        assert!((values[1] - 5.0).abs() < 1e-12 && (values[0] - 5.0 * 0.64 / 0.9).abs() < 1e-12, "{values:?}");
        let (harmful, _) = fusion.values(&[-2.0, -5.0, -3.0], true, 1.0);
        assert_eq!(descending(&harmful), [0, 1, 2]);
        assert!(harmful.iter().all(|value| *value <= -2.0), "{harmful:?}");
        // Without a floor the lowest value is 0, not some negative number that the scaling made.
        let (standard, report) = fusion.values(&[2.0, 5.0, 3.0], false, 1.0);
        assert_eq!(report.scaling, Scaling::Standard);
        assert!(standard.iter().all(|value| (0.0..=5.0).contains(value)), "{standard:?}");
    }
}
