//! The export file: JSON lines that are only appended, each sealed with a checksum.
//!
//! The first line is the header: the format, and everything that the scores depend on. Every other line is a
//! question. The last member of each line is `sum`: the first eight bytes, in hexadecimal, of the SHA-256 of the
//! previous line's sum followed by the line up to its own sum. A line that was cut off, changed, moved or left out
//! is therefore detected.
//!
//! A killed process leaves at most one incomplete line, at the end. It is dropped when the file is opened again. A kill
//! cannot damage a line before others, so such a file is refused.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::study::journal::{append, check_question, failed, lock, opened, refused};
use crate::study::manifest::{differences, shown};
use crate::study::{Named, StudyError};

/// Format of the file. Files of another format are refused.
const FORMAT: u32 = 1;

/// Start of every header.
const MARK: &str = "{\"rerankd_distil\":";

/// Text before the sum of a line.
const SEAL: &str = ",\"sum\":\"";

/// Text after the sum.
const CLOSE: &str = "\"}";

/// Hexadecimal digits of a sum.
const DIGITS: usize = 16;

/// A file that is open for appending, and locked.
pub(super) struct ExportFile {
    file: File,
    path: PathBuf,
    /// Sum of the last line.
    sum: String,
    /// Questions that the file holds.
    pub done: usize,
    /// Questions without scores, whose lines hold the reason.
    pub refused: usize,
    /// Bytes of an incomplete line that was dropped.
    pub dropped: u64,
}

/// The checked members of a question's line.
#[derive(Deserialize)]
struct Question {
    id: String,
    data: String,
    /// The reason for missing scores.
    error: Option<String>,
}

fn sum_of(before: &str, body: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(before.as_bytes());
    hasher.update(body.as_bytes());
    hex::encode(&hasher.finalize()[..DIGITS / 2])
}

/// An object with its sum, and the sum. `object` is the text of a JSON object with at least one member.
fn sealed(object: &str, before: &str) -> (String, String) {
    let body = object.strip_suffix('}').unwrap_or(object);
    let sum = sum_of(before, body);
    (format!("{body}{SEAL}{sum}{CLOSE}"), sum)
}

/// The text of a complete line and its sum; `None` if the line was not written after a line with the sum `before`.
fn unsealed<'a>(line: &'a [u8], before: &str) -> Option<(&'a str, String)> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (body, tail) = text.split_at_checked(text.len().checked_sub(SEAL.len() + DIGITS + CLOSE.len())?)?;
    let sum = tail.strip_prefix(SEAL)?.strip_suffix(CLOSE)?;
    (sum == sum_of(before, body)).then(|| (text, sum.to_owned()))
}

