//! report.html: one file without references to the network.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Map, Value};

use super::charts::{self, Axes, Curve};
use super::data::Query;
use super::line::Line;
use super::summary::{Coefficient, Comparison, Mean, Row, Study, Summary, System};
use super::{EvaluationError, Plan, verdict};
use numeric::real;
use rag_metrics::resample::format_p_value;

/// Questions shown with each comparison.
const SHOWN: usize = 20;

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
p, li, figure { max-width: 60rem; } code { font-size: .95em; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin-bottom: .3rem; }
nav a { margin-right: 1rem; } figure { margin: 1rem 0; } figcaption { font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .5rem 0; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--soft); white-space: nowrap; }
tr.begins td { border-top: 1px solid var(--line); }
th:first-child, td:first-child, td.text, th.text { text-align: left; } td.long { text-align: left; white-space: normal; }
th { border-bottom: 1px solid var(--line); } small, .interval { opacity: .7; } .interval { font-size: .85em; }
details { margin: .3rem 0 1rem; } summary { cursor: pointer; } .verdict { font-size: 1.15rem; font-weight: 600; }
";

/// Text in Markdown that cannot end a table's cell or a line, and begins no element of HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let begins = |next: &char| next.is_ascii_alphabetic() || "!/?".contains(*next);
        match character {
            '\\' | '|' => escaped.extend(['\\', character]),
            '<' if characters.peek().is_some_and(begins) => escaped.push_str("\\<"),
            '\r' | '\n' => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A sentence, in which backticks enclose what is typed.
pub(crate) fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // One of them encloses nothing.
        return html! { (text) };
    }
    html! { @for (at, part) in parts.iter().enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

pub(super) fn html(
    plan: &Plan,
    summary: &Summary,
    lines: &[Line],
    queries: &[Query],
    manifest: &Map<String, Value>,
) -> Result<String, EvaluationError> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Retrieval evaluation: " (plan.systems.join(", ")) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Retrieval evaluation: " (plan.systems.join(", ")) }
                p.verdict { (verdict::of(summary, &plan.settings.statistics)) }
                (overview(plan, summary))
                nav {
                    a href="#metrics" { "Metrics" }
                    @if !summary.comparisons.is_empty() { a href="#comparisons" { "Comparisons" } }
                    a href="#ranks" { "Utility by rank" }
                    @if !summary.delta_seper.is_empty() { a href="#delta" { "DeltaSePer" } }
                    a href="#bias" { "Position bias" }
                    a href="#correlations" { "Correlations" }
                    @if !summary.warned.is_empty() { a href="#warnings" { "Warnings" } }
                    a href="#failed" { "Failed questions" }
                    a href="#settings" { "Settings" }
                }
                (metrics(summary))
                @if !summary.comparisons.is_empty() { (comparisons(plan, summary, lines, queries)) }
                (ranks(summary)?)
                (deltas(summary)?)
                (bias(summary)?)
                (correlations(summary))
                @if !summary.warned.is_empty() { (warned(summary)) }
                (failed(summary))
                (settings(manifest))
            }
        }
    };
    Ok(page.into_string())
}

