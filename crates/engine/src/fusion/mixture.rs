//! Fusion of a method's utilities with the retriever's scores, for a request.
//!
//! The retriever's side is the passages' `retriever_score`, or BM25 within the list if they have none.
//! [`crate::fusion`] has the arithmetic.

mod score_parts;

use crate::fusion::bm25;
use crate::fusion::{Side, applied, centre_and_spread, fuse, standardised, standardised_among};
use crate::types::{
    EngineError, FusionMode, FusionOptions, FusionReport, MethodRef, Passage, RerankRequest, Scaling, Shares, Source,
};
use numeric::{descending, real};
use rag_metrics::quoted;

// A change of the built-in weights or scales needs another version of the calibrations' file (`storage::calibrations`) and another
// [`crate::prompt::RANKING_VERSION`].

/// The model's share if neither the request nor a calibration sets it.
pub const WEIGHT: f64 = 0.6;

/// The built-in shares with an embedding model. BM25 within a list is less informative than a retriever.
pub const fn embedding_shares(source: Source) -> Shares {
    match source {
        Source::Retriever => Shares { weight: 0.35, embedding: 0.6 },
        Source::Bm25 => Shares { weight: 0.4, embedding: 0.7 },
    }
}

/// Usual standard deviations within a list (docs/experiments/ranking.md, "Short lists").
mod typical {
    /// Utilities, in nats per token of the query.
    pub const UTILITY: f64 = 0.55;
    /// Cosines.
    pub const COSINE: f64 = 0.165;
    /// Cosine plus retriever's score, both standardised.
    pub const OTHER_SIDE: f64 = 0.94;
    /// A retriever's scores, as a share of the largest: their scale is unknown.
    pub const RETRIEVER: f64 = 0.3;
}

/// The usual range of fused values is worth at least this many standard deviations of the utilities. It matters if
/// the best passage hardly helps (docs/experiments/ranking.md, "Where the best passage hardly helps").
const LEAST_RANGE: f64 = 2.0;

/// Spread of equal utilities, as a share of the largest. It is small enough that their values stay alike, and
/// larger than rounding, so that the other side decides between them.
const ALIKE: f64 = 1e-8;

/// Most words with a document frequency. Only the words of the query matter.
const MOST_FREQUENCIES: usize = 10_000;

impl FusionOptions {
    /// True if the method and its calibration decide the mix. [`FusionMode::Off`] changes nothing for a method that
    /// does not mix.
    pub(crate) fn is_left_to(&self, method: MethodRef) -> bool {
        let by_method =
            self.mode == FusionMode::ByMethod || self.mode == FusionMode::Off && method.mixed_model().is_none();
        by_method && self.embedding.is_none() && !self.sets_sides()
    }

    /// True if the request sets how the model and the other side are mixed, whatever the other side consists of.
    pub(crate) fn sets_sides(&self) -> bool {
        self.weight.is_some() || self.scaling.is_some() || self.background.is_some()
    }

    /// The model's share without an embedding model.
    fn weight_alone(&self) -> f64 {
        self.weight.or(self.learnt.alone).unwrap_or(WEIGHT)
    }

    /// The shares with an embedding model.
    fn shares(&self, source: Source) -> Shares {
        let shares = self.learnt.with_embedding.unwrap_or(embedding_shares(source));
        Shares { weight: self.weight.unwrap_or(shares.weight), embedding: self.embedding.unwrap_or(shares.embedding) }
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if let Some(background) = &self.background {
            let (field, documents) = ("fusion.background.frequencies", background.documents);
            if background.frequencies.len() > MOST_FREQUENCIES {
                let problem = format!("more than {MOST_FREQUENCIES} given: only the words of the query are needed");
                return Err(EngineError::invalid(field, problem));
            }
            // Without documents every word weighs the same.
            if documents == 0 {
                return Err(EngineError::invalid("fusion.background.documents", "must be above 0"));
            }
            let most = background.frequencies.iter().max_by_key(|(word, holding)| (**holding, *word));
            if let Some((word, holding)) = most.filter(|(_, holding)| **holding > documents) {
                let problem = format!("is {holding}, but the collection has {documents} documents");
                return Err(EngineError::invalid(format!("{field}[{}]", quoted(word)), problem));
            }
        }
        for (field, share) in [("fusion.weight", self.weight), ("fusion.embedding_weight", self.embedding)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return Err(EngineError::invalid(field, "must lie between 0 and 1"));
            }
        }
        Ok(())
    }
}

