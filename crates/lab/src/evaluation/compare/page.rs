//! compare.html: one file without references to the network. It opens with the verdict.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::summary::{Group, NDCG, Row, SECONDS, Summary, TOKENS};
use super::tables::{self, Cell, Grid};
use super::{Settings, notes};
use crate::evaluation::EvaluationError;
use crate::evaluation::charts::{self, Axes, Point};
use crate::evaluation::report::{STYLE, figure, prose};
use protocol::backend::ModelIdentity;

pub(super) fn html(settings: &Settings, summary: &Summary, models: &ModelIdentity) -> Result<String, EvaluationError> {
    let mut sections = Vec::new();
    for (at, group) in summary.groups.iter().enumerate() {
        sections.push(section(group, at == 0)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Ranking methods compared" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Ranking methods compared" }
                @if let Some(first) = summary.groups.first() { p.verdict { (first.verdict.sentence) } }
                @for part in &sections { (part) }
                h2 id="measured" { "How it was measured" }
                ul { @for note in notes::of(settings, summary, models) { li { (prose(&note)) } } }
                @if !summary.failed.is_empty() { (failed(summary)) }
                p { small { "rerankd " (env!("CARGO_PKG_VERSION")) "; results.jsonl has every ranking, figures.jsonl every number." } }
            }
        }
    };
    Ok(page.into_string())
}

/// The first section's verdict stands above it.
fn section(group: &Group, is_first: bool) -> Result<Markup, EvaluationError> {
    let grids = tables::of(group);
    let (first, others) = grids.split_at(1);
    // Tokens of two models are not alike. In milliseconds, because the axis begins at 1.
    let (cost, unit, head, x) = match group.scorer {
        Some(_) => (SECONDS, 1e3, "milliseconds", "milliseconds a question"),
        None => (TOKENS, 1.0, "tokens", "tokens of the generator a question, median"),
    };
    let caption = format!("Gain in nDCG@10 over the given order, by {head} a question");
    let points = points(&group.rows, cost, unit);
    let svg = charts::scatter(&points, &Axes { x, y: "nDCG@10 over given" })?;
    let numbers = html! { table {
        thead { tr { th { "ranking" } th { (head) } th { "gain" } } }
        tbody { @for one in &points {
            tr { td { (one.name) } td { (format!("{:.0}", one.x)) } td { (format!("{:+.3}", one.y)) } }
        } }
    } };
    Ok(html! {
        h2 { (group.name) }
        @if !is_first { p.verdict { (group.verdict.sentence) } }
        @for sentence in group.advice() { p { (sentence) } }
        @for grid in first { (table(grid)) }
        (figure(&caption, &svg, &numbers))
        @for grid in others { (table(grid)) }
    })
}

/// `unit` is what one of the axis is in a `cost`.
fn points(rows: &[Row], cost: usize, unit: f64) -> Vec<Point> {
    let point = |row: &Row| {
        row.measures.get(NDCG).and_then(|mean| mean.value)?;
        let gain = row.over_given.as_ref();
        Some(Point {
            name: row.name.clone(),
            x: row.measures.get(cost)?.value? * unit,
            y: gain.map_or(0.0, |gain| gain.difference),
            bounds: gain.and_then(|gain| gain.low.zip(gain.high)),
        })
    };
    rows.iter().filter_map(point).collect()
}

fn table(grid: &Grid) -> Markup {
    let cell = |cell: &Cell| {
        html! { td.long[cell.is_long] { (cell.value) @if let Some(interval) = &cell.interval { span.interval { " " (interval) } } } }
    };
    html! {
        h3 { (prose(grid.caption)) }
        div.wide { table {
            thead { tr { @for name in &grid.head { th { (name) } } } }
            tbody { @for row in &grid.rows { tr { @for one in row { (cell(one)) } } } }
        } }
    }
}

fn failed(summary: &Summary) -> Markup {
    html! {
        h2 id="failed" { "Questions that a method refused" }
        div.wide { table {
            thead { tr { th { "question" } th.text { "method and error" } } }
            tbody { @for one in &summary.failed { tr { td { (one.id) } td.long { (one.error) } } } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::compare::summary::MEASURES;
    use crate::evaluation::summary::Mean;

    /// What is below 1 stands at the left end of the axis: in seconds that were all rows of a quick model.
    #[test]
    fn rows_of_less_than_a_second_stand_apart() {
        let row = |name: &str, seconds: f64| {
            let of = |value: f64| Mean { value: Some(value), low: None, high: None, questions: 40 };
            let mut measures = vec![of(0.5); MEASURES.len()];
            measures[SECONDS] = of(seconds);
            Row { measures, ..Row::named(name) }
        };
        let points = points(&[row("a", 0.05), row("a+generator", 0.9)], SECONDS, 1e3);
        let svg = charts::scatter(&points, &Axes { x: "", y: "" }).unwrap();
        // Each point stands beside its circle in the legend.
        let circles = svg.split("<circle cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let places: std::collections::BTreeSet<&str> = circles.collect();
        assert_eq!(places.len(), 3, "two places and that of the legend: {svg}");
    }
}
