//! A ranking: the request, its results, its cost.

use super::{
    Compression, CompressionMethod, CompressionUnit, ContextOrder, CutSide, Dedup, FusionOptions, Inline, MethodRef,
    MoiOptions, Passage, PromptPrefix, Scaling, Scheme, Source, Utility, unmarked,
};
use moi::Orientation;
use moi::profile::{Origin, Subject};
use moi::uncertainty::Diagnostics;
use prefix_scheduler::model::{GeneratorInfo, PromptFormat};
use prefix_scheduler::plan::Cost;
use prefix_scheduler::scheduler::generator::Outcome;
use rag_metrics::belief::Measured;

/// A query, the passages to rerank, and options.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RerankRequest {
    /// The query; not empty.
    pub query: String,
    /// The passages in first-stage order.
    pub passages: Vec<Passage>,
    /// Method that scores the passages; `None` for the default ([`RerankRequest::method`]).
    pub method: Option<MethodRef>,
    /// The generator that scores: `generator`, `scorer`, or the scorer's name; empty for the scorer if one is configured.
    pub scorer: String,
    /// Options of the method MOI.
    pub moi: MoiOptions,
    /// Fusion with the retriever's scores.
    pub fusion: FusionOptions,
    /// Omit results that are no better than no passage (utility of 0 or less). An empty list of results is then a
    /// valid answer.
    pub only_helpful: bool,
    /// Most tokens to evaluate; `None` for the server's limit.
    pub token_budget: Option<usize>,
    /// Milliseconds that scoring should take at the generator's measured speed. Bounds the tokens as a budget does.
    pub latency_budget_ms: Option<f64>,
    /// Most results to return, best first; `None` returns all.
    pub top_n: Option<usize>,
    /// True if the default method reads lists of up to twenty completely, because each score counts and not only the
    /// order. No protocol has it.
    pub read_all: bool,
    /// Results with a lower score are omitted; in [0, 1].
    pub score_threshold: Option<f64>,
    /// Return the number of results with the greatest expected F1 by their probabilities. The method must be
    /// calibrated.
    pub auto_k: bool,
    /// True if passages may be truncated to fit the context; `None` selects the configured default.
    pub truncate: Option<bool>,
    /// Most tokens per passage; if `None`, only the context bounds them.
    pub passage_tokens: Option<usize>,
    /// The side at which passages are truncated. Only other protocols set it; rerankd.v1 cuts at the end.
    pub cut_side: CutSide,
    /// Order of the returned passages in the generator's context.
    pub context_order: ContextOrder,
    /// Utility to measure in addition to the ranking; `None` measures nothing.
    pub inline: Option<Inline>,
    /// Instruction and examples before the passages, for methods that take them.
    pub prefix: PromptPrefix,
    /// Format of the scored prompts; `None` for the configured one. Only for comparisons: no protocol has it.
    pub frame: Option<PromptFormat>,
    /// Compression of the returned passages, if any.
    pub compression: Option<Compression>,
    /// The places of near-duplicates; `None` to rank them like other passages.
    pub dedup: Option<Dedup>,
}

impl RerankRequest {
    /// Drops byte-order marks. Titles without text become texts.
    pub(crate) fn tidy(&mut self) {
        self.query = unmarked(&self.query).to_owned();
        self.passages.iter_mut().for_each(Passage::tidy);
    }

    /// The method that ranks: the named one; `moi` if none is named but options of `moi` are set; or the default.
    #[must_use]
    pub fn method(&self) -> MethodRef {
        let unnamed = || if self.moi.asks_for_moi() { MethodRef::MOI } else { MethodRef::default() };
        self.method.unwrap_or_else(unnamed)
    }
}

impl RerankRequest {
    /// True if it asks for a compression that may evaluate anything.
    pub(crate) fn compression_reads(&self) -> bool {
        self.compression.is_some_and(|compression| compression.reads())
    }
}

