//! Sampled answers and their measures.

use super::{EngineError, LabelProbability, Passage, Task, Usage};
use numeric::sampling::Sampling;
use prefix_scheduler::model::entailment::EntailmentInfo;
use prefix_scheduler::plan::Finish;
use rag_metrics::belief::cluster::Clusters;
use rag_metrics::belief::seper::Aggregate;
use rag_metrics::belief::{Estimate, Likelihood, Pairing, Rule, Verdict, Weighting};

/// Most samples of one prompt.
pub const MOST_SAMPLES: usize = 100;

/// Most tokens of a sample.
pub const MOST_TOKENS: usize = 512;

/// How answers are sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleOptions {
    /// Samples of each prompt, 1 to 100; 10 if `None`.
    pub samples: Option<usize>,
    /// Most tokens of a sample, 1 to 512; 64 if `None`.
    pub max_tokens: Option<usize>,
    /// How each token is drawn.
    pub sampling: Sampling,
    /// Strings that end a sample. If `None`, the SePer authors' strings: line end, `Question:` and `Context:`.
    pub stop: Option<Vec<String>>,
    /// Seed. Samples with the same number use the same random numbers in every context of a question, so that
    /// differences between contexts can be paired. Other questions use other random numbers.
    pub seed: u64,
}

impl SampleOptions {
    /// One greedy answer.
    #[must_use]
    pub fn greedy() -> Self {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        Self { samples: Some(1), sampling, ..Self::default() }
    }

    /// Number of samples of a prompt, with the default applied.
    #[must_use]
    pub fn count(&self) -> usize {
        self.samples.unwrap_or(10)
    }

    /// Most tokens of a sample, with the default applied.
    #[must_use]
    pub fn most_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(64)
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let between = |field: &str, value: usize, most: usize| {
            let problem = format!("{value} given, 1 to {most} allowed");
            if (1..=most).contains(&value) { Ok(()) } else { Err(EngineError::invalid(field, problem)) }
        };
        between("sampling.samples", self.count(), MOST_SAMPLES)?;
        between("sampling.max_tokens", self.most_tokens(), MOST_TOKENS)?;
        if let Err((field, problem)) = self.sampling.check() {
            return Err(EngineError::invalid(format!("sampling.{field}"), problem));
        }
        let stops = self.stop.as_deref().unwrap_or_default();
        if stops.len() > 64 || stops.iter().any(|stop| stop.is_empty() || stop.len() > 256) {
            return Err(EngineError::invalid("sampling.stop", "must be at most 64 strings of 1 to 256 bytes"));
        }
        Ok(())
    }
}

/// How answers are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasureOptions {
    /// How responses are weighted.
    pub weighting: Weighting,
    /// When two answers mean the same.
    pub rule: Rule,
    /// Soft SePer takes the larger entailment of the two directions instead of response to reference.
    pub either_direction: bool,
    /// How the values for several references are combined.
    pub aggregate: Aggregate,
    /// True if the question precedes the texts that the entailment model judges.
    pub conditioned: bool,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self {
            weighting: Weighting::default(),
            rule: Rule::default(),
            either_direction: false,
            aggregate: Aggregate::default(),
            conditioned: true,
        }
    }
}

impl MeasureOptions {
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if let Rule::Threshold(least) = self.rule
            && !(least > 0.0 && least <= 1.0)
        {
            return Err(EngineError::invalid("measure.threshold", "must be above 0 and at most 1"));
        }
        Ok(())
    }

    /// Refuses a rule that this model cannot judge, before answers are drawn for it.
    pub(crate) fn check_model(&self, model: &EntailmentInfo) -> Result<(), EngineError> {
        if self.rule == Rule::Loose && !model.three_way {
            let problem =
                "the entailment model does not separate neutral from contradiction: `loose` needs a three-way model";
            return Err(EngineError::Precondition(problem.into()));
        }
        Ok(())
    }
}

/// A sampled answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text before the first stop string, trimmed; may be empty.
    pub text: String,
    /// Natural log-probability of each token of the text at the sampling temperature; for an empty answer, of its
    /// first token.
    pub log_probabilities: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

impl Answer {
    /// Its likelihood, as the measures use it.
    #[must_use]
    pub fn likelihood(&self) -> Likelihood {
        Likelihood { sum: self.log_probabilities.iter().sum(), tokens: self.log_probabilities.len() }
    }
}

