//! What a request is answered with, and what is told on the way.

use super::{CompressionReport, InlineReport, Scheme, Usage};
use crate::fusing::{FusionReport, Signals};
use crate::methods::Stage;
use crate::position_bias::Arrangement;
use moi::Orientation;
use moi::uncertainty::Diagnostics;
use prefix_scheduler::model::GeneratorInfo;
use prefix_scheduler::plan::Cost;

/// A ranked passage.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Index of the passage in the request.
    pub index: usize,
    /// `sigmoid(value / unit)`, in (0, 1) and not normalised over the list; .5 is "no better than no passage" for methods whose
    /// utilities have a zero. The value is the utility, or what fusion made of it. The method sets the unit: the number of query
    /// tokens for sums over the query, of answer tokens for sums over the answer, the number of passages for ranks, 1 otherwise.
    pub score: f64,
    /// Utility in the method's unit: nats, nats per token, ranks, a model's logit or cosine, or the retriever's score.
    pub utility: f64,
    /// The utility before a further stage refined it; else the same.
    pub alone: f64,
    /// Standard error of the utility in nats; `None` if the method does not estimate it.
    pub standard_error: Option<f64>,
    /// Probability that this passage outranks the next result, or the share of several rankings that agree; `None` for the
    /// last one and for methods that estimate neither.
    pub outranks_next: Option<f64>,
    /// Tokens truncated from its text.
    pub tokens_cut: usize,
    /// What decided its place.
    pub stage: Stage,
    /// What each signal adds to its value; `None` where nothing was mixed.
    pub signals: Option<Signals>,
}

/// Position bias, quality and size of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Position weights for each prompt length, ascending by length; each vector sums to 1.
    pub bias: Vec<Vec<f64>>,
    /// Quality of the fit.
    pub diagnostics: Diagnostics,
    /// What determined the direction of the position bias.
    pub orientation: Orientation,
    /// Pearson correlation of the utilities with the one-passage scores; `None` if undefined or not scored.
    pub anchor_correlation: Option<f64>,
    /// Expected Kendall tau between this ranking and the true one, in [0, 1].
    pub expected_tau: f64,
    /// Design of the prompts.
    pub scheme: Scheme,
    /// Number of prompts that were scored.
    pub observations: usize,
    /// Number of passage blocks: without prefix sharing, and with it.
    pub blocks: (usize, usize),
    /// Number of passages in the longest prompt.
    pub depth: usize,
    /// Rounds of prompts; 1 unless the design is adaptive.
    pub rounds: usize,
    /// Value of the objective, in squared units of the fitted scores.
    pub objective: f64,
}

/// The result of a rerank request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reranked {
    /// Passages from best to worst; ties keep the order of the request.
    pub passages: Vec<Ranked>,
    /// What one unit of the uncalibrated score's logit is, in the unit of the utilities.
    pub unit: f64,
    /// Whether `score` is a probability of relevance, by a calibration on labelled lists.
    pub score_calibrated: bool,
    /// The fit; `None` for methods without one.
    pub fit: Option<FitReport>,
    /// What was mixed; `None` for the method alone.
    pub fusion: Option<FusionReport>,
    /// Whether no passage helps: by a calibrated score, that more likely than not none is relevant; without one, that no passage
    /// that was read is better than none, or `None` for a method whose utilities have no zero.
    pub none_helps: Option<bool>,
    /// Probability that none of the ranked passages is relevant; `None` where the score is not calibrated.
    pub none_relevant: Option<f64>,
    /// The returned passages in the order of the generator's context.
    pub arrangement: Arrangement,
    /// The measured utility; `None` if not requested.
    pub inline: Option<InlineReport>,
    /// The compressed passages; `None` if not requested.
    pub compression: Option<CompressionReport>,
    /// Cost of the request.
    pub usage: Usage,
    /// Warnings for the caller, such as truncated passages.
    pub warnings: Vec<String>,
    /// The generator that scored; the one that answers where the method asks none.
    pub model: GeneratorInfo,
}

/// An event of a running request, sent to its listener.
#[derive(Debug, Clone, PartialEq)]
pub enum RerankEvent {
    /// A round of prompts is planned and fits the limits.
    Planned(Cost),
    /// A step of the generator ended.
    Progress {
        /// Tokens evaluated so far.
        done: usize,
        /// Total number of tokens.
        total: usize,
    },
    /// The current ranking.
    Interim {
        /// Passage indices from best to worst.
        order: Vec<usize>,
        /// Number of scores that it is based on.
        observations: usize,
    },
}
