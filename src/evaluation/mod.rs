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
pub(crate) mod compare;
pub(crate) mod curves;
pub(crate) mod data;
pub(crate) mod journal;
mod line;
pub(crate) mod methods;
pub(crate) mod ranking;
pub(crate) mod report;
pub(crate) mod summary;
pub(crate) mod unchanged;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Map, Value, json};

use self::data::Data;
use self::journal::Journal;
use self::line::Line;
use self::methods::Ranker;
use self::summary::Summary;
use crate::backend::{Backend, BackendError, ModelIdentity, Refusal};
use crate::engine::belief::MeasureOptions;
use crate::engine::evaluate::{Annotator, default_metrics};
use crate::engine::models::Role;
use crate::engine::task::{Task, TaskKind};
use crate::files::FileError;
use crate::metrics::rank::Metric;
use crate::metrics::resample::Statistics;
use crate::storage::store::write_atomically;

/// Format of the results. A folder of another format is refused, because its lines mean something else: 2 answers from the
/// context order of the rerank response, 1 from the ranking.
const FORMAT: u32 = 2;
/// The same of long answers: 3 measures them without the marks of their citations.
const FORMAT_OF_LONG_ANSWERS: u32 = 3;

/// An evaluation that cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluationError {
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
pub(crate) struct Settings {
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
    /// Seed of the samples.
    pub seed: u64,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// How sampled answers are measured.
    pub measure: MeasureOptions,
    /// Intervals and tests of the summary.
    pub statistics: Statistics,
}

/// The settings, applied to the data.
pub(crate) struct Plan {
    pub settings: Settings,
    pub annotators: Vec<Annotator>,
    pub metrics: Vec<Metric>,
    /// Names of the rankings of each question: by list of the data, then by ranker.
    pub systems: Vec<String>,
    pub end_to_end: bool,
}

/// Something to show while an evaluation runs.
pub(crate) enum Event<'a> {
    /// So many questions are done.
    Done(usize),
    /// A question was not evaluated.
    Failed { id: &'a str, problem: &'a str },
    /// The evaluation stops with so many questions done. The same command continues it.
    Stopped { done: usize },
    /// All questions are done and are being summarised.
    Summarising,
}

/// A finished evaluation.
pub(crate) struct Finished {
    pub summary: Summary,
    /// The content of summary.json: settings and summary.
    pub document: Value,
    /// Where report.html is.
    pub report: PathBuf,
}

/// Each element once, at its first position.
pub(crate) fn distinct<T: PartialEq>(elements: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for element in elements {
        if !kept.contains(&element) {
            kept.push(element);
        }
    }
    kept
}

/// Whether an annotator labels passages where the caller names none. For a task with labels all lexical ones say the same, and no
/// passage contains a label; long texts never equal a reference.
fn default_for(task: TaskKind, annotator: Annotator) -> bool {
    match (task, annotator) {
        (_, Annotator::Provenance | Annotator::LlmJudgement) => true,
        (TaskKind::ShortAnswer, annotator) => annotator.is_default(),
        (TaskKind::FactVerification | TaskKind::Classification, annotator) => annotator == Annotator::Accuracy,
        (TaskKind::Dialogue | TaskKind::LongAnswer, annotator) => {
            matches!(annotator, Annotator::TokenF1 | Annotator::RougeL)
        }
    }
}

/// The annotators with these names, which the data must allow.
fn annotators(names: &[String], task: TaskKind, data: &Data) -> Result<Vec<Annotator>, EvaluationError> {
    let available = |annotator: &Annotator| match annotator {
        Annotator::Provenance => data.has_provenance(),
        other => !other.needs_references() || data.has_references(),
    };
    let mut chosen: Vec<Annotator> = Vec::new();
    if names.is_empty() {
        let default = |annotator: &Annotator| default_for(task, *annotator);
        chosen.extend(Annotator::ALL.iter().filter(|a| default(a) && available(a)));
    }
    for name in names.iter().map(|name| name.trim()) {
        if name == "all" {
            // A server without an embedding model would refuse them all.
            let all = |annotator: &&Annotator| !annotator.needs_embedding() && available(annotator);
            chosen.extend(Annotator::ALL.iter().filter(all));
            continue;
        }
        let annotator = Annotator::ALL.iter().find(|annotator| annotator.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Annotator::ALL.iter().map(|annotator| annotator.name()).collect();
            let problem = format!("{name:?} is no annotator; annotators are {}, all", names.join(", "));
            EvaluationError::Input(format!("--annotators: {problem}"))
        })?;
        if !available(annotator) {
            let needs = if *annotator == Annotator::Provenance { "judgements" } else { "reference answers" };
            let problem = format!("{name} needs {needs}, and the data have none");
            return Err(EvaluationError::Input(format!("--annotators: {problem}")));
        }
        chosen.push(*annotator);
    }
    Ok(distinct(chosen))
}

