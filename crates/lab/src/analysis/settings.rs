//! Settings of an analysis, and the manifest of its results.

use serde_json::{Map, Value, json};

use super::{About, Need};
use crate::study::StudyError;
use crate::study::identity::ModelIdentity;
use crate::study::manifest::{self, Uses};
use engine::types::Task;
use rag_metrics::resample::Statistics;

/// Most tokens of an answer, if the task has no length. References are names, numbers and short phrases.
pub(super) const ANSWER_TOKENS: usize = 24;

/// Settings of an analysis.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The generator's task.
    pub task: Task,
    /// Passages per question, from the front of its list; `None` for the analysis's default.
    pub passages: Option<usize>,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Sampled answers per prompt.
    pub samples: usize,
    /// Repetitions with other seeds, for analyses of stability.
    pub repeats: usize,
    /// Numbers of first passages, ascending, for the analysis that reads several contexts; empty for every number.
    pub depths: Vec<usize>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Seed of designs, samples and resamples.
    pub seed: u64,
    /// Intervals.
    pub statistics: Statistics,
}

impl Settings {
    /// Passages taken from each list.
    pub fn taken(&self, about: &About) -> usize {
        self.passages.unwrap_or(about.passages)
    }

    /// Refuses unsupported settings: another task if the analysis asks none, or depths.
    ///
    /// # Errors
    /// [`StudyError::Input`] with the option.
    pub fn check(&self, about: &About) -> Result<(), StudyError> {
        self.task.check().map_err(|error| StudyError::Input(format!("--{error}")))?;
        if self.task != Task::default() && !about.needs(Need::Task) {
            let problem = format!("--task: {} does not support other tasks", about.name);
            return Err(StudyError::Input(problem));
        }
        let taken = self.taken(about);
        let problem = match self.depths.last() {
            Some(_) if !about.needs(Need::Depths) => format!("{} does not use depths", about.name),
            Some(deepest) if *deepest > taken => {
                format!("{deepest} of the first {taken} passages; --passages takes more of each list")
            }
            _ => return Ok(()),
        };
        Err(StudyError::Input(format!("--depths: {problem}")))
    }

    /// Most tokens of an answer.
    pub fn answer_tokens(&self) -> usize {
        self.task.kind.answer_tokens().unwrap_or(ANSWER_TOKENS)
    }

    /// Everything that the results depend on.
    pub(super) fn manifest(&self, about: &About, models: &ModelIdentity) -> Map<String, Value> {
        let uses = Uses { methods: None, entailment: about.needs(Need::Entailment) };
        let settings = json!({
            "task": [self.task.kind.name(), self.task.labels()],
            "passages": self.taken(about),
            "passage_tokens": self.passage_tokens,
            "samples": self.samples,
            "repeats": self.repeats,
            "depths": self.depths,
            "relevance_threshold": self.threshold,
            "seed": self.seed,
        });
        manifest::of(about.name, models, uses, settings)
    }
}
