//! Folders for unfinished files. The owner holds a lock in its folder, so that the folder of a killed process can
//! be recognised and removed. Dates are not used: after a clock jump, the folder of a running process would be
//! removed.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// The file whose lock shows that the folder is in use.
const LOCK: &str = "in-use";

/// A folder that is removed when this value goes out of scope.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder in `root` whose name begins with `prefix`.
    ///
    /// # Errors
    /// No folder can be made.
    pub fn new_in(root: &Path, prefix: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(root)?;
        // The file gets its name after it is locked, so no process finds it unlocked.
        let unnamed = folder.path().join("unlocked");
        let lock = File::create(&unnamed)?;
        // On a file system without locks the folder of a killed process is only reported, not removed.
        if lock.lock().is_ok() {
            std::fs::rename(unnamed, folder.path().join(LOCK))?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Moves a finished file to its place, also to another file system: a model's folder may be a link to a larger disk. An
/// existing file stays until the new one is completely written there, in a folder whose name begins with `prefix`.
///
/// # Errors
/// The file cannot be read, or the target cannot be written.
pub fn move_to(from: &Path, to: &Path, prefix: &str) -> io::Result<()> {
    let mut file = File::open(from)?;
    file.sync_all()?;
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let folder = to.parent().unwrap_or(Path::new("."));
            remove_abandoned(folder, prefix);
            let scratch = Scratch::new_in(folder, prefix)?;
            let place = scratch.path().join("copied");
            let mut copy = File::create(&place)?;
            io::copy(&mut file, &mut copy)?;
            copy.sync_all()?;
            std::fs::rename(&place, to)
        }
        moved => moved,
    }
}

/// Removes the folders in `root` whose names begin with `prefix` and whose owners ended. Failures are logged and
/// otherwise ignored: such a folder only costs space.
pub fn remove_abandoned(root: &Path, prefix: &str) {
    for entry in root.read_dir().into_iter().flatten().flatten() {
        let folder = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        if !(ours && folder.is_dir() && is_abandoned(&folder)) {
            continue;
        }
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed the folder of a killed process"),
            // Another process has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "the folder of a killed process cannot be removed");
            }
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    // Network file systems lock only files that are open for writing.
    match File::options().write(true).open(folder.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) => {
            // The owner may be about to name the file, or its file system has no locks.
            if error.kind() == io::ErrorKind::NotFound && folder.is_dir() {
                tracing::warn!(folder = %folder.display(), "not removed: no lock shows if a process uses it; remove it if none does");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(root: &Path, name: &str, lock: bool) {
        let folder = root.join(name);
        std::fs::create_dir_all(folder.join("wheel")).unwrap();
        std::fs::write(folder.join("wheel/part.bin"), "half of a file").unwrap();
        if lock {
            File::create(folder.join(LOCK)).unwrap();
        }
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            root.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn folders_of_killed_processes_are_removed_and_folders_in_use_are_not() {
        let root = tempfile::tempdir().unwrap();
        left(root.path(), ".pull-killed", true);
        left(root.path(), ".pull-without-locks", false);
        left(root.path(), "a-model", false);
        left(root.path(), ".encode-killed", true);
        std::fs::write(root.path().join(".pull-file"), "").unwrap();
        let other = Scratch::new_in(root.path(), ".pull-").unwrap();
        let one = Scratch::new_in(root.path(), ".pull-").unwrap();
        remove_abandoned(root.path(), ".pull-");
        assert!(one.path().is_dir() && other.path().is_dir() && one.path() != other.path());
        let (one_path, other_path) = (one.path().to_owned(), other.path().to_owned());
        drop((one, other));
        assert!(!one_path.exists() && !other_path.exists());
        assert_eq!(names(root.path()), [".encode-killed", ".pull-file", ".pull-without-locks", "a-model"]);
    }
}
