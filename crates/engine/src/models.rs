//! From names and roles to models.
//!
//! [`Models`] holds every model of the server, loaded or not. A worker thread reads a generator's file, so the
//! handle exists before the model; until it is loaded, [`GeneratorModel::get`] answers UNAVAILABLE. Health follows
//! [`Models::states`].

mod changes;
mod prompt_format;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

pub use changes::Changes;

use super::calibrations::Calibrations;
use super::position_bias::PositionBias;
use super::prompt::Language;
use crate::fusion::calibration::Calibration;
use crate::types::{EngineError, Role};
use prefix_scheduler::call::{Call, Lane, Place};
use prefix_scheduler::model::{GeneratorInfo, Tokenizer};
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::entailment::Judge;
use prefix_scheduler::scheduler::generator::Scheduler;
use prefix_scheduler::scheduler::reranker::PassageScorer;
use rag_metrics::quoted;

/// Most bytes of a name in a request.
const LONGEST_NAME: usize = 1024;

/// The contents of a generator's file.
pub struct FileRead {
    /// Its vocabulary.
    pub tokenizer: Arc<dyn Tokenizer>,
    /// Its description.
    pub info: GeneratorInfo,
    /// Its position-bias profiles.
    pub position_bias: PositionBias,
    /// Its calibrations, from labelled lists.
    pub calibrations: Vec<Calibration>,
}

/// A loaded generator with all parts that a use case needs.
pub struct ServedGenerator {
    /// Its queue.
    pub scheduler: Scheduler,
    /// Its vocabulary and prompt format.
    pub language: Language,
    /// Its description.
    pub info: GeneratorInfo,
    /// Its position-bias profiles.
    pub position_bias: Arc<PositionBias>,
    /// Its calibrations, from labelled lists.
    pub calibrations: Calibrations,
}

impl std::fmt::Debug for FileRead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FileRead").field("info", &self.info).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServedGenerator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServedGenerator").field("info", &self.info).finish_non_exhaustive()
    }
}

impl ServedGenerator {
    /// Builds a generator; `info` has the prompt format.
    #[must_use]
    pub fn new(
        scheduler: Scheduler,
        tokenizer: Arc<dyn Tokenizer>,
        info: GeneratorInfo,
        position_bias: PositionBias,
    ) -> Self {
        let language = Language::new(tokenizer, info.frame_in_use()).with_yes_no(info.yes_no);
        Self {
            scheduler,
            language,
            info,
            position_bias: Arc::new(position_bias),
            calibrations: Calibrations::default(),
        }
    }

    /// The vocabulary.
    #[must_use]
    pub fn tokenizer(&self) -> &dyn Tokenizer {
        self.language.tokenizer.as_ref()
    }

    /// Longest prompt in tokens that the model was trained for and the cache can hold.
    pub fn context(&self) -> Result<usize, EngineError> {
        let capacity = self.scheduler.capacity().ok_or(EngineError::Unavailable)?;
        Ok(capacity.cells.min(self.info.trained_context))
    }
}

/// The worker thread puts the contents of the generator's file here. This never holds a handle to the worker: the
/// thread would then keep itself alive.
pub type Published = Arc<Mutex<Option<FileRead>>>;

/// A generator by its configured name, loaded or not.
#[derive(Clone)]
pub struct GeneratorModel {
    name: String,
    role: Role,
    scheduler: Scheduler,
    published: Published,
    served: Arc<OnceLock<Arc<ServedGenerator>>>,
}

impl GeneratorModel {
    /// A generator that publishes itself when its file is read.
    #[must_use]
    pub fn new(name: String, scheduler: Scheduler, published: Published) -> Self {
        Self { name, role: Role::Generator, scheduler, published, served: Arc::default() }
    }

    /// This generator in the role of the scorer.
    #[must_use]
    pub fn into_scorer(self) -> Self {
        Self { role: Role::Scorer, ..self }
    }

    /// A generator that is already loaded.
    #[must_use]
    pub fn ready(served: ServedGenerator) -> Self {
        let (name, scheduler) = (served.info.name.clone(), served.scheduler.clone());
        let served = Arc::new(OnceLock::from(Arc::new(served)));
        Self { name, role: Role::Generator, scheduler, published: Published::default(), served }
    }

    /// The generator.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] until its file is read.
    pub fn get(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        if let Some(served) = self.served.get() {
            return Ok(Arc::clone(served));
        }
        let mut published = self.published.lock();
        let served = published.take().map(|FileRead { tokenizer, info, position_bias, calibrations }| {
            let served = ServedGenerator::new(self.scheduler.clone(), tokenizer, info, position_bias);
            served.calibrations.replace(calibrations);
            Arc::new(served)
        });
        // Under the lock, so that a caller who finds nothing published finds the result.
        match served {
            Some(served) => Ok(Arc::clone(self.served.get_or_init(|| served))),
            None => self.served.get().cloned().ok_or(EngineError::Unavailable),
        }
    }

