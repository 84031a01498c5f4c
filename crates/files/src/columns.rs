//! The columns of runs and judgements. Header and separators are decided once for the whole file, not per line. With
//! tabs, an id may hold spaces.

use std::path::Path;

use rayon::prelude::*;

use super::{FileError, name};
use rag_metrics::quoted;

/// Most columns that are read from a line.
const MOST: usize = 12;

/// A faulty line.
pub(super) struct Fault<'a> {
    line: &'a str,
    problem: String,
    /// An example of a correct line.
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

/// The number of a line, computed from its offset in the text.
pub(super) fn line_number(text: &str, line: &str) -> usize {
    let before = (line.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..before]).count()
}

/// A kind of file.
pub(super) struct Format {
    /// Allowed numbers of columns.
    pub counts: &'static [usize],
    /// The columns of query, document and number, for a number of columns.
    pub places: fn(usize) -> [usize; 3],
    /// The column of the tag, if rows have one.
    pub tag: Option<usize>,
    /// Name of the number in errors.
    pub number: &'static str,
    /// The requirement for a row, for errors.
    pub wanted: &'static str,
}

/// A row. Its texts are slices of the file's text, so its line number can be computed.
pub struct Row<'a> {
    pub query: &'a str,
    pub document: &'a str,
    pub number: f64,
}

/// All rows of a file, and the tag of the first one.
pub(super) struct Rows<'a> {
    pub rows: Vec<Row<'a>>,
    pub tag: Option<&'a str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Tabs,
    Spaces,
}

/// The columns of a line, and their count; at most [`MOST`].
fn split(line: &str, separator: Separator) -> ([&str; MOST], usize) {
    let (mut columns, mut count) = ([""; MOST], 0);
    let mut take = |column| {
        columns[count] = column;
        count += 1;
    };
    match separator {
        // Trailing white space is removed, so the last column is not empty.
        Separator::Tabs => line.trim_ascii_end().split('\t').take(MOST).for_each(|column| take(column.trim_ascii())),
        Separator::Spaces => line.split_ascii_whitespace().take(MOST).for_each(take),
    }
    (columns, count)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Names of columns, without case and punctuation. If a header has several, the first in these lists counts. PyTerrier
/// writes a number as well as a name for a document, and a text as well as an id for a query.
const QUERIES: &[&str] = &["queryid", "qid", "topicid", "questionid", "topic", "query"];
const DOCUMENTS: &[&str] =
    &["corpusid", "docno", "documentid", "docid", "did", "passageid", "pid", "document", "doc", "passage"];
const NUMBERS: &[&str] =
    &["score", "label", "relevance", "relevancy", "relevant", "rel", "grade", "judgement", "judgment"];
const TAGS: &[&str] = &["tag", "runid", "runname", "run", "system"];
const OTHERS: &[&str] = &["iteration", "iter", "q0", "rank"];

/// The columns of a file.
#[derive(Clone, Copy)]
struct Columns {
    count: usize,
    /// Positions of query, document and number.
    places: [usize; 3],
    tag: Option<usize>,
}

/// A line that names the columns.
#[derive(Clone, Copy)]
struct Header<'a> {
    columns: Columns,
    separator: Separator,
    line: &'a str,
}

/// The header, if the line is one.
///
/// # Errors
/// The header lacks one of the names.
fn header<'a>(line: &'a str, format: &Format) -> Result<Option<Header<'a>>, Fault<'a>> {
    let comment = line.starts_with('#');
    let names = line.trim_start_matches(['#', ' ']);
    let separator = if names.trim_ascii().contains('\t') { Separator::Tabs } else { Separator::Spaces };
    let (columns, count) = split(names, separator);
    let columns = &columns[..count];
    let plain = |text: &&str| text.chars().filter(|one| one.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let columns_named: Vec<String> = columns.iter().map(plain).collect();
    let is = |name: &String, names: &[&str]| names.contains(&name.as_str());
    let any = |names: &[&str]| columns_named.iter().any(|name| is(name, names));
    let place = |names: &[&str]| names.iter().find_map(|name| columns_named.iter().position(|one| one == name));
    // Every row has a number, a header has none.
    if columns.iter().any(|column| number(column).is_some()) || !any(QUERIES) && !any(NUMBERS) {
        return Ok(None);
    }
    let known = |name: &String| [QUERIES, DOCUMENTS, NUMBERS, TAGS, OTHERS].iter().any(|names| is(name, names));
    if comment && !columns_named.iter().all(known) {
        return Ok(None);
    }
    match (place(QUERIES), place(DOCUMENTS), place(NUMBERS)) {
        (Some(query), Some(document), Some(number)) if count < MOST => {
            let columns = Columns { count, places: [query, document, number], tag: place(TAGS) };
            Ok(Some(Header { columns, separator, line }))
        }
        _ if comment => Ok(None),
        _ => {
            let names = format!("query-id (or qid), corpus-id (or docno) and {}", format.number);
            Err(Fault::new(line, format!("is a header of at most {} columns and must name those of {names}", MOST - 1)))
        }
    }
}

/// The separator and columns of all lines of a file.
struct Layout<'a> {
    separator: Separator,
    columns: Columns,
    /// The line that determined the separator.
    shown_by: &'a str,
    /// True if a header names the columns.
    named: bool,
}

