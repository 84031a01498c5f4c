//! Options of a ranking.

use super::{EngineError, Limits, SampleOptions};
use moi::domain::Domain;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Most characters of an instruction.
pub const MOST_CHARACTERS: usize = 4_000;

/// Most examples.
pub const MOST_EXAMPLES: usize = 16;

/// A passage and the query that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// Title of the passage, set before its text; may be empty.
    pub title: String,
    /// Text of the passage; not empty.
    pub passage: String,
    /// The query; not empty.
    pub query: String,
}

/// A caller's instruction and examples. The default is the built-in instruction without examples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptPrefix {
    /// Replaces the built-in instruction; blank to keep it.
    pub instruction: String,
    /// Follow the instruction, each as a prompt of one passage with its query.
    pub examples: Vec<Example>,
}

impl PromptPrefix {
    /// True if the caller set nothing.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.instruction.trim().is_empty() && self.examples.is_empty()
    }

    /// The request's field that an error names.
    pub(crate) const fn field(&self) -> &'static str {
        if self.examples.is_empty() { "instruction" } else { "examples" }
    }

    /// Bytes of its texts.
    pub(crate) fn bytes(&self) -> usize {
        let example = |example: &Example| example.title.len() + example.passage.len() + example.query.len();
        self.examples.iter().map(example).fold(self.instruction.len(), usize::saturating_add)
    }

    /// Refuses texts that every server refuses: too many characters or examples, and blank texts.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    pub fn check_texts(&self) -> Result<(), EngineError> {
        let characters = self.instruction.chars().count();
        if characters > MOST_CHARACTERS {
            let problem = format!("{characters} characters given, at most {MOST_CHARACTERS} allowed");
            return Err(EngineError::invalid("instruction", problem));
        }
        if self.examples.len() > MOST_EXAMPLES {
            let problem = format!("{} given, at most {MOST_EXAMPLES} allowed", self.examples.len());
            return Err(EngineError::invalid("examples", problem));
        }
        for (index, example) in self.examples.iter().enumerate() {
            for (field, text) in [("passage", &example.passage), ("query", &example.query)] {
                if text.trim().is_empty() {
                    return Err(EngineError::invalid(format!("examples[{index}].{field}"), "must not be empty"));
                }
            }
        }
        Ok(())
    }

    /// [`PromptPrefix::check_texts`], and within the limits of a server: together the texts are at most as long as
    /// a passage may be.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        self.check_texts()?;
        for (index, example) in self.examples.iter().enumerate() {
            if example.query.len() > limits.query_bytes {
                let problem = format!("{} bytes given, at most {} allowed", example.query.len(), limits.query_bytes);
                return Err(EngineError::invalid(format!("examples[{index}].query"), problem));
            }
        }
        if !self.is_built_in() && self.bytes() > limits.passage_bytes {
            let problem = format!("{} bytes given in all, at most {} allowed", self.bytes(), limits.passage_bytes);
            return Err(EngineError::invalid(self.field(), problem));
        }
        Ok(())
    }
}

/// Quantity that is scored for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MoiOutcome {
    /// log P(query | order). The default.
    #[default]
    QueryLikelihood,
    /// log P(query | order) + log P(order) (Lee et al., Eq. 3).
    Joint,
}

/// Design: which prompts are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Distinct random orders of all passages, as in the paper.
    Random,
    /// Rotations of the input order.
    Cyclic,
    /// Optimised Latin squares.
    Latin,
    /// A Latin square and copies of it that share its leading columns.
    Trie,
    /// Rotations truncated to their first passages.
    Pruned,
    /// Prefixes, up to a depth, of the orders of a Latin square. The default.
    Prefix,
    /// `Prefix`, followed by rounds of prompts chosen where the ranking is least certain.
    Adaptive,
}

