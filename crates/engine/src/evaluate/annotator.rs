//! Annotators: what labels a passage (eRAG, Eq. 1, and the baselines of its Table 1).

use crate::judgement::Asks;
use crate::task::TaskKind;
use rag_metrics::{bleu, lexical};

/// What labels a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Annotator {
    /// Exact match of the generator's answer from the passage alone with a reference.
    ExactMatch,
    /// F1 of that answer over its words.
    TokenF1,
    /// ROUGE-L of that answer.
    RougeL,
    /// Whether that answer contains a reference.
    Containment,
    /// Whether that answer is one of the class labels.
    Accuracy,
    /// Soft SePer of answers sampled from the passage alone.
    SeperSoft,
    /// Hard SePer of those answers.
    SeperHard,
    /// Soft SePer with the passage less soft SePer without context.
    DeltaSeperSoft,
    /// Hard SePer with the passage less hard SePer without context.
    DeltaSeperHard,
    /// Whether the passage contains a reference.
    ContainsAnswer,
    /// The caller's labels.
    Provenance,
    /// The generator's probability of "Yes" against "No" to the question whether the passage helps.
    LlmJudgement,
    /// BLEU of the greedy answer.
    Bleu,
    /// BERTScore of the greedy answer, F1 over the token states of the embedding model.
    BertScore,
    /// The generator's probability that the greedy answer matches a reference, by MOI's prompt.
    AnswerJudgement,
    /// The generator's probability of "Yes" against "No" to the question whether the passage is relevant to the query.
    EragJudgement,
}

impl Annotator {
    /// All annotators, in the order of the protocol.
    pub const ALL: [Self; 16] = [
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
        Self::Bleu,
        Self::BertScore,
        Self::AnswerJudgement,
        Self::EragJudgement,
    ];

    /// What labels passages where the caller names nothing: the measure of the task's data sets in KILT.
    #[must_use]
    pub const fn of_task(kind: TaskKind) -> Self {
        match kind {
            TaskKind::ShortAnswer => Self::ExactMatch,
            TaskKind::FactVerification | TaskKind::Classification => Self::Accuracy,
            TaskKind::Dialogue => Self::TokenF1,
            TaskKind::LongAnswer => Self::RougeL,
        }
    }

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
            Self::Bleu => "bleu",
            Self::BertScore => "bert-score",
            Self::AnswerJudgement => "answer-judgement",
            Self::EragJudgement => "erag-judgement",
        }
    }

    /// Its score of an answer; `None` for annotators that do not compare words.
    pub(super) fn lexical(self) -> Option<fn(&str, &[String]) -> f64> {
        Some(match self {
            Self::ExactMatch => lexical::exact_match,
            Self::TokenF1 => lexical::token_f1,
            Self::RougeL => lexical::rouge_l,
            Self::Containment => lexical::contains,
            Self::Accuracy => lexical::accuracy,
            Self::Bleu => bleu::bleu,
            _ => return None,
        })
    }

    /// What it asks the generator about a passage; `None` for annotators that ask nothing about passages.
    pub(super) const fn asks(self) -> Option<Asks> {
        match self {
            Self::LlmJudgement => Some(Asks::Helps),
            Self::EragJudgement => Some(Asks::Relevant),
            _ => None,
        }
    }

    /// Whether it takes greedy answers.
    pub(super) fn reads_answers(self) -> bool {
        self.lexical().is_some() || matches!(self, Self::AnswerJudgement | Self::BertScore)
    }

    /// Whether it takes sampled answers and an entailment model.
    #[must_use]
    pub const fn is_belief(self) -> bool {
        matches!(self, Self::SeperSoft | Self::SeperHard) || self.is_delta()
    }

    /// Whether it takes clusters of answers, which only a three-way entailment model gives.
    pub(super) const fn is_hard(self) -> bool {
        matches!(self, Self::SeperHard | Self::DeltaSeperHard)
    }

    /// Whether it takes answers sampled without context.
    #[must_use]
    pub const fn is_delta(self) -> bool {
        matches!(self, Self::DeltaSeperSoft | Self::DeltaSeperHard)
    }

    /// Whether it scores answers, so that it can score an end-to-end answer as well.
    #[must_use]
    pub fn scores_answers(self) -> bool {
        self.reads_answers() || self.is_belief()
    }

    /// Whether `rerankd evaluate` takes it where no annotator is named. Accuracy is for class labels, and the SePer annotators
    /// sample. Annotators of later versions are not taken either: the same command would refuse its earlier results.
    #[must_use]
    pub const fn is_default(self) -> bool {
        let later = matches!(self, Self::Bleu | Self::BertScore | Self::AnswerJudgement | Self::EragJudgement);
        !self.is_belief() && !later && !matches!(self, Self::Accuracy)
    }

    /// Whether it takes an embedding model, which not every server has.
    #[must_use]
    pub const fn needs_embedding(self) -> bool {
        matches!(self, Self::BertScore)
    }

    /// Whether it compares with reference answers.
    #[must_use]
    pub const fn needs_references(self) -> bool {
        !matches!(self, Self::Provenance | Self::LlmJudgement | Self::EragJudgement)
    }
}
