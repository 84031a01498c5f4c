//! A report as a page without references to the network, as Markdown and as JSON lines.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;

use super::report::{Report, Table};
use super::{Analysis, Settings};
use crate::evaluation::compare::tables::machine;
use crate::evaluation::report::{STYLE, escaped, figure, prose};
use engine::task::Task;
use protocol::backend::ModelIdentity;

/// What a report is about.
pub(super) struct About<'a> {
    pub analysis: &'a dyn Analysis,
    pub settings: &'a Settings,
    pub models: &'a ModelIdentity,
    pub answered: usize,
    pub refused: usize,
}

impl About<'_> {
    fn notes(&self) -> Vec<String> {
        let (models, settings) = (self.models, self.settings);
        // The context bounds passages in any case, and what it cut of each is not kept.
        let held = "passages as the context holds them".to_owned();
        let cut = settings.passage_tokens.map_or(held, |most| format!("passages of at most {most} tokens"));
        let adapter = models.adapter.as_ref().map_or_else(String::new, |adapter| format!(", adapter {adapter}"));
        let scorer = models.scorer.as_ref().map_or_else(String::new, |scorer| format!("; scored by {scorer}"));
        let read = if self.analysis.reads_passages() {
            format!(", the first {} passages of each; {cut}", settings.taken(self.analysis))
        } else {
            String::new()
        };
        let refused = if self.refused > 0 { format!("; {} refused", self.refused) } else { String::new() };
        let mut notes = vec![
            format!("{} questions{refused}{read}; seed {}.", self.answered, settings.seed),
            format!(
                "Generator: {} ({}), SHA-256 {}{adapter}{scorer}; prompts {}.",
                models.name, models.encoding, models.generator, models.prompts
            ),
        ];
        if settings.task != Task::default() {
            let labels = settings.task.labels().join(", ");
            let labels = if labels.is_empty() { labels } else { format!(", labels {labels}") };
            notes.push(format!("Task: {}{labels}.", settings.task.kind.name()));
        }
        if self.analysis.needs().entailment {
            notes.push(format!("Entailment model: SHA-256 {}.", models.entailment));
        }
        if settings.statistics.resamples > 0 {
            let percent = settings.statistics.confidence * 100.0;
            let resamples = settings.statistics.resamples;
            notes.push(format!(
                "Brackets are {percent:.0} % bootstrap intervals over questions ({resamples} resamples; a fifth of them for correlations \
                 and ratios)."
            ));
        }
        notes.push(format!("Machine: {}.", machine()));
        notes
    }
}

pub(super) fn html(report: &Report, about: &About<'_>) -> String {
    let title = about.analysis.title();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p.verdict { (report.verdict) }
                @for chart in &report.charts { (figure(&chart.caption, &chart.svg, &html! { p { "The tables below have the numbers." } })) }
                @for one in &report.tables { (table(one)) }
                h2 id="measured" { "How it was measured" }
                ul { @for note in report.notes.iter().cloned().chain(about.notes()) { li { (prose(&note)) } } }
                p { small { "rerankd " (env!("CARGO_PKG_VERSION")) "; figures.jsonl has every number." } }
            }
        }
    };
    page.into_string()
}

/// A value, with its interval in the smaller type of intervals.
fn cell(text: &str) -> Markup {
    match text.split_once(" [") {
        Some((value, interval)) if interval.ends_with(']') => {
            html! { (value) span.interval { " [" (interval) } }
        }
        _ => html! { (text) },
    }
}

fn table(one: &Table) -> Markup {
    if one.rows.iter().all(|row| row.iter().skip(1).all(|cell| cell == "–")) {
        return html! {
            h3 { (one.caption) }
            p { "No number: the values are the same for all questions, or there are too few." }
        };
    }
    html! {
        h3 { (one.caption) }
        div.wide { table {
            thead { tr { @for name in &one.head { th { (name) } } } }
            tbody { @for row in &one.rows { tr { @for (at, one) in row.iter().enumerate() {
                td { @if at == 0 { (one) } @else { (cell(one)) } }
            } } } }
        } }
    }
}

