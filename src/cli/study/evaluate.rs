//! `rerankd evaluate`

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::gate::GateArgs;
use super::shared::{self, Following};
use crate::cli::connection::ConnectionArgs;
use crate::cli::metrics::StatisticsArgs;
use crate::cli::output::FormatArgs;
use crate::cli::task::TaskArgs;
use crate::cli::{Failure, SettingsArgs, backend, measure, models, output};
use crate::telemetry;
use engine::types::{Annotator, default_metrics};
use lab::evaluation::data::Sources;
use lab::evaluation::methods::{GIVEN, Ranker};
use lab::evaluation::{self, Plan, Settings};
use lab::study::Event;
use rag_metrics::rank::{Metric, MetricError};

/// Most tokens of a short answer, by default.
const ANSWER_TOKENS: usize = 32;

/// Evaluate retrieval by the generator's answers (eRAG).
///
/// The generator answers each question from one passage at a time. The quality of that answer labels the passage, and
/// rank metrics are computed over the labels. End-to-end answers are generated from the whole list in its context
/// order, which a rerank response recommends for the prompt.
///
/// The folder gets results.jsonl (one line per question), summary.json, figures.jsonl, report.md and report.html; for
/// long answers also answers.jsonl, which `rerankd citations` reads. An interrupted evaluation continues when the same
/// command is given again. Several runs or methods are compared question by question. Questions that cannot be
/// evaluated are listed, and the command then exits with 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd evaluate questions.jsonl --out given\n  \
                        rerankd evaluate questions.jsonl --method given,moi --out moi\n  \
                        rerankd evaluate scifact/ --run bm25.run --run dense.run --out runs\n  \
                        rerankd evaluate questions.jsonl --method given,cascade --answers-only --top-n 5 --out five\n  \
                        rerankd evaluate questions.jsonl --out now --baseline main.json --max-drop token-f1=0.02\n  \
                        rerankd evaluate claims.jsonl --task fact-verification --labels SUPPORTS,REFUTES --out fever")]
pub(in crate::cli) struct EvaluateArgs {
    /// Questions, one JSON object per line ("question", "passages", optionally "id" and "answers"); or a folder in
    /// BEIR's layout.
    #[arg(value_name = "QUESTIONS|FOLDER")]
    data: Option<PathBuf>,
    /// A run (TREC or JSON); may be repeated. The texts come from --queries and --corpus, or from the folder.
    #[arg(long, value_name = "FILE")]
    run: Vec<PathBuf>,
    /// Queries: JSON lines with "_id", "text" and optionally "answers", or lines of id, tab, text, and answers after tabs.
    #[arg(long, value_name = "FILE", requires = "run")]
    queries: Option<PathBuf>,
    /// Documents: JSON lines with "_id", "text" and optionally "title".
    #[arg(long, value_name = "FILE", requires = "run")]
    corpus: Option<PathBuf>,
    /// Judgements, for the provenance labels.
    #[arg(long, value_name = "FILE", requires = "run")]
    qrels: Option<PathBuf>,
    /// Split of the folder's judgements.
    #[arg(long, default_value = "test")]
    split: String,
    /// Number of documents read from each list.
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 10, value_parser = crate::cli::count)]
    depth: usize,
    /// Use the first N questions.
    #[arg(long, value_name = "N", value_parser = crate::cli::count)]
    limit: Option<usize>,
    /// Folder of the results.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Delete the results in the folder.
    #[arg(long)]
    restart: bool,
    /// Address of a server; without it the models are loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Orders of the lists, separated by commas: as given, or by ranking methods.
    #[arg(long, value_name = "METHODS", value_delimiter = ',', default_value = GIVEN, value_parser = rankers())]
    method: Vec<Ranker>,
    /// Annotators that label the passages, separated by commas: exact-match, token-f1, rouge-l, containment, accuracy,
    /// seper-soft, seper-hard, delta-seper-soft, delta-seper-hard, contains-answer, provenance, llm-judgement, bleu,
    /// bert-score, answer-judgement, erag-judgement, or all, which leaves out bert-score [default: exact-match,
    /// token-f1, rouge-l, containment, contains-answer, provenance and llm-judgement, as the data allow; with labels
    /// accuracy, for dialogue and long answers token-f1 and rouge-l, and of the baselines provenance and
    /// llm-judgement].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    annotators: Vec<String>,
    /// A metric over the labels; may be repeated [default: P, Success, AP, RR, nDCG and R of the whole list].
    #[arg(short, long = "metric", value_name = "METRIC")]
    metric: Vec<String>,
    /// Least label of a relevant passage. With judgements (provenance) it applies to their labels only, which may have
    /// grades; the labels of the other annotators lie between 0 and 1, and keep 0.5.
    #[arg(long, value_name = "LABEL", default_value_t = 0.5, value_parser = crate::cli::above_zero)]
    relevance_threshold: f64,
    /// Questions that are asked at once, at most 256, to keep a GPU or several replicas busy; on a CPU it gains
    /// nothing. Numbers then equal those of sequential requests to rounding only, and a sample or a near tie may
    /// differ.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::cli::at_once)]
    concurrency: usize,
    /// Do not generate end-to-end answers.
    #[arg(long)]
    no_end_to_end: bool,
    /// Only answer from whole lists, one prompt per system: no passage is labelled. The report then has quality,
    /// tokens and seconds per question, for long answers also citations. With --count it has delta-seper-soft, too.
    #[arg(long, conflicts_with_all = ["no_end_to_end", "metric"])]
    answers_only: bool,
    /// With --answers-only: put the first N of each ranked list into the prompt [default: all].
    #[arg(long, value_name = "N", requires = "answers_only", value_parser = crate::cli::count)]
    top_n: Option<usize>,
    #[command(flatten)]
    task: TaskArgs,
    /// Most tokens of an answer [default: 32, for dialogue 128, for long answers 300].
    #[arg(long, value_name = "TOKENS", value_parser = crate::cli::count)]
    max_tokens: Option<usize>,
    /// Samples per prompt for the SePer annotators.
    #[arg(short = 'n', long = "count", value_name = "SAMPLES", value_parser = crate::cli::count)]
    count: Option<usize>,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most tokens of a passage.
    #[arg(long, visible_alias = "passage-tokens", value_name = "TOKENS", value_parser = crate::cli::count)]
    max_passage_tokens: Option<usize>,
    #[command(flatten)]
    measure: measure::OptionArgs,
    #[command(flatten)]
    statistics: StatisticsArgs,
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    format: FormatArgs,
}

