//! Interface of a natural-language inference (entailment) model.

use std::sync::Arc;

use super::ModelError;

/// Input of one entailment judgement. Many pairs share the same text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextPair {
    /// Text assumed to be true.
    pub premise: Arc<str>,
    /// Text that the premise may entail or contradict.
    pub hypothesis: Arc<str>,
    /// Bytes of the question with which both texts begin; 0 if they have none. A pair that is too long first loses
    /// the beginning of the question.
    pub question: usize,
}

impl TextPair {
    /// A pair of texts without a question before them.
    #[must_use]
    pub fn new(premise: impl Into<Arc<str>>, hypothesis: impl Into<Arc<str>>) -> Self {
        Self { premise: premise.into(), hypothesis: hypothesis.into(), question: 0 }
    }
}

/// Probabilities of the three classes for one pair; they sum to 1. A two-way model has no contradiction: `neutral` is then the
/// probability of no entailment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EntailmentProbabilities {
    /// The premise entails the hypothesis.
    pub entailment: f64,
    /// Neither.
    pub neutral: f64,
    /// The premise contradicts the hypothesis.
    pub contradiction: f64,
}

/// Description of a loaded entailment model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntailmentInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the network's file.
    pub sha256: String,
    /// True if the model distinguishes neutral from contradiction. The equivalence rule `loose` requires it.
    pub three_way: bool,
    /// Maximum number of tokens of a pair. A longer one loses the beginning of its question, then the end of its premise.
    pub most_tokens: usize,
}

/// Approximate bytes of a token of plain text; less than in English, more than in Chinese.
const BYTES_PER_TOKEN: usize = 3;

impl EntailmentInfo {
    /// True if texts of this many bytes in total are likely to be truncated.
    #[must_use]
    pub const fn may_cut(&self, bytes: usize) -> bool {
        bytes / BYTES_PER_TOKEN > self.most_tokens
    }
}

/// An entailment model. It stays on one thread and need not be `Send`.
pub trait Entailment {
    /// Name, file hash and limits of the model.
    fn info(&self) -> EntailmentInfo;

    /// Probabilities for each pair, in input order. The call blocks the model's thread, so callers pass short lists.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error.
    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<EntailmentProbabilities>, ModelError>;
}
