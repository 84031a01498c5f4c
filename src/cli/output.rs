//! Output of the commands: results on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::{Failure, plot};
use engine::types::RerankRequest;
use files::Warnings;
use protocol::v1;
use rag_metrics::brief;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// True if standard error is a terminal.
pub(super) fn progress_wanted() -> bool {
    std::io::stderr().is_terminal()
}

/// Interval between progress lines if standard error is not a terminal.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// A progress bar over `count` items, with a message and the time left. If standard error is not a terminal, such as a
/// log, it prints an occasional line instead.
pub(super) fn progress(count: usize, of: &'static str) -> ProgressBar {
    let target = if progress_wanted() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(count as u64), target).with_prefix(of);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {prefix} {msg} {eta} left") {
        bar.set_style(style);
    }
    if !progress_wanted() {
        let weak = bar.downgrade();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(TELL_EVERY);
                let Some(bar) = weak.upgrade().filter(|bar| !bar.is_finished()) else { return };
                complain(&progress_line(&bar));
            }
        });
    }
    bar
}

/// Estimated from the mean pace: the pace of the last items would give centuries after a pause. `None` before the first
/// item.
fn time_left(done: u64, all: u64, elapsed: Duration) -> Option<Duration> {
    let rest = Duration::from_secs(all.saturating_sub(done));
    (done > 0).then(|| elapsed.mul_f64(rest.as_secs_f64() / Duration::from_secs(done).as_secs_f64()))
}

fn progress_line(bar: &ProgressBar) -> String {
    let (done, all) = (bar.position(), bar.length().unwrap_or_default());
    let left = time_left(done, all, bar.elapsed()).map(|left| format!(", about {} left", HumanDuration(left)));
    let left = left.unwrap_or_default();
    let message = bar.message();
    let parted = if message.is_empty() { "" } else { ", " };
    format!("{done}/{all} {}{parted}{message}{left}", bar.prefix())
}

/// A spinner for work without steps; hidden if standard error is not a terminal.
pub(super) fn spinner(message: &'static str) -> ProgressBar {
    let target = if progress_wanted() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let spinner = ProgressBar::with_draw_target(None, target).with_message(message);
    spinner.enable_steady_tick(std::time::Duration::from_millis(120));
    spinner
}

/// Writes text to standard output. A reader may close the pipe early, which is not an error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    stream(text).map(drop)
}

/// Writes a part of the output. Returns false if the reader has closed the pipe, so that the caller can stop.
pub(super) fn stream(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Other(anyhow::anyhow!("standard output: {error}"))),
    }
}

/// Writes a JSON document and a line end.
pub(super) fn json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Writes a line to standard error.
pub(super) fn complain(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr().lock(), "rerankd: {}", short_lines(text));
}

/// Shortens every line of a message to our maximum: a message may quote a command's long input.
pub(super) fn short_lines(text: &str) -> String {
    text.lines().map(brief).collect::<Vec<_>>().join("\n")
}

/// Prints the repairs and omissions of file readers.
pub(super) fn warn(warnings: &Warnings) {
    warnings.lines().for_each(|warning| complain(&warning));
}

/// Least width of a table in characters.
const LEAST_WIDTH: u16 = 60;

/// Width of output that does not go to a terminal.
const USUAL_WIDTH: u16 = 80;

/// Columns of the output. Some terminals, such as those of containers, report no width.
pub(super) fn width() -> u16 {
    let own = if std::io::stdout().is_terminal() { Table::new().width() } else { None };
    own.map_or(USUAL_WIDTH, |width| width.max(LEAST_WIDTH))
}

/// The form of the output, for commands that have two. It never depends on where the output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    #[default]
    Table,
    Json,
}

/// The option `--format` of commands with these two forms.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FormatArgs {
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl FormatArgs {
    pub(super) fn is_json(self) -> bool {
        self.format == Format::Json
    }
}

/// An empty table with a header.
pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width()).set_header(head);
    table
}

/// A table as text, with whole words. If these do not fit the output's width, each row becomes a block with a line per
/// column.
pub(super) fn shown(table: Table) -> String {
    shown_in(table, width().into())
}

