//! Messages that name a task, citations, and a context: inputs of the fuzz target `grpc`.

use prost::Message;
use protocol::v1;

/// Name, method and content of each.
pub fn messages(passages: Vec<v1::Passage>) -> [(&'static str, &'static str, Vec<u8>); 4] {
    let citations = v1::CheckCitationsRequest {
        answer: "George Eliot wrote it [1][3]. Bananas are [2, 9] yellow. [2-3]".into(),
        passages: passages.clone(),
        question: "who wrote it?".into(),
        threshold: Some(0.5),
        skip_out_of_range: true,
    };
    let labels = v1::EvaluateRetrievalRequest {
        question: "Middlemarch is a novel".into(),
        passages: passages.clone(),
        references: vec!["yes".into()],
        end_to_end: true,
        task: v1::Task::Classification.into(),
        labels: vec!["yes".into(), "no".into()],
        ..v1::EvaluateRetrievalRequest::default()
    };
    let dedup = v1::Dedup { mode: v1::DedupMode::OnePlace.into(), similarity: Some(0.5) };
    let ranking = v1::RerankRequest {
        query: "who wrote it?".into(),
        passages: passages.clone(),
        method: v1::Method::QueryGeneration.into(),
        dedup: Some(dedup),
        ..v1::RerankRequest::default()
    };
    let context = v1::BuildContextRequest {
        request: Some(ranking),
        max_tokens: 24,
        template: "<{n}> {title}: {text} {{}}".into(),
        separator: Some("\n".into()),
        max_per_source: 2,
        ..v1::BuildContextRequest::default()
    };
    let long = v1::SampleRequest {
        question: "who wrote it\nand when?".into(),
        passages,
        sampling: Some(v1::SamplingOptions { samples: 1, max_tokens: 3, ..v1::SamplingOptions::default() }),
        task: v1::Task::LongAnswer.into(),
        ..v1::SampleRequest::default()
    };
    [
        ("citations", "rerankd.v1.BeliefService/CheckCitations", citations.encode_to_vec()),
        ("context", "rerankd.v1.RerankService/BuildContext", context.encode_to_vec()),
        ("labels", "rerankd.v1.UtilityService/EvaluateRetrieval", labels.encode_to_vec()),
        ("long-answer", "rerankd.v1.BeliefService/Sample", long.encode_to_vec()),
    ]
}
