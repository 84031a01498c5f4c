//! The line of one question in the results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::study::Record;

/// The results of a question. They do not depend on the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Ids of the passages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<String>,
    /// Labels of the passages, by annotator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<f64>>,
    /// The rankings, by system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub systems: BTreeMap<String, Ranked>,
    /// The greedy answer from each single passage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passage_answers: Vec<String>,
    /// Tokens of the generator for the labels and the end-to-end answers, including cached ones.
    #[serde(default)]
    pub tokens: u64,
    /// Tokens of the same prompts without sharing.
    #[serde(default)]
    pub naive_tokens: u64,
    /// Pairs that the entailment model judged.
    #[serde(default)]
    pub judged_pairs: u32,
    /// Warnings of the evaluation, such as passages that were cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Record for Line {}

/// One system's ranking of a question's passages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranked {
    /// Indices of the passages, best first.
    pub ranking: Vec<usize>,
    /// Metrics over the labels, by annotator; null if undefined.
    pub metrics: BTreeMap<String, BTreeMap<String, Option<f64>>>,
    /// The passages in the order of the prompt of the end-to-end answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<usize>,
    /// Origin of that order: "given" is the order of the data; other names come from the rerank response.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context_order: String,
    /// Scores of the answer from the context, by annotator, and of its citations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub end_to_end: BTreeMap<String, f64>,
    /// The answer from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Tokens of the generator for the greedy answer, including cached ones, if each system was asked by itself.
    #[serde(default)]
    pub answer_tokens: u64,
    /// Fitted position weights of the longest prompts; only MOI fits them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub position_bias: Vec<f64>,
    /// Tokens of the generator for the ranking, including cached ones.
    #[serde(default)]
    pub rerank_tokens: u64,
    /// Warnings of the ranking, such as an unavailable model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Ranked {
    /// A metric over the labels of an annotator, or without a metric the annotator's score of the answer.
    pub fn number(&self, annotator: &str, metric: Option<&str>) -> Option<f64> {
        match metric {
            Some(metric) => self.metrics.get(annotator)?.get(metric).copied().flatten(),
            None => self.end_to_end.get(annotator).copied(),
        }
    }

    /// Tokens of the generator for ranking and answer, including cached ones.
    pub const fn tokens(&self) -> u64 {
        self.rerank_tokens + self.answer_tokens
    }
}
