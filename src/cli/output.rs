//! Output of the commands: results on standard output, everything else on standard error.

use std::io::{IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::Failure;
use crate::engine::rerank::RerankRequest;
use crate::rpc::v1;

/// Whether results go to a person.
pub(super) fn on_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether somebody watches standard error.
pub(super) fn progress_wanted() -> bool {
    std::io::stderr().is_terminal()
}

/// Writes text to standard output. A reader that closed the pipe has all it wanted.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Other(error.into())),
        _ => Ok(()),
    }
}

/// Writes a JSON document and a line end.
pub(super) fn json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Writes a complaint to standard error.
pub(super) fn complain(text: &str) {
    // Where standard error is closed there is nobody left to tell.
    let _ = writeln!(std::io::stderr().lock(), "rerankd: {text}");
}

/// A table with a head.
pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head);
    table
}

/// The answer for people: the ranking, the bias as bars, and what it took.
pub(super) fn rerank_table(answer: &v1::RerankResponse, request: &RerankRequest) -> String {
    let mut table = table(&["rank", "was", "id", "utility (nats)", "± se", "P(> next)", "score", "passage"]);
    for column in [0, 1, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let optional =
        |number: Option<f64>, digits: usize| number.map_or_else(|| "–".to_owned(), |x| format!("{x:.digits$}"));
    for result in &answer.results {
        let passage = &request.passages[result.original_index as usize];
        table.add_row([
            (result.rank + 1).to_string(),
            (result.original_index + 1).to_string(),
            result.id.clone(),
            format!("{:.2}", result.utility),
            optional(result.standard_error, 2),
            optional(result.outranks_next, 2),
            format!("{:.3}", result.score),
            shorten(&passage.text, 60),
        ]);
    }
    let mut text = format!("{table}\n");
    for bias in answer.position_bias.iter().filter(|bias| bias.weights.len() > 1) {
        text.push_str(&bars(&bias.weights));
    }
    if let Some(diagnostics) = &answer.diagnostics {
        text.push_str(&format!(
            "direction settled by {}; expected Kendall tau {:.2}{}\n",
            settled_by(diagnostics.orientation()),
            diagnostics.expected_tau,
            if diagnostics.prior_dominated { "; the prior decided what the scores left open" } else { "" },
        ));
    }
    if let Some(usage) = &answer.usage {
        text.push_str(&took(usage));
    }
    for warning in &answer.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    text
}

fn bars(weights: &[f64]) -> String {
    const WIDTH: f64 = 40.0;
    let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut text = "\nposition bias (weight of each place in a prompt of ".to_owned();
    text.push_str(&format!("{})\n", weights.len()));
    for (position, weight) in weights.iter().enumerate() {
        let eighths = (weight / largest * WIDTH * 8.0).round();
        let mut bar = String::new();
        let mut left = eighths;
        while left >= 8.0 {
            bar.push('█');
            left -= 8.0;
        }
        let rest = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        if let Some(part) = (1..8_u8).rev().find(|part| left >= f64::from(*part)) {
            bar.push(rest[usize::from(part) - 1]);
        }
        text.push_str(&format!("{:>4}  {weight:.3}  {bar}\n", position + 1));
    }
    text
}

fn settled_by(orientation: v1::Orientation) -> &'static str {
    match orientation {
        v1::Orientation::OnePassageScores => "the one-passage scores",
        v1::Orientation::CallerPrior => "the given prior",
        v1::Orientation::DefaultPrior => "the built-in prior",
        v1::Orientation::Lengths => "prompts of several lengths",
        v1::Orientation::None | v1::Orientation::Unspecified => "nothing: there is none",
    }
}

fn took(usage: &v1::Usage) -> String {
    let ratio = crate::measure::real(usize::try_from(usage.naive_tokens).unwrap_or(0))
        / crate::measure::real(usize::try_from(usage.tokens).unwrap_or(0).max(1));
    format!(
        "\ntokens evaluated {} (from scratch {}, {ratio:.1} times as many; {} from earlier requests)\n\
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

/// The answer for programs; names as in the protocol.
pub(super) fn rerank_json(answer: &v1::RerankResponse) -> Value {
    let results: Vec<Value> = answer
        .results
        .iter()
        .map(|result| {
            json!({
                "id": result.id, "original_index": result.original_index, "rank": result.rank, "score": result.score,
                "utility": result.utility, "standard_error": result.standard_error,
                "outranks_next": result.outranks_next, "tokens_cut": result.tokens_cut,
            })
        })
        .collect();
    let diagnostics = answer.diagnostics.as_ref().map(|inner| {
        json!({
            "r2": inner.r2, "loo_r2": inner.loo_r2, "jacobian_rank": inner.jacobian_rank,
            "rank_needed": inner.rank_needed, "condition": inner.condition, "distinct_orders": inner.distinct_orders,
            "noise_variance": inner.noise_variance, "signal": inner.signal, "identifiable": inner.identifiable,
            "prior_dominated": inner.prior_dominated, "expected_tau": inner.expected_tau,
            "orientation": inner.orientation().as_str_name(), "anchor_correlation": inner.anchor_correlation,
            "objective": inner.objective,
        })
    });
    let design = answer.design.as_ref().map(|inner| {
        json!({
            "design": inner.design().as_str_name(), "depth": inner.depth, "rounds": inner.rounds, "observations": inner.observations, "blocks": inner.blocks,
            "shared_blocks": inner.shared_blocks,
        })
    });
    let usage = answer.usage.as_ref().map(|inner| {
        json!({
            "tokens": inner.tokens, "naive_tokens": inner.naive_tokens, "cached_tokens": inner.cached_tokens,
            "steps": inner.steps, "tokenise_ms": inner.tokenise_ms, "queue_ms": inner.queue_ms,
            "score_ms": inner.score_ms, "fit_ms": inner.fit_ms, "total_ms": inner.total_ms,
        })
    });
    json!({
        "results": results,
        "position_bias": answer.position_bias.iter().map(|bias| &bias.weights).collect::<Vec<_>>(),
        "diagnostics": diagnostics,
        "design": design,
        "usage": usage,
        "warnings": answer.warnings,
        "model": answer.model,
        "model_sha256": answer.model_sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_belongs_to_the_largest_weight() {
        let text = bars(&[0.5, 0.25, 0.0]);
        let length = |line: usize| text.lines().nth(line + 2).unwrap().chars().filter(|c| *c == '█').count();
        assert_eq!((length(0), length(1), length(2)), (40, 20, 0));
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(shorten("a\n b", 10), "a b");
        assert_eq!(shorten("äöüäöü", 4), "äöü…");
    }
}
