//! The files of results: a line per question, appended when the question ends, so that an interrupted study continues where it
//! stopped.
//!
//! `manifest.json` holds everything that the results depend on and is written first. Lines of `results.jsonl` are
//! only appended; an incomplete last line is dropped at the next start. Times differ between runs and are stored in
//! `timing.jsonl`, so that an interrupted study leaves the same results file as an uninterrupted one.

use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::manifest::{BOUNDS, FORMAT, PROGRAM, differences};
use super::{Named, Results, StudyError};
use models::store::write_atomically;

/// File of the cited answers that some studies create from their results.
pub const ANSWERS: &str = "answers.jsonl";

/// The line of one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry<R> {
    pub id: String,
    /// Fingerprint of the question.
    pub data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<R>,
    /// The reason for a missing value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Time of a question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timing {
    pub id: String,
    pub seconds: f64,
    /// The times of its parts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub times: Value,
}

/// The files of a folder, open for appending, and locked.
pub(super) struct Journal {
    results: (File, PathBuf),
    timing: (File, PathBuf),
}

/// An error of the operating system about a file.
pub fn failed(path: &Path, error: &std::io::Error) -> StudyError {
    StudyError::Other(anyhow::anyhow!("{}: {error}", path.display()))
}

/// An error about a file's content.
pub fn refused(path: &Path, problem: &str) -> StudyError {
    StudyError::Input(format!("{}: {problem}", path.display()))
}

/// Opens a file for reading and writing, or creates it.
pub fn opened(path: &Path) -> Result<File, StudyError> {
    let options = File::options().read(true).write(true).create(true).truncate(false).open(path);
    options.map_err(|error| refused(path, &error.to_string()))
}

/// Locks a file until it is closed. Two commands that append to one file would mix their lines.
pub fn lock(file: &File, path: &Path) -> Result<(), StudyError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(refused(path, "another command is writing to this file")),
        Err(TryLockError::Error(error)) => Err(failed(path, &error)),
    }
}

/// Appends a line and waits until it is on disk.
pub fn append(file: &mut File, path: &Path, line: &str) -> Result<(), StudyError> {
    let written = file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.sync_data());
    written.map_err(|error| failed(path, &error))
}

