//! Files that the user hands over: passages and questions as JSON lines, examples ([`examples`]), labelled lists
//! ([`labelled`]), judged answers ([`equivalence`]), runs and judgements ([`trec`]). All of them may be gzipped. Errors name the
//! file and the line.

pub mod equivalence;
pub mod examples;
pub mod labelled;
pub mod trec;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use self::labelled::Fields;
use crate::engine::rerank::Passage;

/// A file that cannot be read, or whose content is not what it should be. The text names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

/// The first bytes of a gzipped file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The byte-order mark that some programs write before UTF-8. It is no white space: left there, it would be a part of the first id.
const MARK: &str = "\u{feff}";

/// Most bytes that a gzipped file unpacks to where it is read whole. A thousandth of them may unpack to it, and what is read of
/// them takes some times their memory.
const MOST_UNPACKED: u64 = 512 << 20;

/// Most bytes of a line of a file that is read line by line.
const MOST_LINE: u64 = 256 << 20;

/// Reads a whole file, or standard input for `-`, and unpacks it where it is gzipped.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    let outcome = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map(drop)
    };
    let bad = |error: std::io::Error| FileError(format!("{}: {error}", name(path)));
    outcome.map_err(bad)?;
    if bytes.starts_with(&GZIP) {
        bytes = unpacked(&bytes, MOST_UNPACKED).map_err(bad)?;
    }
    if bytes.starts_with(MARK.as_bytes()) {
        bytes.drain(..MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let line = good.matches('\n').count() + 1;
        FileError(format!("{}:{line}: is not UTF-8", name(path)))
    })
}

fn unpacked(gzipped: &[u8], most: u64) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    let length = flate2::read::MultiGzDecoder::new(gzipped).take(most + 1).read_to_end(&mut plain)?;
    if u64::try_from(length).is_ok_and(|length| length <= most) {
        return Ok(plain);
    }
    Err(std::io::Error::other(format!("unpacks to more than {most} bytes, the most that is read: split it")))
}

/// Name of an input in messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// A file's name without folders and extensions.
pub(crate) fn stem(path: &Path) -> String {
    let file = path.file_name().map_or_else(|| name(path), |file| file.to_string_lossy().into_owned());
    file.split('.').find(|part| !part.is_empty()).unwrap_or(&file).to_owned()
}

/// Reads passages, one JSON value a line. Empty lines are skipped.
pub fn passages(path: &Path) -> Result<Vec<Passage>, FileError> {
    Ok(numbered_passages(path)?.into_iter().map(|(_, passage)| passage).collect())
}

/// The same with the number of each line, from 1.
pub fn numbered_passages(path: &Path) -> Result<Vec<(usize, Passage)>, FileError> {
    let text = read(path)?;
    let mut passages = Vec::new();
    for (number, line) in lines(&text) {
        let bad = |problem: String| FileError(format!("{}:{number}: {problem}", name(path)));
        let parsed: Value = serde_json::from_str(line).map_err(|error| {
            bad(format!("is no JSON value ({error}): must be a string, or an object with \"text\" and maybe \"id\", \"title\", \"score\""))
        })?;
        let position = passages.len();
        let passage = match parsed {
            Value::String(text) => Passage { id: position.to_string(), text, ..Passage::default() },
            other => {
                let fields = Fields::of(&other, "").map_err(|_| bad("must be a string or an object".to_owned()))?;
                labelled::passage(&fields, position).map_err(bad)?
            }
        };
        passages.push((number, passage));
    }
    Ok(passages)
}

/// Reads a file line by line, because it may be larger than memory, and unpacks it where it is gzipped. The lines that are not
/// blank are numbered from 1; there is none after an error.
pub(crate) fn read_lines(path: &Path) -> Result<impl Iterator<Item = Result<(usize, String), FileError>>, FileError> {
    let file_name = name(path);
    let bad = |error: std::io::Error| FileError(format!("{file_name}: {error}"));
    let mut file = BufReader::new(std::fs::File::open(path).map_err(bad)?);
    let gzipped = file.fill_buf().map_err(bad)?.starts_with(&GZIP);
    let mut file: Box<dyn BufRead> =
        if gzipped { Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file))) } else { Box::new(file) };
    let (mut number, mut failed) = (0, false);
    Ok(std::iter::from_fn(move || {
        while !failed {
            number += 1;
            match next_line(&mut file, MOST_LINE) {
                Ok(line) if line.is_empty() => return None,
                Ok(line) => {
                    let line = if number == 1 { line.strip_prefix(MARK).unwrap_or(&line) } else { &line };
                    if !line.trim().is_empty() {
                        return Some(Ok((number, line.to_owned())));
                    }
                }
                Err(error) => {
                    failed = true;
                    return Some(Err(FileError(format!("{file_name}:{number}: {error}"))));
                }
            }
        }
        None
    }))
}

