//! Spans of a running server, taken by a collector over a socket.
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

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Scripted, wire};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use protocol::v1;
use rerankd::config::Config;
use rerankd::telemetry;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const PASSAGES: [&str; 4] = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta"];
const METHOD: &str = "rerankd.v1.RerankService/Rerank";

#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let named = resource.resource.unwrap().attributes.into_iter().find(|pair| pair.key == "service.name");
            assert_eq!(text(&named.unwrap().value.unwrap().value.unwrap()), "rerankd");
            let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.lock().unwrap().extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = TraceServiceServer::new(self.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        format!("http://{address}")
    }

    /// The span of the request with this id, once it and `number` spans below it have arrived.
    async fn request(&self, id: &str, number: usize) -> (Span, Vec<Span>) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let spans = self.spans.lock().unwrap().clone();
            if let Some(root) = spans.iter().find(|span| attribute(span, "rerankd.request_id").as_deref() == Some(id)) {
                let below: Vec<Span> =
                    spans.iter().filter(|span| span.parent_span_id == root.span_id).cloned().collect();
                if below.len() >= number {
                    return (root.clone(), below);
                }
            }
            assert!(Instant::now() < end, "{id}: {spans:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let pair = span.attributes.iter().find(|pair| pair.key == key)?;
    Some(text(pair.value.as_ref()?.value.as_ref()?))
}

fn count(span: &Span, key: &str) -> Option<i64> {
    match span.attributes.iter().find(|pair| pair.key == key)?.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => Some(*number),
        other => panic!("{key} is {other:?}"),
    }
}

fn asked(id: &'static str, request: v1::RerankRequest) -> Request<v1::RerankRequest> {
    let mut request = Request::new(request);
    request.metadata_mut().insert("x-request-id", id.parse().unwrap());
    request
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap()
}

