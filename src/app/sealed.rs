//! Files of measurements on a generator, as JSON with a hash of the content, so that damage is detected before use.
//!
//! A damaged file, or a file of another generator or format, is renamed and reported. It is never used and never
//! overwritten.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use models::store::{Store, write_atomically};

#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    /// SHA-256 of `content` in compact JSON, with its keys in the order of the file.
    check: String,
    content: serde_json::Value,
}

/// The reason why a stored measurement could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The content cannot be trusted. The file was renamed.
    #[error("{path}: {problem}; set aside as {aside}: {remedy}")]
    Damaged {
        /// Path of the file before it was renamed.
        path: String,
        /// The fault.
        problem: String,
        /// Its new path.
        aside: String,
        /// The next step.
        remedy: &'static str,
    },
    /// The content cannot be trusted, and the file could not be renamed.
    #[error("{path}: {problem}; it cannot be set aside: {error}")]
    Unmoved {
        /// Path of the file.
        path: String,
        /// The fault.
        problem: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The operating system refused.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// A fault in a file's content.
pub struct Fault(pub String);

impl<T: ToString> From<T> for Fault {
    fn from(problem: T) -> Self {
        Self(problem.to_string())
    }
}

/// The content of a file, with the generator and template that it belongs to.
#[derive(Debug, Serialize, Deserialize)]
struct Content<T> {
    format: u64,
    /// The generator's weights: the SHA-256 of its file, and of its adapter with the scale.
    generator: String,
    template: String,
    #[serde(flatten)]
    measured: T,
}

/// The measurements of a file.
pub trait Measured: Serialize + DeserializeOwned {
    /// Version of the file.
    const FORMAT: u64;
    /// The measurements in memory. The default is none.
    type Value: Default;

    /// The value of a file's content.
    fn checked(self) -> Result<Self::Value, Fault>;
}

/// A file of measurements on one generator with one version of the prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile<M> {
    path: PathBuf,
    generator: String,
    template: String,
    measured: PhantomData<fn() -> M>,
}

impl<M: Measured> SealedFile<M> {
    /// The file of a kind of measurement, in the store.
    pub(super) fn of_kind(store: &Store, generator: &str, template: &str, kind: &str) -> Self {
        let path = store.root().join(".profiles").join(format!("{generator}.{template}.{kind}.json"));
        Self::at(path, generator, template)
    }

    pub(super) fn at(path: PathBuf, generator: &str, template: &str) -> Self {
        Self { path, generator: generator.to_owned(), template: template.to_owned(), measured: PhantomData }
    }

    /// Path of the file, which need not exist.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time of the last change and length, which differ after every write. `None` if there is no file.
    pub fn stamp(&self) -> Option<(SystemTime, u64)> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Number of unusable files of this name that any process has set aside.
    pub fn set_aside_so_far(&self) -> usize {
        let stem = self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let aside = |name: &str| {
            let label = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('.'));
            label.is_some_and(|label| label.starts_with("damaged-"))
        };
        let files = self.path.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten().flatten();
        files.filter(|entry| aside(&entry.file_name().to_string_lossy())).count()
    }

    /// Reads the measurements; none if there is no file.
    ///
    /// # Errors
    /// As [`SealedFile::find`].
    pub fn load(&self) -> Result<M::Value, ProfileError> {
        Ok(self.find()?.unwrap_or_default())
    }

    /// Reads the measurements; `None` if there is no file.
    ///
    /// # Errors
    /// [`ProfileError::Damaged`] if the file cannot be used. It has then been renamed, so the next call finds no file.
    pub fn find(&self) -> Result<Option<M::Value>, ProfileError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.refused(error)),
        };
        let read = || -> Result<M::Value, Fault> {
            let content = content(&bytes)?;
            match content.get("format").and_then(serde_json::Value::as_u64) {
                Some(stated) if stated == M::FORMAT => {}
                Some(stated) => {
                    return Err(format!("has version {stated}, and this program reads version {}", M::FORMAT).into());
                }
                None => return Err("has no version".into()),
            }
            let content: Content<M> = serde_json::from_value(content)?;
            if content.generator != self.generator || content.template != self.template {
                let problem = format!("belongs to generator {} and template {}", content.generator, content.template);
                return Err(problem.into());
            }
            content.measured.checked()
        };
        read().map(Some).map_err(|fault| self.set_aside(fault))
    }

    /// Writes the measurements atomically: after a crash the file is either the old one or the new one.
    pub(super) fn write(&self, measured: M) -> Result<(), ProfileError> {
        let (generator, template) = (self.generator.clone(), self.template.clone());
        let content = Content { format: M::FORMAT, generator, template, measured };
        let bytes = to_bytes(&content).map_err(|error| self.refused(error.into()))?;
        write_atomically(&self.path, &bytes).map_err(|error| self.refused(error))
    }

    fn set_aside(&self, Fault(problem): Fault) -> ProfileError {
        let path = self.path.display().to_string();
        match self.rename("damaged") {
            Ok(free) => {
                let aside = free.display().to_string();
                ProfileError::Damaged { path, problem, aside, remedy: self.remedy() }
            }
            Err(error) => ProfileError::Unmoved { path, problem, error },
        }
    }

    /// The way to get a new file of this kind.
    fn remedy(&self) -> &'static str {
        match self.path.to_string_lossy().rsplit('.').nth(1) {
            Some("learnt") => "a server learns it again",
            Some("ranking") => "run `rerankd calibrate --ranking` again",
            _ => "run `rerankd calibrate` again",
        }
    }

    /// Renames an unreadable file, so that it is not overwritten. A missing file is not an error.
    pub fn keep_aside(&self) -> Result<(), ProfileError> {
        match self.rename("unread") {
            Ok(aside) => {
                tracing::warn!(path = %self.path.display(), aside = %aside.display(), "an unreadable file was set aside");
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Renames the file to an unused name.
    fn rename(&self, label: &str) -> std::io::Result<PathBuf> {
        let name = |number: u32| self.path.with_extension(format!("{label}-{number}"));
        let free = (1..1000).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1000));
        std::fs::rename(&self.path, &free).map(|()| free)
    }

    fn refused(&self, error: std::io::Error) -> ProfileError {
        ProfileError::File { path: self.path.display().to_string(), error }
    }
}

/// The bytes of a file with this content.
pub(super) fn to_bytes(content: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let content = serde_json::to_value(content)?;
    serde_json::to_vec_pretty(&Sealed { check: seal(&content), content })
}

/// The content of a file, or the reason why it cannot be trusted.
pub(super) fn content(bytes: &[u8]) -> Result<serde_json::Value, String> {
    let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if seal(&sealed.content) != sealed.check {
        return Err("its content does not match the hash it states".to_owned());
    }
    Ok(sealed.content)
}

fn seal(content: &serde_json::Value) -> String {
    hex::encode(Sha256::digest(content.to_string().as_bytes()))
}
