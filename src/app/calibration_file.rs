//! Calibrations of ranking methods on disk: one file per generator and prompt template, in the store with its
//! position-bias profiles.

use serde::{Deserialize, Serialize};

use super::sealed::{Fault, Measured, ProfileError, SealedFile};
use engine::fusion::calibration::Calibration;
use models::store::Store;

/// The file of one generator and template.
pub type CalibrationFile = SealedFile<Calibrations>;

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibrations {
    calibrations: Vec<Calibration>,
}

impl CalibrationFile {
    /// The file for a generator and a version of the prompts. `generator` identifies its weights: the SHA-256 of the
    /// model file, and of its adapter with the scale.
    pub fn new(store: &Store, generator: &str, template: &str) -> Self {
        Self::of_kind(store, generator, template, "ranking")
    }

    /// Writes the calibrations atomically: after a crash the file is either the old one or the new one.
    ///
    /// # Errors
    /// [`ProfileError::File`]
    pub fn save(&self, calibrations: &[Calibration]) -> Result<(), ProfileError> {
        self.write(Calibrations { calibrations: calibrations.to_vec() })
    }
}

impl Measured for Calibrations {
    /// It also changes with the built-in weights of the mixture (`engine::fusion::mixture`), to which calibrations belong.
    const FORMAT: u64 = 1;
    type Value = Vec<Calibration>;

    fn checked(self) -> Result<Vec<Calibration>, Fault> {
        match self.calibrations.iter().find(|calibration| !calibration.is_valid()) {
            Some(invalid) => Err(format!("the calibration of {} has invalid numbers", invalid.method).into()),
            None => Ok(self.calibrations),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use engine::fusion::calibration::Mix;
    use engine::fusion::platt::Platt;
    use engine::types::Source;

    fn file(folder: &Path) -> CalibrationFile {
        CalibrationFile::at(folder.join("a.json"), "ab", "t-1")
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
        let other = CalibrationFile::at(file.path().to_owned(), "cd", "t-1");
        file.save(&[calibration(3.5)]).unwrap();
        assert!(other.load().unwrap_err().to_string().contains("belongs to generator ab"));
    }
}
