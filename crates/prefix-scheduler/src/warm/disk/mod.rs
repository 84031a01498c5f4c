//! States in a folder: they survive the process, and are read if they are not in memory.
//!
//! A separate thread writes a temporary file and renames it. The bytes of a file are verified at every read
//! (`file`). A damaged file is deleted, and its passage is evaluated again. When the folder exceeds its bound, the
//! least recently used files are deleted; a use from memory counts. Several servers may share a folder: if another
//! server deleted a file, its passage is evaluated again. A fault of the folder does not fail a request, and a
//! folder that stops answering does not block one ([`reader`]). Only the first of a series of faults is logged.

mod file;
mod reader;
mod writer;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::Key;
use super::store::State;
use reader::Reader;
use writer::Writer;

/// Folder and bounds of states on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder. If it is missing, it is created, for its owner only.
    pub folder: PathBuf,
    /// Most bytes of its files.
    pub bytes: u64,
}

impl DiskOptions {
    /// Checks that other users cannot have written states there. It fails if the folder belongs to another user, or
    /// everybody may write to it. If this user's folder is open to its group, as on a volume in Kubernetes, it is
    /// closed to the group when it is opened.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        std::fs::metadata(&self.folder).map_or(Ok(()), |about| private(&about))
    }
}

/// Longest time to write a state. A slower folder gets no further states, and no caller waits for the pending ones.
const STUCK: Duration = Duration::from_secs(30);

/// Most states that wait to be written, and most bytes of them. Further states are not written.
const WAITING: usize = 64;
const WAITING_BYTES: usize = 256 << 20;

/// How long the end of the process waits for pending writes.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Most states whose use from memory is recorded for the order in which files are deleted.
const MOST_USED: usize = 1 << 16;

const EXTENSION: &str = "state";

/// A state to write.
struct Item {
    key: Key,
    state: State,
    /// True if it was evaluated ahead of time. It then only takes free room.
    fills: bool,
}

/// Orders to the writer, executed in sequence: a write order before a removal does not leave the state. A new state
/// is not accepted while the old one waits; its passage is evaluated again.
enum Order {
    Write(Item),
    Remove(Key),
}

/// Orders that wait for the writer.
#[derive(Default)]
struct Pending {
    /// States in the queue or being written, each with its bytes.
    waiting: HashMap<Key, usize>,
    bytes: usize,
    /// States whose removal waits, and how often. They are not found meanwhile.
    removed: HashMap<Key, usize>,
    /// States that were used from memory. Their files count as used.
    used: HashSet<Key>,
    /// When the writer last finished a state, or got one while idle.
    moved: Option<Instant>,
}

impl Pending {
    fn lock(pending: &Mutex<Self>) -> MutexGuard<'_, Self> {
        pending.lock()
    }

    fn enter(&mut self, key: Key, bytes: usize) {
        if self.waiting.is_empty() {
            self.moves();
        }
        self.waiting.insert(key, bytes);
        self.bytes += bytes;
    }

    fn remove(&mut self, key: &Key) {
        self.bytes -= self.waiting.remove(key).unwrap_or(0);
        self.moves();
    }

    /// Records that the writer makes progress.
    fn moves(&mut self) {
        self.moved = Some(Instant::now());
    }

    /// True if the folder has accepted none of the waiting states for [`STUCK`].
    fn is_stuck(&self) -> bool {
        !self.waiting.is_empty() && self.moved.is_some_and(|moved| moved.elapsed() >= STUCK)
    }

    fn is_removed(&mut self, key: &Key) {
        if let Some(times) = self.removed.get_mut(key) {
            *times -= 1;
            if *times == 0 {
                self.removed.remove(key);
            }
        }
    }
}

/// The files.
struct Files {
    folder: PathBuf,
    /// Most bytes of all files.
    most: u64,
    unreadable: AtomicBool,
}

/// The folder, its reader threads, and its writer thread.
pub(super) struct Disk {
    files: Arc<Files>,
    reader: Reader,
    /// `None` only during drop.
    queue: Option<Sender<Order>>,
    writer: Option<JoinHandle<()>>,
    pending: Arc<Mutex<Pending>>,
}

