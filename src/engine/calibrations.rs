//! The calibrations of a served generator: fusion weights, and scores as probabilities of relevance.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fusing::{Fusion, Learnt};
use super::opening::NOT_CALIBRATED;
use super::rerank::RerankRequest;
use crate::fusion::calibration::Calibration;

/// What a caller is told whose scores are not calibrated, though the method has a calibration.
pub(super) const WITHOUT_EMBEDDING: &str = "this method's calibration was measured without this embedding model, or with other settings of it, and is not applied: \
                                           run `rerankd calibrate --ranking` again";

/// Why no calibration of its method holds for a request that leaves the fusion as it is; `None` where one may.
pub(super) fn inapplicable(request: &RerankRequest) -> Option<String> {
    if !request.opening.is_built_in() {
        return Some(NOT_CALIBRATED.to_owned());
    }
    let method = request.method();
    method.uncalibrated(request).map(|why| format!("the calibration of {0} is not applied: {0} {why}", method.name()))
}

/// The calibrations of one generator. They may change while it serves.
#[derive(Debug, Default)]
pub struct Calibrations(Mutex<Vec<Calibration>>);

/// The calibrations of a method. Which one holds is known once the embedding model was asked, or could not be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Applicable {
    /// Where no cosines are mixed in.
    pub alone: Option<Calibration>,
    /// Where they are.
    pub beside_embedding: Option<Calibration>,
}

impl Applicable {
    pub fn is_empty(&self) -> bool {
        self.alone.is_none() && self.beside_embedding.is_none()
    }

    /// The model's shares in the fusion.
    pub fn learnt(&self) -> Learnt {
        let weight = |calibration: &Option<Calibration>| Some(calibration.as_ref()?.mix?.weight);
        Learnt { alone: weight(&self.alone), beside_embedding: weight(&self.beside_embedding) }
    }
}

