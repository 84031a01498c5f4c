//! The file of a baseline: the values of every question, and everything that they depend on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Series, Subject, refused};
use crate::study::manifest::{BOUNDS, differences_in, shown};
use crate::study::{StudyError, write};

/// Name and version of the file.
const FORMAT: &str = "rerankd baseline 1";

/// The program.
const PROGRAM: &str = concat!("rerankd ", env!("CARGO_PKG_VERSION"));

/// Settings that define the metrics. Values under other ones cannot be compared.
const DEFINING: [&str; 4] = ["task", "labels", "relevance_threshold", "measure"];

/// Settings that are not reported as changes: the systems and metrics are checked by themselves, and the bounds of an
/// engine are known only in its process.
const CHECKED: [&str; 7] = ["format", "study", "methods", "systems", "annotators", "metrics", BOUNDS];

/// The option that names the file.
const OPTION: &str = "--baseline";

/// The values of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    format: String,
    program: String,
    /// The manifest of the results: models, prompts and settings.
    settings: Map<String, Value>,
    /// Fingerprint of the questions.
    fingerprint: String,
    /// Ids of the questions.
    questions: Vec<String>,
    /// By system and metric, a value per question, in their order; null if it has none.
    values: BTreeMap<String, BTreeMap<String, Vec<Option<f64>>>>,
}

impl Baseline {
    pub(super) fn of(subject: &Subject, values: &[Vec<Option<f64>>]) -> Self {
        let mut by_system: BTreeMap<String, BTreeMap<String, Vec<Option<f64>>>> = BTreeMap::new();
        for (series, values) in subject.series.iter().zip(values) {
            let of_system = by_system.entry(series.system.clone()).or_default();
            of_system.insert(series.metric.clone(), values.clone());
        }
        let mut settings = subject.settings.clone();
        settings.remove(BOUNDS);
        Self {
            format: FORMAT.to_owned(),
            program: PROGRAM.to_owned(),
            settings,
            fingerprint: subject.fingerprint.clone(),
            questions: subject.questions.clone(),
            values: by_system,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`StudyError::Input`] if it is not a baseline of this version.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let bad = |problem: &str| {
            StudyError::Input(format!("{OPTION}: {}: {problem}; write one with --save-baseline", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| bad(&format!("invalid JSON: {error}")))?;
        if value["format"] != FORMAT {
            return Err(bad(&format!("its format is {}, not {FORMAT:?}", shown(value.get("format")))));
        }
        let baseline: Self = serde_json::from_value(value).map_err(|error| bad(&error.to_string()))?;
        let mut series = baseline.values.values().flat_map(BTreeMap::values);
        if series.any(|values| values.len() != baseline.questions.len()) {
            return Err(bad("it does not have a value for each question"));
        }
        Ok(baseline)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// [`StudyError::Other`] if the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), StudyError> {
        let text = serde_json::to_string(self).map_err(anyhow::Error::from)?;
        write(path, &format!("{text}\n"))
    }

    /// Refuses a study that measures something else. Returns the other differences: models, prompts, settings, program.
    pub(super) fn check(&self, subject: &Subject) -> Result<Vec<String>, StudyError> {
        let of = |settings: &Map<String, Value>, key: &str| settings.get(key).cloned().unwrap_or_default();
        let (before, now) = (of(&self.settings, "study"), of(&subject.settings, "study"));
        if before != now {
            return refused(OPTION, &format!("is of the command {before}, this one is {now}"));
        }
        if self.fingerprint != subject.fingerprint {
            return refused(OPTION, &format!("has other questions: {}", self.other_questions(subject)));
        }
        let defining = differences_in(&self.settings, &subject.settings, |key| DEFINING.contains(&key));
        if !defining.is_empty() {
            return refused(OPTION, &format!("its metrics mean something else: {}", defining.join(", ")));
        }
        let mut changes = differences_in(&self.settings, &subject.settings, |key| !CHECKED.contains(&key));
        if self.program != PROGRAM {
            changes.push(format!("program (stored {:?}, now {PROGRAM:?})", self.program));
        }
        Ok(changes)
    }

    fn other_questions(&self, subject: &Subject) -> String {
        let (before, now) = (&self.questions, &subject.questions);
        if before.len() != now.len() {
            return format!("{} instead of {}", before.len(), now.len());
        }
        match before.iter().zip(now).find(|(before, now)| before != now) {
            Some((before, now)) => format!("{before:?} instead of {now:?}"),
            None => "the ids are equal, but texts, reference answers or judgements are not".to_owned(),
        }
    }

    /// The values of a series.
    pub(super) fn values_of(&self, series: &Series) -> Result<&[Option<f64>], StudyError> {
        let Some(metrics) = self.values.get(&series.system) else {
            let systems: Vec<&str> = self.values.keys().map(String::as_str).collect();
            let problem = format!("has no system {:?}, only {}", series.system, systems.join(", "));
            return refused(OPTION, &problem);
        };
        let Some(values) = metrics.get(&series.metric) else {
            let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
            return refused(OPTION, &format!("has no metric {:?}, only {}", series.metric, names.join(", ")));
        };
        Ok(values)
    }
}
