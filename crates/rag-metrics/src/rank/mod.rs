//! Rank metrics by trec_eval's conventions, under the names of ir-measures.
//!
//! A ranking holds the labels of the retrieved documents from the first rank on, and the labels of all judged
//! documents of the query. R is the number of relevant documents of the query.
//!
//! - A document is relevant if its label is at least the metric's `rel`, or the grading's threshold if the metric
//!   has none.
//! - P@k divides by k, also for shorter lists. A query without relevant documents scores 0.
//! - nDCG's gain is the label (or 2^label - 1), its discount 1/log2(rank + 1). Its ideal list holds the judged
//!   documents of the query, or with `ideal='list'` those of the list up to the cut-off: the nDCG of "Beyond
//!   recall", which needs no R.
//! - A label below 0 means pooled but not judged. It counts as not relevant and gains nothing, and Bpref ignores it.
//!
//! With graded labels ([`Grading::graded`], eRAG section 2) P is the mean of the labels in the top k and Success
//! their maximum; nDCG and ERR take the labels as gains, as always. The other metrics use the threshold. A label
//! below 0 then means harm by DeltaSePer: judged, and not relevant.

mod compute;
mod parse;
pub mod summary;
#[cfg(test)]
mod tests;
mod trec;

use std::collections::HashMap;
use std::hash::BuildHasher;

pub use parse::MetricError;

use super::never;

/// The formula of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Precision.
    P,
    /// Recall.
    R,
    /// Average precision; divides by R.
    Ap,
    /// Average precision whose mean over queries is geometric, with a floor of 1e-5.
    GmAp,
    /// Reciprocal rank of the first relevant document.
    Rr,
    /// Discounted cumulative gain over the ideal one.
    Ndcg {
        /// Gain 2^label - 1 instead of the label.
        exponential: bool,
        /// Ideal from the list's own labels up to the cut-off.
        within_list: bool,
    },
    /// 1 if a relevant document was retrieved, else 0.
    Success,
    /// Number of relevant documents retrieved.
    Hits,
    /// Precision at R.
    Rprec,
    /// Binary preference (Buckley and Voorhees, 2004).
    Bpref,
    /// Inferred average precision (Yilmaz and Aslam, 2006).
    InfAp,
    /// Interpolated precision at this recall.
    IPrec(f64),
    /// Mean of the interpolated precisions at recall 0, 0.1, …, 1.
    ElevenPoint,
    /// Precision of the whole list.
    SetP,
    /// Recall of the whole list.
    SetR,
    /// F of the whole list: (1 + beta) P R / (beta P + R), the formula of trec_eval and ir-measures.
    SetF(f64),
    /// P times R of the whole list.
    SetAp,
    /// Share of judged documents.
    Judged,
    /// Expected reciprocal rank with a highest label of 4 (Chapelle et al., 2009; gdeval).
    Err,
    /// Rank-biased precision with this persistence (Moffat and Zobel, 2008).
    Rbp(f64),
    /// F of "Beyond recall", Eq. 2, with this alpha.
    F(f64),
    /// F with the positives of the top 2K instead of R.
    Fe(f64),
    /// T of "Beyond recall", Eq. 3.
    T(f64),
    /// T' of "Beyond recall", Eq. 4.
    TPrime(f64),
    /// Queries.
    NumQ,
    /// Retrieved documents.
    NumRet,
    /// Relevant documents.
    NumRel,
    /// Relevant documents that were retrieved.
    NumRelRet,
}

/// A metric with its parameters. Parses names of ir-measures, trec_eval and ranx; prints ir-measures'.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// The formula.
    pub kind: Kind,
    /// Number of ranks that count; `None` for all.
    pub cutoff: Option<usize>,
    /// Least label of a relevant document; `None` for the grading's threshold.
    pub rel: Option<f64>,
    /// Leave out documents that were not judged.
    pub judged_only: bool,
}

/// The interpretation of labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grading {
    /// Least label of a relevant document, for metrics without a `rel`.
    pub threshold: f64,
    /// P and Success take the labels themselves if the metric has no `rel` (eRAG section 2).
    pub graded: bool,
}

impl Grading {
    /// trec_eval's grading: relevant from 1 on.
    pub const TREC: Self = Self { threshold: 1.0, graded: false };
    /// eRAG's grading: labels in [0, 1], relevant from 0.5 on for metrics with a threshold.
    pub const ERAG: Self = Self { threshold: 0.5, graded: true };
}

