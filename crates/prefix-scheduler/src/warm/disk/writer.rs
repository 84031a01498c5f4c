//! The thread that writes states and keeps the folder within its bound.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::{EXTENSION, Item, Order, Pending, file, path, touch};
use crate::warm::Key;

/// Files written between two scans of the whole folder, because another server may also fill it.
const BETWEEN_SCANS: usize = 64;

/// Files scanned between two reports of progress.
const BETWEEN_REPORTS: usize = 100;

/// Beginning of the names of temporary files, followed by this many random letters and digits.
const WRITING: &str = "writing-";
const RANDOM: usize = 6;

/// A temporary file older than this was left by a process that ended.
const ABANDONED: Duration = Duration::from_mins(10);

pub(super) struct Writer {
    folder: PathBuf,
    limit: u64,
    /// True if the last write failed. Only the first failure is logged.
    failing: bool,
    pending: Arc<Mutex<Pending>>,
}

/// Files of states: last use, path and bytes.
type Files = Vec<(SystemTime, PathBuf, u64)>;

impl Writer {
    pub const fn new(folder: PathBuf, limit: u64, pending: Arc<Mutex<Pending>>) -> Self {
        Self { folder, limit, failing: false, pending }
    }

    pub fn run(mut self, orders: &Receiver<Order>) {
        let mut bytes = self.make_room(0);
        let mut unscanned = 0;
        for order in orders {
            // A scan of a large folder takes long, but counts as progress.
            Pending::lock(&self.pending).moves();
            let Item { key, state, fills } = match order {
                Order::Write(item) => item,
                Order::Remove(key) => {
                    bytes = bytes.saturating_sub(self.delete(&key));
                    Pending::lock(&self.pending).is_removed(&key);
                    continue;
                }
            };
            let size = u64::try_from(state.len()).unwrap_or(u64::MAX);
            let is_full = |bytes: u64| bytes.saturating_add(size) > self.limit;
            if path(&self.folder, &key).exists() {
                // The state was loaded from this file into memory: nothing must be evicted.
                Pending::lock(&self.pending).remove(&key);
                continue;
            }
            // No file is deleted for a state that will not be written.
            let too_large = size > self.limit / 2;
            unscanned += 1;
            if !too_large && (unscanned >= BETWEEN_SCANS || is_full(bytes)) {
                unscanned = 0;
                bytes = if fills { sum(&self.files()) } else { self.make_room(size) };
                Pending::lock(&self.pending).moves();
            }
            // Filling deletes no files: it would delete its own files and files in use.
            let refused = too_large || (fills && is_full(bytes));
            if !refused {
                match self.write(&key, &state) {
                    Ok(written) => {
                        self.failing = false;
                        bytes += written;
                    }
                    Err(problem) => self.fails(&problem),
                }
            }
            Pending::lock(&self.pending).remove(&key);
        }
        self.touch_used();
    }

    /// Deletes the file of a state, if there is one. Returns its bytes.
    fn delete(&self, key: &Key) -> u64 {
        let path = path(&self.folder, key);
        let bytes = std::fs::metadata(&path).map_or(0, |about| about.len());
        if std::fs::remove_file(path).is_ok() { bytes } else { 0 }
    }

    fn fails(&mut self, problem: &std::io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            let folder = self.folder.display().to_string();
            tracing::error!(folder, %problem, "states of passages cannot be written; they are kept in memory only");
        }
    }

    /// Writes a state to a temporary file and renames it. Returns the bytes written.
    fn write(&self, key: &Key, state: &[u8]) -> std::io::Result<u64> {
        let path = path(&self.folder, key);
        if path.exists() {
            return Ok(0);
        }
        let mut file = tempfile::Builder::new().prefix(WRITING).rand_bytes(RANDOM).tempfile_in(&self.folder)?;
        let header = file::header(key, state);
        file.write_all(&header)?;
        file.write_all(state)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(u64::try_from(header.len() + state.len()).unwrap_or(u64::MAX))
    }

    /// Touches the files of states that were used from memory, so that they do not count as unused.
    fn touch_used(&self) {
        let used = std::mem::take(&mut Pending::lock(&self.pending).used);
        for key in &used {
            touch(&path(&self.folder, key));
        }
    }

    /// The files of states. Deletes temporary files of a process that ended while it wrote.
    fn files(&self) -> Files {
        let mut files = Vec::new();
        for (number, entry) in std::fs::read_dir(&self.folder).into_iter().flatten().flatten().enumerate() {
            if number % BETWEEN_REPORTS == 0 {
                Pending::lock(&self.pending).moves();
            }
            let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if is_state(&path) {
                files.push((used, path, about.len()));
            } else if is_temporary(&path) && used.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_file(path);
            }
        }
        files
    }

    /// If the files plus `coming` bytes exceed the bound, deletes the least recently used files until nine tenths
    /// of it are left. Returns the bytes of the files.
    fn make_room(&self, coming: u64) -> u64 {
        let mut bytes = sum(&self.files());
        if bytes.saturating_add(coming) <= self.limit {
            return bytes;
        }
        self.touch_used();
        let mut files = self.files();
        files.sort();
        let room = self.limit - self.limit / 10;
        for (_, path, size) in files {
            if bytes.saturating_add(coming) <= room {
                break;
            }
            if std::fs::remove_file(path).is_ok() {
                bytes = bytes.saturating_sub(size);
            }
            Pending::lock(&self.pending).moves();
        }
        bytes
    }
}

/// True if the file name looks like a state's, by the digits of its key. Other files in the folder are not touched.
fn is_state(path: &Path) -> bool {
    let digits = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let named = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    named && path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// True if the file name looks like that of a file being written.
fn is_temporary(path: &Path) -> bool {
    let random = path.file_name().and_then(|name| name.to_str()?.strip_prefix(WRITING));
    random.is_some_and(|random| random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn sum(files: &Files) -> u64 {
    files.iter().map(|(_, _, size)| size).sum()
}
