//! Evaluates one question: its lists are reranked, then labelled and scored.

use std::collections::BTreeMap;

use super::Plan;
use super::data::{List, Query};
use super::line::{Line, Ranked};
use super::methods::GIVEN;
use crate::study::StudyError;
use crate::study::backend::{Backend, Refusal};
use engine::types::MethodRef;
use engine::types::{Annotator, EvaluateRequest};
use engine::types::{Passage, RerankRequest};
use protocol::v1;
use rag_metrics::rank::Grading;

pub(super) async fn evaluate(plan: &Plan, backend: &Backend, query: &Query) -> Result<Line, Refusal> {
    if let Some(fault) = &query.fault {
        return Err(Refusal::Question(fault.clone()));
    }
    if query.provenance.is_none() && plan.annotators == [Annotator::Provenance] {
        return Err(Refusal::Question("has no judgements, and provenance is the only annotator".to_owned()));
    }
    let settings = &plan.settings;
    let mut systems = Vec::with_capacity(plan.systems.len());
    for list in &query.lists {
        for ranker in &settings.rankers {
            systems.push(match ranker.0 {
                Some(method) if !list.passages.is_empty() => rerank(plan, backend, query, (list, method)).await?,
                _ => Ranked {
                    ranking: list.passages.clone(),
                    context: list.passages.clone(),
                    context_order: GIVEN.to_owned(),
                    ..Ranked::default()
                },
            });
        }
    }
    if query.passages.is_empty() {
        return Err(Refusal::Question("has no passages".to_owned()));
    }
    // Systems with the same ranking and context are scored once. Without end-to-end answers contexts do not matter.
    let key = |system: &Ranked| {
        let context = if plan.end_to_end { &system.context } else { &system.ranking };
        (system.ranking.clone(), context.clone())
    };
    let mut distinct: Vec<(Vec<usize>, Vec<usize>)> = systems.iter().map(key).collect();
    distinct.sort();
    distinct.dedup();
    let (rankings, contexts) = distinct.iter().cloned().unzip();
    let mut request = EvaluateRequest {
        question: query.question.clone(),
        passages: query.passages.clone(),
        references: query.references.clone(),
        provenance: query.provenance.clone().unwrap_or_default(),
        rankings,
        contexts,
        ..plan.request()
    };
    if query.provenance.is_none() && plan.annotators.contains(&Annotator::Provenance) {
        // Without judgements the labels of its passages are unknown, not irrelevant. The threshold only applies to
        // judgements.
        request.annotators.retain(|annotator| *annotator != Annotator::Provenance);
        request.threshold = Grading::ERAG.threshold;
    }
    let answer = backend.client.evaluate(&request, true).await?;
    let names: BTreeMap<i32, &str> =
        request.annotators.iter().zip(&answer.labels).map(|(ours, wire)| (wire.annotator, ours.name())).collect();
    let name = |wire: i32| names.get(&wire).copied().unwrap_or_default().to_owned();
    let values = |scores: &v1::AnnotatorScores| {
        let values = scores.metrics.iter().map(|metric| (metric.metric.clone(), metric.value));
        (name(scores.annotator), values.collect::<BTreeMap<_, _>>())
    };
    for system in &mut systems {
        let scores = distinct.binary_search(&key(system)).ok().and_then(|at| answer.rankings.get(at));
        let all = || scores.iter().flat_map(|scores| &scores.scores);
        system.metrics = all().map(values).collect();
        system.end_to_end = all().filter_map(|one| Some((name(one.annotator), one.end_to_end?))).collect();
        system.answer = scores.and_then(|scores| scores.answer.as_ref()).map(|answer| answer.text.clone());
    }
    let usage = answer.usage.unwrap_or_default();
    Ok(Line {
        passages: query.passages.iter().map(|passage| passage.id.clone()).collect(),
        systems: plan.systems.iter().cloned().zip(systems).collect(),
        labels: answer.labels.iter().map(|labels| (name(labels.annotator), labels.labels.clone())).collect(),
        passage_answers: answer.passage_answers.iter().map(|answer| answer.text.clone()).collect(),
        // Cached tokens count, because another server, or the first system to ask, would have to evaluate them.
        tokens: usage.tokens + usage.cached_tokens,
        naive_tokens: usage.naive_tokens,
        judged_pairs: answer.judged_pairs,
        warnings: answer.warnings,
    })
}

/// Reranks one list of a question.
async fn rerank(
    plan: &Plan,
    backend: &Backend,
    query: &Query,
    (list, method): (&List, MethodRef),
) -> Result<Ranked, Refusal> {
    let scored = |(&index, &retriever_score): (&usize, &Option<f64>)| Passage {
        retriever_score,
        ..query.passages[index].clone()
    };
    let request = RerankRequest {
        query: query.question.clone(),
        passages: list.passages.iter().zip(&list.scores).map(scored).collect(),
        method: Some(method),
        passage_tokens: plan.settings.passage_tokens,
        ..RerankRequest::default()
    };
    let answer = backend.client.rerank(&request).await?;
    let index = |of_list: &u32| list.passages.get(usize::try_from(*of_list).ok()?).copied();
    let results = answer.results.iter().map(|result| &result.original_index);
    let missing = || StudyError::Other(anyhow::anyhow!("the rerank response has no context order"));
    let arranged = answer.context_order.as_ref().ok_or_else(|| Refusal::Fatal(missing()))?;
    Ok(Ranked {
        ranking: results.filter_map(index).collect(),
        context: arranged.original_indices.iter().filter_map(index).collect(),
        context_order: order_name(arranged.order()),
        position_bias: answer.position_bias.into_iter().next_back().map(|bias| bias.weights).unwrap_or_default(),
        rerank_tokens: answer.usage.map_or(0, |usage| usage.tokens + usage.cached_tokens),
        warnings: answer.warnings,
        ..Ranked::default()
    })
}

/// `CONTEXT_ORDER_BY_POSITION_BIAS` as "by position bias".
fn order_name(order: v1::ContextOrder) -> String {
    order.as_str_name().trim_start_matches("CONTEXT_ORDER_").to_lowercase().replace('_', " ")
}