fn overview(plan: &Plan, summary: &Summary) -> Markup {
    let cost = &summary.cost;
    let each = |total: f64| total / real(summary.evaluated.max(1));
    let count = |number: u64| real(usize::try_from(number).unwrap_or(usize::MAX));
    let (rerank_tokens, many) = (summary.rerank_tokens(), plan.settings.concurrency);
    let beside = if many > 1 { format!(", {many} questions at once") } else { String::new() };
    html! {
        p {
            (summary.evaluated) " of " (summary.questions) " questions evaluated"
            @if !summary.failed.is_empty() { ", " a href="#failed" { (summary.failed.len()) " failed" } }
            ". The generator evaluated or had kept " (cost.tokens) " tokens, " (format!("{:.0}", each(count(cost.tokens))))
            " a question; without sharing prompts it would have been " (cost.naive_tokens) ". "
            @if rerank_tokens > 0 { "The rankings took " (rerank_tokens) " tokens more. " }
            @if cost.judged_pairs > 0 { "The entailment model judged " (cost.judged_pairs) " pairs. " }
            @if cost.timed > 0 {
                (format!("{:.0} seconds, {:.2} a question", cost.seconds, cost.seconds / real(cost.timed))) (beside)
                @if cost.timed < summary.questions { " (of " (cost.timed) " with a recorded time)" }
                "."
            }
        }
    }
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

fn interval(low: Option<f64>, high: Option<f64>) -> Markup {
    html! { @if let (Some(low), Some(high)) = (low, high) { span.interval { " [" (format!("{low:.3}")) ", " (format!("{high:.3}")) "]" } } }
}

fn mean_cell(mean: &Mean) -> Markup {
    html! { td { (number(mean.value)) (interval(mean.low, mean.high)) } }
}

/// A table with one row a number and one column a system.
fn table(systems: &[System], pick: fn(&System) -> &Vec<Row>, with_metric: bool) -> Markup {
    let count = systems.first().map_or(0, |system| pick(system).len());
    html! {
        div.wide { table {
            thead { tr {
                th { "labels" }
                @if with_metric { th.text { "metric" } }
                @for system in systems { th { (system.name) } }
                th { "questions" }
            } }
            tbody { @for at in 0..count {
                @let first = &pick(&systems[0])[at];
                @let begins = at == 0 || pick(&systems[0])[at - 1].annotator != first.annotator;
                tr.begins[begins && with_metric] {
                    td { @if begins { (first.annotator) } }
                    @if with_metric { td.text { (first.metric.as_deref().unwrap_or_default()) } }
                    @for system in systems { (mean_cell(&pick(system)[at].mean)) }
                    td { (first.mean.questions) }
                }
            } }
        } }
    }
}

fn metrics(summary: &Summary) -> Markup {
    html! {
        h2 id="metrics" { "Metrics over the labels" }
        p { "Means over questions with bootstrap intervals. A label is the quality of the generator's answer from the passage "
            "alone. P is the mean of the labels, Success their maximum, and nDCG takes them as gains; the other metrics count the "
            "passages whose label reaches the threshold, which beside provenance is for its labels alone; those of the others then count from one half on." }
        (table(&summary.systems, |system| &system.metrics, true))
        @if summary.systems.iter().any(|system| !system.end_to_end.is_empty()) {
            h3 { "End-to-end answers" }
            p { "The generator answers from the whole list in its context order: the order in which the passages stand in the prompt, "
                "as the rerank response gives it. Metrics are over the ranking." }
            (table(&summary.systems, |system| &system.end_to_end, false))
            (contexts(&summary.systems))
        }
    }
}

/// The context orders of the end-to-end answers.
fn contexts(systems: &[System]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "system" } th.text { "context order" } th { "questions" } th { "not in the order of the ranking" }
            } }
            tbody { @for system in systems { @for context in &system.contexts { tr {
                td { (system.name) } td.text { (context.order) } td { (context.questions) } td { (context.differing) }
            } } } }
        } }
    }
}

fn correlations(summary: &Summary) -> Markup {
    let cell = |one: &Coefficient| html! { td { (number(one.value)) (interval(one.low, one.high)) } td { (format_p_value(one.p_value)) } };
    let mut targets: Vec<(&str, Vec<&Study>, usize)> = Vec::new();
    for study in &summary.correlations {
        let at = targets.iter().position(|(target, ..)| *target == study.target).unwrap_or_else(|| {
            targets.push((study.target, Vec::new(), 0));
            targets.len() - 1
        });
        if study.kendall_tau_b.value.is_some() { targets[at].1.push(study) } else { targets[at].2 += 1 }
    }
    let first = targets.iter().position(|(_, studies, _)| !studies.is_empty());
    html! {
        h2 id="correlations" { "Correlation with the end-to-end answer" }
        @if targets.is_empty() { p { "No end-to-end answers were scored." } }
        @for (at, (target, studies, flat)) in targets.iter().enumerate() {
            details open[Some(at) == first] {
                summary { "Quality of the end-to-end answer by " (target) }
                @if !studies.is_empty() {
                    div.wide { table {
                        thead { tr {
                            th { "system" } th.text { "labels" } th.text { "metric" } th { "n" }
                            th { "τ-b" } th { "p" } th { "ρ" } th { "p" } th { "r" } th { "p" }
                        } }
                        tbody { @for study in studies {
                            tr {
                                td { (study.system) } td.text { (study.annotator) } td.text { (study.metric) } td { (study.questions) }
                                (cell(&study.kendall_tau_b)) (cell(&study.spearman_rho)) (cell(&study.pearson_r))
                            }
                        } }
                    } }
                }
                @if *flat > 0 { p { small { (flat) " more have no correlation, because they or the answers' scores are the same for all questions." } } }
            }
        }
    }
}

