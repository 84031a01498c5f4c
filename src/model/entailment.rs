//! Interface of a natural-language inference (entailment) model.

use std::sync::Arc;

use super::ModelError;
use crate::belief::Verdict;

/// Input of one entailment judgement. The same text stands in many pairs, so pairs share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextPair {
    /// Text assumed to be true.
    pub premise: Arc<str>,
    /// Text that the premise may entail or contradict.
    pub hypothesis: Arc<str>,
}

/// Description of a loaded entailment model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntailmentInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the network's file.
    pub sha256: String,
    /// Whether the model distinguishes neutral from contradiction. The equivalence rule `loose` requires it.
    pub three_way: bool,
    /// Maximum number of tokens of a pair. Longer premises are truncated at their end.
    pub most_tokens: usize,
}

/// An entailment model. It stays on one thread and need not be `Send`.
pub trait Entailment {
    /// Name, file hash and limits of the model.
    fn info(&self) -> EntailmentInfo;

    /// Verdicts on the pairs, in input order. The call blocks the model's thread, so callers pass short lists.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error.
    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<Verdict>, ModelError>;
}
