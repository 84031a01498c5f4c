//! A study: named questions that are asked with bounded concurrency. Every result is stored in a folder as soon as it
//! exists.
//!
//! [`Study::run`] is the driver of every study. It refuses a folder whose results belong to other settings ([`manifest`]), asks the
//! questions that the folder does not hold yet, appends each result to it ([`journal`]), and returns all results. An interrupted
//! study therefore continues where it stopped. The study then makes a [`report::Report`], which [`render`] writes as a page, as
//! Markdown and as JSON lines.
//!
//! The module knows neither the command line nor the terminal: it reports [`Event`]s.

pub mod backend;
pub mod chart;
pub mod data;
pub mod identity;
pub mod journal;
pub mod manifest;
pub mod mean;
pub(crate) mod render;
pub mod report;
pub mod warned;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::backend::{Backend, Refusal};
use self::identity::ModelIdentity;
use self::journal::{Entry, Journal, Timing};
use self::report::Report;
use engine::types::EngineError;
use files::FileError;
use models::store::write_atomically;
use protocol::client::ClientError;

/// An error that ends a study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file or a setting is at fault.
    #[error("{0}")]
    Input(String),
    /// The server refused or is not reachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine in this process failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file cannot be written, or a report cannot be made.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl From<FileError> for StudyError {
    fn from(error: FileError) -> Self {
        Self::Input(error.0)
    }
}

/// Something to show while a study runs.
pub enum Event<'a> {
    /// An incomplete line of this many bytes was dropped from a file.
    Dropped(u64),
    /// This many questions are done.
    Done(usize),
    /// A question was refused.
    Refused { id: &'a str, problem: &'a str },
    /// The study stops at this question, with this many done. The same command continues it.
    Stopped { id: &'a str, done: usize },
    /// All questions are done and are being summarised.
    Summarising,
}

/// A question and its name.
pub struct Named<'a, Q> {
    pub id: &'a str,
    /// A stored result belongs to the question with this fingerprint.
    pub fingerprint: String,
    pub question: &'a Q,
}

/// The result of a question.
pub trait Record {
    /// Problems to report, such as methods that refused the question.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Record for Value {}

/// A result, and its times, which differ between runs and are stored in another file.
pub struct Answered<R> {
    pub value: R,
    pub times: Value,
}

impl<R> From<R> for Answered<R> {
    fn from(value: R) -> Self {
        Self { value, times: Value::Null }
    }
}

/// Questions to ask, and the place of their results.
pub struct Study<'a, Q> {
    pub questions: Vec<Named<'a, Q>>,
    /// Questions that are asked at once; at least 1.
    pub concurrency: usize,
    pub backend: &'a Backend,
    /// The models when the study begins.
    pub models: &'a ModelIdentity,
    /// Folder of the results; without one they stay in memory.
    pub folder: Option<&'a Path>,
    /// Delete the results in the folder.
    pub restart: bool,
}

/// All results of a study, in the order of the questions.
pub struct Results<R> {
    pub entries: Vec<Entry<R>>,
    pub timings: BTreeMap<String, Timing>,
    /// Everything that they depend on.
    pub manifest: Map<String, Value>,
}

impl<Q> Study<'_, Q> {
    /// Asks the questions that the folder does not hold yet. A refused question has an entry with the reason; any
    /// other error ends the study.
    pub async fn run<R: Record + Serialize + DeserializeOwned>(
        &self,
        manifest: impl Fn(&ModelIdentity) -> Map<String, Value>,
        ask: impl AsyncFn(&Q) -> Result<Answered<R>, Refusal>,
        notify: &mut impl FnMut(Event<'_>),
    ) -> Result<Results<R>, StudyError> {
        let mut own = manifest(self.models);
        own.extend(self.backend.bounds()?.map(|bounds| (manifest::BOUNDS.to_owned(), bounds)));
        let mut results = Results { entries: Vec::new(), timings: BTreeMap::new(), manifest: own };
        let mut journal = match self.folder {
            Some(folder) => Some(Journal::open(folder, self.restart, &self.questions, &mut results)?),
            None => None,
        };
        let begun = results.entries.len();
        let checked = async |question: &Q| {
            let answer = ask(question).await;
            if !matches!(answer, Err(Refusal::Fatal(_))) {
                manifest::check(self.backend, self.models, &manifest).await.map_err(Refusal::Fatal)?;
            }
            answer
        };
        let keep = |entry: Entry<R>, timing: Timing| {
            if let Some(journal) = &mut journal {
                journal.append(&entry, &timing)?;
            }
            results.timings.insert(entry.id.clone(), timing);
            results.entries.push(entry);
            Ok(())
        };
        ask_all(&self.questions, begun, self.concurrency, checked, keep, notify).await?;
        notify(Event::Summarising);
        Ok(results)
    }
}