/// One test: the subscriber belongs to the process, and the export to the runtime of the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_become_spans_with_their_stages() {
    let collector = Collector::default();
    let flags = [("traces.endpoint".to_owned(), collector.start().await)];
    let config = Config::from_parts(None, &[], &flags).unwrap();
    let (subscriber, export) = telemetry::subscriber(&config, false, std::io::sink).unwrap();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let server = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.serve().await;
    let mut client = server.client().await;

    let moi = v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("alpha gamma?", &PASSAGES) };
    let usage = client.rerank(asked("ok", moi)).await.unwrap().into_inner().usage.unwrap();
    let (root, stages) = collector.request("ok", 5).await;
    assert_eq!((root.name.as_str(), root.kind(), root.parent_span_id.len()), (METHOD, SpanKind::Server, 0));
    let of = |key| attribute(&root, key).unwrap_or_default();
    assert_eq!((of("rpc.system.name"), of("rpc.method")), ("grpc".to_owned(), METHOD.to_owned()));
    assert_eq!(of("rpc.response.status_code"), "OK");
    let tokens = Some(i64::try_from(usage.tokens).unwrap());
    assert_eq!((count(&root, "rerankd.passages"), count(&root, "rerankd.tokens")), (Some(4), tokens));
    assert_eq!(attribute(&root, "error.type"), None);
    let names = ["tokenise", "queue", "score", "fit"].map(|name| named(&stages, name).len());
    assert!(names == [2, 1, 1, 1], "tokenising and planning, and one of each other stage: {names:?}");
    assert!(
        stages
            .iter()
            .all(|span| span.trace_id == root.trace_id && span.start_time_unix_nano >= root.start_time_unix_nano)
    );
    let (queue, score) = (named(&stages, "queue")[0], named(&stages, "score")[0]);
    assert!(queue.end_time_unix_nano <= score.start_time_unix_nano + 1_000_000, "the queue comes before the scores");
    assert_eq!(count(score, "rerankd.tokens"), tokens);
    assert!(score.end_time_unix_nano >= score.start_time_unix_nano);

    // The caller's trace goes on.
    let mut request = asked("child", wire("who?", &PASSAGES));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.metadata_mut().insert("traceparent", parent.parse().unwrap());
    client.rerank(request).await.unwrap();
    let (root, stages) = collector.request("child", 3).await;
    let hex = |bytes: &[u8]| bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect::<String>();
    assert_eq!(hex(&root.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&root.parent_span_id), "00f067aa0ba902b7");
    assert!(stages.iter().all(|span| span.trace_id == root.trace_id));

    // If the caller's trace is not recorded, the request is not traced either.
    let mut request = asked("unsampled", wire("who?", &PASSAGES));
    request.metadata_mut().insert("traceparent", parent.replace("-01", "-00").parse().unwrap());
    client.rerank(request).await.unwrap();

    // A fault of the caller is not an error of the span; a passed deadline is.
    client.rerank(asked("invalid", wire("", &PASSAGES))).await.unwrap_err();
    let (root, _) = collector.request("invalid", 0).await;
    assert_eq!(attribute(&root, "rpc.response.status_code").as_deref(), Some("INVALID_ARGUMENT"));
    assert_eq!(root.status.map_or(0, |status| status.code), StatusCode::Unset as i32);
    let mut late = asked("late", wire("who?", &PASSAGES));
    late.set_timeout(Duration::from_millis(100));
    client.rerank(late).await.unwrap_err();
    let (root, _) = collector.request("late", 0).await;
    assert_eq!(attribute(&root, "error.type").as_deref(), Some("DEADLINE_EXCEEDED"));
    assert_eq!(root.status.unwrap().code, StatusCode::Error as i32);

    // Spans over HTTP.
    let json = http::serve(Scripted { delay: Duration::from_millis(1), ..Scripted::default() }).await;
    let body = r#"{"query": "alpha gamma?", "documents": ["alpha beta", "gamma delta"]}"#;
    let answer = json.send("/v1/rerank", &[("traceparent", parent), ("x-request-id", "json")], body.into()).await;
    assert_eq!(answer.status, 200);
    let (root, stages) = collector.request("json", 3).await;
    assert_eq!((hex(&root.trace_id), hex(&root.parent_span_id)), (parent[3..35].to_owned(), parent[36..52].to_owned()));
    assert_eq!((root.name.as_str(), root.kind()), ("POST /v1/rerank", SpanKind::Server));
    assert_eq!(attribute(&root, "http.request.method").as_deref(), Some("POST"));
    assert_eq!(attribute(&root, "http.route").as_deref(), Some("/v1/rerank"));
    assert_eq!((count(&root, "http.response.status_code"), count(&root, "rerankd.passages")), (Some(200), Some(2)));
    assert!(count(&root, "rerankd.tokens").unwrap() > 0 && attribute(&root, "error.type").is_none());
    assert!(stages.iter().all(|span| span.trace_id == root.trace_id));
    assert!(["tokenise", "queue", "score"].iter().all(|name| !named(&stages, name).is_empty()), "{stages:?}");
    let fresh = [("x-request-id", "json-late"), ("x-request-timeout-ms", "1")];
    assert_eq!(json.send("/rerank", &fresh, body.into()).await.status, 504);
    let (root, _) = collector.request("json-late", 0).await;
    assert_eq!((root.parent_span_id.len(), attribute(&root, "error.type").as_deref()), (0, Some("504")));
    assert_eq!(root.status.unwrap().code, StatusCode::Error as i32);
    assert_eq!(json.send("/rerank", &[("x-request-id", "json-bad")], "{".into()).await.status, 400);
    let (root, _) = collector.request("json-bad", 0).await;
    assert_eq!(root.status.map_or(0, |status| status.code), StatusCode::Unset as i32);
    json.stop().await;

    // Pending spans are sent before the process ends.
    client.rerank(asked("last", wire("who?", &PASSAGES))).await.unwrap();
    server.stop().await;
    export.unwrap().flush().await;
    let spans = collector.spans.lock().unwrap().clone();
    assert!(spans.iter().any(|span| attribute(span, "rerankd.request_id").as_deref() == Some("last")));
    assert!(!spans.iter().any(|span| attribute(span, "rerankd.request_id").as_deref() == Some("unsampled")));
    let all = format!("{spans:?}");
    assert!(!all.contains("alpha") && !all.contains("who?"), "no text of a request goes to the collector");
}
