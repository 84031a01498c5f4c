//! `rerankd rerank`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::compress::{CompressionArgs, CompressionName};
use super::connection::ConnectionArgs;
use super::dedup::DedupArgs;
use super::opening::OpeningArgs;
use super::{Failure, SettingsArgs, backend, input, models, output, rerank_lists};
use crate::config::Config;
use crate::telemetry;
use engine::methods;
use engine::types::ContextOrder;
use engine::types::{FusionMode, FusionOptions};
use engine::types::{Inline, MoiOptions, MoiOutcome, RerankRequest, Scheme};
use files::Warnings;
use moi::domain::Domain;
use protocol::v1;

/// Rerank passages, on a server or in this process.
///
/// Each input line is a JSON string, or a JSON object with "text" and optional "id", "title" and "score". With --lists
/// each line is a query with its passages, and the output has one JSON object per line, or the lines of a TREC run. A
/// list that cannot be reranked is reported and left out; the command then exits with status 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd rerank --query 'who wrote Middlemarch' passages.jsonl\n  \
                  rerankd rerank --lists lists.jsonl.gz --format trec > reranked.run\n  \
                  rerankd rerank --lists lists.jsonl.gz --concurrency 16 > reranked.jsonl\n\n\
                  `rerankd rerank --help` lists all options.")]
