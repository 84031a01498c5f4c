//! The texts of queries and documents. docs/reference/formats.md describes the formats.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::fields::Fields;
use super::lines::{self, Remarks};
use super::passages::title_as_text;
use super::{FileError, Warnings, name, names};
use rag_metrics::quoted;

const NOT_UTF8: &str = "is not UTF-8";

/// A query's text and reference answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryText {
    /// Unique in the file.
    pub id: String,
    /// May be empty.
    pub text: String,
    /// Empty if the file has none.
    pub answers: Vec<String>,
}

/// Reads queries: JSON lines, or lines of id, tab, text, and answers after tabs. The first line decides for the file. An
/// unreadable line is reported and left out. A repeated query with the same text and answers counts once.
///
/// # Errors
/// Two lines of one query differ, or the file has no readable query.
pub fn queries(path: &Path, warnings: &mut Warnings) -> Result<Vec<QueryText>, FileError> {
    let lines: Vec<(usize, Option<String>)> = super::read_lines(path)?.collect::<Result<_, _>>()?;
    let first = lines.iter().filter_map(|(_, line)| line.as_deref()).find(|line| !lines::is_comment(line));
    let is_json = first.is_some_and(is_object);
    let mut queries: Vec<QueryText> = Vec::new();
    let (mut seen, mut bad): (HashMap<String, (usize, usize)>, Option<String>) = (HashMap::new(), None);
    for (number, line) in lines {
        let columns = line.as_deref().filter(|_| !is_json).and_then(columns);
        // An id may begin with `#`; a comment has no text after a tab.
        if columns.is_none() && line.as_deref().is_some_and(lines::is_comment) {
            continue;
        }
        let mut remarks = Remarks::new();
        let read = match (columns, line) {
            (Some(query), _) if query.id.is_empty() => Err("has no id before the tab".to_owned()),
            (Some(query), _) => Ok(query),
            (None, None) => Err(NOT_UTF8.to_owned()),
            (None, Some(line)) if is_json => query(&line, &mut remarks),
            (None, Some(_)) => {
                Err("must be id, tab, text; in a file of JSON lines the first line begins with {".to_owned())
            }
        };
        let query = match read {
            Ok(query) => query,
            Err(problem) => {
                remarks.push(format!("{problem}; the line is left out"));
                bad.get_or_insert_with(|| format!("{}:{number}: {problem}", name(path)));
                warnings.of_line(path, number, remarks);
                continue;
            }
        };
        warnings.of_line(path, number, remarks);
        match seen.get(&query.id) {
            Some((at, _)) if queries[*at] == query => {}
            Some((_, first)) => {
                let problem = format!("query {} differs from that of line {first}", quoted(&query.id));
                return Err(FileError(format!("{}:{number}: {problem}", name(path))));
            }
            None => {
                seen.insert(query.id.clone(), (queries.len(), number));
                queries.push(query);
            }
        }
    }
    if queries.is_empty() {
        return Err(FileError(bad.unwrap_or_else(|| format!("{}: has no queries", name(path)))));
    }
    Ok(queries)
}

/// True if a line is a JSON object, or is meant to be one. The id of a query may begin with `{`, too.
fn is_object(line: &str) -> bool {
    let inner = line.trim_start_matches([' ', '\u{feff}']).strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.starts_with('"') || !line.contains('\t'))
}

fn columns(line: &str) -> Option<QueryText> {
    let mut parts = line.split('\t').map(|part| part.trim().to_owned());
    let (id, text) = parts.next().zip(parts.next())?;
    Some(QueryText { id, text, answers: parts.filter(|answer| !answer.is_empty()).collect() })
}

fn query(line: &str, remarks: &mut Remarks) -> Result<QueryText, String> {
    let value = lines::value(line, remarks)?;
    let fields = Fields::of(&value, "")?;
    let id = fields.identifier(names::QUERY_ID)?.ok_or_else(|| fields.missing("_id"))?;
    if fields.lacks(names::QUERY_TEXT) {
        return Err(fields.missing("text"));
    }
    let text = fields.any_text(names::QUERY_TEXT)?.unwrap_or_default();
    let answers = fields.answers_or_none(remarks);
    Ok(QueryText { id, text, answers })
}

/// A document in its line.
#[derive(Debug, Default)]
struct Document {
    id: Option<String>,
    title: String,
    text: String,
    line: usize,
}

