//! `rerankd compare`

use std::path::PathBuf;

use clap::Args;

use super::gate::GateArgs;
use super::shared::StudyArgs;
use crate::cli::opening::OpeningArgs;
use crate::cli::{Failure, SettingsArgs, backend, models, output};
use crate::telemetry;
use files::Empty;
use lab::evaluation::compare::{self, Settings};
use lab::study::{Event, distinct};
use prefix_scheduler::model::PromptFormat;

/// Compare ranking methods on labelled lists: which one is worth its milliseconds?
///
/// Every method ranks every list, one request after the other. With --concurrency several lists are ranked at once. Two
/// more rows need no model: `given`, the first-stage order, and `bm25`, BM25 inside the list. The verdict recommends
/// the method with the best nDCG@10 whose difference from `given` is significant after Holm's adjustment. Of methods
/// that tie, it recommends the one with the fewest tokens of the generator. If a scorer and a generator tie, it
/// recommends the faster one.
///
/// Each line of the data is a JSON object: "question", "passages" with "text" and "label" (or "supporting": true or false),
/// optionally "id", "answers", "relevant" (relevant passages in the whole collection), and for each passage "id", "title" and
/// "score". Files may be gzipped.
///
/// With --instruction or --examples every method that takes them with this model has a second row, NAME+opening, to
/// show their effect on the same lists. With --frames every method that asks a generator has a row per prompt format,
/// NAME+FRAME, and one sentence says which format to configure.
///
/// With --by-generator every method that the configured scorer scores has a row NAME+generator, scored by the generator, and one
/// sentence says which of the two ranks better.
///
/// With --out the folder gets compare.html, compare.md, figures.jsonl and results.jsonl (one line per question), and an
/// interrupted comparison continues when the same command is given again. If a method refuses questions, they are
/// listed and the command exits with 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd compare labelled.jsonl --out comparison\n  \
                        rerankd compare nq.jsonl.gz own.jsonl --method moi,query-generation --limit 50\n  \
                        rerankd compare labelled.jsonl --method all --server 127.0.0.1:50051 --format json\n  \
                        rerankd compare labelled.jsonl --method cascade --latency-budget-ms 500\n  \
                        rerankd compare labelled.jsonl --server gpu:50051 --concurrency 16\n  \
                        rerankd compare labelled.jsonl --method cascade --fail-under nDCG@10=0.8\n  \
                        rerankd compare claims.jsonl --method query-generation --examples examples.jsonl\n  \
                        rerankd compare labelled.jsonl --method query-generation,cascade --frames jinja,plain\n  \
                        rerankd compare labelled.jsonl --set scorer.model=small.gguf --method cascade --by-generator")]
pub(in crate::cli) struct CompareArgs {
    /// Labelled lists, one JSON object per line.
    #[arg(value_name = "FILE", required = true)]
    data: Vec<PathBuf>,
    /// Methods, separated by commas, as `rerankd rerank --help` names them, or all: every method but retriever and
    /// those that need the entailment model. By default cascade, query-generation, yes-no and moi. With all, and by
    /// default, embedding and cross-encoder are compared if their models answer.
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    method: Vec<String>,
    #[command(flatten)]
    opening: OpeningArgs,
    /// Prompt formats to compare with the configured one, separated by commas: chat, the chat template that llama.cpp
    /// recognises; jinja, the template of the model's file, evaluated; plain, no template.
    #[arg(long, value_name = "FRAMES", value_delimiter = ',', value_parser = frame, conflicts_with = "server")]
    frames: Vec<PromptFormat>,
    /// If a scorer is configured: a second row per method that it scores, NAME+generator, scored by the generator.
    #[arg(long)]
    by_generator: bool,
    #[command(flatten)]
    study: StudyArgs,
    /// Milliseconds that a ranking should take, for the methods that read with the generator: they read fewer passages
    /// or none, or refuse. Two rankings without a budget run first, to measure the speed.
    #[arg(long, value_name = "MILLISECONDS", value_parser = crate::cli::above_zero)]
    latency_budget_ms: Option<f64>,
    /// Questions that are asked at once, at most 256, to keep a GPU or several replicas busy; on a CPU it gains
    /// nothing. The seconds of a request then include its wait for the others, and scores are equal to rounding only.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::cli::at_once, conflicts_with_all = ["by_generator", "latency_budget_ms"])]
    concurrency: usize,
    /// Sign flips of p-values, and resamples of intervals of differences; 0 for neither and no verdict.
    #[arg(long, default_value_t = 10_000)]
    test_resamples: usize,
    #[command(flatten)]
    gate: GateArgs,
}

/// The methods that are compared if none is named, in addition to the methods of other served models.
const USUAL: [&str; 4] = ["cascade", "query-generation", "yes-no", "moi"];

fn frame(name: &str) -> Result<PromptFormat, String> {
    let known = || PromptFormat::ALL.map(PromptFormat::name).join(", ");
    PromptFormat::ALL
        .into_iter()
        .find(|frame| frame.name() == name)
        .ok_or_else(|| format!("must be one of {}", known()))
}

impl CompareArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let usual = self.method.is_empty();
        let named = if usual { USUAL.map(str::to_owned).to_vec() } else { self.method.clone() };
        Ok(Settings {
            by_generator: self.by_generator,
            reranker: None,
            beside: usual || named.iter().any(|name| name.trim() == compare::ALL),
            methods: compare::find(&named)?,
            opening: self.opening.opening()?,
            frames: distinct(self.frames.clone()),
            passage_tokens: self.study.passage_tokens,
            latency_budget_ms: self.latency_budget_ms,
            concurrency: self.concurrency,
            seed: self.study.seed,
            threshold: self.study.relevance_threshold,
            statistics: self.study.statistics(Some(self.test_resamples))?,
        })
    }
}

pub(super) async fn run(args: CompareArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let settings = args.settings()?;
    settings.check()?;
    let gate = args.gate.gate(settings.statistics)?;
    let data = args.study.sources(&args.data, Empty::Ranked).load()?;
    output::warn(&data.warnings);
    let study = &args.study;
    if study.server.is_none() && settings.methods.iter().any(|method| method.asks_judge()) {
        models::fetch_entailment(&config).await?;
    }
    let backend =
        backend::open_for_study(study.server.as_deref(), &study.connection, &backend::for_lines(&config)).await?;
    let mut following = args.study.following(data.questions.len(), "intervals and comparisons");
    let show = |event: Event<'_>| following.show(&event);
    let (folder, restart) = (args.study.out.as_deref(), args.study.restart);
    let finished = compare::run(&settings, &data, &backend, (folder, restart), &gate, show).await;
    following.finish();
    let (finished, judged) = finished?;
    let shown = args.study.show(&finished, "requests");
    args.gate.finish(&judged, shown)
}
