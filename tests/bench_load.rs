//! The load benchmark's reading of answers over HTTP: answered, refused or late.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

#[path = "../benches/load/caller.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod caller;
#[path = "../benches/load/http.rs"]
mod http;

use std::time::Duration;

use caller::Caller;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

fn answer(scores: &[(u64, f64)]) -> Vec<u8> {
    let result = |(index, score): &(u64, f64)| json!({ "index": index, "relevance_score": score });
    json!({ "results": scores.iter().map(result).collect::<Vec<_>>() }).to_string().into_bytes()
}

#[test]
fn only_a_ranking_of_all_documents_is_an_answer() {
    let code = |bytes: &[u8]| http::outcome(200, bytes, 2).0;
    assert_eq!(code(&answer(&[(1, 0.9), (0, -3.5)])), Code::Ok);
    assert_eq!(code(&answer(&[(1, 0.9)])), Code::DataLoss);
    assert_eq!(code(&answer(&[(1, 0.9), (1, 0.8)])), Code::DataLoss);
    assert_eq!(code(&answer(&[(1, 0.9), (2, 0.8)])), Code::DataLoss);
    // llama-server's score of a document that it could not read.
    assert_eq!(code(&answer(&[(1, 0.9), (0, -1e6)])), Code::DataLoss);
    assert_eq!(code(br#"{"error": "busy"}"#), Code::DataLoss);
    assert_eq!(code(b"<html>"), Code::DataLoss);
}

#[test]
fn refusals_and_passed_deadlines_are_told_apart() {
    let code = |status| http::outcome(status, b"no", 1).0;
    assert_eq!([429, 503].map(code), [Code::ResourceExhausted; 2]);
    assert_eq!([408, 504].map(code), [Code::DeadlineExceeded; 2]);
    assert_eq!([400, 422].map(code), [Code::InvalidArgument; 2]);
    assert_eq!([500, 502].map(code), [Code::Internal, Code::Unknown]);
    let (_, message) = http::outcome(503, "é".repeat(300).as_bytes(), 1);
    assert!(message.starts_with("503: é") && message.len() < 250, "{message}");
}

/// Answers one request after `delay`. Returns the outcome, and the request in lower case.
async fn ask(caller: &str, model: Option<&str>, delay: Duration, left: Option<Duration>) -> ((Code, String), String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/rerank", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = String::new();
        while !asked.ends_with('}') {
            let mut bytes = [0; 4096];
            let count = socket.read(&mut bytes).await.unwrap();
            asked.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        tokio::time::sleep(delay).await;
        let body = String::from_utf8(answer(&[(0, 0.5), (1, 0.25)])).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
        asked.to_lowercase()
    });
    let caller: Caller = caller.parse().unwrap();
    let peer = http::Peer::new(&url, model, caller.from).unwrap();
    let request = peer.request(&caller, &caller.request(1, 2)).unwrap();
    let outcome = http::send(request, caller.passages, left).await;
    (outcome, served.await.unwrap())
}

#[tokio::test]
async fn a_request_has_the_fields_and_headers_of_its_caller() {
    let caller = "passages=2,words=5,priority=2,token=abc,method=cross-encoder";
    let ((code, message), asked) = ask(caller, Some("m"), Duration::ZERO, Some(Duration::from_mins(1))).await;
    assert_eq!((code, &*message), (Code::Ok, ""));
    for header in ["x-rerankd-priority: 2", "authorization: bearer abc", "x-request-timeout-ms: 60000"] {
        assert!(asked.contains(&format!("{header}\r\n")), "{asked}");
    }
    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["documents"].as_array().unwrap().len(), 2);
    assert_eq!((&body["model"], &body["rerankd_method"]), (&json!("m"), &json!("cross-encoder")));
    assert!(body["query"].as_str().unwrap().starts_with("where does the"));

    let (_, asked) = ask("passages=2", None, Duration::ZERO, None).await;
    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["documents", "query"]);
    assert!(!asked.contains("x-request-timeout-ms"), "{asked}");
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_none() {
    let (outcome, _) = ask("passages=2", None, Duration::from_secs(2), Some(Duration::from_millis(100))).await;
    assert_eq!(outcome.0, Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_server_that_is_not_there_refuses_nothing() {
    let caller: Caller = "passages=2".parse().unwrap();
    let peer = http::Peer::new("http://127.0.0.1:1/v1/rerank", None, None).unwrap();
    let request = peer.request(&caller, &caller.request(1, 2)).unwrap();
    assert_eq!(http::send(request, 2, None).await.0, Code::Unavailable);
    assert!(http::Peer::new("no url", None, None).is_err());
}
