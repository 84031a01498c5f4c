//! Errors, limits and the life of a request over HTTP/JSON, over a real socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{common, http};
use common::scripted::Fault;
use common::{LIMITS, Scripted};
use engine::types::Limits;
use http::{Answer, Served, alone, options, serve, serve_with};
use prefix_scheduler::model::Capacity;
use serde_json::{Value, json};
use server::http::HttpOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Start of the message for an unknown path.
const NOWHERE: &str = "unknown path; the nearest is ";

fn plain() -> Value {
    json!({ "query": "question", "documents": ["a question", "b"] })
}

/// The message of an error in vLLM's shape, which also has Jina's fields.
fn nested(answer: &Answer, status: u16) -> String {
    let body = &answer.body;
    assert_eq!((answer.status, body["error"]["code"].as_u64()), (status, Some(u64::from(status))), "{body}");
    let message = body["error"]["message"].as_str().unwrap().to_owned();
    assert!(body["error"]["type"].as_str().unwrap().ends_with("Error"));
    if status == 422 {
        // Clients of FastAPI servers iterate over `detail`, so at their paths it is a list.
        let detail = if body["detail"].is_array() { &body["detail"][0]["msg"] } else { &body["detail"] };
        assert_eq!((detail, &body["errors"][0]["message"]), (&json!(message), &json!(message)));
        assert!(body["request_id"].is_string());
    } else {
        assert_eq!((&body["detail"]["message"], &body["detail"]["code"]), (&json!(message), &json!(status)));
    }
    assert_eq!(body["message"], json!(message), "a Cohere client of version 1 reads no other field");
    message
}

/// A server that takes seconds for a request of [`slow_body`].
async fn slow() -> Served {
    serve_with(Scripted { delay: Duration::from_millis(3), ..Scripted::default() }, alone()).await
}

fn slow_body() -> Value {
    json!({ "query": "question", "documents": ["x ".repeat(500), "question"] })
}

#[tokio::test]
async fn fields_are_named_in_every_shape() {
    let server = serve(Scripted::default()).await;
    let with = |field: &str, value: Value| {
        let mut body = plain();
        body[field] = value;
        body
    };
    let rows = [
        (with("query", json!("")), "query", "query: must not be empty"),
        (with("query", json!(null)), "query", "query: must be set"),
        (with("documents", json!([])), "documents", "documents: must not be empty"),
        (with("documents", json!(vec!["a"; 21])), "documents", "documents: 21 given, at most 20 allowed"),
        (
            with("documents", json!([{ "image": "http://x" }])),
            "documents[0].image",
            "documents[0].image: is not supported",
        ),
        (with("query", json!("q".repeat(1_001))), "query", "query: 1001 bytes given"),
        (with("top_n", json!(-1)), "top_n", "top_n: must be"),
        (with("rerankd_method", json!("guess")), "rerankd_method", "rerankd_method: unknown method"),
        (with("rerankd_scores", json!([1])), "rerankd_scores", "rerankd_scores: 1 given for"),
        (
            with("rerankd_score_threshold", json!(2)),
            "rerankd_score_threshold",
            "rerankd_score_threshold: must lie between 0",
        ),
        (
            with("truncate_prompt_tokens", json!(5)),
            "truncate_prompt_tokens",
            "truncate_prompt_tokens: the query alone has 9",
        ),
    ];
    for (body, field, message) in rows {
        let answer = server.post("/v1/rerank", &body).await;
        assert!(nested(&answer, 422).starts_with(message), "{}", answer.body);
        assert_eq!(answer.body["error"]["param"], field);
        let flat = server.post("/v2/rerank", &body).await;
        assert_eq!(flat.status, 422);
        assert!(flat.body["message"].as_str().unwrap().starts_with(message) && flat.body["id"].is_string());
        assert_eq!(flat.body.as_object().unwrap().len(), 2);
    }
    let score = server.post("/score", &json!({ "text_1": ["q", ""], "text_2": ["a", "b"] })).await;
    assert_eq!(nested(&score, 422), "text_1[1]: must not be empty");
    server.stop().await;
}

