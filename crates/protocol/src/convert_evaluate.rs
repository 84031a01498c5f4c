//! Conversions of EvaluateRetrieval between messages and engine types.

use super::convert_belief::{answer, indices, measure, measure_to_wire, sampling, sampling_to_wire, subset};
use super::convert_parts::{
    given, known, narrow, passages, passages_to_wire, truncation, truncation_to_wire, usage, wide,
};
use super::{convert_task, v1};
use engine::evaluate::MOST_RANKINGS;
use engine::types::{Annotator, EngineError, EvaluateReport, EvaluateRequest, LabelProbability, default_metrics};
use prefix_scheduler::model::GeneratorInfo;
use rag_metrics::input;
use rag_metrics::rank::{Grading, Metric, MetricError};

/// Enum value and engine type of each annotator.
const ANNOTATORS: [(v1::Annotator, Annotator); 16] = [
    (v1::Annotator::ExactMatch, Annotator::ExactMatch),
    (v1::Annotator::TokenF1, Annotator::TokenF1),
    (v1::Annotator::RougeL, Annotator::RougeL),
    (v1::Annotator::Containment, Annotator::Containment),
    (v1::Annotator::Accuracy, Annotator::Accuracy),
    (v1::Annotator::SeperSoft, Annotator::SeperSoft),
    (v1::Annotator::SeperHard, Annotator::SeperHard),
    (v1::Annotator::DeltaSeperSoft, Annotator::DeltaSeperSoft),
    (v1::Annotator::DeltaSeperHard, Annotator::DeltaSeperHard),
    (v1::Annotator::ContainsAnswer, Annotator::ContainsAnswer),
    (v1::Annotator::Provenance, Annotator::Provenance),
    (v1::Annotator::LlmJudgement, Annotator::LlmJudgement),
    (v1::Annotator::Bleu, Annotator::Bleu),
    (v1::Annotator::BertScore, Annotator::BertScore),
    (v1::Annotator::AnswerJudgement, Annotator::AnswerJudgement),
    (v1::Annotator::EragJudgement, Annotator::EragJudgement),
];

fn to_wire(annotator: Annotator) -> v1::Annotator {
    let pair = ANNOTATORS.iter().find(|(_, ours)| *ours == annotator);
    pair.map_or(v1::Annotator::Unspecified, |(wire, _)| *wire)
}

/// Parses the names of metrics. Refuses too many names, an unknown name and a repeated metric.
pub(super) fn metrics(names: &[String]) -> Result<Vec<Metric>, EngineError> {
    input::check_metric_count(names.len())?;
    let parse = |(index, name): (usize, &String)| {
        name.parse().map_err(|error: MetricError| EngineError::invalid(format!("metrics[{index}]"), error.to_string()))
    };
    let metrics: Vec<Metric> = names.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    input::check_metrics(&metrics)?;
    Ok(metrics)
}

/// Converts lists of passage indices. Refuses too many lists and lists longer than `passages` before converting them.
fn orders(field: &str, wire: Vec<v1::PassageSubset>, passages: usize) -> Result<Vec<Vec<usize>>, EngineError> {
    if wire.len() > MOST_RANKINGS {
        return Err(EngineError::invalid(field, format!("{} given, at most {MOST_RANKINGS} allowed", wire.len())));
    }
    if let Some(index) = wire.iter().position(|subset| subset.indices.len() > passages) {
        let problem = format!("{} passages given, at most {passages} allowed", wire[index].indices.len());
        return Err(EngineError::invalid(format!("{field}[{index}]"), problem));
    }
    Ok(wire.into_iter().map(indices).collect())
}

pub fn request(wire: v1::EvaluateRetrievalRequest) -> Result<EvaluateRequest, EngineError> {
    let (truncate, passage_tokens) = truncation(wire.truncation)?;
    // Checked before the names are converted: a message may hold millions.
    let (count, most) = (wire.annotators.len(), ANNOTATORS.len());
    if count > most {
        return Err(EngineError::invalid("annotators", format!("{count} given, at most {most} allowed")));
    }
    let annotator = |(index, number): (usize, &i32)| {
        let field = format!("annotators[{index}]");
        let wire: v1::Annotator = known(&field, *number)?;
        let pair = ANNOTATORS.iter().find(|(name, _)| *name == wire);
        pair.map(|(_, ours)| *ours).ok_or_else(|| EngineError::invalid(field, "must be set"))
    };
    let annotators: Result<Vec<Annotator>, EngineError> = wire.annotators.iter().enumerate().map(annotator).collect();
    let annotators = Some(annotators?).filter(|annotators| !annotators.is_empty());
    let task = convert_task::task(wire.task, wire.labels)?;
    let rankings = orders("rankings", wire.rankings, wire.passages.len())?;
    let contexts = orders("contexts", wire.contexts, wire.passages.len())?;
    Ok(EvaluateRequest {
        question: wire.question,
        passages: passages(wire.passages),
        references: wire.references,
        annotators: annotators.unwrap_or_else(|| vec![Annotator::of_task(task.kind)]),
        provenance: wire.provenance,
        metrics: if wire.metrics.is_empty() { default_metrics() } else { metrics(&wire.metrics)? },
        threshold: wire.threshold.unwrap_or(Grading::ERAG.threshold),
        rankings,
        contexts,
        end_to_end: wire.end_to_end || wire.answers_only,
        label_passages: !wire.answers_only,
        task,
        answer_tokens: given(wire.answer_tokens),
        sampling: sampling(wire.sampling),
        measure: measure(wire.measure)?,
        passage_tokens,
        truncate,
        token_budget: usize::try_from(wire.token_budget).ok().filter(|budget| *budget > 0),
    })
}

