//! Comparison of ranking methods on labelled lists, behind `rerankd compare`: which method is worth its milliseconds?
//!
//! Every method ranks every list, one request after the other ([`ask`]); several lists may be ranked at once. One line a
//! question is appended to the results file of `evaluation::journal`, so that an interrupted comparison continues. The measures
//! come from the rankings and the labels at the end ([`summary`]), and become a verdict ([`verdict`]), tables ([`tables`]), a
//! page, Markdown and JSON lines.

mod ask;
pub mod data;
pub mod figures;
mod gains;
mod markdown;
mod notes;
mod page;
mod prompts;
mod quality;
mod rows;
mod scorer;
pub mod summary;
pub mod tables;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};

use self::ask::Line;
use self::data::{Data, Question};
use self::summary::Summary;
use super::journal::{BOUNDS, Journal};
use super::{EvaluationError, Event, distinct, models, unchanged, write};
use engine::methods::{self, MethodRef};
use engine::opening::Opening;
use engine::prompt::Frame;
use protocol::backend::{Backend, BackendError, ModelIdentity};
use rag_metrics::resample::Statistics;

/// The row of the retriever's order.
pub(crate) use super::methods::GIVEN;

/// The row of BM25 inside the list.
pub(crate) const BM25: &str = "bm25";

/// Every method of the registry but the one whose order is the row `given`, and those whose model a server need not have:
/// [`Settings::beside`] adds what is served of these.
pub const ALL: &str = "all";

/// The method whose order is the row `given`.
const RETRIEVER: &str = "retriever";

/// Format of the results.
const FORMAT: u32 = 3;

/// How lists are ranked and measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The methods of the rows beside `given` and `bm25`; at least one.
    pub methods: Vec<MethodRef>,
    /// Adds the methods that ask a model beside the generator, where that model is served and answers.
    pub beside: bool,
    /// Makes a second row of every method that takes it.
    pub opening: Opening,
    /// Each but the configured one makes another row of every method whose prompts have a frame. Only an engine in this process
    /// knows them.
    pub frames: Vec<Frame>,
    /// Makes a row of every method that a scorer scores, scored by the generator in its place.
    pub by_generator: bool,
    /// Whether what scores is a causal reranker; `None` until the models are known.
    pub reranker: Option<bool>,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Milliseconds that a ranking may take, for the methods that take a budget. What is read then depends on the machine.
    pub latency_budget_ms: Option<f64>,
    /// Questions that are asked at once; at least 1. Their requests wait for each other, which `seconds` hold.
    pub concurrency: usize,
    /// Seed of the designs. The seed of the resamples is in `statistics`.
    pub seed: u64,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Intervals and tests.
    pub statistics: Statistics,
}

/// A finished comparison.
pub struct Finished {
    pub summary: Summary,
    pub models: ModelIdentity,
    /// Where compare.html is; `None` without a folder.
    pub page: Option<PathBuf>,
}

/// The methods of these names, each once.
///
/// # Errors
/// [`EvaluationError::Input`], which lists the names that there are.
pub fn find(names: &[String]) -> Result<Vec<MethodRef>, EvaluationError> {
    let mut found = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if name == ALL {
            let alone = |method: &MethodRef| method.beside().is_none() && !method.asks_judge();
            found.extend(methods::all().filter(|method| method.name() != RETRIEVER && alone(method)));
        } else if ![GIVEN, BM25].contains(&name) {
            found.push(methods::find(name).ok_or_else(|| {
                let known: Vec<&str> = methods::all().map(|method| method.name()).collect();
                let problem = format!("{name:?} is no ranking method; methods are {}, {ALL}", known.join(", "));
                EvaluationError::Input(format!("--methods: {problem}"))
            })?);
        }
    }
    Ok(distinct(found))
}

