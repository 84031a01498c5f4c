//! Position-bias profiles on disk: one file per generator, prompt template and origin, beside the models.
//!
//! A file contains a hash of its content. A damaged file, a file of another generator, or a file of another format is renamed
//! and reported. It is never used and never overwritten.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::store::{Store, hex, write_atomically};
pub use crate::fit::profile::Origin;
use crate::fit::profile::{Profile, Profiles, Subject};

/// Version of the file format. The layout of 2 is that of 1; the profiles of 1 may contain fits that the prior decided.
const FORMAT: u64 = 2;
/// The version before [`FORMAT`].
const OUTDATED: u64 = 1;

/// Why a profile file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The content cannot be trusted. The file was renamed.
    #[error("{path}: {problem}; set aside as {aside}")]
    Damaged {
        /// Path of the file before it was renamed.
        path: String,
        /// What is wrong.
        problem: String,
        /// Its new path.
        aside: String,
    },
    /// An earlier version wrote the file. The file was renamed.
    #[error(
        "{path}: format {OUTDATED} of an earlier version, whose profiles may hold the prior of the fit; set aside as {aside}; calibrate again"
    )]
    Outdated {
        /// Path of the file before it was renamed.
        path: String,
        /// Its new path.
        aside: String,
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

/// What is wrong with a file's bytes.
enum Fault {
    Outdated,
    Damaged(String),
}

impl<T: ToString> From<T> for Fault {
    fn from(problem: T) -> Self {
        Self::Damaged(problem.to_string())
    }
}

/// The file of one generator, template and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFile {
    path: PathBuf,
    generator: String,
    template: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u64,
    /// SHA-256 of the generator's file.
    generator: String,
    template: String,
    profiles: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    subject: Subject,
    passages: usize,
    profile: Profile,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    /// SHA-256 of `content` in compact JSON, with its keys in the order of the file.
    check: String,
    content: serde_json::Value,
}

impl ProfileFile {
    /// The file for a generator, named by the SHA-256 of its model file, and a version of the prompts. Each origin has its own
    /// file, because a server and a calibration may write at the same time.
    #[must_use]
    pub fn new(store: &Store, generator: &str, template: &str, origin: Origin) -> Self {
        let kind = match origin {
            Origin::Calibrated => "calibrated",
            Origin::Learnt => "learnt",
        };
        let path = store.root().join(".profiles").join(format!("{generator}.{template}.{kind}.json"));
        Self { path, generator: generator.to_owned(), template: template.to_owned() }
    }

    /// Where the file is, or would be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time of the last change and length: it differs after every write. `None` where there is no file.
    #[must_use]
    pub fn stamp(&self) -> Option<(std::time::SystemTime, u64)> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Reads the profiles; an empty set where there is no file yet.
    ///
    /// # Errors
    /// [`ProfileError::Damaged`] and [`ProfileError::Outdated`] for a file that cannot be used. It has then been renamed, so the
    /// next call finds no file.
    pub fn load(&self) -> Result<Profiles, ProfileError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Profiles::default()),
            Err(error) => return Err(self.refused(error)),
        };
        self.parse(&bytes).map_err(|fault| self.set_aside(fault))
    }

    /// Writes the profiles atomically: after a crash the file is either the old one or the new one.
    ///
    /// # Errors
    /// [`ProfileError::File`]
    pub fn save(&self, profiles: &Profiles) -> Result<(), ProfileError> {
        let entries =
            profiles.iter().map(|(subject, passages, profile)| Entry { subject, passages, profile: profile.clone() });
        let content = Content {
            format: FORMAT,
            generator: self.generator.clone(),
            template: self.template.clone(),
            profiles: entries.collect(),
        };
        let sealed = || -> serde_json::Result<Vec<u8>> {
            let content = serde_json::to_value(&content)?;
            serde_json::to_vec_pretty(&Sealed { check: seal(&content), content })
        };
        let bytes = sealed().map_err(|error| self.refused(error.into()))?;
        write_atomically(&self.path, &bytes).map_err(|error| self.refused(error))
    }

    fn parse(&self, bytes: &[u8]) -> Result<Profiles, Fault> {
        let sealed: Sealed = serde_json::from_slice(bytes)?;
        if seal(&sealed.content) != sealed.check {
            return Err("its content does not match the hash it states".into());
        }
        match sealed.content.get("format").and_then(serde_json::Value::as_u64) {
            Some(FORMAT) => {}
            Some(OUTDATED) => return Err(Fault::Outdated),
            Some(other) => return Err(format!("format {other}, this program reads {FORMAT}").into()),
            None => return Err("states no format".into()),
        }
        let content: Content = serde_json::from_value(sealed.content)?;
        if content.generator != self.generator || content.template != self.template {
            return Err(format!("belongs to generator {} and template {}", content.generator, content.template).into());
        }
        let mut profiles = Profiles::default();
        for entry in &content.profiles {
            if !entry.profile.is_valid(entry.passages) {
                return Err(format!("the profile for {} passages has invalid numbers", entry.passages).into());
            }
            profiles.insert(entry.subject, &entry.profile);
        }
        Ok(profiles)
    }

    fn set_aside(&self, fault: Fault) -> ProfileError {
        let label = match fault {
            Fault::Outdated => "format-1",
            Fault::Damaged(_) => "damaged",
        };
        let name = |number: u32| self.path.with_extension(format!("{label}-{number}"));
        let free = (1..1000).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1000));
        if let Err(error) = std::fs::rename(&self.path, &free) {
            return self.refused(error);
        }
        let (path, aside) = (self.path.display().to_string(), free.display().to_string());
        match fault {
            Fault::Outdated => ProfileError::Outdated { path, aside },
            Fault::Damaged(problem) => ProfileError::Damaged { path, problem, aside },
        }
    }

    fn refused(&self, error: std::io::Error) -> ProfileError {
        ProfileError::File { path: self.path.display().to_string(), error }
    }
}

