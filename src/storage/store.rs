//! Models on disk: one folder a model, files that appear only when complete and verified.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::catalog::{Catalog, Companion, Entry, Role};
use super::fetch::{self, Hub};

/// Why a model is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No catalogue entry and no file of that name.
    #[error("no model {name:?}: neither a file nor in the catalogue (known: {known})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names of the catalogue.
        known: String,
    },
    /// In the catalogue, but for another purpose.
    #[error("model {name:?} is for {actual}, not for {wanted}")]
    WrongRole {
        /// The model.
        name: String,
        /// What it is for.
        actual: Role,
        /// What was wanted.
        wanted: Role,
    },
    /// In the catalogue, not in the store.
    #[error("model {name:?} is not in the store: run `rerankd models pull {name}`")]
    NotPulled {
        /// The model.
        name: String,
    },
    /// The content is not what the catalogue pins.
    #[error("{path}: SHA-256 is {actual}, the catalogue says {expected}")]
    WrongHash {
        /// The file or source.
        path: String,
        /// Pinned.
        expected: String,
        /// Found.
        actual: String,
    },
    /// The file ends early, or is too long.
    #[error("{path}: has {actual} bytes, the catalogue says {expected}")]
    WrongSize {
        /// The file or source.
        path: String,
        /// Pinned.
        expected: u64,
        /// Found.
        actual: u64,
    },
    /// A file or folder could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// No source gave the file.
    #[error("model {name:?} could not be fetched: {problems}")]
    NoSource {
        /// The model.
        name: String,
        /// One problem a source.
        problems: String,
    },
}

impl StoreError {
    pub(super) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

/// A model that is there, and what its content is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Catalogue name, or the file's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the content.
    pub sha256: String,
    /// Size.
    pub bytes: u64,
}

/// The folder of models.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    catalog: Catalog,
    hub: Hub,
}

/// Proof that a file of this size and time had this hash; saves hashing gigabytes at every start.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    path: PathBuf,
    bytes: u64,
    modified_nanos: u128,
    sha256: String,
}

impl Store {
    /// A store under `root`, which need not exist yet.
    #[must_use]
    pub const fn new(root: PathBuf, catalog: Catalog, hub: Hub) -> Self {
        Self { root, catalog, hub }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The catalogue.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Where the file of an entry stands once it was pulled.
    #[must_use]
    pub fn place(&self, entry: &Entry) -> PathBuf {
        self.root.join(&entry.name).join(&entry.file)
    }

    fn place_of(&self, entry: &Entry, part: &Companion) -> PathBuf {
        self.root.join(&entry.name).join(&part.file)
    }

    /// Whether all files of an entry are there with the right sizes.
    #[must_use]
    pub fn holds(&self, entry: &Entry) -> bool {
        entry.files().all(|part| {
            let metadata = self.place_of(entry, &part).metadata();
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() == part.bytes)
        })
    }

