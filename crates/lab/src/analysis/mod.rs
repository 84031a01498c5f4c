//! Analyses: the studies of the papers, repeated on the user's own generator and data, behind `rerankd analyse`.
//!
//! An [`Analysis`] is a file. It asks about every question ([`Analysis::ask`]) and reports on the answers
//! ([`Analysis::report`]): a sentence, tables, charts and figures. [`run`] does the rest with the driver of `study`.
//!
//! To add one: a file with a type that implements [`Analysis`], and its line in [`all`].

mod coefficient;
mod designs;
mod equivalence;
mod erag_correlation;
mod erag_cost;
mod order_distance;
mod position_bias;
mod readings;
mod recall_correlation;
mod repeatability;
mod reversed_ranking;
mod sample_size;
mod sampled;
mod settings;
mod stability;
mod utility_by_depth;
mod utility_of_compression;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::settings::ANSWER_TOKENS;
pub use self::settings::Settings;
use crate::study::backend::{Backend, Refusal};
use crate::study::data::{Data, Question, Sources};
use crate::study::identity::ModelIdentity;
use crate::study::journal::Entry;
use crate::study::report::{Report, generator_note, intervals_note, machine, model, passages_note};
use crate::study::{Answered, Event, Finished, Results, Study, StudyError, fingerprint, manifest};
use engine::Engine;
use engine::types::Task;
use engine::types::{Passage, RerankRequest};

/// The key of values that differ between runs. They are stored in another file than the results, and are missing if
/// that file is lost.
pub const TIMES: &str = "times";

/// The requests of one question, while they run.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<Value, Refusal>> + Send + 'a>>;

/// Description and requirements of an analysis.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading, with the paper's figure or table.
    pub title: &'static str,
    /// Default number of passages per question, from the front of its list; 0 if no model reads them as passages.
    pub passages: usize,
    /// Least number of passages among those taken.
    pub least: usize,
    pub needs: &'static [Need],
}

/// Requirements of an analysis. Questions without the references or passages that it needs are left out and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Reference answers.
    References,
    /// An entailment model.
    Entailment,
    /// An engine in this process, for data that the protocol does not carry.
    Engine,
    /// It can ask for answers of tasks other than a short answer.
    Task,
    /// It reads contexts of several numbers of first passages.
    Depths,
}

impl About {
    const fn new(name: &'static str, title: &'static str, needs: &'static [Need]) -> Self {
        Self { name, title, passages: 5, least: 0, needs }
    }

    /// A copy with another number of passages.
    const fn passages(self, passages: usize) -> Self {
        Self { passages, ..self }
    }

    /// A copy with a least number of passages.
    const fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub fn needs(&self, need: Need) -> bool {
        self.needs.contains(&need)
    }
}

/// One study.
pub trait Analysis: Send + Sync {
    fn about(&self) -> About;

    /// Reads its data; labelled lists by default.
    fn load(&self, sources: &Sources) -> Result<Data, StudyError> {
        sources.load()
    }

    /// True if these questions need an engine in this process.
    fn local(&self, _data: &Data) -> bool {
        self.about().needs(Need::Engine)
    }

    /// Asks the models about one question. Equal questions and settings give equal values, except for the member
    /// [`TIMES`] of an object.
    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a>;

    /// Reports on the answers.
    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError>;
}

/// Inputs of an analysis.
pub struct Context<'a> {
    pub backend: &'a Backend,
    pub settings: &'a Settings,
    pub about: About,
}

/// The answer to one question.
pub struct Answer<'a> {
    pub question: &'a Question,
    /// The value that [`Analysis::ask`] returned.
    pub value: Value,
}

/// The value that [`Analysis::ask`] returns.
fn kept(value: impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(value).map_err(|error| Refusal::Question(format!("the result cannot be stored: {error}")))
}

/// The value of each question.
///
/// # Errors
/// [`StudyError::Input`] with the question, for a results file that was changed.
fn values<T: DeserializeOwned>(answers: &[Answer<'_>]) -> Result<Vec<T>, StudyError> {
    let one = |answer: &Answer<'_>| {
        T::deserialize(&answer.value).map_err(|error| {
            let id = &answer.question.id;
            StudyError::Input(format!("results.jsonl: question {id:?}: {error}; --restart asks again"))
        })
    };
    answers.iter().map(one).collect()
}

/// All analyses, in the order of the help.
pub fn all() -> impl Iterator<Item = &'static dyn Analysis> {
    const ALL: &[&dyn Analysis] = &[
        &position_bias::PositionBias,
        &reversed_ranking::ReversedRanking,
        &order_distance::OrderDistance,
        &stability::Stability,
        &designs::Designs,
        &utility_by_depth::UtilityByDepth,
        &utility_of_compression::UtilityOfCompression,
        &repeatability::Repeatability,
        &sample_size::SampleSize,
        &equivalence::Equivalence,
        &erag_correlation::EragCorrelation,
        &erag_cost::EragCost,
        &recall_correlation::RecallCorrelation,
    ];
    ALL.iter().copied()
}