impl<'a> Layout<'a> {
    /// The layout of the lines after the header; `None` if there are no rows.
    fn of(body: &'a str, header: Option<Header<'a>>, format: &Format) -> Result<Option<Self>, Fault<'a>> {
        if let Some(Header { columns, separator: Separator::Tabs, line }) = header {
            return Ok(Some(Self { separator: Separator::Tabs, columns, shown_by: line, named: true }));
        }
        let header = header.map(|header| header.columns);
        let rows = || body.par_lines().filter(|line| !line.trim_ascii().is_empty());
        let fits = |line: &&str, separator| {
            let (_, count) = split(line, separator);
            header.map_or_else(|| format.counts.contains(&count), |header| header.count == count)
        };
        // If both separators give the same columns, white space is assumed: concatenated files may have both.
        let tabs =
            |line: &&str| fits(line, Separator::Tabs) && split(line, Separator::Tabs) != split(line, Separator::Spaces);
        // An id may begin with `#`, so a comment decides only if there is no other line.
        let plain = |line: &&str| !line.starts_with('#');
        let layout = |separator, line| {
            let (_, count) = split(line, separator);
            let unnamed = || Columns { count, places: (format.places)(count), tag: format.tag };
            Self { separator, columns: header.unwrap_or_else(unnamed), shown_by: line, named: header.is_some() }
        };
        let first = rows().find_first(plain);
        if memchr::memchr(b'\t', body.as_bytes()).is_some() {
            let shown = rows().find_first(|line| (plain(line) || first.is_none()) && tabs(line));
            if let Some(line) = shown {
                return Ok(Some(layout(Separator::Tabs, line)));
            }
        }
        match first {
            Some(line) if fits(&line, Separator::Spaces) => Ok(Some(layout(Separator::Spaces, line))),
            Some(line) => Err(Fault::new(line, wanted(header, format))),
            None => {
                let marked = rows().find_first(|line| !is_spaced_comment(line) && fits(line, Separator::Spaces));
                Ok(marked.map(|line| layout(Separator::Spaces, line)))
            }
        }
    }

    /// The row of a line; `None` for a comment.
    fn row(&self, line: &'a str, format: &Format) -> Result<Option<Row<'a>>, Fault<'a>> {
        let (columns, count) = split(line, self.separator);
        let Columns { count: expected, places: [query, document, at], .. } = self.columns;
        let by_tabs = if line.contains('\t') { split(line, Separator::Tabs) } else { (columns, 0) };
        let fault = if self.separator == Separator::Spaces && by_tabs.1 > 2 && by_tabs != (columns, count) {
            // Split by tabs, some columns hold spaces, but their number is wrong.
            let wanted = wanted(self.named.then_some(self.columns), format);
            Fault::new(line, format!("is separated by tabs and has {} columns; it {wanted}", by_tabs.1))
        } else if count != expected {
            let (problem, like) = match self.separator {
                Separator::Spaces if self.named || format.counts.len() == 1 => {
                    (wanted(self.named.then_some(self.columns), format), None)
                }
                Separator::Spaces => (format!("must have {expected} columns"), Some(self.shown_by)),
                Separator::Tabs => {
                    (format!("must have {expected} columns with tabs between them"), Some(self.shown_by))
                }
            };
            Fault { like, ..Fault::new(line, problem) }
        } else if columns[query].is_empty() || columns[document].is_empty() {
            Fault::new(line, "must have the ids of a query and of a document; one is empty")
        } else {
            match number(columns[at]) {
                Some(number) if self.separator == Separator::Tabs || !is_spaced_comment(line) => {
                    return Ok(Some(Row { query: columns[query], document: columns[document], number }));
                }
                _ => Fault::new(line, format!("the {} must be a number, is {}", format.number, quoted(columns[at]))),
            }
        };
        if line.starts_with('#') { Ok(None) } else { Err(fault) }
    }
}

/// The requirement for a row.
fn wanted(header: Option<Columns>, format: &Format) -> String {
    header.map_or_else(
        || format.wanted.to_owned(),
        |header| format!("must have {} columns, like the header", header.count),
    )
}

/// True for a `# ` comment, which looks like a row if it has as many words. No id is only `#`.
fn is_spaced_comment(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The text after the header and the comments before it, and the header's columns.
fn body<'a>(text: &'a str, format: &Format) -> Result<(&'a str, Option<Header<'a>>), Fault<'a>> {
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some(header) = header(line, format)? {
            return Ok((after, Some(header)));
        }
        if !line.trim_ascii().is_empty() && !line.starts_with('#') {
            break;
        }
        rest = after;
    }
    Ok((text, None))
}

/// The rows of a text.
pub(super) fn rows<'a>(text: &'a str, format: &Format) -> Result<Rows<'a>, Fault<'a>> {
    let (body, header) = body(text, format)?;
    let none = Rows { rows: Vec::new(), tag: None };
    let Some(layout) = Layout::of(body, header, format)? else { return Ok(none) };
    let row = |line: &'a str| if line.trim_ascii().is_empty() { Ok(None) } else { layout.row(line, format) };
    let rows: Result<Vec<Row<'a>>, Fault<'a>> = body.par_lines().filter_map(|line| row(line).transpose()).collect();
    // The parallel iterator returns any fault; report the first one.
    let rows = rows.map_err(|fault| body.lines().find_map(|line| row(line).err()).unwrap_or(fault))?;
    let first = || body.lines().find(|line| row(line).is_ok_and(|row| row.is_some()));
    let tag = layout.columns.tag.and_then(|place| Some(split(first()?, layout.separator).0[place]));
    Ok(Rows { rows, tag: tag.filter(|tag| !tag.is_empty()) })
}
