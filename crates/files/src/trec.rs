//! Runs and judgements: TREC's formats, BEIR's tab-separated judgements, and JSON objects of objects as pytrec_eval, ranx
//! and BEIR write them. docs/reference/formats.md describes them.

use std::marker::PhantomData;
use std::path::Path;

use foldhash::{HashMap, HashMapExt};
use rayon::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::columns::{self, Format, Row, Rows, line_number};
use super::{FileError, Warnings, lines, name};
use rag_metrics::quoted;

/// A run: lists by query, with queries in the order of their first lines.
#[derive(Debug)]
pub struct Run<'a> {
    /// The run's tag; the file's name if the format has none.
    pub tag: String,
    /// Documents and scores of each query.
    pub queries: Vec<(&'a str, Vec<(&'a str, f64)>)>,
}

/// Labels by document.
pub type Labels<'a> = HashMap<&'a str, f64>;

/// Labels by document by query. The files are the user's own, so the hash need not resist attacks.
pub type Judgements<'a> = HashMap<&'a str, Labels<'a>>;

/// query, Q0, document, rank, score, tag.
const RUN: Format = Format {
    counts: &[6],
    places: |_| [0, 2, 4],
    tag: Some(5),
    number: "score",
    wanted: "must have six columns: query, Q0, document, rank, score, tag",
};

/// query, iteration, document, label; or BEIR's query, document, label.
const JUDGEMENTS: Format = Format {
    counts: &[3, 4],
    places: |count| if count == 3 { [0, 1, 2] } else { [0, 2, 3] },
    tag: None,
    number: "label",
    wanted: "must have four columns (query, iteration, document, label) or BEIR's three",
};

/// A line of a run.
///
/// # Errors
/// The run format cannot hold the id or tag: it would be read back differently. JSON holds every id.
pub fn line(query: &str, document: &str, rank: usize, score: usize, tag: &str) -> Result<String, String> {
    check_query(query)?;
    check_column(document)?;
    check_column(tag)?;
    Ok(format!("{query} Q0 {document} {rank} {score} {tag}\n"))
}

/// Refuses an id or tag that the run format cannot hold.
///
/// # Errors
/// The reason.
pub fn check_column(text: &str) -> Result<(), String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(format!("must not be empty or hold white space in a run, is {}", quoted(text)));
    }
    Ok(())
}

/// Refuses an id that cannot be the first column of a run, because a comment, a JSON object or a byte-order mark begins
/// the same way.
///
/// # Errors
/// The reason.
pub fn check_query(id: &str) -> Result<(), String> {
    check_column(id)?;
    if id == "#" || id.starts_with(['{', '\u{feff}']) {
        return Err(format!("must not be \"#\" or begin with {{ or U+FEFF in a run, is {}", quoted(id)));
    }
    Ok(())
}

/// A name in a JSON object: a slice of the text, or a copy if it has escapes. Copies are leaked, because the process
/// reads a few files and ends.
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

/// True if a file is a JSON object.
fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

/// A JSON object of objects of numbers. Objects have no order, so entries are sorted by name.
fn object<'a>(text: &'a str, path: &Path, warnings: &mut Warnings) -> Result<Vec<Row<'a>>, FileError> {
    let bad = |fault: String| FileError(format!("{}: must be an object of objects of numbers: {fault}", name(path)));
    let parsed: Entries<'a, Entries<'a, f64>> = lines::parsed(text, path, warnings).map_err(bad)?;
    let mut queries = parsed.0;
    queries.sort_by_key(|(query, _)| *query);
    let mut rows = Vec::new();
    for (query, Entries(mut documents)) in queries {
        documents.sort_by_key(|(document, _)| *document);
        rows.extend(documents.into_iter().map(|(document, number)| Row { query, document, number }));
    }
    Ok(rows)
}

fn read<'a>(text: &'a str, path: &Path, format: &Format, warnings: &mut Warnings) -> Result<Rows<'a>, FileError> {
    let read = if is_object(text) {
        Rows { rows: object(text, path, warnings)?, tag: None }
    } else {
        columns::rows(text, format).map_err(|fault| fault.located(text, path))?
    };
    if read.rows.is_empty() {
        return Err(FileError(format!("{}: is empty", name(path))));
    }
    Ok(read)
}

