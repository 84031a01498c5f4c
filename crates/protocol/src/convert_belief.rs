//! Conversions of beliefs and utilities between messages and engine types.

use super::convert_parts::{count, given, known, narrow, passages, truncation, usage};
use super::{convert_task, v1};
use engine::types::{
    Answer, BeliefReport, BeliefRequest, ContextKind, EngineError, Inline, InlineReport, MeasureOptions, SampleOptions,
    Utility, UtilityReport, UtilityRequest,
};
use numeric::sampling::Sampling;
use prefix_scheduler::model::GeneratorInfo;
use prefix_scheduler::model::entailment::EntailmentProbabilities;
use prefix_scheduler::plan::Finish;
use rag_metrics::belief::seper::Aggregate;
use rag_metrics::belief::{Estimate, Measured, Rule, Weighting};

pub(super) fn sampling(wire: Option<v1::SamplingOptions>) -> SampleOptions {
    let wire = wire.unwrap_or_default();
    SampleOptions {
        samples: given(wire.samples),
        max_tokens: given(wire.max_tokens),
        sampling: Sampling {
            temperature: wire.temperature.unwrap_or(1.0),
            top_k: given(wire.top_k).unwrap_or(0),
            top_p: wire.top_p.unwrap_or(1.0),
            min_p: wire.min_p,
        },
        stop: Some(wire.stop).filter(|stop| !stop.is_empty()),
        seed: wire.seed,
    }
}

pub(super) fn sampling_to_wire(options: &SampleOptions) -> v1::SamplingOptions {
    v1::SamplingOptions {
        samples: narrow(options.samples.unwrap_or(0)),
        max_tokens: narrow(options.max_tokens.unwrap_or(0)),
        temperature: Some(options.sampling.temperature),
        top_k: narrow(options.sampling.top_k),
        top_p: Some(options.sampling.top_p),
        min_p: options.sampling.min_p,
        stop: options.stop.clone().unwrap_or_default(),
        seed: options.seed,
    }
}

/// Converts a rule. The threshold is checked even if the rule does not use it.
pub fn rule(wire: i32, threshold: Option<f64>, field: &str) -> Result<Rule, EngineError> {
    if threshold.is_some_and(|least| !(least > 0.0 && least <= 1.0)) {
        return Err(EngineError::invalid(field.replace("rule", "threshold"), "must be above 0 and at most 1"));
    }
    Ok(match known(field, wire)? {
        v1::EquivalenceRule::Unspecified | v1::EquivalenceRule::Strict => Rule::Strict,
        v1::EquivalenceRule::Loose => Rule::Loose,
        v1::EquivalenceRule::Threshold => Rule::Threshold(threshold.unwrap_or(0.5)),
    })
}

pub(super) fn measure(wire: Option<v1::MeasureOptions>) -> Result<MeasureOptions, EngineError> {
    let wire = wire.unwrap_or_default();
    Ok(MeasureOptions {
        weighting: match known("measure.weighting", wire.weighting)? {
            v1::Weighting::Unspecified | v1::Weighting::Mean => Weighting::Mean,
            v1::Weighting::Sum => Weighting::Sum,
            v1::Weighting::Frequency => Weighting::Frequency,
        },
        rule: rule(wire.rule, wire.threshold, "measure.rule")?,
        either_direction: wire.either_direction,
        aggregate: match known("measure.aggregate", wire.aggregate)? {
            v1::ReferenceAggregate::Unspecified | v1::ReferenceAggregate::Mean => Aggregate::Mean,
            v1::ReferenceAggregate::Max => Aggregate::Max,
        },
        conditioned: !wire.unconditioned,
    })
}

pub(super) fn measure_to_wire(options: &MeasureOptions) -> v1::MeasureOptions {
    let (rule, threshold) = match options.rule {
        Rule::Strict => (v1::EquivalenceRule::Strict, None),
        Rule::Loose => (v1::EquivalenceRule::Loose, None),
        Rule::Threshold(least) => (v1::EquivalenceRule::Threshold, Some(least)),
    };
    let weighting = match options.weighting {
        Weighting::Mean => v1::Weighting::Mean,
        Weighting::Sum => v1::Weighting::Sum,
        Weighting::Frequency => v1::Weighting::Frequency,
    };
    let aggregate = match options.aggregate {
        Aggregate::Mean => v1::ReferenceAggregate::Mean,
        Aggregate::Max => v1::ReferenceAggregate::Max,
    };
    v1::MeasureOptions {
        weighting: weighting.into(),
        rule: rule.into(),
        threshold,
        either_direction: options.either_direction,
        aggregate: aggregate.into(),
        unconditioned: !options.conditioned,
    }
}

