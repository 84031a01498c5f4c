//! Settings of a comparison, and its fixed rows.

use serde_json::{Map, Value, json};

use crate::study::identity::ModelIdentity;
use crate::study::manifest::{self, Uses};
use crate::study::{StudyError, distinct};
use engine::methods;
use engine::types::{MethodRef, PromptPrefix};
use prefix_scheduler::model::PromptFormat;
use rag_metrics::resample::Statistics;

/// The row of the first-stage order.
pub use crate::evaluation::methods::GIVEN;

/// The row of BM25 within the list.
pub const BM25: &str = "bm25";

/// Every method of the registry, except the one of the row `given` and those that need an optional model.
/// [`Settings::beside`] adds these if the model is served.
pub const ALL: &str = "all";

/// The method with the order of the row `given`.
const RETRIEVER: &str = "retriever";

/// Settings of a comparison.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The methods of the rows other than `given` and `bm25`; at least one.
    pub methods: Vec<MethodRef>,
    /// Adds the methods that use another model, if that model is served and answers.
    pub beside: bool,
    /// Instruction and examples; they make a second row for every method that takes them.
    pub opening: PromptPrefix,
    /// Prompt formats. Each except the configured one makes another row for every method with a prompt format. Only
    /// an engine in this process supports them.
    pub frames: Vec<PromptFormat>,
    /// Makes another row for every method that a scorer scores, scored by the generator.
    pub by_generator: bool,
    /// True if the scoring model is a causal reranker; `None` until the models are known.
    pub reranker: Option<bool>,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Milliseconds that a ranking may take, for the methods that take a budget. The passages read then depend on the
    /// machine.
    pub latency_budget_ms: Option<f64>,
    /// Questions that are asked at once; at least 1. Requests wait for each other, and `seconds` include this.
    pub concurrency: usize,
    /// Seed of the designs. The seed of the resamples is in `statistics`.
    pub seed: u64,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Intervals and tests.
    pub statistics: Statistics,
}

/// The methods of these names, each once.
///
/// # Errors
/// [`StudyError::Input`] with the known names.
pub fn find(names: &[String]) -> Result<Vec<MethodRef>, StudyError> {
    let mut found = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if name == ALL {
            let alone = |method: &MethodRef| method.passage_model().is_none() && !method.asks_judge();
            found.extend(methods::all().filter(|method| method.name() != RETRIEVER && alone(method)));
        } else if ![GIVEN, BM25].contains(&name) {
            found.push(methods::find(name).ok_or_else(|| {
                let known: Vec<&str> = methods::all().map(MethodRef::name).collect();
                let problem = format!("{name:?} is not a ranking method; methods are {}, {ALL}", known.join(", "));
                StudyError::Input(format!("--method: {problem}"))
            })?);
        }
    }
    Ok(distinct(found))
}

impl Settings {
    /// Everything that the results depend on.
    pub(super) fn manifest(&self, models: &ModelIdentity) -> Map<String, Value> {
        let names: Vec<&str> = self.methods.iter().map(|method| method.name()).collect();
        let frames: Vec<&str> = self.frames.iter().map(|frame| frame.name()).collect();
        let examples = self.opening.examples.iter().map(|one| json!([one.title, one.passage, one.query]));
        let opening = || json!([self.opening.instruction.trim(), examples.collect::<Vec<_>>()]);
        let own = json!({
            "methods": names,
            "opening": (!self.opening.is_built_in()).then(opening),
            "frames": frames,
            "by_generator": self.by_generator,
            "latency_budget_ms": self.latency_budget_ms,
            "passage_tokens": self.passage_tokens,
            "concurrency": self.concurrency,
            "seed": self.seed,
        });
        let entailment = self.methods.iter().any(|method| method.asks_judge());
        manifest::of("compare", models, Uses { methods: Some(self.methods.clone()), entailment }, own)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn settings(method: &str) -> Settings {
        Settings {
            methods: find(&[method.to_owned()]).unwrap(),
            beside: false,
            opening: PromptPrefix::default(),
            frames: Vec::new(),
            by_generator: false,
            reranker: None,
            passage_tokens: None,
            latency_budget_ms: None,
            concurrency: 1,
            seed: 0,
            threshold: 0.5,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn a_method_that_asks_the_entailment_model_binds_the_results_to_it() {
        let entailment = |method: &str| {
            settings(method).manifest(&ModelIdentity::scripted("the judge"))["entailment_sha256"].clone()
        };
        assert_eq!((entailment("semantic-utility"), entailment("moi")), (json!("the judge"), Value::Null));
    }
}
