//! One question: its lists are reranked, then labelled and scored.

use std::collections::BTreeMap;

use super::Plan;
use super::data::{List, Query};
use super::line::{Line, Ranked};
use super::methods::GIVEN;
use engine::evaluate::{Annotator, EvaluateRequest};
use engine::methods::MethodRef;
use engine::rerank::{Passage, RerankRequest};
use protocol::backend::{Backend, BackendError, Refusal};
use protocol::v1;
use rag_metrics::rank::Grading;

/// One system's ranking of a question's passages, by their indices.
#[derive(Default)]
struct SystemRanking {
    /// Best first.
    ranking: Vec<usize>,
    /// The same passages in the order of the prompt of the end-to-end answer.
    context: Vec<usize>,
    /// Where that order comes from.
    context_order: String,
    position_bias: Vec<f64>,
    tokens: u64,
    warnings: Vec<String>,
}

pub(super) async fn evaluate(plan: &Plan, backend: &Backend, query: &Query) -> Result<Line, Refusal> {
    if let Some(fault) = &query.fault {
        return Err(Refusal::Question(fault.clone()));
    }
    if query.provenance.is_none() && plan.annotators == [Annotator::Provenance] {
        return Err(Refusal::Question("has no judgements, and nothing else was asked for".to_owned()));
    }
    let settings = &plan.settings;
    let mut systems = Vec::with_capacity(plan.systems.len());
    for list in &query.lists {
        for ranker in &settings.rankers {
            systems.push(match ranker.0 {
                Some(method) if !list.passages.is_empty() => rerank(plan, backend, query, (list, method)).await?,
                _ => SystemRanking {
                    ranking: list.passages.clone(),
                    context: list.passages.clone(),
                    context_order: GIVEN.to_owned(),
                    ..SystemRanking::default()
                },
            });
        }
    }
    if query.passages.is_empty() {
        return Err(Refusal::Question("has no passages".to_owned()));
    }
    // Systems with the same ranking and context are scored once. Without end-to-end answers contexts do not matter.
    let key = |system: &SystemRanking| {
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
        // Without judgements its passages are not irrelevant but unknown. The threshold is that of judgements.
        request.annotators.retain(|annotator| *annotator != Annotator::Provenance);
        request.threshold = Grading::ERAG.threshold;
    }
    let answer = backend.evaluate(&request, true).await?;
    check_contexts(&request, &answer)?;
    let names: BTreeMap<i32, &str> =
        request.annotators.iter().zip(&answer.labels).map(|(ours, wire)| (wire.annotator, ours.name())).collect();
    let name = |wire: i32| names.get(&wire).copied().unwrap_or_default().to_owned();
    let systems = plan.systems.iter().zip(systems).map(|(name_of_system, system)| {
        let scores = distinct.binary_search(&key(&system)).ok().and_then(|at| answer.rankings.get(at));
        (name_of_system.clone(), ranked(system, scores, &name))
    });
    let usage = answer.usage.unwrap_or_default();
    let fingerprint = query.fingerprint().map_err(|error| unsuitable(&error.to_string()))?;
    Ok(Line {
        id: query.id.clone(),
        data: fingerprint,
        error: None,
        passages: query.passages.iter().map(|passage| passage.id.clone()).collect(),
        systems: systems.collect(),
        labels: answer.labels.iter().map(|labels| (name(labels.annotator), labels.labels.clone())).collect(),
        passage_answers: answer.passage_answers.iter().map(|answer| answer.text.clone()).collect(),
        // What a server had kept would have to be read elsewhere, and by another system that was asked first.
        tokens: usage.tokens + usage.cached_tokens,
        naive_tokens: usage.naive_tokens,
        judged_pairs: answer.judged_pairs,
        warnings: answer.warnings,
    })
}

fn unsuitable(problem: &str) -> Refusal {
    Refusal::Fatal(BackendError::Unsuitable(problem.to_owned()))
}

/// Reranks one list of a question.
async fn rerank(
    plan: &Plan,
    backend: &Backend,
    query: &Query,
    (list, method): (&List, MethodRef),
) -> Result<SystemRanking, Refusal> {
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
    let answer = backend.rerank(&request).await?;
    let index = |of_list: &u32| list.passages.get(usize::try_from(*of_list).ok()?).copied();
    let results = answer.results.iter().map(|result| &result.original_index);
    let missing = || unsuitable("the rerank response has no context order");
    let arranged = answer.context_order.as_ref().ok_or_else(missing)?;
    Ok(SystemRanking {
        ranking: results.filter_map(index).collect(),
        context: arranged.original_indices.iter().filter_map(index).collect(),
        context_order: order_name(arranged.order()),
        position_bias: answer.position_bias.into_iter().next_back().map(|bias| bias.weights).unwrap_or_default(),
        tokens: answer.usage.map_or(0, |usage| usage.tokens + usage.cached_tokens),
        warnings: answer.warnings,
    })
}

/// `CONTEXT_ORDER_BY_POSITION_BIAS` as "by position bias".
fn order_name(order: v1::ContextOrder) -> String {
    order.as_str_name().trim_start_matches("CONTEXT_ORDER_").to_lowercase().replace('_', " ")
}

/// Refuses an answer that was read from other contexts. A server without the field `contexts` ignores it.
fn check_contexts(request: &EvaluateRequest, answer: &v1::EvaluateRetrievalResponse) -> Result<(), Refusal> {
    let narrow =
        |context: &[usize]| context.iter().map(|&index| u32::try_from(index).ok()).collect::<Option<Vec<u32>>>();
    let same = request.contexts.len() == answer.rankings.len()
        && request
            .contexts
            .iter()
            .zip(&answer.rankings)
            .all(|(sent, scores)| narrow(sent).as_ref() == Some(&scores.context));
    if request.end_to_end && !same {
        let problem = "the server answers from the ranking, not from the context order: it is older than this program";
        return Err(unsuitable(problem));
    }
    Ok(())
}

fn ranked(system: SystemRanking, scores: Option<&v1::RankingScores>, name: &impl Fn(i32) -> String) -> Ranked {
    let all = scores.map_or(&[][..], |scores| &scores.scores);
    let values = |scores: &v1::AnnotatorScores| {
        scores.metrics.iter().map(|metric| (metric.metric.clone(), metric.value)).collect::<BTreeMap<_, _>>()
    };
    let narrow = |indices: &[usize]| indices.iter().map(|&index| u32::try_from(index).unwrap_or(u32::MAX)).collect();
    Ranked {
        ranking: narrow(&system.ranking),
        context: narrow(&system.context),
        context_order: system.context_order,
        metrics: all.iter().map(|scores| (name(scores.annotator), values(scores))).collect(),
        end_to_end: all.iter().filter_map(|scores| Some((name(scores.annotator), scores.end_to_end?))).collect(),
        answer: scores.and_then(|scores| scores.answer.as_ref()).map(|answer| answer.text.clone()),
        position_bias: system.position_bias,
        rerank_tokens: system.tokens,
        warnings: system.warnings,
    }
}
