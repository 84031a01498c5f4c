//! Requests without the generator are admitted while its queue is full, over real sockets.

use std::time::Duration;

use crate::{common, http};
use common::passage_models::{folder, request, serve_model};
use common::{Running, generator};
use prefix_scheduler::call::{Call, Place, Priority, Terms};
use protocol::v1;
use protocol::v1::metrics_service_client::MetricsServiceClient;
use serde_json::json;
use tonic::{Code, Request};

const PASSAGES: [&str; 2] = ["the moon makes the tide", "bread with salt"];

async fn code(running: &Running, method: v1::Method) -> Code {
    let mut asked = Request::new(request(method, &PASSAGES));
    asked.set_timeout(Duration::from_secs(20));
    running.client().await.rerank(asked).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// Methods without the generator are served; others are refused.
async fn check(running: &Running) {
    for method in [v1::Method::CrossEncoder, v1::Method::Retriever] {
        assert_eq!(code(running, method).await, Code::Ok, "{method:?}");
    }
    for method in [v1::Method::Unspecified, v1::Method::QueryGeneration, v1::Method::Moi] {
        assert_eq!(code(running, method).await, Code::ResourceExhausted, "{method:?}");
    }
    let mut metrics = MetricsServiceClient::new(running.channel().await);
    let status = metrics.correlate(v1::CorrelateRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "it was decoded: {}", status.message());
}

#[tokio::test]
async fn a_full_queue_of_the_generator_refuses_only_its_requests() {
    let running = serve_model("reranker", &folder("one")).await;
    let take = || running.admission.admit(Terms::default(), Place::Generator).unwrap();
    let held: Vec<Call> = (0..running.admission.limit()).map(|_| take()).collect();
    check(&running).await;
    drop(held);
    assert_eq!(code(&running, v1::Method::QueryGeneration).await, Code::Ok);
    common::wait_for("no permit is left", || running.admission.in_flight() == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn work_ahead_of_the_generator_refuses_only_its_requests() {
    let running = serve_model("reranker", &folder("one")).await;
    // The first request measures the speed.
    assert_eq!(code(&running, v1::Method::QueryGeneration).await, Code::Ok);
    let scheduler = generator(&running.engine).scheduler.clone();
    let terms = Terms { priority: Priority::HIGH, ..Terms::default() };
    let ahead = running.admission.admit(terms, Place::Beside).unwrap();
    ahead.expect(scheduler.ledger(), 1 << 50);
    check(&running).await;
    drop(ahead);
    assert_eq!(code(&running, v1::Method::QueryGeneration).await, Code::Ok);
    running.stop().await;
}

#[tokio::test]
async fn the_same_holds_over_http() {
    let running = serve_model("reranker", &folder("one")).await;
    let json = http::serve_engine(running.engine.clone(), 2, http::options()).await;
    let held: Vec<Call> = (0..2).map(|_| json.admission.admit(Terms::default(), Place::Generator).unwrap()).collect();
    let body = |method: &str| json!({ "query": "tide", "documents": PASSAGES, "rerankd_method": method });
    assert_eq!(json.post("/rerank", &body("cross-encoder")).await.status, 200);
    assert_eq!(json.post("/rerank", &body("query-generation")).await.status, 429);
    let pairs = |method: &str| json!({ "text_1": "tide", "text_2": PASSAGES, "rerankd_method": method });
    assert_eq!(json.post("/score", &pairs("cross-encoder")).await.status, 200);
    assert_eq!(json.post("/score", &pairs("query-generation")).await.status, 429);
    drop(held);
    assert_eq!(json.post("/score", &pairs("query-generation")).await.status, 200);
    json.stop().await;
    running.stop().await;
}
