//! Means over questions, and paired differences with intervals, as JSON lines.

use std::collections::BTreeMap;
use std::path::Path;

use prefix_scheduler::model::GeneratorInfo;
use rag_metrics::resample::{Resampling, mean_interval};
use serde_json::{Value, json};

use super::measure::{COMPRESSORS, RATIOS, Values, Way};

/// The measures with their units, by index in [`Values`].
const MEASURES: [(&str, &str); 5] = [
    ("tokens of the texts", "tokens"),
    ("log P(reference)", "nats"),
    ("DeltaSePer", "probability"),
    ("tokens to rank and shorten, without a cache", "tokens"),
    ("seconds to rank and shorten, without a cache", "seconds"),
];

/// The values of all questions of a file.
pub struct Figures {
    file: String,
    model: Value,
    questions: Vec<BTreeMap<Way, Values>>,
}

impl Figures {
    pub fn new(file: &Path, model: &GeneratorInfo) -> Self {
        let file = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let model = json!({ "model": model.name, "sha256": model.sha256, "encoding": model.encoding });
        Self { file, model, questions: Vec::new() }
    }

    pub fn add(&mut self, values: BTreeMap<Way, Values>) {
        self.questions.push(values);
    }

    pub fn print(&self) {
        self.means("whole", None, Way::Whole);
        for (at, ratio) in RATIOS.into_iter().enumerate() {
            for (by, compressor) in COMPRESSORS.into_iter().enumerate() {
                let (name, short) = (compressor.name, Way::Compressed(by, at));
                let (ends, last) = (Way::CutEnds(by, at), Way::DroppedLast(by, at));
                self.means(name, Some(ratio), short);
                self.means(&format!("passages cut at their ends, as long as {name}"), Some(ratio), ends);
                self.means(&format!("last passages dropped, as long as {name}"), Some(ratio), last);
                for (other, way) in [("whole", Way::Whole), ("cut ends", ends), ("last dropped", last)] {
                    self.difference(name, ratio, other, short, way);
                }
            }
        }
    }

    /// A measure of all questions that have it.
    fn values(&self, measure: usize, of: impl Fn(&BTreeMap<Way, Values>, usize) -> f64) -> Vec<f64> {
        self.questions.iter().map(|values| of(values, measure)).filter(|value| value.is_finite()).collect()
    }

    fn means(&self, name: &str, ratio: Option<f64>, way: Way) {
        for (measure, (what, unit)) in MEASURES.into_iter().enumerate() {
            let values = self.values(measure, |values, measure| values[&way][measure]);
            self.line(name, ratio, None, what, unit, &values);
        }
    }

    fn difference(&self, name: &str, ratio: f64, other: &str, left: Way, right: Way) {
        for (measure, (what, unit)) in MEASURES.into_iter().enumerate().take(3) {
            let values = self.values(measure, |values, measure| values[&left][measure] - values[&right][measure]);
            self.line(name, Some(ratio), Some(other), what, unit, &values);
        }
    }

    fn line(&self, name: &str, ratio: Option<f64>, minus: Option<&str>, what: &str, unit: &str, values: &[f64]) {
        if values.is_empty() {
            return;
        }
        let ends = mean_interval(values, Resampling::default(), &|| false);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        println!(
            "{}",
            json!({
                "data": self.file, "questions": values.len(), "context": name, "ratio": ratio, "minus": minus, "measure": what,
                "unit": unit, "value": mean, "low": ends.map(|ends| ends.low), "high": ends.map(|ends| ends.high),
                "model": self.model,
            })
        );
    }
}