fn shown_in(mut table: Table, width: usize) -> String {
    // A longer word, such as an address, may be broken.
    let most = width / 3;
    let longest = |text: &str| text.split_whitespace().map(|word| word.width().min(most)).max().unwrap_or(0);
    let cells = |row: &Row| row.cell_iter().map(|cell| cell.content().clone()).collect::<Vec<_>>();
    let head = table.header().map_or_else(Vec::new, cells);
    let rows: Vec<Vec<String>> = table.row_iter().map(cells).collect();
    let words: Vec<usize> = (0..head.len())
        .map(|at| rows.iter().chain([&head]).map(|row| longest(&row[at])).max().unwrap_or(0) + CELL_PADDING)
        .collect();
    if words.iter().sum::<usize>() + words.len() < width {
        for (column, least) in table.column_iter_mut().zip(words) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                u16::try_from(least).unwrap_or(u16::MAX),
            )));
        }
        return format!("{table}\n");
    }
    let indent = head.iter().map(|name| name.width()).max().unwrap_or(0) + 2;
    let line = |(name, value): (&String, &String)| wrapped_after(&format!("{name:indent$}"), value, width);
    let block = |row: &Vec<String>| head.iter().zip(row).map(line).collect::<String>();
    rows.iter().map(|row| block(row) + "\n").collect()
}

/// Spaces of a cell beside its content.
const CELL_PADDING: usize = 2;

/// A table without lines, whose rows are cut to one line each. The first `numbers` columns are aligned to the right.
fn plain(head: &[&str], rows: Vec<Vec<String>>, numbers: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width()).set_truncation_indicator("…").set_header(head);
    for cells in rows {
        let mut row = Row::from(cells);
        row.max_height(1);
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if at < numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// Breaks a sentence into lines of the output's width.
fn wrapped(text: &str) -> String {
    wrapped_after("", text, width().into())
}

/// Lines of a sentence, each after two spaces.
pub(super) fn indented(text: &str) -> String {
    wrapped_after("  ", text, width().into())
}

/// Breaks a sentence into lines after `before`, whose place is left blank on the second line and those below.
fn wrapped_after(before: &str, text: &str, width: usize) -> String {
    let indent = before.width();
    let most = width.saturating_sub(indent);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.extend(pieces(word, most)),
        }
    }
    let text = format!("{before}{}", lines.join(&format!("\n{:indent$}", "")));
    text.trim_end().to_owned() + "\n"
}

/// A word in pieces of at most this width: Chinese and Japanese have no spaces.
fn pieces(word: &str, most: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for letter in word.chars() {
        match pieces.last_mut() {
            Some(piece) if piece.width() + letter.width().unwrap_or(0) <= most => piece.push(letter),
            _ => pieces.push(letter.into()),
        }
    }
    pieces
}

/// Results that are shown unless the caller asks for a number of them.
const MOST_SHOWN: usize = 10;

/// Greatest probability of being better than the next passage at which two places count as close.
const CLOSE: f64 = 0.6;

/// A rerank response for people: the ranking, and sentences about it. Places count from 1, as opposed to the indices and
/// ranks of the protocol. `explains` adds the reasons and the cost.
pub(super) fn rerank_table(answer: &v1::RerankResponse, request: &RerankRequest, explains: bool) -> String {
    let shown = if request.top_n.is_some() { usize::MAX } else { MOST_SHOWN };
    let shown = &answer.results[..answer.results.len().min(shown)];
    let seconds = answer.usage.as_ref().map_or_else(String::new, |usage| format!(" in {:.1} s", usage.total_ms / 1e3));
    let most = usize::from(width());
    let mut text = format!("{}\n", shorten(&request.query, most));
    text.push_str(&format!("{} passages reranked{seconds}\n\n", request.passages.len()));
    let mut rows = Vec::with_capacity(shown.len());
    for (at, result) in shown.iter().enumerate() {
        let passage = &request.passages[result.original_index as usize];
        let same =
            shown[..at].iter().find(|other| request.passages[other.original_index as usize].text == passage.text);
        rows.push(vec![
            place(result.rank).to_string(),
            place(result.original_index).to_string(),
            format!("{:.2}", result.score),
            same.map_or_else(|| shorten(&passage.text, most), |same| format!("(same text as {})", place(same.rank))),
        ]);
    }
    text.push_str(&plain(&["now", "was", "score", "passage"], rows, 3));
    if let Some(last) = answer.results.last().filter(|_| shown.len() < answer.results.len()) {
        let more = answer.results.len() - shown.len();
        text.push_str(&format!("… {more} more, down to {:.2}; --top-n shows a number of them\n", last.score));
    }
    text.push('\n');
    text.push_str(&near_ties(shown).as_deref().map_or_else(String::new, wrapped));
    if answer.score_calibrated {
        text.push_str("Scores are probabilities of relevance.\n");
    }
    if let Some(probability) = answer.none_relevant {
        let count = request.passages.len();
        text.push_str(&format!("P(none of the {count} passages is relevant) = {probability:.2}\n"));
    } else if answer.none_helps == Some(true) {
        text.push_str("None of these passages is better than no passage.\n");
    }
    if explains {
        text.push_str(&explanation(answer, request, shown));
    }
    if let Some(measured) = &answer.utility {
        text.push_str(&inline(measured));
    }
    if let Some(compressed) = &answer.compression {
        text.push_str(&super::compress::table(compressed, request));
    }
    for warning in &answer.warnings {
        text.push_str(&wrapped(&format!("note: {warning}")));
    }
    text
}

