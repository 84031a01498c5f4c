//! Evaluation of retrieval over many questions (eRAG), behind `rerankd evaluate`. [`compare`] compares ranking methods on
//! labelled lists.
//!
//! Each question's lists are reranked by every method, labelled by every annotator and scored ([`ask`]). One line a question
//! is appended to a results file ([`journal`], [`mod@line`]), so that an interrupted evaluation continues where it stopped. The
//! lines are summarised ([`summary`]) and written as a report ([`report`], [`charts`]). The room knows neither the command
//! line nor the terminal: it takes [`Settings`], reports [`Event`]s and returns a [`Finished`].

mod ask;
pub(crate) mod charts;
mod cited;
pub mod compare;
pub(crate) mod curves;
pub mod data;
pub(crate) mod journal;
mod line;
pub mod methods;
mod plan;
pub mod ranking;
pub(crate) mod report;
pub mod summary;
pub(crate) mod unchanged;
mod verdict;
mod warned;

use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use self::data::Data;
use self::journal::{BOUNDS, Journal};
use self::line::Line;
use self::methods::Ranker;
pub use self::plan::Plan;
use self::summary::Summary;
use engine::belief::{MeasureOptions, TextPair};
use engine::task::{Task, TaskKind};
use files::FileError;
use models::store::write_atomically;
use protocol::backend::{Backend, BackendError, ModelIdentity, Refusal};
use rag_metrics::rank::Metric;
use rag_metrics::resample::Statistics;

/// An evaluation that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// A file or a setting is at fault.
    #[error("{0}")]
    Input(String),
    /// The backend cannot answer any question.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A file cannot be written, or a report cannot be made.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl From<FileError> for EvaluationError {
    fn from(error: FileError) -> Self {
        Self::Input(error.0)
    }
}

/// What is evaluated and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of annotators, or `all`. Where empty, the default ones that the data allow.
    pub annotators: Vec<String>,
    /// Metrics over the labels; the paper's where empty.
    pub metrics: Vec<Metric>,
    /// What orders each list; at least one.
    pub rankers: Vec<Ranker>,
    /// Least label of a relevant passage.
    pub relevance_threshold: f64,
    /// Answer from whole contexts, too.
    pub end_to_end: bool,
    /// What the generator is asked to do.
    pub task: Task,
    /// Most tokens of an answer.
    pub answer_tokens: usize,
    /// Samples of each prompt for the SePer annotators; the engine's default where `None`.
    pub samples: Option<usize>,
    /// Questions that are asked at once; at least 1.
    pub concurrency: usize,
    /// Seed of the samples.
    pub seed: u64,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// How sampled answers are measured.
    pub measure: MeasureOptions,
    /// Intervals and tests of the summary.
    pub statistics: Statistics,
}

/// Something to show while an evaluation runs.
pub enum Event<'a> {
    /// So many questions are done.
    Done(usize),
    /// A question was not evaluated.
    Failed { id: &'a str, problem: &'a str },
    /// The evaluation stops at this question, with so many done. The same command continues it.
    Stopped { id: &'a str, done: usize },
    /// All questions are done and are being summarised.
    Summarising,
}

