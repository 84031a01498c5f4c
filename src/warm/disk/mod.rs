//! States in a folder: they survive the process, and are read where memory has them not.
//!
//! A file is written beside its place and renamed, on a thread of its own. Its bytes are verified whenever it is read
//! (`file`); a damaged one is deleted, and its passage is read again. When the folder exceeds its bound, the files that were
//! used longest ago are deleted. Several servers may share a folder: a file that another one deleted is read again. No fault of
//! the folder fails a request; the first of a series is logged.

mod file;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::Key;
use super::store::State;

/// Where states are kept on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder. It is made where it is missing, for its owner only.
    pub folder: PathBuf,
    /// Most bytes of its files.
    pub bytes: u64,
}

impl DiskOptions {
    /// Whether others could have put states there: the folder belongs to another user, or everybody may write to it. A folder
    /// of this user that its group may use, as on a volume in Kubernetes, is closed when it is opened.
    ///
    /// # Errors
    /// The reason, in words.
    pub fn check(&self) -> Result<(), String> {
        std::fs::metadata(&self.folder).map_or(Ok(()), |about| private(&about))
    }
}

/// States that wait to be written, and their bytes. More are not written.
const WAITING: usize = 64;
const WAITING_BYTES: usize = 256 << 20;

/// Files written between two looks at the whole folder, which another server may fill as well.
const BETWEEN_LOOKS: usize = 64;

/// How long the end of the process waits for the states that are being written.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// A temporary file that is older was left by a process that ended.
const ABANDONED: Duration = Duration::from_secs(600);

const EXTENSION: &str = "state";

/// The folder, and the thread that writes to it.
pub(super) struct Disk {
    folder: PathBuf,
    /// `None` only while it is dropped.
    queue: Option<SyncSender<(Key, State)>>,
    writer: Option<JoinHandle<()>>,
    /// States in the queue and in the writer's hands.
    waiting: Arc<AtomicUsize>,
    waiting_bytes: Arc<AtomicUsize>,
    unreadable: AtomicBool,
}

impl Disk {
    /// Opens the folder; `None`, with a line in the log, where that is not possible.
    pub fn open(options: &DiskOptions) -> Option<Self> {
        let DiskOptions { folder, bytes } = options.clone();
        let shown = folder.display().to_string();
        if let Err(problem) = private_folder(&folder) {
            tracing::error!(folder = shown, %problem, "no states of passages are kept on disk");
            return None;
        }
        let (queue, states) = sync_channel(WAITING);
        let (waiting, waiting_bytes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let writing = Writer {
            folder: folder.clone(),
            limit: bytes,
            failing: false,
            waiting: Arc::clone(&waiting),
            waiting_bytes: Arc::clone(&waiting_bytes),
        };
        let writer = std::thread::Builder::new().name("warm-disk".into()).spawn(move || writing.run(&states));
        match writer {
            Ok(writer) => {
                let (queue, writer) = (Some(queue), Some(writer));
                Some(Self { folder, queue, writer, waiting, waiting_bytes, unreadable: AtomicBool::new(false) })
            }
            Err(problem) => {
                tracing::error!(folder = shown, %problem, "no states of passages are kept on disk");
                None
            }
        }
    }

    /// The state of a key; `None` if it is not there or damaged. A damaged file is deleted.
    pub fn read(&self, key: &Key) -> Option<Vec<u8>> {
        let path = path(&self.folder, key);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(problem) => {
                let missing = problem.kind() == std::io::ErrorKind::NotFound;
                if !missing && !self.unreadable.swap(true, Ordering::Relaxed) {
                    tracing::error!(path = %path.display(), %problem, "a passage's state cannot be read from disk");
                }
                return None;
            }
        };
        match file::state(bytes, key) {
            Ok(state) => {
                touch(&path);
                Some(state)
            }
            Err(problem) => {
                tracing::warn!(path = %path.display(), %problem, "a passage's state on disk is damaged; it is deleted");
                let _ = std::fs::remove_file(&path);
                None
            }
        }
    }

