//! Runs and judgements: TREC's formats, BEIR's tab-separated judgements, and JSON objects of objects as pytrec_eval, ranx
//! and BEIR write them.

use std::marker::PhantomData;
use std::path::Path;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use rayon::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::FileError;

/// A run: lists by query, queries in the order of their first lines.
pub struct Run<'a> {
    /// The run's tag; the file's name where the format has none.
    pub tag: String,
    /// Documents and scores of each query.
    pub queries: Vec<(&'a str, Vec<(&'a str, f64)>)>,
}

/// Labels by document.
pub type Labels<'a> = HashMap<&'a str, f64>;

/// Labels by document by query. The files are the user's own, so the hash need not resist attacks.
pub type Judgements<'a> = HashMap<&'a str, Labels<'a>>;

/// One line of a run or of judgements.
struct Row<'a> {
    query: &'a str,
    document: &'a str,
    number: f64,
}

/// A line at fault.
struct Fault<'a> {
    line: &'a str,
    problem: String,
}

impl<'a> Fault<'a> {
    fn new(line: &'a str, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }

    /// The error with the line's number, which follows from the line's offset in the text.
    fn located(&self, text: &str, path: &Path) -> FileError {
        let before = (self.line.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        let number = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..before]).count();
        FileError(format!("{}:{number}: {}", super::name(path), self.problem))
    }
}

fn number<'a>(line: &'a str, what: &str, text: &str) -> Result<f64, Fault<'a>> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(Fault::new(line, format!("the {what} must be a number, is {text:?}"))),
    }
}

/// query, Q0, document, rank, score, tag.
fn run_row(line: &str) -> Result<Row<'_>, Fault<'_>> {
    let mut parts = line.split_ascii_whitespace();
    let mut next = || parts.next();
    match (next(), next(), next(), next(), next(), next(), next()) {
        (Some(query), Some(_), Some(document), Some(_), Some(score), Some(_), None) => {
            Ok(Row { query, document, number: number(line, "score", score)? })
        }
        _ => Err(Fault::new(line, "must have six columns: query, Q0, document, rank, score, tag")),
    }
}

/// A line of a run.
#[must_use]
pub fn line(query: &str, document: &str, rank: usize, score: usize, tag: &str) -> String {
    format!("{query} Q0 {document} {rank} {score} {tag}\n")
}

/// query, iteration, document, label; or BEIR's query, document, label.
fn judgement_row(line: &str) -> Result<Row<'_>, Fault<'_>> {
    let mut parts = line.split_ascii_whitespace();
    let mut next = || parts.next();
    match (next(), next(), next(), next(), next()) {
        (Some(query), Some(_), Some(document), Some(label), None)
        | (Some(query), Some(document), Some(label), None, None) => {
            Ok(Row { query, document, number: number(line, "label", label)? })
        }
        _ => Err(Fault::new(line, "must have four columns (query, iteration, document, label) or BEIR's three")),
    }
}

fn parse_rows<'a>(
    text: &'a str,
    parse: impl Fn(&'a str) -> Result<Row<'a>, Fault<'a>> + Sync + Send,
) -> Result<Vec<Row<'a>>, Fault<'a>> {
    text.par_lines().filter(|line| !line.trim_ascii().is_empty()).map(parse).collect()
}

/// A name in a JSON object: a slice of the text, or a copy where it has escapes. Copies are leaked, because the process reads
/// a few files and ends.
struct Name<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = &'de str;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<&'de str, E> {
                Ok(name)
            }

            fn visit_str<E>(self, name: &str) -> Result<&'de str, E> {
                Ok(Box::leak(name.into()))
            }
        }
        from.deserialize_str(Reader).map(Self)
    }
}

/// The entries of a JSON object, including repeated ones.
struct Entries<'a, V>(Vec<(&'a str, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<'de, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
            type Value = Vec<(&'de str, V)>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    entries.push((name, value));
                }
                Ok(entries)
            }
        }
        from.deserialize_map(Reader(PhantomData)).map(Self)
    }
}

/// A JSON object of objects of numbers. Objects have no order, so entries are sorted by name.
fn object<'a>(text: &'a str, path: &Path) -> Result<Vec<Row<'a>>, FileError> {
    let parsed: Entries<'a, Entries<'a, f64>> = serde_json::from_str(text).map_err(|error| {
        FileError(format!("{}: must be an object of objects of numbers: {error}", super::name(path)))
    })?;
    let mut queries = parsed.0;
    queries.sort_by_key(|(query, _)| *query);
    let mut rows = Vec::new();
    for (query, Entries(mut documents)) in queries {
        documents.sort_by_key(|(document, _)| *document);
        rows.extend(documents.into_iter().map(|(document, number)| Row { query, document, number }));
    }
    Ok(rows)
}

/// The rows of `body`, which is `text` without its header.
fn read<'a>(
    text: &'a str,
    body: &'a str,
    path: &Path,
    parse: impl Fn(&'a str) -> Result<Row<'a>, Fault<'a>> + Sync + Send,
) -> Result<Vec<Row<'a>>, FileError> {
    let rows = if body.trim_ascii_start().starts_with('{') {
        object(body, path)?
    } else {
        parse_rows(body, parse).map_err(|fault| fault.located(text, path))?
    };
    if rows.is_empty() {
        return Err(FileError(format!("{}: is empty", super::name(path))));
    }
    Ok(rows)
}