pub(super) fn markdown(report: &Report, about: &About<'_>) -> String {
    let mut text = format!("# {}\n\n{}\n\n", escaped(about.analysis.title()), escaped(&report.verdict));
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    for one in &report.tables {
        text.push_str(&format!("{}:\n\n{}", escaped(&one.caption), line(&one.head)));
        text.push_str(&format!("|---|{}\n", "---:|".repeat(one.head.len().saturating_sub(1))));
        text.extend(one.rows.iter().map(|row| line(row)));
        text.push('\n');
    }
    for note in report.notes.iter().cloned().chain(about.notes()) {
        text.push_str(&format!("- {}\n", escaped(&note)));
    }
    text
}

/// One JSON line a figure, in the form of the benchmarks. An analysis sets no goals.
pub(super) fn figures(report: &Report, about: &About<'_>) -> String {
    let line = |one: &super::report::Figure| {
        let figure = json!({
            "name": format!("{} {}", about.analysis.name(), one.name),
            "value": one.mean.value, "unit": one.unit, "low": one.mean.low, "high": one.mean.high, "n": one.mean.questions,
            "ratio": null, "goal": null, "met": null, "machine": machine(),
            "model": { "model": about.models.name, "sha256": about.models.generator, "encoding": about.models.encoding,
                "adapter": about.models.adapter, "scorer": about.models.scorer },
        });
        format!("{figure}\n")
    };
    report.figures.iter().map(line).collect()
}

/// The figures of a finished analysis, a line each.
pub fn lines(analysis: &dyn Analysis, settings: &Settings, finished: &super::Finished) -> String {
    let about = About { analysis, settings, models: &finished.models, answered: 0, refused: finished.refused };
    figures(&finished.report, &about)
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::super::readings::tests::settings;
    use super::*;

    fn rows(cells: &[&[&str]]) -> Table {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        Table { caption: "c".into(), head: vec!["a".into(), "b".into()], rows: cells.iter().map(row).collect() }
    }

    #[test]
    fn intervals_are_smaller_and_a_table_of_nothing_is_a_sentence() {
        let page = table(&rows(&[&["P [x]", "0.1 [0.0, 0.2]"], &["R", "–"]])).into_string();
        assert!(page.contains("<td>0.1<span class=\"interval\"> [0.0, 0.2]</span></td>"), "{page}");
        assert!(page.contains("<td>P [x]</td>"), "a name keeps its brackets: {page}");
        let page = table(&rows(&[&["P", "–"], &["R", "–"]])).into_string();
        assert!(page.contains("No number") && !page.contains("<table"), "{page}");
        assert_eq!(prose("as `given` is").into_string(), "as <code>given</code> is");
        assert_eq!(prose("a ` b").into_string(), "a ` b");
    }

    /// The page said that passages were whole, though a server cuts those that its context does not hold.
    #[test]
    fn a_page_does_not_say_that_passages_were_whole() {
        let (models, analysis) = (ModelIdentity::scripted(""), find("stability").unwrap());
        let told = |passage_tokens| {
            let settings = Settings { passage_tokens, ..settings() };
            let about = About { analysis, settings: &settings, models: &models, answered: 3, refused: 0 };
            about.notes().remove(0)
        };
        assert_eq!(
            told(None),
            "3 questions, the first 5 passages of each; passages as the context holds them; seed 0."
        );
        assert!(told(Some(64)).contains("; passages of at most 64 tokens; "), "{}", told(Some(64)));
    }

    #[test]
    fn text_cannot_end_a_cell_or_a_line() {
        assert_eq!(escaped("a|b\nc"), "a\\|b c");
        assert_eq!(escaped("<b> <!-- 1 < 2 <3"), "\\<b> \\<!-- 1 < 2 <3");
        // A backslash before a bar would undo the bar's.
        assert_eq!(escaped("a\\|b"), "a\\\\\\|b");
    }
}
