//! Metrics of requests over HTTP/JSON: the codes and reasons of gRPC, also for refusals before a handler.

use std::sync::Arc;
use std::time::Duration;

use crate::{common, http, page};
use common::{LIMITS, Scripted};
use engine::Engine;
use engine::models::{GeneratorModel, Models, Published};
use engine::types::Limits;
use http::{Served, alone};
use page::Page;
use prefix_scheduler::call::{Admission, Place, Terms};
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use serde_json::{Value, json};
use server::observe::Metrics;
use server::transport::{Bounds, Tokens};
use tokio::sync::watch;

/// A server, its metrics and its readiness.
struct Observed {
    server: Served,
    metrics: Arc<Metrics>,
    ready: watch::Sender<bool>,
}

async fn start(engine: Engine, queue_length: usize, tokens: Arc<Tokens>) -> Observed {
    let metrics = Arc::new(Metrics::new(engine.clone()).unwrap());
    let admission = Admission::new(queue_length).observed_by(Arc::clone(&metrics) as _);
    let (ready, readiness) = watch::channel(true);
    let router = server::http::router(engine.clone(), admission.clone(), alone(), tokens);
    let router = server::http::with_readiness(router, readiness);
    Observed { server: http::serve_router(engine, admission, router, Bounds::default()).await, metrics, ready }
}

impl Observed {
    fn page(&self) -> Page {
        Page::parse(&String::from_utf8(self.metrics.page().unwrap()).unwrap())
    }

    fn handled(&self, path: &str, code: &str) -> f64 {
        let labels = [("grpc_service", "http"), ("grpc_method", path), ("grpc_code", code)];
        self.page().sum("grpc_server_handled_total", &labels)
    }

    fn refused(&self, reason: &str) -> f64 {
        let labels: &[_] = if reason.is_empty() { &[] } else { &[("reason", reason)] };
        self.page().sum("rerankd_requests_refused_total", labels)
    }
}

fn plain() -> Value {
    json!({ "query": "question", "documents": ["a question", "b"] })
}

fn with(field: &str, value: Value) -> String {
    let mut body = plain();
    body[field] = value;
    body.to_string()
}

/// Headers, body, the status of the answer, and the code and the reason in the metrics.
type Row<'a> = (&'a [(&'a str, &'a str)], String, u16, &'a str, &'a str);

#[tokio::test]
async fn refusals_have_the_codes_and_reasons_of_grpc() {
    let limits = Limits { tokens: 500, ..LIMITS };
    let (engine, _, _) = Scripted { limits, ..Scripted::default() }.engine().await;
    let observed = start(engine, 1, Arc::default()).await;
    let many = (0..10).map(|number| number.to_string().repeat(100)).collect::<Vec<_>>();
    let late = [("x-request-timeout-ms", "1")];
    let rows: [Row<'_>; 6] = [
        (&[], with("query", json!("")), 422, "InvalidArgument", "invalid"),
        (&[], "{".to_owned(), 400, "InvalidArgument", "invalid"),
        (&[], with("documents", json!(many)), 422, "ResourceExhausted", "budget"),
        (&[], with("rerankd_method", json!("cross-encoder")), 400, "FailedPrecondition", ""),
        (&late, plain().to_string(), 504, "DeadlineExceeded", "deadline"),
        (&[], format!("\"{}\"", "x".repeat(2 << 20)), 413, "OutOfRange", ""),
    ];
    for (headers, body, status, code, reason) in rows {
        let before = (observed.handled("/rerank", code), observed.refused(reason), observed.refused(""));
        let answer = observed.server.send("/rerank", headers, body).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        let one = f64::from(u8::from(!reason.is_empty()));
        let after = (observed.handled("/rerank", code), observed.refused(reason), observed.refused(""));
        assert_eq!(after, (before.0 + 1.0, before.1 + one, before.2 + one), "{code} {reason}");
    }
    let held = observed.server.admission.admit(Terms::default(), Place::Generator).unwrap();
    let full = observed.server.post("/rerank", &plain()).await;
    assert_eq!((full.status, observed.refused("queue_full")), (429, 1.0));
    drop(held);
    common::wait_for("the slot is free", || observed.server.admission.in_flight() == 0).await;
    assert_eq!(observed.server.post("/rerank", &plain()).await.status, 200);
    assert_eq!(observed.handled("/rerank", "OK"), 1.0);
    observed.server.stop().await;
}

#[tokio::test]
async fn refusals_before_a_handler_are_counted() {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let folder = tempfile::tempdir().unwrap();
    let (tokens, token) = http::tokens(folder.path(), "search");
    let observed = start(engine, queue_length, tokens).await;
    assert_eq!(observed.handled("/rerank", "OK"), 0.0);
    let bearer = format!("Bearer {token}");
    let (server, given) = (&observed.server, [("authorization", bearer.as_str())]);
    assert_eq!(server.post("/rerank", &plain()).await.status, 401);
    assert_eq!(server.get("/v1/models").await.status, 401);
    assert_eq!(server.get("/secret-path").await.status, 401);
    assert_eq!(server.get_with("/secret-path", &given).await.status, 404);
    assert_eq!(server.get_with("/rerank", &given).await.status, 405);
    assert_eq!(server.get_with("/v1/models", &given).await.status, 200);
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.get("/").await.status, 401, "the page is not counted");
    for path in ["/rerank", "/v1/models", "unknown"] {
        assert_eq!(observed.handled(path, "Unauthenticated"), 1.0, "{path}");
    }
    assert_eq!(observed.handled("unknown", "Unimplemented"), 1.0);
    assert_eq!((observed.handled("/rerank", "Unimplemented"), observed.handled("/v1/models", "OK")), (1.0, 1.0));
    let page = observed.page();
    assert!(!page.samples.keys().any(|series| series.contains("secret") || series.contains("/health")));
    assert_eq!(page.sum("grpc_server_started_total", &[("grpc_service", "http")]), 6.0);
    assert_eq!(observed.refused(""), 0.0);
    observed.server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_counts_refusals_as_draining() {
    let loader = Box::new(|_: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    });
    let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
    let models = Models::new(GeneratorModel::new("slow".into(), scheduler, Published::default()), None);
    let observed = start(Engine::new(models, LIMITS), 8, Arc::default()).await;
    assert_eq!(observed.server.post("/rerank", &plain()).await.status, 503);
    assert_eq!((observed.refused("unavailable"), observed.refused("draining")), (1.0, 0.0));
    observed.ready.send_replace(false);
    assert_eq!(observed.server.post("/rerank", &plain()).await.status, 503);
    assert_eq!((observed.refused("unavailable"), observed.refused("draining")), (1.0, 1.0));
    observed.server.stop().await;
}
