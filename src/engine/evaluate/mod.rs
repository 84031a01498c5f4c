//! eRAG: each passage alone before the generator, the answer's quality as the passage's label, rank metrics over the labels
//! (Salemi and Zamani, 2024, sections 2 and 3).

mod annotator;
mod judgement;
mod label;

pub use annotator::Annotator;

use super::belief::{Answer, MeasureOptions, SampleOptions, check_orders, check_texts};
use super::rerank::{Passage, Usage};
use super::{Engine, EngineError, Limits};
use crate::call::Call;
use crate::metrics::MOST_METRICS;
use crate::metrics::rank::{Grading, Metric, Ranking};

/// Rankings of one request.
const MOST_RANKINGS: usize = 64;

/// A question, its passages, and how its retrieval is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateRequest {
    /// The question.
    pub question: String,
    /// The passages, best first.
    pub passages: Vec<Passage>,
    /// Reference answers or class labels.
    pub references: Vec<String>,
    /// What gives labels.
    pub annotators: Vec<Annotator>,
    /// The caller's labels, one a passage, for [`Annotator::Provenance`].
    pub provenance: Vec<f64>,
    /// Metrics over the labels.
    pub metrics: Vec<Metric>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Rankings to be scored, by index; the passages as they stand where empty. A ranking may leave passages out, or hold none.
    pub rankings: Vec<Vec<usize>>,
    /// Answer from each whole ranking, too.
    pub end_to_end: bool,
    /// Most tokens of a greedy answer; 64 where `None`.
    pub answer_tokens: Option<usize>,
    /// How answers are sampled for SePer.
    pub sampling: SampleOptions,
    /// How those are measured.
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
            end_to_end: false,
            answer_tokens: None,
            sampling: SampleOptions::default(),
            measure: MeasureOptions::default(),
            passage_tokens: None,
            truncate: None,
            token_budget: None,
        }
    }
}

/// The paper's metrics, each of the whole list.
#[must_use]
pub fn default_metrics() -> Vec<Metric> {
    ["P", "Success", "AP", "RR", "nDCG", "R"].iter().filter_map(|name| name.parse().ok()).collect()
}

/// One annotator's verdict on a ranking.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotatorScores {
    /// The annotator.
    pub annotator: Annotator,
    /// The metrics over its labels, in the request's order; `None` where one is not defined.
    pub metrics: Vec<Option<f64>>,
    /// Its score of the answer from the whole ranking.
    pub end_to_end: Option<f64>,
}

/// A ranking's scores.
#[derive(Debug, Clone, PartialEq)]
pub struct RankingScores {
    /// Its passages.
    pub indices: Vec<usize>,
    /// One an annotator.
    pub scores: Vec<AnnotatorScores>,
    /// The greedy answer from the whole ranking.
    pub answer: Option<Answer>,
}

/// Labels and what they say of the rankings.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluateReport {
    /// Labels by annotator, one a passage.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// One a ranking.
    pub rankings: Vec<RankingScores>,
    /// The greedy answer from each passage alone, where an annotator needed them.
    pub passage_answers: Vec<Answer>,
    /// What the generator did.
    pub usage: Usage,
    /// Pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl EvaluateRequest {
    fn has(&self, holds: impl Fn(Annotator) -> bool) -> bool {
        self.annotators.iter().any(|annotator| holds(*annotator))
    }

    fn greedy(&self) -> SampleOptions {
        SampleOptions { max_tokens: self.answer_tokens, stop: self.sampling.stop.clone(), ..SampleOptions::greedy() }
    }

    fn rankings(&self) -> Vec<Vec<usize>> {
        if self.rankings.is_empty() { vec![(0..self.passages.len()).collect()] } else { self.rankings.clone() }
    }

    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        let invalid = |field: &str, problem: String| Err(EngineError::invalid(field, problem));
        if self.passages.is_empty() {
            return invalid("passages", "must not be empty".into());
        }
        if self.annotators.is_empty() {
            return invalid("annotators", "must not be empty".into());
        }
        if let Some(twice) =
            self.annotators.iter().enumerate().find_map(|(at, a)| self.annotators[..at].iter().find(|b| *b == a))
        {
            return invalid("annotators", format!("names {twice:?} twice"));
        }
        if self.metrics.is_empty() || self.metrics.len() > MOST_METRICS {
            return invalid("metrics", format!("must be between 1 and {MOST_METRICS}, are {}", self.metrics.len()));
        }
        if !self.threshold.is_finite() {
            return invalid("threshold", "must be a finite number".into());
        }
        if self.has(Annotator::needs_references) && self.references.is_empty() {
            return invalid("references", "must not be empty for these annotators".into());
        }
        if self.references.len() > 64 {
            return invalid("references", format!("are {}, the limit is 64", self.references.len()));
        }
        if let Some(index) = self.references.iter().position(|reference| reference.trim().is_empty()) {
            return invalid(&format!("references[{index}]"), "must not be empty".into());
        }
        if self.has(|a| a == Annotator::Provenance) && self.provenance.len() != self.passages.len() {
            let (labels, passages) = (self.provenance.len(), self.passages.len());
            return invalid(
                "provenance",
                format!("must hold a label for each of the {passages} passages, has {labels}"),
            );
        }
        if let Some(index) = self.provenance.iter().position(|label| !label.is_finite() || *label < 0.0) {
            return invalid(&format!("provenance[{index}]"), "must be a number from 0".into());
        }
        if self.end_to_end && !self.has(Annotator::scores_answers) {
            return invalid("end_to_end", "needs an annotator that scores answers".into());
        }
        let most = MOST_RANKINGS.min(limits.orders);
        if self.rankings.len() > most {
            return invalid("rankings", format!("are {}, the limit is {most}", self.rankings.len()));
        }
        self.measure.check()?;
        check_texts(&self.question, &self.passages, limits)?;
        check_orders("rankings", &self.rankings, self.passages.len())?;
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
    /// Evaluates the retrieval of one question. All prompts share one plan; dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn evaluate(&self, call: &Call, request: EvaluateRequest) -> Result<EvaluateReport, EngineError> {
        request.check(&self.limits)?;
        if request.has(Annotator::is_belief) {
            self.models().judge()?;
        }
        let labelled = label::label(self, call, &request).await?;
        let grading = Grading { threshold: request.threshold, graded: true };
        let rankings = request.rankings().into_iter().enumerate().map(|(number, indices)| {
            let scores = labelled.labels.iter().enumerate().map(|(at, (annotator, labels))| {
                // What the other rankings found is known, too, so recall and ideal count it.
                let listed = indices.iter().map(|&index| Some(labels[index])).collect();
                let listed = Ranking::new(listed, labels.clone());
                AnnotatorScores {
                    annotator: *annotator,
                    metrics: request.metrics.iter().map(|metric| metric.of(&listed, grading)).collect(),
                    end_to_end: labelled.end_to_end[number][at],
                }
            });
            RankingScores { scores: scores.collect(), answer: labelled.answers.get(number).cloned(), indices }
        });
        let rankings = rankings.collect();
        Ok(EvaluateReport {
            rankings,
            labels: labelled.labels,
            passage_answers: labelled.passage_answers,
            usage: labelled.usage,
            judged_pairs: labelled.judged_pairs,
            warnings: labelled.warnings,
        })
    }
}
