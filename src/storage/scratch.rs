//! Folders for files in the making. Their owner holds a lock in them, so that the folder of a process that was killed can be told
//! from one at work, and is removed.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// The file whose lock says that the folder is in use.
const LOCK: &str = "in-use";

/// How old a folder without [`LOCK`] must be to count as abandoned: its owner may be about to name the file, or have no locks.
const UNLOCKED: Duration = Duration::from_secs(24 * 60 * 60);

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
        // The file gets its name when it is locked: nobody finds it without its lock.
        let unnamed = folder.path().join("unlocked");
        let lock = File::create(&unnamed)?;
        // On a file system without locks the folder's age has to tell.
        if lock.lock().is_ok() {
            std::fs::rename(unnamed, folder.path().join(LOCK))?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders in `root` whose names begin with `prefix` and whose owners are gone. What cannot be removed costs space, not
/// the work that begins.
pub fn remove_abandoned(root: &Path, prefix: &str) {
    for entry in root.read_dir().into_iter().flatten().flatten() {
        let folder = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        if !(ours && folder.is_dir() && is_abandoned(&folder)) {
            continue;
        }
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed what a killed process left"),
            // Another process removes it, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "what a killed process left cannot be removed");
            }
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    // Network file systems lock only what is open for writing.
    match File::options().write(true).open(folder.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let modified = folder.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > UNLOCKED))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn left(root: &Path, name: &str, lock: bool, age: Duration) {
        let folder = root.join(name);
        std::fs::create_dir_all(folder.join("wheel")).unwrap();
        std::fs::write(folder.join("wheel/part.bin"), "half of a file").unwrap();
        if lock {
            File::create(folder.join(LOCK)).unwrap();
        }
        File::open(&folder).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            root.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (day, minute) = (Duration::from_secs(25 * 60 * 60), Duration::from_secs(60));
        left(root.path(), ".pull-killed", true, minute);
        left(root.path(), ".pull-older-version", false, day);
        left(root.path(), ".pull-just-made", false, minute);
        left(root.path(), "a-model", false, day);
        left(root.path(), ".encode-killed", true, day);
        std::fs::write(root.path().join(".pull-file"), "").unwrap();
        let other = Scratch::new_in(root.path(), ".pull-").unwrap();
        let one = Scratch::new_in(root.path(), ".pull-").unwrap();
        remove_abandoned(root.path(), ".pull-");
        assert!(one.path().is_dir() && other.path().is_dir() && one.path() != other.path());
        let (one_path, other_path) = (one.path().to_owned(), other.path().to_owned());
        drop((one, other));
        assert!(!one_path.exists() && !other_path.exists());
        assert_eq!(names(root.path()), [".encode-killed", ".pull-file", ".pull-just-made", "a-model"]);
    }
}