fn seal(content: &serde_json::Value) -> String {
    hex(&Sha256::digest(content.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path) -> ProfileFile {
        ProfileFile { path: folder.join("a.json"), generator: "ab".into(), template: "t-1".into() }
    }

    fn profiles() -> Profiles {
        let mut profiles = Profiles::default();
        assert!(profiles.observe(Subject::Answer, &[0.1, -0.3, 0.2]));
        assert!(profiles.observe(Subject::Answer, &[0.7, -1.0 / 3.0, 1e-17]));
        assert!(profiles.observe(Subject::Question, &[0.25, 0.75]));
        profiles
    }

    #[test]
    fn what_was_saved_is_loaded_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        assert_eq!(file.load().unwrap(), Profiles::default());
        file.save(&profiles()).unwrap();
        assert_eq!(file.load().unwrap(), profiles());
    }

    #[test]
    fn a_damaged_file_is_refused_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.save(&profiles()).unwrap();
        let good = std::fs::read_to_string(&file.path).unwrap();
        let damages = [
            good[..good.len() / 2].to_owned(),
            good.replacen("0.25", "0.35", 1),
            String::new(),
            good.replace("\"ab\"", "\"cd\""),
        ];
        for (number, damaged) in damages.iter().enumerate() {
            assert_ne!(*damaged, good);
            std::fs::write(&file.path, damaged).unwrap();
            let error = file.load().unwrap_err();
            assert!(matches!(error, ProfileError::Damaged { .. }), "{error}");
            assert!(!file.path.exists() && file.path.with_extension(format!("damaged-{}", number + 1)).exists());
            assert_eq!(file.load().unwrap(), Profiles::default());
        }
        let other = ProfileFile { generator: "cd".into(), ..file.clone() };
        file.save(&profiles()).unwrap();
        assert!(other.load().unwrap_err().to_string().contains("belongs to generator ab"));
    }

    /// Format 1 was written while fits that the prior had decided were learnt. Its profiles must not come back.
    #[test]
    fn a_file_of_the_earlier_format_is_set_aside_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.save(&profiles()).unwrap();
        for (format, reason, aside) in
            [(1, "format 1 of an earlier version", "format-1-1"), (3, "format 3, this program reads 2", "damaged-1")]
        {
            file.save(&profiles()).unwrap();
            let mut sealed: Sealed = serde_json::from_slice(&std::fs::read(&file.path).unwrap()).unwrap();
            sealed.content["format"] = serde_json::Value::from(format);
            sealed.check = seal(&sealed.content);
            std::fs::write(&file.path, serde_json::to_vec(&sealed).unwrap()).unwrap();
            let error = file.load().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(aside), "{error}");
            assert!(file.path.with_extension(aside).exists());
            assert_eq!(file.load().unwrap(), Profiles::default());
        }
    }
}