/// The analysis of this name.
///
/// # Errors
/// [`StudyError::Input`] with the known names.
pub fn find(name: &str) -> Result<&'static dyn Analysis, StudyError> {
    all().find(|one| one.about().name == name).ok_or_else(|| {
        let known: Vec<&str> = all().map(|one| one.about().name).collect();
        StudyError::Input(format!("{name:?} is not an analysis; analyses are {}", known.join(", ")))
    })
}

impl<'a> Context<'a> {
    /// The engine of this process, for data that the protocol does not carry.
    ///
    /// # Errors
    /// A refusal that says to leave out `--server`.
    pub fn engine(&self) -> Result<&'a Engine, Refusal> {
        Ok(self.backend.engine(self.about.name)?)
    }

    /// A request to rank these passages of a question.
    fn rerank_request(&self, question: &Question, passages: Vec<Passage>) -> RerankRequest {
        let (query, passage_tokens) = (question.list.question.clone(), self.settings.passage_tokens);
        RerankRequest { query, passages, passage_tokens, ..RerankRequest::default() }
    }

    /// The first passages of a question.
    pub fn passages(&self, question: &Question) -> Vec<Passage> {
        question.list.passages.iter().take(self.settings.taken(&self.about)).cloned().collect()
    }
}

/// The questions that an analysis can ask, and the number of the others.
pub fn suitable(about: &About, settings: &Settings, mut data: Data) -> (Data, usize) {
    let (taken, all) = (settings.taken(about), data.questions.len());
    let least = about.least.max(settings.depths.first().copied().unwrap_or(0));
    data.questions.retain(|question| {
        let too_few = question.list.passages.len().min(taken) < least;
        !(too_few || about.needs(Need::References) && question.list.answers.is_empty())
    });
    let left_out = all - data.questions.len();
    (data, left_out)
}

/// Asks the questions that `folder` does not hold yet, then reports on all of them. With `restart` the results in the folder are
/// deleted.
pub async fn run(
    analysis: &dyn Analysis,
    settings: &Settings,
    data: &Data,
    backend: &Backend,
    folder: Option<&Path>,
    restart: bool,
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, StudyError> {
    let about = analysis.about();
    let models = manifest::models(backend, about.needs(Need::Entailment).then_some(about.name)).await?;
    let questions = data.named(|one| fingerprint(&(one.fingerprint(), &one.list.labels, &one.list.answers)));
    let study = Study { questions, concurrency: 1, backend, models: &models, folder, restart };
    let context = Context { backend, settings, about };
    let ask = async |question: &Question| {
        let mut value = analysis.ask(question, &context).await?;
        let times = value.as_object_mut().and_then(|value| value.remove(TIMES)).unwrap_or_default();
        Ok(Answered { value, times })
    };
    let mut results = study.run(|models| settings.manifest(&about, models), ask, &mut notify).await?;
    let answers: Vec<Answer<'_>> = data
        .questions
        .iter()
        .zip(&mut results.entries)
        .filter_map(|(question, entry)| {
            let times = results.timings.get_mut(&entry.id).map(|timing| timing.times.take());
            Some(Answer { question, value: with_times(entry, times.unwrap_or_default())? })
        })
        .collect();
    if answers.is_empty() {
        return Err(StudyError::Input(format!("{}: no question was answered", about.name)));
    }
    let refused = results.refused().len();
    let mut report = analysis.report(&answers, settings)?;
    report.notes.extend(notes(&about, settings, &models, answers.len(), refused));
    for figure in &mut report.figures {
        figure.name.insert_str(0, &format!("{} ", about.name));
    }
    let Results { manifest, .. } = results;
    let report =
        Report { title: about.title.to_owned(), model: model(&models, None, true), settings: manifest, ..report };
    Finished::new(report, refused, folder, "analysis")
}

/// The value of a result with its times; `None` for a question that was refused.
fn with_times(entry: &mut Entry<Value>, times: Value) -> Option<Value> {
    let mut value = entry.value.take()?;
    if let Some(members) = value.as_object_mut().filter(|_| !times.is_null()) {
        members.insert(TIMES.to_owned(), times);
    }
    Some(value)
}

/// Notes on the measurement, for every analysis.
fn notes(about: &About, settings: &Settings, models: &ModelIdentity, answered: usize, refused: usize) -> Vec<String> {
    let cut = passages_note(settings.passage_tokens);
    let read = match settings.taken(about) {
        0 => String::new(),
        taken => format!(", the first {taken} passages of each; {cut}"),
    };
    let refused = if refused > 0 { format!("; {refused} refused") } else { String::new() };
    let mut notes =
        vec![format!("{answered} questions{refused}{read}; seed {}.", settings.seed), generator_note(models, "")];
    if settings.task != Task::default() {
        let labels = settings.task.labels().join(", ");
        let labels = if labels.is_empty() { labels } else { format!(", labels {labels}") };
        notes.push(format!("Task: {}{labels}.", settings.task.kind.name()));
    }
    if about.needs(Need::Entailment) {
        notes.push(format!("Entailment model: SHA-256 {}.", models.entailment));
    }
    notes.extend(intervals_note(&settings.statistics));
    notes.push(format!("Machine: {}.", machine()));
    notes
}

#[cfg(test)]
mod tests;
