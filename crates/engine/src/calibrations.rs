//! The calibrations of a served generator: shares of the mixture, and scores as probabilities of relevance.

use parking_lot::{Mutex, MutexGuard};

use crate::fusion::calibration::{Calibration, Mix};
use crate::fusion::mixture::Fusion;
use crate::types::{Learnt, RerankRequest, Shares};

/// A calibration exists but does not apply.
const NOT_CALIBRATED: &str = "this method's calibration was measured with the built-in prompt and is not applied \
                                         to a request with an instruction or examples";
/// The warning if the method's calibration does not apply without an embedding model.
pub(super) const WITHOUT_EMBEDDING: &str = "this method's calibration was measured without this embedding model or with \
                                           other settings of it, and is not applied: run `rerankd calibrate --ranking` again";

/// The warning if the method was calibrated with another cross-encoder or embedding model.
const OTHER_MODEL: &str = "this method's calibration was measured with another model beside the generator, or other settings \
                           of it, and is not applied: run `rerankd calibrate --ranking` again";

/// Why no calibration applies to a request that does not set the fusion; `None` if one may apply.
fn inapplicable(request: &RerankRequest) -> Option<String> {
    if !request.prefix.is_built_in() {
        return Some(NOT_CALIBRATED.to_owned());
    }
    let method = request.method();
    method.uncalibrated(request).map(|why| format!("the calibration of {0} is not applied: {0} {why}", method.name()))
}

/// The calibrations of one generator. They may change while it serves.
#[derive(Debug, Default)]
pub struct Calibrations(Mutex<Vec<Calibration>>);

/// The calibrations of a method. The choice between them follows the answer of the embedding model.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Applicable {
    /// Without cosines.
    pub alone: Option<Calibration>,
    /// With the cosines of the embedding model.
    pub with_embedding: Option<Calibration>,
    /// Why none of the calibrations applies.
    pub why_none: Option<&'static str>,
}

impl Applicable {
    pub fn is_empty(&self) -> bool {
        self.alone.is_none() && self.with_embedding.is_none()
    }

    /// Why a request is answered without a calibration although some exist.
    pub fn passed_over(&self, request: &RerankRequest) -> Option<String> {
        if self.is_empty() && self.why_none.is_none() {
            return None;
        }
        // Reasons that no other calibration could remove come first.
        inapplicable(request).or_else(|| self.why_none.map(str::to_owned))
    }

    /// The shares in the fusion.
    pub fn learnt(&self) -> Learnt {
        let mix = |calibration: &Option<Calibration>| calibration.as_ref()?.mix;
        let shares = |Mix { weight, embedding, .. }| Some(Shares { weight, embedding: embedding? });
        Learnt {
            alone: mix(&self.alone).map(|mix| mix.weight),
            with_embedding: mix(&self.with_embedding).and_then(shares),
        }
    }
}

/// Without cosines mixed in, and with them.
type Found = (Option<Calibration>, Option<Calibration>);

/// Why none of the calibrations applies to a request.
enum Missing {
    /// None is for its method.
    Method,
    /// None is for the source that is mixed in. Holds the mix of the first one.
    Source(Option<Mix>),
    /// All are for another reranker or embedding model, or for other settings of it.
    Model,
    /// All were measured with an embedding model: another one, or the request asks none.
    Embedding { asked: bool },
}

impl Missing {
    /// The warning for the caller; `None` if no calibration exists for requests of this kind.
    fn warning(&self) -> Option<&'static str> {
        match self {
            Self::Method | Self::Source(_) | Self::Embedding { asked: false } => None,
            Self::Model => Some(OTHER_MODEL),
            Self::Embedding { asked: true } => Some(WITHOUT_EMBEDDING),
        }
    }
}

impl Calibrations {
    /// Replaces all of them. True if the new ones differ.
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

    /// The calibrations that apply to a request. None apply if the request sets the fusion itself, because scores
    /// were calibrated for another mix. `sha256` identifies the method's reranker or embedding model, or the
    /// embedding model whose cosines it mixes in.
    pub(super) fn of(&self, request: &RerankRequest, sha256: Option<&str>) -> Applicable {
        if !request.fusion.is_left_to(request.method()) {
            return Applicable::default();
        }
        match self.find(request, sha256) {
            Ok((alone, with_embedding)) => Applicable { alone, with_embedding, why_none: None },
            Err(missing) => Applicable { why_none: missing.warning(), ..Applicable::default() },
        }
    }

    /// True if all calibrations for a request's method and list were measured with an embedding model.
    pub(super) fn only_with_embedding(&self, request: &RerankRequest) -> bool {
        request.fusion.is_left_to(request.method())
            && matches!(self.find(request, None), Err(Missing::Embedding { .. }))
    }

    /// Why [`Self::of`] finds none for a request that sets neither prompts nor fusion; the text of an error.
    pub(super) fn why_none(&self, request: &RerankRequest, sha256: Option<&str>) -> String {
        let (method, (source, _)) = (request.method(), Fusion::source(request));
        let name = method.name();
        if method.asks_judge() {
            return format!("{name} cannot be calibrated: its scores depend on the entailment model");
        }
        match self.find(request, sha256).err().unwrap_or(Missing::Method) {
            Missing::Method => {
                format!(
                    "{name} is not calibrated for this generator and frame of prompts: run `rerankd calibrate --ranking`"
                )
            }
            Missing::Source(mix) => {
                let with = mix.map_or("no scores", |mix| mix.source.name());
                let mixed = source.name();
                format!("{name} is calibrated for lists with {with}, and for this list {mixed} is mixed in")
            }
            Missing::Model => {
                format!("{name} is calibrated for another model than this one, or for other settings of it")
            }
            Missing::Embedding { asked } => {
                let asked = if asked { "another one, or that one with other settings," } else { "none" };
                format!("{name} is calibrated beside an embedding model only, and {asked} is asked for this list")
            }
        }
    }

