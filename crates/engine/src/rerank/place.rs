//! Turns the outcome of a method into results: fusion if requested, scores, threshold, count, arrangement.

use super::copies::Copies;
use super::dedup::deduplicated;
use super::driver::Driven;
use super::mixing::{asks_mix, is_unread};
use crate::fusion::calibration::Calibration;
use crate::fusion::certainty;
use crate::methods::Scored;
use crate::models::ServedGenerator;
use crate::types::{
    Arrangement, ContextOrder, DedupMode, EngineError, Ground, Ranked, RankingStage, RerankRequest, Reranked, Usage,
};
use moi::profile::Subject;
use numeric::{lowered, sigmoid};
use prefix_scheduler::call::Call;
use rag_metrics::cut::{best_cut, none_relevant};

/// A position profile of the question does not apply.
const NO_PROFILE: &str = "position profiles of the question were measured with the built-in prompt and are not \
                                     applied to a request with an instruction or examples: the context order is best first";

/// Applies threshold and count to a ranking and arranges the remaining passages for the generator. If the method is
/// calibrated, scores become probabilities of relevance. The first generator reads the arrangement, the second one
/// scored. The work ends when the call stops.
pub(super) fn place(
    call: &Call,
    (generator, scorer): (&ServedGenerator, &ServedGenerator),
    request: &RerankRequest,
    calibration: Option<&Calibration>,
    Driven { mut scored, cut }: Driven,
    (usage, copies): (Usage, &Copies),
) -> Result<Reranked, EngineError> {
    let values = lowered(scored.values.as_ref().unwrap_or(&scored.utilities), &scored.ranking);
    let unit = scored.unit;
    let score_calibrated = calibration.is_some();
    let score = |index: usize| {
        let logit = values[index] / unit;
        calibration.map_or_else(|| sigmoid(logit), |it| it.score.probability(logit))
    };
    // Without measured values no passage can be left out.
    let unread = is_unread(request, &scored);
    if request.method().outranks_by_value() && !unread {
        let values = scored.values.as_ref().unwrap_or(&scored.utilities);
        let per_nat = calibration.and_then(|it| it.outranks_per_nat).unwrap_or(certainty::PER_NAT);
        let outranks = |pair: &[usize]| certainty::outranks((values[pair[0]] - values[pair[1]]).max(0.0), per_nat);
        scored.outranks_next = Some(scored.ranking.windows(2).map(outranks).collect());
    }
    let ranked = scored.ranking.iter().enumerate().map(|(rank, &index)| Ranked {
        index,
        score: score(index),
        utility: scored.utilities[index],
        alone: scored.alone.as_ref().map_or(scored.utilities[index], |alone| alone[index]),
        standard_error: scored.standard_errors.as_ref().map(|errors| errors[index]).filter(|error| error.is_finite()),
        outranks_next: scored.outranks_next.as_ref().and_then(|next| next.get(rank).copied()),
        tokens_cut: cut.get(index).copied().unwrap_or(0),
        stage: scored.stages.get(index).copied().unwrap_or(RankingStage::Alone),
        score_parts: scored.score_parts.get(index).copied(),
        duplicates: Vec::new(),
    });
    let mut cut_at = usize::MAX;
    let probabilities: Option<Vec<f64>> =
        score_calibrated.then(|| scored.ranking.iter().map(|&index| score(index)).collect());
    let none_relevant = probabilities.as_deref().map(none_relevant);
    if let Some(probabilities) = probabilities.filter(|_| request.auto_k) {
        cut_at = best_cut(&probabilities);
    } else if request.auto_k && !unread {
        let problem =
            "auto_k had no effect: the calibration does not hold with, or without, the embedding model as it was asked";
        scored.warnings.push(problem.to_owned());
    }
    let without_effect = without_effect(request, &scored);
    scored.warnings.extend(without_effect);
    // The model's own utility shows if a passage helps. A mixed score can be above one half for a passage that the
    // retriever likes.
    let helps = |index: usize| !scored.has_zero || scored.utilities[index] > 0.0;
    let least = request.score_threshold.filter(|_| !unread).unwrap_or(0.0);
    let (mut documents, mut places): (Vec<Ranked>, Vec<usize>) = ranked
        .enumerate()
        .take(cut_at)
        .filter(|(_, passage)| passage.score >= least && (!request.only_helpful || helps(passage.index)))
        .map(|(place, passage)| (passage, place))
        .unzip();
    places.push(usize::MAX);
    for (passage, next) in documents.iter_mut().zip(places.windows(2)) {
        // Only known for neighbours of the ranking.
        passage.outranks_next = passage.outranks_next.filter(|_| next[1] == next[0].saturating_add(1));
    }
    // A cut document is cut in all of its copies.
    let mut passages = match request.dedup.filter(|dedup| dedup.mode != DedupMode::Off) {
        Some(dedup) => deduplicated(call, documents, request, copies, dedup)?,
        None => copies.ranked(documents, &scored),
    };
    passages.truncate(request.top_n.unwrap_or(usize::MAX));
    passages.last_mut().into_iter().for_each(|passage| passage.outranks_next = None);
    // The best passage is rarely below zero: passages about the same subject make a query a little likelier.
    let none_helps = none_relevant
        .map(|probability| probability >= 0.5)
        .or_else(|| scored.has_zero.then(|| !scored.ranking.iter().any(|&index| helps(index))));
    let returned: Vec<usize> = passages.iter().map(|passage| passage.index).collect();
    let arrangement = arrange(generator, request, &returned, &mut scored.warnings)?;
    let (fit, fusion, warnings) = (scored.fit, scored.fusion, scored.warnings);
    Ok(Reranked {
        passages,
        unit,
        score_calibrated,
        fit,
        fusion,
        none_helps,
        none_relevant,
        arrangement,
        inline: None,
        compression: None,
        usage,
        warnings,
        model: scorer.info.clone(),
    })
}