/// The retriever's side of a request, ready to be mixed.
#[derive(Debug, Clone)]
pub struct Fusion {
    /// The retriever's score of each passage.
    pub scores: Vec<f64>,
    /// The fusion.
    pub report: FusionReport,
    /// Warnings for the caller.
    pub warning: Option<String>,
    /// True if 0 is the floor of the whole list's scores, even if `scores` covers only a part of the list.
    pub has_floor: bool,
    /// How many passages, the first by `scores`, the scores can compare: with an embedding model, the passages that
    /// have a cosine.
    pub comparable: usize,
    /// The shares of the embedding model and the retriever in each of `scores`, if the embedding model took part.
    parts: Option<(Vec<f64>, Vec<f64>)>,
}

impl Fusion {
    /// The source of the retriever's side, and the number of passages without a score. BM25 replaces the scores if
    /// more than half of the passages lack one.
    pub(crate) fn source(request: &RerankRequest) -> (Source, usize) {
        let missing = request.passages.iter().filter(|passage| passage.retriever_score.is_none()).count();
        let lexical = request.fusion.mode == FusionMode::Bm25 || 2 * missing > request.passages.len();
        (if lexical { Source::Bm25 } else { Source::Retriever }, missing)
    }

    /// The retriever's side of a request.
    #[must_use]
    pub fn of(request: &RerankRequest) -> Self {
        let options = &request.fusion;
        let weight = options.weight_alone();
        let scaling = options.scaling.unwrap_or_default();
        let report = |source| FusionReport { source, scaling, weight, embedding: None };
        let comparable = request.passages.len();
        let given: Vec<f64> = request.passages.iter().filter_map(|passage| passage.retriever_score).collect();
        let (source, missing) = Self::source(request);
        if source == Source::Bm25 {
            let texts: Vec<String> = request.passages.iter().map(Passage::whole_text).collect();
            let scores = bm25::scores(&request.query, &texts, options.background.as_deref());
            let warning = (missing > 0 && !given.is_empty() && options.mode != FusionMode::Bm25)
                .then(|| "some passages have no retriever_score: BM25 inside the list took its place".to_owned());
            let report = report(Source::Bm25);
            return Self { scores, report, warning, has_floor: true, comparable, parts: None };
        }
        let least = given.iter().copied().fold(f64::INFINITY, f64::min);
        let scores = request.passages.iter().map(|passage| passage.retriever_score.unwrap_or(least)).collect();
        let warning =
            (missing > 0).then(|| "some passages have no retriever_score and count as the list's lowest".to_owned());
        let report = report(Source::Retriever);
        Self { scores, report, warning, has_floor: least >= 0.0, comparable, parts: None }
    }

    /// Mixes the cosines of an embedding model, one per passage, into the retriever's side, with the shares of
    /// `options`. Both are standardised within the list, because a cosine has no floor: that of unrelated texts
    /// is not 0. In a short list, differences far below the usual ones count for little.
    ///
    /// Passages whose cosine is not a number were not evaluated. They come after the others, in their previous
    /// order, and are left out of the standardisation. The cosine of an `unreadable` passage is meaningless: such a
    /// passage counts as average, and the other features decide its place.
    #[must_use]
    pub fn with_embedding(mut self, (cosines, unreadable): (&[f64], &[bool]), options: &FusionOptions) -> Self {
        let (read, unread): (Vec<usize>, Vec<usize>) =
            self.order().into_iter().partition(|&passage| cosines[passage].is_finite());
        let is_unreadable = |passage: usize| unreadable.get(passage).copied().unwrap_or(false);
        let legible: Vec<usize> = read.iter().copied().filter(|&passage| !is_unreadable(passage)).collect();
        let largest = read.iter().fold(0.0_f64, |largest, &passage| largest.max(self.scores[passage].abs()));
        let Shares { weight, embedding: share } = options.shares(self.report.source);
        let part = |scores: &[f64], among: &[usize], usual: f64, share: f64| -> Vec<f64> {
            standardised_among(scores, among, Some(usual)).into_iter().map(|score| share * score).collect()
        };
        let mut embedding = part(cosines, &legible, typical::COSINE, share);
        read.iter().filter(|&&passage| is_unreadable(passage)).for_each(|&passage| embedding[passage] = 0.0);
        let source = part(&self.scores, &read, typical::RETRIEVER * largest, 1.0 - share);
        self.scores = embedding.iter().zip(&source).map(|(embedding, source)| embedding + source).collect();
        let least = read.iter().map(|&passage| self.scores[passage]).fold(0.0, f64::min);
        for (place, passage) in unread.into_iter().enumerate() {
            self.scores[passage] = least - real(place + 1);
        }
        self.parts = Some((embedding, source));
        self.comparable = read.len();
        self.report.weight = weight;
        self.report.embedding = Some(share);
        // A mixture with cosines has no floor, even if all remaining values lie above the list's mean.
        self.has_floor = false;
        self
    }

