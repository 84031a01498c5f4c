//! Analyses: the studies of the papers, repeated on the user's own generator and data, behind `rerankd analyse`.
//!
//! An [`Analysis`] is a file. It says what it asks of every question ([`Analysis::ask`]) and what the answers show
//! ([`Analysis::report`]): a sentence, tables, charts and figures. The driver, [`run`], does what all have in common. One line a
//! question is appended to the results file of `evaluation::journal`, so that an interrupted analysis continues.
//!
//! To add one: a file with a type that implements [`Analysis`], and its line in [`all`].

mod coefficient;
mod designs;
mod equivalence;
mod erag_correlation;
mod erag_cost;
mod order_distance;
pub mod page;
mod position_bias;
mod readings;
mod recall_correlation;
mod repeatability;
pub mod report;
mod reversed_ranking;
mod sample_size;
mod sampled;
mod settings;
mod stability;
mod utility_by_depth;
mod utility_of_compression;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::report::Report;
use self::settings::ANSWER_TOKENS;
pub use self::settings::Settings;
use crate::evaluation::compare::data::{Data, Question, Sources};
use crate::evaluation::journal::{BOUNDS, Journal, Record};
use crate::evaluation::{EvaluationError, Event, models, unchanged, write};
use engine::Engine;
use engine::rerank::Passage;
use protocol::backend::{Backend, BackendError, ModelIdentity, Refusal};

/// Format of the results.
const FORMAT: u32 = 2;
/// How much higher formats are of analyses that measure SePer since empty answers support no reference.
const EMPTY_ANSWERS: u32 = 2;
/// Format of analyses whose questions had one design in common before, and have one each now.
const OWN_DESIGNS: u32 = 3;

/// The key of what differs between runs. It is kept beside the results, and it is missing where that file is lost.
pub(crate) const TIMES: &str = "times";

/// What is asked of one question, while it is asked.
pub(crate) type Asking<'a> = Pin<Box<dyn Future<Output = Result<Value, Refusal>> + Send + 'a>>;

/// One study.
pub trait Analysis: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it answers, as a heading, with the paper's figure or table.
    fn title(&self) -> &'static str;

    /// Format of its results. Lines of another one mean something else and are not continued.
    fn format(&self) -> u32 {
        FORMAT
    }

    /// Reads its data; labelled lists where it does not say.
    fn load(&self, sources: &Sources) -> Result<Data, EvaluationError> {
        sources.load()
    }

    /// Whether the passages of the lists are put before a model. If not, the page does not speak of them.
    fn reads_passages(&self) -> bool {
        true
    }

    /// What its questions must have.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether its answers may be those of another task than a short answer.
    fn takes_task(&self) -> bool {
        false
    }

    /// Whether it reads contexts of several numbers of first passages.
    fn takes_depths(&self) -> bool {
        false
    }

    /// Whether these questions need an engine in this process.
    fn local(&self, _data: &Data) -> bool {
        self.needs().local
    }

    /// Passages of each question, from the front of its list, where the settings do not say.
    fn passages(&self) -> usize {
        5
    }

    /// Asks the models about one question. The same question and settings give the same value, but for what an object holds
    /// under [`TIMES`].
    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a>;

    /// What the answers show.
    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, EvaluationError>;
}

/// What an analysis needs of every question. Questions without it are left out and counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Reference answers.
    pub references: bool,
    /// An entailment model.
    pub entailment: bool,
    /// An engine in this process, for what the protocol does not carry.
    pub local: bool,
    /// Fewest passages among those that are taken.
    pub passages: usize,
}

/// What answers an analysis.
pub struct Context<'a> {
    pub backend: &'a Backend,
    pub settings: &'a Settings,
    /// Name of the analysis, for errors.
    pub analysis: &'static str,
}

/// The answer to one question.
pub struct Answer<'a> {
    pub question: &'a Question,
    /// What [`Analysis::ask`] returned.
    pub value: Value,
}

/// The line of one question in the results file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    id: String,
    data: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    value: Value,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Record for Line {
    fn id(&self) -> &str {
        &self.id
    }

    fn data(&self) -> &str {
        &self.data
    }
}

/// A finished analysis.
pub struct Finished {
    pub report: Report,
    pub models: ModelIdentity,
    /// Questions that were refused.
    pub refused: usize,
    /// Where analysis.html is; `None` without a folder.
    pub page: Option<PathBuf>,
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
/// [`EvaluationError::Input`], which lists the names that there are.
pub fn find(name: &str) -> Result<&'static dyn Analysis, EvaluationError> {
    all().find(|one| one.name() == name).ok_or_else(|| {
        let known: Vec<&str> = all().map(Analysis::name).collect();
        EvaluationError::Input(format!("{name:?} is no analysis; analyses are {}", known.join(", ")))
    })
}

impl<'a> Context<'a> {
    /// The engine of this process, for what the protocol does not carry.
    ///
    /// # Errors
    /// A refusal that says to leave out `--server`.
    pub fn engine(&self) -> Result<&'a Engine, Refusal> {
        match self.backend {
            Backend::Local(engine) => Ok(engine),
            Backend::Server(_) => Err(Refusal::Fatal(BackendError::Unsuitable(format!(
                "{} needs what the protocol does not carry; run it without --server, where the model is",
                self.analysis
            )))),
        }
    }

    /// The first passages of a question.
    pub fn passages(&self, analysis: &dyn Analysis, question: &Question) -> Vec<Passage> {
        question.list.passages.iter().take(self.settings.taken(analysis)).cloned().collect()
    }
}

