//! What gives a passage its label (eRAG, Eq. 1, and the baselines of its Table 1).

use crate::metrics::lexical;

/// A way to label passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Annotator {
    /// Exact match of the answer from the passage alone.
    ExactMatch,
    /// F1 over its words.
    TokenF1,
    /// ROUGE-L of it.
    RougeL,
    /// Whether it contains a reference.
    Containment,
    /// Whether it is one of the class labels.
    Accuracy,
    /// SePer of answers sampled from the passage alone, soft.
    SeperSoft,
    /// The same, hard.
    SeperHard,
    /// SePer with the passage less SePer without context, soft.
    DeltaSeperSoft,
    /// The same, hard.
    DeltaSeperHard,
    /// Whether the passage contains a reference.
    ContainsAnswer,
    /// The caller's labels.
    Provenance,
    /// The generator's probability of Yes against No when asked whether the passage helps.
    LlmJudgement,
}

impl Annotator {
    /// All, in the order of the protocol.
    pub const ALL: [Self; 12] = [
        Self::ExactMatch,
        Self::TokenF1,
        Self::RougeL,
        Self::Containment,
        Self::Accuracy,
        Self::SeperSoft,
        Self::SeperHard,
        Self::DeltaSeperSoft,
        Self::DeltaSeperHard,
        Self::ContainsAnswer,
        Self::Provenance,
        Self::LlmJudgement,
    ];

    /// Its name on the command line and in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExactMatch => "exact-match",
            Self::TokenF1 => "token-f1",
            Self::RougeL => "rouge-l",
            Self::Containment => "containment",
            Self::Accuracy => "accuracy",
            Self::SeperSoft => "seper-soft",
            Self::SeperHard => "seper-hard",
            Self::DeltaSeperSoft => "delta-seper-soft",
            Self::DeltaSeperHard => "delta-seper-hard",
            Self::ContainsAnswer => "contains-answer",
            Self::Provenance => "provenance",
            Self::LlmJudgement => "llm-judgement",
        }
    }

    /// Its score of an answer, where it is a lexical one.
    pub(super) fn lexical(self) -> Option<fn(&str, &[String]) -> f64> {
        Some(match self {
            Self::ExactMatch => lexical::exact_match,
            Self::TokenF1 => lexical::token_f1,
            Self::RougeL => lexical::rouge_l,
            Self::Containment => lexical::contains,
            Self::Accuracy => lexical::accuracy,
            _ => return None,
        })
    }

    /// Whether it needs sampled answers and an entailment model.
    #[must_use]
    pub const fn is_belief(self) -> bool {
        matches!(self, Self::SeperSoft | Self::SeperHard) || self.is_delta()
    }

    /// Whether it needs clusters of answers.
    pub(super) const fn is_hard(self) -> bool {
        matches!(self, Self::SeperHard | Self::DeltaSeperHard)
    }

    /// Whether it needs answers without context.
    #[must_use]
    pub const fn is_delta(self) -> bool {
        matches!(self, Self::DeltaSeperSoft | Self::DeltaSeperHard)
    }

    /// Whether it scores answers, and so an answer from a whole ranking, too.
    #[must_use]
    pub fn scores_answers(self) -> bool {
        self.lexical().is_some() || self.is_belief()
    }

    /// Whether it needs references.
    #[must_use]
    pub const fn needs_references(self) -> bool {
        !matches!(self, Self::Provenance | Self::LlmJudgement)
    }
}