/// How documents with the same score are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ties {
    /// In the order of the input.
    #[default]
    InputOrder,
    /// As in trec_eval: scores are compared in single precision, and among equal ones the id that sorts last comes
    /// first.
    TrecEval,
}

/// One query's list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranking {
    /// Label at each rank; `None` if the document was not judged.
    retrieved: Vec<Option<f64>>,
    /// Labels of all judged documents, highest first.
    judged: Vec<f64>,
}

impl Ranking {
    /// `retrieved` holds the labels from the first rank on, `judged` those of every judged document of the query, including
    /// the retrieved ones. Labels must be finite.
    #[must_use]
    pub fn new(retrieved: Vec<Option<f64>>, mut judged: Vec<f64>) -> Self {
        judged.sort_by(|left, right| right.total_cmp(left));
        Self { retrieved, judged }
    }

    /// A list in which all documents are judged, and no others are, as in eRAG.
    #[must_use]
    pub fn of_labels(labels: &[f64]) -> Self {
        Self::new(labels.iter().copied().map(Some).collect(), labels.to_vec())
    }

    /// Ranks documents (id and score) by descending score. `judged` holds the label of each judged document.
    #[must_use]
    pub fn ranked<S: BuildHasher>(documents: &[(&str, f64)], judged: &HashMap<&str, f64, S>, ties: Ties) -> Self {
        let retrieved = order(documents, ties).into_iter().map(|index| judged.get(documents[index].0).copied());
        Self::new(retrieved.collect(), judged.values().copied().collect())
    }

    /// Ranks documents with their labels; `missed` holds the labels of judged documents outside the list.
    #[must_use]
    pub fn labelled(documents: &[(&str, f64)], labels: &[Option<f64>], missed: &[f64], ties: Ties) -> Self {
        let retrieved = order(documents, ties).into_iter().map(|index| labels[index]).collect();
        Self::new(retrieved, labels.iter().flatten().chain(missed).copied().collect())
    }

    /// Reduces the list to the first `depth` documents.
    #[must_use]
    pub fn cut(mut self, depth: usize) -> Self {
        self.retrieved.truncate(depth);
        self
    }

    /// Number of documents in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.retrieved.len()
    }

    /// True if the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.retrieved.is_empty()
    }
}

/// Indices by descending score.
fn order(documents: &[(&str, f64)], ties: Ties) -> Vec<usize> {
    let mut order: Vec<usize> = (0..documents.len()).collect();
    match ties {
        Ties::InputOrder => order.sort_by(|&l, &r| (documents[r].1 + 0.0).total_cmp(&(documents[l].1 + 0.0))),
        Ties::TrecEval => {
            #[expect(clippy::cast_possible_truncation, reason = "the precision of trec_eval's scores")]
            let single = |index: usize| documents[index].1 as f32 + 0.0;
            order.sort_by(|&l, &r| single(r).total_cmp(&single(l)).then_with(|| documents[r].0.cmp(documents[l].0)));
        }
    }
    order
}

impl Metric {
    /// The metric of one query; `None` if undefined (Fe without a list of 2K, an alpha that divides by 0).
    #[must_use]
    pub fn of(&self, ranking: &Ranking, grading: Grading) -> Option<f64> {
        let alone = std::slice::from_ref(self);
        compute::values(alone, &compute::groups(alone, grading), ranking, grading, &never).pop().flatten()
    }

    /// One number for many queries: the mean of the values, the sum of counts, the geometric mean for GMAP. `None` for no
    /// values.
    #[must_use]
    pub fn aggregate(&self, values: &[f64]) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        Some(match self.kind {
            _ if self.is_count() => values.iter().sum(),
            Kind::GmAp => numeric::mean(&values.iter().map(|value| value.max(1e-5).ln()).collect::<Vec<_>>()).exp(),
            _ => numeric::mean(values),
        })
    }

    /// True if [`Metric::aggregate`] is an arithmetic mean, so that it has an interval and differences.
    #[must_use]
    pub const fn is_mean(&self) -> bool {
        !self.is_count() && !matches!(self.kind, Kind::GmAp)
    }

    /// True if trec_eval prints it per query.
    #[must_use]
    pub const fn is_shown_by_query(&self) -> bool {
        !matches!(self.kind, Kind::GmAp | Kind::NumQ)
    }

    /// True if it is a number of queries or documents.
    #[must_use]
    pub const fn is_count(&self) -> bool {
        matches!(self.kind, Kind::NumQ | Kind::NumRet | Kind::NumRel | Kind::NumRelRet)
    }
}