/// The questions that an analysis can ask, and how many it cannot.
pub fn suitable(analysis: &dyn Analysis, settings: &Settings, data: Data) -> (Data, usize) {
    let (needs, taken, all) = (analysis.needs(), settings.taken(analysis), data.questions.len());
    let mut data = data;
    data.questions.retain(|question| {
        let least = needs.passages.max(settings.depths.first().copied().unwrap_or(0));
        let too_few = question.list.passages.len().min(taken) < least;
        !(too_few || needs.references && question.list.answers.is_empty())
    });
    let left_out = all - data.questions.len();
    (data, left_out)
}

/// Asks the questions that `folder` does not hold yet, then reports on all of them. With `restart` the results in the folder
/// are thrown away.
pub async fn run(
    analysis: &dyn Analysis,
    settings: &Settings,
    data: &Data,
    backend: &Backend,
    (folder, restart): (Option<&Path>, bool),
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, EvaluationError> {
    let judged = analysis.needs().entailment.then(|| analysis.name());
    let models = models(backend, judged).await?;
    let mut manifest = settings.manifest(analysis, &models);
    manifest.extend(backend.bounds()?.map(|bounds| (BOUNDS.to_owned(), bounds)));
    let expected: Result<Vec<(&str, String)>, EvaluationError> =
        data.questions.iter().map(|one| Ok((one.id.as_str(), fingerprint(one)?))).collect();
    let expected = expected?;
    let mut journal: Option<Journal<Line>> =
        folder.map(|folder| Journal::open(folder, &manifest, &expected, restart)).transpose()?;
    let (mut lines, mut times) = match &mut journal {
        Some(journal) => (journal.lines()?, journal.times()?),
        None => (Vec::new(), BTreeMap::new()),
    };
    let context = Context { backend, settings, analysis: analysis.name() };
    notify(Event::Done(lines.len()));
    for (question, (_, fingerprint)) in data.questions.iter().zip(&expected).skip(lines.len()) {
        let started = Instant::now();
        let (mut value, error) = match analysis.ask(question, &context).await {
            Ok(value) => (value, None),
            Err(Refusal::Question(problem)) => {
                notify(Event::Failed { id: &question.id, problem: &problem });
                (Value::Null, Some(problem))
            }
            Err(Refusal::Fatal(error)) => {
                notify(Event::Stopped { id: &question.id, done: lines.len() });
                return Err(error.into());
            }
        };
        if let Err(error) = unchanged::check(backend, &models, |models| settings.manifest(analysis, models)).await {
            notify(Event::Stopped { id: &question.id, done: lines.len() });
            return Err(error.into());
        }
        let own = value.as_object_mut().and_then(|value| value.remove(TIMES)).unwrap_or_default();
        if !own.is_null() {
            times.insert(question.id.clone(), own.clone());
        }
        let line = Line { id: question.id.clone(), data: fingerprint.clone(), value, error };
        if let Some(journal) = &mut journal {
            journal.append_timed(&line, started.elapsed().as_secs_f64(), own)?;
        }
        lines.push(line);
        notify(Event::Done(lines.len()));
    }
    notify(Event::Summarising);
    let refused = lines.iter().filter(|line| line.error.is_some()).count();
    let answered = data.questions.iter().zip(lines).filter(|(_, line)| line.error.is_none());
    let mut answers: Vec<Answer<'_>> =
        answered.map(|(question, line)| Answer { question, value: line.value }).collect();
    for answer in &mut answers {
        if let (Some(value), Some(own)) = (answer.value.as_object_mut(), times.remove(&answer.question.id)) {
            value.insert(TIMES.to_owned(), own);
        }
    }
    if answers.is_empty() {
        return Err(EvaluationError::Input(format!("{}: no question was answered", analysis.name())));
    }
    let report = analysis.report(&answers, settings)?;
    let page = match folder {
        Some(folder) => {
            let about = page::About { analysis, settings, models: &models, answered: answers.len(), refused };
            write(&folder.join("figures.jsonl"), &page::figures(&report, &about))?;
            write(&folder.join("analysis.md"), &page::markdown(&report, &about))?;
            let page = folder.join("analysis.html");
            write(&page, &page::html(&report, &about))?;
            Some(page)
        }
        None => None,
    };
    Ok(Finished { report, models, refused, page })
}

/// The fingerprint of a question and of its labels and references, which some analyses use.
fn fingerprint(question: &Question) -> Result<String, EvaluationError> {
    let more = serde_json::to_string(&(&question.list.labels, &question.list.answers));
    let more = more.map_err(|error| EvaluationError::Other(error.into()))?;
    let sent = question.fingerprint()?;
    Ok(crate::evaluation::compare::data::digest(&[sent.as_bytes(), more.as_bytes()].concat()))
}

#[cfg(test)]
mod tests;
