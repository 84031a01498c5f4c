//! A question's line in the results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was found about a question, or why nothing was. Nothing here depends on the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// The question's id.
    pub id: String,
    /// The beginning of the SHA-256 of the question with its passages, rankings and labels.
    pub data: String,
    /// Why it could not be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Ids of the passages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<String>,
    /// Labels of the passages, by annotator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Vec<f64>>,
    /// The rankings, by system.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub systems: BTreeMap<String, Ranked>,
    /// The greedy answer from each passage alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passage_answers: Vec<String>,
    /// Tokens that the generator evaluated for the labels and the end-to-end answers.
    #[serde(default)]
    pub tokens: u64,
    /// Tokens for the same without shared beginnings.
    #[serde(default)]
    pub naive_tokens: u64,
    /// Pairs that the entailment model judged.
    #[serde(default)]
    pub judged_pairs: u32,
    /// What the generator's side had to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One system's ranking.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ranked {
    /// Indices of the passages, best first.
    pub ranking: Vec<u32>,
    /// Metrics over the labels, by annotator; null where one is not defined.
    pub metrics: BTreeMap<String, BTreeMap<String, Option<f64>>>,
    /// Scores of the answer from the whole ranking, by annotator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub end_to_end: BTreeMap<String, f64>,
    /// That answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Fitted position weights of the longest prompts, where the ranking was made by MOI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub position_bias: Vec<f64>,
    /// Tokens that making the ranking took.
    #[serde(default)]
    pub rerank_tokens: u64,
}