impl Disk {
    /// Opens the folder; on failure logs a line and returns `None`.
    pub fn open(options: &DiskOptions) -> Option<Self> {
        let DiskOptions { folder, bytes } = options.clone();
        let shown = folder.display().to_string();
        if let Err(problem) = private_folder(&folder) {
            tracing::error!(folder = shown, %problem, "no states of passages are kept on disk");
            return None;
        }
        let (queue, states) = channel();
        let pending = Arc::<Mutex<Pending>>::default();
        let writing = Writer::new(folder.clone(), bytes, Arc::clone(&pending));
        let writer = std::thread::Builder::new().name("warm-disk".into()).spawn(move || writing.run(&states));
        match writer.and_then(|writer| Ok((writer, Reader::start()?))) {
            Ok((writer, reader)) => {
                let (queue, writer) = (Some(queue), Some(writer));
                let files = Arc::new(Files { folder, most: bytes, unreadable: AtomicBool::new(false) });
                Some(Self { files, reader, queue, writer, pending })
            }
            Err(problem) => {
                tracing::error!(folder = shown, %problem, "no states of passages are kept on disk");
                None
            }
        }
    }

    /// The state of a key; `None` if it is missing, damaged or another user's, or if the folder does not answer. A damaged file is
    /// deleted.
    pub fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let key = *key;
        if self.is_dropped(&key) {
            return None;
        }
        self.ask(move |files| files.read(&key)).flatten()
    }

    /// True if there is a file of that key.
    pub fn holds(&self, key: &Key) -> bool {
        let key = *key;
        !self.is_dropped(&key) && self.ask(move |files| path(&files.folder, &key).exists()).unwrap_or(false)
    }

    /// True if the state waits for its removal.
    fn is_dropped(&self, key: &Key) -> bool {
        Pending::lock(&self.pending).removed.contains_key(key)
    }

    fn ask<T: Send + 'static>(&self, question: impl FnOnce(&Files) -> T + Send + 'static) -> Option<T> {
        let files = Arc::clone(&self.files);
        self.reader.ask(&self.files.folder, move || question(&files))
    }

    /// Queues a state to be written, unless too many wait already or the folder is stuck. States with `fills` are
    /// exempt from the limit, because their caller waits for them.
    pub fn write(&self, key: Key, state: State, fills: bool) {
        let Some(queue) = &self.queue else { return };
        let bytes = state.len();
        let mut pending = Pending::lock(&self.pending);
        let crowded = pending.waiting.len() >= WAITING || pending.bytes.saturating_add(bytes) > WAITING_BYTES;
        if pending.waiting.contains_key(&key) || (crowded && !fills) || pending.is_stuck() {
            return;
        }
        // Under the lock, so that the writer does not finish a state before it is entered.
        if queue.send(Order::Write(Item { key, state, fills })).is_ok() {
            pending.enter(key, bytes);
        }
    }

    /// Records that the state of a key was used from memory.
    pub fn used(&self, key: &Key) {
        let mut pending = Pending::lock(&self.pending);
        if pending.used.len() < MOST_USED {
            pending.used.insert(*key);
        }
    }

    /// True if no write or removal is pending.
    pub fn is_settled(&self) -> bool {
        let pending = Pending::lock(&self.pending);
        pending.waiting.is_empty() && pending.removed.is_empty()
    }

    /// True if one of the states still waits to be written, and the folder is not stuck.
    pub fn is_writing(&self, keys: &[Key]) -> bool {
        let pending = Pending::lock(&self.pending);
        !pending.is_stuck() && keys.iter().any(|key| pending.waiting.contains_key(key))
    }

    /// Queues the removal of the file of a state that could not be restored or is not trusted. It is hidden
    /// immediately, and the caller does not wait for the folder.
    pub fn remove(&self, key: &Key) {
        let Some(queue) = &self.queue else { return };
        let mut pending = Pending::lock(&self.pending);
        if queue.send(Order::Remove(*key)).is_ok() {
            *pending.removed.entry(*key).or_default() += 1;
        }
    }
}

