//! ANNOTATOR_BERT_SCORE: golden values of token states and their matching, and labels over a real channel on the tiny random
//! network of golden/rerankers in ONNX Runtime.

use crate::common;
use common::fields;
use common::passage_models::{folder, serve, serve_in_steps};
use engine::types::Role;
use protocol::v1;
use protocol::v1::Annotator;
use protocol::v1::utility_service_client::UtilityServiceClient;
use rag_metrics::bert_score::{BertScore, Vectors, bert_score};
use serde::Deserialize;
use serde_json::Value;
use tonic::Code;

#[derive(Deserialize)]
struct Case {
    answer: String,
    reference: String,
    precision: f64,
    recall: f64,
    f1: f64,
}

/// Scores by the embedding model of a server.
async fn scores(running: &common::Running, pairs: &[(String, String)]) -> Vec<BertScore> {
    let model = running.engine.models().scorer(Role::Embedding).unwrap();
    let texts: Vec<String> = pairs.iter().flat_map(|(answer, reference)| [answer.clone(), reference.clone()]).collect();
    let states = model.states(texts.into(), &common::call()).await.unwrap();
    states
        .chunks_exact(2)
        .map(|pair| {
            let [answer, reference] =
                [0, 1].map(|side: usize| Vectors { width: pair[side].width, values: &pair[side].values });
            bert_score(answer, reference)
        })
        .collect()
}

