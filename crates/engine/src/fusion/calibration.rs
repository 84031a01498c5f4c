//! Calibration of a ranking method on labelled lists: the weight of its fusion, and its scores as probabilities.

use crate::types::Source;
use serde::{Deserialize, Serialize};

use super::platt::Platt;

/// The mix that a method's scores were calibrated for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// The other side.
    pub source: Source,
    /// The model's share, in [0, 1].
    pub weight: f64,
    /// The share of an embedding model's cosines in the other side, in [0, 1]; `None` if none are mixed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<f64>,
}

/// The calibration of one method, with one other side of its fusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Name of the method.
    pub method: String,
    /// The fusion; `None` for a method that does not fuse by itself.
    pub mix: Option<Mix>,
    /// Identity of the embedding model whose cosines are mixed in: SHA-256 of its file, and of its prefixes and
    /// length if they are not the defaults. `None` without cosines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<String>,
    /// Identity of the method's reranker or embedding model, as for `embedding`. `None` for a method that asks the
    /// generator, or no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Probability of relevance by the logit of the uncalibrated score.
    pub score: Platt,
    /// Log-odds, per nat between two neighbours' values, that the higher one is the relevant one; at least 0.
    /// `None` for the built-in slope ([`certainty`]), and for a method whose `outranks_next` does not follow from
    /// such a difference.
    ///
    /// [`certainty`]: super::certainty
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outranks_per_nat: Option<f64>,
    /// Number of labelled lists.
    pub lists: usize,
    /// Their passages.
    pub passages: usize,
    /// Expected calibration error on the half of the lists that the fit did not use; `None` if there are too few
    /// lists.
    pub calibration_error: Option<f64>,
}

impl Calibration {
    /// True if both have the same method and other side, so that this one replaces `other`.
    #[must_use]
    pub fn replaces(&self, other: &Self) -> bool {
        self.method == other.method
            && self.mix.map(|mix| mix.source) == other.mix.map(|mix| mix.source)
            && self.embedding == other.embedding
            && self.model == other.model
    }

    /// Readable name of the retriever's side of the fusion, or of the model that scored.
    #[must_use]
    pub fn fused_with(&self) -> String {
        if let Some(model) = &self.model {
            return format!("- (model {})", model.get(..8).unwrap_or(model));
        }
        let source = self.mix.map_or("-", |mix| mix.source.name());
        format!("{source}{}", if self.embedding.is_some() { " and embedding" } else { "" })
    }

    /// True if its numbers are usable.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.score.is_valid()
            && self.mix.is_none_or(|mix| {
                (0.0..=1.0).contains(&mix.weight) && mix.embedding.is_none_or(|share| (0.0..=1.0).contains(&share))
            })
            && self.outranks_per_nat.is_none_or(|slope| slope.is_finite() && slope >= 0.0)
    }
}