/// The error for two different entries for one document of a query.
fn conflict(text: &str, path: &Path, what: &str, query: &str, [first, second]: [(&str, f64); 2]) -> FileError {
    let (document, query) = (quoted(second.0), quoted(query));
    let problem = format!("document {document} has two {what}s for query {query}: {}", first.1);
    FileError(if is_object(text) {
        format!("{}: {problem} and {}", name(path), second.1)
    } else {
        let line = |(document, _): (&str, f64)| line_number(text, document);
        format!("{}:{}: {problem} in line {}, {} here", name(path), line(second), line(first), second.1)
    })
}

/// A warning about a run whose queries are judged but whose documents are not: the ids may belong to another collection.
/// The run may also have found no judged document.
pub fn unmatched(judged: &Judgements<'_>, run: &Run<'_>) -> Option<String> {
    let mut other = None;
    for (query, documents) in &run.queries {
        let Some(labels) = judged.get(query) else { continue };
        if documents.iter().any(|(document, _)| labels.contains_key(document)) {
            return None;
        }
        let least = labels.keys().min();
        other = other.or_else(|| Some((*query, documents.first()?.0, *least?)));
    }
    let (query, listed, judged) = other?;
    let (query, listed, judged) = (quoted(query), quoted(listed), quoted(judged));
    Some(format!(
        "no document of the run is judged, so every measure is 0: for query {query} the run has {listed}, the judgements have {judged}"
    ))
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.0
}

/// Reads a run from its text. A document that is repeated for a query with the same score counts once.
///
/// # Errors
/// A line is faulty, or a document has two scores for a query.
pub fn run<'a>(text: &'a str, path: &Path, warnings: &mut Warnings) -> Result<Run<'a>, FileError> {
    let mut queries: Vec<(&str, Vec<(&str, f64)>)> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let Rows { rows, tag } = read(text, path, &RUN, warnings)?;
    for row in rows {
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
    let once = |(query, given): (&'a str, Vec<(&'a str, f64)>)| {
        let mut seen: HashMap<&str, usize> = HashMap::with_capacity(given.len());
        let mut documents: Vec<(&str, f64)> = Vec::with_capacity(given.len());
        for one in given {
            match seen.get(one.0).map(|first| documents[*first]) {
                Some(first) if same(first.1, one.1) => {}
                Some(first) => return Err(conflict(text, path, "score", query, [first, one])),
                None => {
                    seen.insert(one.0, documents.len());
                    documents.push(one);
                }
            }
        }
        Ok((query, documents))
    };
    let outcomes: Vec<_> = queries.into_par_iter().map(once).collect();
    let queries = outcomes.into_iter().collect::<Result<_, _>>()?;
    Ok(Run { tag: tag.map_or_else(|| super::stem(path), str::to_owned), queries })
}

