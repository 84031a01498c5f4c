//! Readers of the user's files: passages ([`passages()`]) and questions ([`questions()`]) as JSON lines, examples
//! ([`examples`]), labelled lists ([`labelled`]), judged answers ([`equivalence`]), answers with citations ([`cited`]),
//! queries and documents ([`corpus`]), runs and judgements ([`trec`]). All of them may be gzipped. Errors and warnings
//! name the file and the line. docs/reference/formats.md describes the formats.
#![warn(missing_docs)]

pub mod cited;
mod columns;
pub mod corpus;
pub mod equivalence;
pub mod examples;
mod fields;
pub mod json;
pub mod labelled;
mod lines;
mod names;
#[cfg(test)]
pub(crate) mod odd;
mod passages;
mod questions;
pub mod trec;
mod warnings;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

pub use self::lines::whole;
pub use self::passages::{Empty, numbered_passages, passages};
pub use self::questions::without_passages;
pub use self::questions::{Question, questions};
pub use self::warnings::Warnings;

/// A file that cannot be read or has invalid content. The text names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

/// The first bytes of a gzipped file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The byte-order mark that some programs write before UTF-8. It is not white space, so it would become part of the first
/// id.
const MARK: &str = "\u{feff}";

/// Most bytes that a gzipped file may unpack to if it is read whole. A file of a thousandth of this size may unpack to
/// it, and its parsed content takes several times as much memory.
const MOST_UNPACKED: u64 = 512 << 20;

/// Most bytes of a line of a file that is read line by line.
const MOST_LINE: u64 = 256 << 20;

