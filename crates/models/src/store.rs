//! The store of model files: one folder for each model. Files appear in it only when they are complete and verified.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::catalog::{Catalog, Companion, Entry, Role};
use super::fetch::{self, Hub};
use super::receipts;
use super::scratch::{self, Scratch};

/// Folder of the receipts in the store.
const RECEIPTS: &str = ".receipts";

/// Prefix of the folders that files are fetched into.
pub(super) const SCRATCH: &str = ".pull-";

/// An error when a model is used or fetched.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Neither a catalogue entry nor a file.
    #[error(
        "{name:?}, for {wanted}, is neither a file nor in the catalogue ({catalogue}); `rerankd models list` shows it"
    )]
    Unknown {
        /// The requested name or path.
        name: String,
        /// The required role.
        wanted: Role,
        /// The names of models in the catalogue with this role.
        catalogue: String,
    },
    /// A catalogue entry with another role.
    #[error("model {name:?} is for {actual}, not for {wanted}")]
    WrongRole {
        /// The model.
        name: String,
        /// Its role.
        actual: Role,
        /// The required role.
        wanted: Role,
    },
    /// A file of another format.
    #[error("{path}: is not a GGUF model, which begins with \"GGUF\"; convert it with llama.cpp, or give another file")]
    NotGguf {
        /// The file.
        path: String,
    },
    /// A catalogue entry that was not fetched.
    #[error("model {name:?} is not in the store: run `rerankd models pull {name}`")]
    NotPulled {
        /// The model.
        name: String,
    },
    /// The content differs from the pinned one.
    #[error("{path}: SHA-256 is {actual}, {expected} expected")]
    WrongHash {
        /// The file or source.
        path: String,
        /// Pinned.
        expected: String,
        /// Found.
        actual: String,
    },
    /// The size differs from the pinned one.
    #[error("{path}: {actual} bytes, {expected} expected")]
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
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A model that cannot be added to a catalogue.
    #[error("model {name:?}: {problem}")]
    Unusable {
        /// The model.
        name: String,
        /// The reason.
        problem: String,
    },
    /// Every source failed.
    #[error("model {name:?} cannot be fetched: {problems}")]
    NoSource {
        /// The model.
        name: String,
        /// The error of each source.
        problems: String,
    },
}

impl StoreError {
    pub(super) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.display().to_string(), error }
    }
}

/// A model file whose content is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Catalogue name, or the file name of a model given by path.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the content, lower-case hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// The folder of models, with the catalogue that describes them.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    catalog: Catalog,
    hub: Hub,
}

impl Store {
    /// A store under `root`, which is created by the first write.
    pub const fn new(root: PathBuf, catalog: Catalog, hub: Hub) -> Self {
        Self { root, catalog, hub }
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The catalogue.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Access to the Hub.
    pub(super) const fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The path of the model file of an entry, fetched or not.
    pub fn path_of(&self, entry: &Entry) -> PathBuf {
        self.root.join(&entry.name).join(&entry.file)
    }

    fn part_path(&self, entry: &Entry, part: &Companion) -> PathBuf {
        self.root.join(&entry.name).join(&part.file)
    }

    /// True if all files of an entry exist with the pinned sizes. Does not check their content.
    pub fn holds(&self, entry: &Entry) -> bool {
        entry.files().all(|part| {
            let metadata = self.part_path(entry, &part).metadata();
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() == part.bytes)
        })
    }

    /// Checks that there is a model of this name for this role, by catalogue or by path. Reads only the first bytes.
    ///
    /// # Errors
    /// [`StoreError`]: unknown, wrong role, wrong format, or not fetched.
    pub fn find(&self, name: &str, role: Role) -> Result<(), StoreError> {
        match self.catalog.find(name) {
            Some(entry) if entry.role != role => {
                Err(StoreError::WrongRole { name: name.to_owned(), actual: entry.role, wanted: role })
            }
            Some(entry) if !self.path_of(entry).exists() => Err(StoreError::NotPulled { name: name.to_owned() }),
            Some(_) => Ok(()),
            None if Path::new(name).is_file() => check_format(Path::new(name), role),
            None => Err(self.unknown(name, role)),
        }
    }

    fn unknown(&self, name: &str, wanted: Role) -> StoreError {
        let suitable = self.catalog.models.iter().filter(|entry| entry.role == wanted);
        let names: Vec<&str> = suitable.map(|entry| entry.name.as_str()).collect();
        StoreError::Unknown { name: name.to_owned(), wanted, catalogue: names.join(", ") }
    }

    /// Finds a model by catalogue name or by path and verifies its content against the catalogue. An adapter is hashed
    /// each time: a retrained one has the same size, and a copy may keep the modification time.
    ///
    /// # Errors
    /// [`StoreError`]: unknown, not fetched, wrong role, or other content.
    pub fn locate(&self, name: &str, role: Role) -> Result<Located, StoreError> {
        let identify = |path: &Path| if role == Role::Adapter { hash(path) } else { self.identify(path) };
        if let Some(entry) = self.catalog.find(name) {
            if entry.role != role {
                return Err(StoreError::WrongRole { name: name.to_owned(), actual: entry.role, wanted: role });
            }
            for part in entry.files() {
                let path = self.part_path(entry, &part);
                if !path.exists() {
                    return Err(StoreError::NotPulled { name: name.to_owned() });
                }
                check(&part, &path, &identify(&path)?)?;
            }
            let (path, sha256) = (self.path_of(entry), entry.sha256.clone());
            return Ok(Located { name: name.to_owned(), path, sha256, bytes: entry.bytes });
        }
        let path = PathBuf::from(name);
        if !path.is_file() {
            return Err(self.unknown(name, role));
        }
        let sha256 = identify(&path)?;
        let name = path.file_name().map_or_else(|| name.to_owned(), |file| file.to_string_lossy().into_owned());
        let bytes = path.metadata().map_err(|error| StoreError::file(&path, error))?.len();
        Ok(Located { name, path, sha256, bytes })
    }

