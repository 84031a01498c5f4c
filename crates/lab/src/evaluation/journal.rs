//! The results file: one line a question, appended when the question ends, so that an interrupted evaluation continues where it
//! stopped.
//!
//! `manifest.json` holds everything that the results depend on and is written first. Lines are only appended; an incomplete
//! last line is dropped at the next start. Times differ between runs and are kept in `timing.jsonl`, so that an interrupted
//! evaluation leaves the same results file as an uninterrupted one. What else differs between runs goes there too
//! ([`Journal::append_timed`]).

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::EvaluationError;
use models::store::write_atomically;

/// Name of the file of times.
const TIMING: &str = "timing.jsonl";

/// The line of one question.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The question's id.
    fn id(&self) -> &str;

    /// Fingerprint of what the line was made from.
    fn data(&self) -> &str;
}

/// An open results file of lines of one kind.
pub(crate) struct Journal<L> {
    results: File,
    timing: File,
    path: PathBuf,
    /// Number of questions that are done.
    pub done: usize,
    lines: PhantomData<fn() -> L>,
}

#[derive(Serialize, Deserialize)]
struct Timing {
    id: String,
    seconds: f64,
    /// The times of its parts.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    times: Value,
}

fn failed(path: &Path, error: &std::io::Error) -> EvaluationError {
    EvaluationError::Other(anyhow::anyhow!("{}: {error}", path.display()))
}

impl<L: Record> Journal<L> {
    /// Opens the results in `folder`. They must have the same manifest, and their lines must have the ids and fingerprints of
    /// the first questions, in order. With `restart` existing results are thrown away.
    pub fn open(
        folder: &Path,
        manifest: &Map<String, Value>,
        expected: &[(&str, String)],
        restart: bool,
    ) -> Result<Self, EvaluationError> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let (path, manifest_path) = (folder.join("results.jsonl"), folder.join("manifest.json"));
        check_owner(&manifest_path, std::fs::metadata(&path).is_ok_and(|results| results.len() > 0))?;
        let open = |path: &Path| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(|e| failed(path, &e))
        };
        let mut results = open(&path)?;
        match results.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EvaluationError::Input(format!(
                    "{}: another evaluation is writing to this folder",
                    folder.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&path, &error)),
        }
        let begun = results.metadata().map_err(|error| failed(&path, &error))?.len() > 0;
        let mut timing = open(&folder.join(TIMING))?;
        let mut manifest = manifest.clone();
        if restart {
            for file in [&results, &timing] {
                file.set_len(0).map_err(|error| failed(folder, &error))?;
            }
        } else {
            let stored = check_manifest(&manifest_path, &manifest, begun)?;
            // A server does not tell its bounds; those of the results that are there still hold.
            if let Some(bounds) = stored.and_then(|mut stored| stored.remove(BOUNDS)).filter(|_| begun) {
                manifest.entry(BOUNDS).or_insert(bounds);
            }
        }
        let text = serde_json::to_string_pretty(&manifest).context("manifest")?;
        write_atomically(&manifest_path, format!("{text}\n").as_bytes())
            .map_err(|error| failed(&manifest_path, &error))?;
        drop_incomplete_line(&mut timing, &folder.join(TIMING))?;
        drop_incomplete_line(&mut results, &path)?;
        let done = check_lines::<L>(&mut results, &path, expected)?;
        results.seek(SeekFrom::End(0)).map_err(|error| failed(&path, &error))?;
        timing.seek(SeekFrom::End(0)).map_err(|error| failed(&path, &error))?;
        Ok(Self { results, timing, path, done, lines: PhantomData })
    }

    /// Appends a question's line and waits until it is on disk.
    pub fn append(&mut self, line: &L, seconds: f64) -> Result<(), EvaluationError> {
        self.append_timed(line, seconds, Value::Null)
    }

    /// The same, with the times of the question's parts.
    pub fn append_timed(&mut self, line: &L, seconds: f64, times: Value) -> Result<(), EvaluationError> {
        let timing = Timing { id: line.id().to_owned(), seconds, times };
        // The time is written first: a question with a time but no result is evaluated again, and its time is replaced.
        let timings = self.path.with_file_name(TIMING);
        for (file, path, text) in [
            (&mut self.timing, &timings, serde_json::to_string(&timing).context("timing")?),
            (&mut self.results, &self.path, serde_json::to_string(line).context("result")?),
        ] {
            let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_data());
            written.map_err(|error| failed(path, &error))?;
        }
        self.done += 1;
        Ok(())
    }

    /// All lines of the file.
    pub fn lines(&mut self) -> Result<Vec<L>, EvaluationError> {
        self.results.rewind().map_err(|error| failed(&self.path, &error))?;
        BufReader::new(&self.results)
            .lines()
            .map(|line| {
                let line = line.map_err(|error| failed(&self.path, &error))?;
                serde_json::from_str(&line)
                    .with_context(|| self.path.display().to_string())
                    .map_err(EvaluationError::Other)
            })
            .collect()
    }

    /// Seconds of each question; the last ones where it was evaluated more than once.
    pub fn seconds(&mut self) -> Result<BTreeMap<String, f64>, EvaluationError> {
        Ok(self.timings()?.into_iter().map(|(id, timing)| (id, timing.seconds)).collect())
    }

    /// The times of the parts of each question that has any.
    pub fn times(&mut self) -> Result<BTreeMap<String, Value>, EvaluationError> {
        let timed = self.timings()?.into_iter().filter(|(_, timing)| !timing.times.is_null());
        Ok(timed.map(|(id, timing)| (id, timing.times)).collect())
    }

    fn timings(&mut self) -> Result<BTreeMap<String, Timing>, EvaluationError> {
        self.timing.rewind().map_err(|error| failed(&self.path, &error))?;
        let mut timings = BTreeMap::new();
        for line in BufReader::new(&self.timing).lines() {
            let line = line.map_err(|error| failed(&self.path, &error))?;
            // Times are only shown in the report, so an unreadable one is ignored.
            if let Ok(timing) = serde_json::from_str::<Timing>(&line) {
                timings.insert(timing.id.clone(), timing);
            }
        }
        Ok(timings)
    }
}

