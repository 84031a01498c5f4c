//! The seam to a model of natural-language inference.

use super::ModelError;
use crate::belief::Verdict;

/// A premise and a hypothesis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextPair {
    /// What is held to be true.
    pub premise: String,
    /// What may follow from it.
    pub hypothesis: String,
}

/// What is known of a loaded entailment model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntailmentInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the network's file.
    pub sha256: String,
    /// Whether it tells neutral from contradiction; the rule `loose` needs that.
    pub three_way: bool,
    /// Most tokens of a pair; longer premises are cut at their end.
    pub most_tokens: usize,
}

/// Judges entailment. Lives on one thread.
pub trait Entailment {
    /// What it is.
    fn info(&self) -> EntailmentInfo;

    /// Verdicts on the pairs, in their order. A caller keeps the lists short: nothing else runs meanwhile.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime refuses.
    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<Verdict>, ModelError>;
}