pub fn sample_request(wire: v1::SampleRequest) -> Result<BeliefRequest, EngineError> {
    let (truncate, passage_tokens) = truncation(wire.truncation)?;
    let passages = passages(wire.passages);
    Ok(BeliefRequest {
        question: wire.question,
        contexts: vec![(0..passages.len()).collect()],
        passages,
        task: convert_task::task(wire.task, wire.labels)?,
        options: sampling(wire.sampling),
        passage_tokens,
        truncate,
        token_budget: None,
        references: Vec::new(),
    })
}

/// Converts passage indices from a message.
pub(super) fn indices(subset: v1::PassageSubset) -> Vec<usize> {
    subset.indices.into_iter().map(count).collect()
}

/// Converts passage indices to a message.
pub(super) fn subset(indices: &[usize]) -> v1::PassageSubset {
    v1::PassageSubset { indices: indices.iter().copied().map(narrow).collect() }
}

pub fn utility_request(wire: v1::MeasureUtilityRequest) -> Result<UtilityRequest, EngineError> {
    let (truncate, passage_tokens) = truncation(wire.truncation)?;
    let chosen = wire.measure_each || wire.measure_prefixes || wire.measure_leave_one_out || !wire.subsets.is_empty();
    Ok(UtilityRequest {
        question: wire.question,
        passages: passages(wire.passages),
        references: wire.references,
        list: wire.measure_list || !chosen,
        each: wire.measure_each,
        prefixes: wire.measure_prefixes,
        leave_one_out: wire.measure_leave_one_out,
        subsets: wire.subsets.into_iter().map(indices).collect(),
        score_references: wire.score_references,
        task: convert_task::task(wire.task, wire.labels)?,
        sampling: sampling(wire.sampling),
        measure: measure(wire.measure)?,
        passage_tokens,
        truncate,
        token_budget: usize::try_from(wire.token_budget).ok().filter(|budget| *budget > 0),
        pair_budget: None,
    })
}

/// Converts a request to a message, for clients.
pub(super) fn utility_request_to_wire(request: &UtilityRequest, return_answers: bool) -> v1::MeasureUtilityRequest {
    v1::MeasureUtilityRequest {
        question: request.question.clone(),
        passages: super::convert_parts::passages_to_wire(&request.passages),
        references: request.references.clone(),
        measure_list: request.list,
        measure_each: request.each,
        measure_prefixes: request.prefixes,
        measure_leave_one_out: request.leave_one_out,
        subsets: request.subsets.iter().map(|indices| subset(indices)).collect(),
        sampling: Some(sampling_to_wire(&request.sampling)),
        measure: Some(measure_to_wire(&request.measure)),
        return_answers,
        truncation: Some(super::convert_parts::truncation_to_wire(request.truncate, request.passage_tokens)),
        token_budget: super::convert_parts::wide(request.token_budget.unwrap_or(0)),
        task: convert_task::kind_to_wire(request.task.kind).into(),
        labels: request.task.labels.clone(),
        score_references: request.score_references,
    }
}

pub fn answer(answer: &Answer) -> v1::Answer {
    let finish = match answer.finish {
        Finish::EndOfTurn => v1::FinishReason::EndOfTurn,
        Finish::StopString => v1::FinishReason::StopString,
        Finish::Length => v1::FinishReason::Length,
    };
    v1::Answer {
        text: answer.text.clone(),
        log_likelihood: answer.likelihood().sum,
        token_log_probabilities: answer.log_probabilities.clone(),
        finish_reason: finish.into(),
    }
}

pub fn verdict(verdict: &EntailmentProbabilities) -> v1::EntailmentVerdict {
    v1::EntailmentVerdict {
        entailment: verdict.entailment,
        neutral: verdict.neutral,
        contradiction: verdict.contradiction,
    }
}

const fn measured(measured: Measured) -> v1::Measured {
    v1::Measured { value: measured.value, standard_error: measured.standard_error }
}

fn estimate(estimate: &Estimate) -> v1::Measured {
    measured(estimate.measured())
}

