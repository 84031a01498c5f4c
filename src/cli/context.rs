//! `rerankd context`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::compress::{CompressionArgs, CompressionName};
use super::connection::ConnectionArgs;
use super::dedup::DedupArgs;
use super::rerank::{ContextOrderName, method_parser};
use super::{Failure, SettingsArgs, backend, input, models, output};
use crate::telemetry;
use engine::methods;
use engine::types::{CONTEXT_TOKENS, ContextRequest, ContextSize, RerankRequest};
use files::Warnings;
use protocol::v1;

/// Write the most valuable passages that fit as a context.
///
/// Input as for rerank. Passages are ranked, near-duplicates are left out, and the passages with the greatest value in all
/// that fit are written. The size is that of the whole text, numbers and separators included.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rerankd context --query 'who wrote Middlemarch' passages.jsonl --max-tokens 512\n  \
                        rerankd context --query 'who wrote Middlemarch' passages.jsonl --server 127.0.0.1:50051 \\\n    \
                        --template '<{id}> {title}: {text}' --format json"
)]
pub(super) struct ContextArgs {
    /// Query to choose the passages for.
    #[arg(long)]
    query: String,
    /// Passages, one JSON value per line; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    passages: PathBuf,
    /// Most tokens of the text [default: 1024].
    #[arg(long, value_name = "TOKENS", value_parser = super::count)]
    max_tokens: Option<usize>,
    /// Most characters of the text.
    #[arg(long, value_name = "COUNT", value_parser = super::count, conflicts_with = "max_tokens")]
    max_characters: Option<usize>,
    /// Tokenizer that counts tokens: the name of NAME.json, a tokenizer.json of Hugging Face, in the folder tokenizers of the
    /// models' store; by default that of the generator.
    #[arg(long, value_name = "NAME")]
    tokenizer: Option<String>,
    /// Most passages with the same title.
    #[arg(long, value_name = "COUNT", value_parser = super::count)]
    max_per_source: Option<usize>,
    /// How a passage is written, with the fields n (its place), id, title and text in braces; doubled braces are braces.
    /// By default the place in brackets, the title, a line end and the text.
    #[arg(long)]
    template: Option<String>,
    /// Written between passages; by default an empty line.
    #[arg(long, value_name = "TEXT")]
    separator: Option<String>,
    #[command(flatten)]
    dedup: DedupArgs,
    /// Most passages.
    #[arg(long, value_name = "COUNT", value_parser = super::count)]
    top_n: Option<usize>,
    /// Leave out passages with a lower score; from 0 to 1.
    #[arg(long, value_name = "SCORE")]
    score_threshold: Option<f64>,
    /// Leave out passages that are no better than none; most irrelevant ones are better.
    #[arg(long)]
    only_helpful: bool,
    /// Method that scores the passages; by default cascade.
    #[arg(long, value_parser = method_parser())]
    method: Option<String>,
    /// Generator that scores the passages: generator, scorer or the scorer's name.
    #[arg(long, value_name = "NAME")]
    scorer: Option<String>,
    /// Order of the passages in the context; by default as for rerank.
    #[arg(long, value_enum)]
    context_order: Option<ContextOrderName>,
    /// Leave out passages that do not fit, instead of cutting the end of one.
    #[arg(long)]
    no_truncate: bool,
    /// Compress passages if they do not all fit.
    #[arg(long, value_enum, value_name = "METHOD")]
    compress: Option<CompressionName>,
    #[command(flatten)]
    compression: CompressionArgs,
    /// Address of a server; by default the model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Output: the text only, or JSON with the places of passages and the reasons for those left out.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

impl ContextArgs {
    /// The request without passages.
    fn request(&self) -> Result<ContextRequest, Failure> {
        Ok(ContextRequest {
            ranking: RerankRequest {
                query: self.query.clone(),
                method: self.method.as_deref().and_then(methods::find),
                scorer: self.scorer.clone().unwrap_or_default(),
                top_n: self.top_n,
                score_threshold: self.score_threshold,
                only_helpful: self.only_helpful,
                truncate: self.no_truncate.then_some(false),
                compression: self.compression.of(self.compress)?,
                context_order: ContextOrderName::order(self.context_order),
                dedup: self.dedup.options(),
                ..RerankRequest::default()
            },
            size: match (self.max_tokens, self.max_characters) {
                (_, Some(characters)) => ContextSize::Characters(characters),
                (tokens, None) => ContextSize::Tokens(tokens.unwrap_or(CONTEXT_TOKENS)),
            },
            template: self.template.clone().unwrap_or_default(),
            separator: self.separator.clone(),
            most_per_source: self.max_per_source,
            tokenizer: self.tokenizer.clone().unwrap_or_default(),
        })
    }
}

pub(super) async fn run(args: ContextArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut request = args.request()?;
    // Before a model is loaded.
    request.check_options()?;
    if args.server.is_none() && request.ranking.method().asks_judge() {
        models::fetch_entailment(&config).await?;
    }
    if args.passages == Path::new("-") && std::io::stdin().is_terminal() {
        output::complain("reading passages from standard input, one JSON value per line");
    }
    let mut warnings = Warnings::default();
    request.ranking.passages = input::passages(&args.passages, &mut warnings)?;
    output::warn(&warnings);
    let client = backend::open(args.server.as_deref(), &args.connection, &config).await?;
    let built = client.build_context(&request).await?;
    match args.format {
        Format::Json => output::json(&document(&built)),
        Format::Text => {
            output::complain(&summary(&built, request.size, request.ranking.passages.len()));
            built.warnings.iter().for_each(|warning| output::complain(warning));
            output::print(&if built.text.is_empty() { String::new() } else { format!("{}\n", built.text) })
        }
    }
}

/// One line about the context, for people.
fn summary(built: &v1::BuildContextResponse, size: ContextSize, all: usize) -> String {
    let reasons = [
        (v1::LeftOutReason::Duplicate, ["near-duplicate", "near-duplicates"]),
        (v1::LeftOutReason::Budget, ["over budget"; 2]),
        (v1::LeftOutReason::Source, ["over --max-per-source"; 2]),
        (v1::LeftOutReason::Ranking, ["left out by the ranking"; 2]),
        (v1::LeftOutReason::Empty, ["without text"; 2]),
    ];
    let counted = reasons.into_iter().filter_map(|(reason, [one, many])| {
        let count = built.left_out.iter().filter(|passage| passage.reason() == reason).count();
        (count > 0).then(|| format!(", {count} {}", if count == 1 { one } else { many }))
    });
    let left_out: String = counted.collect();
    let (size, unit) = match size {
        ContextSize::Tokens(_) => (built.tokens, "tokens"),
        ContextSize::Characters(_) => (built.characters, "characters"),
    };
    format!("{size} {unit}: {} of {all} passages{left_out}", built.passages.len())
}

/// The context as JSON, with the names of the protocol.
fn document(built: &v1::BuildContextResponse) -> Value {
    let passage = |one: &v1::ContextPassage| {
        json!({
            "id": one.id, "original_index": one.original_index, "start": one.start, "end": one.end, "score": one.score,
            "utility": one.utility, "duplicates": one.duplicates, "cut": one.cut, "compressed": one.compressed,
        })
    };
    let left_out = |one: &v1::LeftOutPassage| {
        json!({
            "id": one.id, "original_index": one.original_index, "reason": one.reason().as_str_name(),
            "duplicate_of": one.duplicate_of,
        })
    };
    json!({
        "text": built.text, "tokens": built.tokens, "characters": built.characters,
        "passages": built.passages.iter().map(passage).collect::<Vec<_>>(),
        "left_out": built.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "context_order": built.context_order.as_ref().map(output::context_order),
        "usage": built.usage.as_ref().map(output::usage),
        "warnings": built.warnings, "model": built.model, "reader": built.reader,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_the_reasons() {
        let one = |reason: v1::LeftOutReason| v1::LeftOutPassage { reason: reason.into(), ..Default::default() };
        let left_out =
            vec![one(v1::LeftOutReason::Budget), one(v1::LeftOutReason::Duplicate), one(v1::LeftOutReason::Budget)];
        let passages = vec![v1::ContextPassage::default()];
        let built = v1::BuildContextResponse { tokens: 7, characters: 30, passages, left_out, ..Default::default() };
        let shown = [ContextSize::Tokens(9), ContextSize::Characters(40)].map(|size| summary(&built, size, 4));
        assert_eq!(shown[0], "7 tokens: 1 of 4 passages, 1 near-duplicate, 2 over budget");
        assert_eq!(shown[1], "30 characters: 1 of 4 passages, 1 near-duplicate, 2 over budget");
    }
}