/// Refuses a line that belongs to another question than the one at `index`.
pub fn check_question<Q>(questions: &[Named<'_, Q>], index: usize, (id, data): (&str, &str)) -> Result<(), String> {
    match questions.get(index) {
        None => Err(format!("has question {id:?}, but there are only {} questions", questions.len())),
        Some(named) if named.id != id => Err(format!("has question {id:?}, expected {:?}", named.id)),
        Some(named) if named.fingerprint != data => Err(format!("question {id:?} or its passages have changed")),
        Some(_) => Ok(()),
    }
}

impl Journal {
    /// Opens the results in `folder`, which must have the manifest of `into`, and reads them. Their lines must
    /// belong to the first questions, in order. With `restart` existing results are deleted.
    pub fn open<Q, R: DeserializeOwned>(
        folder: &Path,
        restart: bool,
        questions: &[Named<'_, Q>],
        into: &mut Results<R>,
    ) -> Result<Self, StudyError> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let [path, timing, manifest] = ["results.jsonl", "timing.jsonl", "manifest.json"].map(|name| folder.join(name));
        let begun = || std::fs::metadata(&path).is_ok_and(|results| results.len() > 0);
        let stored = stored(&manifest, begun(), restart)?;
        let mut journal = Self { results: (opened(&path)?, path.clone()), timing: (opened(&timing)?, timing) };
        lock(&journal.results.0, &path)?;
        if restart {
            if stored.is_some() {
                // Usually there are none. They would belong to the deleted results.
                let _ = std::fs::remove_file(folder.join(ANSWERS));
            }
            for (file, path) in [&journal.results, &journal.timing] {
                file.set_len(0).map_err(|error| failed(path, &error))?;
            }
        }
        if let Some(stored) = stored.filter(|_| begun()) {
            check_manifest(&manifest, stored, &mut into.manifest)?;
        }
        let text = format!("{:#}\n", Value::Object(into.manifest.clone()));
        write_atomically(&manifest, text.as_bytes()).map_err(|error| failed(&manifest, &error))?;
        for (index, line) in complete_lines(&mut journal.results)?.iter().enumerate() {
            let bad = |problem: &str| {
                StudyError::Input(format!("{}:{}: {problem}; --restart starts again", path.display(), index + 1))
            };
            let entry: Entry<R> = serde_json::from_str(line).map_err(|error| bad(&error.to_string()))?;
            check_question(questions, index, (&entry.id, &entry.data)).map_err(|problem| bad(&problem))?;
            into.entries.push(entry);
        }
        for line in complete_lines(&mut journal.timing)? {
            // Times are only shown, so an unreadable one is ignored. The last time of a question counts, because it may
            // have been asked twice.
            if let Ok(timing) = serde_json::from_str::<Timing>(&line) {
                into.timings.insert(timing.id.clone(), timing);
            }
        }
        Ok(journal)
    }

    /// Appends a question.
    pub fn append(&mut self, entry: &Entry<impl Serialize>, timing: &Timing) -> Result<(), StudyError> {
        // The time is written first: a question with a time but no result is asked again, and its time is replaced.
        let text = serde_json::to_string(timing).map_err(anyhow::Error::from)?;
        append(&mut self.timing.0, &self.timing.1, &text)?;
        let text = serde_json::to_string(entry).map_err(anyhow::Error::from)?;
        append(&mut self.results.0, &self.results.1, &text)
    }
}

/// The manifest in a folder; `None` if there is none. Refuses a folder with files of these names from other
/// programs, because they would be overwritten.
fn stored(path: &Path, begun: bool, restart: bool) -> Result<Option<Map<String, Value>>, StudyError> {
    let foreign = |what: &str| Err(refused(path, &format!("{what}; nothing is written to it; choose another folder")));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !begun => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return foreign("is missing, but results.jsonl has lines");
        }
        Err(error) => return Err(refused(path, &error.to_string())),
    };
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(stored) if stored.get(FORMAT).and_then(Value::as_str).is_some_and(|format| format.starts_with(PROGRAM)) => {
            Ok(Some(stored))
        }
        Ok(_) => foreign("is not a manifest of this program"),
        Err(_) if restart => Ok(None),
        Err(error) => Err(refused(path, &format!("{error}; --restart starts again"))),
    }
}

