//! Fusion for methods that do not fuse, and when scores are meaningless.

use crate::fusion::mixture::Fusion;
use crate::methods::Scored;
use crate::types::{EngineError, FusionMode, RerankRequest};
use numeric::lowered;

/// True if the retriever's scores are to be mixed into a ranking whose method did not fuse.
pub(super) fn mixes(request: &RerankRequest, scored: &Scored) -> bool {
    asks_mix(request) && scored.fusion.is_none()
}

/// True if a request asks to mix any method's utilities.
pub(super) const fn asks_mix(request: &RerankRequest) -> bool {
    matches!(request.fusion.mode, FusionMode::On | FusionMode::Bm25)
}

/// True if a method that asks a model had no passage evaluated: the generator had no time, or the model cannot read
/// the texts. Its values are then meaningless.
pub(super) fn is_unread(request: &RerankRequest, scored: &Scored) -> bool {
    let method = request.method();
    (method.asks_generator() || method.passage_model().is_some()) && !scored.is_measured()
}

/// Mixes the retriever's scores into a ranking. Blocking: BM25 reads all passages.
pub(super) fn mix(request: &RerankRequest, mut scored: Scored) -> Scored {
    let fusion = Fusion::of(request);
    // Utilities by order of choice need not descend: a later passage may have gained more.
    let chosen = lowered(&scored.utilities, &scored.ranking);
    let (values, report) = fusion.values(&chosen, scored.has_zero, scored.unit);
    // Stable: ties keep the method's order.
    scored.ranking.sort_by(|&left, &right| values[right].total_cmp(&values[left]));
    scored.score_parts = fusion.score_parts(&chosen, scored.has_zero, scored.unit);
    // A method's own probabilities hold for its own order.
    scored.outranks_next = None;
    scored.values = Some(values);
    scored.fusion = Some(report);
    scored.warnings.extend(fusion.warning);
    scored
}

/// The error for `auto_k` without calibrated scores. `why` gives the reason for a request that sets neither prompts
/// nor fusion.
pub(super) fn not_calibrated(request: &RerankRequest, why: impl FnOnce() -> String) -> EngineError {
    let why = if !request.prefix.is_built_in() {
        "a request with an instruction or examples has no calibration".to_owned()
    } else if !request.fusion.is_left_to(request.method()) {
        "a request that sets the fusion has no calibration".to_owned()
    } else if let Some(why) = request.method().uncalibrated(request) {
        format!("{} {why}", request.method().name())
    } else {
        why()
    };
    EngineError::Precondition(format!("auto_k needs scores that are probabilities of relevance: {why}"))
}