/// Converts a request to a message, for clients.
pub(super) fn request_to_wire(request: &EvaluateRequest, return_answers: bool) -> v1::EvaluateRetrievalRequest {
    v1::EvaluateRetrievalRequest {
        question: request.question.clone(),
        passages: passages_to_wire(&request.passages),
        references: request.references.clone(),
        annotators: request.annotators.iter().map(|annotator| to_wire(*annotator).into()).collect(),
        provenance: request.provenance.clone(),
        metrics: request.metrics.iter().map(Metric::to_string).collect(),
        threshold: Some(request.threshold),
        rankings: request.rankings.iter().map(|indices| subset(indices)).collect(),
        contexts: request.contexts.iter().map(|indices| subset(indices)).collect(),
        end_to_end: request.end_to_end,
        answers_only: !request.label_passages,
        answer_tokens: narrow(request.answer_tokens.unwrap_or(0)),
        sampling: Some(sampling_to_wire(&request.sampling)),
        measure: Some(measure_to_wire(&request.measure)),
        return_answers,
        truncation: Some(truncation_to_wire(request.truncate, request.passage_tokens)),
        token_budget: wide(request.token_budget.unwrap_or(0)),
        task: convert_task::kind_to_wire(request.task.kind).into(),
        labels: request.task.labels.clone(),
    }
}

/// Pairs each value with the name of its metric.
pub(super) fn metric_values(metrics: &[Metric], values: &[Option<f64>]) -> Vec<v1::MetricValue> {
    let value =
        |(metric, value): (&Metric, &Option<f64>)| v1::MetricValue { metric: metric.to_string(), value: *value };
    metrics.iter().zip(values).map(value).collect()
}

pub fn response(
    report: &EvaluateReport,
    metrics: &[Metric],
    threshold: f64,
    with_answers: bool,
    model: &GeneratorInfo,
) -> v1::EvaluateRetrievalResponse {
    let labels = |(annotator, labels): &(Annotator, Vec<f64>)| v1::PassageLabels {
        annotator: to_wire(*annotator).into(),
        labels: labels.clone(),
    };
    let rankings = report.rankings.iter().map(|ranking| v1::RankingScores {
        indices: ranking.indices.iter().copied().map(narrow).collect(),
        context: ranking.context.iter().copied().map(narrow).collect(),
        scores: ranking
            .scores
            .iter()
            .map(|scores| v1::AnnotatorScores {
                annotator: to_wire(scores.annotator).into(),
                metrics: metric_values(metrics, &scores.metrics),
                end_to_end: scores.end_to_end,
            })
            .collect(),
        answer: ranking.answer.as_ref().filter(|_| with_answers).map(answer),
        label_probabilities: convert_task::probabilities(&ranking.label_probabilities),
    });
    let of_passage =
        |labels: &Vec<LabelProbability>| v1::LabelProbabilities { labels: convert_task::probabilities(labels) };
    v1::EvaluateRetrievalResponse {
        labels: report.labels.iter().map(labels).collect(),
        rankings: rankings.collect(),
        passage_answers: if with_answers { report.passage_answers.iter().map(answer).collect() } else { Vec::new() },
        threshold,
        usage: Some(usage(&report.usage)),
        judged_pairs: narrow(report.judged_pairs),
        warnings: report.warnings.clone(),
        model: model.name.clone(),
        model_sha256: model.sha256.clone(),
        adapter: model.adapter.as_ref().map(super::convert_models::adapter_to_wire),
        passage_label_probabilities: report.passage_label_probabilities.iter().map(of_passage).collect(),
        task: convert_task::kind_to_wire(report.task).into(),
    }
}
