//! Calibrations of ranking methods on disk: one file per generator and prompt template, in the store with its
//! position-bias profiles.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::sealed::{Fault, ProfileError, SealedFile};
use engine::fusion::calibration::Calibration;
use models::store::Store;

/// Version of the file. It also changes with the built-in weights of the mixture (`engine::fusion::mixture`), to which calibrations belong.
const FORMAT: u64 = 1;

/// The file of one generator and template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalibrationFile(SealedFile);

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    calibrations: Vec<Calibration>,
}

impl CalibrationFile {
    /// The file for a generator and a version of the prompts. `generator` identifies its weights: the SHA-256 of the
    /// model file, and of its adapter with the scale.
    #[must_use]
    pub fn new(store: &Store, generator: &str, template: &str) -> Self {
        Self(SealedFile::new(store, generator, template, "ranking"))
    }

    /// Path of the file, which need not exist.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Time of the last change and length, which differ after every write. `None` if there is no file.
    #[must_use]
    pub fn stamp(&self) -> Option<(std::time::SystemTime, u64)> {
        self.0.stamp()
    }

    /// Number of unusable files of this name that any process has set aside.
    #[must_use]
    pub fn set_aside_so_far(&self) -> usize {
        self.0.set_aside_so_far()
    }

    /// Reads the calibrations; none if there is no file.
    ///
    /// # Errors
    /// As [`CalibrationFile::find`].
    pub fn load(&self) -> Result<Vec<Calibration>, ProfileError> {
        Ok(self.find()?.unwrap_or_default())
    }

    /// Reads the calibrations; `None` if there is no file.
    ///
    /// # Errors
    /// [`ProfileError::Damaged`] if the file cannot be used. It has then been renamed, so the next call finds no file.
    pub fn find(&self) -> Result<Option<Vec<Calibration>>, ProfileError> {
        self.0.load(FORMAT, checked)
    }

    /// Writes the calibrations atomically: after a crash the file is either the old one or the new one.
    ///
    /// # Errors
    /// [`ProfileError::File`]
    pub fn save(&self, calibrations: &[Calibration]) -> Result<(), ProfileError> {
        self.0.save(FORMAT, Content { calibrations: calibrations.to_vec() })
    }
}

fn checked(content: Content) -> Result<Vec<Calibration>, Fault> {
    match content.calibrations.iter().find(|calibration| !calibration.is_valid()) {
        Some(invalid) => Err(format!("the calibration of {} has invalid numbers", invalid.method).into()),
        None => Ok(content.calibrations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::fusion::calibration::Mix;
    use engine::fusion::platt::Platt;
    use engine::types::Source;

    fn file(folder: &Path) -> CalibrationFile {
        CalibrationFile(SealedFile { path: folder.join("a.json"), generator: "ab".into(), template: "t-1".into() })
    }

    fn calibration(slope: f64) -> Calibration {
        Calibration {
            method: "cascade".into(),
            mix: Some(Mix { source: Source::Retriever, weight: 0.65, embedding: Some(0.1 + 0.7) }),
            embedding: None,
            model: None,
            score: Platt { intercept: -5.25, slope },
            lists: 80,
            passages: 1_600,
            outranks_per_nat: Some(0.2 + slope.abs() / 3.0),
            calibration_error: Some(0.1 + 0.2),
        }
    }

    #[test]
    fn what_was_saved_is_loaded_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        assert_eq!(file.load().unwrap(), []);
        file.save(&[calibration(1.0 / 3.0)]).unwrap();
        assert_eq!(file.load().unwrap(), [calibration(1.0 / 3.0)]);
    }

    #[test]
    fn what_cannot_be_trusted_is_refused_and_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(folder.path());
        file.save(&[calibration(3.5)]).unwrap();
        let good = std::fs::read_to_string(file.path()).unwrap();
        file.save(&[calibration(-3.5)]).unwrap();
        let turned = std::fs::read_to_string(file.path()).unwrap();
        file.save(&[Calibration { outranks_per_nat: Some(-0.2), ..calibration(3.5) }]).unwrap();
        let reversed = std::fs::read_to_string(file.path()).unwrap();
        let mix = Some(Mix { source: Source::Retriever, weight: 0.65, embedding: Some(1.5) });
        file.save(&[Calibration { mix, ..calibration(3.5) }]).unwrap();
        let beyond = std::fs::read_to_string(file.path()).unwrap();
        let damages = [
            good[..good.len() / 2].to_owned(),
            good.replacen("3.5", "4.5", 1),
            String::new(),
            good.replace("\"ab\"", "\"cd\""),
            turned,
            reversed,
            beyond,
        ];
        for (number, damaged) in damages.iter().enumerate() {
            std::fs::write(file.path(), damaged).unwrap();
            let error = file.load().unwrap_err();
            assert!(matches!(error, ProfileError::Damaged { .. }), "{error}");
            assert!(!file.path().exists() && file.path().with_extension(format!("damaged-{}", number + 1)).exists());
            assert_eq!(file.load().unwrap(), []);
        }
        let other = CalibrationFile(SealedFile { generator: "cd".into(), ..file.0.clone() });
        file.save(&[calibration(3.5)]).unwrap();
        assert!(other.load().unwrap_err().to_string().contains("belongs to generator ab"));
    }
}
