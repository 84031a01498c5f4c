//! `rerankd distil`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::shared::Following;
use crate::cli::{Failure, SettingsArgs, input, output};
use crate::config::Config;
use crate::{app, telemetry};
use engine::preferences::Scored;
use files::{Empty, Warnings};
use lab::distil::{self, Settings};
use lab::study::Event;

/// Make training data for a smaller generator (preference distillation).
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd distil export lists.jsonl.gz --out teacher.jsonl")]
pub(in crate::cli) struct DistilArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Export(ExportArgs),
}

/// Score the passages of labelled lists with the configured generator, for models/distil/train.py.
///
/// With --kind orders every question's passages are scored in random orders: log P(query | order) and, separately, log
/// P(passages of the order) (MOI, Eq. 3). Each line also has log P(query | passage) per passage and log P(query).
/// --kind passages scores only these, at about the cost of ranking the list once. --kind tokens scores nothing. Every
/// kind writes the tokens of the prompts.
///
/// Lines of the data are labelled lists as for `rerankd compare`. Questions are appended to --out one by one. An
/// interrupted export continues when the same command is given again on the same machine; its file then equals that of
/// an uninterrupted export. A file of another generator, of other options or of other limits is refused. More
/// --limit adds to a file. docs/how-to/distil.md describes the fields.
///
/// The model is loaded in this process. There is no --server: the protocol does not carry the scores of single orders.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rerankd distil export lists.jsonl.gz --out teacher.jsonl --max-passage-tokens 96\n  \
                        rerankd distil export lists.jsonl.gz --out teacher.jsonl --kind passages --passages 8\n  \
                        rerankd distil export lists.jsonl.gz --out student.jsonl --kind passages --set generator.model=small.gguf"
)]
struct ExportArgs {
    /// Labelled lists, one JSON object per line; may be gzipped; - for standard input.
    #[arg(value_name = "FILE")]
    data: PathBuf,
    /// The export; created, or continued.
    #[arg(long, value_name = "EXPORT")]
    out: PathBuf,
    /// The prompts to score.
    #[arg(long, value_enum, default_value_t = Kind::Orders)]
    kind: Kind,
    /// Random orders per question; fewer if fewer exist.
    #[arg(long, value_name = "K", default_value_t = 30, value_parser = crate::cli::count)]
    permutations: usize,
    /// Take the first N passages of each list. If none of them is relevant, the first relevant one replaces the last.
    #[arg(long, value_name = "N", value_parser = crate::cli::count)]
    passages: Option<usize>,
    /// Cut passages to this many tokens. Passages are never cut to fit the context: a question that does not fit is refused.
    #[arg(long, visible_alias = "passage-tokens", value_name = "TOKENS", value_parser = crate::cli::count)]
    max_passage_tokens: Option<usize>,
    /// Use the first N questions.
    #[arg(long, value_name = "N", value_parser = crate::cli::count)]
    limit: Option<usize>,
    /// Leave out the first N questions.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,
    /// Least label of a relevant passage.
    #[arg(long, value_name = "LABEL", default_value_t = 0.5, value_parser = crate::cli::above_zero)]
    relevance_threshold: f64,
    /// Seed of the orders.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Random orders of all passages, and single-passage prompts.
    Orders,
    /// Single-passage prompts.
    Passages,
    /// Nothing; for training without a teacher.
    Tokens,
}

impl ExportArgs {
    const fn settings(&self) -> Settings {
        let scored = match self.kind {
            Kind::Orders => Scored::Orders(self.permutations),
            Kind::Passages => Scored::Passages,
            Kind::Tokens => Scored::Tokens,
        };
        Settings {
            scored,
            passages: self.passages,
            passage_tokens: self.max_passage_tokens,
            threshold: self.relevance_threshold,
            skip: self.skip,
            seed: self.seed,
        }
    }
}

pub(super) async fn run(args: DistilArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    match args.action {
        Action::Export(args) => export(args, settings).await,
    }
}

/// The settings that decide refusals and the last digits of scores.
fn conditions(config: &Config) -> Result<[(&'static str, Value); 9], Failure> {
    let (generator, limits) = (&config.generator, &config.limits);
    let (cells, batch) = app::sizes(generator).map_err(anyhow::Error::from)?;
    Ok([
        ("generator.context_tokens", json!(cells)),
        ("generator.batch", json!(batch)),
        ("generator.threads", json!(generator.threads)),
        ("generator.gpu_layers", json!(generator.gpu_layers)),
        ("generator.cache_type", json!(generator.cache_type.name())),
        ("limits.tokens_per_request", json!(limits.tokens)),
        ("limits.passages", json!(limits.passages)),
        ("limits.query_bytes", json!(limits.query_bytes)),
        ("limits.passage_bytes", json!(limits.passage_bytes)),
    ])
}

async fn export(args: ExportArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let mut config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let settings = args.settings();
    if matches!(settings.scored, Scored::Orders(count) if count > config.limits.orders) {
        let problem = format!("{} given, at most {} allowed", args.permutations, config.limits.orders);
        return Err(Failure::Input(format!("--permutations: {problem}")));
    }
    let mut warnings = Warnings::default();
    // A passage without text teaches nothing.
    let mut lists = input::labelled::lists(&args.data, settings.threshold, Empty::LeftOut, &mut warnings)?;
    output::warn(&warnings);
    let given = lists.len();
    lists.drain(..args.skip.min(given));
    lists.truncate(args.limit.unwrap_or(usize::MAX));
    if lists.is_empty() {
        return Err(Failure::Input(format!("{}: no questions are left of {given}", input::name(&args.data))));
    }
    // A continued export must equal an uninterrupted one, to the last digit.
    config.scheduler.warm = prefix_scheduler::warm::Options::default();
    config.scheduler.reproducible = true;
    let engine = app::engine(&config).await?;
    let mut following = Following::new(lists.len(), "the same command continues", "");
    let show = |event: Event<'_>| following.show(&event);
    let finished = distil::export(&settings, &lists, &engine, &conditions(&config)?, &args.out, show).await;
    following.finish();
    let finished = finished?;
    output::json(&json!({
        "out": args.out.display().to_string(),
        "kind": distil::kind(settings.scored),
        "questions": lists.len(),
        "refused": finished.refused,
        "generator_sha256": finished.generator,
    }))?;
    match finished.refused {
        0 => Ok(()),
        refused => {
            let problem =
                format!("{refused} of {} questions of the file were refused; their lines say why", lists.len());
            Err(Failure::Other(anyhow::anyhow!(problem)))
        }
    }
}