pub(super) struct RerankArgs {
    /// Query to rank the passages for.
    #[arg(long, required_unless_present = "lists", conflicts_with = "lists")]
    query: Option<String>,
    /// Passages, one JSON value per line; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    passages: PathBuf,
    /// The file holds queries with their passages, one JSON object per line: "question" (or "query"), "passages", and
    /// optionally "id".
    #[arg(long)]
    lists: bool,
    // clap drops `requires` if --query, which conflicts with --lists, is given.
    /// Lists to rank at once, at most 256.
    ///
    /// Speeds up a GPU or several replicas, but not a CPU. Output is in input order; scores are then equal to rounding
    /// only.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::at_once, requires = "lists", conflicts_with = "query")]
    pub(super) concurrency: usize,
    /// Name of the run in the output format trec.
    #[arg(long, default_value = "rerankd", requires = "lists", conflicts_with = "query")]
    pub(super) tag: String,
    /// Include title and text of each passage in the JSON.
    #[arg(long)]
    pub(super) texts: bool,
    /// Address of a server; by default the model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) server: Option<String>,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// Method that scores the passages; by default cascade, or moi if one of its options is given.
    #[arg(long, value_parser = method_parser())]
    method: Option<String>,
    #[command(flatten)]
    opening: OpeningArgs,
    /// Fusion with the retriever's scores ("score" of a passage) or BM25; the default depends on the method.
    #[arg(long, value_enum)]
    fusion: Option<FusionName>,
    /// The model's weight in the fusion, from 0 to 1.
    #[arg(long, value_name = "SHARE")]
    fusion_weight: Option<f64>,
    /// Weight of the embedding score in the part that the generator is fused with, from 0 to 1; the retriever has the
    /// rest.
    #[arg(long, value_name = "SHARE")]
    embedding_weight: Option<f64>,
    /// Omit passages that are no better than none; most irrelevant ones are better.
    #[arg(long)]
    only_helpful: bool,
    /// Return the number of passages with the greatest expected F1, at least one. Needs `rerankd calibrate --ranking`.
    #[arg(long)]
    auto_k: bool,
    /// Milliseconds that scoring should take, at the measured speed.
    #[arg(long, value_name = "MILLISECONDS")]
    latency_budget_ms: Option<f64>,
    /// Design: the prompts that the method moi scores.
    #[arg(long, value_enum)]
    design: Option<DesignName>,
    /// Score the prefixes of each order, up to this many passages.
    #[arg(long, value_name = "PASSAGES", value_parser = super::count)]
    depth: Option<usize>,
    /// Most tokens to evaluate; `limits.tokens_per_request` by default.
    #[arg(long, value_name = "TOKENS", value_parser = super::count)]
    token_budget: Option<usize>,
    /// Reduce the design to fit the token budget instead of refusing the request.
    #[arg(long)]
    fit_budget: bool,
    /// Number of orders in the design.
    #[arg(long, value_name = "COUNT", value_parser = super::count)]
    orders: Option<usize>,
    /// Quantity that is scored for each order.
    #[arg(long, value_enum, default_value_t = OutcomeName::QueryLikelihood)]
    outcome: OutcomeName,
    /// Scale on which the scores are fitted.
    #[arg(long, value_enum)]
    domain: Option<DomainName>,
    /// Minimise the paper's objective instead of the regularised one.
    #[arg(long)]
    paper_objective: bool,
    /// Seed of the design.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of results, best first [default: all; a table shows ten].
    #[arg(long, value_name = "COUNT", value_parser = super::count)]
    top_n: Option<usize>,
    /// Omit results with a lower score; from 0 to 1.
    #[arg(long, value_name = "SCORE")]
    score_threshold: Option<f64>,
    /// Refuse passages that do not fit the context instead of truncating them.
    #[arg(long)]
    no_truncate: bool,
    /// Most tokens per passage.
    #[arg(long, visible_alias = "passage-tokens", value_name = "TOKENS", value_parser = super::count)]
    max_passage_tokens: Option<usize>,
    /// Order of the passages in the generator's context. The default uses a calibrated position profile of answers, else
    /// the built-in one of the default generator, else a calibrated one of the question, if its effect exceeds its error;
    /// otherwise the best passage comes first. If another model answers, choose descending.
    #[arg(long, value_enum)]
    context_order: Option<ContextOrderName>,
    /// Reference answer; may be repeated. Measures how far the passages, in input order and in the new order, move the
    /// generator's belief toward the reference answers.
    #[arg(long, value_name = "ANSWER")]
    reference: Vec<String>,
    /// Measure how much the passages reduce the semantic entropy of the generator's answers, in both orders.
    #[arg(long)]
    measure_entropy: bool,
    /// Generator that scores the passages: generator, scorer or the scorer's name; by default the scorer if one is
    /// configured.
    #[arg(long, value_name = "NAME")]
    scorer: Option<String>,
    /// Compress the returned passages.
    #[arg(long, value_enum, value_name = "METHOD")]
    compress: Option<CompressionName>,
    #[command(flatten)]
    compression: CompressionArgs,
    #[command(flatten)]
    dedup: DedupArgs,
    /// Add utilities, errors, contributions, position bias and cost.
    #[arg(long, conflicts_with = "lists")]
    explain: bool,
    /// Output format [default: table, for --lists json].
    #[arg(long, value_enum)]
    pub(super) format: Option<Format>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DesignName {
    Random,
    Cyclic,
    Latin,
    Trie,
    Pruned,
    Prefix,
    Adaptive,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FusionName {
    Off,
    On,
    Bm25,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OutcomeName {
    QueryLikelihood,
    Joint,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DomainName {
    LogWinsorZ,
    LogZ,
    RankNormal,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ContextOrderName {
    ByPositionBias,
    Descending,
    Reverse,
    Given,
}

impl ContextOrderName {
    pub(super) fn order(name: Option<Self>) -> ContextOrder {
        match name {
            None => ContextOrder::Auto,
            Some(Self::ByPositionBias) => ContextOrder::ByPositionBias,
            Some(Self::Descending) => ContextOrder::Descending,
            Some(Self::Reverse) => ContextOrder::Reverse,
            Some(Self::Given) => ContextOrder::Input,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Json,
    /// Lines of query, Q0, passage, rank, score, tag, for --lists. The score counts down to 1 at the last passage, so
    /// that trec_eval, which sorts by it, keeps the order.
    Trec,
}

/// Accepts the names of the registered methods. The help shows each with its summary.
pub(super) fn method_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(methods::all().map(|method| PossibleValue::new(method.name()).help(method.help())))
}

impl RerankArgs {
    /// The given options of moi, which other methods ignore. cascade refuses them.
    fn without_effect(&self) -> Vec<&'static str> {
        if self.method.as_deref().is_none_or(|method| matches!(method, "moi" | "cascade")) {
            return Vec::new();
        }
        let given = [
            (self.design.is_some(), "--design"),
            (self.depth.is_some(), "--depth"),
            (self.orders.is_some(), "--orders"),
            (self.domain.is_some(), "--domain"),
            (self.fit_budget, "--fit-budget"),
            (self.paper_objective, "--paper-objective"),
            (matches!(self.outcome, OutcomeName::Joint), "--outcome"),
        ];
        given.into_iter().filter_map(|(given, option)| given.then_some(option)).collect()
    }

    /// The request without the query and its passages.
    fn request(&self) -> Result<RerankRequest, Failure> {
        let moi = MoiOptions {
            scheme: self.design.map(|design| match design {
                DesignName::Random => Scheme::Random,
                DesignName::Cyclic => Scheme::Cyclic,
                DesignName::Latin => Scheme::Latin,
                DesignName::Trie => Scheme::Trie,
                DesignName::Pruned => Scheme::Pruned,
                DesignName::Prefix => Scheme::Prefix,
                DesignName::Adaptive => Scheme::Adaptive,
            }),
            orders: self.orders,
            depth: self.depth,
            fit_budget: self.fit_budget,
            outcome: match self.outcome {
                OutcomeName::QueryLikelihood => MoiOutcome::QueryLikelihood,
                OutcomeName::Joint => MoiOutcome::Joint,
            },
            domain: self.domain.map(|domain| match domain {
                DomainName::LogWinsorZ => Domain::LogWinsorZ,
                DomainName::LogZ => Domain::LogZ,
                DomainName::RankNormal => Domain::RankNormal,
            }),
            paper_objective: self.paper_objective,
            seed: self.seed,
            ..MoiOptions::default()
        };
        Ok(RerankRequest {
            method: self.method.as_deref().and_then(methods::find),
            scorer: self.scorer.clone().unwrap_or_default(),
            moi,
            fusion: FusionOptions {
                mode: self.fusion.map_or(FusionMode::ByMethod, |mode| match mode {
                    FusionName::Off => FusionMode::Off,
                    FusionName::On => FusionMode::On,
                    FusionName::Bm25 => FusionMode::Bm25,
                }),
                weight: self.fusion_weight,
                embedding: self.embedding_weight,
                ..FusionOptions::default()
            },
            only_helpful: self.only_helpful,
            auto_k: self.auto_k,
            token_budget: self.token_budget,
            latency_budget_ms: self.latency_budget_ms,
            top_n: self.top_n,
            score_threshold: self.score_threshold,
            truncate: self.no_truncate.then_some(false),
            passage_tokens: self.max_passage_tokens,
            compression: self.compression.of(self.compress)?,
            dedup: self.dedup.options(),
            inline: (self.measure_entropy || !self.reference.is_empty())
                .then(|| Inline { references: self.reference.clone(), ..Inline::default() }),
            prefix: self.opening.opening()?,
            context_order: ContextOrderName::order(self.context_order),
            ..RerankRequest::default()
        })
    }
}

pub(super) async fn run(args: RerankArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut request = args.request()?;
    // Once, before a model is loaded.
    request.check_options()?;
    let unused = args.without_effect();
    if let (false, Some(method)) = (unused.is_empty(), &args.method) {
        output::complain(&format!(
            "{}: no effect with {method}; take --method moi, or leave it out",
            unused.join(", ")
        ));
    }
    if args.server.is_none() && (request.inline.is_some() || request.method().asks_judge()) {
        models::fetch_entailment(&config).await?;
    }
    if args.lists {
        return Box::pin(rerank_lists::run(&args, &args.passages, &config, request)).await;
    }
    if args.format == Some(Format::Trec) {
        return Err(Failure::Input("--format trec: needs --lists, whose queries have ids".into()));
    }
    if args.passages == Path::new("-") && std::io::stdin().is_terminal() {
        output::complain("reading passages from standard input, one JSON value per line");
    }
    request.query = args.query.clone().unwrap_or_default();
    let mut warnings = Warnings::default();
    request.passages = input::passages(&args.passages, &mut warnings)?;
    output::warn(&warnings);
    let answer = ask(args.server.as_deref(), &args.connection, &config, &request).await?;
    match args.format.unwrap_or(Format::Table) {
        Format::Json => output::json(&output::rerank_json(&answer, args.texts.then_some(&request))),
        Format::Table | Format::Trec => output::print(&output::rerank_table(&answer, &request, args.explain)),
    }
}

/// Reranks on a server or in this process, and shows a progress bar.
pub(super) async fn ask(
    server: Option<&str>,
    connection: &ConnectionArgs,
    config: &Config,
    request: &RerankRequest,
) -> Result<v1::RerankResponse, Failure> {
    let bar = progress_bar();
    let client = backend::open(server, connection, config).await?;
    let (answer, _) = client.watch_rerank(request, |done, total| advance(&bar, done, total)).await?;
    bar.finish_and_clear();
    Ok(answer)
}

fn progress_bar() -> ProgressBar {
    let target = if output::progress_wanted() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} tokens  {per_sec}  {eta} left");
    ProgressBar::with_draw_target(None, target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn advance(bar: &ProgressBar, done: u64, total: u64) {
    // The total is an estimate.
    bar.set_length(total.max(done));
    bar.set_position(done);
}