/// The place of an index or rank, for people.
fn place(index: u32) -> u64 {
    u64::from(index) + 1
}

/// One sentence about places whose order is hardly known.
fn near_ties(shown: &[v1::RankedPassage]) -> Option<String> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    // The last one has no next one here.
    for result in &shown[..shown.len().saturating_sub(1)] {
        if result.outranks_next.is_some_and(|probability| probability <= CLOSE) {
            let here = place(result.rank);
            match runs.last_mut() {
                Some((_, end)) if *end == here => *end += 1,
                _ => runs.push((here, here + 1)),
            }
        }
    }
    let named: Vec<String> = runs.iter().map(|(first, last)| format!("{first}–{last}")).collect();
    let (last, before) = named.split_last()?;
    let named = if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
    Some(format!("Places {named} are close: P(better than the next) is at most {CLOSE}."))
}

/// The reasons of a ranking: utilities with errors, contributions, position weights, context order and cost.
fn explanation(answer: &v1::RerankResponse, request: &RerankRequest, shown: &[v1::RankedPassage]) -> String {
    let optional =
        |number: Option<f64>, digits: usize| number.map_or_else(|| "–".to_owned(), |x| format!("{x:.digits$}"));
    let scored = request.passages.iter().all(|passage| passage.retriever_score.is_some());
    let unread = if scored && request.method().name() == "retriever" { "retriever" } else { "input order" };
    let row = |result: &v1::RankedPassage| {
        vec![
            place(result.rank).to_string(),
            format!("{:.2}", result.utility),
            optional(result.standard_error, 2),
            optional(result.outranks_next, 2),
            placed_by(result, answer.fusion.as_ref(), unread),
        ]
    };
    let head = ["now", "utility", "± se", "P(> next)", "placed by"];
    let mut text = format!("\n{}", plain(&head, shown.iter().map(row).collect(), 4));
    for bias in answer.position_bias.iter().filter(|bias| bias.weights.len() > 1) {
        let scaled = answer.diagnostics.as_ref().is_some_and(|diagnostics| diagnostics.scale_identified);
        text.push_str(&plot::weights(&bias.weights, scaled));
    }
    if let Some(diagnostics) = &answer.diagnostics {
        text.push_str(&wrapped(&format!(
            "direction decided by {}; expected Kendall tau {:.2}{}",
            settled_by(diagnostics.orientation()),
            diagnostics.expected_tau,
            if diagnostics.prior_dominated { "; the prior decided the rest" } else { "" },
        )));
    }
    if let Some(arranged) = &answer.context_order {
        text.push_str(&wrapped(&arrangement(arranged, answer)));
    }
    text + &answer.usage.as_ref().map(took).unwrap_or_default()
}

/// The features that placed a passage, the largest contribution first.
fn placed_by(result: &v1::RankedPassage, fusion: Option<&v1::FusionReport>, unread: &str) -> String {
    let model = if result.stage() == v1::Stage::Together { "model in orders" } else { "model" };
    let Some(fusion) = fusion else {
        return if result.stage() == v1::Stage::Retriever { unread } else { model }.to_owned();
    };
    let source = match fusion.source() {
        v1::FusionSource::Retriever => "retriever",
        v1::FusionSource::Bm25 => "BM25",
        v1::FusionSource::Unspecified => "other side",
    };
    let beside = if fusion.embedding_weight.is_some() && result.signals.is_none() { " + embedding" } else { "" };
    let known = result.signals.unwrap_or_default();
    let known = [(model, known.model), ("embedding", known.embedding), (source, known.source)];
    let mut known: Vec<(&str, f64)> = known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    known.sort_by(|left, right| right.1.total_cmp(&left.1));
    if known.is_empty() {
        // The server does not report them, or the scaling does not tell them apart.
        return if result.stage() == v1::Stage::Retriever {
            format!("{source}{beside}")
        } else {
            format!("{model} + {source}{beside}")
        };
    }
    known.iter().map(|(name, value)| format!("{name} {value:+.2}")).collect::<Vec<_>>().join(", ")
}