    /// Whether there is a file of that key.
    pub fn holds(&self, key: &Key) -> bool {
        path(&self.folder, key).exists()
    }

    /// Has a state written, unless too many wait already.
    pub fn write(&self, key: Key, state: State) {
        if let Some(queue) = &self.queue {
            let bytes = state.len();
            if self.waiting_bytes.load(Ordering::SeqCst).saturating_add(bytes) > WAITING_BYTES {
                return;
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.waiting_bytes.fetch_add(bytes, Ordering::SeqCst);
            if queue.try_send((key, state)).is_err() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                self.waiting_bytes.fetch_sub(bytes, Ordering::SeqCst);
            }
        }
    }

    /// Whether every state that was to be written is written, or has failed.
    pub fn is_settled(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Deletes the file of a state that could not be restored.
    pub fn remove(&self, key: &Key) {
        let _ = std::fs::remove_file(path(&self.folder, key));
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
    let digits = key.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let name: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
    folder.join(name).with_extension(EXTENSION)
}

/// The time of the last use is the file's modification time.
fn touch(path: &Path) {
    if let Ok(file) = std::fs::File::options().append(true).open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Makes the folder where it is missing. Others must not write what llama.cpp parses, nor read what callers sent.
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
    tracing::warn!(folder = %folder.display(), "others could use the folder of states; it is closed to them");
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))
}

#[cfg(not(unix))]
const fn close(_: &Path, _: &std::fs::Metadata) -> std::io::Result<()> {
    Ok(())
}

/// Refuses a folder of another user, and one that everybody may write to.
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

struct Writer {
    folder: PathBuf,
    limit: u64,
    /// Whether the last write failed, which is logged once.
    failing: bool,
    waiting: Arc<AtomicUsize>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Writer {
    fn run(mut self, states: &Receiver<(Key, State)>) {
        let mut bytes = self.look(0);
        for (number, (key, state)) in states.iter().enumerate() {
            let size = u64::try_from(state.len()).unwrap_or(u64::MAX);
            if number % BETWEEN_LOOKS == BETWEEN_LOOKS - 1 || bytes.saturating_add(size) > self.limit {
                bytes = self.look(size);
            }
            if size <= self.limit / 2 {
                match self.write(&key, &state) {
                    Ok(written) => {
                        self.failing = false;
                        bytes += written;
                    }
                    Err(problem) => self.fails(&problem),
                }
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.waiting_bytes.fetch_sub(state.len(), Ordering::SeqCst);
        }
    }

    fn fails(&mut self, problem: &std::io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            let folder = self.folder.display().to_string();
            tracing::error!(folder, %problem, "states of passages cannot be written; they are kept in memory only");
        }
    }

    /// Writes a state beside its place and moves it there. Returns the bytes written.
    fn write(&self, key: &Key, state: &[u8]) -> std::io::Result<u64> {
        let path = path(&self.folder, key);
        if path.exists() {
            return Ok(0);
        }
        let mut file = tempfile::Builder::new().prefix("writing-").tempfile_in(&self.folder)?;
        let header = file::header(key, state);
        file.write_all(&header)?;
        file.write_all(state)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(u64::try_from(header.len() + state.len()).unwrap_or(u64::MAX))
    }

    /// Deletes the files used longest ago, where files and `coming` bytes exceed the bound, until they take nine tenths of it.
    /// Returns the bytes of the files.
    fn look(&self, coming: u64) -> u64 {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                files.push((used, path, about.len()));
            } else if entry.file_name().to_string_lossy().starts_with("writing-")
                && used.elapsed().is_ok_and(|age| age > ABANDONED)
            {
                let _ = std::fs::remove_file(path);
            }
        }
        let mut bytes: u64 = files.iter().map(|(_, _, size)| size).sum();
        if bytes.saturating_add(coming) <= self.limit {
            return bytes;
        }
        let room = self.limit - self.limit / 10;
        files.sort();
        for (_, path, size) in files {
            if bytes.saturating_add(coming) <= room {
                break;
            }
            if std::fs::remove_file(path).is_ok() {
                bytes -= size;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
