//! The part of each score in the value of a passage.

use super::{Fusion, typical};
use crate::fusion::{Side, centre_and_spread, fuse};
use crate::types::{Scaling, ScoreParts};
use numeric::mean;

impl Fusion {
    /// The score parts of each passage. A utility that is not a number belongs to a passage that the model did not
    /// evaluate. Empty if an embedding model took part and the chosen scaling cannot separate its cosines from the
    /// retriever's scores.
    #[must_use]
    pub fn score_parts(&self, utilities: &[f64], has_zero: bool, unit: f64) -> Vec<ScoreParts> {
        let read: Vec<usize> = (0..utilities.len()).filter(|&passage| utilities[passage].is_finite()).collect();
        let of = |scores: &[f64], passages: &[usize]| passages.iter().map(|&one| scores[one]).collect::<Vec<f64>>();
        let weight = self.report.weight;
        let known = |value: f64| Some(value).filter(|value| value.is_finite());
        let scaling = self.scaling(has_zero);
        if self.parts.is_some() && scaling != Scaling::Standard {
            return Vec::new();
        }
        if let Some((embedding, source)) = &self.parts {
            // If the model evaluated none, all passages that the retriever's side compares.
            let among = if read.is_empty() { self.order()[..self.comparable].to_vec() } else { read };
            let (centre, spread) = centre_and_spread(&of(utilities, &among), Some(typical::UTILITY * unit));
            let other = centre_and_spread(&of(&self.scores, &among), Some(typical::OTHER_SIDE)).1;
            let share = |part: f64, spread: f64| if spread > 0.0 { part / spread } else { part * 0.0 };
            let (of_embedding, of_source) = (mean(&of(embedding, &among)), mean(&of(source, &among)));
            let mut score_parts = vec![ScoreParts::default(); utilities.len()];
            for passage in (0..utilities.len()).filter(|&passage| embedding[passage].is_finite()) {
                score_parts[passage] = ScoreParts {
                    model: known(weight * share(utilities[passage] - centre, spread)),
                    embedding: known((1.0 - weight) * share(embedding[passage] - of_embedding, other)),
                    source: known((1.0 - weight) * share(source[passage] - of_source, other)),
                };
            }
            return score_parts;
        }
        let (utilities_read, scores) = (of(utilities, &read), of(&self.scores, &read));
        let model = Side { scores: &utilities_read, floor: has_zero.then_some(0.0) };
        let retriever = Side { scores: &scores, floor: self.has_floor.then_some(0.0) };
        let (of_model, of_source) = (fuse(scaling, 1.0, model, retriever), fuse(scaling, 0.0, model, retriever));
        let mut score_parts = vec![ScoreParts::default(); utilities.len()];
        for (place, passage) in read.into_iter().enumerate() {
            let (model, source) = (known(weight * of_model[place]), known((1.0 - weight) * of_source[place]));
            score_parts[passage] = ScoreParts { model, embedding: None, source };
        }
        score_parts
    }
}
