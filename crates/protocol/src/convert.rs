//! Conversions between messages and engine types: reranking.

use super::convert_fit::{domain, paper_objective, report_diagnostics};
use super::convert_parts::{
    given, known, narrow, passages, passages_to_wire, truncation, truncation_to_wire, usage, wide,
};
use super::{convert_belief, convert_compression, convert_context, convert_fusion, convert_opening, v1};
use engine::methods;
use engine::types::{
    Arrangement, Basis, ContextOrder, EngineError, Ground, MethodRef, MoiOptions, MoiOutcome, RerankEvent,
    RerankRequest, Reranked, Scheme,
};
use moi::domain::Domain;
use moi::profile::Subject;

/// Finds a method by the name of its enum value: METHOD_QUERY_GENERATION stands for `query-generation`. `None` if unspecified.
fn method(wire: i32) -> Result<Option<MethodRef>, EngineError> {
    let wire: v1::Method = known("method", wire)?;
    if wire == v1::Method::Unspecified {
        return Ok(None);
    }
    let name = wire.as_str_name().trim_start_matches("METHOD_").to_lowercase().replace('_', "-");
    let unknown = || EngineError::invalid("method", format!("{name} is not supported"));
    methods::find(&name).map(Some).ok_or_else(unknown)
}

fn method_to_wire(method: MethodRef) -> v1::Method {
    let name = format!("METHOD_{}", method.name().to_uppercase().replace('-', "_"));
    v1::Method::from_str_name(&name).unwrap_or_default()
}

pub fn request(wire: v1::RerankRequest) -> Result<RerankRequest, EngineError> {
    let method = method(wire.method)?;
    let (truncate, passage_tokens) = truncation(wire.truncation)?;
    Ok(RerankRequest {
        query: wire.query,
        passages: passages(wire.passages),
        method,
        scorer: wire.scorer,
        moi: moi(wire.moi.unwrap_or_default())?,
        fusion: convert_fusion::options(wire.fusion)?,
        only_helpful: wire.only_helpful,
        token_budget: usize::try_from(wire.token_budget).ok().filter(|budget| *budget > 0),
        latency_budget_ms: wire.latency_budget_ms,
        top_n: given(wire.top_n),
        score_threshold: wire.score_threshold,
        auto_k: wire.auto_k,
        truncate,
        passage_tokens,
        inline: wire.utility.map(convert_belief::inline),
        prefix: convert_opening::opening(wire.instruction, wire.examples),
        compression: convert_compression::options(wire.compression)?,
        dedup: convert_context::dedup(wire.dedup)?,
        context_order: match known("context_order", wire.context_order)? {
            v1::ContextOrder::Unspecified => ContextOrder::Auto,
            v1::ContextOrder::ByPositionBias => ContextOrder::ByPositionBias,
            v1::ContextOrder::Descending => ContextOrder::Descending,
            v1::ContextOrder::Reverse => ContextOrder::Reverse,
            v1::ContextOrder::Given => ContextOrder::Input,
        },
        ..RerankRequest::default()
    })
}

fn moi(wire: v1::MoiOptions) -> Result<MoiOptions, EngineError> {
    let scheme = match known("moi.design", wire.design)? {
        v1::Design::Unspecified => None,
        v1::Design::Random => Some(Scheme::Random),
        v1::Design::Cyclic => Some(Scheme::Cyclic),
        v1::Design::Latin => Some(Scheme::Latin),
        v1::Design::Trie => Some(Scheme::Trie),
        v1::Design::Pruned => Some(Scheme::Pruned),
        v1::Design::Prefix => Some(Scheme::Prefix),
        v1::Design::Adaptive => Some(Scheme::Adaptive),
    };
    let fit_budget = match known("moi.budget_policy", wire.budget_policy)? {
        v1::BudgetPolicy::Unspecified | v1::BudgetPolicy::Refuse => false,
        v1::BudgetPolicy::Fit => true,
    };
    let outcome = match known("moi.outcome", wire.outcome)? {
        v1::Outcome::Unspecified | v1::Outcome::QueryLikelihood => MoiOutcome::QueryLikelihood,
        v1::Outcome::Joint => MoiOutcome::Joint,
    };
    let domain = domain("moi.score_domain", wire.score_domain, wire.softmax_temperature)?;
    let paper_objective = paper_objective("moi.objective", wire.objective)?;
    Ok(MoiOptions {
        scheme,
        orders: given(wire.orders),
        depth: given(wire.depth),
        shared_columns: given(wire.shared_columns),
        copies: given(wire.copies),
        prune_length: given(wire.prune_length),
        variable_pruning: wire.variable_pruning,
        outcome,
        domain,
        paper_objective,
        sigma2: wire.sigma2,
        position_prior: Some(wire.position_prior).filter(|prior| !prior.is_empty()),
        monotone: wire.monotone,
        seed: wire.seed,
        fit_budget,
        settle_top: given(wire.settle_top),
        settle_probability: wire.settle_probability,
        rounds: given(wire.rounds),
    })
}