impl Plan {
    pub fn new(mut settings: Settings, data: &Data) -> Result<Self, EvaluationError> {
        settings.rankers = distinct(settings.rankers);
        let single = data.systems.len() == 1;
        let name = |list: &String, ranker: &Ranker| match ranker.0 {
            None => list.clone(),
            Some(method) if single => method.name().to_owned(),
            Some(method) => format!("{list}+{}", method.name()),
        };
        let rankers = &settings.rankers;
        let systems = data.systems.iter().flat_map(|list| rankers.iter().map(move |ranker| name(list, ranker)));
        let systems = systems.collect();
        settings.task.check().map_err(|error| EvaluationError::Input(format!("--{error}")))?;
        let annotators = annotators(&settings.annotators, settings.task.kind, data)?;
        let end_to_end = settings.end_to_end && annotators.iter().any(|annotator| annotator.scores_answers());
        let metrics = if settings.metrics.is_empty() { default_metrics() } else { distinct(settings.metrics.clone()) };
        Ok(Self { settings, annotators, metrics, systems, end_to_end })
    }

    /// Whether labels or orders depend on the entailment model.
    fn asks_judge(&self) -> bool {
        let ranks = |ranker: &Ranker| ranker.0.is_some_and(|method| method.asks_judge());
        self.annotators.iter().any(|annotator| annotator.is_belief()) || self.settings.rankers.iter().any(ranks)
    }

    /// Everything that the results depend on. Results of another manifest are not continued.
    fn manifest(&self, models: &ModelIdentity) -> Map<String, Value> {
        let names: Vec<&str> = self.annotators.iter().map(|annotator| annotator.name()).collect();
        let metrics: Vec<String> = self.metrics.iter().map(ToString::to_string).collect();
        let manifest = json!({
            "format": if self.settings.task.kind == TaskKind::LongAnswer { FORMAT_OF_LONG_ANSWERS } else { FORMAT },
            "generator_sha256": models.generator,
            "entailment_sha256": self.asks_judge().then_some(&models.entailment),
            "prompts": models.prompts,
            "systems": self.systems,
            "annotators": names,
            "metrics": metrics,
            "relevance_threshold": self.settings.relevance_threshold,
            "end_to_end": self.end_to_end,
            "answers_from": if self.end_to_end { json!("context order") } else { Value::Null },
            "answer_tokens": self.settings.answer_tokens,
            "samples": self.settings.samples,
            "seed": self.settings.seed,
            "passage_tokens": self.settings.passage_tokens,
            "measure": format!("{:?}", self.settings.measure),
        });
        let mut manifest = match manifest {
            Value::Object(manifest) => manifest,
            _ => Map::new(),
        };
        // Evaluations of short answers from before tasks had names are continued.
        if self.settings.task != Task::default() {
            manifest.insert("task".to_owned(), json!(self.settings.task.kind.name()));
            if self.settings.task.kind.has_labels() {
                manifest.insert("labels".to_owned(), json!(self.settings.task.labels()));
            }
        }
        if let Some(calibrations) = models.calibrated(None) {
            manifest.insert("calibrations".to_owned(), json!(calibrations));
        }
        if let Some(beside) = models.asked(self.settings.rankers.iter().filter_map(|ranker| ranker.0)) {
            manifest.insert("beside_the_generator".to_owned(), json!(beside));
        }
        if let Some(scorer) = &models.scorer {
            manifest.insert("scorer".to_owned(), json!(scorer));
        }
        if self.annotators.iter().any(|annotator| annotator.needs_embedding()) {
            manifest.insert("embedding_sha256".to_owned(), json!(models.sha256_of(Role::Embedding)));
        }
        if let Some(adapter) = &models.adapter {
            manifest.insert("adapter".to_owned(), json!(adapter));
        }
        manifest.extend(models.frames().map(|(key, value)| (key.to_owned(), json!(value))));
        manifest
    }
}