/// Options of the method, set by the caller. `None` selects the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MoiOptions {
    /// Design: which prompts are scored; `Prefix` by default.
    pub scheme: Option<Scheme>,
    /// Number of orders; the default depends on the design.
    pub orders: Option<usize>,
    /// Score the prefixes of each order, up to this many passages. If `None`: 2 for `Prefix` and `Adaptive`; the
    /// other designs score only whole orders.
    pub depth: Option<usize>,
    /// `Trie`: leading columns that the copies share; 1 by default.
    pub shared_columns: Option<usize>,
    /// `Trie`: number of copies; 3 by default.
    pub copies: Option<usize>,
    /// `Pruned`: passages per prompt; by default half of the passages, rounded up.
    pub prune_length: Option<usize>,
    /// `Pruned`: choose each length by the mass of the retriever's scores, if every passage has one.
    pub variable_pruning: bool,
    /// Quantity that is scored for each prompt.
    pub outcome: MoiOutcome,
    /// Scale on which scores are fitted; the default depends on objective and design.
    pub domain: Option<Domain>,
    /// Minimise the paper's objective instead of the regularised one.
    pub paper_objective: bool,
    /// Assumed share of noise in the score variance, in (0, 1); 0.5 by default.
    pub sigma2: Option<f64>,
    /// Prior position weights, one per passage; at least 0, summing to 1.
    pub position_prior: Option<Vec<f64>>,
    /// Constrain the position weights not to increase with the position.
    pub monotone: bool,
    /// Seed of the random numbers of the design, and of the subsets of `context-cite`.
    pub seed: u64,
    /// Reduce a design that exceeds the budget to the largest size that fits, instead of refusing the request.
    pub fit_budget: bool,
    /// `Adaptive`: leading ranks that must be decided before it stops early; 3 by default.
    pub settle_top: Option<usize>,
    /// `Adaptive` and the method `cascade`: probability at which a rank counts as decided, in (0, 1); 0.9 and 0.55
    /// by default.
    pub settle_probability: Option<f64>,
    /// `Adaptive`: most rounds after the first, at most 64; 3 by default.
    pub rounds: Option<usize>,
}

impl MoiOptions {
    /// True if they set options that only the method `moi` has. Other methods also use budget, seed and the
    /// probability of a decided rank.
    #[must_use]
    pub fn asks_for_moi(&self) -> bool {
        let common = Self { seed: self.seed, settle_probability: self.settle_probability, ..Self::default() };
        *self != common
    }

    /// The selected design, or the default.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::Prefix)
    }

    /// True if the fitted position weights describe the generator and may be learnt: the caller set no constraint,
    /// no prior and nothing else that changes them, and the outcome is the query likelihood.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let free = !self.monotone && self.position_prior.is_none() && self.sigma2.is_none();
        self.outcome == MoiOutcome::QueryLikelihood && free && self.domain.is_none() && !self.paper_objective
    }
}

/// The order of ranked passages in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContextOrder {
    /// By a calibrated or built-in profile (with `position_bias.profiles = "learnt"` also a learnt one) whose
    /// effect exceeds its error; otherwise best first. The default.
    #[default]
    Auto,
    /// By any profile, including learnt ones, whose effect exceeds its error; otherwise best first. An error if the
    /// generator has no profile.
    ByPositionBias,
    /// Best first (MOI, Eq. 4).
    Descending,
    /// Best last.
    Reverse,
    /// As in the request.
    Input,
}

/// How each side is scaled before it is weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scaling {
    /// `(s - floor) / (max - floor)`, at least 0: the theoretical minimum of Bruch et al. A flat list of retriever
    /// scores then counts little; the other scalings would stretch its noise to full range. If a side's floor is
    /// unknown, both sides are standardised.
    #[default]
    Floor,
    /// `(s - min) / (max - min)`.
    MinMax,
    /// Mean 0 and standard deviation 1.
    Standard,
    /// `1 / (60 + rank)`, rank from 1: reciprocal rank fusion (Cormack et al., 2009). Uses no scores.
    ReciprocalRank,
}

/// The source of the retriever's side of a fusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The passages' retriever scores.
    Retriever,
    /// BM25 within the list.
    Bm25,
}

impl Source {
    /// Its name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retriever => "retriever",
            Self::Bm25 => "bm25",
        }
    }
}

/// Document frequencies of a collection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Background {
    /// Documents in the collection.
    pub documents: u64,
    /// Number of documents that hold a word, by the word in lower case; at most all of them. Missing words are in
    /// no document.
    pub frequencies: HashMap<String, u64>,
}

/// The kind of fusion with the retriever's scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FusionMode {
    /// As the method does: `cascade` fuses, the others do not.
    #[default]
    ByMethod,
    /// Only the model.
    Off,
    /// With the retriever's scores, or BM25 if they are missing.
    On,
    /// With BM25 even if there are retriever scores.
    Bm25,
}

/// Options of a fusion. `None` selects the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FusionOptions {
    /// The kind of fusion.
    pub mode: FusionMode,
    /// The model's share, in [0, 1].
    pub weight: Option<f64>,
    /// The cosines' share of the other side, in [0, 1], if an embedding model takes part.
    pub embedding: Option<f64>,
    /// How both sides are scaled.
    pub scaling: Option<Scaling>,
    /// Document frequencies of the collection, for BM25.
    pub background: Option<Arc<Background>>,
    /// The shares from calibrations. The engine sets them if the request sets nothing else.
    pub learnt: Learnt,
}