impl Settings {
    /// Everything that the lines depend on. Lines of another manifest are not continued.
    fn manifest(&self, models: &ModelIdentity) -> Map<String, Value> {
        let names: Vec<&str> = self.methods.iter().map(|method| method.name()).collect();
        let entries = [
            ("comparison_format", json!(FORMAT)),
            ("generator_sha256", json!(models.generator)),
            ("generator_encoding", json!(models.encoding)),
            ("prompts", json!(models.prompts)),
            ("ranking", json!(models.ranking)),
            ("methods", json!(names)),
            ("passage_tokens", json!(self.passage_tokens)),
            ("seed", json!(self.seed)),
        ];
        let judged = self.methods.iter().any(|method| method.asks_judge());
        let judge = judged.then(|| ("entailment_sha256", json!(models.entailment)));
        let calibrated = models.calibrated(Some(&names)).map(|calibrations| ("calibrations", json!(calibrations)));
        let examples = self.opening.examples.iter().map(|one| json!([one.title, one.passage, one.query]));
        let opening = || ("opening", json!([self.opening.instruction.trim(), examples.collect::<Vec<_>>()]));
        let opening = (!self.opening.is_built_in()).then(opening);
        let adapter = models.adapter.as_ref().map(|adapter| ("adapter", json!(adapter)));
        let scorer = models.scorer.as_ref().map(|scorer| ("scorer", json!(scorer)));
        let beside = models.asked(self.methods.iter().copied()).map(|models| ("beside_the_generator", json!(models)));
        let frames = models.frames().map(|(key, value)| (key, json!(value)));
        let names: Vec<&str> = self.frames.iter().map(|frame| frame.name()).collect();
        let compared = (!names.is_empty()).then(|| ("frames", json!(names)));
        let scored = self.by_generator.then_some(("by_generator", json!(true)));
        let budget = self.latency_budget_ms.map(|budget| ("latency_budget_ms", json!(budget)));
        let at_once = (self.concurrency > 1).then_some(("concurrency", json!(self.concurrency)));
        entries
            .into_iter()
            .chain(judge)
            .chain(calibrated)
            .chain(adapter)
            .chain(scorer)
            .chain(beside)
            .chain(opening)
            .chain(frames)
            .chain(compared)
            .chain(scored)
            .chain(budget)
            .chain(at_once)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

/// Where lines are kept: in a folder, or in memory where there is none.
enum Kept {
    Folder(Box<Journal<Line>>),
    Memory(Vec<Line>),
}

impl Kept {
    fn done(&self) -> usize {
        match self {
            Self::Folder(journal) => journal.done,
            Self::Memory(lines) => lines.len(),
        }
    }

    fn append(&mut self, line: Line, seconds: f64) -> Result<(), EvaluationError> {
        match self {
            Self::Folder(journal) => journal.append(&line, seconds),
            Self::Memory(lines) => {
                lines.push(line);
                Ok(())
            }
        }
    }

    fn lines(self) -> Result<Vec<Line>, EvaluationError> {
        match self {
            Self::Folder(mut journal) => journal.lines(),
            Self::Memory(lines) => Ok(lines),
        }
    }
}

/// Ranks the lists that `folder` does not hold yet, then measures all of them. With `restart` the results in the folder are
/// thrown away.
pub async fn run(
    settings: &Settings,
    data: &Data,
    backend: &Backend,
    (folder, restart): (Option<&Path>, bool),
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, EvaluationError> {
    if !settings.frames.is_empty() {
        // Frames are compared alone: a calibration belongs to one, and its fusion weight would change the rows of that one.
        backend.without_calibrations()?;
    }
    let judged = settings.methods.iter().find(|method| method.asks_judge());
    let models = models(backend, judged.map(|method| method.name())).await?;
    settings.check_frames(&models, backend)?;
    settings.check_scorer(&models)?;
    let settings = settings.of_models(&models)?;
    let beside = if settings.beside { ask::answering(backend, &models).await } else { Vec::new() };
    let methods = distinct(settings.methods.iter().copied().chain(beside));
    let settings = &Settings { methods, ..settings };
    let mut kept = match folder {
        Some(folder) => {
            let mut manifest = settings.manifest(&models);
            manifest.extend(backend.bounds()?.map(|bounds| (BOUNDS.to_owned(), bounds)));
            Kept::Folder(Box::new(Journal::open(folder, &manifest, &data.fingerprints()?, restart)?))
        }
        None => Kept::Memory(Vec::new()),
    };
    notify(Event::Done(kept.done()));
    if settings.latency_budget_ms.is_some()
        && let Err(error) = ask::warm_up(settings, backend, &data.questions[kept.done()..]).await
    {
        let id = data.questions.get(kept.done()).map_or("", |question| question.id.as_str());
        notify(Event::Stopped { id, done: kept.done() });
        return Err(error.into());
    }
    rank_all(settings, &data.questions[kept.done()..], (backend, &models), &mut kept, &mut notify).await?;
    notify(Event::Summarising);
    let summary = Summary::new(settings, data, &kept.lines()?);
    let page = match folder {
        Some(folder) => {
            write(&folder.join("figures.jsonl"), &figures::text(&summary, &models))?;
            write(&folder.join("compare.md"), &markdown::text(settings, &summary, &models))?;
            let page = folder.join("compare.html");
            write(&page, &page::html(settings, &summary, &models)?)?;
            Some(page)
        }
        None => None,
    };
    Ok(Finished { summary, models, page })
}

/// Ranks the lists of these questions, and keeps a line of each in their order.
async fn rank_all(
    settings: &Settings,
    questions: &[Question],
    (backend, models): (&Backend, &ModelIdentity),
    kept: &mut Kept,
    notify: &mut impl FnMut(Event<'_>),
) -> Result<(), EvaluationError> {
    let answers = stream::iter(questions).map(async |question| {
        let asked = async {
            let line = ask::rank(settings, backend, question).await?;
            unchanged::check(backend, models, |models| settings.manifest(models)).await.map(|()| line)
        };
        (question, asked.await)
    });
    let mut answers = std::pin::pin!(answers.buffered(settings.concurrency));
    let mut begun = Instant::now();
    while let Some((question, line)) = answers.next().await {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                notify(Event::Stopped { id: &question.id, done: kept.done() });
                return Err(error.into());
            }
        };
        for (method, outcome) in &line.rows {
            if let Some(problem) = &outcome.error {
                notify(Event::Failed { id: &line.id, problem: &format!("{method}: {problem}") });
            }
        }
        // Since the question before, so that they add up to the time of all, however many are asked at once.
        kept.append(line, std::mem::replace(&mut begun, Instant::now()).elapsed().as_secs_f64())?;
        notify(Event::Done(kept.done()));
    }
    Ok(())
}

fn unsuitable(problem: impl Into<String>) -> BackendError {
    BackendError::Unsuitable(problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn settings(method: &str) -> Settings {
        Settings {
            methods: find(&[method.to_owned()]).unwrap(),
            beside: false,
            opening: Opening::default(),
            frames: Vec::new(),
            by_generator: false,
            reranker: None,
            passage_tokens: None,
            latency_budget_ms: None,
            concurrency: 1,
            seed: 0,
            threshold: 0.5,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn a_method_that_asks_the_entailment_model_binds_the_results_to_it() {
        let entailment = |method: &str| {
            settings(method).manifest(&ModelIdentity::scripted("the judge")).get("entailment_sha256").cloned()
        };
        assert_eq!((entailment("semantic-utility"), entailment("moi")), (Some(json!("the judge")), None));
    }

    #[test]
    fn prompts_without_a_chat_template_bind_the_results_to_them() {
        let frames = |frame, scorer_frame| {
            let models = ModelIdentity { frame, scorer_frame, ..ModelIdentity::scripted("") };
            let manifest = settings("moi").manifest(&models);
            ["chat_template", "jinja", "scorer_chat_template", "scorer_jinja"].map(|key| manifest.get(key).cloned())
        };
        let (plain, jinja) = (Some(json!(false)), Some(json!(true)));
        let all = [None, None, None, None];
        assert_eq!(
            frames(Some(Frame::Chat), Some(Frame::Chat)),
            all,
            "llama.cpp's template is what an absent entry means"
        );
        assert_eq!(frames(Some(Frame::Plain), None), [plain.clone(), None, None, None]);
        assert_eq!(frames(Some(Frame::Chat), Some(Frame::Plain)), [None, None, plain, None]);
        assert_eq!(frames(Some(Frame::Jinja), Some(Frame::Jinja)), [None, jinja.clone(), None, jinja]);
    }
}