/// Reads a whole file, or standard input for `-`, and unpacks it if it is gzipped.
pub fn read(path: &Path) -> Result<String, FileError> {
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
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// A file's name without folders and extensions.
pub fn stem(path: &Path) -> String {
    let file = path.file_name().map_or_else(|| name(path), |file| file.to_string_lossy().into_owned());
    file.split('.').find(|part| !part.is_empty()).unwrap_or(&file).to_owned()
}

/// Reads a file, or standard input for `-`, line by line, because it may be larger than memory, and unpacks it if it is
/// gzipped. Yields the lines that are not blank, with numbers from 1, and ends after an error. A line that is not UTF-8
/// is `None`.
pub(crate) fn read_lines(
    path: &Path,
) -> Result<impl Iterator<Item = Result<(usize, Option<String>), FileError>>, FileError> {
    let file_name = name(path);
    let bad = |error: std::io::Error| FileError(format!("{file_name}: {error}"));
    let mut file: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(std::fs::File::open(path).map_err(bad)?))
    };
    let gzipped = file.fill_buf().map_err(bad)?.starts_with(&GZIP);
    if gzipped {
        file = Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file)));
    }
    let (mut number, mut failed) = (0, false);
    Ok(std::iter::from_fn(move || {
        while !failed {
            number += 1;
            match next_line(&mut file, MOST_LINE) {
                Ok(line) if line.is_empty() => return None,
                Ok(line) => {
                    let line = if number == 1 { line.strip_prefix(MARK.as_bytes()).unwrap_or(&line) } else { &line };
                    match std::str::from_utf8(line) {
                        Ok(text) if text.trim().is_empty() => {}
                        text => return Some(Ok((number, text.ok().map(str::to_owned)))),
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

/// A line with its line end; empty at the end of the file.
fn next_line(file: &mut impl BufRead, most: u64) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let length = file.take(most + 1).read_until(b'\n', &mut line)?;
    if u64::try_from(length).is_ok_and(|length| length <= most) {
        return Ok(line);
    }
    Err(std::io::Error::other(format!("the line has more than {most} bytes, the most that is read")))
}

/// Least label of a relevant passage, by default.
pub const RELEVANT: f64 = 0.5;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzipped(plain: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(plain).unwrap();
        packed.finish().unwrap()
    }

    /// A list for comparisons may have graded labels instead of marks. Grades are not rounded to marks.
    #[test]
    fn a_passage_is_marked_or_labelled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labelled.jsonl");
        let passages = r#"{"text": "a", "label": 1}, {"text": "b", "label": 0.4}, {"text": "c"}, {"text": "d", "relevant": true},
            {"text": "e", "label": 3, "supporting": false}, {"text": "f", "label": null, "supporting": null}"#;
        let line = format!("{{\"question\": \"q\", \"passages\": [{}]}}\n", passages.replace('\n', ""));
        std::fs::write(&path, line).unwrap();
        assert_eq!(
            questions(&path, Empty::LeftOut, &mut Warnings::default()).unwrap()[0].labels,
            [1.0, 0.4, 0.0, 1.0, 3.0, 0.0]
        );
    }

    /// pandas writes null for missing values, and BEIR's passages have `_id`. Both readers must accept both.
    #[test]
    fn questions_and_labelled_lists_are_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("both.jsonl");
        let passages = r#"{"_id": "d1", "title": null, "contents": "a", "score": null, "label": true},
            {"id": 7, "text": "b", "relevant": false, "retriever_score": 2}, {"text": "c", "label": 2}"#;
        let line =
            format!(r#"{{"qid": 3, "query": "q", "answers": null, "passages": [{}]}}"#, passages.replace('\n', ""));
        std::fs::write(&path, line).unwrap();
        let (question, list) = (
            &questions(&path, Empty::LeftOut, &mut Warnings::default()).unwrap()[0],
            &labelled::lists(&path, RELEVANT, Empty::Ranked, &mut Warnings::default()).unwrap()[0],
        );
        assert_eq!((question.id.as_deref(), &question.question), (Some(list.id.as_str()), &list.question));
        assert_eq!((&question.passages, &question.labels), (&list.passages, &list.labels));
        assert_eq!(list.labels, [1.0, 0.0, 2.0]);
        assert_eq!(list.passages.iter().map(|passage| passage.id.as_str()).collect::<Vec<_>>(), ["d1", "7", "2"]);
        std::fs::write(&path, r#"{"_id": "d9", "title": null, "text": "a"}"#).unwrap();
        assert_eq!(passages_of(&path), [("d9".to_owned(), "a".to_owned())]);
    }

    fn passages_of(path: &Path) -> Vec<(String, String)> {
        super::passages(path, &mut Warnings::default())
            .unwrap()
            .into_iter()
            .map(|passage| (passage.id, passage.text))
            .collect()
    }

    /// A few megabytes may unpack to as many gigabytes.
    #[test]
    fn the_unpacked_size_is_bounded() {
        let most = unpacked(&gzipped(&[b'x'; 1_000]), 1_000).unwrap();
        assert_eq!(most, [b'x'; 1_000]);
        let more = unpacked(&gzipped(&[b'x'; 1_001]), 1_000).unwrap_err().to_string();
        assert_eq!(more, "unpacks to more than 1000 bytes, the most that is read: split it");
        let members = [gzipped(&[b'x'; 600]), gzipped(&[b'x'; 600])].concat();
        assert!(unpacked(&members, 1_000).is_err(), "members count together");
        assert_eq!(unpacked(&members, 1_200).unwrap().len(), 1_200);
    }

    #[test]
    fn the_length_of_a_line_is_bounded() {
        let mut file = &b"abc\n\nabcd\nabcd"[..];
        assert_eq!(next_line(&mut file, 4).unwrap(), b"abc\n");
        assert_eq!(next_line(&mut file, 4).unwrap(), b"\n");
        let long = next_line(&mut file, 4).unwrap_err().to_string();
        assert_eq!(long, "the line has more than 4 bytes, the most that is read");
        assert_eq!(next_line(&mut &b""[..], 4).unwrap(), b"");
    }

    /// Otherwise it would be part of the first id, and the query would have no judgements.
    #[test]
    fn a_byte_order_mark_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("marked");
        let text = "\u{feff}q1 0 d1 1\n\u{feff}q2 0 d1 1\n";
        for content in [text.as_bytes().to_vec(), gzipped(text.as_bytes())] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read(&path).unwrap(), &text[MARK.len()..]);
            let lines: Vec<_> = read_lines(&path).unwrap().map(Result::unwrap).collect();
            assert_eq!(lines[0], (1, Some("q1 0 d1 1\n".to_owned())), "only at the beginning of the file");
            assert!(lines[1].1.as_ref().is_some_and(|line| line.starts_with(MARK)));
        }
    }

    #[test]
    fn lines_are_read_and_unpacked_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let text = b"one\n\n  \r\nfour\n\xff\nsix";
        for content in [text.to_vec(), gzipped(text)] {
            std::fs::write(&path, content).unwrap();
            let lines: Vec<_> = read_lines(&path).unwrap().map(Result::unwrap).collect();
            let read = |text: &str| Some(text.to_owned());
            assert_eq!(lines, [(1, read("one\n")), (4, read("four\n")), (5, None), (6, read("six"))]);
        }
    }
}