/// Reads a run from its text.
pub fn run<'a>(text: &'a str, path: &Path) -> Result<Run<'a>, FileError> {
    let mut queries: Vec<(&str, Vec<(&str, f64)>)> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    for row in read(text, text, path, run_row)? {
        // Lines of one query are usually adjacent.
        let position = match queries.last() {
            Some((query, _)) if *query == row.query => queries.len() - 1,
            _ => *positions.entry(row.query).or_insert_with(|| {
                queries.push((row.query, Vec::new()));
                queries.len() - 1
            }),
        };
        queries[position].1.push((row.document, row.number));
    }
    let repeated = queries.par_iter().find_map_first(|(query, documents)| {
        let mut seen = HashSet::with_capacity(documents.len());
        let (document, _) = documents.iter().find(|(document, _)| !seen.insert(*document))?;
        Some(format!("document {document:?} given twice for query {query:?}"))
    });
    if let Some(problem) = repeated {
        return Err(FileError(format!("{}: {problem}", super::name(path))));
    }
    let tag = text
        .lines()
        .find_map(|line| line.split_ascii_whitespace().nth(5))
        .filter(|_| !text.trim_ascii_start().starts_with('{'));
    Ok(Run { tag: tag.map_or_else(|| super::stem(path), str::to_owned), queries })
}

/// Reads judgements from their text.
pub fn judgements<'a>(text: &'a str, path: &Path) -> Result<Judgements<'a>, FileError> {
    // BEIR's three columns have a header.
    let first = text.lines().next().unwrap_or_default();
    let mut columns = first.split_ascii_whitespace();
    let has_header = columns.clone().count() == 3
        && columns.nth(2).is_some_and(|name| ["score", "label", "relevance"].contains(&name.to_lowercase().as_str()));
    let body = if has_header { &text[(first.len() + 1).min(text.len())..] } else { text };
    let mut judged: Judgements<'_> = HashMap::new();
    for row in read(text, body, path, judgement_row)? {
        let of_query = judged.entry(row.query).or_default();
        if of_query.insert(row.document, row.number).is_some_and(|label| label.total_cmp(&row.number).is_ne()) {
            let problem = format!("document {:?} has two labels for query {:?}", row.document, row.query);
            return Err(FileError(format!("{}: {problem}", super::name(path))));
        }
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> &'static Path {
        Path::new("f.txt")
    }

    #[test]
    fn lines_of_a_query_need_not_be_adjacent() {
        let run = run("q1 Q0 a 1 0.5 bm25\n\nq2\tQ0\tb\t1\t2e1\tbm25\nq1 0 c 2 -1 bm25\r\n", path()).unwrap();
        assert_eq!(run.tag, "bm25");
        assert_eq!(run.queries, [("q1", vec![("a", 0.5), ("c", -1.0)]), ("q2", vec![("b", 20.0)])]);
    }

    #[test]
    fn three_kinds_of_judgements_mean_the_same() {
        let trec = judgements("q1 0 a 2\nq1 0 b 0\n", path()).unwrap();
        assert_eq!(trec, judgements("query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\tb\t0\n", path()).unwrap());
        assert_eq!(trec, judgements(r#"{"q1": {"a": 2, "b": 0}}"#, path()).unwrap());
        assert_eq!(
            run(r#" {"q1": {"b": 0.5, "a": 1}}"#, path()).unwrap().queries,
            [("q1", vec![("a", 1.0), ("b", 0.5)])]
        );
        // A word of it was taken for the run's name.
        assert_eq!(run(r#" {"q1": {"a": 1, "b": 2, "c": 3}}"#, path()).unwrap().tag, "f");
    }

    #[test]
    fn names_in_json_may_have_escapes() {
        let parsed = run(r#"{"q\u00e91": {"a\"b": 2, "c": 1}, "q2": {"d/\ud83d\ude00": 0}}"#, path()).unwrap();
        assert_eq!(parsed.queries, [("q2", vec![("d/😀", 0.0)]), ("qé1", vec![("a\"b", 2.0), ("c", 1.0)])]);
    }

    #[test]
    fn faults_name_the_line() {
        let of_run = |text| run(text, path()).err().unwrap().to_string();
        assert_eq!(
            of_run("q1 Q0 a 1 0.5 t\nq1 Q0 b 2\n"),
            "f.txt:2: must have six columns: query, Q0, document, rank, score, tag"
        );
        assert_eq!(of_run("\n\nq1 Q0 a 1 high t"), "f.txt:3: the score must be a number, is \"high\"");
        assert!(of_run("q1 Q0 a 1 NaN t").contains("f.txt:1: the score"));
        assert!(of_run("q1 Q0 a 1 1 t\nq1 Q0 a 2 0 t").contains("\"a\" given twice for query \"q1\""));
        assert_eq!(of_run(" \n"), "f.txt: is empty");
        assert!(of_run("{\"q\": 3}").contains("object of objects"));
        assert!(of_run(r#"{"q": {"a": 1, "a": 2}}"#).contains("\"a\" given twice for query \"q\""));
        let of_judgements = |text| judgements(text, path()).err().unwrap().to_string();
        assert!(of_judgements("q 0 a\nq 0 b 1").starts_with("f.txt:1: the label must be a number"));
        assert!(of_judgements("q 0 a 1\nq 0 a 2").contains("two labels"));
        assert_eq!(of_judgements("query-id\tcorpus-id\tscore\n"), "f.txt: is empty");
    }
}