fn rankers() -> impl TypedValueParser<Value = Ranker> {
    PossibleValuesParser::new(Ranker::all().map(|(name, summary)| PossibleValue::new(name).help(summary)))
        .try_map(|name| Ranker::find(&name).ok_or_else(|| format!("{name:?} is not a ranking method")))
}

impl EvaluateArgs {
    fn sources(&self) -> Sources {
        Sources {
            data: self.data.clone(),
            runs: self.run.clone(),
            queries: self.queries.clone(),
            corpus: self.corpus.clone(),
            qrels: self.qrels.clone(),
            split: self.split.clone(),
            depth: self.depth,
            limit: self.limit,
        }
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let metrics: Result<Vec<Metric>, MetricError> = self.metric.iter().map(|name| name.parse()).collect();
        let task = self.task.task();
        Ok(Settings {
            annotators: self.annotators.clone(),
            metrics: metrics.map_err(|error| Failure::Input(error.to_string()))?,
            rankers: self.method.clone(),
            relevance_threshold: self.relevance_threshold,
            end_to_end: !self.no_end_to_end,
            answers_only: self.answers_only,
            top_n: self.top_n,
            answer_tokens: self.max_tokens.unwrap_or_else(|| task.kind.answer_tokens().unwrap_or(ANSWER_TOKENS)),
            task,
            samples: self.count,
            concurrency: self.concurrency,
            seed: self.seed,
            passage_tokens: self.max_passage_tokens,
            measure: self.measure.options(),
            statistics: self.statistics.statistics()?,
        })
    }
}

pub(super) async fn run(args: EvaluateArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut settings = args.settings()?;
    let gate = args.gate.gate(settings.statistics)?;
    let bounded = gate.metrics()?;
    if settings.metrics.is_empty() && !bounded.is_empty() {
        settings.metrics = default_metrics();
    }
    settings.metrics.extend(bounded);
    let mut data = args.sources().load()?;
    output::warn(&data.warnings);
    let blank: usize = data.queries.iter().map(|query| query.blank).sum();
    if blank > 0 {
        output::complain(&format!("{blank} documents without title and text were left out of the lists"));
    }
    let plan = Plan::new(settings, &data)?;
    let unlabelled = data.queries.iter().filter(|query| data.judged && query.provenance.is_none()).count();
    if unlabelled > 0 && plan.annotators.contains(&Annotator::Provenance) {
        output::complain(&format!("{unlabelled} questions without labels are left out of provenance"));
    }
    if args.run.is_empty() && plan.annotators == [Annotator::Provenance] {
        data.queries.retain(|query| query.provenance.is_some());
    }
    if plan.settings.end_to_end && !plan.end_to_end {
        output::complain(
            "no annotator scores answers, so none are generated from whole lists: name one, such as token-f1",
        );
    }
    if args.server.is_none() && plan.asks_judge() {
        models::fetch_entailment(&config).await?;
    }
    let backend =
        backend::open_for_study(args.server.as_deref(), &args.connection, &backend::for_lines(&config)).await?;
    let questions = data.queries.len();
    let kept = format!("the same command continues {}", args.out.display());
    let mut following = Following::new(questions, kept, "intervals, correlations and comparisons");
    let show = |event: Event<'_>| following.show(&event);
    let finished = evaluation::run(&plan, &data, &backend, (&args.out, args.restart), &gate, show).await;
    following.finish();
    let (finished, document, judged) = finished?;
    if args.format.is_json() {
        output::json(&document)?;
    } else {
        output::print(&shared::report(&finished.report))?;
    }
    let shown =
        shared::written(&finished, &format!("{} of {questions} questions were not evaluated", finished.refused));
    args.gate.finish(&judged, shown)
}