/// The entry of the bounds of an engine in this process.
pub(crate) const BOUNDS: &str = "engine";

/// The manifest of the results in a folder; `None` where there is none that can be read.
pub(super) fn stored(folder: &Path) -> Option<Map<String, Value>> {
    serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json")).ok()?).ok()
}

/// Entries of which every manifest of this program has one.
const FORMATS: [&str; 3] = ["format", "comparison_format", "analysis_format"];

/// Refuses a folder whose files of these names are not of this program: they would be overwritten.
fn check_owner(manifest: &Path, begun: bool) -> Result<(), EvaluationError> {
    let refused = |what: &str| {
        let problem = format!("{what}; nothing is written to it, take another folder");
        Err(EvaluationError::Input(format!("{}: {problem}", manifest.display())))
    };
    match std::fs::read_to_string(manifest) {
        Ok(text) => match serde_json::from_str::<Value>(&text) {
            Ok(stored) if !FORMATS.iter().any(|format| stored.get(format).is_some()) => {
                refused("is not of such results")
            }
            // One that is cut short is told with what helps.
            _ => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && begun => {
            refused("is missing beside a results.jsonl that holds lines")
        }
        Err(_) => Ok(()),
    }
}

/// Refuses results of other settings. Returns the stored manifest.
fn check_manifest(
    path: &Path,
    manifest: &Map<String, Value>,
    begun: bool,
) -> Result<Option<Map<String, Value>>, EvaluationError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !begun => return Ok(None),
        Err(error) => return Err(EvaluationError::Input(format!("{}: {error}", path.display()))),
    };
    let stored: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| EvaluationError::Input(format!("{}: {error}; --restart starts again", path.display())))?;
    let keys = stored.keys().chain(manifest.keys().filter(|key| !stored.contains_key(*key)));
    // Only an engine in this process tells its bounds.
    let told = |key: &String| key != BOUNDS || (stored.contains_key(key) && manifest.contains_key(key));
    let changed: Vec<String> = keys
        .filter(|key| told(key) && stored.get(*key) != manifest.get(*key))
        .map(|key| format!("{key} (stored {}, now {})", shown(stored.get(key)), shown(manifest.get(key))))
        .collect();
    if changed.is_empty() || !begun {
        return Ok(Some(stored));
    }
    Err(EvaluationError::Input(format!(
        "{}: the results were made with other settings: {}; --restart throws them away",
        path.display(),
        changed.join(", ")
    )))
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() > 60 { format!("{}…", text.chars().take(59).collect::<String>()) } else { text }
}

/// Removes what follows the last line end.
fn drop_incomplete_line(file: &mut File, path: &Path) -> Result<(), EvaluationError> {
    let bytes = std::fs::read(path).map_err(|error| failed(path, &error))?;
    let complete = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
    if complete < bytes.len() {
        file.set_len(complete as u64).map_err(|error| failed(path, &error))?;
    }
    Ok(())
}