/// Shares of a mixture with cosines, each in [0, 1].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// The model's.
    pub weight: f64,
    /// The share of the cosines in the retriever's side.
    pub embedding: f64,
}

/// The shares from calibrations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Learnt {
    /// The model's, if the other side is only the retriever or BM25.
    pub alone: Option<f64>,
    /// The shares if an embedding model takes part.
    pub with_embedding: Option<Shares>,
}

/// A way to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionMethod {
    /// By self-information, independent of the question.
    SelectiveContext,
    /// By how much likelier the question makes each token.
    LongLlmLingua,
}

/// The unit that is kept or dropped as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionUnit {
    /// A sentence.
    Sentence,
    /// A run of words between function words and punctuation.
    Phrase,
    /// The fewest tokens that cut no word, no number, and no run of up to five capitalised words.
    Token,
}

impl CompressionMethod {
    /// Every method.
    pub const ALL: [Self; 2] = [Self::LongLlmLingua, Self::SelectiveContext];

    /// Its name on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SelectiveContext => "selective-context",
            Self::LongLlmLingua => "long-llm-lingua",
        }
    }

    /// The default unit: the one of the method's paper, except for phrases, which need a parser.
    #[must_use]
    pub const fn unit(self) -> CompressionUnit {
        match self {
            Self::SelectiveContext => CompressionUnit::Sentence,
            Self::LongLlmLingua => CompressionUnit::Token,
        }
    }
}

/// How the returned passages are compressed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    /// The method.
    pub method: CompressionMethod,
    /// The unit that is kept or dropped as a whole; `None` for the method's default.
    pub unit: Option<CompressionUnit>,
    /// Share of the prompt's passage tokens to keep, in (0, 1]; `None` for `target_tokens`, or 0.5.
    pub ratio: Option<f64>,
    /// Tokens to keep of all returned passages together.
    pub target_tokens: Option<usize>,
    /// Difference of the best passage's share from the mean, for LongLLMLingua, in [0, 1]; `None` for 0.3.
    pub ratio_spread: Option<f64>,
}

impl Compression {
    /// A compression with the defaults of a method.
    #[must_use]
    pub const fn by(method: CompressionMethod) -> Self {
        Self { method, unit: None, ratio: None, target_tokens: None, ratio_spread: None }
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let invalid = |field: &str, problem: &str| Err(EngineError::invalid(format!("compression.{field}"), problem));
        if self.ratio.is_some_and(|ratio| !(ratio > 0.0 && ratio <= 1.0)) {
            return invalid("ratio", "must be above 0 and at most 1");
        }
        if self.ratio.is_some() && self.target_tokens.is_some() {
            return invalid("target_tokens", "must not be given together with a ratio");
        }
        if self.ratio_spread.is_some_and(|spread| !(0.0..=1.0).contains(&spread)) {
            return invalid("ratio_spread", "must lie between 0 and 1");
        }
        if self.ratio_spread.is_some() && self.method == CompressionMethod::SelectiveContext {
            return invalid(
                "ratio_spread",
                "is for LONG_LLM_LINGUA: SELECTIVE_CONTEXT has one threshold for all passages",
            );
        }
        Ok(())
    }

    /// The unit that is kept or dropped as a whole.
    pub(crate) fn unit(&self) -> CompressionUnit {
        self.unit.unwrap_or(self.method.unit())
    }

    /// True if it may evaluate anything: a ratio of 1 does not.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.ratio != Some(1.0)
    }
}

/// Least similarity of near-duplicates if the caller sets none: about one word in ten may differ.
pub const SIMILARITY: f64 = 0.6;

/// The places of near-duplicates in a ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DedupMode {
    /// The best ranked one stands for all of them.
    #[default]
    OnePlace,
    /// All but the best ranked one come after the other passages.
    PushDown,
    /// They are ranked like other passages.
    Off,
}

/// How near-duplicates are found, and their places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dedup {
    /// Their places.
    pub mode: DedupMode,
    /// Least Jaccard similarity of their word pairs, in (0, 1].
    pub similarity: f64,
}

impl Default for Dedup {
    fn default() -> Self {
        Self { mode: DedupMode::default(), similarity: SIMILARITY }
    }
}

impl Dedup {
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.similarity > 0.0 && self.similarity <= 1.0 {
            return Ok(());
        }
        Err(EngineError::invalid("dedup.similarity", "must be above 0 and at most 1"))
    }
}

/// Options of the inline utility.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inline {
    /// Reference answers; if empty, only entropies are measured.
    pub references: Vec<String>,
    /// How answers are sampled.
    pub sampling: SampleOptions,
}
