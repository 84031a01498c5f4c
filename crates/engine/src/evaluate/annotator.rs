//! Annotators: what labels a passage (eRAG, Eq. 1, and the baselines of its Table 1).

use crate::judgement::Asks;
use crate::types::Annotator;

impl Annotator {
    /// Its question to the generator about a passage; `None` for annotators that ask nothing about passages.
    pub(super) const fn asks(self) -> Option<Asks> {
        match self {
            Self::LlmJudgement => Some(Asks::Helps),
            Self::EragJudgement => Some(Asks::Relevant),
            _ => None,
        }
    }
}