/// The contribution of each feature, by the names of the protocol.
fn signals(signals: &v1::Signals) -> Value {
    json!({ "model": signals.model, "embedding": signals.embedding, "source": signals.source })
}

fn settled_by(orientation: v1::Orientation) -> &'static str {
    match orientation {
        v1::Orientation::OnePassageScores => "the one-passage scores",
        v1::Orientation::CallerPrior => "the given prior or constraint",
        v1::Orientation::DefaultPrior => "the built-in prior",
        v1::Orientation::Lengths => "prompts of several lengths",
        v1::Orientation::Subsets => "prompts of some of the passages",
        v1::Orientation::None | v1::Orientation::Unspecified => "nothing: there is none",
    }
}

fn arrangement(arranged: &v1::Arrangement, answer: &v1::RerankResponse) -> String {
    let id = |index: &u32| {
        let result = answer.results.iter().find(|result| result.original_index == *index);
        result.map_or_else(|| index.to_string(), |result| result.id.clone())
    };
    let ids: Vec<String> = arranged.original_indices.iter().map(id).collect();
    let observed = (arranged.profile_observations, arranged.profile_passages);
    let origin = plot::origin(arranged.profile_origin());
    let ground = match arranged.ground() {
        v1::ArrangementGround::AnswerProfile => {
            format!("{origin} answer profile of {} questions, {} passages", observed.0, observed.1)
        }
        v1::ArrangementGround::QuestionProfile => {
            format!("{origin} question profile of {} fits, {} passages", observed.0, observed.1)
        }
        v1::ArrangementGround::EffectWithinError => {
            format!("best first: the {origin} profile of {} observations shows no effect beyond its error", observed.0)
        }
        v1::ArrangementGround::NoProfile => {
            "best first: no position profile with enough observations applies".to_owned()
        }
        v1::ArrangementGround::Requested | v1::ArrangementGround::Unspecified => "as requested".to_owned(),
    };
    format!("context order: {} ({ground})", ids.join(", "))
}

fn inline(measured: &v1::InlineUtilityReport) -> String {
    let order = |name: &str, order: Option<&v1::OrderUtility>| {
        let Some(order) = order else { return String::new() };
        let delta = match (order.delta_seper_soft, order.delta_seper_soft_error) {
            (Some(delta), Some(error)) => format!("DeltaSePer {delta:.3} ± {error:.3}, "),
            (Some(delta), None) => format!("DeltaSePer {delta:.3}, "),
            (None, _) => String::new(),
        };
        format!("{name}: {delta}semantic entropy less {:.3} nats\n", order.semantic_entropy_reduction)
    };
    order("given order", measured.given.as_ref()) + &order("new order", measured.arranged.as_ref())
}

pub(super) fn took(usage: &v1::Usage) -> String {
    let ratio = numeric::real(usize::try_from(usage.naive_tokens).unwrap_or(0))
        / numeric::real(usize::try_from(usage.tokens).unwrap_or(0).max(1));
    format!(
        "\ntokens evaluated {} ({} without prefix sharing, {ratio:.1} times as many; {} cached)\n\
         milliseconds: tokenising {:.1}, queue {:.1}, scoring {:.1}, fit {:.1}, in all {:.1}\n",
        usage.tokens,
        usage.naive_tokens,
        usage.cached_tokens,
        usage.tokenise_ms,
        usage.queue_ms,
        usage.score_ms,
        usage.fit_ms,
        usage.total_ms,
    )
}

fn shorten(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    let kept: String = line.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}

fn order_json(order: &v1::OrderUtility) -> Value {
    json!({
        "original_indices": order.original_indices, "delta_seper_soft": order.delta_seper_soft,
        "delta_seper_soft_error": order.delta_seper_soft_error, "delta_seper_hard": order.delta_seper_hard,
        "semantic_entropy_reduction": order.semantic_entropy_reduction,
    })
}