/// Refuses results of other settings. Only an engine in this process reports its bounds; over a server the stored
/// bounds still apply.
fn check_manifest(path: &Path, mut stored: Map<String, Value>, now: &mut Map<String, Value>) -> Result<(), StudyError> {
    match (stored.get(BOUNDS).cloned(), now.get(BOUNDS).cloned()) {
        (Some(bounds), None) => _ = now.insert(BOUNDS.to_owned(), bounds),
        (None, Some(bounds)) => _ = stored.insert(BOUNDS.to_owned(), bounds),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let changed = differences(&stored, now).join(", ");
    if changed.is_empty() {
        return Ok(());
    }
    Err(refused(path, &format!("the results were made with other settings: {changed}; --restart deletes them")))
}

/// The lines of a file. An incomplete last one is removed from it.
fn complete_lines((file, path): &mut (File, PathBuf)) -> Result<Vec<String>, StudyError> {
    let (mut lines, mut end) = (Vec::new(), 0);
    let mut reader = BufReader::new(&*file);
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).map_err(|error| failed(path, &error))?;
        if line.pop() != Some(b'\n') {
            break;
        }
        end += read as u64;
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
    file.set_len(end).and_then(|()| file.seek(SeekFrom::End(0))).map_err(|error| failed(path, &error))?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::odd;

    /// A manifest of this program with these settings.
    fn manifest(settings: &Value) -> Map<String, Value> {
        let mut manifest: Map<String, Value> = [(FORMAT.to_owned(), json!("rerankd study 1"))].into_iter().collect();
        manifest.extend(settings.as_object().cloned().unwrap());
        manifest
    }

    fn open(
        folder: &Path,
        manifest: Map<String, Value>,
        ids: &[&str],
        restart: bool,
    ) -> Result<(Journal, Results<Value>), String> {
        let questions: Vec<Named<'_, ()>> =
            ids.iter().map(|id| Named { id, fingerprint: "d".to_owned(), question: &() }).collect();
        let mut results = Results { entries: Vec::new(), timings: BTreeMap::new(), manifest };
        let journal = Journal::open(folder, restart, &questions, &mut results).map_err(|error| error.to_string())?;
        Ok((journal, results))
    }

    fn append(journal: &mut Journal, id: &str, value: &Value) {
        let entry = Entry { id: id.to_owned(), data: "d".to_owned(), value: Some(value.clone()), error: None };
        let timing = Timing { id: id.to_owned(), seconds: 0.5, times: Value::Null };
        journal.append(&entry, &timing).unwrap();
    }

    /// Files of other programs must not be overwritten or emptied.
    #[test]
    fn files_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (path, results) = (folder.path().join("manifest.json"), folder.path().join("results.jsonl"));
        for foreign in [r#"{"name": "app"}"#, r#"{"format": 4}"#] {
            std::fs::write(&path, foreign).unwrap();
            for restart in [false, true] {
                let refused = open(folder.path(), manifest(&json!({})), &[], restart).err().unwrap();
                assert!(refused.contains("nothing is written to it"), "{refused}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&results, "{}\n").unwrap();
        assert!(open(folder.path(), manifest(&json!({})), &[], true).is_err());
        assert_eq!(std::fs::read_to_string(&results).unwrap(), "{}\n");
    }

    #[test]
    fn results_of_another_version_need_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let later = || manifest(&json!({ FORMAT: "rerankd study 2" }));
        append(&mut open(folder.path(), manifest(&json!({})), &["q"], false).unwrap().0, "q", &json!(1));
        let refused = open(folder.path(), later(), &["q"], false).err().unwrap();
        assert!(
            refused.contains("format (stored \"rerankd study 1\", now") && refused.contains("--restart"),
            "{refused}"
        );
        assert!(open(folder.path(), later(), &["q"], true).unwrap().1.entries.is_empty());
    }

    /// A step over a server, which does not report its bounds, must not remove the stored bounds.
    #[test]
    fn bounds_outlive_a_step_over_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let within = |bounds: u32| manifest(&json!({ BOUNDS: bounds }));
        append(&mut open(folder.path(), within(1), &["q"], false).unwrap().0, "q", &json!(1));
        open(folder.path(), manifest(&json!({})), &["q"], false).unwrap();
        assert!(open(folder.path(), within(1), &["q"], false).is_ok());
        assert!(open(folder.path(), within(2), &["q"], false).err().unwrap().contains("other settings"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The next run reads what an interrupted one wrote.
        #[test]
        fn lines_are_read_as_they_were_written(ids in odd::ids(), text in odd::text(), label in odd::number()) {
            let folder = tempfile::tempdir().unwrap();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let own = || manifest(&json!({ "instruction": text, "files": ids }));
            let value = json!({ "text": text, "labels": [label, 1.0] });
            let (mut journal, _) = open(folder.path(), own(), &ids, false).unwrap();
            for id in &ids {
                append(&mut journal, id, &value);
            }
            drop(journal);
            let (_, read) = open(folder.path(), own(), &ids, false).unwrap();
            prop_assert_eq!(read.entries.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), &ids[..]);
            prop_assert!(read.entries.iter().all(|entry| entry.value.as_ref() == Some(&value)));
            prop_assert_eq!(read.timings.len(), ids.len());
        }
    }
}