fn comparisons(plan: &Plan, summary: &Summary, lines: &[Line], queries: &[Query]) -> Markup {
    html! {
        h2 id="comparisons" { "Comparisons" }
        p { "Second system less first on the same questions, with " (summary.comparisons[0].test) " p-values "
            "that are not corrected for multiple comparisons." }
        @for comparison in &summary.comparisons {
            h3 { (comparison.system) " against " (comparison.against) }
            div.wide { table {
                thead { tr { th { "labels" } th.text { "metric" } th { "difference" } th { "p" } th { "wins" } th { "ties" } th { "losses" } } }
                tbody { @for one in comparison.differences.iter().filter(|one| one.wins + one.losses > 0) {
                    tr {
                        td { (one.annotator) } td.text { (one.metric.as_deref().unwrap_or("end to end")) }
                        td { (format!("{:+.3}", one.difference)) (interval(one.low, one.high)) }
                        td { (format_p_value(one.p_value)) } td { (one.wins) } td { (one.ties) } td { (one.losses) }
                    }
                } }
            } }
            @let alike = comparison.differences.iter().filter(|one| one.wins + one.losses == 0).count();
            @if alike > 0 { p { small { (alike) " more numbers are equal on every question." } } }
            (by_question(plan, comparison, lines, queries))
        }
    }
}

/// The questions on which two systems differ most: by the end-to-end answer where answers were scored, else by the first
/// metric, under the annotator by which most questions differ.
fn by_question(plan: &Plan, comparison: &Comparison, lines: &[Line], queries: &[Query]) -> Markup {
    let metric = plan.metrics.first().map(ToString::to_string).unwrap_or_default();
    let value = |line: &Line, system: &str, annotator: &str| {
        let ranked = line.systems.get(system)?;
        let over_labels = || ranked.metrics.get(annotator)?.get(&metric).copied().flatten();
        if plan.end_to_end { ranked.end_to_end.get(annotator).copied() } else { over_labels() }
    };
    let differing = |annotator: &'static str| -> Vec<(f64, f64, &Query)> {
        let both = |line: &Line| {
            Some((value(line, &comparison.against, annotator)?, value(line, &comparison.system, annotator)?))
        };
        let rows = lines.iter().zip(queries).filter_map(|(line, query)| both(line).map(|(one, two)| (one, two, query)));
        rows.filter(|(first, second, _)| (second - first).abs() > 1e-12).collect()
    };
    let names = plan.annotators.iter().map(|annotator| annotator.name());
    // `rev` makes it the first of several annotators with the same number of questions.
    let best = names.map(|name| (name, differing(name))).rev().max_by_key(|(_, rows)| rows.len());
    let Some((annotator, mut rows)) = best.filter(|(_, rows)| !rows.is_empty()) else { return html! {} };
    rows.sort_by(|one, other| (other.1 - other.0).abs().total_cmp(&(one.1 - one.0).abs()));
    let what = if plan.end_to_end { "the end-to-end answer" } else { &metric };
    html! {
        details {
            summary { "Question by question: " (what) " by " (annotator) " differs on " (rows.len()) }
            div.wide { table {
                thead { tr { th { "question" } th { (comparison.against) } th { (comparison.system) } th { "difference" } } }
                tbody { @for (first, second, query) in rows.iter().take(SHOWN) {
                    tr {
                        td.long { (query.question) " " small { (query.id) } }
                        td { (number(Some(*first))) } td { (number(Some(*second))) } td { (format!("{:+.3}", second - first)) }
                    }
                } }
            } }
        }
    }
}

/// A chart with its numbers as a table.
pub(crate) fn figure(caption: &str, svg: &str, numbers: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (caption) }
            // The library escapes the names in its SVG.
            (PreEscaped(svg.replacen("role=\"img\"", &format!("role=\"img\" aria-label=\"{caption}\""), 1)))
            details { summary { "Numbers" } div.wide { (numbers) } }
        }
    }
}