/// A line with its end; empty at the end of the file.
fn next_line(file: &mut impl BufRead, most: u64) -> std::io::Result<String> {
    let mut line = Vec::new();
    let length = file.take(most + 1).read_until(b'\n', &mut line)?;
    // Before its text is looked at: a line that is too long may be cut inside a character.
    if u64::try_from(length).is_ok_and(|length| length <= most) {
        return String::from_utf8(line).map_err(|_| std::io::Error::other("is not UTF-8"));
    }
    Err(std::io::Error::other(format!("the line has more than {most} bytes, the most that is read")))
}

/// Lines that are not empty, numbered from 1.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

/// An id, which may be a number.
pub(crate) fn identifier(value: Option<Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(id) => Some(id),
        other => Some(other.to_string()),
    }
}

/// Least label of a relevant passage, unless a command says otherwise.
pub(crate) const RELEVANT: f64 = 0.5;

/// A question, its reference answers, and its passages.
#[derive(Debug, Clone)]
pub struct Question {
    /// Number of its line, from 1.
    pub line: usize,
    /// Its id; `None` where the line has none.
    pub id: Option<String>,
    /// As given; it may be empty.
    pub question: String,
    /// Reference answers; none where the line has none.
    pub answers: Vec<String>,
    /// In the order of the line.
    pub passages: Vec<Passage>,
    /// For each passage its label or 1 where it is marked as relevant; 0 without either.
    pub labels: Vec<f64>,
    /// The labels that its passages have, and the marks as 0 and 1.
    pub given: Vec<f64>,
}

/// Reads questions, one JSON object a line: as [`labelled::lists`], but without labels, answers or passages a line is read, too.
pub fn questions(path: &Path) -> Result<Vec<Question>, FileError> {
    let text = read(path)?;
    let mut questions = Vec::new();
    for (number, line) in lines(&text) {
        let read =
            question(line, number).map_err(|problem| FileError(format!("{}:{number}: {problem}", name(path))))?;
        questions.push(read);
    }
    Ok(questions)
}