/// Converts a request to a message, for clients.
pub(super) fn request_to_wire(request: &RerankRequest) -> v1::RerankRequest {
    let moi = &request.moi;
    let (score_domain, softmax_temperature) = match moi.domain {
        None | Some(Domain::AsIs) => (v1::ScoreDomain::Unspecified, None),
        Some(Domain::LogWinsorZ) => (v1::ScoreDomain::LogWinsorZ, None),
        Some(Domain::LogZ) => (v1::ScoreDomain::LogZ, None),
        Some(Domain::RankNormal) => (v1::ScoreDomain::RankNormal, None),
        Some(Domain::Softmax { temperature }) => (v1::ScoreDomain::Softmax, Some(temperature)),
    };
    let outcome = match moi.outcome {
        MoiOutcome::QueryLikelihood => v1::Outcome::QueryLikelihood,
        MoiOutcome::Joint => v1::Outcome::Joint,
    };
    let objective = if moi.paper_objective { v1::Objective::Paper } else { v1::Objective::Regularised };
    v1::RerankRequest {
        query: request.query.clone(),
        passages: passages_to_wire(&request.passages),
        method: request.method.map_or(v1::Method::Unspecified, method_to_wire).into(),
        scorer: request.scorer.clone(),
        moi: Some(v1::MoiOptions {
            design: moi.scheme.map_or(v1::Design::Unspecified, design_to_wire).into(),
            orders: narrow(moi.orders.unwrap_or(0)),
            outcome: outcome.into(),
            score_domain: score_domain.into(),
            softmax_temperature,
            objective: objective.into(),
            sigma2: moi.sigma2,
            position_prior: moi.position_prior.clone().unwrap_or_default(),
            monotone: moi.monotone,
            seed: moi.seed,
            depth: narrow(moi.depth.unwrap_or(0)),
            shared_columns: narrow(moi.shared_columns.unwrap_or(0)),
            copies: narrow(moi.copies.unwrap_or(0)),
            prune_length: narrow(moi.prune_length.unwrap_or(0)),
            variable_pruning: moi.variable_pruning,
            budget_policy: if moi.fit_budget { v1::BudgetPolicy::Fit } else { v1::BudgetPolicy::Refuse }.into(),
            settle_top: narrow(moi.settle_top.unwrap_or(0)),
            settle_probability: moi.settle_probability,
            rounds: narrow(moi.rounds.unwrap_or(0)),
        }),
        top_n: narrow(request.top_n.unwrap_or(0)),
        score_threshold: request.score_threshold,
        auto_k: request.auto_k,
        return_passages: false,
        truncation: Some(truncation_to_wire(request.truncate, request.passage_tokens)),
        context_order: context_order_to_wire(request.context_order).into(),
        fusion: Some(convert_fusion::options_to_wire(&request.fusion)),
        only_helpful: request.only_helpful,
        token_budget: wide(request.token_budget.unwrap_or(0)),
        latency_budget_ms: request.latency_budget_ms,
        instruction: request.prefix.instruction.clone(),
        examples: convert_opening::examples_to_wire(&request.prefix),
        compression: request.compression.as_ref().map(convert_compression::options_to_wire),
        utility: request.inline.as_ref().map(convert_belief::inline_to_wire),
        dedup: request.dedup.map(convert_context::dedup_to_wire),
    }
}

const fn context_order_to_wire(order: ContextOrder) -> v1::ContextOrder {
    match order {
        ContextOrder::Auto => v1::ContextOrder::Unspecified,
        ContextOrder::ByPositionBias => v1::ContextOrder::ByPositionBias,
        ContextOrder::Descending => v1::ContextOrder::Descending,
        ContextOrder::Reverse => v1::ContextOrder::Reverse,
        ContextOrder::Input => v1::ContextOrder::Given,
    }
}

