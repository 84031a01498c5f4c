//! How an analysis asks, and what its results depend on.

use serde_json::{Map, Value, json};

use super::Analysis;
use crate::evaluation::EvaluationError;
use engine::task::Task;
use protocol::backend::ModelIdentity;
use rag_metrics::resample::Statistics;

/// Most tokens of an answer, where the task has no length of its own. References are names, numbers and short phrases.
pub(super) const ANSWER_TOKENS: usize = 24;

/// How an analysis asks.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the generator is asked to do.
    pub task: Task,
    /// Passages of each question, from the front of its list; the analysis's own number where `None`.
    pub passages: Option<usize>,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Sampled answers of a prompt.
    pub samples: usize,
    /// Repetitions with other seeds, for analyses of stability.
    pub repeats: usize,
    /// Numbers of first passages, ascending, for the analysis that reads contexts of several; every number where it is empty.
    pub depths: Vec<usize>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Seed of designs, samples and resamples.
    pub seed: u64,
    /// Intervals.
    pub statistics: Statistics,
}

impl Settings {
    /// Passages that are taken of each list.
    pub fn taken(&self, analysis: &dyn Analysis) -> usize {
        self.passages.unwrap_or_else(|| analysis.passages())
    }

    /// Refuses what the analysis does not take: a task that its questions are not asked, or depths that it has none of.
    ///
    /// # Errors
    /// [`EvaluationError::Input`] with the option.
    pub fn check(&self, analysis: &dyn Analysis) -> Result<(), EvaluationError> {
        self.task.check().map_err(|error| EvaluationError::Input(format!("--{error}")))?;
        if self.task != Task::default() && !analysis.takes_task() {
            let problem = format!("--task: {} asks for no answer but a short one", analysis.name());
            return Err(EvaluationError::Input(problem));
        }
        let taken = self.taken(analysis);
        let problem = match self.depths.last() {
            Some(_) if !analysis.takes_depths() => format!("{} has none", analysis.name()),
            Some(deepest) if *deepest > taken => {
                format!("{deepest} of the first {taken} passages; --passages takes more of each list")
            }
            _ => return Ok(()),
        };
        Err(EvaluationError::Input(format!("--depths: {problem}")))
    }

    /// Most tokens of an answer.
    pub fn answer_tokens(&self) -> usize {
        self.task.kind.answer_tokens().unwrap_or(ANSWER_TOKENS)
    }

    /// Everything that the lines depend on. Lines of another manifest are not continued.
    pub(super) fn manifest(&self, analysis: &dyn Analysis, models: &ModelIdentity) -> Map<String, Value> {
        let entries = [
            ("analysis_format", json!(analysis.format())),
            ("analysis", json!(analysis.name())),
            ("generator_sha256", json!(models.generator)),
            ("generator_encoding", json!(models.encoding)),
            ("adapter", json!(models.adapter)),
            ("scorer", json!(models.scorer)),
            ("entailment_sha256", json!(analysis.needs().entailment.then_some(&models.entailment))),
            (
                "beside_the_generator",
                json!(models.beside.iter().map(|(role, sha)| (role.name(), sha)).collect::<Vec<_>>()),
            ),
            ("prompts", json!(models.prompts)),
            ("ranking", json!(models.ranking)),
            ("calibrations", json!(models.calibrated(None))),
            ("passages", json!(self.taken(analysis))),
            ("passage_tokens", json!(self.passage_tokens)),
            ("samples", json!(self.samples)),
            ("repeats", json!(self.repeats)),
            ("relevance_threshold", json!(self.threshold)),
            ("seed", json!(self.seed)),
        ];
        let frames = models.frames().map(|(key, value)| (key, json!(value)));
        // The default has no entry, so that results of before there were tasks are continued.
        let task = (self.task != Task::default()).then(|| ("task", json!([self.task.kind.name(), self.task.labels()])));
        let depths = (!self.depths.is_empty()).then(|| ("depths", json!(self.depths)));
        entries
            .into_iter()
            .chain(frames)
            .chain(task)
            .chain(depths)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}
