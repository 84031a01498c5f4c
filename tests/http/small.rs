//! Errors stay small for any input, because messages of libraries may quote the caller's data.

use serde_json::{Value, json};

use crate::common::Scripted;
use crate::http::{Answer, Served, options, serve_with};
use engine::types::Limits;
use server::http::HttpOptions;

const LONG: usize = 1 << 20;

/// A shape may repeat its message four times.
const MOST: usize = 2_048;

const PATHS: [&str; 11] = [
    "/",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/reranking",
    "/v1/reranking",
    "/v1/ranking",
    "/invocations",
    "/v1/context",
    "/score",
    "/v1/score",
];

/// A server that accepts long bodies and long texts, so that field names after them are checked, too.
async fn server() -> Served {
    let limits = Limits { query_bytes: 8 << 20, passage_bytes: 8 << 20, ..crate::common::LIMITS };
    serve_with(Scripted { limits, ..Scripted::default() }, HttpOptions { body_bytes: 8 << 20, ..options() }).await
}

fn check(what: &str, answer: &Answer) {
    let size = answer.body.to_string().len();
    let headers: usize = answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let error = answer.status >= 400;
    assert!(
        !error || (size <= MOST && headers <= MOST),
        "{what}: {size} bytes, {headers} of headers: {}",
        answer.status
    );
    // A run of this character comes from the caller.
    let text = answer.body.to_string();
    assert!(!error || !text.contains(&"x".repeat(201)), "{what}: {text}");
}

fn body(path: &str) -> Value {
    if path.ends_with("score") {
        return json!({ "text_1": "question", "text_2": ["a question", "b"] });
    }
    json!({ "query": "question", "documents": ["a question", "b"] })
}

#[tokio::test]
async fn every_field_may_be_long() {
    let server = server().await;
    let fields = [
        "model",
        "query",
        "documents",
        "texts",
        "passages",
        "top_n",
        "top_k",
        "return_documents",
        "return_text",
        "rank_fields",
        "max_tokens_per_doc",
        "truncate",
        "truncation",
        "truncation_side",
        "truncation_direction",
        "truncate_prompt_tokens",
        "raw_scores",
        "use_activation",
        "rerankd_method",
        "rerankd_scores",
        "rerankd_score_threshold",
        "rerankd_auto_k",
        "rerankd_latency_budget_ms",
        "rerankd_instruction",
        "rerankd_details",
        "instruction",
        "instruct",
        "chat_template_kwargs",
        "text_1",
        "text_2",
        "queries",
    ];
    for letter in ["x", "\u{7f}", "\\\"", "\\u00e9"] {
        let long = format!("\"{}\"", letter.repeat(if letter == "x" { LONG } else { 3_000 }));
        // One path per handler and shape of errors.
        for path in ["/v1/rerank", "/v2/rerank", "/rerank", "/score"] {
            for field in fields {
                for value in [long.clone(), format!("[{long}]"), format!("[[{long}]]"), format!("{{{long}: {long}}}")] {
                    // A long query would be read for every document.
                    if letter == "x"
                        && matches!(field, "query" | "documents" | "texts" | "passages" | "text_1" | "text_2")
                        && !value.starts_with("[[")
                        && !value.starts_with('{')
                    {
                        continue;
                    }
                    let mut body = body(path);
                    body.as_object_mut().unwrap().remove(field);
                    let rest = body.to_string();
                    let sent = format!("{{\"{field}\": {value}, {}", &rest[1..]);
                    check(&format!("{path} {field} {}", &value[..4]), &server.send(path, &[], sent).await);
                }
            }
        }
    }
    server.stop().await;
}

/// Names longer than the 200 bytes that an error repeats, and shorter than the length from which everything is
/// shortened.
#[tokio::test]
async fn no_error_repeats_more_than_200_bytes() {
    let server = server().await;
    for length in [201, 500, 1_000] {
        let long = "x".repeat(length);
        for path in PATHS {
            for field in ["model", "rerankd_method", "truncation_side", "truncation_direction", "top_n"] {
                let mut body = body(path);
                body[field] = json!(long);
                check(&format!("{path} {field} {length}"), &server.post(path, &body).await);
            }
            if !path.ends_with("score") {
                let named = json!({ "query": "q", "documents": [{ &long: [] }], "rank_fields": [&long] });
                check(&format!("{path} rank_fields {length}"), &server.post(path, &named).await);
            }
            for header in ["content-encoding", "rerankd-priority", "x-rerankd-priority", "x-request-timeout-ms"] {
                check(header, &server.send(path, &[(header, &long)], body(path).to_string()).await);
            }
        }
        check("a model", &server.get(&format!("/v1/models/{long}")).await);
        check("a path", &server.get(&format!("/{long}?query={long}")).await);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_a_string_is_not_repeated() {
    let server = server().await;
    for path in PATHS {
        let twice = json!(json!({ "query": "who?", "documents": ["secret text"] }).to_string()).to_string();
        let answer = server.send(path, &[], twice).await;
        let said = answer.body.to_string();
        assert!(answer.status == 400 && said.contains("was encoded twice") && !said.contains("secret"), "{said}");
        for text in [format!("\"{}\"", "\u{7f}".repeat(LONG)), format!("\"{}", "x".repeat(LONG)), "7".repeat(LONG)] {
            let answer = server.send(path, &[], text).await;
            assert_eq!(answer.status, 400);
            check(path, &answer);
        }
    }
    server.stop().await;
}
