//! One question: its lists reranked where asked for, then labelled and scored.

use std::collections::BTreeMap;

use super::data::Query;
use super::line::{Line, Ranked};
use super::{EvaluateArgs, Task};
use crate::cli::backend::{Backend, Refusal};
use crate::engine::belief::SampleOptions;
use crate::engine::evaluate::EvaluateRequest;
use crate::engine::rerank::RerankRequest;
use crate::rpc::v1;

/// A ranking with what making it took.
struct Made {
    ranking: Vec<usize>,
    position_bias: Vec<f64>,
    tokens: u64,
}

pub(super) async fn evaluate(
    args: &EvaluateArgs,
    task: &Task,
    backend: &Backend,
    query: &Query,
) -> Result<Line, Refusal> {
    if let Some(fault) = &query.fault {
        return Err(Refusal::Question(fault.clone()));
    }
    let mut made = Vec::with_capacity(task.systems.len());
    for (_, list) in &query.rankings {
        for method in &task.methods {
            made.push(match *method {
                _ if list.is_empty() => Made { ranking: Vec::new(), position_bias: Vec::new(), tokens: 0 },
                None => Made { ranking: list.clone(), position_bias: Vec::new(), tokens: 0 },
                Some(method) => {
                    let request = RerankRequest {
                        query: query.question.clone(),
                        passages: list.iter().map(|&index| query.passages[index].clone()).collect(),
                        method,
                        passage_tokens: args.max_passage_tokens,
                        ..RerankRequest::default()
                    };
                    reranked(list, backend.rerank(&request).await?)
                }
            });
        }
    }
    if query.passages.is_empty() {
        return Err(Refusal::Question("has no passages".to_owned()));
    }
    // Equal rankings are scored once.
    let mut distinct: Vec<Vec<usize>> = made.iter().map(|made| made.ranking.clone()).collect();
    distinct.sort();
    distinct.dedup();
    let request = EvaluateRequest {
        question: query.question.clone(),
        passages: query.passages.clone(),
        references: query.references.clone(),
        annotators: task.annotators.clone(),
        provenance: query.provenance.clone().unwrap_or_default(),
        metrics: task.metrics.clone(),
        threshold: args.relevance_threshold,
        rankings: distinct.clone(),
        end_to_end: task.end_to_end,
        answer_tokens: Some(args.max_tokens),
        sampling: SampleOptions {
            samples: args.count,
            max_tokens: Some(args.max_tokens),
            seed: args.seed,
            ..SampleOptions::default()
        },
        measure: args.measure.options(),
        passage_tokens: args.max_passage_tokens,
        truncate: None,
        token_budget: None,
    };
    let answer = backend.evaluate(&request, true).await?;
    let names: BTreeMap<i32, &str> =
        request.annotators.iter().zip(&answer.labels).map(|(ours, wire)| (wire.annotator, ours.name())).collect();
    let name = |wire: i32| names.get(&wire).copied().unwrap_or_default().to_owned();
    let systems = task.systems.iter().zip(made).map(|(system, made)| {
        let scores = distinct.binary_search(&made.ranking).ok().and_then(|at| answer.rankings.get(at));
        (system.clone(), ranked(made, scores, &name))
    });
    let usage = answer.usage.unwrap_or_default();
    Ok(Line {
        id: query.id.clone(),
        data: query.fingerprint().map_err(Refusal::Fatal)?,
        error: None,
        passages: query.passages.iter().map(|passage| passage.id.clone()).collect(),
        systems: systems.collect(),
        labels: answer.labels.iter().map(|labels| (name(labels.annotator), labels.labels.clone())).collect(),
        passage_answers: answer.passage_answers.iter().map(|answer| answer.text.clone()).collect(),
        tokens: usage.tokens,
        naive_tokens: usage.naive_tokens,
        judged_pairs: answer.judged_pairs,
        warnings: answer.warnings,
    })
}

fn reranked(list: &[usize], answer: v1::RerankResponse) -> Made {
    let place = |result: &v1::RankedPassage| list.get(usize::try_from(result.original_index).ok()?).copied();
    Made {
        ranking: answer.results.iter().filter_map(place).collect(),
        position_bias: answer.position_bias.into_iter().next_back().map(|bias| bias.weights).unwrap_or_default(),
        tokens: answer.usage.map_or(0, |usage| usage.tokens),
    }
}

fn ranked(made: Made, scores: Option<&v1::RankingScores>, name: &impl Fn(i32) -> String) -> Ranked {
    let all = scores.map_or(&[][..], |scores| &scores.scores);
    let values = |scores: &v1::AnnotatorScores| {
        scores.metrics.iter().map(|metric| (metric.metric.clone(), metric.value)).collect::<BTreeMap<_, _>>()
    };
    Ranked {
        ranking: made.ranking.iter().map(|&index| u32::try_from(index).unwrap_or(u32::MAX)).collect(),
        metrics: all.iter().map(|scores| (name(scores.annotator), values(scores))).collect(),
        end_to_end: all.iter().filter_map(|scores| Some((name(scores.annotator), scores.end_to_end?))).collect(),
        answer: scores.and_then(|scores| scores.answer.as_ref()).map(|answer| answer.text.clone()),
        position_bias: made.position_bias,
        rerank_tokens: made.tokens,
    }
}