/// A rerank response as JSON, with the names of the protocol. `texts` is the request, if title and text of each passage
/// are to be included.
pub(super) fn rerank_json(answer: &v1::RerankResponse, texts: Option<&RerankRequest>) -> Value {
    let passage = |index: u32| texts?.passages.get(usize::try_from(index).ok()?);
    let results: Vec<Value> = answer
        .results
        .iter()
        .map(|result| {
            let mut members = json!({
                "id": result.id, "original_index": result.original_index, "rank": result.rank, "score": result.score,
                "utility": result.utility, "standard_error": result.standard_error,
                "outranks_next": result.outranks_next, "tokens_cut": result.tokens_cut,
                "stage": result.stage().as_str_name(), "signals": result.signals.as_ref().map(signals),
                "duplicates": result.duplicates,
            });
            if let (Some(members), Some(passage)) = (members.as_object_mut(), passage(result.original_index)) {
                members.insert("title".to_owned(), json!(passage.title));
                members.insert("text".to_owned(), json!(passage.text));
            }
            members
        })
        .collect();
    let diagnostics = answer.diagnostics.as_ref().map(|inner| {
        json!({
            "r2": inner.r2, "loo_r2": inner.loo_r2, "jacobian_rank": inner.jacobian_rank,
            "rank_needed": inner.rank_needed, "condition": inner.condition, "distinct_orders": inner.distinct_orders,
            "noise_variance": inner.noise_variance, "signal": inner.signal, "identifiable": inner.identifiable,
            "scale_identified": inner.scale_identified, "prior_dominated": inner.prior_dominated, "expected_tau": inner.expected_tau,
            "orientation": inner.orientation().as_str_name(), "anchor_correlation": inner.anchor_correlation,
            "objective": inner.objective, "converged": inner.converged,
        })
    });
    let design = answer.design.as_ref().map(|inner| {
        json!({
            "design": inner.design().as_str_name(), "depth": inner.depth, "rounds": inner.rounds, "observations": inner.observations, "blocks": inner.blocks,
            "shared_blocks": inner.shared_blocks,
        })
    });
    json!({
        "results": results,
        "position_bias": answer.position_bias.iter().map(|bias| &bias.weights).collect::<Vec<_>>(),
        "diagnostics": diagnostics,
        "design": design,
        "context_order": answer.context_order.as_ref().map(context_order),
        "utility": answer.utility.as_ref().map(|inner| json!({
            "given": inner.given.as_ref().map(order_json), "arranged": inner.arranged.as_ref().map(order_json),
            "seper_without": inner.seper_without, "judged_pairs": inner.judged_pairs,
        })),
        "fusion": answer.fusion.as_ref().map(|inner| json!({
            "source": inner.source().as_str_name(), "scaling": inner.scaling().as_str_name(), "weight": inner.weight,
            "embedding_weight": inner.embedding_weight,
        })),
        "none_helps": answer.none_helps,
        "none_relevant": answer.none_relevant,
        "score_calibrated": answer.score_calibrated,
        "compression": answer.compression.as_ref().map(super::compress::json),
        "usage": answer.usage.as_ref().map(usage),
        "warnings": answer.warnings,
        "model": answer.model,
        "model_sha256": answer.model_sha256,
        "adapter": answer.adapter.as_ref().map(adapter),
    })
}

/// The cost of a request as JSON.
pub(super) fn usage(usage: &v1::Usage) -> Value {
    json!({
        "tokens": usage.tokens, "naive_tokens": usage.naive_tokens, "cached_tokens": usage.cached_tokens,
        "embedding_tokens": usage.embedding_tokens, "pairs": usage.pairs,
        "steps": usage.steps, "tokenise_ms": usage.tokenise_ms, "queue_ms": usage.queue_ms,
        "score_ms": usage.score_ms, "fit_ms": usage.fit_ms, "total_ms": usage.total_ms,
    })
}

/// The order of a context as JSON.
pub(super) fn context_order(arranged: &v1::Arrangement) -> Value {
    json!({
        "original_indices": arranged.original_indices, "order": arranged.order().as_str_name(),
        "ground": arranged.ground().as_str_name(), "profile_passages": arranged.profile_passages,
        "profile_observations": arranged.profile_observations,
        "profile_origin": arranged.profile_origin().as_str_name(),
        "profile_subject": arranged.profile_subject().as_str_name(),
    })
}

