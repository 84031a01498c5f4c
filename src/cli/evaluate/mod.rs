//! `rerankd evaluate`

mod ask;
mod charts;
mod data;
mod journal;
mod line;
mod report;
mod summary;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Map, Value, json};

use self::data::Data;
use self::journal::Journal;
use self::line::Line;
use super::backend::{Backend, Models, Refusal};
use super::metrics::StatisticsArgs;
use super::{Failure, SettingsArgs, measure, once, output};
use crate::engine::evaluate::{Annotator, default_metrics};
use crate::engine::methods::{self, MethodRef};
use crate::metrics::rank::Metric;
use crate::storage::store::write_atomically;
use crate::telemetry;

/// Evaluate retrieval by what the generator does with it (eRAG): each passage alone before the generator, rank metrics over
/// the labels that this gives, and the quality of the answer from the whole list.
///
/// Writes results.jsonl (a line a question), summary.json and report.html into the folder. A run that was broken off goes on
/// where it stopped when the same command is given again. Several runs or methods are compared question by question. A
/// question that cannot be evaluated is listed and counted; the command then ends with 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd evaluate questions.jsonl --out evaluation\n  \
                        rerankd evaluate questions.jsonl --method given --method moi --out evaluation\n  \
                        rerankd evaluate scifact/ --run bm25.run --run dense.run --out evaluation")]
pub(super) struct EvaluateArgs {
    #[command(flatten)]
    data: data::DataArgs,
    /// Folder of the results.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Throw away what the folder holds.
    #[arg(long)]
    restart: bool,
    /// Address of a server; without it the models are loaded here.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    /// How lists are ordered: as given, or reranked; may be given again.
    #[arg(long, value_parser = method_parser(), default_values = [GIVEN])]
    method: Vec<String>,
    /// What labels the passages, separated by commas: exact-match, token-f1, rouge-l, containment, accuracy, seper-soft,
    /// seper-hard, delta-seper-soft, delta-seper-hard, contains-answer, provenance, llm-judgement, or all. Without it all that
    /// the data allow but accuracy and the SePer ones, which sample.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    annotators: Vec<String>,
    /// A metric over the labels; may be given again. P, Success, AP, RR, nDCG and R of the whole list where absent.
    #[arg(short, long = "metric", value_name = "METRIC")]
    metric: Vec<String>,
    /// Least label of a relevant passage.
    #[arg(long, value_name = "LABEL", default_value_t = 0.5)]
    relevance_threshold: f64,
    /// Do not answer from whole lists.
    #[arg(long)]
    no_end_to_end: bool,
    /// Most tokens of an answer.
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    max_tokens: usize,
    /// Samples of each prompt for the SePer annotators.
    #[arg(short = 'n', long = "count", value_name = "SAMPLES")]
    count: Option<usize>,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most tokens of a passage.
    #[arg(long, value_name = "TOKENS")]
    max_passage_tokens: Option<usize>,
    #[command(flatten)]
    measure: measure::OptionArgs,
    #[command(flatten)]
    statistics: StatisticsArgs,
}

/// The lists as they are.
const GIVEN: &str = "given";

fn method_parser() -> PossibleValuesParser {
    let registry = methods::all().map(|method| PossibleValue::new(method.name()).help(method.summary()));
    PossibleValuesParser::new(std::iter::once(PossibleValue::new(GIVEN).help("as given")).chain(registry))
}

/// A way to order a list; `None` for the list as given.
type Ordering = Option<MethodRef>;

/// What is done with every question.
struct Task {
    annotators: Vec<Annotator>,
    metrics: Vec<Metric>,
    methods: Vec<Ordering>,
    /// Names of the rankings: by list of the data, by method.
    systems: Vec<String>,
    end_to_end: bool,
}

impl EvaluateArgs {
    fn annotators(&self, data: &Data) -> Result<Vec<Annotator>, Failure> {
        let available = |annotator: &Annotator| match annotator {
            Annotator::Provenance => data.has_provenance(),
            other => !other.needs_references() || data.has_references(),
        };
        let mut chosen: Vec<Annotator> = Vec::new();
        if self.annotators.is_empty() {
            let usual = |annotator: &Annotator| !annotator.is_belief() && *annotator != Annotator::Accuracy;
            chosen.extend(Annotator::ALL.iter().filter(|a| usual(a) && available(a)));
        }
        for name in self.annotators.iter().map(|name| name.trim()) {
            if name == "all" {
                chosen.extend(Annotator::ALL.iter().filter(|annotator| available(annotator)));
                continue;
            }
            let known = Annotator::ALL.iter().find(|annotator| annotator.name() == name);
            let known = known.ok_or_else(|| {
                let names: Vec<&str> = Annotator::ALL.iter().map(|annotator| annotator.name()).collect();
                Failure::Input(format!("--annotators: {name:?} is not known; known are {}, all", names.join(", ")))
            })?;
            if !available(known) {
                let needs = if *known == Annotator::Provenance { "judgements" } else { "reference answers" };
                return Err(Failure::Input(format!("--annotators: {name} needs {needs}, and the data have none")));
            }
            chosen.push(*known);
        }
        Ok(once(chosen))
    }

