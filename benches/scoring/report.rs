//! Prints one JSON line per figure.

use std::sync::OnceLock;

use prefix_scheduler::model::GeneratorInfo;
use serde_json::{Value, json};

static CONTEXT: OnceLock<Value> = OnceLock::new();

/// Sets the generator whose hash every line contains; with an adapter, also the adapter's hash and its scale.
pub fn about(info: &GeneratorInfo) {
    about_model(&info.name, &info.weights(), &info.encoding);
}

/// Sets the hash of a model that is not a generator.
#[allow(dead_code, reason = "only the belief benchmark has one")]
pub fn about_model(model: &str, sha256: &str, encoding: &str) {
    let _ = CONTEXT.set(json!({ "model": model, "sha256": sha256, "encoding": encoding }));
}

/// A figure, with its ratio to a reference of the same run and the goal for that ratio.
pub struct Line {
    name: String,
    value: f64,
    unit: String,
    ratio: Option<f64>,
    goal: Option<(f64, bool)>,
    spread: Option<f64>,
}

impl Line {
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.into(), ratio: None, goal: None, spread: None }
    }

    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// Standard error of the value.
    pub fn spread(mut self, spread: f64) -> Self {
        self.spread = Some(spread);
        self
    }

    /// Goal: the ratio is at least this.
    pub fn at_least(mut self, goal: f64) -> Self {
        self.goal = Some((goal, true));
        self
    }

    /// Goal: the ratio is at most this.
    pub fn at_most(mut self, goal: f64) -> Self {
        self.goal = Some((goal, false));
        self
    }

    pub fn print(self) {
        let met =
            self.goal.zip(self.ratio).map(|((goal, least), ratio)| if least { ratio >= goal } else { ratio <= goal });
        let machine =
            format!("{} {}", std::env::consts::ARCH, std::thread::available_parallelism().map_or(0, usize::from));
        println!(
            "{}",
            json!({
                "name": self.name, "value": self.value, "unit": self.unit, "standard_error": self.spread, "ratio": self.ratio,
                "goal": self.goal.map(|(goal, _)| goal), "met": met, "machine": machine, "model": CONTEXT.get(),
            })
        );
    }
}
