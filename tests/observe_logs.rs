//! Log lines of a running server: request ids, one line per request, no text of requests.
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

mod common;
#[path = "common/http.rs"]
mod http;

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use common::scripted::Fault;
use common::{Scripted, wire};
use prefix_scheduler::call::Admission;
use protocol::v1;
use rerankd::config::Config;
use rerankd::telemetry;
use serde_json::{Value, json};
use server::rpc::server::ServerOptions;
use server::transport::{Access, Bounds};
use tonic::{Code, Request};
use tracing::callsite::{Callsite, Identifier};
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};

const PASSAGES: [&str; 4] = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta"];

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log of this process, as JSON.
static LOG: LazyLock<Lines> = LazyLock::new(|| {
    let lines = Lines::default();
    let flags = [("log.format".to_owned(), "json".to_owned())];
    let config = Config::from_parts(None, &[], &flags).unwrap();
    let writer = lines.clone();
    let (subscriber, export) = telemetry::subscriber(&config, false, move || writer.clone()).unwrap();
    assert!(export.is_none());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    lines
});

fn all() -> Vec<Value> {
    let bytes = LOG.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// True if a line belongs to a request, by its field or by a span around it.
fn belongs(line: &Value, id: &str) -> bool {
    let spans = line["spans"].as_array().cloned().unwrap_or_default();
    line["fields"]["id"] == id || spans.iter().any(|span| span["id"] == id)
}

/// The line "answered" of a request.
async fn answered(id: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let lines: Vec<Value> =
            all().into_iter().filter(|line| belongs(line, id) && line["fields"]["message"] == "answered").collect();
        assert!(lines.len() < 2, "{lines:?}");
        if let Some(line) = lines.into_iter().next() {
            return line["fields"].clone();
        }
        assert!(Instant::now() < end, "{id}: {:?}", all());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn asked(id: &str, request: v1::RerankRequest) -> Request<v1::RerankRequest> {
    let mut request = Request::new(request);
    request.metadata_mut().insert("x-request-id", id.parse().unwrap());
    request
}

#[tokio::test]
async fn a_request_has_one_line_with_its_id_and_counts() {
    LazyLock::force(&LOG);
    let server = Scripted::default().serve().await;
    let answer = server.client().await.rerank(asked("one-1", wire("alpha gamma?", &PASSAGES))).await.unwrap();
    assert_eq!(answer.metadata().get("x-request-id").unwrap(), "one-1");
    let line = answered("one-1").await;
    assert_eq!(line["method"], "rerankd.v1.RerankService/Rerank");
    assert_eq!((&line["code"], &line["passages"]), (&Value::from("OK"), &Value::from(4)));
    assert_eq!(line["tokens"], Value::from(answer.into_inner().usage.unwrap().tokens));
    assert!(line["milliseconds"].as_f64().unwrap() > 0.0);
    assert!(line["caller"].as_str().unwrap().starts_with("127.0.0.1:"));
    let text = all().into_iter().filter(|line| belongs(line, "one-1")).map(|line| line.to_string()).collect::<String>();
    assert!(!text.contains("alpha") && !text.contains("gamma"), "{text}");
    server.stop().await;
}

#[tokio::test]
async fn an_id_is_made_cleaned_and_bounded() {
    LazyLock::force(&LOG);
    let server = Scripted::default().serve().await;
    let id = async |given: Option<&str>| {
        let mut request = Request::new(wire("who?", &PASSAGES));
        if let Some(given) = given {
            request.metadata_mut().insert("x-request-id", given.parse().unwrap());
        }
        let answer = server.client().await.rerank(request).await.unwrap();
        answer.metadata().get("x-request-id").unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(id(Some("a b\"c\\d{e}=1")).await, "abcde=1");
    let made = [id(None).await, id(Some(&"x".repeat(129))).await, id(Some("\"\"")).await];
    assert!(made.iter().all(|id| !id.is_empty() && id.len() < 40 && !id.contains('x')), "{made:?}");
    assert!(made[0] != made[1] && made[1] != made[2]);
    assert_eq!(answered(&made[0]).await["code"], "OK");
    server.stop().await;
}

#[tokio::test]
async fn refused_cancelled_and_late_requests_have_their_line_too() {
    LazyLock::force(&LOG);
    let server = Scripted { delay: Duration::from_millis(2), queue_length: 1, ..Scripted::default() }.serve().await;
    let refused = server.client().await.rerank(asked("bad-1", wire("", &PASSAGES))).await.unwrap_err();
    assert_eq!(refused.metadata().get("x-request-id").unwrap(), "bad-1");
    assert_eq!(answered("bad-1").await["code"], "InvalidArgument");
    let mut client = server.client().await;
    let gone = tokio::spawn(async move { client.rerank(asked("gone-1", wire("who?", &PASSAGES))).await });
    while server.admission.in_flight() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let full = server.client().await.rerank(asked("full-1", wire("who?", &PASSAGES))).await.unwrap_err();
    assert_eq!(full.metadata().get("x-request-id").unwrap(), "full-1");
    assert_eq!(answered("full-1").await["code"], "ResourceExhausted");
    gone.abort();
    assert_eq!(answered("gone-1").await["code"], "Canceled");
    while server.admission.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut late = asked("late-1", wire("who?", &PASSAGES));
    late.set_timeout(Duration::from_millis(400));
    assert_eq!(server.client().await.rerank(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(answered("late-1").await["code"], "DeadlineExceeded");
    server.stop().await;
}

#[tokio::test]
async fn a_fault_is_logged_under_the_id_of_its_request() {
    LazyLock::force(&LOG);
    let server = Scripted { fault: Some(Fault::Error(1)), ..Scripted::default() }.serve().await;
    let status = server.client().await.rerank(asked("fault-1", wire("who?", &PASSAGES))).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    let lines = all();
    let fault = |line: &&Value| belongs(line, "fault-1") && line["fields"]["message"] == "request failed";
    let line = lines.iter().find(fault).unwrap();
    assert!(line["fields"]["error"].as_str().unwrap().contains("injected"), "{line}");
    server.stop().await;
}

#[tokio::test]
async fn a_fault_over_http_is_logged_under_its_id() {
    LazyLock::force(&LOG);
    let server =
        http::serve_with(Scripted { fault: Some(Fault::Error(1)), ..Scripted::default() }, http::alone()).await;
    let body = json!({ "query": "who?", "documents": PASSAGES }).to_string();
    assert_eq!(server.send("/rerank", &[("x-request-id", "fault-http")], body).await.status, 500);
    let lines = all();
    let fault = |line: &&Value| belongs(line, "fault-http") && line["fields"]["message"] == "request failed";
    assert!(lines.iter().any(|line| fault(&line)));
    server.stop().await;
}

fn lines(id: &str) -> usize {
    all().iter().filter(|line| belongs(line, id)).count()
}

/// Requests without a token must not fill the log.
#[tokio::test]
async fn a_line_names_the_token_and_a_request_without_one_has_none() {
    LazyLock::force(&LOG);
    let folder = tempfile::tempdir().unwrap();
    let (tokens, token) = http::tokens(folder.path(), "search-frontend");
    let access = Access { tokens, ..Access::default() };
    let server = Scripted::default().serve_with(ServerOptions { access, ..ServerOptions::default() }).await;
    let status = server.client().await.rerank(asked("none-1", wire("who?", &PASSAGES))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let mut given = asked("some-1", wire("who?", &PASSAGES));
    given.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    server.client().await.rerank(given).await.unwrap();
    let line = answered("some-1").await;
    assert_eq!((&line["name"], &line["code"]), (&json!("search-frontend"), &json!("OK")));
    assert!(line["caller"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(lines("none-1"), 0);
    server.stop().await;
}

#[tokio::test]
async fn requests_over_http_have_their_line() {
    LazyLock::force(&LOG);
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let (admission, folder) = (Admission::new(queue_length), tempfile::tempdir().unwrap());
    let (tokens, token) = http::tokens(folder.path(), "search-frontend");
    let router = server::http::router(engine.clone(), admission.clone(), http::options(), tokens);
    let server = http::serve_router(engine, admission, router, Bounds::default()).await;
    let body = json!({ "query": "who?", "documents": PASSAGES }).to_string();
    assert_eq!(server.send("/rerank", &[("x-request-id", "http-none")], body.clone()).await.status, 401);
    let bearer = format!("Bearer {token}");
    let given = |id: &'static str| [("x-request-id", id), ("authorization", bearer.as_str())];
    assert_eq!(server.get_with("/rerank", &given("http-method")).await.status, 405);
    assert_eq!(server.send("/rerank", &given("http-some"), body).await.status, 200);
    let line = answered("http-some").await;
    assert_eq!((&line["path"], &line["status"], &line["passages"]), (&json!("/rerank"), &json!(200), &json!(4)));
    assert_eq!(line["name"], "search-frontend");
    assert!(line["caller"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(answered("http-method").await["status"], 405);
    assert_eq!(lines("http-none"), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_over_http_has_its_line() {
    use tokio::io::AsyncWriteExt;
    LazyLock::force(&LOG);
    let scripted = Scripted { delay: Duration::from_millis(3), ..Scripted::default() };
    let server = http::serve_with(scripted, http::alone()).await;
    let body = json!({ "query": "question", "documents": ["x ".repeat(500), "question".to_owned()] }).to_string();
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /rerank HTTP/1.1\r\nhost: x\r\nx-request-id: http-gone\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    common::wait_for("the request begins", || server.admission.in_flight() == 1).await;
    drop(stream);
    assert_eq!(answered("http-gone").await["status"], 499);
    server.stop().await;
}

/// An event of llama.cpp, as its binding sends them: two checks of `enabled`, then two events, of which the first was
/// held back.
struct OfLlama;

static OF_LLAMA: OfLlama = OfLlama;
static METADATA: Metadata<'static> = Metadata::new(
    "log event",
    "llama-cpp-2",
    Level::INFO,
    None,
    None,
    None,
    FieldSet::new(&["message"], Identifier(&OF_LLAMA)),
    Kind::EVENT,
);

impl Callsite for OfLlama {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &'static Metadata<'static> {
        &METADATA
    }
}

#[test]
fn lines_of_llama_cpp_that_the_filter_refuses_stay_out() {
    LazyLock::force(&LOG);
    tracing::dispatcher::get_default(|dispatcher| {
        for _ in 0..2 {
            let _ = dispatcher.enabled(&METADATA);
        }
        for text in ["[   1/ 272] held back", "size = 0.002 MiB"] {
            let message = METADATA.fields().field("message").unwrap();
            let values = [(&message, Some(&text as &dyn tracing::field::Value))];
            dispatcher.event(&Event::new(&METADATA, &METADATA.fields().value_set(&values)));
        }
    });
    assert!(!all().iter().any(|line| line["fields"]["message"] == "size = 0.002 MiB"));
}

/// Probes come every few seconds, and their lines would bury the others.
#[tokio::test]
async fn health_checks_have_no_line() {
    LazyLock::force(&LOG);
    let server = Scripted::default().serve().await;
    let mut client = tonic_health::pb::health_client::HealthClient::new(server.channel().await);
    let mut request = Request::new(tonic_health::pb::HealthCheckRequest { service: String::new() });
    request.metadata_mut().insert("x-request-id", "health-1".parse().unwrap());
    client.check(request).await.unwrap();
    assert!(!all().iter().any(|line| belongs(line, "health-1")));
    server.stop().await;
}