    /// The name by which it is configured.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its role: it answers, or only scores.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Its queue.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

/// The state of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelState {
    /// Its role.
    pub role: Role,
    /// The name by which it is configured.
    pub name: String,
    /// True if it would serve a request now.
    pub serves: bool,
    /// Why it failed, if it did.
    pub problem: Option<String>,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Models").field("states", &self.states()).finish_non_exhaustive()
    }
}

/// Every model of the server. The first generator answers; a second one is the scorer, which scores passages
/// instead.
#[derive(Clone)]
pub struct Models {
    generators: Vec<GeneratorModel>,
    judge: Option<Judge>,
    /// At most one per role.
    scorers: Vec<(Role, PassageScorer)>,
    tokenizers: Option<FindTokenizer>,
}

/// Counts the tokens of a text.
pub type CountTokens = Arc<dyn Fn(&str) -> usize + Send + Sync>;

/// Blocking: finds a tokenizer by its name. The error continues a sentence about the name.
pub type FindTokenizer = Arc<dyn Fn(&str) -> Result<CountTokens, String> + Send + Sync>;

impl Models {
    /// One generator and maybe an entailment model.
    #[must_use]
    pub fn new(generator: GeneratorModel, judge: Option<Judge>) -> Self {
        Self { generators: vec![generator], judge, scorers: Vec::new(), tokenizers: None }
    }

    /// These models with a second generator that scores passages.
    #[must_use]
    pub fn with_scoring_generator(mut self, scorer: GeneratorModel) -> Self {
        self.generators.truncate(1);
        self.generators.push(scorer.into_scorer());
        self
    }

    /// The generator that scores passages for a request with this name: `generator`, `scorer`, or the scorer's name
    /// in the configuration or in answers. An empty name means the scorer, if there is one.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the available names, if none matches.
    pub fn scoring(&self, name: &str) -> Result<&GeneratorModel, EngineError> {
        if name.len() > LONGEST_NAME {
            let problem = format!("{} bytes given, at most {LONGEST_NAME} allowed", name.len());
            return Err(EngineError::invalid("scorer", problem));
        }
        // Answers state the name of the file. If the generator has the same name, for example because the scorer
        // only adds an adapter, it is ambiguous.
        let stated = |model: &GeneratorModel| model.get().is_ok_and(|served| served.info.name == name);
        let ambiguous = || self.generators.first().is_some_and(|generator| generator.name == name || stated(generator));
        let is = |model: &&GeneratorModel| {
            name == Role::Scorer.name() || name == model.name || (stated(model) && !ambiguous())
        };
        let scorer = self.generators.get(1);
        let found = match name {
            "" => self.generators.last(),
            "generator" => self.generators.first(),
            _ => scorer.filter(is),
        };
        // Before the scorer is loaded, any name may be the one that answers will state.
        if found.is_none() && scorer.is_some_and(|model| model.get().is_err()) {
            return Err(EngineError::Unavailable);
        }
        found.ok_or_else(|| {
            let known = scorer.map(|model| format!(", scorer or {:?}", model.name));
            let known = known.unwrap_or_else(|| "; no scorer is configured (scorer.model)".to_owned());
            EngineError::invalid("scorer", format!("is {}, must be generator{known}", quoted(name)))
        })
    }

    /// These models with a reranker or an embedding model, which replaces an earlier one of this role.
    #[must_use]
    pub fn with_scorer(mut self, role: Role, scorer: PassageScorer) -> Self {
        self.scorers.retain(|(other, _)| *other != role);
        self.scorers.push((role, scorer));
        self
    }

    /// These models with tokenizers that count the tokens of contexts.
    #[must_use]
    pub fn with_tokenizers(mut self, tokenizers: FindTokenizer) -> Self {
        self.tokenizers = Some(tokenizers);
        self
    }

    /// The tokenizer of that name.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the available names, if none matches.
    pub(crate) async fn tokenizer(&self, call: &Call, name: &str) -> Result<CountTokens, EngineError> {
        let invalid = |problem| EngineError::invalid("tokenizer", problem);
        let find =
            self.tokenizers.clone().ok_or_else(|| invalid("must be empty: there are no tokenizers".to_owned()))?;
        let name = name.to_owned();
        call.compute_in(Lane::Disk, move |_| {
            find(&name).map_err(|problem| invalid(format!("{} {problem}", quoted(&name))))
        })
        .await
    }

    /// The generator of that name, or the default one.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] if none has the name.
    pub fn generator(&self, name: Option<&str>) -> Result<&GeneratorModel, EngineError> {
        let found = match name {
            None => self.generators.first(),
            Some(name) => self.generators.iter().find(|model| model.name == name),
        };
        found.ok_or_else(|| EngineError::Precondition(format!("no generator {:?}", name.unwrap_or("is configured"))))
    }

    /// The generator that answers.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loading.
    pub fn answering(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.generator(None)?.get()
    }

    /// The generator that scores passages of requests without a scorer.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loading.
    pub fn scorer_by_default(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.scoring("")?.get()
    }