/// Evaluates the questions that `folder` does not hold yet, then summarises all of them. With `restart` the results in the
/// folder are thrown away.
pub(crate) async fn run(
    plan: &Plan,
    data: &Data,
    backend: &Backend,
    (folder, restart): (&Path, bool),
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, EvaluationError> {
    let models = backend.models().await?;
    let manifest = plan.manifest(&models);
    let expected: Result<Vec<(&str, String)>, EvaluationError> =
        data.queries.iter().map(|query| Ok((query.id.as_str(), query.fingerprint()?))).collect();
    let mut journal: Journal<Line> = Journal::open(folder, &manifest, &expected?, restart)?;
    notify(Event::Done(journal.done));
    for query in &data.queries[journal.done..] {
        let started = Instant::now();
        let line = match ask::evaluate(plan, backend, query).await {
            Ok(line) => line,
            Err(Refusal::Question(problem)) => {
                notify(Event::Failed { id: &query.id, problem: &problem });
                Line { id: query.id.clone(), data: query.fingerprint()?, error: Some(problem), ..Line::default() }
            }
            Err(Refusal::Fatal(error)) => {
                notify(Event::Stopped { done: journal.done });
                return Err(error.into());
            }
        };
        if let Err(error) = unchanged::check(backend, &models, |models| plan.manifest(models)).await {
            notify(Event::Stopped { done: journal.done });
            return Err(error.into());
        }
        journal.append(&line, started.elapsed().as_secs_f64())?;
        notify(Event::Done(journal.done));
    }
    notify(Event::Summarising);
    let lines = journal.lines()?;
    let summary = Summary::new(plan, &lines, &journal.seconds()?);
    let document = json!({ "settings": manifest, "summary": summary });
    write(&folder.join("summary.json"), &format!("{document:#}\n"))?;
    if plan.end_to_end && plan.settings.task.kind == TaskKind::LongAnswer {
        write(&folder.join(cited::FILE), &cited::answers(&lines, &data.queries))?;
    } else {
        // Those of an evaluation that was restarted as another one. Mostly there are none.
        let _ = std::fs::remove_file(folder.join(cited::FILE));
    }
    let report = folder.join("report.html");
    write(&report, &report::html(plan, &summary, &lines, &data.queries, &manifest)?)?;
    Ok(Finished { summary, document, report })
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), EvaluationError> {
    let written = write_atomically(path, text.as_bytes());
    written.map_err(|error| EvaluationError::Other(anyhow::anyhow!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::methods::GIVEN;
    use super::*;
    use crate::engine::prompt::Frame;

    fn settings(ranker: &str, annotators: &[&str], task: Task) -> Settings {
        Settings {
            annotators: annotators.iter().map(|&name| name.to_owned()).collect(),
            metrics: Vec::new(),
            rankers: vec![Ranker::find(ranker).unwrap()],
            relevance_threshold: 0.5,
            end_to_end: false,
            task,
            answer_tokens: 32,
            samples: None,
            seed: 0,
            passage_tokens: None,
            measure: MeasureOptions::default(),
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn the_task_and_its_labels_bind_the_results_and_choose_the_annotators() {
        let query = data::Query { references: vec!["REFUTES".to_owned()], ..data::Query::default() };
        let data = Data { systems: vec!["list".to_owned()], queries: vec![query] };
        let plan = |kind: TaskKind, labels: &[&str]| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Plan::new(settings(GIVEN, &[], Task { kind, labels }), &data)
        };
        let manifest = |kind, labels| plan(kind, labels).unwrap().manifest(&ModelIdentity::scripted("the judge"));
        let short = manifest(TaskKind::ShortAnswer, &[]);
        assert!(!short.contains_key("task") && !short.contains_key("labels"), "what is stored goes on");
        let fever = manifest(TaskKind::FactVerification, &[]);
        assert_eq!(fever["task"], "fact-verification");
        assert_eq!(fever["labels"], json!(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]));
        assert_eq!(fever["annotators"], json!(["accuracy", "llm-judgement"]));
        assert_ne!(fever, manifest(TaskKind::FactVerification, &["SUPPORTS", "REFUTES"]));
        assert_eq!(manifest(TaskKind::Dialogue, &[])["annotators"], json!(["token-f1", "rouge-l", "llm-judgement"]));
        // Long answers were once measured with the marks of their citations.
        let long = manifest(TaskKind::LongAnswer, &[]);
        assert_eq!((&short["format"], &fever["format"], &long["format"]), (&json!(2), &json!(2), &json!(3)));
        let refused = plan(TaskKind::Classification, &["one"]).err().unwrap();
        assert_eq!(refused.to_string(), "--labels: 1 given, 2 to 64 allowed");
    }

    #[test]
    fn prompts_without_a_chat_template_bind_the_results_to_them() {
        let data = Data { systems: vec!["list".to_owned()], ..Data::default() };
        let frames = |frame, scorer_frame| {
            let models = ModelIdentity { frame, scorer_frame, ..ModelIdentity::scripted("") };
            let settings = settings(GIVEN, &["llm-judgement"], Task::default());
            let manifest = Plan::new(settings, &data).unwrap().manifest(&models);
            ["chat_template", "scorer_chat_template"].map(|key| manifest.get(key).cloned())
        };
        assert_eq!(
            frames(Some(Frame::Chat), Some(Frame::Chat)),
            [None, None],
            "evaluations from before there were entries go on"
        );
        assert_eq!(frames(Some(Frame::Plain), None), [Some(json!(false)), None]);
        assert_eq!(frames(Some(Frame::Chat), Some(Frame::Plain)), [None, Some(json!(false))]);
    }

    #[test]
    fn a_ranker_that_asks_the_entailment_model_binds_the_results_to_it() {
        let data = Data { systems: vec!["list".to_owned()], ..Data::default() };
        let entailment = |ranker: &str| {
            let settings = settings(ranker, &["llm-judgement"], Task::default());
            let manifest = Plan::new(settings, &data).unwrap().manifest(&ModelIdentity::scripted("the judge"));
            manifest["entailment_sha256"].clone()
        };
        assert_eq!((entailment("semantic-utility"), entailment("moi")), (json!("the judge"), Value::Null));
    }
}