/// Reasons for a line without a document text.
enum Without {
    /// The line cannot be read.
    Bad(String),
    /// The line is valid, but its document is empty. Corpora hold such documents, so this is reported only for a wanted
    /// one.
    Empty(String),
}

/// Reads title and text of the wanted documents; if there is only a title, it is the text. A corpus may be larger than
/// memory, so the file is read line by line to its end. An unreadable line is reported, and its document has no text. If
/// its id is unknown too, every wanted document that is missing has no text. If a document is repeated, its first line
/// counts; a different text is reported.
///
/// # Errors
/// The file has no document with a text.
pub fn documents(
    path: &Path,
    wanted: &HashSet<&str>,
    warnings: &mut Warnings,
) -> Result<HashMap<String, (String, String)>, FileError> {
    let mut found: HashMap<String, Document> = HashMap::with_capacity(wanted.len());
    let (mut any, mut unknown, mut first_problem) = (false, None, None);
    for line in super::read_lines(path)? {
        let (number, line) = line?;
        if line.as_ref().is_some_and(|line| lines::is_comment(line)) {
            continue;
        }
        let (mut remarks, mut document) = (Remarks::new(), Document { line: number, ..Document::default() });
        let value = line.map_or_else(|| Err(NOT_UTF8.to_owned()), |line| lines::value(&line, &mut remarks));
        let without = value.map_err(Without::Bad).and_then(|value| document.read(&value));
        any |= without.is_ok();
        let id = document.id.take();
        if id.is_none() {
            unknown.get_or_insert(number);
        }
        let id = id.filter(|id| wanted.contains(id.as_str()));
        if let Err(Without::Bad(problem) | Without::Empty(problem)) = &without {
            first_problem.get_or_insert_with(|| format!("{}:{number}: {problem}", name(path)));
            if id.is_some() || matches!(without, Err(Without::Bad(_))) {
                remarks.push(format!("{problem}; the document is left out"));
            }
        }
        if let Some(id) = id {
            match found.get(&id) {
                Some(first) if (&first.title, &first.text) == (&document.title, &document.text) => {}
                Some(first) => {
                    let problem = format!("document {} differs from that of line {}", quoted(&id), first.line);
                    remarks.push(format!("{problem}, which counts"));
                }
                None => drop(found.insert(id, document)),
            }
        }
        warnings.of_line(path, number, remarks);
    }
    if !any {
        let problem = first_problem.map(|problem| format!("{problem}; no document of the file has a text"));
        return Err(FileError(problem.unwrap_or_else(|| format!("{}: has no documents", name(path)))));
    }
    if let Some(line) = unknown {
        let mut missing: Vec<&str> = wanted.iter().copied().filter(|id| !found.contains_key(*id)).collect();
        missing.sort_unstable();
        for id in missing {
            let problem = format!("document {} is missing, perhaps for line {line}; it is left out", quoted(id));
            warnings.of_file(path, &problem);
            found.insert(id.to_owned(), Document::default());
        }
    }
    Ok(found.into_iter().map(|(id, document)| (id, (document.title, document.text))).collect())
}

