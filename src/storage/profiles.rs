//! Position-bias profiles on disk: one file a generator, template and origin, beside the models.
//!
//! The file carries a hash of what it says. One that is damaged, or that says it is of another generator, is set aside under
//! a name of its own and reported; it is never used.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::store::{Store, hex, write_atomically};
use crate::fit::profile::{Profile, Profiles, Subject};

/// Version of the file's format.
const FORMAT: u32 = 1;

/// Where profiles come from; each has a file of its own, because a server and a calibration may write at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `rerankd calibrate`, from labelled questions.
    Calibrated,
    /// The fits of served requests.
    Learnt,
}

/// Why profiles are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file is not what was written; it was renamed.
    #[error("{path}: {problem}; set aside as {aside}")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
        /// Its new name.
        aside: String,
    },
    /// The system refused.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
}

/// The place of a generator's profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFile {
    path: PathBuf,
    generator: String,
    template: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
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
    /// SHA-256 of `content` as it stands here, in compact JSON.
    check: String,
    content: serde_json::Value,
}

impl ProfileFile {
    /// The file for a generator (by the SHA-256 of its file) and a version of the prompts.
    #[must_use]
    pub fn new(store: &Store, generator: &str, template: &str, origin: Origin) -> Self {
        let kind = match origin {
            Origin::Calibrated => "calibrated",
            Origin::Learnt => "learnt",
        };
        let path = store.root().join(".profiles").join(format!("{generator}.{template}.{kind}.json"));
        Self { path, generator: generator.to_owned(), template: template.to_owned() }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes when the file does: time of the last change and length; `None` where there is no file.
    #[must_use]
    pub fn stamp(&self) -> Option<(std::time::SystemTime, u64)> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Reads the profiles; none where there is no file yet.
    ///
    /// # Errors
    /// [`ProfileError::Damaged`] for a file that cannot be trusted, which is then out of the way.
    pub fn load(&self) -> Result<Profiles, ProfileError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Profiles::default()),
            Err(error) => return Err(self.refused(error)),
        };
        self.parse(&bytes).map_err(|problem| self.set_aside(problem))
    }

    /// Writes the profiles; the file is either the old one or the new one, whatever happens on the way.
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

    fn parse(&self, bytes: &[u8]) -> Result<Profiles, String> {
        let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if seal(&sealed.content) != sealed.check {
            return Err("the content does not have the hash that the file states".to_owned());
        }
        let content: Content = serde_json::from_value(sealed.content).map_err(|error| error.to_string())?;
        if content.format != FORMAT {
            return Err(format!("has format {}, this program knows {FORMAT}", content.format));
        }
        if content.generator != self.generator || content.template != self.template {
            return Err(format!("is of generator {} and template {}", content.generator, content.template));
        }
        let mut profiles = Profiles::default();
        for entry in &content.profiles {
            if !entry.profile.is_sound(entry.passages) {
                return Err(format!("the profile for {} passages holds impossible numbers", entry.passages));
            }
            profiles.insert(entry.subject, &entry.profile);
        }
        Ok(profiles)
    }

    fn set_aside(&self, problem: String) -> ProfileError {
        let name = |number: u32| self.path.with_extension(format!("damaged-{number}"));
        let aside = (1..1000).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1000));
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => ProfileError::Damaged {
                path: self.path.display().to_string(),
                problem,
                aside: aside.display().to_string(),
            },
            Err(error) => self.refused(error),
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
        assert!(other.load().unwrap_err().to_string().contains("is of generator ab"));
    }
}
