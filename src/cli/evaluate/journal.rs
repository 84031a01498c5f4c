//! The results file: one line a question, appended as they end, so that a run that was broken off goes on where it stopped.
//!
//! `manifest.json` says what the results belong to and is written first; a line is only ever appended, and a torn last line
//! is dropped at the next start. What differs between runs (seconds) stands in `timing.jsonl`, so that an interrupted run
//! leaves the same results file as an undisturbed one.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::line::Line;
use crate::cli::Failure;
use crate::storage::store::write_atomically;

/// An open results file.
pub(super) struct Journal {
    results: File,
    timing: File,
    path: PathBuf,
    /// Questions that are done.
    pub done: usize,
}

#[derive(Serialize, Deserialize)]
struct Timing {
    id: String,
    seconds: f64,
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Other(anyhow::anyhow!("{}: {error}", path.display()))
}

impl Journal {
    /// Opens the results in `folder`, which must belong to the same manifest, and checks every line against the questions' ids
    /// and fingerprints in their order; there may be more questions than lines. With `restart` what is there is thrown away.
    pub fn open(
        folder: &Path,
        manifest: &Map<String, Value>,
        expected: &[(&str, String)],
        restart: bool,
    ) -> Result<Self, Failure> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let path = folder.join("results.jsonl");
        let open = |path: &Path| {
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(|e| failed(path, &e))
        };
        let mut results = open(&path)?;
        match results.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Input(format!("{}: another evaluation writes there", folder.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&path, &error)),
        }
        let mut timing = open(&folder.join("timing.jsonl"))?;
        let place = folder.join("manifest.json");
        if restart {
            for file in [&results, &timing] {
                file.set_len(0).map_err(|error| failed(folder, &error))?;
            }
        } else {
            agree(&place, manifest, results.metadata().map_err(|error| failed(&path, &error))?.len() > 0)?;
        }
        let text = serde_json::to_string_pretty(manifest).context("manifest")?;
        write_atomically(&place, format!("{text}\n").as_bytes()).map_err(|error| Failure::Other(error.into()))?;
        drop_torn(&mut timing, &folder.join("timing.jsonl"))?;
        drop_torn(&mut results, &path)?;
        let done = check(&mut results, &path, expected)?;
        results.seek(SeekFrom::End(0)).map_err(|error| failed(&path, &error))?;
        timing.seek(SeekFrom::End(0)).map_err(|error| failed(&path, &error))?;
        Ok(Self { results, timing, path, done })
    }

    /// Appends a question's line; it is on the disk when this returns.
    pub fn append(&mut self, line: &Line, seconds: f64) -> Result<(), Failure> {
        let timing = Timing { id: line.id.clone(), seconds };
        // The time first: a question without one is known to be undone, one without a result is not.
        for (file, text) in [
            (&mut self.timing, serde_json::to_string(&timing).context("timing")?),
            (&mut self.results, serde_json::to_string(line).context("result")?),
        ] {
            let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_data());
            written.map_err(|error| failed(&self.path, &error))?;
        }
        self.done += 1;
        Ok(())
    }

    /// All lines, as they stand in the file.
    pub fn lines(&mut self) -> Result<Vec<Line>, Failure> {
        self.results.rewind().map_err(|error| failed(&self.path, &error))?;
        BufReader::new(&self.results)
            .lines()
            .map(|line| {
                let line = line.map_err(|error| failed(&self.path, &error))?;
                serde_json::from_str(&line).with_context(|| self.path.display().to_string()).map_err(Failure::Other)
            })
            .collect()
    }

    /// Seconds of each question, the latest where it was begun more than once.
    pub fn seconds(&mut self) -> Result<BTreeMap<String, f64>, Failure> {
        self.timing.rewind().map_err(|error| failed(&self.path, &error))?;
        let mut seconds = BTreeMap::new();
        for line in BufReader::new(&self.timing).lines() {
            let line = line.map_err(|error| failed(&self.path, &error))?;
            // Times decorate the report; one that cannot be read is not worth an error.
            if let Ok(timing) = serde_json::from_str::<Timing>(&line) {
                seconds.insert(timing.id, timing.seconds);
            }
        }
        Ok(seconds)
    }
}

/// Refuses results that belong to other settings.
fn agree(place: &Path, manifest: &Map<String, Value>, begun: bool) -> Result<(), Failure> {
    let text = match std::fs::read_to_string(place) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !begun => return Ok(()),
        Err(error) => return Err(Failure::Input(format!("{}: {error}", place.display()))),
    };
    let there: Map<String, Value> = serde_json::from_str(&text)
        .map_err(|error| Failure::Input(format!("{}: {error}; --restart begins anew", place.display())))?;
    let keys = there.keys().chain(manifest.keys().filter(|key| !there.contains_key(*key)));
    let other: Vec<String> = keys
        .filter(|key| there.get(*key) != manifest.get(*key))
        .map(|key| format!("{key} (there {}, now {})", shown(there.get(key)), shown(manifest.get(key))))
        .collect();
    if other.is_empty() || !begun {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "{}: the results there were begun with other settings: {}; --restart throws them away",
        place.display(),
        other.join(", ")
    )))
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() > 60 { format!("{}…", text.chars().take(59).collect::<String>()) } else { text }
}

/// Cuts off what follows the last line end.
fn drop_torn(file: &mut File, path: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(path).map_err(|error| failed(path, &error))?;
    let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64).map_err(|error| failed(path, &error))?;
    }
    Ok(())
}

/// The number of lines, each of which must belong to its question.
fn check(file: &mut File, path: &Path, expected: &[(&str, String)]) -> Result<usize, Failure> {
    file.rewind().map_err(|error| failed(path, &error))?;
    let mut done = 0;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let bad = |problem: String| Failure::Input(format!("{}:{}: {problem}", path.display(), index + 1));
        let line = line.map_err(|error| bad(error.to_string()))?;
        let line: Line = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        match expected.get(index) {
            Some((id, _)) if *id != line.id => {
                return Err(bad(format!("is of question {:?}, must be of {id:?}; --restart begins anew", line.id)));
            }
            Some((id, data)) if *data != line.data => {
                let problem = format!("question {id:?} or its passages have changed since; --restart begins anew");
                return Err(bad(problem));
            }
            Some(_) => done += 1,
            None => {
                let problem = format!("is of question {:?}, but there are only {} questions", line.id, expected.len());
                return Err(bad(problem));
            }
        }
    }
    Ok(done)
}
