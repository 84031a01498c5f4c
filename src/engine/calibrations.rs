//! The calibrations of a served generator: fusion weights, and scores as probabilities of relevance.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fusing::Fusion;
use super::rerank::RerankRequest;
use crate::fusion::calibration::Calibration;

/// The calibrations of one generator. They may change while it serves.
#[derive(Debug, Default)]
pub struct Calibrations(Mutex<Vec<Calibration>>);

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

    /// The calibration that applies to a request. None does where the request sets the fusion itself, or another model's
    /// scores are mixed in (`signalled`): the scores were calibrated for another mix.
    pub(super) fn of(&self, request: &RerankRequest, signalled: bool) -> Option<Calibration> {
        if signalled || !request.fusion.is_default() {
            return None;
        }
        let (method, (source, _)) = (request.method(), Fusion::source(request));
        let applies = |calibration: &&Calibration| {
            calibration.method == method.name() && calibration.mix.is_none_or(|mix| mix.source == source)
        };
        self.lock().iter().find(applies).cloned()
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
    use crate::engine::rerank::Passage;
    use crate::fusion::calibration::{Mix, Source};
    use crate::fusion::platt::Platt;

    fn calibration(method: &str, source: Option<Source>) -> Calibration {
        Calibration {
            method: method.into(),
            mix: source.map(|source| Mix { source, weight: 0.7 }),
            score: Platt { intercept: -1.0, slope: 2.0 },
            lists: 10,
            passages: 100,
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
        assert_eq!(calibrations.of(&request, false), Some(cascade));
        assert_eq!(calibrations.of(&request, true), None, "another model's scores are mixed in");
        let own = FusionOptions { weight: Some(0.5), ..FusionOptions::default() };
        assert_eq!(calibrations.of(&RerankRequest { fusion: own, ..request.clone() }, false), None);
        let off = FusionOptions { mode: FusionMode::Off, ..FusionOptions::default() };
        assert_eq!(calibrations.of(&RerankRequest { fusion: off, ..request.clone() }, false), None);
        let mut unscored = request.clone();
        unscored.passages[0].retriever_score = None;
        assert_eq!(calibrations.of(&unscored, false), None, "BM25 in place of the retriever's scores");
        let method = methods::find("query-generation");
        assert_eq!(calibrations.of(&RerankRequest { method, ..unscored }, false), Some(alone));
        let method = methods::find("moi");
        assert_eq!(calibrations.of(&RerankRequest { method, ..request }, false), None);
    }
}