    /// Hashes the files of an entry, regardless of receipts, and compares them with the catalogue.
    ///
    /// # Errors
    /// [`StoreError`]: not fetched, or other content.
    pub fn verify(&self, entry: &Entry) -> Result<(), StoreError> {
        for part in entry.files() {
            let path = self.part_path(entry, &part);
            if !path.exists() {
                return Err(StoreError::NotPulled { name: entry.name.clone() });
            }
            // Bit rot does not change size and times, so the receipt would stay valid at the next pull.
            check(&part, &path, &hash(&path)?).inspect_err(|_| receipts::forget(&self.root.join(RECEIPTS), &path))?;
        }
        Ok(())
    }

    /// Fetches and verifies the files of an entry that are missing or damaged. A complete entry needs neither the network nor a
    /// writable store. `progress` shows bars on standard error. Returns the path of the model file.
    ///
    /// # Errors
    /// [`StoreError`]. Incomplete files are removed.
    pub async fn pull(&self, entry: &Entry, progress: bool) -> Result<PathBuf, StoreError> {
        let mut parts: Vec<Companion> = entry.files().filter(|part| !self.is_intact(entry, part)).collect();
        if parts.is_empty() {
            return Ok(self.path_of(entry));
        }
        // The model file comes last, so that it exists only together with its companions.
        parts.reverse();
        std::fs::create_dir_all(&self.root).map_err(|error| StoreError::file(&self.root, error))?;
        scratch::remove_abandoned(&self.root, SCRATCH);
        // It may hold a wheel with several files of the entry.
        let scratch = Scratch::new_in(&self.root, SCRATCH).map_err(|error| StoreError::file(&self.root, error))?;
        for part in &parts {
            self.pull_file(entry, part, scratch.path(), progress).await?;
        }
        Ok(self.path_of(entry))
    }

    /// True if a file exists with the pinned content.
    fn is_intact(&self, entry: &Entry, part: &Companion) -> bool {
        let path = self.part_path(entry, part);
        path.exists() && self.identify(&path).is_ok_and(|sha256| check(part, &path, &sha256).is_ok())
    }

    async fn pull_file(
        &self,
        entry: &Entry,
        part: &Companion,
        scratch: &Path,
        progress: bool,
    ) -> Result<(), StoreError> {
        let target = self.part_path(entry, part);
        let folder = target.parent().unwrap_or(&self.root);
        std::fs::create_dir_all(folder).map_err(|error| StoreError::file(folder, error))?;
        let mut problems = Vec::new();
        for source in &part.sources {
            let file = match fetch::fetch(source, part, scratch, &self.hub, progress).await {
                Ok(file) => file,
                Err(problem) => {
                    problems.push(format!("{source}: {problem}"));
                    continue;
                }
            };
            // Another source may have the pinned content.
            if let Err(error) = check(part, &file, &hash(&file)?) {
                problems.push(format!("{source}: {error}"));
                continue;
            }
            scratch::move_to(&file, &target, SCRATCH).map_err(|error| StoreError::file(&target, error))?;
            self.identify(&target)?;
            return Ok(());
        }
        if problems.is_empty() {
            problems.push("the catalogue has no source for it".to_owned());
        }
        Err(StoreError::NoSource { name: entry.name.clone(), problems: problems.join("; ") })
    }

    /// SHA-256 of a file: from its receipt if size and times match, otherwise by hashing it and writing a receipt.
    ///
    /// # Errors
    /// [`StoreError::File`] when the file cannot be read.
    pub fn identify(&self, path: &Path) -> Result<String, StoreError> {
        receipts::identify(&self.root.join(RECEIPTS), path)
    }
}

/// Refuses a generator whose file is not in GGUF. llama.cpp would only say that it cannot load it.
fn check_format(path: &Path, role: Role) -> Result<(), StoreError> {
    // An unreadable file is reported when it is loaded.
    let Ok(file) = File::open(path) else { return Ok(()) };
    let mut start = Vec::new();
    let read = file.take(4).read_to_end(&mut start).is_ok();
    if role == Role::Generator && read && start != b"GGUF" {
        return Err(StoreError::NotGguf { path: path.display().to_string() });
    }
    Ok(())
}

/// Writes a small file. Readers see either the old content or the new one. Creates missing folders.
///
/// # Errors
/// The error of the operating system; the target is then unchanged.
pub fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    // A temporary file is readable only by its owner. This one becomes a regular file, subject to the umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    std::io::Write::write_all(&mut file, content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Bytes that an unprivileged user can write to the file system of `folder`; `None` if the system does not report it.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let status = rustix::fs::statvfs(folder).ok()?;
        status.f_bavail.checked_mul(status.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// Compares size and hash with the pinned ones.
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

/// SHA-256 of the content of a file, lower-case hexadecimal.
///
/// # Errors
/// [`StoreError::File`] when the file cannot be read.
pub fn hash(path: &Path) -> Result<String, StoreError> {
    let failed = |error| StoreError::file(path, error);
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = reader.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}
