//! A row of a comparison and its measures.

use super::gains::OtherGains;
use super::quality::Quality;
use super::rows::MethodRow;
use crate::study::mean::{Gain, Mean};
use prefix_scheduler::model::PromptFormat;

/// A measure that every row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    pub name: &'static str,
    pub unit: &'static str,
    /// Decimal places.
    pub digits: usize,
}

/// The measures, in the order of [`Row::measures`].
pub const MEASURES: [Measure; 10] = [
    Measure { name: "nDCG@10 in the list", unit: "nDCG", digits: 3 },
    Measure { name: "nDCG@10 of all judged", unit: "nDCG", digits: 3 },
    Measure { name: "MRR", unit: "reciprocal rank", digits: 3 },
    Measure { name: "recall@3", unit: "share", digits: 3 },
    Measure { name: "recall@5", unit: "share", digits: 3 },
    Measure { name: "tokens, median", unit: "tokens", digits: 0 },
    Measure { name: "tokens, mean", unit: "tokens", digits: 0 },
    Measure { name: "tokens without sharing, mean", unit: "tokens", digits: 0 },
    Measure { name: "tokens of other models, mean", unit: "tokens", digits: 0 },
    Measure { name: "seconds", unit: "s", digits: 3 },
];

/// How many of [`MEASURES`] are measures of rankings; they come first.
pub(super) const OF_RANKINGS: usize = 5;
/// Position of nDCG@10 in the list.
pub(super) const NDCG: usize = 0;
/// Positions of the other tested measures.
pub(super) const OTHERS: [usize; 3] = [2, 3, 4];
/// Position of the median of the tokens.
pub(super) const TOKENS: usize = 5;
/// Position of the mean of the tokens.
pub(super) const MEAN_TOKENS: usize = 6;
/// Position of the mean of the tokens of other models.
pub(super) const OTHER_TOKENS: usize = 8;
/// Position of the seconds.
pub(super) const SECONDS: usize = 9;

/// A ranking method, BM25, or the input order.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub name: String,
    /// As [`MEASURES`].
    pub measures: Vec<Mean>,
    /// `None` for the row `given`.
    pub over_given: Option<Gain>,
    /// `None` for the rows `given` and `bm25`.
    pub over_bm25: Option<Gain>,
    /// Compared with the same method as configured; `None` for the configured row.
    pub over_base: Option<Gain>,
    /// MRR and recall; empty for the row `given`.
    pub others: Vec<OtherGains>,
    /// The method and its variant; `None` for the rows `given` and `bm25`.
    pub(super) asked: Option<MethodRow>,
    /// `None` for a row without scores.
    pub quality: Option<Quality>,
    /// True if a calibration was applied to its scores.
    pub(super) calibrated: bool,
    /// Questions that the method refused.
    pub refused: usize,
    /// Each measure of rankings by question; `None` if the question does not count or was refused.
    pub by_question: Vec<Vec<Option<f64>>>,
}

impl Row {
    /// A row without measurements.
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// A measure of rankings by question; empty if nothing was measured.
    pub(super) fn of(&self, measure: usize) -> &[Option<f64>] {
        self.by_question.get(measure).map_or(&[], Vec::as_slice)
    }

    /// The prompt format; `None` for the configured one. A request cannot name a row with another format as its
    /// method.
    pub(super) fn frame(&self) -> Option<PromptFormat> {
        self.asked?.frame()
    }
}
