//! Samples that are correlated together, and the correlations of the measures on them.

use rayon::prelude::*;

use crate::analysis::coefficient::{Pairs, coefficient, difference, resampled};
use crate::study::mean::Mean;
use numeric::{mean, rounded};
use rag_metrics::agreement::Correlation;
use rag_metrics::never;
use rag_metrics::rank::{Grading, Kind, Metric, Ranking};
use rag_metrics::recall::{Chosen, Family, Sample, choose_alpha, over_alphas};
use rag_metrics::resample::Statistics;

/// A measure and the answer's quality by list, one entry per sample; `None` if the measure is undefined.
type Places = Vec<Placed>;
/// A measure and the answer's quality for the samples of one list; `None` if the measure is undefined.
type Placed = Vec<Option<(f64, f64)>>;

/// The samples of one list: one per cut-off.
pub(super) type Listed = Vec<Sample>;

/// A measure of the top K.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// With an alpha to choose.
    Weighed(Family),
    /// nDCG with the ideal of the list's first K, as in the paper.
    Ndcg,
    Precision,
    Recall,
}

impl Measure {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 7] = [
        Self::Weighed(Family::F),
        Self::Weighed(Family::Fe),
        Self::Weighed(Family::T),
        Self::Weighed(Family::TPrime),
        Self::Ndcg,
        Self::Precision,
        Self::Recall,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Weighed(Family::F) => "F",
            Self::Weighed(Family::Fe) => "Fe",
            Self::Weighed(Family::T) => "T",
            Self::Weighed(Family::TPrime) => "T'",
            Self::Ndcg => "nDCG",
            Self::Precision => "precision",
            Self::Recall => "recall",
        }
    }

    /// Data that the measure needs in addition to the labels of the top K.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Weighed(Family::F) | Self::Recall => "N",
            Self::Weighed(Family::Fe) => "a list of 2K",
            _ => "nothing",
        }
    }

    /// Its value; `None` if undefined. Only measures with an alpha use `alpha`.
    fn of(self, sample: &Sample, alpha: f64) -> Option<f64> {
        // Equal lists must tie in spite of rounding errors.
        let value = match self {
            Self::Weighed(family) => family.of(sample, alpha),
            // Precision and recall are F at its ends (`metrics::recall`), but precision needs no N.
            Self::Precision => Family::F.of(&Sample { all: Some(0), ..sample.clone() }, 1.0),
            Self::Recall => Family::F.of(sample, 0.0),
            Self::Ndcg => {
                let labels: Vec<f64> = sample.marks.iter().map(|mark| f64::from(u8::from(*mark))).collect();
                let kind = Kind::Ndcg { exponential: false, within_list: true };
                let metric = Metric { kind, cutoff: Some(sample.k), rel: None, judged_only: false };
                metric.of(&Ranking::of_labels(&labels), Grading { threshold: 0.5, graded: false })
            }
        };
        value.map(rounded)
    }
}

/// The correlation of a measure on a pool.
#[derive(Debug, Clone)]
pub(super) struct Reached {
    pub measure: Measure,
    /// The chosen alpha; `None` for a measure without one, and if no alpha has a correlation.
    pub alpha: Option<f64>,
    /// The correlation there, with its interval at that alpha.
    pub mean: Mean,
    /// Lists and cut-offs for which it is defined.
    pub samples: usize,
    places: Places,
}

/// Samples that are correlated together, by list.
pub(super) struct Pool {
    pub name: String,
    lists: Vec<Listed>,
}

impl Pool {
    /// The samples that `holds` picks.
    pub fn new(name: impl Into<String>, lists: &[Listed], holds: impl Fn(&Sample) -> bool) -> Self {
        let picked = |list: &Listed| list.iter().filter(|sample| holds(sample)).cloned().collect();
        Self { name: name.into(), lists: lists.iter().map(picked).collect() }
    }

    pub fn samples(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    /// Mean quality of the answers. Its interval draws lists with all their samples, because these answer one question.
    pub fn quality(&self, statistics: &Statistics) -> Mean {
        let of = |list: &Listed| list.iter().map(|sample| sample.response).collect();
        let lists: Vec<Vec<f64>> = self.lists.iter().filter(|list| !list.is_empty()).map(of).collect();
        resampled(lists.len(), statistics, |drawn| {
            let drawn: Vec<f64> = drawn.iter().flat_map(|list| lists[*list].iter().copied()).collect();
            (!drawn.is_empty()).then(|| mean(&drawn))
        })
    }

    fn flat(&self) -> Vec<Sample> {
        self.lists.iter().flatten().cloned().collect()
    }

    fn places(&self, measure: Measure, alpha: f64) -> Places {
        let pair = |sample: &Sample| Some((measure.of(sample, alpha)?, sample.response));
        self.lists.iter().map(|list| list.iter().map(pair).collect()).collect()
    }

    /// The measure at its best alpha.
    pub fn reach(&self, measure: Measure, kind: Correlation, statistics: &Statistics) -> Reached {
        let alpha = match measure {
            Measure::Weighed(family) => choose_alpha(&self.flat(), family, kind, &never).map(|chosen| chosen.alpha),
            _ => None,
        };
        // Without a correlation at any alpha there is none at 1/2 either.
        let places = self.places(measure, alpha.unwrap_or(0.5));
        let pairs: Pairs = places.iter().map(|list| list.iter().flatten().copied().collect()).collect();
        let samples = pairs.iter().map(Vec::len).sum();
        Reached { measure, alpha, mean: coefficient(kind, &pairs, statistics), samples, places }
    }

    /// All measures at their best alpha.
    pub fn reach_all(&self, kind: Correlation, statistics: &Statistics) -> Vec<Reached> {
        Measure::ALL.par_iter().map(|measure| self.reach(*measure, kind, statistics)).collect()
    }

    /// The correlation of a measure at every alpha.
    pub fn over_alphas(&self, family: Family, kind: Correlation) -> Vec<Chosen> {
        over_alphas(&self.flat(), family, kind, &never).unwrap_or_default()
    }
}

impl Reached {
    /// Its correlation minus that of another measure, over the lists and cut-offs for which both are defined.
    pub fn gain(&self, over: &Self, kind: Correlation, statistics: &Statistics) -> Mean {
        let lists = self.places.iter().zip(&over.places);
        let both = |(own, other): (&Placed, &Placed)| {
            let samples = own.iter().zip(other).filter_map(|(own, other)| own.zip(*other));
            samples.unzip::<_, _, Vec<(f64, f64)>, Vec<(f64, f64)>>()
        };
        let (own, other): (Pairs, Pairs) = lists.map(both).unzip();
        difference(kind, &own, &other, statistics)
    }
}