impl ExportFile {
    /// Opens the file at `path`, or creates it. A file that exists must have this header, and its questions must be the first
    /// of `questions`, in order.
    pub fn open<Q>(path: &Path, header: &Map<String, Value>, questions: &[Named<'_, Q>]) -> Result<Self, StudyError> {
        let file = opened(path)?;
        lock(&file, path)?;
        let mut export = Self { file, path: path.to_owned(), sum: String::new(), done: 0, refused: 0, dropped: 0 };
        let (lines, end) = export.check(header, questions)?;
        let length = export.file.metadata().map_err(|error| failed(path, &error))?.len();
        export.dropped = length.saturating_sub(end);
        if export.dropped > 0 {
            export.file.set_len(end).map_err(|error| failed(path, &error))?;
        }
        export.file.seek(SeekFrom::End(0)).map_err(|error| failed(path, &error))?;
        export.done = lines.saturating_sub(1);
        if lines == 0 {
            let rest = serde_json::to_string(header).map_err(anyhow::Error::from)?;
            let (_, members) = rest.split_at(1);
            export.write(&format!("{MARK}{FORMAT},{members}"))?;
        }
        Ok(export)
    }

    /// Reads all lines. Returns the number of good lines, and the end of the last.
    fn check<Q>(
        &mut self,
        header: &Map<String, Value>,
        questions: &[Named<'_, Q>],
    ) -> Result<(usize, u64), StudyError> {
        let path = self.path.clone();
        let mut reader = BufReader::new(&self.file);
        let (mut line, mut sum) = (Vec::new(), String::new());
        let (mut lines, mut end, mut refusals) = (0, 0, 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(|error| failed(&path, &error))?;
            if read == 0 {
                break;
            }
            let Some((text, next)) = unsealed(&line, &sum) else {
                let last = reader.fill_buf().map_err(|error| failed(&path, &error))?.is_empty();
                let begun = lines > 0 || line.starts_with(MARK.as_bytes()) || MARK.as_bytes().starts_with(&line);
                if !begun {
                    return Err(refused(&path, "is not an export; nothing is written to it"));
                }
                if !last {
                    let problem = format!("line {} is damaged, and others follow it", lines + 1);
                    return Err(refused(&path, &problem));
                }
                break;
            };
            let checked = match lines {
                0 => check_header(text, header).map(|()| false),
                number => was_refused(text, questions, number - 1),
            };
            let was_refused = checked.map_err(|problem| refused(&path, &format!("line {}: {problem}", lines + 1)))?;
            refusals += usize::from(was_refused);
            sum = next;
            lines += 1;
            end += read as u64;
        }
        self.sum = sum;
        self.refused = refusals;
        Ok((lines, end))
    }

    /// Appends a question and waits until it is on disk. If `refused`, its line has the reason instead of scores.
    pub fn append(&mut self, question: &impl Serialize, refused: bool) -> Result<(), StudyError> {
        let object = serde_json::to_string(question).map_err(anyhow::Error::from)?;
        self.write(&object)?;
        self.done += 1;
        self.refused += usize::from(refused);
        Ok(())
    }

    fn write(&mut self, object: &str) -> Result<(), StudyError> {
        let (line, sum) = sealed(object, &self.sum);
        append(&mut self.file, &self.path, &line)?;
        self.sum = sum;
        Ok(())
    }
}

/// Refuses a header of another format, generator or option, and names the differences.
fn check_header(text: &str, expected: &Map<String, Value>) -> Result<(), String> {
    let mut stored: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    stored.remove("sum");
    let format = stored.remove("rerankd_distil");
    if format != Some(FORMAT.into()) {
        return Err(format!("format {}, this program writes {FORMAT}", shown(format.as_ref())));
    }
    let changed = differences(&stored, expected);
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("the export was made with another model or other options: {}", changed.join(", ")))
}

/// Refuses a line that belongs to another question than the one at `index`. Returns true if the question has no
/// scores.
fn was_refused<Q>(text: &str, questions: &[Named<'_, Q>], index: usize) -> Result<bool, String> {
    let line: Question = serde_json::from_str(text).map_err(|error| error.to_string())?;
    check_question(questions, index, (&line.id, &line.data)).map(|()| line.error.is_some())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::odd;

    const IDS: [&str; 4] = ["a", "b", "c", "d"];

    fn header(seed: u64) -> Map<String, Value> {
        let entries = [("generator_sha256", json!("00ff")), ("seed", json!(seed))];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn expected() -> Vec<Named<'static, ()>> {
        IDS.iter().map(|id| Named { id, fingerprint: format!("data of {id}"), question: &() }).collect()
    }

    fn line(id: &str) -> Value {
        json!({ "id": id, "data": format!("data of {id}"), "query_after_passage": [-1.5, -2.25], "text": "a \"sum\" }\n" })
    }

    fn open(path: &Path) -> Result<ExportFile, String> {
        ExportFile::open(path, &header(0), &expected()).map_err(|error| error.to_string())
    }

    /// Writes the missing questions and returns the bytes of the file.
    fn complete(path: &Path) -> Vec<u8> {
        let mut file = open(path).unwrap();
        for id in &IDS[file.done..] {
            file.append(&line(id), false).unwrap();
        }
        drop(file);
        std::fs::read(path).unwrap()
    }

    fn refusal(path: &Path) -> String {
        let error = open(path).err().unwrap();
        error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    }

    /// A kill may come after any byte. The file then ends there, and the next export continues it.
    #[test]
    fn a_file_cut_off_anywhere_is_continued_to_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let whole = complete(&folder.path().join("whole"));
        let path = folder.path().join("cut");
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let file = open(&path).unwrap();
            let lines = memchr::memchr_iter(b'\n', &whole[..length]).count();
            assert_eq!(file.done, lines.saturating_sub(1), "{length} bytes");
            assert_eq!(file.dropped == 0, length == 0 || whole[length - 1] == b'\n', "{length} bytes");
            drop(file);
            assert!(complete(&path) == whole, "{length} bytes");
        }
    }

