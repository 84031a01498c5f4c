//! The columns of runs and judgements. The header and the separators decide for the whole file, not line by line: with tabs an id may
//! hold spaces.

use std::path::Path;

use rayon::prelude::*;

use super::{FileError, name};
use crate::metrics::quoted;

/// Most columns of a row, and one more.
const MOST: usize = 7;

/// A line at fault.
pub(super) struct Fault<'a> {
    line: &'a str,
    problem: String,
    /// A line that is as this one should be.
    like: Option<&'a str>,
}

impl<'a> Fault<'a> {
    pub fn new(line: &'a str, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into(), like: None }
    }

    /// The error with the line's number.
    pub fn located(&self, text: &str, path: &Path) -> FileError {
        let like = self.like.map_or_else(String::new, |like| format!(", as line {} has", line_number(text, like)));
        FileError(format!("{}:{}: {}{like}", name(path), line_number(text, self.line), self.problem))
    }
}

/// The number of a line, which follows from its offset in the text.
pub(super) fn line_number(text: &str, line: &str) -> usize {
    let before = (line.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..before]).count()
}

/// A kind of file.
pub(super) struct Format {
    /// Columns that a row may have.
    pub counts: &'static [usize],
    /// For a number of columns the places of query, document and number.
    pub places: fn(usize) -> [usize; 3],
    /// What the number is.
    pub number: &'static str,
    /// What a row must have.
    pub wanted: &'static str,
}

/// A row.
pub(super) struct Row<'a> {
    pub query: &'a str,
    pub document: &'a str,
    pub number: f64,
    /// The last column.
    pub last: &'a str,
    /// Where it stands; empty if the file is not of lines.
    pub line: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Tabs,
    Spaces,
}