fn curve_table(head: &str, curves: &[Curve]) -> Markup {
    let longest = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
    html! { table {
        thead { tr { th { (head) } @for rank in 1..=longest { th { (rank) } } } }
        tbody { @for curve in curves { tr { td { (curve.name) } @for value in &curve.values { td { (format!("{value:.3}")) } } } } }
    } }
}

fn ranks(summary: &Summary) -> Result<Markup, EvaluationError> {
    let mut parts = Vec::new();
    for system in &summary.systems {
        let of_system = summary.utility_by_rank.iter().filter(|curve| curve.system == system.name);
        let curves: Vec<Curve> =
            of_system.map(|curve| Curve { name: curve.annotator.to_owned(), values: curve.by_rank.clone() }).collect();
        let svg = charts::lines(&curves, &Axes { x: "rank", y: "mean label" })?;
        let caption = format!("Mean label by rank, system {}", plain(&system.name));
        let counts = summary.utility_by_rank.iter().find(|curve| curve.system == system.name);
        let numbers = html! {
            (curve_table("labels", &curves))
            p { small { "Questions whose list reaches each rank: "
                (counts.iter().flat_map(|curve| &curve.questions).map(ToString::to_string).collect::<Vec<_>>().join(", ")) } }
        };
        parts.push(figure(&caption, &svg, &numbers));
    }
    Ok(html! { h2 id="ranks" { "Utility by rank" } @for part in &parts { (part) } })
}

fn deltas(summary: &Summary) -> Result<Markup, EvaluationError> {
    let mut parts = Vec::new();
    for histogram in &summary.delta_seper {
        let svg = charts::bars(&histogram.edges, &histogram.counts, &Axes { x: "DeltaSePer", y: "passages" })?;
        let caption = format!("Passages by {}, mean {:.3}", histogram.annotator, histogram.mean);
        let numbers = html! { table {
            thead { tr { th { "from" } th { "to" } th { "passages" } } }
            tbody { @for (ends, count) in histogram.edges.windows(2).zip(&histogram.counts) {
                tr { td { (format!("{:.1}", ends[0])) } td { (format!("{:.1}", ends[1])) } td { (count) } }
            } }
        } };
        parts.push(figure(&caption, &svg, &numbers));
    }
    Ok(
        html! { @if !parts.is_empty() { h2 id="delta" { "DeltaSePer of single passages" } @for part in &parts { (part) } } },
    )
}

fn bias(summary: &Summary) -> Result<Markup, EvaluationError> {
    let named = |bias: &super::summary::Bias| Curve {
        name: format!("{}, {} fits of {} positions", bias.system, bias.questions, bias.weights.len()),
        values: bias.weights.clone(),
    };
    let curves: Vec<Curve> = summary.position_bias.iter().map(named).collect();
    let body = if curves.is_empty() {
        html! { p { "No ranking was made by MOI, which fits the position bias (--method moi)." } }
    } else {
        let svg = charts::lines(&curves, &Axes { x: "position", y: "mean weight" })?;
        figure("Fitted position weights of the longest prompts scored", &svg, &curve_table("fits", &curves))
    };
    Ok(html! { h2 id="bias" { "Position bias" } (body) })
}

fn warned(summary: &Summary) -> Markup {
    html! {
        h2 id="warnings" { "Warnings" }
        div.wide { table {
            thead { tr { th { "of" } th { "questions" } th.text { "the first of its kind" } } }
            tbody { @for one in &summary.warned { tr { td { (one.ranking) } td { (one.questions) } td.long { (one.warning) } } } }
        } }
    }
}

fn failed(summary: &Summary) -> Markup {
    html! {
        h2 id="failed" { "Failed questions" }
        @if summary.failed.is_empty() { p { "None." } } @else {
            div.wide { table {
                thead { tr { th { "question" } th.text { "error" } } }
                tbody { @for one in &summary.failed { tr { td { (one.id) } td.long { (one.error) } } } }
            } }
        }
    }
}

fn settings(manifest: &Map<String, Value>) -> Markup {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    html! {
        h2 id="settings" { "Settings" }
        table { tbody { @for (key, value) in manifest { tr { td { (key.replace('_', " ")) } td.long { (shown(value)) } } } } }
        p { small { "rerankd " (env!("CARGO_PKG_VERSION")) "; results.jsonl has every question, summary.json every number." } }
    }
}

/// A name without characters that HTML attributes reserve.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '"' | '<' | '>' | '&')).collect()
}
