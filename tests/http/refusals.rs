//! Refusals while a client still sends the body, and requests of browser pages.

use std::time::Duration;

use prefix_scheduler::call::{Admission, Place, Terms};
use serde_json::json;
use server::transport::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::Scripted;
use crate::http;
use http::{options, serve, serve_with};

/// Bytes of a body. The limit is a mebibyte.
const BODY: usize = 900_000;

/// Sends a request in pieces, as a slow link does, and returns the answer.
async fn sent_in_pieces(server: &http::Served, path: &str, headers: &str) -> String {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {BODY}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in vec![b'x'; BODY].chunks(60_000) {
        stream.write_all(piece).await.expect("the connection is reset while the body is sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut answer = vec![0; 4_096];
    let read = stream.read(&mut answer).await.expect("the connection is reset before the answer");
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// The server must not reset the connection while the caller still sends, or the caller never sees the reason.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let (server, token) = http::serve_with_token().await;
    let known = format!("authorization: Bearer {token}\r\n");
    for (path, headers, status) in [
        ("/rerank", String::new(), "401 Unauthorized"),
        ("/rerank", format!("{known}content-encoding: gzip\r\n"), "415 Unsupported"),
        ("/rerank", format!("{known}rerankd-priority: urgent\r\n"), "400 Bad Request"),
        ("/nothing", known.clone(), "404 Not Found"),
        ("/health", known.clone(), "405 Method Not Allowed"),
    ] {
        let answer = sent_in_pieces(&server, path, &headers).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {headers}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_answers_a_client_that_is_still_sending() {
    let server = serve_with(Scripted { queue_length: 1, ..Scripted::default() }, options()).await;
    // Slots of both kinds are taken, so the server refuses before it reads the body.
    let held = [Place::Generator, Place::Beside].map(|place| server.admission.admit(Terms::default(), place).unwrap());
    let answer = sent_in_pieces(&server, "/rerank", "").await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after"), "{answer}");
    drop(held);
    server.stop().await;
}

/// Otherwise a page of any origin could use a server on the same machine: such requests need no preflight.
#[tokio::test]
async fn pages_may_not_call_a_server_without_tokens() {
    let body = json!({ "query": "q", "documents": ["a", "b"] }).to_string();
    let page = [("origin", "http://evil.example"), ("content-type", "text/plain")];
    let open = serve(Scripted::default()).await;
    let refused = open.send("/rerank", &page, body.clone()).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert_eq!(open.send("/rerank", &[("origin", "null")], body.clone()).await.status, 403);
    assert_eq!(open.send("/rerank", &page[1..], body.clone()).await.status, 200);
    open.stop().await;
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let admission = Admission::new(queue_length);
    let folder = tempfile::tempdir().unwrap();
    let (tokens, token) = http::tokens(folder.path(), "search");
    let router = server::http::router(engine.clone(), admission.clone(), options(), tokens);
    let closed = http::serve_router(engine, admission, router, Bounds::default()).await;
    let bearer = format!("Bearer {token}");
    let known = [page[0], ("authorization", bearer.as_str())];
    assert_eq!(closed.send("/rerank", &known, body).await.status, 200, "a caller with a token is trusted");
    closed.stop().await;
}

/// An error quotes a name several times and escapes every byte.
#[tokio::test]
async fn an_error_does_not_repeat_a_long_name() {
    let server = serve(Scripted::default()).await;
    let plain = json!({ "query": "question", "documents": ["a question", "b"] });
    let long = "\u{7f}".repeat(BODY);
    let rows = [
        ("model", json!(long)),
        ("rerankd_method", json!(long)),
        ("truncation_side", json!(long)),
        ("truncation_direction", json!(long)),
        ("rank_fields", json!([long])),
    ];
    for (field, value) in rows {
        let mut bodies = vec![("/v1/rerank", plain.clone()), ("/v2/rerank", plain.clone())];
        // `rank_fields` applies only to documents.
        if field != "rank_fields" {
            bodies.push(("/rerank", json!({ "query": "question", "texts": ["a question"] })));
            bodies.push(("/score", json!({ "text_1": "question", "text_2": ["a question"] })));
        }
        for (path, mut body) in bodies {
            body[field] = value.clone();
            let answer = server.post(path, &body).await;
            let said = answer.body.to_string();
            assert_eq!(answer.status, 422, "{path} {field}");
            assert!(said.len() < 8_192 && said.contains(field), "{path} {field}: {} bytes", said.len());
        }
    }
}