/// The columns of a line, and how many there are; at most [`MOST`].
fn split(line: &str, separator: Separator) -> ([&str; MOST], usize) {
    let (mut columns, mut count) = ([""; MOST], 0);
    let mut take = |column| {
        columns[count] = column;
        count += 1;
    };
    match separator {
        // The last column is never empty.
        Separator::Tabs => line.trim_ascii_end().split('\t').take(MOST).for_each(|column| take(column.trim_ascii())),
        Separator::Spaces => line.split_ascii_whitespace().take(MOST).for_each(take),
    }
    (columns, count)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// First columns of headers, and their names of labels and scores, without case and punctuation.
const QUERIES: [&str; 6] = ["queryid", "query", "qid", "topic", "topicid", "questionid"];
const NUMBERS: [&str; 8] = ["score", "label", "relevance", "relevancy", "rel", "grade", "judgement", "judgment"];

fn is_header(line: &str, format: &Format) -> bool {
    let separator = if line.trim_ascii().contains('\t') { Separator::Tabs } else { Separator::Spaces };
    let (columns, count) = split(line, separator);
    if !format.counts.contains(&count) {
        return false;
    }
    let [query, _, at] = (format.places)(count);
    let plain = |text: &str| text.chars().filter(|one| one.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let (first, last): (String, String) = (plain(columns[query]), plain(columns[at]));
    number(columns[at]).is_none() && (QUERIES.contains(&first.as_str()) || NUMBERS.contains(&last.as_str()))
}

/// How all lines of a file are separated.
struct Layout<'a> {
    separator: Separator,
    count: usize,
    /// The line that shows it.
    shown_by: &'a str,
}

impl<'a> Layout<'a> {
    /// Of lines without header; `None` if they hold no row.
    fn of(body: &'a str, format: &Format) -> Result<Option<Self>, Fault<'a>> {
        let rows = || body.par_lines().filter(|line| !line.trim_ascii().is_empty());
        let fits = |line: &&str, separator| format.counts.contains(&split(line, separator).1);
        // If columns are the same either way, white space separates: files that were joined may have both.
        let tabs =
            |line: &&str| fits(line, Separator::Tabs) && split(line, Separator::Tabs) != split(line, Separator::Spaces);
        // An id may begin with `#`, so a comment decides only if there is nothing else.
        let plain = |line: &&str| !line.starts_with('#');
        let layout = |separator, line| Self { separator, count: split(line, separator).1, shown_by: line };
        if memchr::memchr(b'\t', body.as_bytes()).is_some() {
            let shown = rows().find_first(|line| plain(line) && tabs(line)).or_else(|| rows().find_first(tabs));
            if let Some(line) = shown {
                return Ok(Some(layout(Separator::Tabs, line)));
            }
        }
        match rows().find_first(plain) {
            Some(line) if fits(&line, Separator::Spaces) => Ok(Some(layout(Separator::Spaces, line))),
            Some(line) => Err(Fault::new(line, format.wanted)),
            None => {
                let marked = rows().find_first(|line| !is_spaced_comment(line) && fits(line, Separator::Spaces));
                Ok(marked.map(|line| layout(Separator::Spaces, line)))
            }
        }
    }

    /// The row of a line; `None` for a comment.
    fn row(&self, line: &'a str, format: &Format) -> Result<Option<Row<'a>>, Fault<'a>> {
        let (columns, count) = split(line, self.separator);
        let [query, document, at] = (format.places)(self.count);
        let by_tabs = if line.contains('\t') { split(line, Separator::Tabs) } else { (columns, 0) };
        let fault = if self.separator == Separator::Spaces && by_tabs.1 > 2 && by_tabs != (columns, count) {
            // Between tabs it has columns that hold spaces, but not as many as a row has.
            Fault::new(line, format!("is separated by tabs, and has {} columns; it {}", by_tabs.1, format.wanted))
        } else if count != self.count {
            let spaces = self.separator == Separator::Spaces;
            let problem = match self.separator {
                Separator::Spaces if format.counts.len() == 1 => format.wanted.to_owned(),
                Separator::Spaces => format!("must have {} columns", self.count),
                Separator::Tabs => format!("must have {} columns with tabs between them", self.count),
            };
            Fault { like: (!spaces || format.counts.len() > 1).then_some(self.shown_by), ..Fault::new(line, problem) }
        } else if columns[query].is_empty() || columns[document].is_empty() {
            Fault::new(line, "must have the ids of a query and of a document; one is empty")
        } else {
            match number(columns[at]) {
                Some(number) if self.separator == Separator::Tabs || !is_spaced_comment(line) => {
                    let (query, document, last) = (columns[query], columns[document], columns[count - 1]);
                    return Ok(Some(Row { query, document, number, last, line }));
                }
                _ => Fault::new(line, format!("the {} must be a number, is {}", format.number, quoted(columns[at]))),
            }
        };
        if line.starts_with('#') { Ok(None) } else { Err(fault) }
    }
}

/// A comment of words looks like a row if it has as many words as a row has columns. No id is `#` alone.
fn is_spaced_comment(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The text behind its header and the comments before that.
fn body<'a>(text: &'a str, format: &Format) -> &'a str {
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if is_header(line, format) {
            return after;
        }
        if !line.trim_ascii().is_empty() && !line.starts_with('#') {
            break;
        }
        rest = after;
    }
    text
}

/// The rows of a text.
pub(super) fn rows<'a>(text: &'a str, format: &Format) -> Result<Vec<Row<'a>>, Fault<'a>> {
    let body = body(text, format);
    let Some(layout) = Layout::of(body, format)? else { return Ok(Vec::new()) };
    let row = |line: &'a str| if line.trim_ascii().is_empty() { Ok(None) } else { layout.row(line, format) };
    let rows: Result<Vec<Option<Row<'a>>>, Fault<'a>> = body.par_lines().map(row).collect();
    match rows {
        Ok(rows) => Ok(rows.into_iter().flatten().collect()),
        // Of several faults any came first.
        Err(fault) => Err(body.lines().find_map(|line| row(line).err()).unwrap_or(fault)),
    }
}
