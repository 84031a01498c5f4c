//! The evaluation of a retrieval.

use super::{Answer, LabelProbability, MeasureOptions, Passage, SampleOptions, Task, TaskKind, Usage};
use rag_metrics::rank::{Grading, Metric};
use rag_metrics::{bleu, lexical};
use std::collections::BTreeSet;

/// A way to label a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Annotator {
    /// Exact match of a reference with the generator's answer from the single passage.
    ExactMatch,
    /// F1 of that answer over its words.
    TokenF1,
    /// ROUGE-L of that answer.
    RougeL,
    /// 1 if that answer contains a reference.
    Containment,
    /// 1 if that answer is one of the class labels.
    Accuracy,
    /// Soft SePer of answers sampled from the single passage.
    SeperSoft,
    /// Hard SePer of those answers.
    SeperHard,
    /// Soft SePer with the passage minus soft SePer without context.
    DeltaSeperSoft,
    /// Hard SePer with the passage minus hard SePer without context.
    DeltaSeperHard,
    /// 1 if the passage contains a reference.
    ContainsAnswer,
    /// The caller's labels.
    Provenance,
    /// The generator's probability of "Yes" against "No" to the question if the passage helps.
    LlmJudgement,
    /// BLEU of the greedy answer.
    Bleu,
    /// BERTScore of the greedy answer, F1 over the token embeddings of the embedding model.
    BertScore,
    /// The generator's probability that the greedy answer matches a reference, by MOI's prompt.
    AnswerJudgement,
    /// The generator's probability of "Yes" against "No" to the question if the passage is relevant to the query.
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

    /// The annotator if the caller names none: the measure of the task's data sets in KILT.
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
    pub(crate) fn lexical(self) -> Option<fn(&str, &[String]) -> f64> {
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

    /// True if it needs greedy answers.
    pub(crate) fn reads_answers(self) -> bool {
        self.lexical().is_some() || matches!(self, Self::AnswerJudgement | Self::BertScore)
    }

    /// True if it needs sampled answers and an entailment model.
    #[must_use]
    pub const fn is_belief(self) -> bool {
        matches!(self, Self::SeperSoft | Self::SeperHard) || self.is_delta()
    }

    /// True if it needs clusters of answers, which require a three-way entailment model.
    pub(crate) const fn is_hard(self) -> bool {
        matches!(self, Self::SeperHard | Self::DeltaSeperHard)
    }

    /// True if it needs answers sampled without context.
    #[must_use]
    pub const fn is_delta(self) -> bool {
        matches!(self, Self::DeltaSeperSoft | Self::DeltaSeperHard)
    }

    /// True if it scores answers, so it can also score an end-to-end answer.
    #[must_use]
    pub fn scores_answers(self) -> bool {
        self.reads_answers() || self.is_belief()
    }

    /// True if `rerankd evaluate` uses it by default. Accuracy is for class labels, and the SePer annotators
    /// sample. Annotators of later versions are not used either: the same command would refuse its earlier results.
    #[must_use]
    pub const fn is_default(self) -> bool {
        let later = matches!(self, Self::Bleu | Self::BertScore | Self::AnswerJudgement | Self::EragJudgement);
        !self.is_belief() && !later && !matches!(self, Self::Accuracy)
    }

    /// True if it needs an embedding model.
    #[must_use]
    pub const fn needs_embedding(self) -> bool {
        matches!(self, Self::BertScore)
    }

    /// True if it compares with reference answers.
    #[must_use]
    pub const fn needs_references(self) -> bool {
        !matches!(self, Self::Provenance | Self::LlmJudgement | Self::EragJudgement)
    }
}

