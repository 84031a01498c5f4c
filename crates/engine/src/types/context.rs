//! A context: the request, the text, and where its passages are.

use super::{Arrangement, RerankRequest, Usage};
use prefix_scheduler::model::GeneratorInfo;
use std::ops::Range;

/// Tokens of a context if the caller sets no size.
pub const CONTEXT_TOKENS: usize = 1_024;

/// The size of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextSize {
    /// Tokens.
    Tokens(usize),
    /// Unicode characters.
    Characters(usize),
}

impl Default for ContextSize {
    fn default() -> Self {
        Self::Tokens(CONTEXT_TOKENS)
    }
}

/// A ranking, and how to write its passages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContextRequest {
    /// Query, passages, and options of the ranking. Near-duplicates share one place unless it says otherwise.
    pub ranking: RerankRequest,
    /// Most tokens or characters of the text.
    pub size: ContextSize,
    /// How a passage is written; empty for the built-in template.
    pub template: String,
    /// Written between passages; `None` for an empty line.
    pub separator: Option<String>,
    /// Most passages with the same title; `None` for no bound. Passages without a title are not bounded.
    pub most_per_source: Option<usize>,
    /// Name of the tokenizer that counts; empty for that of the generator that answers.
    pub tokenizer: String,
}

/// A passage of a context.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextPassage {
    /// Index of the passage in the request.
    pub index: usize,
    /// Its text in bytes of the context.
    pub span: Range<usize>,
    /// Its score in the ranking.
    pub score: f64,
    /// Its utility in the ranking.
    pub utility: f64,
    /// The passages that it stands for.
    pub duplicates: Vec<usize>,
    /// True if the end of its text was cut to fit.
    pub cut: bool,
    /// True if its text was compressed.
    pub compressed: bool,
}

/// Why a passage is not in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// It does not fit.
    Budget,
    /// It repeats this passage.
    Duplicate(usize),
    /// The context has as many passages of its source as allowed.
    Source,
    /// An option of the ranking left it out.
    Ranking,
    /// It has no text, or the compression left none.
    Empty,
}

/// A context.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltContext {
    /// The text; empty if no passage is in it.
    pub text: String,
    /// Its tokens, counted as a whole.
    pub tokens: usize,
    /// Its Unicode characters.
    pub characters: usize,
    /// Its passages, first to last.
    pub passages: Vec<ContextPassage>,
    /// The passages that are not in it, ascending by index.
    pub left_out: Vec<(usize, LeftOut)>,
    /// The order of its passages.
    pub arrangement: Arrangement,
    /// Cost of the ranking.
    pub usage: Usage,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// The generator that scored.
    pub model: GeneratorInfo,
    /// Name of the tokenizer that counted, or of its generator.
    pub reader: String,
}