impl Document {
    fn read(&mut self, value: &Value) -> Result<(), Without> {
        let fields = Fields::of(value, "").map_err(Without::Bad)?;
        let id = fields.identifier(names::DOCUMENT_ID).map_err(Without::Bad)?;
        self.id = Some(id.ok_or_else(|| Without::Bad(fields.missing("_id")))?);
        let text = fields.passage_text(names::TEXT).map_err(Without::Bad)?.unwrap_or_default();
        let title = fields.passage_text(names::TITLE).map_err(Without::Bad)?.unwrap_or_default();
        (self.title, self.text) = title_as_text(&title, &text);
        if !self.text.trim().is_empty() {
            Ok(())
        } else if fields.lacks(names::TEXT) {
            Err(Without::Empty(fields.missing("text")))
        } else {
            Err(Without::Empty("text: is empty, and so is the title".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::odd;
    use super::*;

    /// The outcome and the warnings, without the name of the file.
    type Outcome<T> = (Result<T, String>, Vec<String>);

    fn read<T>(text: &str, read: impl FnOnce(&Path, &mut Warnings) -> Result<T, FileError>) -> Outcome<T> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Warnings::default();
        let at = format!("{}:", path.display());
        let outcome = read(&path, &mut warnings).map_err(|error| error.0.replace(&at, ""));
        (outcome, warnings.lines().map(|line| line.replace(&at, "")).collect())
    }

    /// Id, title and text of the wanted documents that were found.
    fn corpus(text: &str, wanted: &[&str]) -> Outcome<Vec<String>> {
        let wanted: HashSet<&str> = wanted.iter().copied().collect();
        let (found, warnings) = read(text, |path, warnings| documents(path, &wanted, warnings));
        let shown = found.map(|found| {
            let mut all: Vec<_> = found.into_iter().map(|(id, (title, text))| format!("{id}|{title}|{text}")).collect();
            all.sort();
            all
        });
        (shown, warnings)
    }

    /// serde's aliases would report two names as a duplicate.
    #[test]
    fn the_first_of_several_names_counts() {
        let text = r#"{"_id": "a", "id": "x", "text": "one"}
            {"id": "b", "contents": "two", "text": "two"}
            {"docid": "c", "doc_id": "y", "text": null, "contents": "three"}
            {"id": 4, "title": "only a title"}
            {"id": "e", "title": "T", "body": "five"}"#;
        let (all, warnings) = corpus(text, &["a", "b", "c", "4", "e", "x", "y"]);
        assert_eq!(all.unwrap(), ["4||only a title", "a||one", "b||two", "c||three", "e|T|five"]);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    /// All lines are read: the chosen text must not depend on the other wanted documents.
    #[test]
    fn a_document_that_is_there_twice_does_not_depend_on_the_others() {
        let text = "{\"_id\":\"a\",\"text\":\"first\"}\n{\"_id\":\"b\",\"text\":\"B\"}\n{\"_id\":\"a\",\"text\":\"second\"}\n\
                    {\"_id\":\"b\",\"text\":\"B\"}\n{\"_id\":\"c\",\"text\":\"C\"}\n";
        for wanted in [&["a", "b"][..], &["a", "c"], &["a"]] {
            let (all, warnings) = corpus(text, wanted);
            assert_eq!(all.unwrap()[0], "a||first");
            assert_eq!(warnings, ["3: document \"a\" differs from that of line 1, which counts"]);
        }
    }

    #[test]
    fn a_bad_line_affects_only_its_document() {
        let text = "{\"_id\":\"zz\",\"text\":\"x\\ud83d\"}\n{broken\n[1]\n{\"text\":\"no id\"}\n{\"_id\":\"n\",\"text\":[5]}\n\
                    {\"_id\":\"blank\",\"text\":\"\"}\n# a comment\n{\"_id\":\"other\",\"text\":\"\"}\n\
                    \u{feff}{\"_id\":\"a\",\"text\":\"one\"}\r\n";
        let (all, warnings) = corpus(text, &["a", "n", "blank", "lost"]);
        assert_eq!(all.unwrap(), ["a||one", "blank||", "lost||", "n||"]);
        let beginnings = [
            "1: holds half",
            "2: is not valid JSON: ",
            "3: is a list",
            "4: _id: is missing",
            "5: text: must be a text",
            "6: text: is empty",
            " document \"lost\" is missing, perhaps for line 2; it is left out",
        ];
        assert_eq!(warnings.len(), beginnings.len(), "{warnings:?}");
        for (warning, beginning) in warnings.iter().zip(beginnings) {
            assert!(warning.starts_with(beginning), "{warning}");
        }
        let none = corpus("{\"_id\":\"a\",\"txt\":\"one\"}\n", &["a"]).0.unwrap_err();
        let expected =
            r#"1: text: is missing; the line has the fields "_id", "txt"; no document of the file has a text"#;
        assert_eq!(none, expected);
        let whole = "{\"_id\":\"a\",\"text\":\"one\"}\n";
        assert_eq!(corpus(whole, &["a", "lost"]), (Ok(vec!["a||one".to_owned()]), Vec::new()));
        for empty in ["", "# nothing\n"] {
            assert!(corpus(empty, &["a"]).0.unwrap_err().ends_with(" has no documents"));
            assert!(read(empty, queries).0.unwrap_err().ends_with(" has no queries"));
        }
    }

    /// A byte of another encoding, a missing id, or answers of another shape must not refuse other queries.
    #[test]
    fn a_bad_line_of_queries_affects_only_its_query() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, b"\tWho?\na\tcaf\xe9\nb\tWhen?\n").unwrap();
        let mut warnings = Warnings::default();
        let of = |read: Vec<QueryText>| read.into_iter().map(|one| (one.id, one.text)).collect::<Vec<_>>();
        assert_eq!(of(queries(&path, &mut warnings).unwrap()), [("b".to_owned(), "When?".to_owned())]);
        let at = |line: usize, problem: &str| format!("{}:{line}: {problem}; the line is left out", path.display());
        assert_eq!(warnings.lines().collect::<Vec<_>>(), [at(1, "has no id before the tab"), at(2, "is not UTF-8")]);
        let line = "{\"_id\":\"a\",\"text\":\"Who?\",\"answers\":[[\"x\"]]}\n{\"_id\":\"b\",\"text\":\"Who?\",\"answer\":true}\n";
        let (read, warnings) = read(line, queries);
        assert_eq!(read.unwrap().len(), 2);
        assert_eq!(warnings, ["1: answers: must be a text or a list of texts; none is read"]);
    }

    #[test]
    fn the_first_line_of_queries_decides() {
        let of = |text: &str| {
            let (all, warnings) = read(text, queries);
            let shown = |query: &QueryText| format!("{}|{}|{}", query.id, query.text, query.answers.join(","));
            (all.map(|all| all.iter().map(shown).collect::<Vec<_>>()), warnings)
        };
        let tabs = "# a comment\n#1\tWho?\tshe\n{2}\tWhen?\nan id\tWhere?\n#1\tWho?\tshe\n";
        let all = ["#1|Who?|she", "{2}|When?|", "an id|Where?|"].map(str::to_owned).to_vec();
        assert_eq!(of(tabs), (Ok(all), Vec::new()));
        let json = "# a comment\n{\"_id\":1,\"id\":2,\"query\":\"Who?\",\"answer\":\"she\"}\nbroken\n{\"qid\":\"b\",\"text\":null}\n";
        let (all, warnings) = of(json);
        assert_eq!(all.unwrap(), ["1|Who?|she", "b||"]);
        assert!(warnings.len() == 1 && warnings[0].starts_with("3: is not valid JSON: "), "{warnings:?}");
        assert_eq!(of("a\tWho?\na\tWhen?\n").0.unwrap_err(), "2: query \"a\" differs from that of line 1");
        assert!(
            of("{\"_id\": \"a\", \"txt\": \"x\"}\n").0.unwrap_err().starts_with("1: text: is missing; the line has")
        );
        assert!(of("a Who?\n").0.unwrap_err().starts_with("1: must be id, tab, text"));
    }

    proptest! {
        #[test]
        fn queries_and_documents_are_read_as_they_were_written(ids in odd::ids(), title in odd::words(), text in odd::words()) {
            let line = |id: &String| format!("{}\n", serde_json::json!({ "_id": id, "title": title, "text": text }));
            let file: String = ids.iter().map(line).collect();
            let wanted: HashSet<&str> = ids.iter().map(String::as_str).collect();
            let mut warnings = Warnings::default();
            let found = odd::in_file(&file, |path| documents(path, &wanted, &mut warnings).unwrap());
            prop_assert_eq!(found.len(), ids.len());
            let expected = [&title, &text].map(|text| odd::unmarked(text));
            prop_assert!(found.values().all(|(a, b)| [a, b] == expected));
            let asked = odd::in_file(&file, |path| queries(path, &mut warnings).unwrap());
            prop_assert!(asked.iter().all(|query| query.text == text));
            prop_assert_eq!(asked.into_iter().map(|query| query.id).collect::<Vec<_>>(), ids.clone());
            prop_assert_eq!(warnings.lines().count(), 0);
            // In columns, an id has no tabs, line ends or outer spaces.
            let fits = |text: &str| !text.is_empty() && text.trim() == text && !text.contains(['\t', '\n']);
            let first = |id: &&String| fits(id) && !id.starts_with(['{', '\u{feff}']);
            let file = ids.iter().filter(first).map(|id| format!("{id}\t{text}\n")).collect::<Vec<_>>().concat();
            if fits(&text) && !file.is_empty() {
                let asked = odd::in_file(&file, |path| queries(path, &mut warnings).unwrap());
                prop_assert!(asked.iter().all(|query| query.text == text));
                prop_assert!(asked.iter().map(|query| &query.id).eq(ids.iter().filter(first)));
            }
        }
    }
}