/// A question, its passages, and the contexts in which answers are sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BeliefRequest {
    /// The question.
    pub question: String,
    /// The passages.
    pub passages: Vec<Passage>,
    /// Passage indices of each context, in prompt order. An empty list is a prompt with only the question.
    pub contexts: Vec<Vec<usize>>,
    /// The task of the generator.
    pub task: Task,
    /// How answers are sampled.
    pub options: SampleOptions,
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
    /// True if passages may be cut to fit; the server's default if `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit if `None`.
    pub token_budget: Option<usize>,
    /// Answers whose likelihood is scored in every context, in addition to the sampled answers.
    pub references: Vec<String>,
}

/// Progress of [`Sampler::sample`](crate::sampling::Sampler::sample).
#[derive(Debug, Clone, PartialEq)]
pub enum BeliefEvent {
    /// A sample ended: context, number within it, answer.
    Sampled(usize, usize, Answer),
    /// A step ended: tokens evaluated so far, and the most that may be.
    Progress(usize, usize),
}

/// The sampled answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampled {
    /// Answers of each context, in the order of their numbers.
    pub answers: Vec<Vec<Answer>>,
    /// The labels of each context with their probabilities; empty lists for tasks without labels.
    pub labels: Vec<Vec<LabelProbability>>,
    /// log P of each reference in each context, in nats.
    pub references: Vec<Vec<f64>>,
    /// Number of tokens cut from each passage.
    pub cut: Vec<usize>,
    /// The warning about empty passages.
    pub(crate) unread: Option<String>,
    /// Cost of the generator.
    pub usage: Usage,
}

impl Sampled {
    /// Passages that were cut to fit.
    pub(crate) fn shortened(&self) -> usize {
        self.cut.iter().filter(|dropped| **dropped > 0).count()
    }

    /// The warnings about passages that were cut, or that are empty.
    pub fn warnings(&self) -> Vec<String> {
        let cut = Some(self.shortened()).filter(|count| *count > 0);
        let cut = cut.map(|count| format!("{count} passages were cut to fit"));
        cut.into_iter().chain(self.unread.clone()).collect()
    }
}

/// A response to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Its text; may be empty.
    pub text: String,
    /// Its likelihood.
    pub likelihood: Likelihood,
}

impl Response {
    /// A sampled answer to a task.
    pub(crate) fn of(answer: &Answer, task: &Task) -> Self {
        Self { text: task.measured(&answer.text), likelihood: answer.likelihood() }
    }
}

/// The measures of a set of responses.
#[derive(Debug, Clone, PartialEq)]
pub struct BeliefReport {
    /// Soft SePer, in [0, 1]; absent without references.
    pub seper_soft: Option<Estimate>,
    /// Hard SePer; absent without references or with a two-way model.
    pub seper_hard: Option<Estimate>,
    /// Semantic entropy over the weights of the clusters, in nats.
    pub semantic_entropy: Estimate,
    /// Semantic entropy over the counts of the clusters, in nats.
    pub semantic_entropy_count: Estimate,
    /// Semantic entropy corrected for clusters without a sample; absent for fewer than two responses.
    pub semantic_entropy_corrected: Option<Estimate>,
    /// Mean negative log-likelihood, in nats.
    pub predictive_entropy: Estimate,
    /// Mean perplexity of the responses; absent if one of them is above 1e100.
    pub perplexity: Option<Estimate>,
    /// Mean ROUGE-L of all pairs of responses, in [0, 1]; absent for fewer than two.
    pub lexical_similarity: Option<Estimate>,
    /// The clusters of responses with equal meaning.
    pub clusters: Clusters,
    /// Weight of each response; they sum to 1.
    pub weights: Vec<f64>,
    /// Number of responses without text.
    pub empty: usize,
}

/// Answers sampled by the caller, with and without context, and the caller's verdicts on them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasureInput {
    /// Precedes every text that the entailment model judges; may be empty.
    pub question: String,
    /// Reference answers.
    pub references: Vec<String>,
    /// Answers with context; at least one.
    pub with_context: Vec<Response>,
    /// Answers without context; if there are none, nothing is subtracted.
    pub context_free: Vec<Response>,
    /// True if answer `i` of both lists was drawn with the same random numbers. Paired lists have the same length.
    pub pairing: Pairing,
    /// Verdicts by text: premise, hypothesis. The entailment model judges the other pairs.
    pub verdicts: Vec<(String, String, Verdict)>,
    /// How the answers are measured.
    pub options: MeasureOptions,
}
