//! `rerankd compress`

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::CellAlignment;
use serde_json::{Value, json};

use super::connection::ConnectionArgs;
use super::output::{Format, FormatArgs};
use super::rerank::{ask, method_parser};
use super::{Failure, SettingsArgs, input, models, output};
use crate::telemetry;
use engine::compress::recover;
use engine::methods;
use engine::types::{Compression, CompressionMethod, CompressionUnit, ContextOrder, Passage, RerankRequest};
use files::Warnings;
use numeric::real;
use protocol::v1;

/// Shorten passages for a prompt, and restore quotations of them.
///
/// Input as for rerank. Sentences, phrases or words that the generator expects anyway (selective-context), or that the query
/// does not make likelier (long-llm-lingua), are dropped. Words, numbers, and runs of up to five capitalised words separated by
/// a space stay whole.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rerankd compress --query 'who wrote Middlemarch' --ratio 0.4 passages.jsonl --format json > short.json\n  rerankd compress passages.jsonl --compressed short.json --recover 'wrote Middlemarch 1871'"
)]
pub(super) struct CompressArgs {
    /// Query to keep content for.
    #[arg(long, required_unless_present = "recover")]
    query: Option<String>,
    /// Passages, one JSON value per line; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    passages: PathBuf,
    /// Address of a server; by default the model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Compression method.
    #[arg(long, value_enum, default_value_t = CompressionName::LongLlmLingua)]
    method: CompressionName,
    #[command(flatten)]
    compression: CompressionArgs,
    /// Method that ranks the passages first; by default query-generation for long-llm-lingua, whose prompts the
    /// compression shares, and the input order for selective-context.
    #[arg(long, value_name = "METHOD", value_parser = method_parser())]
    rank: Option<String>,
    /// Number of passages to keep before they are compressed, best first; by default all.
    #[arg(long, value_name = "COUNT", value_parser = super::count)]
    top_n: Option<usize>,
    /// Replace quotations of compressed passages in this response by the original words. Asks no model.
    #[arg(long, value_name = "RESPONSE", requires = "compressed")]
    recover: Option<String>,
    /// JSON output of this command, or of rerank --compress, for the same passages.
    #[arg(long, value_name = "FILE", requires = "recover")]
    compressed: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Amount to keep, and the unit.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct CompressionArgs {
    /// Unit that is kept or dropped as a whole; by default sentence for selective-context and token for long-llm-lingua.
    #[arg(long, value_enum)]
    unit: Option<UnitName>,
    /// Share of the tokens to keep, above 0 and at most 1; 0.5 by default, for a context its size.
    #[arg(long, value_name = "SHARE", conflicts_with = "target_tokens")]
    ratio: Option<f64>,
    /// Tokens to keep over all passages.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    target_tokens: Option<u32>,
    /// long-llm-lingua: share of the best passage above the mean, from 0 to 1; 0.3 by default.
    #[arg(long, value_name = "SHARE")]
    ratio_spread: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CompressionName {
    LongLlmLingua,
    SelectiveContext,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnitName {
    Sentence,
    Phrase,
    Token,
}

impl CompressionArgs {
    /// True if any option is given.
    const fn is_given(&self) -> bool {
        self.unit.is_some() || self.ratio.is_some() || self.target_tokens.is_some() || self.ratio_spread.is_some()
    }

    /// The compression by this method, if one is given.
    pub(super) fn of(&self, method: Option<CompressionName>) -> Result<Option<Compression>, Failure> {
        if method.is_none() && self.is_given() {
            let problem = "--unit, --ratio, --target-tokens and --ratio-spread need --compress with a method";
            return Err(Failure::Input(problem.into()));
        }
        Ok(method.map(|method| self.options(method)))
    }

    pub(super) fn options(&self, method: CompressionName) -> Compression {
        Compression {
            method: match method {
                CompressionName::LongLlmLingua => CompressionMethod::LongLlmLingua,
                CompressionName::SelectiveContext => CompressionMethod::SelectiveContext,
            },
            unit: self.unit.map(|unit| match unit {
                UnitName::Sentence => CompressionUnit::Sentence,
                UnitName::Phrase => CompressionUnit::Phrase,
                UnitName::Token => CompressionUnit::Token,
            }),
            ratio: self.ratio,
            target_tokens: self.target_tokens.and_then(|tokens| usize::try_from(tokens).ok()),
            ratio_spread: self.ratio_spread,
        }
    }
}

pub(super) async fn run(args: CompressArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let mut warnings = Warnings::default();
    let passages = input::passages(&args.passages, &mut warnings)?;
    output::warn(&warnings);
    if let (Some(response), Some(compressed)) = (&args.recover, &args.compressed) {
        return output::print(&format!("{}\n", recovered(response, &passages, compressed)?));
    }
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let ranked_by = args.rank.as_deref().unwrap_or(match args.method {
        // It ranks better than LongLLMLingua's own r_k (docs/experiments/ranking.md), and the compression begins
        // with its prompts.
        CompressionName::LongLlmLingua => "query-generation",
        CompressionName::SelectiveContext => "retriever",
    });
    let given_order = ranked_by == "retriever" && args.rank.is_none();
    let request = RerankRequest {
        query: args.query.clone().unwrap_or_default(),
        passages: if given_order { in_given_order(passages) } else { passages },
        // There is no ranking to arrange by.
        context_order: if given_order { ContextOrder::Input } else { ContextOrder::default() },
        method: methods::find(ranked_by),
        top_n: args.top_n,
        compression: Some(args.compression.options(args.method)),
        ..RerankRequest::default()
    };
    // Before a model is loaded.
    request.check_options()?;
    if args.server.is_none() && request.method().asks_judge() {
        models::fetch_entailment(&config).await?;
    }
    let answer = ask(args.server.as_deref(), &args.connection, &config, &request).await?;
    let unanswered = || Failure::Other(anyhow::anyhow!("the answer has no compression"));
    let report = answer.compression.as_ref().ok_or_else(unanswered)?;
    match args.format.format {
        Format::Json => output::json(&json!({
            "compression": json(report), "tokens": answer.usage.as_ref().map(|usage| usage.tokens),
            "warnings": answer.warnings, "model": answer.model, "model_sha256": answer.model_sha256,
        })),
        Format::Table => {
            let mut text = table(report, &request);
            text.push_str(&answer.usage.as_ref().map(output::took).unwrap_or_default());
            for warning in &answer.warnings {
                text.push_str(&format!("note: {warning}\n"));
            }
            output::print(&text)
        }
    }
}

/// Gives passages scores for which the retriever's method keeps their order.
fn in_given_order(passages: Vec<Passage>) -> Vec<Passage> {
    let scored = |(place, passage): (usize, Passage)| Passage { retriever_score: Some(-real(place)), ..passage };
    passages.into_iter().enumerate().map(scored).collect()
}

/// Replaces quotations in a response by the passages' original words, using the report of their compression.
fn recovered(response: &str, passages: &[Passage], compressed: &Path) -> Result<String, Failure> {
    let name = compressed.display();
    let text = input::read(compressed)?;
    let mut warnings = Warnings::default();
    let report: Value = input::whole(&text, compressed, &mut warnings)?;
    output::warn(&warnings);
    let bad = |problem: String| Failure::Input(format!("{name}: compression.{problem}"));
    let shortened =
        report["compression"]["passages"].as_array().ok_or_else(|| bad("passages: must be a list".into()))?;
    let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(shortened.len());
    for (place, one) in shortened.iter().enumerate() {
        let index = one["original_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let original = index.and_then(|index| passages.get(index));
        let missing = || bad(format!("passages[{place}].original_index: must be that of one of the passages"));
        let wrong = || bad(format!("passages[{place}].compressed_text: must be a string"));
        let original = original.ok_or_else(missing)?;
        pairs.push((&original.text, one["compressed_text"].as_str().ok_or_else(wrong)?));
    }
    Ok(recover::recover(response, &pairs))
}

/// The report as JSON, with the names of the protocol.
pub(super) fn json(report: &v1::CompressionReport) -> Value {
    let passage = |passage: &v1::CompressedPassage| {
        json!({
            "original_index": passage.original_index, "compressed_text": passage.compressed_text,
            "tokens_before": passage.tokens_before, "tokens_after": passage.tokens_after, "dropped": passage.dropped,
        })
    };
    json!({
        "passages": report.passages.iter().map(passage).collect::<Vec<_>>(),
        "method": report.method().as_str_name(), "unit": report.unit().as_str_name(),
        "tokens_before": report.tokens_before, "tokens_after": report.tokens_after,
        "tokens_evaluated": report.tokens_evaluated,
    })
}

/// The report as text: one row per passage, in the order of the context.
pub(super) fn table(report: &v1::CompressionReport, request: &RerankRequest) -> String {
    let mut table = output::table(&["was", "id", "before", "after", "kept", "compressed passage"]);
    for column in [0, 2, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let count = |number: u64| real(usize::try_from(number).unwrap_or(usize::MAX));
    let share = |before: u64, after: u64| format!("{:.0} %", 100.0 * count(after) / count(before).max(1.0));
    for passage in &report.passages {
        let original = request.passages.get(passage.original_index as usize);
        let text = if passage.dropped { "(dropped)" } else { passage.compressed_text.as_str() };
        table.add_row([
            (passage.original_index + 1).to_string(),
            original.map_or_else(String::new, |original| original.id.clone()),
            passage.tokens_before.to_string(),
            passage.tokens_after.to_string(),
            share(passage.tokens_before.into(), passage.tokens_after.into()),
            text.to_owned(),
        ]);
    }
    let (before, after) = (report.tokens_before, report.tokens_after);
    output::shown(table) + &format!("tokens {before} before, {after} after ({})\n", share(before, after))
}
