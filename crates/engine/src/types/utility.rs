//! The utility of retrieval.

use super::{
    Answer, BeliefReport, BeliefRequest, LabelProbability, MeasureOptions, Passage, SampleOptions, Task, TaskKind,
    Usage,
};
use rag_metrics::belief::Measured;

/// The kind of a context, by the passages that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The whole list, in its order.
    List,
    /// Only passage `i`.
    Passage(usize),
    /// The first N passages.
    Prefix(usize),
    /// The list except passage `i`.
    LeaveOneOut(usize),
    /// Subset `i` of the request.
    Subset(usize),
}

/// A question, its passages, and the contexts to measure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UtilityRequest {
    /// The question.
    pub question: String,
    /// The passages, in prompt order.
    pub passages: Vec<Passage>,
    /// Reference answers, at most 64. If there are none, only entropies are measured.
    pub references: Vec<String>,
    /// Measure the whole list.
    pub list: bool,
    /// Measure each single passage.
    pub each: bool,
    /// Measure every growing prefix of the list.
    pub prefixes: bool,
    /// Measure the list with each passage left out.
    pub leave_one_out: bool,
    /// Measure these subsets, by index.
    pub subsets: Vec<Vec<usize>>,
    /// True if the references are also scored as answers.
    pub score_references: bool,
    /// The task of the generator.
    pub task: Task,
    /// How answers are sampled.
    pub sampling: SampleOptions,
    /// How answers are measured.
    pub measure: MeasureOptions,
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
    /// True if passages may be cut to fit; the server's default if `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit if `None`.
    pub token_budget: Option<usize>,
    /// Most pairs that the entailment model is asked about; the server's limit if `None`. Not in the protocol: a
    /// ranking sets it for its inline utility.
    pub pair_budget: Option<usize>,
}

impl UtilityRequest {
    /// Length of [`UtilityRequest::contexts`].
    pub(crate) fn number_of_contexts(&self) -> usize {
        let n = self.passages.len();
        let times = [self.each, self.prefixes, self.leave_one_out].into_iter().filter(|kind| *kind).count();
        n.saturating_mul(times).saturating_add(self.subsets.len()).saturating_add(usize::from(self.list))
    }

    pub(crate) fn contexts(&self) -> Vec<(ContextKind, Vec<usize>)> {
        let n = self.passages.len();
        let mut contexts = Vec::new();
        if self.list {
            contexts.push((ContextKind::List, (0..n).collect()));
        }
        if self.each {
            contexts.extend((0..n).map(|i| (ContextKind::Passage(i), vec![i])));
        }
        if self.prefixes {
            contexts.extend((1..=n).map(|length| (ContextKind::Prefix(length), (0..length).collect())));
        }
        if self.leave_one_out {
            contexts.extend((0..n).map(|out| (ContextKind::LeaveOneOut(out), (0..n).filter(|i| *i != out).collect())));
        }
        contexts.extend(
            self.subsets.iter().enumerate().map(|(number, subset)| (ContextKind::Subset(number), subset.clone())),
        );
        contexts
    }

    /// The references that are scored as answers.
    pub(crate) fn scored_references(&self) -> Vec<String> {
        if self.score_references { self.references.clone() } else { Vec::new() }
    }

    /// A request that only samples in these contexts.
    pub(crate) fn belief(&self) -> BeliefRequest {
        BeliefRequest {
            question: self.question.clone(),
            passages: self.passages.clone(),
            contexts: self.contexts().into_iter().map(|(_, indices)| indices).collect(),
            task: self.task.clone(),
            options: self.sampling.clone(),
            passage_tokens: self.passage_tokens,
            truncate: self.truncate,
            token_budget: self.token_budget,
            references: self.scored_references(),
        }
    }
}

/// The belief in one context, and its difference to the context-free belief.
#[derive(Debug, Clone, PartialEq)]
pub struct Utility {
    /// The context.
    pub kind: ContextKind,
    /// Its passages.
    pub indices: Vec<usize>,
    /// The belief in the context.
    pub belief: BeliefReport,
    /// The answers that were measured.
    pub answers: Vec<Answer>,
    /// The task's labels with their probabilities; empty for tasks without labels.
    pub labels: Vec<LabelProbability>,
    /// log P(reference | context, question) of each reference, in nats, the sum over its tokens; empty unless they were scored.
    pub references: Vec<f64>,
    /// DeltaSePer: soft SePer in this context minus context-free, in [-1, 1].
    pub delta_soft: Option<Measured>,
    /// DeltaSePer by hard SePer.
    pub delta_hard: Option<Measured>,
    /// Context-free semantic entropy minus the semantic entropy in this context, in nats.
    pub semantic_entropy_reduction: Measured,
    /// The reduction by counts of the clusters.
    pub semantic_entropy_count_reduction: Measured,
    /// Reduction of the semantic entropy corrected for clusters without a sample; absent for fewer than two
    /// samples.
    pub semantic_entropy_corrected_reduction: Option<Measured>,
    /// Context-free predictive entropy minus the predictive entropy in this context, in nats.
    pub predictive_entropy_reduction: Measured,
    /// Context-free perplexity minus the perplexity in this context; absent if either is.
    pub perplexity_reduction: Option<Measured>,
    /// Lexical similarity of the answers in this context minus the similarity of the context-free ones; absent for
    /// fewer than two samples.
    pub lexical_similarity_increase: Option<Measured>,
}

/// The measured utilities.
#[derive(Debug, Clone, PartialEq)]
pub struct UtilityReport {
    /// The belief without passages.
    pub context_free: BeliefReport,
    /// Its answers.
    pub context_free_answers: Vec<Answer>,
    /// The task's labels without passages, with their probabilities; empty for tasks without labels.
    pub context_free_labels: Vec<LabelProbability>,
    /// log P(reference | question) of each reference, in nats; empty unless they were scored.
    pub context_free_references: Vec<f64>,
    /// The kind of task.
    pub task: TaskKind,
    /// One for each context, in the order: list, each, prefixes, leave-one-out, subsets.
    pub utilities: Vec<Utility>,
    /// Cost of the generator.
    pub usage: Usage,
    /// Number of pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// Passages that were cut to fit the prompts.
    pub shortened: usize,
    /// The warning about pairs that the entailment model may have cut; also in `warnings`.
    pub(crate) too_long: Option<String>,
    /// Remarks for the caller.
    pub warnings: Vec<String>,
}