/// Converts the measures of one context. The message includes the answers only if `answers` is set.
pub fn belief(report: &BeliefReport, answers: Option<&[Answer]>) -> v1::Belief {
    v1::Belief {
        seper_soft: report.seper_soft.as_ref().map(estimate),
        seper_hard: report.seper_hard.as_ref().map(estimate),
        semantic_entropy: Some(estimate(&report.semantic_entropy)),
        semantic_entropy_count: Some(estimate(&report.semantic_entropy_count)),
        semantic_entropy_corrected: report.semantic_entropy_corrected.as_ref().map(estimate),
        predictive_entropy: Some(estimate(&report.predictive_entropy)),
        perplexity: report.perplexity.as_ref().map(estimate),
        lexical_similarity: report.lexical_similarity.as_ref().map(estimate),
        cluster_of: report.clusters.of.iter().copied().map(narrow).collect(),
        founders: report.clusters.founders.iter().copied().map(narrow).collect(),
        weights: report.weights.clone(),
        empty_answers: narrow(report.empty),
        answers: answers.unwrap_or_default().iter().map(answer).collect(),
    }
}

fn utility(utility: &Utility, return_answers: bool) -> v1::Utility {
    let (kind, number) = match utility.kind {
        ContextKind::List => (v1::ContextKind::List, 0),
        ContextKind::Passage(index) => (v1::ContextKind::Passage, index),
        ContextKind::Prefix(length) => (v1::ContextKind::Prefix, length),
        ContextKind::LeaveOneOut(index) => (v1::ContextKind::Without, index),
        ContextKind::Subset(number) => (v1::ContextKind::Subset, number),
    };
    v1::Utility {
        kind: kind.into(),
        number: narrow(number),
        indices: utility.indices.iter().copied().map(narrow).collect(),
        belief: Some(belief(&utility.belief, return_answers.then_some(&utility.answers))),
        delta_seper_soft: utility.delta_soft.map(measured),
        delta_seper_hard: utility.delta_hard.map(measured),
        semantic_entropy_reduction: Some(measured(utility.semantic_entropy_reduction)),
        semantic_entropy_count_reduction: Some(measured(utility.semantic_entropy_count_reduction)),
        semantic_entropy_corrected_reduction: utility.semantic_entropy_corrected_reduction.map(measured),
        predictive_entropy_reduction: Some(measured(utility.predictive_entropy_reduction)),
        perplexity_reduction: utility.perplexity_reduction.map(measured),
        lexical_similarity_increase: utility.lexical_similarity_increase.map(measured),
        reference_log_likelihoods: utility.references.clone(),
        label_probabilities: convert_task::probabilities(&utility.labels),
    }
}

pub fn utility_response(
    report: &UtilityReport,
    return_answers: bool,
    model: &GeneratorInfo,
) -> v1::MeasureUtilityResponse {
    v1::MeasureUtilityResponse {
        without_context: Some(belief(&report.context_free, return_answers.then_some(&report.context_free_answers))),
        utilities: report.utilities.iter().map(|one| utility(one, return_answers)).collect(),
        usage: Some(usage(&report.usage)),
        judged_pairs: narrow(report.judged_pairs),
        warnings: report.warnings.clone(),
        model: model.name.clone(),
        model_sha256: model.sha256.clone(),
        adapter: model.adapter.as_ref().map(super::convert_models::adapter_to_wire),
        reference_log_likelihoods_without_context: report.context_free_references.clone(),
        label_probabilities_without_context: convert_task::probabilities(&report.context_free_labels),
        task: convert_task::kind_to_wire(report.task).into(),
    }
}

pub(super) fn inline(wire: v1::InlineUtility) -> Inline {
    let (samples, max_tokens) = (given(wire.samples), given(wire.max_tokens));
    let sampling = SampleOptions { samples, max_tokens, seed: wire.seed, ..SampleOptions::default() };
    Inline { references: wire.references, sampling }
}

pub(super) fn inline_to_wire(inline: &Inline) -> v1::InlineUtility {
    v1::InlineUtility {
        references: inline.references.clone(),
        samples: narrow(inline.sampling.samples.unwrap_or(0)),
        max_tokens: narrow(inline.sampling.max_tokens.unwrap_or(0)),
        seed: inline.sampling.seed,
    }
}

pub(super) fn inline_report(report: &InlineReport) -> v1::InlineUtilityReport {
    let order = |utility: &Utility| v1::OrderUtility {
        original_indices: utility.indices.iter().copied().map(narrow).collect(),
        delta_seper_soft: utility.delta_soft.map(|delta| delta.value),
        delta_seper_soft_error: utility.delta_soft.and_then(|delta| delta.standard_error),
        delta_seper_hard: utility.delta_hard.map(|delta| delta.value),
        semantic_entropy_reduction: utility.semantic_entropy_reduction.value,
    };
    v1::InlineUtilityReport {
        given: Some(order(&report.input)),
        arranged: Some(order(&report.arranged)),
        seper_without: report.without.map(|without| without.value),
        judged_pairs: narrow(report.judged_pairs),
    }
}
