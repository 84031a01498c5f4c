//! A value read from files, which is replaced when the files change and can be read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it. It never quotes the content.
    pub problem: String,
}

impl FileFault {
    /// A fault of the file at `path`.
    pub(super) fn new(path: &Path, problem: &dyn std::fmt::Display) -> Self {
        Self { path: path.to_owned(), problem: problem.to_string() }
    }
}

/// Modification time and size; `None` for a file that is not there.
type Stamp = Option<(SystemTime, u64)>;

type Reader<T> = Box<dyn Fn() -> Result<T, FileFault> + Send + Sync>;

/// The value, its files, and how it is read from them.
pub(super) struct Watched<T> {
    what: &'static str,
    paths: Vec<PathBuf>,
    read: Reader<T>,
    value: RwLock<Arc<T>>,
    /// Stamps of the last attempt. Held while the files are read, so that attempts follow each other.
    seen: Mutex<Vec<Stamp>>,
}

impl<T> Watched<T> {
    /// Reads the value. `what` names it in the log.
    pub(super) fn new(what: &'static str, paths: Vec<PathBuf>, read: Reader<T>) -> Result<Self, FileFault> {
        // Stamps are taken before the files are read: a change meanwhile is then seen at the next check.
        let seen = stamps(&paths);
        let value = read()?;
        Ok(Self { what, paths, read, value: RwLock::new(Arc::new(value)), seen: Mutex::new(seen) })
    }

    /// The value in use.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again if they changed since the last attempt, or in any case where `always`.
    ///
    /// # Errors
    /// The files cannot be used; the value is unchanged, and the log says so.
    pub(super) fn reload(&self, always: bool) -> Result<(), FileFault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.paths);
        if !always && *seen == now {
            return Ok(());
        }
        *seen = now;
        match (self.read)() {
            Ok(value) => {
                *self.value.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!(path = %self.paths[0].display(), "{} reloaded", self.what);
                Ok(())
            }
            Err(fault) => {
                tracing::error!(problem = %fault, "{} not reloaded; the earlier ones stay in use", self.what);
                Err(fault)
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    paths.iter().map(stamp).collect()
}

/// Reads a file of at most a mebibyte. A warning is logged where others than owner and group may read it and it is `secret`.
pub(super) fn content(path: &Path, secret: bool) -> Result<Vec<u8>, FileFault> {
    const MOST_BYTES: u64 = 1 << 20;
    let fault = |error: std::io::Error| FileFault::new(path, &error);
    let metadata = std::fs::metadata(path).map_err(fault)?;
    if metadata.len() > MOST_BYTES {
        return Err(FileFault::new(path, &format!("{} bytes, at most {MOST_BYTES} allowed", metadata.len())));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if secret && metadata.permissions().mode() & 0o007 != 0 {
            tracing::warn!(path = %path.display(), "every user of this machine may read or write this file: chmod o-rwx");
        }
    }
    std::fs::read(path).map_err(fault)
}
