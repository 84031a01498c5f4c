//! Receipts: stored hashes of files, which avoid hashing gigabytes at every start.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::store::{StoreError, hash, write_atomically};

/// The hash of a file, with its size and times at that moment.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    path: PathBuf,
    bytes: u64,
    modified_nanos: u128,
    changed_nanos: i128,
    sha256: String,
}

/// SHA-256 of a file: from its receipt in `folder` if size and times match, otherwise by hashing it and writing a
/// receipt.
pub(super) fn identify(folder: &Path, path: &Path) -> Result<String, StoreError> {
    let absolute = path.canonicalize().map_err(|error| StoreError::file(path, error))?;
    let metadata = absolute.metadata().map_err(|error| StoreError::file(path, error))?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    // No receipt can hold this time: the clock was set to before 1970, or the file system stores no times.
    let Some(modified_nanos) = modified.map(|age| age.as_nanos()) else { return hash(&absolute) };
    let note = note_of(folder, &absolute);
    let receipt = std::fs::read(&note).ok().and_then(|bytes| serde_json::from_slice::<Receipt>(&bytes).ok());
    let now = |sha256: String| Receipt {
        path: absolute.clone(),
        bytes: metadata.len(),
        modified_nanos,
        changed_nanos: changed_nanos(&metadata),
        sha256,
    };
    if let Some(receipt) = receipt.filter(|receipt| *receipt == now(receipt.sha256.clone())) {
        return Ok(receipt.sha256);
    }
    let sha256 = hash(&absolute)?;
    // JSON cannot hold a path that is not UTF-8; such a file is hashed every time.
    let written = serde_json::to_vec(&now(sha256.clone())).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|text| write_atomically(&note, &text)) {
        // Models can be used from a read-only store, which is hashed at each start.
        tracing::debug!(%error, "the receipt cannot be written");
    }
    Ok(sha256)
}

/// Path of the receipt of a file.
fn note_of(folder: &Path, absolute: &Path) -> PathBuf {
    folder.join(format!("{}.json", hex::encode(Sha256::digest(absolute.as_os_str().as_encoded_bytes()))))
}

/// Removes the receipt of a file, so that the next request hashes it.
pub(super) fn forget(folder: &Path, path: &Path) {
    if let Ok(absolute) = path.canonicalize() {
        let _ = std::fs::remove_file(note_of(folder, &absolute));
    }
}

/// Time of the last change of a file, by the clock of the file system. Programs cannot set it, unlike the modification
/// time: a copy of another model to the same path may keep size and modification time.
#[cfg(unix)]
fn changed_nanos(metadata: &std::fs::Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt as _;
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}

#[cfg(not(unix))]
const fn changed_nanos(_: &std::fs::Metadata) -> i128 {
    0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    /// Bit rot does not change the times, so the receipt would stay valid.
    #[test]
    fn a_file_without_receipt_is_hashed_again() {
        let folder = tempfile::tempdir().unwrap();
        let (receipts, model) = (folder.path().join("receipts"), folder.path().join("model.gguf"));
        std::fs::write(&model, "good").unwrap();
        let good = identify(&receipts, &model).unwrap();
        // A receipt of other content with the times of this file.
        let note = note_of(&receipts, &model.canonicalize().unwrap());
        let receipt = std::fs::read_to_string(&note).unwrap().replace(&good, "another");
        std::fs::write(&note, receipt).unwrap();
        assert_eq!(identify(&receipts, &model).unwrap(), "another");
        forget(&receipts, &model);
        assert_eq!(identify(&receipts, &model).unwrap(), good);
    }

    /// `cp -p`, `tar --mtime` and image builders create such a file.
    #[cfg(unix)]
    #[test]
    fn another_file_of_the_same_size_and_date_is_hashed_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (receipts, model) = (folder.path().join("receipts"), folder.path().join("model.gguf"));
        let date = UNIX_EPOCH + Duration::from_secs(1);
        let write = |content: &str| {
            std::fs::write(&model, content).unwrap();
            File::options().append(true).open(&model).unwrap().set_modified(date).unwrap();
        };
        write("first");
        let first = identify(&receipts, &model).unwrap();
        assert_eq!(first, identify(&receipts, &model).unwrap());
        // The clock of a file system may have a resolution of some milliseconds.
        std::thread::sleep(Duration::from_millis(50));
        write("other");
        let other = identify(&receipts, &model).unwrap();
        assert_eq!(other, hash(&model).unwrap());
        assert_ne!(first, other);
    }
}