/// A ranked passage.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Index of the passage in the request.
    pub index: usize,
    /// `sigmoid(value / unit)`, in (0, 1) and not normalised over the list; 0.5 is "no better than no passage" for
    /// methods whose utilities have a zero. The value is the utility, or the fused value. The method sets the unit:
    /// the number of query tokens for sums over the query, of answer tokens for sums over the answer, the number of
    /// passages for ranks, 1 otherwise.
    pub score: f64,
    /// Utility in the method's unit: nats, nats per token, ranks, a model's logit or cosine, or the retriever's score.
    pub utility: f64,
    /// The utility before a later stage refined it; otherwise the same.
    pub alone: f64,
    /// Standard error of the utility in nats; `None` if the method does not estimate it.
    pub standard_error: Option<f64>,
    /// Probability that this passage outranks the next result, or the share of several rankings that agree; `None` for the
    /// last one and for methods that estimate neither.
    pub outranks_next: Option<f64>,
    /// Tokens truncated from its text.
    pub tokens_cut: usize,
    /// The stage that decided its place.
    pub stage: RankingStage,
    /// The part of each score in its value; `None` without fusion.
    pub score_parts: Option<ScoreParts>,
    /// Its near-duplicates, if the request asked for them and it is the best of them.
    pub duplicates: Vec<usize>,
}

/// Position bias, quality and size of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Position weights for each prompt length, ascending by length; each vector sums to 1.
    pub bias: Vec<Vec<f64>>,
    /// Quality of the fit.
    pub diagnostics: Diagnostics,
    /// The evidence for the direction of the position bias.
    pub orientation: Orientation,
    /// Pearson correlation of the utilities with the single-passage scores; `None` if undefined or not scored.
    pub anchor_correlation: Option<f64>,
    /// Expected Kendall tau between this ranking and the true one, in [0, 1].
    pub expected_tau: f64,
    /// Design of the prompts.
    pub scheme: Scheme,
    /// Number of prompts that were scored.
    pub observations: usize,
    /// Number of passage evaluations without and with prefix sharing.
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
    /// One unit of the uncalibrated score's logit, in the unit of the utilities.
    pub unit: f64,
    /// True if `score` is a probability of relevance, by a calibration on labelled lists.
    pub score_calibrated: bool,
    /// The fit; `None` for methods without one.
    pub fit: Option<FitReport>,
    /// The fusion; `None` if only the method's utilities count.
    pub fusion: Option<FusionReport>,
    /// True if no passage helps. By a calibrated score: more likely than not, none is relevant. Without one: no
    /// evaluated passage is better than none; `None` if the method's utilities have no zero.
    pub none_helps: Option<bool>,
    /// Probability that none of the ranked passages is relevant; `None` if the score is not calibrated.
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
    /// The generator that scored, or the answering one if the method asks none.
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

/// The stage that decided the place of a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RankingStage {
    /// The retriever's scores, BM25, or the input order: no model evaluated the passage.
    Retriever,
    /// Single-passage prompts, or the method's prompts if it has one stage.
    #[default]
    Alone,
    /// Prompts that hold it together with others.
    Together,
}

/// The fusion of a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FusionReport {
    /// The other side.
    pub source: Source,
    /// How both sides were scaled.
    pub scaling: Scaling,
    /// The model's share.
    pub weight: f64,
    /// The embedding model's share of the other side; `None` if it has no part in it.
    pub embedding: Option<f64>,
}

/// The part of each score in `f`, the convex combination that places a passage; the parts sum to `f`. Standardised,
/// 0 means that the score is average in its list; with floors, that it is no evidence. All are `None` for a passage
/// that was placed only by the other side's order, because neither the model nor a participating embedding model
/// read it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScoreParts {
    /// The model's; `None` for a passage that it did not evaluate.
    pub model: Option<f64>,
    /// The embedding model's; `None` if it took no part, or did not evaluate the passage.
    pub embedding: Option<f64>,
    /// The retriever's or BM25's.
    pub source: Option<f64>,
}

/// The profile behind an arrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Basis {
    /// The text whose likelihood was measured.
    pub subject: Subject,
    /// Who supplied the observations.
    pub origin: Origin,
    /// Passages of the prompts that it was measured on.
    pub passages: usize,
    /// Observations.
    pub observations: u64,
}

/// Why an arrangement was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// The caller named the order.
    Requested,
    /// This profile, whose effect exceeds its error.
    Profile(Basis),
    /// Best first, because this profile's effect does not exceed its error.
    EffectWithinError(Basis),
    /// Best first, because no profile with enough observations applies to this number of passages.
    NoProfile,
}

/// A context's order and its ground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// Indices of the request, first in the prompt to last.
    pub order: Vec<usize>,
    /// The applied order; never `Auto`.
    pub applied: ContextOrder,
    /// The reason for the order.
    pub ground: Ground,
}