/// Reads judgements from their text. A repeated judgement counts once.
///
/// # Errors
/// A line is faulty, or a document has two labels for a query.
pub fn judgements<'a>(text: &'a str, path: &Path, warnings: &mut Warnings) -> Result<Judgements<'a>, FileError> {
    let Rows { rows, .. } = read(text, path, &JUDGEMENTS, warnings)?;
    let mut judged: Judgements<'_> = HashMap::new();
    for row in &rows {
        let of_query = judged.entry(row.query).or_default();
        let label = *of_query.entry(row.document).or_insert(row.number);
        if !same(label, row.number) {
            let is_first = |other: &&Row<'_>| (other.query, other.document) == (row.query, row.document);
            let first = rows.iter().find(is_first).unwrap_or(row);
            let pair = [first, row].map(|row| (row.document, row.number));
            return Err(conflict(text, path, "label", row.query, pair));
        }
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::odd;
    use super::*;

    fn path() -> &'static Path {
        Path::new("f.txt")
    }

    fn run<'a>(text: &'a str, path: &Path) -> Result<Run<'a>, FileError> {
        super::run(text, path, &mut Warnings::default())
    }

    fn judgements<'a>(text: &'a str, path: &Path) -> Result<Judgements<'a>, FileError> {
        super::judgements(text, path, &mut Warnings::default())
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
        // The tag must not be a word of the JSON text.
        assert_eq!(run(r#" {"q1": {"a": 1, "b": 2, "c": 3}}"#, path()).unwrap().tag, "f");
    }

    #[test]
    fn names_in_json_may_have_escapes() {
        let parsed = run(r#"{"q\u00e91": {"a\"b": 2, "c": 1}, "q2": {"d/\ud83d\ude00": 0}}"#, path()).unwrap();
        assert_eq!(parsed.queries, [("q2", vec![("d/😀", 0.0)]), ("qé1", vec![("a\"b", 2.0), ("c", 1.0)])]);
    }

    #[test]
    fn faults_name_the_line() {
        let of_run = |text| run(text, path()).unwrap_err().to_string();
        let six = "must have six columns: query, Q0, document, rank, score, tag";
        assert_eq!(of_run("q1 Q0 a 1 0.5 t\nq1 Q0 b 2\n"), format!("f.txt:2: {six}"));
        assert_eq!(of_run("\n\nq1 Q0 a 1 high t"), "f.txt:3: the score must be a number, is \"high\"");
        assert!(of_run("q1 Q0 a 1 NaN t").contains("f.txt:1: the score"));
        assert_eq!(of_run(" \n"), "f.txt: is empty");
        assert!(of_run("{\"q\": 3}").contains("object of objects"));
        let long = format!("{{\"q\": \"{}\"}}", "x".repeat(5_000));
        assert!(of_run(Box::leak(long.into_boxed_str())).len() < 300);
        let of_judgements = |text| judgements(text, path()).unwrap_err().to_string();
        assert!(of_judgements("q 0 a\nq 0 b 1").starts_with("f.txt:1: the label must be a number"));
        assert_eq!(of_judgements("q 0 a 1\nq b 1"), "f.txt:2: must have 4 columns, as line 1 has");
        assert_eq!(of_judgements("q\t\t1"), "f.txt:1: must have the ids of a query and of a document; one is empty");
        assert!(of_judgements("q a").starts_with("f.txt:1: must have four columns"));
        assert_eq!(of_judgements("query-id\tcorpus-id\tscore\n"), "f.txt: is empty");
    }

    #[test]
    fn a_repeated_entry_counts_once_and_two_that_differ_are_named() {
        let once = run("q Q0 a 1 2 t\nq Q0 b 2 1 t\nq Q0 a 3 2.0 t\n", path()).unwrap();
        assert_eq!(once.queries, [("q", vec![("a", 2.0), ("b", 1.0)])]);
        assert_eq!(run(r#"{"q": {"a": 1, "a": 1}}"#, path()).unwrap().queries, [("q", vec![("a", 1.0)])]);
        let of_run = |text| run(text, path()).unwrap_err().to_string();
        let two = "document \"a\" has two scores for query \"q\": 2";
        assert_eq!(of_run("q Q0 a 1 2 t\n\nq Q0 a 2 0 t"), format!("f.txt:3: {two} in line 1, 0 here"));
        assert_eq!(of_run(r#"{"q": {"a": 2}, "q": {"a": 0}}"#), format!("f.txt: {two} and 0"));
        let once = judgements("q 0 a 1\nq 0 a 1.0\n", path()).unwrap();
        assert!(same(once["q"]["a"], 1.0));
        let of_judgements = |text| judgements(text, path()).unwrap_err().to_string();
        let two = "document \"a\" has two labels for query \"q\": 1";
        assert_eq!(of_judgements("# made by us\nq 0 a 1\nq 0 a 2"), format!("f.txt:3: {two} in line 2, 2 here"));
        assert_eq!(of_judgements(r#"{"q": {"a": 1, "a": 2}}"#), format!("f.txt: {two} and 2"));
    }

    /// A document id with a space makes four words of three columns.
    #[test]
    fn header_and_separators_decide_for_the_whole_file() {
        let labels = |text: &'static str| -> Vec<(&str, &str, f64)> {
            let judged = judgements(text, path()).unwrap();
            let row = |(query, labels): (&&'static str, &Labels<'static>)| {
                labels.iter().map(|(document, label)| (*query, *document, *label)).collect::<Vec<_>>()
            };
            let mut all: Vec<_> = judged.iter().flat_map(row).collect();
            all.sort_by_key(|(query, document, _)| (*query, *document));
            all
        };
        let spaced = [("q1", "annual report.pdf", 1.0), ("q1", "b", 0.0)];
        for text in [
            "query-id\tcorpus-id\tscore\nq1\tannual report.pdf\t1\nq1\tb\t0\n",
            "QUERY-ID\tCorpus_ID\tScore\r\nq1\tannual report.pdf\t1\r\nq1\tb\t0\r\n",
            "# a comment of ours\nquery id\tcorpus id\trelevance\nq1\tannual report.pdf\t1\nq1\tb\t0\t\n",
            "q1\tannual report.pdf\t1\nq1\tb\t0\n",
            "q1\t0\tannual report.pdf\t1\nq1\t0\tb\t0\n",
            "query-id corpus-id score\nq1\tannual report.pdf\t1\n\n#\tq\nq1\t b \t0\n",
        ] {
            assert_eq!(labels(text), spaced, "{text}");
        }
        assert_eq!(labels("query 1\ta b c\t1\n"), [("query 1", "a b c", 1.0)]);
        // TREC's columns with one tab.
        assert_eq!(labels("q1 0\ta 1\nq1  0 b\t0\n"), [("q1", "a", 1.0), ("q1", "b", 0.0)]);
        assert_eq!(labels("#1 0 a 1\n# two words 3\n# 1 0 4\n#x\n"), [("#1", "a", 1.0)]);
        let mixed = |text| judgements(text, path()).unwrap_err().to_string();
        let told = "must have 3 columns with tabs between them, as line";
        assert_eq!(mixed("q1\tannual report.pdf\t1\nq1 0 b 0\n"), format!("f.txt:2: {told} 1 has"));
        assert_eq!(mixed("q1 0 b 0\nq1\tannual report.pdf\t1\n"), format!("f.txt:1: {told} 2 has"));
        let short = run("q\tQ0\ta b\t1\t0.5\n", path()).unwrap_err().to_string();
        assert!(short.starts_with("f.txt:1: is separated by tabs and has 5 columns; it must have six"), "{short}");
        let spaced = run("q 1\tQ0\ta b\t1\t0.5\tmy run\n", path()).unwrap();
        assert_eq!((spaced.tag.as_str(), &spaced.queries), ("my run", &vec![("q 1", vec![("a b", 0.5)])]));
        let commented = run("# made by us\n\nq Q0 a 1 0.5 t\n# the last line of the run\n", path()).unwrap();
        assert_eq!((commented.tag.as_str(), commented.queries.len()), ("t", 1));
    }

    #[test]
    fn half_a_surrogate_pair_is_a_name() {
        let mut warnings = Warnings::default();
        let parsed = super::run(r#"{"q": {"cut \ud83d": 2}}"#, path(), &mut warnings).unwrap();
        assert_eq!(parsed.queries, [("q", vec![("cut \u{fffd}", 2.0)])]);
        let warnings: Vec<String> = warnings.lines().collect();
        assert_eq!(warnings, ["f.txt: holds half of a surrogate pair, which is read as U+FFFD"]);
    }

    /// PyTerrier and pandas write columns in another order, which must not make the label a document.
    #[test]
    fn a_header_names_the_columns() {
        let judged = judgements("q1 0 d7 1\nq1 0 d8 0\n", path()).unwrap();
        for text in [
            "qid\tdocno\tlabel\titeration\nq1\td7\t1\t0\nq1\td8\t0\t0\n",
            "\tquery-id\tcorpus-id\tscore\n0\tq1\td7\t1\n1\tq1\td8\t0\n",
            "qid iteration docno label\nq1 0 d7 1\nq1 0 d8 0\n",
            "# query_id doc_id relevance iteration\nq1 d7 1 0\nq1 d8 0 0\n",
            "relevance\tdoc_id\tquery_id\n1\td7\tq1\n0\td8\tq1\n",
        ] {
            assert_eq!(judgements(text, path()).unwrap(), judged, "{text}");
        }
        let expected = [("q1", vec![("d7", 2.5), ("d 8", 1.5)])];
        for (text, tag) in [
            ("qid\tdocno\tscore\trank\titer\ttag\nq1\td7\t2.5\t1\tQ0\tmine\nq1\td 8\t1.5\t2\tQ0\tmine\n", "mine"),
            (
                "\tqid\tdocid\tdocno\trank\tscore\tquery\n0\tq1\t41\td7\t0\t2.5\twho?\n1\tq1\t3\td 8\t1\t1.5\twho?\n",
                "f",
            ),
        ] {
            let read = run(text, path()).unwrap();
            assert_eq!((read.tag.as_str(), read.queries.as_slice()), (tag, &expected[..]), "{text}");
        }
        let names = "query-id (or qid), corpus-id (or docno) and";
        let problem = format!("f.txt:2: is a header of at most 11 columns and must name those of {names}");
        let unnamed = judgements("# ours\nqid\tthing\tlabel\nq1\td7\t1\n", path()).unwrap_err().to_string();
        assert_eq!(unnamed, format!("{problem} label"));
        let few = judgements("qid docno label\nq1 0 d7 1\n", path()).unwrap_err().to_string();
        assert_eq!(few, "f.txt:2: must have 3 columns, like the header");
    }

    /// A comment with tabs must not decide if there are rows.
    #[test]
    fn comments_are_ignored_if_there_are_rows() {
        let judged = judgements("# tuned on:\tdev\tk1=0.9 b=0.4\nq1\t0\td1\t1\n", path()).unwrap();
        assert!(same(judged["q1"]["d1"], 1.0));
    }

    #[test]
    fn ids_of_another_collection_are_shown() {
        let judged = judgements("q1 0 12 1\nq2 0 13 1\n", path()).unwrap();
        let problem = |text| unmatched(&judged, &run(text, path()).unwrap());
        assert_eq!(problem("q1 Q0 doc12 1 2 t\nq2 Q0 13 1 2 t\n"), None);
        assert_eq!(problem("q9 Q0 doc12 1 2 t\n"), None);
        let shown = problem("q9 Q0 x 1 2 t\nq1 Q0 doc12 1 2 t\n").unwrap();
        assert!(shown.ends_with("for query \"q1\" the run has \"doc12\", the judgements have \"12\""), "{shown}");
    }

    proptest! {
        /// The writer refuses ids that the reader would misread.
        #[test]
        fn a_run_is_read_as_it_was_written(queries in odd::ids(), documents in odd::ids(), tag in odd::text()) {
            let (mut file, mut expected) = (String::new(), Vec::new());
            for query in &queries {
                let mut list = Vec::new();
                for document in &documents {
                    let written = line(query, document, 1, 7, &tag);
                    let plain = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
                    if [query, document, &tag].iter().any(|text| !plain(text)) {
                        prop_assert!(written.is_err());
                    }
                    if let Ok(written) = written {
                        file.push_str(&written);
                        list.push((document.as_str(), 7.0));
                    } else {
                        prop_assert!(!plain(query) || !plain(document) || !plain(&tag) || check_query(query).is_err());
                    }
                }
                expected.extend((!list.is_empty()).then_some((query.as_str(), list)));
            }
            if !expected.is_empty() {
                let text = odd::in_file(&file, |path| crate::read(path).unwrap());
                let read = run(&text, path()).unwrap();
                prop_assert_eq!((read.tag, read.queries), (tag, expected));
            }
        }

        #[test]
        fn json_and_tabs_hold_every_id(queries in odd::ids(), documents in odd::ids()) {
            let object: BTreeMap<_, BTreeMap<_, _>> =
                queries.iter().map(|query| (query, documents.iter().map(|one| (one, 1.5)).collect())).collect();
            let json = serde_json::to_string_pretty(&object).unwrap();
            let text = odd::in_file(&json, |path| crate::read(path).unwrap());
            let as_run = run(&text, path()).unwrap().queries;
            prop_assert_eq!(as_run.len(), queries.len());
            for ((query, list), expected) in as_run.iter().zip(&queries) {
                prop_assert_eq!(query, expected);
                prop_assert_eq!(list.iter().map(|(document, _)| *document).collect::<Vec<_>>(), documents.clone());
            }
            let judged = judgements(&text, path()).unwrap();
            prop_assert_eq!(judged.len(), queries.len());
            // Tabs and line ends separate, and ids have no outer spaces.
            let fits = |id: &&String| !id.is_empty() && id.trim_ascii() == *id && !id.contains(['\t', '\n']);
            let (queries, documents): (Vec<_>, Vec<_>) = (queries.iter().filter(fits).collect(), documents.iter().filter(fits).collect());
            let rows = queries.iter().flat_map(|query| documents.iter().map(move |one| format!("{query}\t{one}\t1\n")));
            let tabs = format!("query-id\tcorpus-id\tscore\n{}", rows.collect::<String>());
            if !queries.is_empty() && !documents.is_empty() {
                let judged = judgements(&tabs, path()).unwrap();
                for query in queries {
                    prop_assert!(documents.iter().all(|one| same(judged[query.as_str()][one.as_str()], 1.0)));
                }
            }
        }
    }
}
