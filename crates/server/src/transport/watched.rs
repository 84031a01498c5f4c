//! A value read from files, reloaded when the files change.

#[cfg(unix)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// The problem. Never quotes the content.
    pub problem: String,
    /// True if the file could not be read. A later attempt may succeed even if the file does not change.
    pub unread: bool,
}

impl FileFault {
    /// A fault of the file at `path`.
    pub(super) fn new(path: &Path, problem: &dyn std::fmt::Display) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string(), unread: false }
    }

    /// A fault of a file that could not be read.
    fn unread(path: &Path, error: &std::io::Error) -> Self {
        Self { unread: true, ..Self::new(path, error) }
    }
}

/// Modification time, size and further metadata; `None` for a missing file. Time and size do not suffice: a replaced
/// token has the same size, and reproducible archives give every file the same time.
type Stamp = Option<(SystemTime, u64, [i64; 3])>;

/// Change time and inode number of a file.
#[cfg(unix)]
fn entry(metadata: &std::fs::Metadata) -> [i64; 3] {
    use std::os::unix::fs::MetadataExt;
    [metadata.ctime(), metadata.ctime_nsec(), metadata.ino().cast_signed()]
}

#[cfg(not(unix))]
fn entry(_: &std::fs::Metadata) -> [i64; 3] {
    [0; 3]
}

type Reader<T> = Box<dyn Fn() -> Result<T, FileFault> + Send + Sync>;

/// The value, its files, and the function that reads them.
pub(super) struct Watched<T> {
    what: &'static str,
    paths: Vec<PathBuf>,
    read: Reader<T>,
    value: RwLock<Arc<T>>,
    /// The last attempt. Locked while the files are read, so that attempts do not overlap.
    seen: Mutex<Seen>,
}

struct Seen {
    stamps: Vec<Stamp>,
    /// True if the files could not be read. Then they are read again even if they did not change.
    unread: bool,
}

impl<T> Watched<T> {
    /// Reads the value. `what` names it in the log.
    pub(super) fn new(what: &'static str, paths: Vec<PathBuf>, read: Reader<T>) -> Result<Self, FileFault> {
        // Stamps are taken before the files are read, so that the next check sees a change in between.
        let seen = Seen { stamps: stamps(&paths), unread: false };
        let value = read()?;
        Ok(Self { what, paths, read, value: RwLock::new(Arc::new(value)), seen: Mutex::new(seen) })
    }

    /// The value in use.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.value.read())
    }

    /// Reads the files again if they changed since the last attempt, or if `always`.
    ///
    /// # Errors
    /// The files cannot be used; the value is unchanged, and the log says so. A fault that the last attempt reported is
    /// not returned again.
    pub(super) fn reload(&self, always: bool) -> Result<(), FileFault> {
        let mut seen = self.seen.lock();
        let now = stamps(&self.paths);
        if !always && seen.stamps == now && !seen.unread {
            return Ok(());
        }
        // Consecutive attempts with the same fault log one line.
        let again = seen.unread && seen.stamps == now;
        *seen = Seen { stamps: now, unread: false };
        match (self.read)() {
            Ok(value) => {
                *self.value.write() = Arc::new(value);
                tracing::info!(path = %self.paths[0].display(), "{} reloaded", self.what);
                Ok(())
            }
            Err(fault) => {
                seen.unread = fault.unread;
                if again && fault.unread && !always {
                    return Ok(());
                }
                tracing::error!(problem = %fault, "{} not reloaded; the earlier ones stay in use", self.what);
                Err(fault)
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), entry(&metadata)))
    };
    paths.iter().map(stamp).collect()
}

/// True if this state of the file is new: unusable files are read repeatedly.
#[cfg(unix)]
fn changed(path: &Path, metadata: &std::fs::Metadata) -> bool {
    static WARNED: Mutex<BTreeMap<PathBuf, Stamp>> = Mutex::new(BTreeMap::new());
    let stamp = metadata.modified().ok().map(|at| (at, metadata.len(), entry(metadata)));
    WARNED.lock().insert(path.to_owned(), stamp) != Some(stamp)
}

/// Reads a file of at most a mebibyte. Logs a warning if it is `secret` and other users may read or write it.
pub(super) fn content(path: &Path, secret: bool) -> Result<Vec<u8>, FileFault> {
    const MOST_BYTES: u64 = 1 << 20;
    let fault = |error: std::io::Error| FileFault::unread(path, &error);
    let metadata = std::fs::metadata(path).map_err(fault)?;
    if metadata.len() > MOST_BYTES {
        return Err(FileFault::new(path, &format!("{} bytes, at most {MOST_BYTES} allowed", metadata.len())));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if secret && metadata.permissions().mode() & 0o007 != 0 && changed(path, &metadata) {
            tracing::warn!(path = %path.display(), "every user of this machine may read or write this file: chmod o-rwx");
        }
    }
    std::fs::read(path).map_err(fault)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A token that is revoked while the process has no free file descriptor must not stay valid.
    #[test]
    fn a_file_that_could_not_be_read_is_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tokens");
        std::fs::write(&path, "old").unwrap();
        let (calls, at) = (Arc::new(AtomicUsize::new(0)), path.clone());
        let counted = Arc::clone(&calls);
        let read = move || match counted.fetch_add(1, Ordering::Relaxed) {
            1 | 2 => Err(FileFault::unread(&at, &std::io::Error::other("too many open files"))),
            4 => Err(FileFault::new(&at, &"is not a list of tokens")),
            _ => content(&at, false),
        };
        let watched = Watched::new("tokens", vec![path.clone()], Box::new(read)).unwrap();
        std::fs::write(&path, "newer").unwrap();
        assert!(watched.reload(false).is_err());
        assert!(watched.reload(false).is_ok(), "it is not reported again");
        watched.reload(false).unwrap();
        assert_eq!(*watched.get(), b"newer");
        // A fault in the file persists until the file changes.
        std::fs::write(&path, "newest").unwrap();
        assert!(watched.reload(false).is_err());
        watched.reload(false).unwrap();
        assert_eq!((calls.load(Ordering::Relaxed), watched.get().as_slice()), (5, &b"newer"[..]));
    }
}