/// A question, its passages, and how to evaluate their retrieval.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateRequest {
    /// The question.
    pub question: String,
    /// The passages, best first.
    pub passages: Vec<Passage>,
    /// Reference answers or class labels.
    pub references: Vec<String>,
    /// The annotators, each once.
    pub annotators: Vec<Annotator>,
    /// The caller's labels for [`Annotator::Provenance`], one per passage.
    pub provenance: Vec<f64>,
    /// Metrics over the labels.
    pub metrics: Vec<Metric>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Rankings of passage indices, best first; if empty, the order of the passages. A ranking may leave passages
    /// out and may be empty.
    pub rankings: Vec<Vec<usize>>,
    /// For each ranking, the order of its passages in the prompt of the end-to-end answer; if empty, the rankings.
    /// Each context holds the passages of its ranking.
    pub contexts: Vec<Vec<usize>>,
    /// Also answer from each whole context, and score that answer.
    pub end_to_end: bool,
    /// False to score only those answers: passages then get no labels, and rankings no metrics.
    pub label_passages: bool,
    /// The task of the generator. The answer of a task with labels is its likeliest label.
    pub task: Task,
    /// Most tokens of a greedy answer; `None` for the task's default.
    pub answer_tokens: Option<usize>,
    /// How answers are sampled for the SePer annotators.
    pub sampling: SampleOptions,
    /// How sampled answers are measured.
    pub measure: MeasureOptions,
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
    /// True if passages may be cut to fit; `None` for the server's default.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; `None` for the server's limit.
    pub token_budget: Option<usize>,
}

impl Default for EvaluateRequest {
    fn default() -> Self {
        Self {
            question: String::new(),
            passages: Vec::new(),
            references: Vec::new(),
            annotators: vec![Annotator::ExactMatch],
            provenance: Vec::new(),
            metrics: default_metrics(),
            threshold: Grading::ERAG.threshold,
            rankings: Vec::new(),
            contexts: Vec::new(),
            end_to_end: false,
            label_passages: true,
            task: Task::default(),
            answer_tokens: None,
            sampling: SampleOptions::default(),
            measure: MeasureOptions::default(),
            passage_tokens: None,
            truncate: None,
            token_budget: None,
        }
    }
}

impl EvaluateRequest {
    pub(crate) fn has(&self, holds: impl Fn(Annotator) -> bool) -> bool {
        self.annotators.iter().any(|annotator| holds(*annotator))
    }

    pub(crate) fn greedy(&self) -> SampleOptions {
        let stop = self.sampling.stop.clone();
        self.task.sampling(SampleOptions { max_tokens: self.answer_tokens, stop, ..SampleOptions::greedy() })
    }

    pub(crate) fn rankings(&self) -> Vec<Vec<usize>> {
        if self.rankings.is_empty() { vec![(0..self.passages.len()).collect()] } else { self.rankings.clone() }
    }

    /// The contexts of end-to-end answers, each once.
    pub(crate) fn whole_contexts(&self) -> BTreeSet<Vec<usize>> {
        if self.end_to_end { self.contexts().into_iter().collect() } else { BTreeSet::new() }
    }

    /// The prompt order of each ranking.
    pub(crate) fn contexts(&self) -> Vec<Vec<usize>> {
        if self.contexts.is_empty() { self.rankings() } else { self.contexts.clone() }
    }
}

/// The paper's metrics, over the whole list.
#[must_use]
pub fn default_metrics() -> Vec<Metric> {
    ["P", "Success", "AP", "RR", "nDCG", "R"].iter().filter_map(|name| name.parse().ok()).collect()
}

/// A ranking's scores by one annotator.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotatorScores {
    /// The annotator.
    pub annotator: Annotator,
    /// The metrics over its labels, in the request's order; `None` if one is not defined. Empty without labels.
    pub metrics: Vec<Option<f64>>,
    /// Its score of the answer from the whole context; `None` if there is no answer, and for the baselines.
    pub end_to_end: Option<f64>,
}

/// A ranking's scores.
#[derive(Debug, Clone, PartialEq)]
pub struct RankingScores {
    /// Its passages, best first.
    pub indices: Vec<usize>,
    /// Its passages in the prompt order of the end-to-end answer.
    pub context: Vec<usize>,
    /// One per annotator.
    pub scores: Vec<AnnotatorScores>,
    /// The greedy answer from the whole context; `None` if no annotator needs one.
    pub answer: Option<Answer>,
    /// The task's labels after the whole context, with their probabilities; empty without an end-to-end answer.
    pub label_probabilities: Vec<LabelProbability>,
}

/// The labels, and the scores of the rankings over them.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateReport {
    /// Labels by annotator, one per passage; empty if passages were not labelled.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// One per ranking.
    pub rankings: Vec<RankingScores>,
    /// The greedy answer from each single passage, if an annotator needed them.
    pub passage_answers: Vec<Answer>,
    /// The task's labels after each single passage, with their probabilities; empty for tasks without labels.
    pub passage_label_probabilities: Vec<Vec<LabelProbability>>,
    /// The kind of task.
    pub task: TaskKind,
    /// The work of the generator.
    pub usage: Usage,
    /// Pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}
