//! Annotators: how a passage is labelled (eRAG, Eq. 1, and the baselines of its Table 1).

use crate::judgement::Asks;
use crate::types::Annotator;

impl Annotator {
    /// The annotator's question about a passage, if it asks one.
    pub(super) const fn asks(self) -> Option<Asks> {
        match self {
            Self::LlmJudgement => Some(Asks::Helps),
            Self::EragJudgement => Some(Asks::Relevant),
            _ => None,
        }
    }
}