impl Files {
    fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let path = path(&self.folder, key);
        let read = own(&path).and_then(|(file, length)| file::read(file, length, self.most, key));
        let state = match read {
            Ok(state) => state,
            Err(problem) => {
                if problem.kind() != std::io::ErrorKind::NotFound {
                    self.cannot(&path, &problem, "a passage's state cannot be read from disk");
                }
                return None;
            }
        };
        match state {
            Ok(state) => {
                touch(&path);
                Some(state)
            }
            Err(problem) => {
                match std::fs::remove_file(&path) {
                    Ok(()) => {
                        tracing::warn!(path = %path.display(), %problem, "a passage's state on disk is damaged; it is deleted");
                    }
                    Err(error) => {
                        self.cannot(&path, &error, "a passage's state on disk is damaged and cannot be deleted");
                    }
                }
                None
            }
        }
    }

    /// Logs the first of a series of faults.
    fn cannot(&self, path: &Path, problem: &std::io::Error, what: &str) {
        if !self.unreadable.swap(true, Ordering::Relaxed) {
            tracing::error!(path = %path.display(), %problem, "{what}");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.queue.take();
        let end = Instant::now() + LAST_WRITES;
        if let Some(writer) = self.writer.take() {
            while !writer.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn path(folder: &Path, key: &Key) -> PathBuf {
    let digits = key.name().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let name: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    folder.join(name).with_extension(EXTENSION)
}

/// A file of this user, and its length. Files of other users are not parsed.
fn own(path: &Path) -> std::io::Result<(File, u64)> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    #[cfg(unix)]
    {
        let owner = std::os::unix::fs::MetadataExt::uid(&about);
        if owner != rustix::process::geteuid().as_raw() {
            return Err(std::io::Error::other(format!("it belongs to user {owner}")));
        }
    }
    Ok((file, about.len()))
}

/// The time of the last use is the file's modification time.
fn touch(path: &Path) {
    if let Ok(file) = File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Creates the folder if it is missing. Other users must not write files that llama.cpp parses, nor read the texts of callers.
fn private_folder(folder: &Path) -> Result<(), String> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| error.to_string())?;
    let about = std::fs::metadata(folder).map_err(|error| error.to_string())?;
    private(&about)?;
    close(folder, &about).map_err(|error| format!("it cannot be closed to others: {error}"))
}

#[cfg(unix)]
fn close(folder: &Path, about: &std::fs::Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let others = about.mode() & 0o777 & !0o700;
    if others == 0 {
        return Ok(());
    }
    match std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)) {
        // Other users cannot write to it. The volume decides who can read it.
        Err(problem) if problem.kind() == std::io::ErrorKind::ReadOnlyFilesystem => {
            tracing::warn!(folder = %folder.display(), "others may read the folder of states, which is read-only");
            Ok(())
        }
        Ok(()) => {
            tracing::warn!(folder = %folder.display(), "others could use the folder of states; it is closed to them");
            Ok(())
        }
        failed => failed,
    }
}

#[cfg(not(unix))]
const fn close(_: &Path, _: &std::fs::Metadata) -> std::io::Result<()> {
    Ok(())
}

/// Refuses a folder of another user, or one that everybody may write to.
#[cfg(unix)]
fn private(about: &std::fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    owned(about.uid(), rustix::process::geteuid().as_raw(), about.mode() & 0o777)
}

#[cfg(not(unix))]
const fn private(_: &std::fs::Metadata) -> Result<(), String> {
    Ok(())
}

#[cfg(unix)]
fn owned(owner: u32, user: u32, mode: u32) -> Result<(), String> {
    if owner != user {
        return Err(format!("the folder belongs to user {owner}, and the server runs as user {user}"));
    }
    if mode & 0o002 != 0 {
        return Err(format!("everybody may write to the folder: its mode is {mode:o}, should be 700"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
