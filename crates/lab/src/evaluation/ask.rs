//! Evaluates one question: its lists are reranked, then labelled and scored.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Plan;
use super::data::{List, Query};
use super::line::{Line, Ranked};
use super::methods::{GIVEN, Ranker};
use super::plan::CITATION_SCORES;
use crate::study::backend::{Backend, Refusal};
use crate::study::{Answered, StudyError};
use engine::citations::CitationRequest;
use engine::types::{Annotator, EvaluateRequest};
use engine::types::{Passage, RerankRequest};
use protocol::v1;
use rag_metrics::citation::statements;
use rag_metrics::rank::Grading;
use serde_json::{Map, json};

pub(super) async fn evaluate(plan: &Plan, backend: &Backend, query: &Query) -> Result<Answered<Line>, Refusal> {
    if let Some(fault) = &query.fault {
        return Err(Refusal::Question(fault.clone()));
    }
    if query.provenance.is_none() && plan.annotators == [Annotator::Provenance] {
        return Err(Refusal::Question("has no judgements, and provenance is the only annotator".to_owned()));
    }
    if query.passages.is_empty() {
        return Err(Refusal::Question("has no passages".to_owned()));
    }
    if plan.settings.answers_only {
        return answers(plan, backend, query).await;
    }
    let mut systems = Vec::with_capacity(plan.systems.len());
    for (list, ranker) in ranked_lists(plan, query) {
        systems.push(rank(plan, backend, query, (list, ranker)).await?);
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
    let line = Line {
        passages: query.passages.iter().map(|passage| passage.id.clone()).collect(),
        systems: plan.systems.iter().cloned().zip(systems).collect(),
        labels: answer.labels.iter().map(|labels| (name(labels.annotator), labels.labels.clone())).collect(),
        passage_answers: answer.passage_answers.iter().map(|answer| answer.text.clone()).collect(),
        // Cached tokens count, because another server, or the first system to ask, would have to evaluate them.
        tokens: usage.tokens + usage.cached_tokens,
        naive_tokens: usage.naive_tokens,
        judged_pairs: answer.judged_pairs,
        warnings: answer.warnings,
    };
    Ok(line.into())
}

/// The lists of a question with every ranker, in the order of the plan's systems.
fn ranked_lists<'a>(plan: &'a Plan, query: &'a Query) -> impl Iterator<Item = (&'a List, &'a Ranker)> {
    query.lists.iter().flat_map(|list| plan.settings.rankers.iter().map(move |ranker| (list, ranker)))
}

/// Answers from the whole context of each system, one system after the other.
async fn answers(plan: &Plan, backend: &Backend, query: &Query) -> Result<Answered<Line>, Refusal> {
    let passages = query.passages.iter().map(|passage| passage.id.clone()).collect();
    let mut line = Line { passages, ..Line::default() };
    let mut times = Map::new();
    for ((list, ranker), system) in ranked_lists(plan, query).zip(&plan.systems) {
        let started = Instant::now();
        let mut ranked = rank(plan, backend, query, (list, ranker)).await?;
        let seconds = answer(plan, backend, query, (&mut line, &mut ranked), started).await?;
        times.insert(system.clone(), json!(seconds));
        line.systems.insert(system.clone(), ranked);
    }
    Ok(Answered { value: line, times: times.into() })
}

/// Answers from one system's context. Returns the seconds from `started` to the greedy answer. Samples and citations are
/// measured after it, so that they count in neither its seconds nor its tokens.
async fn answer(
    plan: &Plan,
    backend: &Backend,
    query: &Query,
    (line, ranked): (&mut Line, &mut Ranked),
    started: Instant,
) -> Result<f64, Refusal> {
    let context: Vec<Passage> = ranked.context.iter().map(|index| query.passages[*index].clone()).collect();
    let (believed, mut read): (Vec<Annotator>, Vec<Annotator>) = plan.annotators.iter().partition(|a| a.is_belief());
    if read.is_empty() {
        // There is always an answer, for its cost and its citations.
        read.push(Annotator::TokenF1);
    }
    let mut seconds = None;
    for annotators in [read, believed].into_iter().filter(|annotators| !annotators.is_empty()) {
        let request = EvaluateRequest {
            question: query.question.clone(),
            // A request needs passages, which an empty ranking does not read.
            passages: if context.is_empty() { query.passages.clone() } else { context.clone() },
            references: query.references.clone(),
            rankings: vec![(0..context.len()).collect()],
            annotators,
            ..plan.request()
        };
        let answer = backend.client.evaluate(&request, true).await?;
        let usage = answer.usage.unwrap_or_default();
        if let Some(scores) = answer.rankings.first() {
            let values = request.annotators.iter().zip(&scores.scores);
            let values = values.filter(|(annotator, _)| plan.annotators.contains(annotator));
            let values = values.filter_map(|(annotator, one)| Some((annotator.name().to_owned(), one.end_to_end?)));
            ranked.end_to_end.extend(values);
            if seconds.is_none() {
                ranked.answer = scores.answer.as_ref().map(|answer| answer.text.clone());
                ranked.answer_tokens = usage.tokens + usage.cached_tokens;
            }
        }
        seconds = seconds.or_else(|| Some(started.elapsed().as_secs_f64()));
        line.tokens += usage.tokens + usage.cached_tokens;
        line.naive_tokens += usage.naive_tokens;
        line.judged_pairs += answer.judged_pairs;
        line.warnings.extend(answer.warnings);
    }
    let text = ranked.answer.clone().unwrap_or_default();
    if !plan.checks_citations() {
        return Ok(seconds.unwrap_or_default());
    }
    // An answer without a statement or without passages has no citations to check, and both scores are 0.
    let mut scores = [0.0; 2];
    if !context.is_empty() && !statements(&text).is_empty() {
        // ALCE judges statements without the question.
        let request = CitationRequest { answer: text, passages: context, ..CitationRequest::default() };
        let checked = backend.client.check_citations(&request).await?;
        // As in ALCE's program, an answer without citations has precision 0.
        scores = [checked.recall, checked.precision.unwrap_or(0.0)];
        line.judged_pairs += checked.judged_pairs;
        line.warnings.extend(checked.warnings);
    }
    ranked.end_to_end.extend(CITATION_SCORES.map(str::to_owned).into_iter().zip(scores));
    Ok(seconds.unwrap_or_default())
}

/// Ranks one list of a question.
async fn rank(
    plan: &Plan,
    backend: &Backend,
    query: &Query,
    (list, ranker): (&List, &Ranker),
) -> Result<Ranked, Refusal> {
    let Some(method) = ranker.0.filter(|_| !list.passages.is_empty()) else {
        let taken = plan.settings.top_n.unwrap_or(usize::MAX);
        let (ranking, context_order) =
            (list.passages.iter().take(taken).copied().collect::<Vec<_>>(), GIVEN.to_owned());
        return Ok(Ranked { context: ranking.clone(), ranking, context_order, ..Ranked::default() });
    };
    let scored = |(&index, &retriever_score): (&usize, &Option<f64>)| Passage {
        retriever_score,
        ..query.passages[index].clone()
    };
    let request = RerankRequest {
        query: query.question.clone(),
        passages: list.passages.iter().zip(&list.scores).map(scored).collect(),
        method: Some(method),
        top_n: plan.settings.top_n,
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
