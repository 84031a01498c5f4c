//! From the outcome of a method to results: fusion where the request asks for it, scores, threshold, count, arrangement.

use super::{Ranked, RerankRequest, Reranked, Usage};
use crate::engine::EngineError;
use crate::engine::fusing::{Fusion, FusionMode};
use crate::engine::methods::{Scored, Stage};
use crate::engine::models::ServedGenerator;
use crate::fusion::settled;
use crate::numeric::{descending, sigmoid};

/// The score at which a passage is no better than none.
const NO_BETTER: f64 = 0.5;

/// Mixes the retriever's scores into a ranking that its method did not mix itself.
fn mix(request: &RerankRequest, mut scored: Scored) -> Scored {
    let asked = matches!(request.fusion.mode, FusionMode::On | FusionMode::Bm25);
    if !asked || scored.fusion.is_some() {
        return scored;
    }
    let fusion = Fusion::of(request);
    let values = fusion.values(&scored.utilities, scored.has_zero);
    scored.ranking = descending(&values);
    scored.outranks_next = scored.has_zero.then(|| {
        let next = |pair: &[usize]| settled::outranks(values[pair[0]] - values[pair[1]]);
        scored.ranking.windows(2).map(next).collect()
    });
    scored.values = Some(values);
    scored.fusion = Some(fusion.report);
    scored.warnings.extend(fusion.warning);
    scored
}

/// Values that never rise from one place to the next, so that a score sorts as the ranking does. They do already where the
/// ranking is by value.
fn descending_values(values: &[f64], ranking: &[usize]) -> Vec<f64> {
    let mut lowered = values.to_vec();
    let mut least = f64::INFINITY;
    for &passage in ranking {
        least = least.min(values[passage]);
        lowered[passage] = least;
    }
    lowered
}

/// Applies threshold and count to a ranking and arranges the remaining passages for the generator.
pub(super) fn place(
    generator: &ServedGenerator,
    request: &RerankRequest,
    scored: Scored,
    cut: &[usize],
    usage: Usage,
) -> Result<Reranked, EngineError> {
    let scored = mix(request, scored);
    let values = descending_values(scored.values.as_ref().unwrap_or(&scored.utilities), &scored.ranking);
    let score = |index: usize| sigmoid(values[index] / scored.unit);
    let ranked = scored.ranking.iter().enumerate().map(|(rank, &index)| Ranked {
        index,
        score: score(index),
        utility: scored.utilities[index],
        standard_error: scored.standard_errors.as_ref().map(|errors| errors[index]).filter(|error| error.is_finite()),
        outranks_next: scored.outranks_next.as_ref().and_then(|next| next.get(rank).copied()),
        tokens_cut: cut.get(index).copied().unwrap_or(0),
        stage: scored.stages.get(index).copied().unwrap_or(Stage::Alone),
    });
    let least = request.score_threshold.unwrap_or(0.0).max(if request.only_helpful { NO_BETTER } else { 0.0 });
    // A score of exactly one half is no better than nothing.
    let helps = |passage: &Ranked| !request.only_helpful || passage.score > NO_BETTER;
    let mut passages: Vec<Ranked> = ranked
        .filter(|passage| passage.score >= least && helps(passage))
        .take(request.top_n.unwrap_or(usize::MAX))
        .collect();
    if let Some(last) = passages.last_mut() {
        // The next passage of the ranking is not among the results.
        last.outranks_next = None;
    }
    let none_helps = scored.has_zero.then(|| scored.ranking.iter().all(|&index| score(index) <= NO_BETTER));
    let returned: Vec<usize> = passages.iter().map(|passage| passage.index).collect();
    let arrangement = generator.position_bias.arrange(&returned, request.context_order)?;
    let (fit, fusion, warnings) = (scored.fit, scored.fusion, scored.warnings);
    Ok(Reranked { passages, fit, fusion, none_helps, arrangement, inline: None, usage, warnings })
}