/// Compares with crates/rag-metrics/tests/golden/metrics/bert_score.py.
async fn compare(model: &str, key: &str, tolerance: f64) {
    let golden: Value =
        serde_json::from_str(include_str!("../../crates/rag-metrics/tests/golden/metrics/bert_score.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_value(golden[key].clone()).unwrap();
    let pairs: Vec<(String, String)> = cases.iter().map(|case| (case.answer.clone(), case.reference.clone())).collect();
    for batch in [0, 1] {
        let running = serve_in_steps(&[("embedding.model", model)], batch).await;
        let found = scores(&running, &pairs).await;
        assert_eq!(found.len(), 10);
        for (case, found) in cases.iter().zip(found) {
            let expected = [case.precision, case.recall, case.f1];
            for (found, expected) in [found.precision, found.recall, found.f1].into_iter().zip(expected) {
                assert!((found - expected).abs() < tolerance, "{:?}: {found}, not {expected}", case.answer);
            }
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn scores_are_those_of_an_independent_program() {
    compare(folder("embedding").to_str().unwrap(), "tiny", 1e-5).await;
}

/// Products of 8-bit weights round differently on different processors.
#[tokio::test]
async fn a_real_network_gives_the_scores_of_an_independent_program() {
    compare("all-minilm-l6-v2", "all-minilm-l6-v2", 0.02).await;
}

fn request(annotators: &[Annotator]) -> v1::EvaluateRetrievalRequest {
    let texts = ["moon", "tide", "bread"].map(|word| format!("{word} ").repeat(20));
    v1::EvaluateRetrievalRequest {
        question: "what makes the tide".into(),
        passages: common::wire("q", &texts.each_ref().map(String::as_str)).passages,
        references: vec!["the moon".into(), "oven".into()],
        annotators: annotators.iter().map(|annotator| (*annotator).into()).collect(),
        answer_tokens: 12,
        end_to_end: true,
        return_answers: true,
        ..v1::EvaluateRetrievalRequest::default()
    }
}

async fn evaluate(
    running: &common::Running,
    request: v1::EvaluateRetrievalRequest,
) -> Result<v1::EvaluateRetrievalResponse, tonic::Status> {
    let mut client = UtilityServiceClient::new(running.channel().await);
    client.evaluate_retrieval(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn labels_are_the_scores_of_the_answers_that_come_back() {
    let running = serve(&[("embedding.model", folder("embedding").to_str().unwrap())]).await;
    let asked = request(&[Annotator::BertScore]);
    let answer = evaluate(&running, asked.clone()).await.unwrap();
    let whole = &answer.rankings[0];
    let mut answers: Vec<&v1::Answer> = answer.passage_answers.iter().collect();
    answers.push(whole.answer.as_ref().unwrap());
    let mut labels = answer.labels[0].labels.clone();
    labels.push(whole.scores[0].end_to_end.unwrap());
    assert_eq!((answers.len(), labels.len()), (4, 4));
    let pairs: Vec<(String, String)> = answers
        .iter()
        .flat_map(|answer| asked.references.iter().map(|reference| (answer.text.clone(), reference.clone())))
        .collect();
    let each = scores(&running, &pairs).await;
    let model = running.engine.models().scorer(Role::Embedding).unwrap();
    let texts: Vec<String> = answers.iter().map(|answer| answer.text.clone()).collect();
    let states = model.states(texts.into(), &common::call()).await.unwrap();
    let unreadable = states.iter().filter(|states| states.unreadable).count();
    let told = format!("the embedding model cannot read {unreadable} answers");
    assert_eq!(answer.warnings.iter().any(|one| one.starts_with(&told)), unreadable > 0, "{:?}", answer.warnings);
    for ((label, of_answer), states) in labels.iter().zip(each.chunks_exact(2)).zip(&states) {
        let best = if states.unreadable { 0.0 } else { of_answer[0].f1.max(of_answer[1].f1) };
        assert!((label - best).abs() < 1e-6 && (0.0..=1.0).contains(label), "{label} instead of {best}");
    }
    assert!(answers.iter().any(|answer| !answer.text.is_empty()));
    running.stop().await;
}

/// All unknown words are one token, so such texts would match each other.
#[tokio::test]
async fn references_that_the_model_cannot_read_are_left_out_or_refused() {
    let running = serve(&[("embedding.model", folder("embedding").to_str().unwrap())]).await;
    let ask = |references: &[&str]| v1::EvaluateRetrievalRequest {
        references: references.iter().map(|&text| text.into()).collect(),
        ..request(&[Annotator::BertScore])
    };
    let refused = evaluate(&running, ask(&["ดวงจันทร์", "🌙 🌊"])).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["references".to_owned()]));
    assert!(refused.message().contains("embedding.model"), "{}", refused.message());
    let some = evaluate(&running, ask(&["ดวงจันทร์", "the moon"])).await.unwrap();
    let alone = evaluate(&running, ask(&["the moon"])).await.unwrap();
    assert_eq!(some.labels, alone.labels);
    let told = |answer: &v1::EvaluateRetrievalResponse| {
        answer.warnings.iter().any(|one| one.starts_with("the embedding model cannot read 1 of 2 references"))
    };
    assert!(told(&some) && !told(&alone), "{:?}", some.warnings);
    running.stop().await;
}

#[tokio::test]
async fn unscorable_requests_are_refused() {
    let bare = serve(&[]).await;
    let refused = evaluate(&bare, request(&[Annotator::TokenF1, Annotator::BertScore])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("embedding.model"), "{}", refused.message());
    assert!(evaluate(&bare, request(&[Annotator::TokenF1])).await.is_ok());
    bare.stop().await;
    let running = serve(&[("embedding.model", folder("embedding").to_str().unwrap())]).await;
    let none = v1::EvaluateRetrievalRequest { references: Vec::new(), ..request(&[Annotator::BertScore]) };
    let refused = evaluate(&running, none).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["references".to_owned()]));
    // The weights of this word are not numbers.
    let broken = v1::EvaluateRetrievalRequest { references: vec!["broken".into()], ..request(&[Annotator::BertScore]) };
    assert_eq!(evaluate(&running, broken).await.unwrap_err().code(), Code::Internal);
    assert!(evaluate(&running, request(&[Annotator::BertScore])).await.is_ok(), "the model still serves others");
    running.stop().await;
}