/// A finished evaluation.
pub struct Finished {
    pub summary: Summary,
    /// The content of summary.json: settings and summary.
    pub document: Value,
    /// Where report.html is.
    pub report: PathBuf,
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

/// Evaluates the questions that `folder` does not hold yet, then summarises all of them. With `restart` the results in the
/// folder are thrown away.
pub async fn run(
    plan: &Plan,
    data: &Data,
    backend: &Backend,
    (folder, restart): (&Path, bool),
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, EvaluationError> {
    let mut models = models(backend, plan.asks_judge().then_some("this evaluation")).await?;
    if plan.arranges() {
        models.profiles = Some(backend.profiles().await?);
    }
    let mut manifest = plan.manifest(&models);
    manifest.extend(backend.bounds()?.map(|bounds| (BOUNDS.to_owned(), bounds)));
    let expected: Result<Vec<(&str, String)>, EvaluationError> =
        data.queries.iter().map(|query| Ok((query.id.as_str(), query.fingerprint()?))).collect();
    // The answers of an evaluation of long answers, which this one replaces, are of this program.
    let replaced = restart
        && journal::stored(folder).is_some_and(|stored| {
            plan::OF_LONG_ANSWERS.iter().any(|format| stored.get("format") == Some(&(*format).into()))
        });
    let mut journal: Journal<Line> = Journal::open(folder, &manifest, &expected?, restart)?;
    if replaced {
        // Mostly there are none.
        let _ = std::fs::remove_file(folder.join(cited::FILE));
    }
    notify(Event::Done(journal.done));
    let answers = stream::iter(&data.queries[journal.done..]).map(async |query| {
        let asked = async {
            let line = ask::evaluate(plan, backend, query).await;
            if !matches!(line, Err(Refusal::Fatal(_))) {
                let unchanged = unchanged::check(backend, &models, |models| plan.manifest(models)).await;
                unchanged.map_err(Refusal::Fatal)?;
            }
            line
        };
        (query, asked.await)
    });
    let mut answers = std::pin::pin!(answers.buffered(plan.settings.concurrency));
    let mut begun = Instant::now();
    while let Some((query, line)) = answers.next().await {
        let line = match line {
            Ok(line) => line,
            Err(Refusal::Question(problem)) => {
                notify(Event::Failed { id: &query.id, problem: &problem });
                Line { id: query.id.clone(), data: query.fingerprint()?, error: Some(problem), ..Line::default() }
            }
            Err(Refusal::Fatal(error)) => {
                notify(Event::Stopped { id: &query.id, done: journal.done });
                return Err(error.into());
            }
        };
        // Since the question before, so that they add up to the time of all, however many are asked at once.
        journal.append(&line, std::mem::replace(&mut begun, Instant::now()).elapsed().as_secs_f64())?;
        notify(Event::Done(journal.done));
    }
    notify(Event::Summarising);
    let lines = journal.lines()?;
    let summary = Summary::new(plan, &lines, &journal.seconds()?);
    let document = json!({ "settings": manifest, "summary": summary });
    write(&folder.join("summary.json"), &format!("{document:#}\n"))?;
    if plan.end_to_end && plan.settings.task.kind == TaskKind::LongAnswer {
        write(&folder.join(cited::FILE), &cited::answers(&lines, &data.queries))?;
    }
    let report = folder.join("report.html");
    write(&report, &report::html(plan, &summary, &lines, &data.queries, &manifest)?)?;
    Ok(Finished { summary, document, report })
}

/// The models of the backend, with the entailment model's file where `judged` needs it, which is the name of what does. A model that
/// nobody could read at the start is loaded for that: its error says why it is not there, and what it is does not change under a run.
pub(crate) async fn models(backend: &Backend, judged: Option<&str>) -> Result<ModelIdentity, EvaluationError> {
    let models = backend.models().await?;
    let Some(name) = judged.filter(|_| models.entailment.is_empty()) else { return Ok(models) };
    let needs = |problem: String| EvaluationError::Input(format!("{name} needs an entailment model: {problem}"));
    let pair = TextPair::new("A text.", "A text.");
    backend.entail(vec![pair], "").await.map_err(|refusal| match refusal {
        Refusal::Question(problem) => needs(problem),
        Refusal::Fatal(error) => needs(error.to_string()),
    })?;
    let models = backend.models().await?;
    if models.entailment.is_empty() {
        return Err(needs("the server does not say which it has".to_owned()));
    }
    Ok(models)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), EvaluationError> {
    let written = write_atomically(path, text.as_bytes());
    written.map_err(|error| EvaluationError::Other(anyhow::anyhow!("{}: {error}", path.display())))
}
