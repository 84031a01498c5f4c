//! eRAG (Salemi and Zamani, 2024, sections 2 and 3): the generator answers from each passage separately, the
//! quality of that answer is the passage's label, and rank metrics are computed over the labels.

mod annotator;
mod answer_judgement;
mod bert_score;
mod label;

use std::sync::Arc;

pub use bert_score::BertScorer;
use label::{Labelled, two_way};

use super::estimate::Size;
use crate::checks::{check_orders, check_references, check_texts};
use crate::sampling::Sampler;
use crate::types::{
    Annotator, AnnotatorScores, EngineError, EvaluateReport, EvaluateRequest, Limits, RankingScores, Role,
};
use prefix_scheduler::call::Call;
use rag_metrics::input::check_metrics;
use rag_metrics::rank::{Grading, Ranking};

/// Most rankings of one request.
pub const MOST_RANKINGS: usize = 64;

impl EvaluateRequest {
    /// Refuses contexts that do not match the passages of their rankings.
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

    /// Refuses labels that do not match the task, and references that no answer can equal.
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
        if !self.label_passages {
            let labels = |annotator: &&Annotator| !annotator.scores_answers();
            if let Some(annotator) = self.annotators.iter().find(labels) {
                let problem = format!("{} labels passages, and answers_only leaves labels out", annotator.name());
                return invalid("annotators", problem);
            }
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

    /// Refuses invalid settings that all questions share.
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

/// Evaluates retrieval by the answers of the generator.
#[derive(Debug, Clone)]
pub struct Evaluator {
    pub(crate) sampler: Sampler,
}

impl Evaluator {
    /// Refuses a request that [`Evaluator::evaluate`] would refuse without a model. For requests that must wait for
    /// a slot.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check(&self, request: &EvaluateRequest) -> Result<(), EngineError> {
        request.check(&self.sampler.limits)
    }

    /// Evaluates the retrieval of one question. All prompts share one plan. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work if possible.
    pub async fn evaluate(&self, call: &Call, mut request: EvaluateRequest) -> Result<EvaluateReport, EngineError> {
        request.sampling = request.task.sampling(request.sampling);
        request.check(&self.sampler.limits)?;
        if request.has(Annotator::is_belief) {
            let model = self.sampler.models.judge()?.load(call).await?;
            // Soft SePer by itself needs no clusters, whatever the rule.
            if request.has(Annotator::is_hard) && !model.three_way {
                return Err(two_way());
            }
        }
        if request.has(Annotator::needs_embedding) {
            self.sampler.models.scorer(Role::Embedding)?;
        }
        let (models, limits) = (&self.sampler.models, &self.sampler.limits);
        let admitted = Size::of_evaluation(&request, limits.tokens).admit(call, models.generator(None)?)?;
        let request = Arc::new(request);
        let labelled = label::label(&self.sampler, call, &request).await?;
        admitted.learn_from(call);
        call.compute(move |call| request.report(labelled, call)).await
    }
}

impl EvaluateRequest {
    /// Computes the metrics of every ranking over the labels.
    fn report(&self, labelled: Labelled, call: &Call) -> Result<EvaluateReport, EngineError> {
        // Judgements may have grades. Other labels lie between 0 and 1, below any threshold for grades.
        let judged = self.has(|annotator| annotator == Annotator::Provenance);
        let grading = |annotator: Annotator| match annotator {
            Annotator::Provenance => Grading { threshold: self.threshold, ..Grading::ERAG },
            _ if judged => Grading::ERAG,
            _ => Grading { threshold: self.threshold, ..Grading::ERAG },
        };
        let pairs = self.rankings().into_iter().zip(self.contexts()).enumerate();
        let rankings = pairs.map(|(number, (indices, context))| {
            call.check()?;
            let metrics = |(annotator, labels): &(Annotator, Vec<f64>)| {
                // Recall and the ideal list count all passages of the request, even if this ranking leaves some
                // out.
                let listed = indices.iter().map(|&index| Some(labels[index])).collect();
                let listed = Ranking::new(listed, labels.clone());
                self.metrics.iter().map(|metric| metric.of(&listed, grading(*annotator))).collect()
            };
            let scores = self.annotators.iter().enumerate().map(|(at, annotator)| AnnotatorScores {
                annotator: *annotator,
                metrics: labelled.labels.get(at).map(metrics).unwrap_or_default(),
                end_to_end: labelled.end_to_end[number][at],
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