fn question(line: &str, number: usize) -> Result<Question, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}"))?;
    let fields = Fields::of(&value, "")?;
    let question = match fields.get(&["question", "query"]) {
        None => return Err(fields.fault("question", "is missing")),
        Some((_, Value::String(text))) => text.clone(),
        Some((name, _)) => return Err(fields.fault(name, "must be a text")),
    };
    let answers = fields.texts(&["answers", "references"])?;
    let given = match fields.get(&["passages"]) {
        None => &Vec::new(),
        Some((_, Value::Array(given))) => given,
        Some((name, _)) => return Err(fields.fault(name, "must be a list")),
    };
    let (mut passages, mut labels) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
    let mut given_labels = Vec::new();
    for (index, value) in given.iter().enumerate() {
        let fields = Fields::of(value, &format!("passages[{index}]"))?;
        passages.push(labelled::passage(&fields, index)?);
        let label = labelled::label(&fields)?;
        given_labels.extend(label);
        labels.push(label.unwrap_or(0.0));
    }
    Ok(Question { line: number, id: fields.identifier()?, question, answers, passages, labels, given: given_labels })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzipped(plain: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(plain).unwrap();
        packed.finish().unwrap()
    }

    /// A list made for comparisons has labels in place of marks, and the grades of its labels are kept.
    #[test]
    fn a_passage_is_marked_or_labelled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labelled.jsonl");
        let passages = r#"{"text": "a", "label": 1}, {"text": "b", "label": 0.4}, {"text": "c"}, {"text": "d", "relevant": true},
            {"text": "e", "label": 3, "supporting": false}, {"text": "f", "label": null, "supporting": null}"#;
        let line = format!("{{\"question\": \"q\", \"passages\": [{}]}}\n", passages.replace('\n', ""));
        std::fs::write(&path, line).unwrap();
        assert_eq!(questions(&path).unwrap()[0].labels, [1.0, 0.4, 0.0, 1.0, 3.0, 0.0]);
    }

    /// pandas writes null for what is absent, and BEIR's passages have `_id`: one reader took them, the other refused the one and
    /// ignored the other.
    #[test]
    fn questions_and_labelled_lists_are_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("both.jsonl");
        let passages = r#"{"_id": "d1", "title": null, "contents": "a", "score": null, "label": true},
            {"id": 7, "text": "b", "relevant": false, "retriever_score": 2}, {"text": "c", "label": 2}"#;
        let line =
            format!(r#"{{"qid": 3, "query": "q", "answers": null, "passages": [{}]}}"#, passages.replace('\n', ""));
        std::fs::write(&path, line).unwrap();
        let (question, list) = (&questions(&path).unwrap()[0], &labelled::lists(&path, RELEVANT).unwrap()[0]);
        assert_eq!((question.id.as_deref(), &question.question), (Some(list.id.as_str()), &list.question));
        assert_eq!((&question.passages, &question.labels), (&list.passages, &list.labels));
        assert_eq!(list.labels, [1.0, 0.0, 2.0]);
        assert_eq!(list.passages.iter().map(|passage| passage.id.as_str()).collect::<Vec<_>>(), ["d1", "7", "2"]);
        std::fs::write(&path, r#"{"_id": "d9", "title": null, "text": "a"}"#).unwrap();
        assert_eq!(passages_of(&path), [("d9".to_owned(), "a".to_owned())]);
    }

    fn passages_of(path: &Path) -> Vec<(String, String)> {
        super::passages(path).unwrap().into_iter().map(|passage| (passage.id, passage.text)).collect()
    }

    /// A few megabytes unpacked to as many gigabytes, in memory.
    #[test]
    fn a_file_unpacks_to_so_many_bytes() {
        let most = unpacked(&gzipped(&[b'x'; 1_000]), 1_000).unwrap();
        assert_eq!(most, [b'x'; 1_000]);
        let more = unpacked(&gzipped(&[b'x'; 1_001]), 1_000).unwrap_err().to_string();
        assert_eq!(more, "unpacks to more than 1000 bytes, the most that is read: split it");
        let members = [gzipped(&[b'x'; 600]), gzipped(&[b'x'; 600])].concat();
        assert!(unpacked(&members, 1_000).is_err(), "members count together");
        assert_eq!(unpacked(&members, 1_200).unwrap().len(), 1_200);
    }

    #[test]
    fn a_line_has_so_many_bytes() {
        let mut file = &b"abc\n\nabcd\nabcd"[..];
        assert_eq!(next_line(&mut file, 4).unwrap(), "abc\n");
        assert_eq!(next_line(&mut file, 4).unwrap(), "\n");
        let long = next_line(&mut file, 4).unwrap_err().to_string();
        assert_eq!(long, "the line has more than 4 bytes, the most that is read");
        assert_eq!(next_line(&mut &b""[..], 4).unwrap(), "");
        // It is cut inside the last character.
        let cut = next_line(&mut "abc\u{e9}\u{e9}".as_bytes(), 3).unwrap_err().to_string();
        assert_eq!(cut, "the line has more than 3 bytes, the most that is read");
        assert_eq!(next_line(&mut &b"\xff\n"[..], 3).unwrap_err().to_string(), "is not UTF-8");
    }

    /// It became a part of the first id: a query of its own, without judgements.
    #[test]
    fn a_byte_order_mark_is_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marked");
        let text = "\u{feff}q1 0 d1 1\n\u{feff}q2 0 d1 1\n";
        for content in [text.as_bytes().to_vec(), gzipped(text.as_bytes())] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&path).unwrap(), &text[MARK.len()..]);
            let lines: Vec<_> = read_lines(&path).unwrap().map(Result::unwrap).collect();
            assert_eq!(lines[0], (1, "q1 0 d1 1\n".to_owned()), "only at the beginning of the file");
            assert!(lines[1].1.starts_with(MARK));
        }
    }

    #[test]
    fn lines_are_read_and_unpacked_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let text = b"one\n\n  \r\nfour\n\xff\nsix";
        for content in [text.to_vec(), gzipped(text)] {
            std::fs::write(&path, content).unwrap();
            let lines: Vec<_> = read_lines(&path).unwrap().collect();
            assert_eq!(lines[..2], [Ok((1, "one\n".to_owned())), Ok((4, "four\n".to_owned()))]);
            let error = lines[2].clone().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}:5: ", path.display())), "{error}");
            assert_eq!(lines.len(), 3);
        }
    }
}
