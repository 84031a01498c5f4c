//! Fusion of a method's utilities with the retriever's scores, for a request.
//!
//! The retriever's side is the passages' `retriever_score`, or BM25 inside the list where they have none. The arithmetic is in
//! [`crate::fusion`].

use std::sync::Arc;

use super::EngineError;
use super::rerank::{Passage, RerankRequest};
use crate::fusion::bm25::{self, Background};
pub use crate::fusion::calibration::Source;
use crate::fusion::{Scaling, Side, applied, fuse};
use crate::numeric::{descending, mean, standard_deviation};

/// The model's share where neither the request nor a calibration says otherwise.
pub const WEIGHT: f64 = 0.6;

/// The model's share beside an embedding model, whose cosines are a part of the other side.
pub const WEIGHT_BESIDE_EMBEDDING: f64 = 0.4;

/// The embedding model's share of the other side.
pub const EMBEDDING_SHARE: f64 = 0.7;

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
    /// Whether scaling and weight are left to the method and its calibration.
    pub(super) fn is_default(&self) -> bool {
        self.mode == FusionMode::ByMethod && self.weight.is_none() && self.scaling.is_none()
    }

    /// The model's share, where the other side has, or has not, a part by an embedding model.
    fn share(&self, embedding: bool) -> f64 {
        let (learnt, built_in) = if embedding {
            (self.learnt.beside_embedding, WEIGHT_BESIDE_EMBEDDING)
        } else {
            (self.learnt.alone, WEIGHT)
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
        let weight = options.share(false);
        let scaling = options.scaling.unwrap_or_default();
        let report = |source| FusionReport { source, scaling, weight, embedding: None };
        let given: Vec<f64> = request.passages.iter().filter_map(|passage| passage.retriever_score).collect();
        let (source, missing) = Self::source(request);
        if source == Source::Bm25 {
            let texts: Vec<String> = request.passages.iter().map(Passage::whole_text).collect();
            let scores = bm25::scores(&request.query, &texts, options.background.as_deref());
            let warning = (missing > 0 && !given.is_empty() && options.mode != FusionMode::Bm25)
                .then(|| format!("{missing} passages have no retriever_score: BM25 inside the list took its place"));
            return Self { scores, report: report(Source::Bm25), warning };
        }
        let least = given.iter().copied().fold(f64::INFINITY, f64::min);
        let scores = request.passages.iter().map(|passage| passage.retriever_score.unwrap_or(least)).collect();
        let warning =
            (missing > 0).then(|| format!("{missing} passages have no retriever_score and count as the list's lowest"));
        Self { scores, report: report(Source::Retriever), warning }
    }

    /// Mixes the cosines of an embedding model, one a passage, into the retriever's side. Both are standardised within the list,
    /// because a cosine has no floor: texts that have nothing to do with each other are not at 0. The model's share is that of
    /// `options`.
    #[must_use]
    pub fn with_embedding(mut self, cosines: &[f64], options: &FusionOptions) -> Self {
        let side = |scores| Side { scores, floor: None };
        self.scores = fuse(Scaling::Standard, EMBEDDING_SHARE, side(cosines), side(&self.scores));
        self.report.weight = options.share(true);
        self.report.embedding = Some(EMBEDDING_SHARE);
        self
    }

    /// Utilities and the retriever's scores as one value a passage, in the unit of the utilities. With `f` the convex
    /// combination, the value is `max · (f - f_0) / (f_max - f_0)`, where `max` is the largest utility: the best passage keeps
    /// it, so that values stay comparable between queries. `f_0` has the value 0. It is 0 where both sides have a floor.
    /// Standardised, it is that of a utility of 0 and an average score of the other side; the divisor is then at least half of
    /// the range of `f`, so that a list with its best passage near zero is not torn apart. Without a zero of the utilities it is
    /// the smallest `f`. The order is that of `f`. Where no utility is above 0, only the retriever tells passages apart, and
    /// every value stays at or below the largest utility. Also says what was mixed.
    #[must_use]
    pub fn values(&self, utilities: &[f64], has_zero: bool) -> (Vec<f64>, FusionReport) {
        let FusionReport { scaling, weight, embedding, .. } = self.report;
        let model = Side { scores: utilities, floor: has_zero.then_some(0.0) };
        // A mixture with cosines has no floor, even where all that is left of a list lies above its mean.
        let unbounded = Side { scores: &self.scores, floor: None };
        let retriever = if embedding.is_some() { unbounded } else { Side::retriever(&self.scores) };
        let scaling = applied(scaling, model, retriever);
        let fused = fuse(scaling, weight, model, retriever);
        let top = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (most, best) = (top(utilities), top(&fused));
        let least = fused.iter().copied().fold(f64::INFINITY, f64::min);
        let (zero, range) = match scaling {
            Scaling::Floor => (0.0, best),
            Scaling::Standard if has_zero => {
                let zero = weight * standardised_zero(utilities);
                (zero, (best - zero).max((best - least) / 2.0))
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

/// Where 0 lies among standardised values.
fn standardised_zero(values: &[f64]) -> f64 {
    let spread = standard_deviation(values);
    if spread > 0.0 { -mean(values) / spread } else { 0.0 }
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
        // Both are a standard deviation and a half apart, in opposite directions: .7 · (-1.2247, 0, 1.2247) + .3 · (1.2247, 0,
        // -1.2247)
        let expected = [-0.489_898, 0.0, 0.489_898];
        assert!(
            fusion.scores.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-6),
            "{:?}",
            fusion.scores
        );
        assert_eq!((fusion.report.weight, fusion.report.embedding), (WEIGHT_BESIDE_EMBEDDING, Some(EMBEDDING_SHARE)));
        assert_eq!(fusion.order(), [2, 1, 0]);
        // Cosines that tell nothing apart leave the retriever's order.
        let asked = FusionOptions { weight: Some(0.9), ..FusionOptions::default() };
        let flat = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)])).with_embedding(&[0.5; 3], &asked);
        assert_eq!((flat.order(), flat.report.weight), (vec![0, 1, 2], 0.9));
        // A learnt share is for the other side that it was learnt with.
        let learnt = Learnt { alone: Some(0.7), beside_embedding: None };
        let learnt = FusionOptions { learnt, ..FusionOptions::default() };
        assert_eq!((learnt.share(false), learnt.share(true)), (0.7, WEIGHT_BESIDE_EMBEDDING));
        let beside = Learnt { alone: None, beside_embedding: Some(0.2) };
        let asked = FusionOptions { weight: Some(0.9), learnt: beside, ..FusionOptions::default() };
        assert_eq!((FusionOptions { weight: None, ..asked.clone() }.share(true), asked.share(true)), (0.2, 0.9));
    }

    /// Of a long list the best are read: all of them above the list's mean. They are standardised all the same.
    #[test]
    fn a_part_of_a_list_beside_an_embedding_model_is_standardised() {
        let mut fusion = Fusion::of(&request(&[Some(9.0), Some(8.0), Some(7.0)]));
        fusion.scores = vec![1.5, 0.9, 0.3];
        fusion.report.embedding = Some(EMBEDDING_SHARE);
        fusion.report.weight = 0.5;
        let (values, report) = fusion.values(&[6.0, -2.0, -1.0], true);
        assert_eq!(report.scaling, Scaling::Standard);
        // Utilities less their mean 1 over 3.5590: 1.4049, -.8429, -.5620, zero at -.2810; the others 1.2247, 0, -1.2247.
        // f = 1.3148, -.4215, -.8933, and -.1405 at the zero: values 6 · (1, -.1931, -.5173).
        let expected = [6.0, -1.1585, -3.1039];
        assert!(values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3), "{values:?}");
        // A best passage near the zero does not throw the others far away: half of the range is the least divisor.
        let (near, _) = fusion.values(&[0.01, -8.0, -9.0], true);
        assert!(near.iter().all(|value| value.abs() <= 0.03), "{near:?}");
        // A gain of all passages alike has no spread: only the other side tells them apart.
        let (flat, _) = fusion.values(&[2.0; 3], true);
        assert_eq!(descending(&flat), [0, 1, 2]);
        assert!(flat.iter().all(|value| value.is_finite()), "{flat:?}");
    }

    #[test]
    fn values_keep_the_unit_and_the_fused_order() {
        let fusion = Fusion::of(&request(&[Some(12.0), Some(9.0), Some(3.0)]));
        let (values, report) = fusion.values(&[2.0, 5.0, 3.0], true);
        assert_eq!(report.scaling, Scaling::Floor);
        // f = .6 · (.4, 1, .6) + .4 · (1, .75, .25) = .64, .9, .46
        assert!((values[1] - 5.0).abs() < 1e-12 && (values[0] - 5.0 * 0.64 / 0.9).abs() < 1e-12, "{values:?}");
        let (harmful, _) = fusion.values(&[-2.0, -5.0, -3.0], true);
        assert_eq!(descending(&harmful), [0, 1, 2]);
        assert!(harmful.iter().all(|value| *value <= -2.0), "{harmful:?}");
        // Without a floor the lowest value is 0, not some negative number that the scaling made.
        let (standard, report) = fusion.values(&[2.0, 5.0, 3.0], false);
        assert_eq!(report.scaling, Scaling::Standard);
        assert!(standard.iter().all(|value| (0.0..=5.0).contains(value)), "{standard:?}");
    }
}