/// A returned passage after compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressedPassage {
    /// Its index in the request.
    pub index: usize,
    /// The rest of its text; empty if it was dropped.
    pub text: String,
    /// Tokens of its text.
    pub tokens_before: usize,
    /// Tokens of the rest.
    pub tokens_after: usize,
}

impl CompressedPassage {
    /// True if nothing is left.
    #[must_use]
    pub const fn is_dropped(&self) -> bool {
        self.text.is_empty()
    }
}

/// The compressed passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionReport {
    /// The method.
    pub method: CompressionMethod,
    /// The unit that was kept or dropped as a whole.
    pub unit: CompressionUnit,
    /// The returned passages in context order, including dropped ones.
    pub passages: Vec<CompressedPassage>,
    /// Tokens that were evaluated for it, in addition to those of the ranking.
    pub tokens_evaluated: usize,
    /// Passages whose tokens were scored for it, by the ranking or by the compression.
    pub passages_read: usize,
}

/// The measured inline utility.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineReport {
    /// Utility of the first passages of the request, as many as are returned, in the order of the request.
    pub input: Utility,
    /// Utility of the returned passages in their context order.
    pub arranged: Utility,
    /// Context-free soft SePer; `None` without references.
    pub without: Option<Measured>,
    /// Number of pairs that the entailment model judged.
    pub judged_pairs: usize,
}

/// Cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Tokens that were evaluated, by the generator or by the model that scored the passages.
    pub tokens: usize,
    /// Tokens of all prompts if every prompt were evaluated from its beginning.
    pub naive_tokens: usize,
    /// Tokens that were not evaluated, because an earlier request, or an earlier round of this one, had evaluated
    /// them.
    pub cached_tokens: usize,
    /// Steps of the model in which the request took part.
    pub steps: usize,
    /// Tokens of the embedding model whose scores were mixed in; not part of `tokens`.
    pub embedding_tokens: usize,
    /// Passages that a cross-encoder or an embedding model scored, or pairs of texts that the entailment model judged.
    pub pairs: usize,
    /// Milliseconds spent tokenising and planning.
    pub tokenise_ms: f64,
    /// Milliseconds in the queue.
    pub queue_ms: f64,
    /// Milliseconds from admission to the last score.
    pub score_ms: f64,
    /// Milliseconds in the fit.
    pub fit_ms: f64,
    /// Milliseconds in total.
    pub total_ms: f64,
}

impl Usage {
    /// Adds the cost of another list of the same request. If the lists are scored `together`, their waiting and
    /// scoring times overlap; otherwise they add up.
    pub(crate) fn extend(&mut self, other: &Self, together: bool) {
        let time = |one: f64, other: f64| if together { one.max(other) } else { one + other };
        self.tokens += other.tokens;
        self.pairs += other.pairs;
        self.embedding_tokens += other.embedding_tokens;
        self.naive_tokens += other.naive_tokens;
        self.cached_tokens += other.cached_tokens;
        self.steps += other.steps;
        self.tokenise_ms += other.tokenise_ms;
        self.queue_ms = time(self.queue_ms, other.queue_ms);
        self.score_ms = time(self.score_ms, other.score_ms);
        self.fit_ms += other.fit_ms;
    }

    /// Adds the cost of a plan.
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.tokens += outcome.tokens;
        self.cached_tokens += outcome.cached_tokens;
        self.steps += outcome.steps;
        self.queue_ms += outcome.queued.as_secs_f64() * 1e3;
        self.score_ms += outcome.running.as_secs_f64() * 1e3;
    }
}

/// A query, a text, and how to truncate the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pair {
    /// The query; not empty.
    pub query: String,
    /// The text. An empty one has the score 0.
    pub text: String,
    /// True if the text may be truncated to fit the context; `None` selects the configured default.
    pub truncate: Option<bool>,
    /// Most tokens of the text; if `None`, only the context bounds it.
    pub passage_tokens: Option<usize>,
    /// The side at which the text is truncated.
    pub cut_side: CutSide,
}

/// The score of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PairScore {
    /// As [`crate::types::Ranked::score`], in (0, 1).
    pub score: f64,
    /// As [`crate::types::Ranked::utility`], in the method's unit.
    pub utility: f64,
    /// Tokens cut from the text.
    pub tokens_cut: usize,
}

/// The scores of pairs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairScores {
    /// One per pair, in the order of the pairs.
    pub scores: Vec<PairScore>,
    /// Cost of all lists together.
    pub usage: Usage,
    /// Warnings for the caller, without duplicates.
    pub warnings: Vec<String>,
}
