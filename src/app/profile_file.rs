//! Position-bias profiles on disk, one file per generator, prompt template and origin in the store, and the built-in
//! profiles of the program.
//!
//! A file contains a hash of its content. A damaged file, or a file of another generator or format, is renamed and
//! reported. It is never used and never overwritten.

use serde::{Deserialize, Serialize};

pub use super::sealed::ProfileError;
use super::sealed::{Fault, Measured, SealedFile};
use models::store::Store;
pub use moi::profile::Origin;
use moi::profile::{Profile, Profiles, Subject};

/// The file of one generator, template and origin.
pub type ProfileFile = SealedFile<Content>;

/// Profiles of generators in the catalogue, measured by this project as models/README.md describes.
const BUILT_IN: [&str; 1] = [include_str!("../../models/profiles/smollm2-135m-instruct.json")];

/// A file of [`BUILT_IN`].
#[derive(Debug, Deserialize)]
struct BuiltIn {
    /// Identity of the measured generator.
    generator: String,
    template: String,
    #[serde(flatten)]
    content: Content,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Content {
    profiles: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    subject: Subject,
    passages: usize,
    profile: Profile,
}

impl ProfileFile {
    /// The file for a generator and a version of the prompts. `generator` identifies its weights: the SHA-256 of the
    /// model file, and of its adapter with the scale. Each origin has a separate file, because a server and a calibration
    /// may write at the same time.
    pub fn new(store: &Store, generator: &str, template: &str, origin: Origin) -> Self {
        Self::of_kind(store, generator, template, origin.name())
    }

    /// Writes the profiles atomically: after a crash the file is either the old one or the new one.
    ///
    /// # Errors
    /// [`ProfileError::File`]
    pub fn save(&self, profiles: &Profiles) -> Result<(), ProfileError> {
        let entries =
            profiles.iter().map(|(subject, passages, profile)| Entry { subject, passages, profile: profile.clone() });
        self.write(Content { profiles: entries.collect() })
    }
}

/// The built-in profiles of a generator, identified by [what it was measured on](prefix_scheduler::model::measured_on),
/// and a version of the prompts. Empty for most generators.
pub fn built_in(generator: &str, template: &str) -> Profiles {
    for text in BUILT_IN {
        match read_built_in(text) {
            Ok(([of, prompts], profiles)) if of == generator && prompts == template => return profiles,
            Ok(_) => {}
            Err(problem) => tracing::error!(%problem, "built-in position-bias profiles not used"),
        }
    }
    Profiles::default()
}

/// Generator and template of a built-in file, and its profiles.
fn read_built_in(text: &str) -> Result<([String; 2], Profiles), String> {
    let file: BuiltIn = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match file.content.checked() {
        Ok(profiles) => Ok(([file.generator, file.template], profiles)),
        Err(Fault(problem)) => Err(problem),
    }
}

impl Measured for Content {
    const FORMAT: u64 = 3;
    type Value = Profiles;

    fn checked(self) -> Result<Profiles, Fault> {
        let mut profiles = Profiles::default();
        for entry in self.profiles {
            if !entry.profile.is_valid(entry.passages) {
                return Err(format!("the profile for {} passages has invalid numbers", entry.passages).into());
            }
            profiles.insert(entry.subject, &entry.profile);
        }
        Ok(profiles)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::app::sealed;

    fn file(folder: &Path) -> ProfileFile {
        ProfileFile::at(folder.join("a.json"), "ab", "t-1")
    }

    fn profiles() -> Profiles {
        let mut profiles = Profiles::default();
        assert!(profiles.observe(Subject::Answer, &[0.1, -0.3, 0.2]));
        assert!(profiles.observe(Subject::Answer, &[0.7, -1.0 / 3.0, 1e-17]));
        assert!(profiles.observe(Subject::Question, &[0.25, 0.75]));
        profiles
    }

    /// An unreadable built-in file would otherwise only be logged.
    #[test]
    fn built_in_profiles_are_those_of_models_of_the_catalogue() {
        let catalog = models::catalog::Catalog::load(None).unwrap();
        for text in BUILT_IN {
            let ([generator, template], profiles) = read_built_in(text).unwrap();
            assert!(catalog.models.iter().any(|model| model.sha256 == generator), "{generator}");
            assert!(!profiles.is_empty() && built_in(&generator, &template) == profiles);
            // Another prompt format, adapter, or version of the prompts.
            assert!(built_in(&format!("{generator}-plain"), &template).is_empty());
            assert!(built_in(&generator, "rerankd-0").is_empty());
        }
        assert!(read_built_in("{}").is_err());
        let short = r#"{"generator": "a", "template": "b", "profiles": [
            {"subject": "answer", "passages": 3, "profile": {"count": 1, "means": [0.0], "squares": [0.0]}}]}"#;
        assert!(read_built_in(short).unwrap_err().contains("3 passages"));
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
        let good = std::fs::read_to_string(file.path()).unwrap();
        let damages = [
            good[..good.len() / 2].to_owned(),
            good.replacen("0.25", "0.35", 1),
            String::new(),
            good.replace("\"ab\"", "\"cd\""),
        ];
        for (number, damaged) in damages.iter().enumerate() {
            assert_ne!(*damaged, good);
            std::fs::write(file.path(), damaged).unwrap();
            let error = file.load().unwrap_err();
            assert!(matches!(error, ProfileError::Damaged { .. }), "{error}");
            assert!(!file.path().exists() && file.path().with_extension(format!("damaged-{}", number + 1)).exists());
            assert_eq!(file.load().unwrap(), Profiles::default());
        }
        let other = ProfileFile::at(file.path().to_owned(), "cd", "t-1");
        file.save(&profiles()).unwrap();
        assert!(other.load().unwrap_err().to_string().contains("belongs to generator ab"));
    }

    #[test]
    fn a_file_of_another_format_is_set_aside_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.save(&profiles()).unwrap();
        let mut content = sealed::content(&std::fs::read(file.path()).unwrap()).unwrap();
        content["format"] = serde_json::Value::from(2);
        std::fs::write(file.path(), sealed::to_bytes(&content).unwrap()).unwrap();
        let error = file.load().unwrap_err().to_string();
        assert!(
            error.contains("version 2, and this program reads version 3") && error.contains("damaged-1"),
            "{error}"
        );
        assert!(file.path().with_extension("damaged-1").exists());
        assert_eq!(file.load().unwrap(), Profiles::default());
    }

    /// Otherwise a temporary read error would lose all learnt profiles at the next write.
    #[test]
    fn a_file_that_could_not_be_read_is_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let file = file(scratch.path());
        file.keep_aside().unwrap();
        file.save(&profiles()).unwrap();
        file.keep_aside().unwrap();
        file.save(&Profiles::default()).unwrap();
        let aside = scratch.path().join("a.unread-1");
        assert!(aside.exists());
        std::fs::rename(aside, file.path()).unwrap();
        assert_eq!(file.load().unwrap(), profiles());
    }
}
