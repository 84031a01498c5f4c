//! A report as a page without references to the network, as Markdown and as JSON lines.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::chart::Chart;
use super::report::{Figure, Report, Section, Table, machine};

/// Least number of sections for which a page has links to them.
const LINKED: usize = 4;
/// Least number of characters at which the lines of a cell are broken.
const LONG: usize = 40;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
p, li, figure { max-width: 60rem; } code { font-size: .95em; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin-bottom: .3rem; }
nav a { margin-right: 1rem; } figure { margin: 1rem 0; } figcaption { font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .5rem 0; }
th, td { padding: .15rem .6rem; text-align: right; border-bottom: 1px solid var(--soft); white-space: nowrap; }
th.text, td.text, td.long { text-align: left; } td.long { white-space: normal; }
th { border-bottom: 1px solid var(--line); } small, .interval { opacity: .7; } .interval { font-size: .85em; }
details { margin: .3rem 0 1rem; } summary { cursor: pointer; } .verdict { font-size: 1.15rem; font-weight: 600; }
";

/// Text in Markdown that cannot end a table's cell or a line, and begins no HTML element.
pub fn escaped(text: &str) -> String {
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

/// A sentence in which backticks enclose code.
fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // One backtick is unpaired.
        return html! { (text) };
    }
    html! { @for (at, part) in parts.iter().enumerate() { @if at % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// The rows of a table, without its caption.
fn grid(one: &Table) -> Markup {
    let cell = |at: usize, cell: &str| {
        let text = one.is_text(at);
        let (value, interval) = one.parts(at, cell);
        let long = text && cell.chars().count() > LONG;
        html! { td.text[text && !long].long[long] { (value) @if let Some(interval) = interval { span.interval { " " (interval) } } } }
    };
    html! { div.wide { table {
        thead { tr { @for (at, name) in one.head.iter().enumerate() { th.text[one.is_text(at)] { (name) } } } }
        tbody { @for row in &one.rows { tr { @for (at, one) in row.iter().enumerate() { (cell(at, one)) } } } }
    } } }
}

fn table(one: &Table) -> Markup {
    if one.is_empty() && !one.rows.is_empty() {
        return html! {
            h3 { (prose(&one.caption)) }
            p { "No number: the values are the same for all questions, or there are too few." }
        };
    }
    if one.folded {
        return html! { details { summary { (prose(&one.caption)) } (grid(one)) } };
    }
    html! { @if !one.caption.is_empty() { h3 { (prose(&one.caption)) } } (grid(one)) }
}

fn figure(one: &Chart) -> Markup {
    let label: String = one.caption.chars().filter(|c| !matches!(c, '"' | '<' | '>' | '&')).collect();
    html! { figure {
        figcaption { (one.caption) }
        // The library escapes the names in its SVG.
        (PreEscaped(one.svg.replacen("role=\"img\"", &format!("role=\"img\" aria-label=\"{label}\""), 1)))
        @if !one.numbers.rows.is_empty() { details { summary { "Numbers" } (grid(&one.numbers)) } }
    } }
}

fn body(charts: &[Chart], tables: &[Table]) -> Markup {
    html! { @for one in charts { (figure(one)) } @for one in tables { (table(one)) } }
}

impl Report {
    /// The page.
    pub(super) fn html(&self) -> String {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let settings = self.settings.iter().map(|(key, value)| vec![key.replace('_', " "), shown(value)]).collect();
        let settings = Table::new("Settings and models", ["setting", "value"], settings).folded();
        let section = |(at, one): (usize, &Section)| {
            html! {
                h2 id=(format!("s{at}")) { (one.title) }
                @for text in &one.text { p { (prose(text)) } }
                (body(&one.charts, &one.tables))
            }
        };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    p.verdict { (self.verdict) }
                    @for text in &self.text { p { (prose(text)) } }
                    @if self.sections.len() >= LINKED { nav { @for (at, one) in self.sections.iter().enumerate() {
                        a href=(format!("#s{at}")) { (one.title) }
                    } } }
                    (body(&self.charts, &self.tables))
                    @for one in self.sections.iter().enumerate() { (section(one)) }
                    @if !self.notes.is_empty() { h2 { "How it was measured" } ul { @for note in &self.notes { li { (prose(note)) } } } }
                    @if !self.settings.is_empty() { (table(&settings)) }
                    p { small { "rerankd " (env!("CARGO_PKG_VERSION")) "; results.jsonl has every question, figures.jsonl every number." } }
                }
            }
        };
        page.into_string()
    }

    /// The report without charts, to be pasted into a document.
    pub(super) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", escaped(&self.title));
        let mut part = |heading: Option<&str>, sentences: &[String], tables: &[Table]| {
            if let Some(heading) = heading {
                text.push_str(&format!("## {}\n\n", escaped(heading)));
            }
            for sentence in sentences {
                text.push_str(&format!("{}\n\n", escaped(sentence)));
            }
            for table in tables {
                text.push_str(&format!("{}\n", markdown(table)));
            }
        };
        part(None, std::slice::from_ref(&self.verdict), &[]);
        part(None, &self.text, &self.tables);
        for section in &self.sections {
            part(Some(&section.title), &section.text, &section.tables);
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("- {}\n", escaped(note))));
        text
    }

    /// A JSON line per figure, in the form of the benchmarks.
    pub fn lines(&self) -> String {
        let machine = machine();
        let line = |one: &Figure| {
            let mut figure = json!({
                "name": one.name, "value": one.mean.value, "unit": one.unit, "low": one.mean.low, "high": one.mean.high,
                "questions": one.mean.questions, "standard_error": null, "ratio": null, "goal": null, "met": null,
                "machine": machine, "model": self.model,
            });
            if let Some(members) = figure.as_object_mut() {
                members.extend(one.more.clone());
            }
            format!("{figure}\n")
        };
        self.figures.iter().map(line).collect()
    }
}