#[tokio::test]
async fn text_embeddings_inference_has_a_separate_error_for_an_empty_list() {
    let server = serve(Scripted::default()).await;
    let rows = [
        (json!({ "query": "q", "texts": [] }), 400, "Empty", "texts: must not be empty"),
        (json!({ "query": "", "texts": ["a"] }), 422, "Validation", "query: must not be empty"),
        (json!({ "query": "q", "texts": vec!["a"; 21] }), 422, "Validation", "texts: 21 given"),
        (
            json!({ "query": "q", "texts": ["a"], "truncation_direction": "up" }),
            422,
            "Validation",
            "truncation_direction: must",
        ),
    ];
    for (body, status, kind, message) in rows {
        // The body decides, also on Cohere's path.
        for path in ["/rerank", "/v2/rerank"] {
            let answer = server.post(path, &body).await;
            assert_eq!((answer.status, &answer.body["error_type"]), (status, &json!(kind)), "{}", answer.body);
            assert!(answer.body["error"].as_str().unwrap().starts_with(message), "{}", answer.body);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_not_objects_are_malformed() {
    let server = serve(Scripted::default()).await;
    for body in ["", "{", "[]", "{\"query\": \"q\",}", "{\"query\": \u{1}}"] {
        let answer = server.send("/rerank", &[], body.to_owned()).await;
        assert!(nested(&answer, 400).starts_with("body: is not a JSON object"), "{}", answer.body);
    }
    let answer = server.send("/rerank", &[], "\"q\"".to_owned()).await;
    assert!(nested(&answer, 400).starts_with("body: is a JSON string"), "{}", answer.body);
    // Deep nesting does not use the stack.
    for field in ["query", "unknown"] {
        let deep = format!("{{\"{field}\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(server.send("/rerank", &[], deep).await.status, 422);
    }
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn headers_are_checked_and_ids_returned() {
    let server = serve(Scripted::default()).await;
    for (header, value) in [("x-request-timeout-ms", "soon"), ("rerankd-priority", "urgent")] {
        let answer = server.send("/rerank", &[(header, value)], plain().to_string()).await;
        assert!(nested(&answer, 400).starts_with(header), "{}", answer.body);
    }
    // Characters that could forge a field of a log line are removed.
    let forged = server.send("/rerank", &[("x-request-id", "a b\"c")], plain().to_string()).await;
    assert_eq!(forged.header("x-request-id"), "abc");
    let headers = [("x-request-id", "search-4711"), ("rerankd-priority", "high"), ("x-request-timeout-ms", "20000")];
    let answer = server.send("/rerank", &headers, plain().to_string()).await;
    assert_eq!((answer.status, answer.header("x-request-id")), (200, "search-4711"));
    assert_eq!(answer.body["id"], "search-4711");
    let refused = server.send("/v2/rerank", &headers, "{}".into()).await;
    assert_eq!(refused.body, json!({ "message": "query: must be set", "id": "search-4711" }));
    server.stop().await;
}

#[tokio::test]
async fn other_paths_and_methods_are_not_found() {
    let server = serve(Scripted::default()).await;
    assert_eq!(nested(&server.post("/v1/rerankings", &plain()).await, 404), format!("{NOWHERE}POST /v1/reranking"));
    assert_eq!(nested(&server.get("/rerank").await, 405), "use POST");
    assert_eq!(nested(&server.post("/v1/models", &plain()).await, 405), "use GET");
    let long = server.get(&format!("/{}", "x".repeat(4_000))).await;
    assert!(nested(&long, 404).len() < 200, "{}", long.body);
    server.stop().await;
}

/// A Cohere client shows nothing of an error in another shape.
#[tokio::test]
async fn refusals_before_a_handler_have_the_shape_of_their_path() {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let admission = prefix_scheduler::call::Admission::new(queue_length);
    let folder = tempfile::tempdir().unwrap();
    let (tokens, token) = http::tokens(folder.path(), "search");
    let router = server::http::router(engine.clone(), admission.clone(), options(), tokens);
    let server = http::serve_router(engine, admission, router, server::transport::Bounds::default()).await;
    let (id, bearer) = (("x-request-id", "a-1"), format!("Bearer {token}"));
    let flat = |answer: &Answer, status: u16, message: &str| {
        assert_eq!((answer.status, answer.header("x-request-id")), (status, "a-1"));
        assert_eq!(answer.body, json!({ "message": message, "id": "a-1" }));
    };
    let missing = "authorization: a bearer token is required";
    flat(&server.send("/v2/rerank", &[id], plain().to_string()).await, 401, missing);
    let answer = server.send("/rerank", &[id], plain().to_string()).await;
    assert_eq!((nested(&answer, 401).as_str(), answer.header("x-request-id")), (missing, "a-1"));
    assert_eq!(answer.body["detail"]["request_id"], "a-1");
    let given = [id, ("authorization", bearer.as_str())];
    let wrong = server.get_with("/v2/rerank", &given).await;
    flat(&wrong, 405, "use POST");
    let nothing = server.get_with("/v1/modles", &given).await;
    assert_eq!(
        (nested(&nothing, 404).as_str(), nothing.header("x-request-id")),
        (format!("{NOWHERE}GET /v1/models").as_str(), "a-1")
    );
    assert_eq!(server.send("/v2/rerank", &given, plain().to_string()).await.status, 200);
    assert_eq!(server.get("/health").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let server = serve_with(Scripted::default(), HttpOptions { body_bytes: 1_000, ..options() }).await;
    let body = json!({ "query": "q", "documents": ["x".repeat(1_500)] });
    let answer = server.post("/rerank", &body).await;
    assert_eq!(nested(&answer, 413), "body: more than 1000 bytes given");
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_says_when_to_come_back() {
    let server = serve_with(Scripted { queue_length: 1, ..Scripted::default() }, options()).await;
    let held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    let answer = server.post("/rerank", &plain()).await;
    assert_eq!(nested(&answer, 429), "the queue is full, or its work takes longer than this request may wait");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    let flat = server.post("/v2/rerank", &plain()).await;
    assert_eq!(
        (flat.status, &flat.body["message"]),
        (429, &json!("the queue is full, or its work takes longer than this request may wait"))
    );
    assert_eq!(server.get("/health").await.status, 200);
    drop(held);
    assert_eq!(server.post("/rerank", &plain()).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn oversized_or_expensive_requests_are_refused() {
    let limits = Limits { tokens: 500, ..LIMITS };
    let capacity = Capacity { cells: 300, sequences: 16, batch: 64 };
    let server = serve_with(Scripted { capacity, limits, ..Scripted::default() }, alone()).await;
    let long = json!({ "query": "question", "documents": ["a", "x ".repeat(400)], "truncate": false });
    let answer = server.post("/rerank", &long).await;
    assert!(nested(&answer, 422).starts_with("documents[1]: needs"), "{}", answer.body);
    // Clients retry 429, so the status is another. The documents differ, because equal ones are evaluated once.
    let many =
        json!({ "query": "question", "documents": (0..10).map(|n| n.to_string().repeat(100)).collect::<Vec<_>>() });
    let answer = server.post("/rerank", &many).await;
    assert!(nested(&answer, 422).contains("at most 500 allowed"), "{}", answer.body);
    // The tokens of all pairs count together.
    let pair =
        json!({ "text_1": (0..10).map(|n| n.to_string()).collect::<Vec<_>>(), "text_2": vec!["x".repeat(50); 10] });
    let answer = server.post("/score", &pair).await;
    assert!(nested(&answer, 422).contains("at most 500 allowed"), "{}", answer.body);
    server.stop().await;
}

#[tokio::test]
async fn a_timeout_is_answered_and_frees_the_slot() {
    let server = slow().await;
    let answer = server.send("/rerank", &[("x-request-timeout-ms", "200")], slow_body().to_string()).await;
    assert!(nested(&answer, 504).starts_with("the deadline has passed"));
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

async fn sent(server: &Served, body: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    let head = format!("POST /rerank HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_caller_that_leaves_frees_the_worker() {
    let server = slow().await;
    let body = slow_body().to_string();
    let stream = sent(&server, &body, body.len()).await;
    common::wait_for("the request begins", || server.admission.in_flight() == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(stream);
    let left = Instant::now();
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    // The work would take seconds.
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_ends_early_frees_its_slot() {
    let server = serve(Scripted::default()).await;
    let stream = sent(&server, "{\"query\": ", 100).await;
    common::wait_for("the request begins", || server.admission.in_flight() == 1).await;
    drop(stream);
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    assert_eq!(server.post("/rerank", &plain()).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_finishes_its_requests() {
    let server = serve_with(Scripted { delay: Duration::from_micros(300), ..Scripted::default() }, alone()).await;
    let body = slow_body().to_string();
    let mut stream = sent(&server, &body, body.len()).await;
    common::wait_for("the request begins", || server.admission.in_flight() == 1).await;
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let stopping = tokio::spawn(server.stop());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stopping.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_fault_hides_its_cause() {
    let server = serve(Scripted { fault: Some(Fault::Error(1)), ..Scripted::default() }).await;
    let answer = server.post("/rerank", &plain()).await;
    assert_eq!(nested(&answer, 500), "internal error; see the log");
    common::wait_for("the model is back", || server.engine.models().serve()).await;
    assert_eq!(server.post("/rerank", &plain()).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_loads_says_so() {
    let loader = Box::new(|_: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    });
    use engine::models::{GeneratorModel, Models, Published};
    use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
    let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
    let models = Models::new(GeneratorModel::new("slow".into(), scheduler, Published::default()), None);
    let engine = engine::Engine::new(models, LIMITS);
    let server = http::serve_engine(engine, 8, options()).await;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.header("retry-after")), (503, "1"));
    let answer = server.post("/rerank", &plain()).await;
    assert!(nested(&answer, 503).starts_with("the model is not available"));
    assert_eq!(answer.header("retry-after"), "1");
    let tei = server.post("/rerank", &json!({ "query": "q", "texts": ["a"] })).await;
    assert_eq!((tei.status, &tei.body["error_type"]), (503, &json!("Unhealthy")));
    let info = server.get("/info").await;
    assert_eq!((info.status, &info.body["error_type"]), (503, &json!("Unhealthy")));
    // The method needs no model, but the answer names one.
    assert_eq!(server.get("/v1/models").await.body["data"][0]["id"], "slow");
    server.stop().await;
}

/// An outer layer sees the caller and the pattern of the path, and can refuse.
#[tokio::test]
async fn a_layer_can_be_put_around_the_router() {
    use axum::extract::{MatchedPath, Request};
    use axum::http::StatusCode;
    use axum::middleware::{Next, from_fn};
    use axum::response::{IntoResponse, Response};
    use server::transport::Peer;

    async fn guard(request: Request, next: Next) -> Response {
        assert!(request.extensions().get::<Peer>().is_some());
        let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        match (path.as_deref(), request.headers().contains_key("authorization")) {
            (Some("/health"), _) | (_, true) => next.run(request).await,
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    }
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let admission = prefix_scheduler::call::Admission::new(queue_length);
    let router = server::http::router(engine, admission, options(), Arc::default()).layer(from_fn(guard));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bounds = server::transport::Bounds::default();
    let options = server::transport::listener::Options::new(server::transport::Protocol::Http1, bounds);
    let server = tokio::spawn(server::transport::listener::serve(listener, router, options, CancellationToken::new()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = |key: Option<&'static str>| {
        let mut request = client.post(format!("{url}/rerank")).body(plain().to_string());
        if let Some(key) = key {
            request = request.header("authorization", key);
        }
        request
    };
    assert_eq!(client.get(format!("{url}/health")).send().await.unwrap().status(), 200);
    assert_eq!(ask(None).send().await.unwrap().status(), 401);
    assert_eq!(ask(Some("Bearer x")).send().await.unwrap().status(), 200);
    server.abort();
}
