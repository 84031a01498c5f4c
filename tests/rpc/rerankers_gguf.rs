//! METHOD_CROSS_ENCODER by rank pooling in llama.cpp, over a real channel, on the tiny random models of golden/rerankers,
//! against the numpy forward of golden/rerankers/gguf_models.py and encoder_models.py. Scores agree within 2e-2: llama.cpp takes
//! GELU from a table of 16 bits and keeps keys and values in 16 bits.

use crate::common;
use common::fields;
use common::passage_models::{assert_close, folder, info, request, rerank, serve_in_steps, serve_model, utilities};
use protocol::v1;
use serde_json::Value;
use tonic::Code;

const TOLERANCE: f64 = 2e-2;

/// The cases of one model.
fn golden(model: &str) -> Vec<Value> {
    let files = [include_str!("../golden/rerankers/gguf.json"), include_str!("../golden/rerankers/encoders.json")];
    let cases = files.iter().flat_map(|file| serde_json::from_str::<Vec<Value>>(file).unwrap());
    cases.filter(|case| case.get(model).is_some()).collect()
}

/// Scores the cases of each query in one request, and each case separately.
async fn agrees(model: &str, batch: usize) {
    let path = folder(&format!("{model}.gguf"));
    let running = serve_in_steps(&[("reranker.model", path.to_str().unwrap())], batch).await;
    let cases = golden(model);
    let query = |case: &Value| case["query"].as_str().unwrap().to_owned();
    for asked in [query(&cases[0]), query(&cases[4])] {
        let cases: Vec<&Value> = cases.iter().filter(|case| query(case) == asked).collect();
        let passages: Vec<&str> = cases.iter().map(|case| case["passage"].as_str().unwrap()).collect();
        let expected: Vec<f64> = cases.iter().map(|case| case[model]["utility"].as_f64().unwrap()).collect();
        let whole = v1::RerankRequest { query: asked.clone(), ..request(v1::Method::CrossEncoder, &passages) };
        let response = rerank(&running, whole.clone()).await.unwrap();
        assert_close(TOLERANCE, &utilities(&response), &expected);
        for result in &response.results {
            let case = &cases[result.original_index as usize][model];
            assert_eq!(u64::from(result.tokens_cut), case["cut"].as_u64().unwrap());
        }
        let tokens: u64 = cases.iter().map(|case| case[model]["tokens"].as_u64().unwrap()).sum();
        assert_eq!(response.usage.unwrap().tokens, tokens);
        // Earlier calls leave no state.
        assert_eq!(utilities(&rerank(&running, whole).await.unwrap()), utilities(&response));
        for (passage, expected) in passages.iter().zip(expected) {
            let alone = v1::RerankRequest { query: asked.clone(), ..request(v1::Method::CrossEncoder, &[passage]) };
            assert_close(TOLERANCE, &utilities(&rerank(&running, alone).await.unwrap()), &[expected]);
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn a_bert_reranker_gives_its_logit() {
    agrees("bert", 0).await;
    agrees("bert", 2).await;
}

#[tokio::test]
async fn a_qwen3_reranker_gives_the_logit_of_yes() {
    agrees("qwen3", 0).await;
    agrees("qwen3", 1).await;
}

#[tokio::test]
async fn a_modern_bert_reranker_gives_its_logit() {
    agrees("modern-bert", 0).await;
    agrees("modern-bert", 2).await;
}

#[tokio::test]
async fn a_jina_bert_reranker_gives_the_tanh_of_its_logit() {
    agrees("jina-bert-v2", 0).await;
    agrees("jina-bert-v2", 2).await;
}

#[tokio::test]
async fn the_server_says_what_the_score_is() {
    for (model, output) in [
        ("bert", "logit of output 0"),
        ("modern-bert", "logit of output 0"),
        ("jina-bert-v2", "tanh of the logit of output 0"),
        ("qwen3", "logit of the probability of yes"),
    ] {
        let running = serve_model("reranker", &folder(&format!("{model}.gguf"))).await;
        rerank(&running, request(v1::Method::CrossEncoder, &["moon"])).await.unwrap();
        let told = info(&running).await.reranker.unwrap();
        assert_eq!((&*told.output, told.description), (output, format!("{model}, GGUF")));
        assert_eq!((told.name, told.max_tokens), (format!("{model}.gguf"), 128));
        running.stop().await;
    }
}

#[tokio::test]
async fn files_that_would_score_wrongly_are_refused() {
    for (section, method, model, problem) in [
        ("reranker", v1::Method::CrossEncoder, "bert-two-types", "use its ONNX export"),
        ("reranker", v1::Method::CrossEncoder, "qwen3-headless", "no tensor cls.output.weight"),
        ("embedding", v1::Method::Embedding, "bert", "must be an ONNX file"),
    ] {
        let running = serve_model(section, &folder(&format!("{model}.gguf"))).await;
        let refused = rerank(&running, request(method, &["moon"])).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains(problem), "{}", refused.message());
        assert!(refused.message().contains(&format!("{model}.gguf")), "{}", refused.message());
        running.stop().await;
    }
}

/// The longest pairs fill a call exactly; one token more would end the process.
#[tokio::test]
async fn pairs_at_the_limit_do_not_end_the_process() {
    let running = serve_model("reranker", &folder("bert.gguf")).await;
    let long = "sea ".repeat(1_000);
    let response = rerank(&running, request(v1::Method::CrossEncoder, &[&*long])).await.unwrap();
    assert_eq!(response.usage.unwrap().tokens, 128);
    let passages = [&*long, "moon", &long, "sea sea"];
    let mut several = request(v1::Method::CrossEncoder, &passages);
    // 128 positions minus four special tokens: a query may have 93 of 124.
    several.query = "tide ".repeat(93);
    assert_eq!(rerank(&running, several.clone()).await.unwrap().results.len(), 4);
    several.query = "tide ".repeat(94);
    assert_eq!(rerank(&running, several.clone()).await.unwrap().results.len(), 4);
    several.truncation = Some(v1::Truncation { mode: v1::TruncationMode::Off.into(), ..v1::Truncation::default() });
    let refused = rerank(&running, several).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["query".to_owned()]));
    running.stop().await;
}