impl Calibrations {
    /// Replaces all of them. True where the new ones differ.
    pub fn replace(&self, calibrations: Vec<Calibration>) -> bool {
        let mut held = self.lock();
        let differ = *held != calibrations;
        *held = calibrations;
        differ
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Calibration> {
        self.lock().clone()
    }

    /// The calibrations that apply to a request. None do where the request sets the fusion itself: scores were calibrated for
    /// another mix. `embedding` is what the cosines that the method mixes in belong to: a SHA-256.
    pub(super) fn of(&self, request: &RerankRequest, embedding: Option<&str>) -> Applicable {
        if !request.fusion.is_default() {
            return Applicable::default();
        }
        let (method, (source, _)) = (request.method(), Fusion::source(request));
        let all = self.lock();
        let of = |embedding: Option<&str>| {
            let applies = |calibration: &&Calibration| {
                calibration.method == method.name()
                    && calibration.mix.is_none_or(|mix| mix.source == source)
                    && calibration.embedding.as_deref() == embedding
            };
            all.iter().find(applies).cloned()
        };
        Applicable { alone: of(None), beside_embedding: embedding.and_then(|sha256| of(Some(sha256))) }
    }

    /// Why [`Self::of`] has none for a request that leaves prompts and fusion as they are, in the words of a refusal.
    pub(super) fn why_none(&self, request: &RerankRequest, embedding: Option<&str>) -> String {
        let (method, (source, _)) = (request.method(), Fusion::source(request));
        let name = method.name();
        if method.beside().is_some() || method.asks_judge() {
            return format!("{name} cannot be calibrated: its scores depend on a model beside the generator");
        }
        let all = self.lock();
        let own: Vec<&Calibration> = all.iter().filter(|calibration| calibration.method == name).collect();
        let Some(first) = own.first() else {
            return format!(
                "{name} is not calibrated for this generator and frame of prompts: run `rerankd calibrate --ranking`"
            );
        };
        let of_source = |calibration: &&Calibration| calibration.mix.is_none_or(|mix| mix.source == source);
        if !own.iter().any(of_source) {
            let with = first.mix.map_or("no scores", |mix| mix.source.name());
            return format!(
                "{name} is calibrated for lists with {with}, and for this list {} is mixed in",
                source.name()
            );
        }
        let asked = if embedding.is_some() { "another one, or that one with other settings, is" } else { "none is" };
        format!("{name} is calibrated beside an embedding model only, and {asked} configured")
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Calibration>> {
        // A panic cannot leave the list half-changed, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fusing::{FusionMode, FusionOptions};
    use crate::engine::methods;
    use crate::engine::rerank::{MoiOptions, Outcome, Passage};
    use crate::fusion::calibration::{Mix, Source};
    use crate::fusion::platt::Platt;

    fn calibration(method: &str, source: Option<Source>) -> Calibration {
        Calibration {
            method: method.into(),
            mix: source.map(|source| Mix { source, weight: 0.7 }),
            embedding: None,
            score: Platt { intercept: -1.0, slope: 2.0 },
            lists: 10,
            passages: 100,
            outranks_per_nat: None,
            calibration_error: None,
        }
    }

    #[test]
    fn a_calibration_applies_to_its_method_source_and_mix_alone() {
        let calibrations = Calibrations::default();
        let cascade = calibration("cascade", Some(Source::Retriever));
        let alone = calibration("query-generation", None);
        assert!(calibrations.replace(vec![cascade.clone(), alone.clone()]));
        assert!(!calibrations.replace(vec![cascade.clone(), alone.clone()]));
        let passage = Passage { text: "x".into(), retriever_score: Some(1.0), ..Passage::default() };
        let request = RerankRequest { passages: vec![passage], ..RerankRequest::default() };
        let alone_of = |request: &RerankRequest| calibrations.of(request, None).alone;
        assert_eq!(alone_of(&request), Some(cascade.clone()));
        let own = FusionOptions { weight: Some(0.5), ..FusionOptions::default() };
        assert_eq!(alone_of(&RerankRequest { fusion: own, ..request.clone() }), None);
        let off = FusionOptions { mode: FusionMode::Off, ..FusionOptions::default() };
        assert_eq!(alone_of(&RerankRequest { fusion: off, ..request.clone() }), None);
        let mut unscored = request.clone();
        unscored.passages[0].retriever_score = None;
        assert_eq!(alone_of(&unscored), None, "BM25 in place of the retriever's scores");
        let method = methods::find("query-generation");
        assert_eq!(alone_of(&RerankRequest { method, ..unscored }), Some(alone.clone()));
        let method = methods::find("moi");
        assert_eq!(alone_of(&RerankRequest { method, ..request.clone() }), None);
        // Beside an embedding model, that of this model's file; the other one is for the case that it fails.
        let mix = Some(Mix { source: Source::Retriever, weight: 0.2 });
        let beside = Calibration { embedding: Some("ab".into()), mix, ..cascade.clone() };
        assert!(!beside.replaces(&cascade));
        calibrations.replace(vec![cascade.clone(), beside.clone(), alone]);
        let both = calibrations.of(&request, Some("ab"));
        assert_eq!(both.learnt(), Learnt { alone: Some(0.7), beside_embedding: Some(0.2) });
        assert_eq!(both, Applicable { alone: Some(cascade.clone()), beside_embedding: Some(beside) });
        assert_eq!(calibrations.of(&request, Some("cd")), Applicable { alone: Some(cascade), beside_embedding: None });
    }
    #[test]
    fn a_calibration_is_of_one_quantity() {
        let scored = |score| Passage { text: "x".into(), retriever_score: score, ..Passage::default() };
        let request = |method: &str, passages: usize| RerankRequest {
            passages: vec![scored(Some(1.0)); passages],
            method: methods::find(method),
            ..RerankRequest::default()
        };
        for method in ["cascade", "moi", "first", "retriever"] {
            assert_eq!(inapplicable(&request(method, 20)), None, "{method}");
        }
        let mut budget = request("moi", 3);
        budget.moi = MoiOptions { token_budget: Some(9), fit_budget: true, seed: 4, ..MoiOptions::default() };
        assert_eq!(inapplicable(&budget), None);
        let mut joint = request("moi", 3);
        joint.moi.outcome = Outcome::Joint;
        assert!(inapplicable(&joint).unwrap().contains("moi is calibrated with its default options"));
        // Utilities of one window are nats, those of several are ranks.
        assert!(inapplicable(&request("first", 21)).unwrap().contains("first gives ranks"));
        let mut unscored = request("retriever", 3);
        unscored.passages[1] = scored(None);
        assert!(inapplicable(&unscored).unwrap().contains("retriever needs a retriever_score"));
    }
}