    /// Whether there is a model of this name for this role, by catalogue or by path. Reads no content.
    ///
    /// # Errors
    /// [`StoreError`]: unknown, for another role, or not pulled.
    pub fn find(&self, name: &str, role: Role) -> Result<(), StoreError> {
        match self.catalog.find(name) {
            Some(entry) if entry.role != role => {
                Err(StoreError::WrongRole { name: name.to_owned(), actual: entry.role, wanted: role })
            }
            Some(entry) if !self.place(entry).exists() => Err(StoreError::NotPulled { name: name.to_owned() }),
            Some(_) => Ok(()),
            None if Path::new(name).is_file() => Ok(()),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> StoreError {
        let known: Vec<&str> = self.catalog.models.iter().map(|entry| entry.name.as_str()).collect();
        StoreError::Unknown { name: name.to_owned(), known: known.join(", ") }
    }

    /// Finds a model by catalogue name or by path and verifies its content.
    ///
    /// # Errors
    /// [`StoreError`]: unknown, not pulled, or not what the catalogue pins.
    pub fn locate(&self, name: &str, role: Role) -> Result<Located, StoreError> {
        if let Some(entry) = self.catalog.find(name) {
            if entry.role != role {
                return Err(StoreError::WrongRole { name: name.to_owned(), actual: entry.role, wanted: role });
            }
            for part in entry.files() {
                let path = self.place_of(entry, &part);
                if !path.exists() {
                    return Err(StoreError::NotPulled { name: name.to_owned() });
                }
                check(&part, &path, &self.identify(&path)?)?;
            }
            let (path, sha256) = (self.place(entry), entry.sha256.clone());
            return Ok(Located { name: name.to_owned(), path, sha256, bytes: entry.bytes });
        }
        let path = PathBuf::from(name);
        if !path.is_file() {
            return Err(self.unknown(name));
        }
        let sha256 = self.identify(&path)?;
        let name = path.file_name().map_or_else(|| name.to_owned(), |file| file.to_string_lossy().into_owned());
        let bytes = path.metadata().map_err(|error| StoreError::file(&path, error))?.len();
        Ok(Located { name, path, sha256, bytes })
    }

    /// Hashes the files of an entry again and compares.
    ///
    /// # Errors
    /// [`StoreError`]: not there, or not what the catalogue pins.
    pub fn verify(&self, entry: &Entry) -> Result<(), StoreError> {
        for part in entry.files() {
            let path = self.place_of(entry, &part);
            if !path.exists() {
                return Err(StoreError::NotPulled { name: entry.name.clone() });
            }
            check(&part, &path, &hash(&path)?)?;
        }
        Ok(())
    }

    /// Fetches, verifies and places the files of an entry; does nothing where they are there and right. `progress` shows bars
    /// on standard error. Returns the place of the model itself.
    ///
    /// # Errors
    /// [`StoreError`]; nothing half done is left behind.
    pub async fn pull(&self, entry: &Entry, progress: bool) -> Result<PathBuf, StoreError> {
        // The model itself comes last: where it lies, its companions lie too.
        let parts: Vec<Companion> = entry.files().collect();
        std::fs::create_dir_all(&self.root).map_err(|error| StoreError::file(&self.root, error))?;
        // Removed with all it holds when it goes out of scope, however this ends; a wheel in it serves all files of the entry.
        let scratch = tempfile::Builder::new()
            .prefix(".pull-")
            .tempdir_in(&self.root)
            .map_err(|error| StoreError::file(&self.root, error))?;
        for part in parts.iter().rev() {
            self.pull_file(entry, part, scratch.path(), progress).await?;
        }
        Ok(self.place(entry))
    }

    async fn pull_file(
        &self,
        entry: &Entry,
        part: &Companion,
        scratch: &Path,
        progress: bool,
    ) -> Result<(), StoreError> {
        let place = self.place_of(entry, part);
        if place.exists() && self.identify(&place).is_ok_and(|sha256| check(part, &place, &sha256).is_ok()) {
            return Ok(());
        }
        let folder = place.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(folder).map_err(|error| StoreError::file(folder, error))?;
        let mut problems = Vec::new();
        for source in &part.sources {
            match fetch::fetch(source, part, scratch, &self.hub, progress).await {
                Ok(file) => {
                    check(part, &file, &hash(&file)?)?;
                    File::open(&file)
                        .and_then(|handle| handle.sync_all())
                        .and_then(|()| std::fs::rename(&file, &place))
                        .map_err(|error| StoreError::file(&place, error))?;
                    self.identify(&place)?;
                    return Ok(());
                }
                Err(problem) => problems.push(format!("{source}: {problem}")),
            }
        }
        if problems.is_empty() {
            problems.push("the catalogue names no source".to_owned());
        }
        Err(StoreError::NoSource { name: entry.name.clone(), problems: problems.join("; ") })
    }

    /// SHA-256 of a file, from its receipt where size and time still match.
    ///
    /// # Errors
    /// [`StoreError::File`] when it cannot be read.
    pub fn identify(&self, path: &Path) -> Result<String, StoreError> {
        let absolute = path.canonicalize().map_err(|error| StoreError::file(path, error))?;
        let metadata = absolute.metadata().map_err(|error| StoreError::file(path, error))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_nanos = modified.map_or(0, |age| age.as_nanos());
        let note = self
            .root
            .join(".receipts")
            .join(format!("{}.json", hex(&Sha256::digest(absolute.as_os_str().as_encoded_bytes()))));
        let known = std::fs::read(&note).ok().and_then(|bytes| serde_json::from_slice::<Receipt>(&bytes).ok());
        if let Some(receipt) = known
            && (receipt.path == absolute && receipt.bytes == metadata.len() && receipt.modified_nanos == modified_nanos)
        {
            return Ok(receipt.sha256);
        }
        let sha256 = hash(&absolute)?;
        let receipt = Receipt { path: absolute, bytes: metadata.len(), modified_nanos, sha256: sha256.clone() };
        if let Err(error) = write_atomically(&note, &serde_json::to_vec(&receipt).unwrap_or_default()) {
            // A store that cannot be written is no reason not to serve; the next start hashes again.
            tracing::debug!(%error, "receipt not kept");
        }
        Ok(sha256)
    }
}

/// Writes a small file so that readers see the old content or the new, never a part.
///
/// # Errors
/// The system's error; the target is unchanged then.
pub fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    // Temporary files are for their owner alone; these become files like any other, as far as the user's mask allows.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

fn check(entry: &Companion, path: &Path, sha256: &str) -> Result<(), StoreError> {
    let actual = path.metadata().map_err(|error| StoreError::file(path, error))?.len();
    let path = path.display().to_string();
    if actual != entry.bytes {
        return Err(StoreError::WrongSize { path, expected: entry.bytes, actual });
    }
    if sha256 != entry.sha256 {
        return Err(StoreError::WrongHash { path, expected: entry.sha256.clone(), actual: sha256.to_owned() });
    }
    Ok(())
}

fn hash(path: &Path) -> Result<String, StoreError> {
    let failed = |error| StoreError::file(path, error);
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = reader.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