    /// The calibrations without and with cosines mixed in, at least one of them; or why there is none.
    fn find(&self, request: &RerankRequest, sha256: Option<&str>) -> Result<Found, Missing> {
        let (method, (source, _)) = (request.method(), Fusion::source(request));
        let all = self.lock();
        let own: Vec<&Calibration> = all.iter().filter(|one| one.method == method.name()).collect();
        let first = own.first().ok_or(Missing::Method)?;
        let of_source = |one: &&Calibration| one.mix.is_none_or(|mix| mix.source == source);
        let of_list: Vec<&Calibration> = own.iter().copied().filter(of_source).collect();
        if of_list.is_empty() {
            return Err(Missing::Source(first.mix));
        }
        let (model, embedding) = if method.passage_model().is_some() { (sha256, None) } else { (None, sha256) };
        // A calibration with an embedding model does not hold without one.
        let fitting: Vec<&Calibration> =
            of_list.into_iter().filter(|one| one.embedding.is_none() || embedding.is_some()).collect();
        if fitting.is_empty() {
            return Err(Missing::Embedding { asked: false });
        }
        let of = |embedding: Option<&str>| {
            let of_models =
                |one: &&&Calibration| one.embedding.as_deref() == embedding && one.model.as_deref() == model;
            fitting.iter().find(of_models).map(|one| (*one).clone())
        };
        match (of(None), embedding.and_then(|sha256| of(Some(sha256)))) {
            (None, None) if method.passage_model().is_some() => Err(Missing::Model),
            (None, None) => Err(Missing::Embedding { asked: true }),
            found => Ok(found),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Calibration>> {
        // A panic cannot leave the list half-changed, so a poisoned lock is still good.
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::platt::Platt;
    use crate::methods;
    use crate::types::{FusionMode, FusionOptions, MoiOptions, MoiOutcome, Passage, Source};

    fn calibration(method: &str, source: Option<Source>) -> Calibration {
        Calibration {
            method: method.into(),
            mix: source.map(|source| Mix { source, weight: 0.7, embedding: None }),
            embedding: None,
            model: None,
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
        assert_eq!(alone_of(&RerankRequest { method, ..unscored.clone() }), Some(alone.clone()));
        // It mixes in no other scores.
        let off = FusionOptions { mode: FusionMode::Off, ..FusionOptions::default() };
        assert_eq!(alone_of(&RerankRequest { method, fusion: off, ..unscored }), Some(alone.clone()));
        let method = methods::find("moi");
        assert_eq!(alone_of(&RerankRequest { method, ..request.clone() }), None);
        // With an embedding model: the calibration for this model's file, and the one without, in case the model
        // fails.
        let mix = |embedding| Some(Mix { source: Source::Retriever, weight: 0.2, embedding });
        let beside = Calibration { embedding: Some("ab".into()), mix: mix(Some(0.9)), ..cascade.clone() };
        assert!(!beside.replaces(&cascade));
        calibrations.replace(vec![cascade.clone(), beside.clone(), alone]);
        let both = calibrations.of(&request, Some("ab"));
        let shares = Shares { weight: 0.2, embedding: 0.9 };
        assert_eq!(both.learnt(), Learnt { alone: Some(0.7), with_embedding: Some(shares) });
        let found = |alone, with_embedding| Applicable { alone, with_embedding, why_none: None };
        assert_eq!(both, found(Some(cascade.clone()), Some(beside)));
        assert_eq!(calibrations.of(&request, Some("cd")), found(Some(cascade), None));
    }

    #[test]
    fn a_calibration_of_a_cross_encoder_belongs_to_its_file() {
        let calibrations = Calibrations::default();
        let request = RerankRequest { method: methods::find("cross-encoder"), ..RerankRequest::default() };
        assert_eq!(calibrations.of(&request, Some("ab")), Applicable::default());
        let own = Calibration { model: Some("ab".into()), ..calibration("cross-encoder", None) };
        let other = Calibration { model: Some("cd".into()), ..own.clone() };
        assert!(!own.replaces(&other));
        calibrations.replace(vec![other.clone(), own.clone()]);
        assert_eq!(calibrations.of(&request, Some("ab")).alone, Some(own));
        calibrations.replace(vec![other]);
        let found = calibrations.of(&request, Some("ab"));
        assert_eq!((found.is_empty(), found.passed_over(&request).as_deref()), (true, Some(OTHER_MODEL)));
        let why = calibrations.why_none(&request, Some("ab"));
        assert!(why.starts_with("cross-encoder is calibrated for another model"), "{why}");
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
        budget.token_budget = Some(9);
        budget.moi = MoiOptions { fit_budget: true, seed: 4, ..MoiOptions::default() };
        assert_eq!(inapplicable(&budget), None);
        let mut joint = request("moi", 3);
        joint.moi.outcome = MoiOutcome::Joint;
        assert!(inapplicable(&joint).unwrap().contains("moi is calibrated with its default options"));
        // Utilities of one window are nats; utilities of several windows are ranks.
        assert!(inapplicable(&request("first", 21)).unwrap().contains("first gives ranks"));
        let mut unscored = request("retriever", 3);
        unscored.passages[1] = scored(None);
        assert!(inapplicable(&unscored).unwrap().contains("retriever needs a retriever_score"));
    }
}