    #[test]
    fn every_line_is_json_with_the_sum_that_the_documentation_states() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = complete(&folder.path().join("whole"));
        let text = String::from_utf8(bytes).unwrap();
        let mut before = String::new();
        for (at, line) in text.lines().enumerate() {
            let value: Value = serde_json::from_str(line).unwrap();
            let sum = value["sum"].as_str().unwrap();
            let body = line.strip_suffix(&format!(",\"sum\":\"{sum}\"}}")).unwrap();
            assert_eq!(sum, &hex::encode(Sha256::digest(format!("{before}{body}")))[..16]);
            assert_eq!(at == 0, value["rerankd_distil"] == 1);
            before = sum.to_owned();
        }
    }

    #[test]
    fn a_damaged_end_is_dropped_and_other_damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole = complete(&path);
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        let changed = |at: usize| {
            let mut copy: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
            let digit = copy[at].iter().position(|byte| *byte == b'1').unwrap();
            copy[at][digit] = b'7';
            copy.concat()
        };
        // A complete last line with a changed digit.
        std::fs::write(&path, changed(4)).unwrap();
        let file = open(&path).unwrap();
        assert_eq!((file.done, file.dropped), (3, lines[4].len() as u64));
        drop(file);
        assert!(complete(&path) == whole);
        for (damaged, problem) in [
            (changed(2), "line 3 is damaged, and others follow it"),
            (changed(0), "line 1 is damaged, and others follow it"),
            ([lines[0], lines[1], lines[3], lines[4]].concat(), "line 3 is damaged, and others follow it"),
            ([lines[0], lines[2], lines[1], lines[3]].concat(), "line 2 is damaged, and others follow it"),
            (b"my only copy of something".to_vec(), "is not an export; nothing is written to it"),
            (b"{\"id\": 1}\n".to_vec(), "is not an export; nothing is written to it"),
        ] {
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(refusal(&path), problem);
            assert!(std::fs::read(&path).unwrap() == damaged, "a refused file is left alone");
        }
    }

    #[test]
    fn other_options_and_questions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        complete(&path);
        let opened = |header: &Map<String, Value>, expected: &[Named<'_, ()>]| {
            ExportFile::open(&path, header, expected).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let mut other = header(3);
        other.insert("passages".into(), json!(8));
        let said = opened(&other, &expected());
        assert!(
            said.ends_with(
                "line 1: the export was made with another model or other options: seed (stored 0, now 3), passages (stored nothing, now 8)"
            ),
            "{said}"
        );
        let mut questions = expected();
        questions[1].fingerprint = "other passages".to_owned();
        assert!(opened(&header(0), &questions).ends_with("line 3: question \"b\" or its passages have changed"));
        questions[0].id = "z";
        assert!(opened(&header(0), &questions).ends_with("line 2: has question \"a\", expected \"z\""));
        let few = opened(&header(0), &expected()[..2]);
        assert!(few.ends_with("line 4: has question \"c\", but there are only 2 questions"), "{few}");
        assert_eq!(opened(&header(0), &expected()), "");
    }

    #[test]
    fn questions_without_scores_are_counted_in_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = open(&path).unwrap();
        file.append(&line("a"), false).unwrap();
        file.append(&json!({ "id": "b", "data": "data of b", "error": "too long" }), true).unwrap();
        assert_eq!((file.done, file.refused), (2, 1));
        drop(file);
        let file = open(&path).unwrap();
        assert_eq!((file.done, file.refused), (2, 1));
    }

    #[test]
    fn two_exports_do_not_write_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let first = open(&path).unwrap();
        assert_eq!(refusal(&path), "another command is writing to this file");
        drop(first);
        open(&path).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The next export reads what an interrupted one wrote.
        #[test]
        fn questions_are_read_as_they_were_written(ids in odd::ids(), text in odd::text()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let header: Map<String, Value> = [("model".to_owned(), json!(text))].into_iter().collect();
            let named = |id| Named { id, fingerprint: text.clone(), question: &() };
            let expected: Vec<Named<'_, ()>> = ids.iter().map(|id| named(id.as_str())).collect();
            let open = || ExportFile::open(&path, &header, &expected).unwrap();
            let mut file = open();
            for id in &ids {
                file.append(&json!({ "id": id, "data": text, "question": text, "error": text }), true).unwrap();
            }
            drop(file);
            let file = open();
            prop_assert_eq!((file.done, file.refused, file.dropped), (ids.len(), ids.len(), 0));
        }
    }
}