/// Warnings of options that had no effect.
fn without_effect(request: &RerankRequest, scored: &Scored) -> Vec<String> {
    let mut warnings = Vec::new();
    let unread = is_unread(request, scored);
    if unread && (request.auto_k || request.only_helpful || request.score_threshold.is_some()) {
        let problem = "no passage was read: score_threshold, only_helpful and auto_k had no effect";
        warnings.push(problem.to_owned());
    } else if request.only_helpful && !scored.has_zero {
        warnings.push("only_helpful has no effect: the utilities of this method have no zero".to_owned());
    }
    if !asks_mix(request) && request.method().mixed_model().is_none() && request.fusion.sets_sides() {
        let problem = "fusion.weight, scaling and background had no effect but that they turn the calibration off: this method mixes where \
                       fusion.mode is ON or BM25";
        warnings.push(problem.to_owned());
    }
    if request.fusion.embedding.is_some() && scored.fusion.is_none_or(|fusion| fusion.embedding.is_none()) {
        let problem = "fusion.embedding_weight had no effect: no cosines were mixed in. It turns the calibration off";
        warnings.push(problem.to_owned());
    }
    warnings
}

/// The passages in the order of the context.
pub(crate) fn arrange(
    generator: &ServedGenerator,
    request: &RerankRequest,
    returned: &[usize],
    warnings: &mut Vec<String>,
) -> Result<Arrangement, EngineError> {
    let (bias, order) = (&generator.position_bias, request.context_order);
    // A profile of the answer is measured with the answer prompt, which the caller's prompt prefix does not change.
    let by_question = bias.decides(returned.len(), order) == Some(Subject::Question);
    if !request.prefix.is_built_in() && by_question {
        warnings.push(NO_PROFILE.to_owned());
        let best_first = bias.arrange(returned, ContextOrder::Descending)?;
        Ok(Arrangement { ground: Ground::NoProfile, ..best_first })
    } else {
        bias.arrange(returned, order)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mixing::mix;
    use super::*;
    use crate::types::FusionMode;
    use crate::types::{FusionOptions, Passage};

    /// A was chosen first and gained 0.5; C gained 0.8 after it.
    #[test]
    fn an_order_of_choice_is_mixed_as_it_was_chosen() {
        let passage = |score| Passage { text: "x".into(), retriever_score: Some(score), ..Passage::default() };
        let mixed = |weight: f64| {
            let options = FusionOptions { mode: FusionMode::On, weight: Some(weight), ..FusionOptions::default() };
            let passages = [1.0, 3.0, 2.0].map(passage).to_vec();
            let request = RerankRequest { passages, fusion: options, ..RerankRequest::default() };
            let scored = Scored { ranking: vec![0, 2, 1], ..Scored::against_none(vec![0.5, 0.1, 0.8], 1.0) };
            mix(&request, scored).ranking
        };
        assert_eq!(mixed(1.0), [0, 2, 1]);
        assert_eq!(mixed(0.0), [1, 2, 0]);
    }
}