    /// Utilities and the retriever's scores as one value per passage, in the unit of the utilities. `f` is the
    /// convex combination, and the value is `max · (f - f_0) / (f_max - f_0)` with `max` the largest utility, so
    /// the best passage keeps its utility. `f_0` has the value 0. It is 0 if both sides have a floor. Standardised,
    /// it belongs to a utility of 0 and an average score of the other side. So that a best passage near zero does
    /// not stretch the list, the divisor has two lower bounds: half of the range of `f`, and the size at which two
    /// values differ by no more than the utilities that would make the same difference of `f`. The best passage's
    /// value is then at most `max`, and below 0 if `f_0` lies above it. If the utilities have no zero, `f_0` is the
    /// smallest `f`. The order is the order of `f`.
    ///
    /// If `max` is near 0 or below, all values would be alike. If the utilities have a zero, the usual range of `f`
    /// is therefore worth at least two standard deviations of the utilities. If that is more, the best passage has
    /// `max`, or less if `f_0` is close below it, and the others lie that much below it, even at `f_0`. No value is
    /// above `max` if `max` is negative; with floors, only the retriever then orders the passages. Without a zero
    /// the height of utilities has no meaning.
    ///
    /// Also returns the mix. `unit` is the number of query tokens if utilities are sums over them.
    #[must_use]
    pub fn values(&self, utilities: &[f64], has_zero: bool, unit: f64) -> (Vec<f64>, FusionReport) {
        let FusionReport { weight, embedding, .. } = self.report;
        let model = Side { scores: utilities, floor: has_zero.then_some(0.0) };
        let with_embedding = embedding.is_some();
        let retriever = Side { scores: &self.scores, floor: self.has_floor.then_some(0.0) };
        let scaling = self.scaling(has_zero);
        let usual = with_embedding.then_some(typical::UTILITY * unit);
        let fused = if with_embedding && scaling == Scaling::Standard {
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
                // The slope of `f` per nat of a utility. Equal utilities are far from a zero that is not among them.
                let slope = weight / spread.max(ALIKE * most.abs()).max(f64::MIN_POSITIVE);
                let zero = 0.0 - slope * centre;
                (zero, (best - zero).max((best - least) / 2.0).max(slope * most))
            }
            _ => (least, best - least),
        };
        let worth =
            if has_zero { least_worth(utilities, most, unit, usual) / usual_range(scaling, fused.len()) } else { 0.0 };
        if worth * range > most.max(0.0) {
            let first = most.min((best - zero) * worth);
            let values = fused.into_iter().map(|fused| first - (best - fused) * worth).collect();
            return (values, FusionReport { scaling, ..self.report });
        }
        let value = |fused: f64| {
            let share = if range > 0.0 { (fused - zero) / range } else { 1.0 };
            if most > 0.0 { most * share } else { most + fused - best }
        };
        (fused.into_iter().map(value).collect(), FusionReport { scaling, ..self.report })
    }

    /// This mixture for other passages, with their scores of the retriever's side.
    #[must_use]
    pub fn with_scores(&self, scores: Vec<f64>) -> Self {
        let Self { report, has_floor, .. } = *self;
        Self { comparable: scores.len(), scores, report, warning: None, has_floor, parts: None }
    }

    /// The scaling that is applied to utilities with a zero, or without.
    fn scaling(&self, has_zero: bool) -> Scaling {
        let side = |floor: bool| Side { scores: &[], floor: floor.then_some(0.0) };
        applied(self.report.scaling, side(has_zero), side(self.has_floor))
    }

    /// Passages by descending score of the retriever; ties keep the input order.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        descending(&self.scores)
    }
}

/// The least worth of the usual range of fused values, in the unit of the utilities. Utilities far below the best
/// are clipped: a very harmful passage must not change the distances between the others.
fn least_worth(utilities: &[f64], most: f64, unit: f64, usual: Option<f64>) -> f64 {
    let least = most - 2.0 * most.max(typical::UTILITY * unit);
    let near: Vec<f64> = utilities.iter().map(|utility| utility.max(least)).collect();
    LEAST_RANGE * centre_and_spread(&near, usual).1
}

/// How far apart the fused values of a list of `n` usually lie.
fn usual_range(scaling: Scaling, n: usize) -> f64 {
    match scaling {
        Scaling::Floor | Scaling::MinMax => 1.0,
        Scaling::Standard => 4.0,
        // From the first rank to one after the last, so that it is not 0 for one passage.
        Scaling::ReciprocalRank => 1.0 / 61.0 - 1.0 / (61.0 + real(n)),
    }
}

/// `share` of `one` and the rest of `other`.
fn mixed(share: f64, one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| share * one + (1.0 - share) * other).collect()
}

#[cfg(test)]
mod tests;
