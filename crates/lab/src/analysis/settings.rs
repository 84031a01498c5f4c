//! How an analysis asks, and what its results depend on.

use serde_json::{Map, Value, json};

use super::{About, Need};
use crate::study::StudyError;
use crate::study::identity::ModelIdentity;
use crate::study::manifest::{self, Uses};
use engine::task::Task;
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
    pub fn taken(&self, about: &About) -> usize {
        self.passages.unwrap_or(about.passages)
    }

    /// Refuses what the analysis does not take: a task that its questions are not asked, or depths that it has none of.
    ///
    /// # Errors
    /// [`StudyError::Input`] with the option.
    pub fn check(&self, about: &About) -> Result<(), StudyError> {
        self.task.check().map_err(|error| StudyError::Input(format!("--{error}")))?;
        if self.task != Task::default() && !about.needs(Need::Task) {
            let problem = format!("--task: {} asks for no answer but a short one", about.name);
            return Err(StudyError::Input(problem));
        }
        let taken = self.taken(about);
        let problem = match self.depths.last() {
            Some(_) if !about.needs(Need::Depths) => format!("{} has none", about.name),
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