/// An adapter as JSON.
pub(super) fn adapter(adapter: &v1::AdapterInfo) -> Value {
    json!({ "name": adapter.name, "sha256": adapter.sha256, "scale": adapter.scale })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_keep_words_whole_and_become_blocks_if_they_do_not_fit() {
        let of = |name: &str, note: &str| {
            let mut table = table(&["name", "note"]);
            table.set_width(80);
            table.add_row([name, note]);
            shown_in(table, 80)
        };
        let note = "word ".repeat(20);
        assert!(of("all-minilm-l6-v2", &note).contains("│ all-minilm-l6-v2 ┆ word word"));
        let names = ["name"; 8];
        let mut wide = table(&names);
        wide.add_row(["twelve-chars"; 8]);
        assert_eq!(shown_in(wide, 80), "name  twelve-chars\n".repeat(8) + "\n");
        for text in ["東京".repeat(50), "https://example.org/".to_owned() + &"path/".repeat(30)] {
            let mut wide = table(&names);
            wide.add_row([["twelve-chars"; 7].as_slice(), &[text.as_str()]].concat());
            let (shown, narrow) = (shown_in(wide, 80), of("a", &text));
            assert!(shown.lines().chain(narrow.lines()).all(|line| line.width() <= 80), "{shown}{narrow}");
        }
    }

    #[test]
    fn progress_in_a_log_names_what_is_counted() {
        let bar = ProgressBar::hidden().with_prefix("passages");
        bar.set_length(8);
        assert_eq!(progress_line(&bar), "0/8 passages");
        bar.set_position(2);
        bar.set_message("700 tokens/s");
        assert!(progress_line(&bar).starts_with("2/8 passages, 700 tokens/s, about "));
    }

    #[test]
    fn the_time_left_follows_the_mean_pace() {
        let seconds = Duration::from_secs;
        assert_eq!(time_left(24, 40, seconds(720)), Some(seconds(480)));
        assert_eq!((time_left(0, 40, seconds(9)), time_left(40, 40, seconds(9))), (None, Some(Duration::ZERO)));
        assert_eq!(time_left(41, 40, seconds(9)), Some(Duration::ZERO), "more than were announced");
    }

    fn answer(count: u32, close: &[u32]) -> (v1::RerankResponse, RerankRequest) {
        let result = |rank| v1::RankedPassage {
            rank,
            original_index: count - 1 - rank,
            score: 0.9 - f64::from(rank) / 100.0,
            outranks_next: Some(if close.contains(&rank) { 0.51 } else { 0.99 }),
            ..Default::default()
        };
        let passage = |index: u32| {
            let text = format!("{index} {}", "漢字 and more words of a passage that is long".repeat(9));
            engine::types::Passage::untitled(index as usize, text)
        };
        let results = (0..count).map(result).collect();
        let warnings = vec!["a warning of many words ".repeat(9)];
        let request = RerankRequest {
            query: "Which river? ".repeat(20),
            passages: (0..count).map(passage).collect(),
            ..RerankRequest::default()
        };
        (v1::RerankResponse { results, warnings, ..Default::default() }, request)
    }

    /// Not a terminal, so 80 columns.
    #[test]
    fn a_ranking_fits_eighty_columns_and_twenty_lines() {
        let (answer, request) = answer(40, &[0, 1, 4]);
        let text = rerank_table(&answer, &request, false);
        let lines: Vec<&str> = text.lines().collect();
        let columns = |line: &str| line.chars().map(|c| if c > '\u{2fff}' { 2 } else { 1 }).sum::<usize>();
        assert!(lines.iter().all(|line| columns(line) <= 80), "{text}");
        assert!(lines.len() <= 20, "{text}");
        assert!(lines[3].starts_with("now  was  score  passage"), "{text}");
        assert!(lines[4].starts_with("  1   40   0.90  39 ") && lines[4].ends_with('…'), "{text}");
        assert!(text.contains("… 30 more, down to 0.51"), "{text}");
        assert!(text.contains("Places 1–3 and 5–6 are close: "), "{text}");
        let all = RerankRequest { top_n: Some(40), ..request };
        assert!(rerank_table(&answer, &all, false).lines().count() > 40);
    }

    #[test]
    fn an_explanation_has_a_row_per_shown_passage() {
        let (answer, mut request) = answer(3, &[]);
        request.passages[0].text = request.passages[2].text.clone();
        let text = rerank_table(&answer, &request, true);
        assert!(text.contains("(same text as 1)") && !text.contains("close"), "{text}");
        assert!(
            text.contains("utility") && text.lines().filter(|line| line.ends_with(" model")).count() == 3,
            "{text}"
        );
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(shorten("a\n b", 10), "a b");
        assert_eq!(shorten("äöüäöü", 4), "äöü…");
    }
}