    /// Releases the answering generator's reservation for this call, which now waits for the entailment model. That
    /// may take minutes.
    pub(crate) fn release_generator(&self, call: &Call) {
        if let Ok(generator) = self.answering() {
            generator.scheduler.release_estimate(call);
        }
    }

    /// The error of a request without a free slot. Its delay is the time that the generators need for their queues.
    #[must_use]
    pub fn queue_full(&self) -> EngineError {
        let retry_after = self.generators.iter().map(|model| model.scheduler().retry_after()).max();
        EngineError::QueueFull { retry_after: retry_after.unwrap_or(Duration::from_secs(1)) }
    }

    /// The error of a request without a free slot for this kind of work. Only generators estimate a delay.
    #[must_use]
    pub fn queue_full_at(&self, place: Place) -> EngineError {
        match place {
            Place::Generator => self.queue_full(),
            Place::Beside => EngineError::QueueFull { retry_after: Duration::from_secs(1) },
        }
    }

    /// Every generator, the default first.
    #[must_use]
    pub fn generators(&self) -> &[GeneratorModel] {
        &self.generators
    }

    /// The entailment model, loaded or not.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] if none is configured.
    pub fn judge(&self) -> Result<&Judge, EngineError> {
        self.judge.as_ref().ok_or_else(EngineError::no_judge)
    }

    /// The model, loaded or not; `None` if none is configured.
    #[must_use]
    pub const fn judge_if_any(&self) -> Option<&Judge> {
        self.judge.as_ref()
    }

    /// [`Judge::sha256`]; empty if no entailment model is configured.
    #[must_use]
    pub fn judge_sha256(&self) -> String {
        self.judge.as_ref().map(Judge::sha256).unwrap_or_default()
    }

    /// The model that scores passages in this role, loaded or not.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] if none is configured, with the key to set.
    pub fn scorer(&self, role: Role) -> Result<&PassageScorer, EngineError> {
        let none = || EngineError::Precondition(format!("no {0} model is configured: set {0}.model", role.name()));
        self.scorer_if_any(role).ok_or_else(none)
    }

    /// The model, loaded or not; `None` if none is configured.
    #[must_use]
    pub fn scorer_if_any(&self, role: Role) -> Option<&PassageScorer> {
        self.scorers.iter().find(|(other, _)| *other == role).map(|(_, scorer)| scorer)
    }

    /// Every model that scores passages, with its role.
    #[must_use]
    pub fn scorers(&self) -> &[(Role, PassageScorer)] {
        &self.scorers
    }

    /// The state of every model.
    #[must_use]
    pub fn states(&self) -> Vec<ModelState> {
        let generators = self.generators.iter().map(|model| {
            let status = model.scheduler.status();
            state(model.role, &model.name, &status.borrow())
        });
        let judges = self.judge.iter().map(|judge| {
            let status = judge.status();
            state(Role::Entailment, &judge.model().name, &status.borrow())
        });
        let scorers = self.scorers.iter().map(|(role, scorer)| {
            let status = scorer.status();
            state(*role, &scorer.model().name, &status.borrow())
        });
        generators.chain(judges).chain(scorers).collect()
    }

    /// True if a request would be served: every generator is loaded, or loads on demand.
    #[must_use]
    pub fn serve(&self) -> bool {
        let needed = |state: &&ModelState| matches!(state.role, Role::Generator | Role::Scorer);
        self.states().iter().filter(needed).all(|state| state.serves)
    }

    /// Later changes of the states.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(
            self.generators.iter().map(|model| model.scheduler.status()).collect(),
            self.judge.as_ref().map(Judge::status),
            self.scorers.iter().map(|(_, scorer)| scorer.status()).collect(),
        )
    }
}

fn state<I>(role: Role, name: &str, status: &Status<I>) -> ModelState {
    let problem = match status {
        Status::Failed(problem) => Some(problem.clone()),
        _ => None,
    };
    ModelState { role, name: name.to_owned(), serves: status.serves(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::model::ModelError;
    use prefix_scheduler::scheduler::generator::SchedulerOptions;

    /// The follower of the health status took a fresh copy of an old receiver for every wait, which resolved at
    /// once, so it kept one core busy.
    #[tokio::test]
    async fn a_state_that_does_not_change_is_not_reported_again() {
        let loader = Box::new(|_: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
            Err(ModelError::Unusable { path: "x.gguf".into(), problem: "is damaged".into() })
        });
        let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
        let models = Models::new(GeneratorModel::new("x".into(), scheduler, Published::default()), None);
        let (mut changes, mut turns) = (models.changes(), 0);
        let _ = tokio::time::timeout(Duration::from_millis(300), async {
            loop {
                changes.next().await;
                turns += 1;
            }
        })
        .await;
        assert!((1..10).contains(&turns), "{turns}");
        assert!(models.states()[0].problem.as_ref().is_some_and(|problem| problem.contains("damaged")));
    }
}