/// A table in Markdown.
pub fn markdown(one: &Table) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let caption = if one.caption.is_empty() { String::new() } else { format!("{}:\n\n", escaped(&one.caption)) };
    let sides = (0..one.head.len()).map(|column| if one.is_text(column) { "---|" } else { "---:|" });
    let rows = one.rows.iter().map(|row| line(row));
    format!("{caption}{}|{}\n{}", line(&one.head), sides.collect::<String>(), rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cells: &[&[&str]]) -> Table {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        Table::new("c", ["a", "b"], cells.iter().map(row).collect())
    }

    #[test]
    fn intervals_are_smaller_and_an_empty_table_is_a_sentence() {
        let page = table(&rows(&[&["P [x]", "0.1 [0.0, 0.2]"], &["R", "–"]])).into_string();
        assert!(
            page.contains("<td class=\"\">0.1<span class=\"interval\"> [0.0, 0.2]</span></td>")
                || page.contains("<td>0.1<span class=\"interval\"> [0.0, 0.2]</span></td>"),
            "{page}"
        );
        assert!(page.contains(">P [x]</td>"), "a name keeps its brackets: {page}");
        let page = table(&rows(&[&["P", "–"], &["R", "–"]])).into_string();
        assert!(page.contains("No number") && !page.contains("<table"), "{page}");
        assert_eq!(prose("as `given` is").into_string(), "as <code>given</code> is");
        assert_eq!(prose("a ` b").into_string(), "a ` b");
    }

    #[test]
    fn columns_of_words_are_left_aligned() {
        let text = markdown(&rows(&[&["P", "0.1 [0.0, 0.2]"], &["R", "–"]]));
        assert_eq!(text, "c:\n\n| a | b |\n|---|---:|\n| P | 0.1 [0.0, 0.2] |\n| R | – |\n");
        assert!(markdown(&rows(&[&["P", "yes"], &["R", "0.1"]])).contains("|---|---|"));
    }

    #[test]
    fn text_cannot_end_a_cell_or_a_line() {
        assert_eq!(escaped("a|b\nc"), "a\\|b c");
        assert_eq!(escaped("<b> <!-- 1 < 2 <3"), "\\<b> \\<!-- 1 < 2 <3");
        // A backslash before a bar would undo the bar's.
        assert_eq!(escaped("a\\|b"), "a\\\\\\|b");
    }
}