/// Asks the questions from number `begun` on, several at once, and keeps their results in order.
pub async fn ask_all<Q, R: Record>(
    questions: &[Named<'_, Q>],
    begun: usize,
    concurrency: usize,
    ask: impl AsyncFn(&Q) -> Result<Answered<R>, Refusal>,
    mut keep: impl FnMut(Entry<R>, Timing) -> Result<(), StudyError>,
    notify: &mut impl FnMut(Event<'_>),
) -> Result<(), StudyError> {
    notify(Event::Done(begun));
    let answers = stream::iter(&questions[begun..]).map(async |named| (named, ask(named.question).await));
    let mut answers = std::pin::pin!(answers.buffered(concurrency));
    let (mut done, mut started) = (begun, Instant::now());
    while let Some((named, answer)) = answers.next().await {
        let (value, times, error) = match answer {
            Ok(answer) => (Some(answer.value), answer.times, None),
            Err(Refusal::Question(problem)) => (None, Value::Null, Some(problem)),
            Err(Refusal::Fatal(error)) => {
                notify(Event::Stopped { id: named.id, done });
                return Err(error);
            }
        };
        for problem in error.iter().cloned().chain(value.iter().flat_map(Record::problems)) {
            notify(Event::Refused { id: named.id, problem: &problem });
        }
        // Measured from the previous question, so that the times add up to the total at any concurrency.
        let seconds = std::mem::replace(&mut started, Instant::now()).elapsed().as_secs_f64();
        let entry = Entry { id: named.id.to_owned(), data: named.fingerprint.clone(), value, error };
        if let Err(error) = keep(entry, Timing { id: named.id.to_owned(), seconds, times }) {
            notify(Event::Stopped { id: named.id, done });
            return Err(error);
        }
        done += 1;
        notify(Event::Done(done));
    }
    Ok(())
}

impl<R> Results<R> {
    /// The questions that were refused, with the reason.
    pub fn refused(&self) -> Vec<Refused> {
        let of = |entry: &Entry<R>| Some(Refused { id: entry.id.clone(), error: entry.error.clone()? });
        self.entries.iter().filter_map(of).collect()
    }
}

/// A question that was refused.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    pub id: String,
    pub error: String,
}

/// A finished study.
pub struct Finished {
    pub report: Report,
    /// Questions, or requests, that were refused.
    pub refused: usize,
    /// The page; `None` without a folder.
    pub page: Option<PathBuf>,
}

impl Finished {
    /// A report, which is also written to the folder, if there is one: figures.jsonl, `name`.md and `name`.html.
    pub fn new(report: Report, refused: usize, folder: Option<&Path>, name: &str) -> Result<Self, StudyError> {
        let mut finished = Self { report, refused, page: None };
        if let Some(folder) = folder {
            write(&folder.join("figures.jsonl"), &finished.report.lines())?;
            write(&folder.join(format!("{name}.md")), &finished.report.markdown())?;
            let page = folder.join(format!("{name}.html"));
            write(&page, &finished.report.html())?;
            finished.page = Some(page);
        }
        Ok(finished)
    }
}

pub fn write(path: &Path, text: &str) -> Result<(), StudyError> {
    let written = write_atomically(path, text.as_bytes());
    written.map_err(|error| StudyError::Other(anyhow::anyhow!("{}: {error}", path.display())))
}

/// The first eight bytes of the SHA-256 of a value's JSON, in hexadecimal digits.
pub fn fingerprint(value: &impl Serialize) -> String {
    // These values are in memory and have names for keys, so writing them as JSON cannot fail.
    hex::encode(&Sha256::digest(serde_json::to_vec(value).unwrap_or_default())[..8])
}

/// Each element once, at its first position.
pub fn distinct<T: PartialEq>(elements: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for element in elements {
        if !kept.contains(&element) {
            kept.push(element);
        }
    }
    kept
}
