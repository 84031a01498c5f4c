//! eRAG (Salemi and Zamani, 2024, sections 2 and 3): the generator answers from each passage alone, the quality of that answer
//! is the passage's label, and rank metrics are computed over the labels.

mod annotator;
mod answer_judgement;
mod bert_score;
mod label;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use annotator::Annotator;
use label::Labelled;

use super::belief::{Answer, MeasureOptions, SampleOptions, check_orders, check_references, check_texts};
use super::estimate::Size;
use super::models::Role;
use super::rerank::{Passage, Usage};
use super::task::{LabelProbability, Task, TaskKind};
use super::{Engine, EngineError, Limits};
use prefix_scheduler::call::Call;
use rag_metrics::input::check_metrics;
use rag_metrics::rank::{Grading, Metric, Ranking};

/// That hard SePer cannot be measured.
fn two_way() -> EngineError {
    EngineError::Precondition("the entailment model is two-way: hard SePer needs a three-way model".into())
}

/// Most rankings of one request.
pub const MOST_RANKINGS: usize = 64;

/// A question, its passages, and how its retrieval is evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateRequest {
    /// The question.
    pub question: String,
    /// The passages, best first.
    pub passages: Vec<Passage>,
    /// Reference answers or class labels.
    pub references: Vec<String>,
    /// What labels the passages; each annotator once.
    pub annotators: Vec<Annotator>,
    /// The caller's labels for [`Annotator::Provenance`], one a passage.
    pub provenance: Vec<f64>,
    /// Metrics over the labels.
    pub metrics: Vec<Metric>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Rankings of passage indices, best first; the order of the passages where empty. A ranking may leave passages out and
    /// may be empty.
    pub rankings: Vec<Vec<usize>>,
    /// For each ranking the order in which its passages stand in the prompt of the end-to-end answer; the rankings where
    /// empty. Each context holds the passages of its ranking.
    pub contexts: Vec<Vec<usize>>,
    /// Answer from each whole context, too, and score that answer.
    pub end_to_end: bool,
    /// What the generator is asked to do. The answer of a task with labels is its likeliest label.
    pub task: Task,
    /// Most tokens of a greedy answer; the task's default where `None`.
    pub answer_tokens: Option<usize>,
    /// How answers are sampled for the SePer annotators.
    pub sampling: SampleOptions,
    /// How sampled answers are measured.
    pub measure: MeasureOptions,
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default where `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit where `None`.
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
    /// The metrics over its labels, in the request's order; `None` where one is not defined.
    pub metrics: Vec<Option<f64>>,
    /// Its score of the answer from the whole context; `None` where there is no answer, and for the baselines.
    pub end_to_end: Option<f64>,
}

/// A ranking's scores.
#[derive(Debug, Clone, PartialEq)]
pub struct RankingScores {
    /// Its passages, best first.
    pub indices: Vec<usize>,
    /// The same passages in the order of the prompt of the end-to-end answer.
    pub context: Vec<usize>,
    /// One an annotator.
    pub scores: Vec<AnnotatorScores>,
    /// The greedy answer from the whole context; `None` where no annotator needs one.
    pub answer: Option<Answer>,
    /// The task's labels after the whole context, with their probabilities; empty without an end-to-end answer.
    pub label_probabilities: Vec<LabelProbability>,
}

/// The labels, and the scores of the rankings over them.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateReport {
    /// Labels by annotator, one a passage.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// One a ranking.
    pub rankings: Vec<RankingScores>,
    /// The greedy answer from each passage alone, where an annotator needed them.
    pub passage_answers: Vec<Answer>,
    /// The task's labels after each passage alone, with their probabilities; empty for tasks without labels.
    pub passage_label_probabilities: Vec<Vec<LabelProbability>>,
    /// The task that was asked.
    pub task: TaskKind,
    /// What the generator did.
    pub usage: Usage,
    /// Pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl EvaluateRequest {
    pub(super) fn has(&self, holds: impl Fn(Annotator) -> bool) -> bool {
        self.annotators.iter().any(|annotator| holds(*annotator))
    }

    fn greedy(&self) -> SampleOptions {
        let stop = self.sampling.stop.clone();
        self.task.sampling(SampleOptions { max_tokens: self.answer_tokens, stop, ..SampleOptions::greedy() })
    }

    fn rankings(&self) -> Vec<Vec<usize>> {
        if self.rankings.is_empty() { vec![(0..self.passages.len()).collect()] } else { self.rankings.clone() }
    }

    /// The contexts that are answered as a whole, each once.
    pub(super) fn whole_contexts(&self) -> BTreeSet<Vec<usize>> {
        if self.end_to_end { self.contexts().into_iter().collect() } else { BTreeSet::new() }
    }

    /// The prompt order of each ranking.
    fn contexts(&self) -> Vec<Vec<usize>> {
        if self.contexts.is_empty() { self.rankings() } else { self.contexts.clone() }
    }

    /// Refuses contexts that do not hold the passages of their rankings.
    fn check_contexts(&self) -> Result<(), EngineError> {
        if self.contexts.is_empty() {
            return Ok(());
        }
        let rankings = self.rankings();
        if self.contexts.len() != rankings.len() {
            let problem = format!("{} given, must be one for each of {} rankings", self.contexts.len(), rankings.len());
            return Err(EngineError::invalid("contexts", problem));
        }
        check_orders("contexts", &self.contexts, self.passages.len())?;
        let sorted = |indices: &[usize]| {
            let mut sorted = indices.to_vec();
            sorted.sort_unstable();
            sorted
        };
        for (number, (context, ranking)) in self.contexts.iter().zip(&rankings).enumerate() {
            if sorted(context) != sorted(ranking) {
                let problem = format!("must hold the same passages as rankings[{number}]");
                return Err(EngineError::invalid(format!("contexts[{number}]"), problem));
            }
        }
        Ok(())
    }

    /// Refuses labels that do not fit the task, and references that no answer can equal.
    fn check_labels(&self) -> Result<(), EngineError> {
        self.task.check()?;
        if self.task.kind.has_labels()
            && self.has(|annotator| annotator == Annotator::Accuracy)
            && let Some(index) = self.references.iter().position(|reference| !self.task.is_label(reference))
        {
            return Err(EngineError::invalid(format!("references[{index}]"), "is none of the labels"));
        }
        Ok(())
    }

    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        let invalid = |field: &str, problem: String| Err(EngineError::invalid(field, problem));
        if self.passages.is_empty() {
            return invalid("passages", "must not be empty".into());
        }
        if self.annotators.is_empty() {
            return invalid("annotators", "must not be empty".into());
        }
        if let Some(repeated) =
            self.annotators.iter().enumerate().find_map(|(at, a)| self.annotators[..at].iter().find(|b| *b == a))
        {
            return invalid("annotators", format!("{} given twice", repeated.name()));
        }
        check_metrics(&self.metrics)?;
        if self.has(Annotator::needs_references) && self.references.is_empty() {
            return invalid("references", "must not be empty for these annotators".into());
        }
        check_references(&self.references, limits)?;
        self.check_labels()?;
        if self.has(|a| a == Annotator::Provenance) && self.provenance.len() != self.passages.len() {
            let (labels, passages) = (self.provenance.len(), self.passages.len());
            return invalid(
                "provenance",
                format!("{labels} labels given, must be one for each of {passages} passages"),
            );
        }
        if let Some(index) = self.provenance.iter().position(|label| !label.is_finite() || *label < 0.0) {
            return invalid(&format!("provenance[{index}]"), "must be a finite number of at least 0".into());
        }
        if self.end_to_end && !self.has(Annotator::scores_answers) {
            return invalid("end_to_end", "needs an annotator that scores answers".into());
        }
        let most = MOST_RANKINGS.min(limits.orders);
        if self.rankings.len() > most {
            return invalid("rankings", format!("{} given, at most {most} allowed", self.rankings.len()));
        }
        check_texts(&self.question, &self.passages, limits)?;
        check_orders("rankings", &self.rankings, self.passages.len())?;
        self.check_contexts()?;
        self.check_settings()
    }

    /// Refuses settings that hold for every question.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    pub fn check_settings(&self) -> Result<(), EngineError> {
        if !self.threshold.is_finite() {
            return Err(EngineError::invalid("threshold", "must be a finite number"));
        }
        self.measure.check()?;
        self.sampling.check()?;
        self.greedy().check().map_err(|error| match error {
            EngineError::Invalid { field, problem } if field == "sampling.max_tokens" => {
                EngineError::invalid("answer_tokens", problem)
            }
            other => other,
        })
    }
}

impl Engine {
    /// Refuses a request that [`Engine::evaluate`] would refuse without a model. For one that has to wait for its permit.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check_evaluation(&self, request: &EvaluateRequest) -> Result<(), EngineError> {
        request.check(&self.limits)
    }

    /// Evaluates the retrieval of one question. All prompts share one plan. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn evaluate(&self, call: &Call, mut request: EvaluateRequest) -> Result<EvaluateReport, EngineError> {
        request.sampling = request.task.sampling(request.sampling);
        request.check(&self.limits)?;
        if request.has(Annotator::is_belief) {
            let model = self.models().judge()?.load(call).await?;
            // Soft SePer alone asks for no clusters, whatever the rule.
            if request.has(Annotator::is_hard) && !model.three_way {
                return Err(two_way());
            }
        }
        if request.has(Annotator::needs_embedding) {
            self.models().scorer(Role::Embedding)?;
        }
        let admitted = Size::of_evaluation(&request, self.limits.tokens).admit(call, self.models().generator(None)?)?;
        let request = Arc::new(request);
        let labelled = label::label(self, call, &request).await?;
        admitted.learn_from(call);
        call.compute(move |call| request.report(labelled, call)).await
    }
}

impl EvaluateRequest {
    /// Computes the metrics of every ranking over the labels.
    fn report(&self, labelled: Labelled, call: &Call) -> Result<EvaluateReport, EngineError> {
        // Judgements may have grades. The labels of the others lie between 0 and 1, where a threshold for grades would hold for none.
        let judged = self.has(|annotator| annotator == Annotator::Provenance);
        let grading = |annotator: Annotator| match annotator {
            Annotator::Provenance => Grading { threshold: self.threshold, ..Grading::ERAG },
            _ if judged => Grading::ERAG,
            _ => Grading { threshold: self.threshold, ..Grading::ERAG },
        };
        let pairs = self.rankings().into_iter().zip(self.contexts()).enumerate();
        let rankings = pairs.map(|(number, (indices, context))| {
            call.check()?;
            let scores = labelled.labels.iter().enumerate().map(|(at, (annotator, labels))| {
                // Recall and the ideal list count all passages of the request, also those that this ranking leaves out.
                let listed = indices.iter().map(|&index| Some(labels[index])).collect();
                let listed = Ranking::new(listed, labels.clone());
                AnnotatorScores {
                    annotator: *annotator,
                    metrics: self.metrics.iter().map(|metric| metric.of(&listed, grading(*annotator))).collect(),
                    end_to_end: labelled.end_to_end[number][at],
                }
            });
            let scores = scores.collect();
            let (answer, label_probabilities) = labelled.answers.get(number).cloned().unwrap_or_default();
            Ok(RankingScores { indices, context, scores, answer, label_probabilities })
        });
        let rankings = rankings.collect::<Result<_, EngineError>>()?;
        Ok(EvaluateReport {
            rankings,
            task: self.task.kind,
            labels: labelled.labels,
            passage_answers: labelled.passage_answers,
            passage_label_probabilities: labelled.passage_labels,
            usage: labelled.usage,
            judged_pairs: labelled.judged_pairs,
            warnings: labelled.warnings,
        })
    }
}