pub(super) fn arrangement(arranged: &Arrangement) -> v1::Arrangement {
    let (ground, basis) = match arranged.ground {
        Ground::Requested => (v1::ArrangementGround::Requested, None),
        Ground::NoProfile => (v1::ArrangementGround::NoProfile, None),
        Ground::EffectWithinError(basis) => (v1::ArrangementGround::EffectWithinError, Some(basis)),
        Ground::Profile(basis @ Basis { subject: Subject::Answer, .. }) => {
            (v1::ArrangementGround::AnswerProfile, Some(basis))
        }
        Ground::Profile(basis @ Basis { subject: Subject::Question, .. }) => {
            (v1::ArrangementGround::QuestionProfile, Some(basis))
        }
    };
    v1::Arrangement {
        original_indices: arranged.order.iter().copied().map(narrow).collect(),
        order: context_order_to_wire(arranged.applied).into(),
        ground: ground.into(),
        profile_passages: basis.map_or(0, |basis| narrow(basis.passages)),
        profile_observations: basis.map_or(0, |basis| basis.observations),
        profile_origin: basis.map_or(0, |basis| super::convert_models::origin_to_wire(basis.origin).into()),
        profile_subject: basis.map_or(0, |basis| super::convert_models::subject_to_wire(basis.subject).into()),
    }
}

const fn design_to_wire(scheme: Scheme) -> v1::Design {
    match scheme {
        Scheme::Random => v1::Design::Random,
        Scheme::Cyclic => v1::Design::Cyclic,
        Scheme::Latin => v1::Design::Latin,
        Scheme::Trie => v1::Design::Trie,
        Scheme::Pruned => v1::Design::Pruned,
        Scheme::Prefix => v1::Design::Prefix,
        Scheme::Adaptive => v1::Design::Adaptive,
    }
}

/// The request's passages, for the ids in the response. If `whole` is set, the response also includes title and text.
pub struct Sent {
    pub passages: Vec<v1::Passage>,
    pub whole: bool,
}

pub fn response(answer: Reranked, sent: &Sent) -> v1::RerankResponse {
    let results = answer.passages.iter().enumerate().map(|(rank, ranked)| {
        let passage = &sent.passages[ranked.index];
        v1::RankedPassage {
            id: passage.id.clone(),
            original_index: narrow(ranked.index),
            rank: narrow(rank),
            score: ranked.score,
            utility: ranked.utility,
            standard_error: ranked.standard_error,
            outranks_next: ranked.outranks_next,
            tokens_cut: narrow(ranked.tokens_cut),
            passage: sent.whole.then(|| passage.clone()),
            stage: convert_fusion::stage(ranked.stage).into(),
            signals: ranked.score_parts.map(convert_fusion::signals),
            duplicates: ranked.duplicates.iter().copied().map(narrow).collect(),
        }
    });
    v1::RerankResponse {
        results: results.collect(),
        position_bias: answer
            .fit
            .iter()
            .flat_map(|fit| &fit.bias)
            .cloned()
            .map(|weights| v1::PositionBias { weights })
            .collect(),
        diagnostics: answer.fit.as_ref().map(report_diagnostics),
        design: answer.fit.as_ref().map(|fit| v1::DesignReport {
            design: design_to_wire(fit.scheme).into(),
            depth: narrow(fit.depth),
            rounds: narrow(fit.rounds),
            observations: narrow(fit.observations),
            blocks: narrow(fit.blocks.0),
            shared_blocks: narrow(fit.blocks.1),
        }),
        usage: Some(usage(&answer.usage)),
        warnings: answer.warnings,
        context_order: Some(arrangement(&answer.arrangement)),
        utility: answer.inline.as_ref().map(convert_belief::inline_report),
        compression: answer.compression.map(convert_compression::report),
        fusion: answer.fusion.map(convert_fusion::report),
        none_helps: answer.none_helps,
        none_relevant: answer.none_relevant,
        score_calibrated: answer.score_calibrated,
        model: answer.model.name,
        model_sha256: answer.model.sha256,
        adapter: answer.model.adapter.as_ref().map(super::convert_models::adapter_to_wire),
    }
}

pub fn event(event: RerankEvent) -> v1::watch_rerank_response::Event {
    use v1::watch_rerank_response::Event;
    match event {
        RerankEvent::Planned(cost) => Event::Planned(v1::Planned {
            tokens: wide(cost.tokens),
            naive_tokens: wide(cost.naive_tokens),
            path_cells: wide(cost.path_cells),
        }),
        RerankEvent::Progress { done, total } => {
            Event::Progress(v1::Progress { tokens_done: wide(done), tokens_total: wide(total) })
        }
        RerankEvent::Interim { order, observations } => Event::Interim(v1::InterimOrder {
            original_indices: order.into_iter().map(narrow).collect(),
            observations: narrow(observations),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_a_wire_value_and_every_wire_value_a_method() {
        for each in methods::all() {
            assert_eq!(method(method_to_wire(each).into()).unwrap(), Some(each), "{each:?}");
        }
        let values: Vec<i32> = (0..1_000).filter(|value| v1::Method::try_from(*value).is_ok()).collect();
        assert_eq!(values.len(), methods::all().count() + 1, "one value per method, and UNSPECIFIED");
        assert!(values.into_iter().all(|value| method(value).is_ok()));
    }
}