    fn task(&self, data: &Data) -> Result<Task, Failure> {
        let metrics: Result<Vec<Metric>, _> = self.metric.iter().map(|name| name.parse()).collect();
        let metrics: Vec<Metric> =
            metrics.map_err(|error: crate::metrics::rank::MetricError| Failure::Input(error.to_string()))?;
        let methods = once(self.method.iter().map(|name| methods::find(name)));
        let alone = data.systems.len() == 1;
        let name = |list: &String, method: &Ordering| match method {
            None => list.clone(),
            Some(method) if alone => method.name().to_owned(),
            Some(method) => format!("{list}+{}", method.name()),
        };
        let systems =
            data.systems.iter().flat_map(|list| methods.iter().map(move |method| name(list, method))).collect();
        let annotators = self.annotators(data)?;
        let end_to_end = !self.no_end_to_end && annotators.iter().any(|annotator| annotator.scores_answers());
        let metrics = if metrics.is_empty() { default_metrics() } else { metrics };
        Ok(Task { annotators, metrics, methods, systems, end_to_end })
    }

    /// What the results depend on.
    fn manifest(&self, task: &Task, models: &Models) -> Map<String, Value> {
        let names: Vec<&str> = task.annotators.iter().map(|annotator| annotator.name()).collect();
        let metrics: Vec<String> = task.metrics.iter().map(ToString::to_string).collect();
        let manifest = json!({
            "format": 1,
            "generator_sha256": models.generator,
            "entailment_sha256": task.annotators.iter().any(|a| a.is_belief()).then_some(&models.entailment),
            "prompts": models.prompts,
            "systems": task.systems,
            "annotators": names,
            "metrics": metrics,
            "relevance_threshold": self.relevance_threshold,
            "end_to_end": task.end_to_end,
            "answer_tokens": self.max_tokens,
            "samples": self.count,
            "seed": self.seed,
            "passage_tokens": self.max_passage_tokens,
            "measure": format!("{:?}", self.measure.options()),
        });
        match manifest {
            Value::Object(manifest) => manifest,
            _ => Map::new(),
        }
    }
}

pub(super) async fn run(args: EvaluateArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    args.statistics.check()?;
    let data = args.data.load()?;
    let task = args.task(&data)?;
    let backend = Backend::open(args.server.as_ref(), &config).await?;
    let manifest = args.manifest(&task, &backend.models().await?);
    let expected: Result<Vec<(&str, String)>, Failure> =
        data.queries.iter().map(|query| Ok((query.id.as_str(), query.fingerprint()?))).collect();
    let mut journal = Journal::open(&args.out, &manifest, &expected?, args.restart)?;
    let bar = output::progress(data.queries.len());
    bar.set_position(journal.done as u64);
    bar.reset_eta();
    for query in &data.queries[journal.done..] {
        let started = Instant::now();
        let line = match ask::evaluate(&args, &task, &backend, query).await {
            Ok(line) => line,
            Err(Refusal::Question(problem)) => {
                bar.suspend(|| output::complain(&format!("question {:?}: {problem}", query.id)));
                Line { id: query.id.clone(), data: query.fingerprint()?, error: Some(problem), ..Line::default() }
            }
            Err(Refusal::Fatal(failure)) => {
                bar.finish_and_clear();
                let (done, all, place) = (journal.done, data.queries.len(), args.out.display());
                output::complain(&format!("{done} of {all} questions are done; the same command goes on in {place}"));
                return Err(failure);
            }
        };
        journal.append(&line, started.elapsed().as_secs_f64())?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let spinner = output::spinner("intervals, correlations and comparisons");
    let lines = journal.lines()?;
    let summary = summary::Summary::new(&task, &lines, &journal.seconds()?, &args.statistics);
    spinner.finish_and_clear();
    let written = |name: &str, text: &str| {
        let path = args.out.join(name);
        write_atomically(&path, text.as_bytes())
            .map_err(|error| Failure::Other(anyhow::anyhow!("{}: {error}", path.display())))
    };
    let document = json!({ "settings": manifest, "summary": summary });
    written("summary.json", &format!("{document:#}\n"))?;
    written("report.html", &report::html(&task, &summary, &lines, &data.queries, &manifest)?)?;
    if output::on_terminal() {
        output::print(&summary::table(&summary))?;
        output::complain(&format!("written: {}", args.out.join("report.html").display()));
    } else {
        output::json(&document)?;
    }
    match summary.failed.len() {
        0 => Ok(()),
        failed => Err(Failure::Other(anyhow::anyhow!("{failed} of {} questions were not evaluated", lines.len()))),
    }
}