/// Checks each line against its question and returns the number of lines.
fn check_lines<L: Record>(file: &mut File, path: &Path, expected: &[(&str, String)]) -> Result<usize, EvaluationError> {
    file.rewind().map_err(|error| failed(path, &error))?;
    let mut done = 0;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let bad = |problem: String| EvaluationError::Input(format!("{}:{}: {problem}", path.display(), index + 1));
        let line = line.map_err(|error| bad(error.to_string()))?;
        let line: L = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        match expected.get(index) {
            Some((id, _)) if *id != line.id() => {
                return Err(bad(format!("has question {:?}, expected {id:?}; --restart starts again", line.id())));
            }
            Some((id, data)) if *data != line.data() => {
                let problem = format!("question {id:?} or its passages have changed; --restart starts again");
                return Err(bad(problem));
            }
            Some(_) => done += 1,
            None => {
                let problem = format!(
                    "has question {:?}, but there are only {} questions; --restart starts again",
                    line.id(),
                    expected.len()
                );
                return Err(bad(problem));
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::evaluation::line::Line;
    use crate::odd;

    fn open(folder: &Path, manifest: &Value, restart: bool) -> Result<Journal<Line>, String> {
        Journal::open(folder, manifest.as_object().unwrap(), &[], restart).map_err(|error| error.to_string())
    }

    /// A manifest of a web application was overwritten, and a results.jsonl of another program emptied.
    #[test]
    fn files_of_others_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (manifest, results) = (folder.path().join("manifest.json"), folder.path().join("results.jsonl"));
        std::fs::write(&manifest, r#"{"name": "app"}"#).unwrap();
        for restart in [false, true] {
            let refused = open(folder.path(), &json!({ "format": 2 }), restart).err().unwrap();
            assert!(refused.contains("nothing is written to it"), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), r#"{"name": "app"}"#);
        std::fs::remove_file(&manifest).unwrap();
        std::fs::write(&results, "{}\n").unwrap();
        assert!(open(folder.path(), &json!({ "format": 2 }), true).is_err());
        assert_eq!(std::fs::read_to_string(&results).unwrap(), "{}\n");
    }

    /// One step over a server, which does not tell its bounds, and they were forgotten.
    #[test]
    fn bounds_outlive_a_step_over_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let line = Line { id: "q".into(), data: "d".into(), ..Line::default() };
        let within = |bounds: u32| json!({ "format": 2, BOUNDS: bounds });
        open(folder.path(), &within(1), false).unwrap().append(&line, 0.1).unwrap();
        let expected = [("q", "d".to_owned())];
        let server = json!({ "format": 2 });
        Journal::<Line>::open(folder.path(), server.as_object().unwrap(), &expected, false).unwrap();
        let again =
            |bounds| Journal::<Line>::open(folder.path(), within(bounds).as_object().unwrap(), &expected, false);
        assert!(again(1).is_ok());
        assert!(again(2).err().unwrap().to_string().contains("other settings"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The next run reads what an interrupted one wrote.
        #[test]
        fn lines_are_read_as_they_were_written(ids in odd::ids(), text in odd::text(), label in odd::number()) {
            let folder = tempfile::tempdir().unwrap();
            let line = |id: &String| Line {
                id: id.clone(),
                data: "d".to_owned(),
                passages: vec![text.clone(), id.clone()],
                passage_answers: vec![text.clone()],
                warnings: vec![text.clone()],
                labels: [(text.clone(), vec![label, 1.0])].into(),
                ..Line::default()
            };
            let lines: Vec<Line> = ids.iter().map(line).collect();
            let manifest = json!({ "format": 2, "instruction": text, "files": ids });
            let mut journal = open(folder.path(), &manifest, false).unwrap();
            for line in &lines {
                journal.append(line, 0.5).unwrap();
            }
            drop(journal);
            let expected: Vec<(&str, String)> = ids.iter().map(|id| (id.as_str(), "d".to_owned())).collect();
            let mut journal = Journal::<Line>::open(folder.path(), manifest.as_object().unwrap(), &expected, false).unwrap();
            prop_assert_eq!(journal.done, ids.len());
            prop_assert_eq!(journal.lines().unwrap(), lines);
            prop_assert!(journal.seconds().unwrap().keys().eq(ids.iter().collect::<std::collections::BTreeSet<_>>()));
        }
    }
}
