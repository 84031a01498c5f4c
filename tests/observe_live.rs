//! Retrieval on live traffic: what is measured, when, and what the log says about it. The log is that of the process.
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
#[path = "common/page.rs"]
mod page;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use common::{Scripted, wait_for, wire};
use engine::Engine;
use engine::live::{LiveFigures, LiveOptions, Skip};
use engine::types::{Passage, UtilityRequest};
use page::{Observable, get, observable};
use prefix_scheduler::call::{Place, Terms};
use protocol::v1;
use protocol::v1::rerank_service_client::RerankServiceClient;
use rerankd::app::{self, Control, Listeners};
use rerankd::config::Config;
use serde_json::json;
use server::transport::Access;
use tokio::net::TcpListener;

/// The log of this process, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let levels = "rerankd=trace,prefix_scheduler=trace,info";
    tracing_subscriber::fmt().with_env_filter(levels).with_writer(move || writer.clone()).init();
    log
});

const ALL: LiveOptions = LiveOptions { sample_ratio: 1.0, passages: 2 };

async fn scripted(scripted: Scripted) -> Engine {
    let (engine, _, _) = scripted.engine().await;
    common::with_scripted_judge(&engine, Duration::ZERO).0
}

/// A server that measures every ranking.
async fn measuring(delay: Duration) -> Observable {
    LazyLock::force(&LOG);
    let engine = scripted(Scripted { delay, ..Scripted::default() }).await;
    let observable = observable(engine.clone(), Arc::default(), 8).await;
    let admission = observable.server.admission.clone();
    tokio::spawn(async move { engine.live.run(ALL, &admission).await });
    // On one thread, its task begins now.
    tokio::task::yield_now().await;
    observable
}

fn skipped(figures: &LiveFigures, reason: Skip) -> u64 {
    figures.skipped[reason as usize]
}

/// The whole server, with its configuration. The page accepts no open listener, so it gets a port that was free a moment
/// ago.
async fn serve(engine: Engine, sample_ratio: &str) -> (String, String, String) {
    let metrics = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let flags = [("metrics.listen", metrics.as_str()), ("live.sample_ratio", sample_ratio)];
    let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = Config::from_parts(None, &[], &flags).unwrap();
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (grpc, http) = (bind().await.unwrap(), bind().await.unwrap());
    let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let addresses = (address(&grpc), address(&http), metrics);
    tokio::spawn(async move {
        let (_operator, control) = Control::new();
        app::serve(&config, engine, Access::default(), Listeners { grpc, http: Some(http) }, control).await.unwrap()
    });
    let client = async || RerankServiceClient::connect(addresses.0.clone()).await;
    while client().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    addresses
}

/// The reduction of semantic entropy that `MeasureUtility` returns.
async fn reduction(engine: &Engine, question: &str, passages: impl Iterator<Item = &'static str>) -> f64 {
    let passages = passages.enumerate().map(|(index, text)| Passage::untitled(index, text.to_owned())).collect();
    let request = UtilityRequest { question: question.to_owned(), passages, list: true, ..UtilityRequest::default() };
    let report = engine.utility.measure(&common::call(), request, None).await.unwrap();
    report.utilities[0].semantic_entropy_reduction.value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rankings_over_grpc_and_http_are_measured_and_no_text_is_logged() {
    LazyLock::force(&LOG);
    let engine = scripted(Scripted::default()).await;
    let (grpc, http, metrics) = serve(engine.clone(), "1").await;
    let mut client = RerankServiceClient::connect(grpc).await.unwrap();
    let passages = ["marmoset", "ocelot", "capybara"];
    let ranked = client.rerank(wire("zebrafinch", &passages)).await.unwrap().into_inner();
    let body = json!({ "query": "zebrafinch", "documents": passages });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .post(format!("{http}/v1/rerank"))
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    wait_for("both are measured", || engine.live.figures().measured() == 2).await;
    assert_eq!(engine.live.figures().skipped, [0; Skip::ALL.len()]);
    let first = ranked.results.iter().map(|result| passages[result.original_index as usize]);
    let expected = reduction(&engine, "zebrafinch", first).await;
    let sum = engine.live.figures().sum;
    assert!((sum - 2.0 * expected).abs() < 1e-12, "{sum}, twice {expected} expected");
    let (_, body) = get(&metrics, "/metrics").await;
    let page = page::Page::parse(&body);
    let exported = |part: &str| page.sum(&format!("rerankd_live_entropy_reduction_nats_{part}"), &[]);
    assert_eq!((exported("count"), exported("sum")), (2.0, engine.live.figures().sum));
    assert_eq!(page.sum("rerankd_request_passages_count", &[]), 2.0, "a measurement is no request");
    let text = String::from_utf8(LOG.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("reranked"), "{text}");
    for secret in ["zebrafinch", "marmoset", "ocelot", "capybara"] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_measured_by_default() {
    LazyLock::force(&LOG);
    let engine = scripted(Scripted::default()).await;
    let (grpc, ..) = serve(engine.clone(), "0").await;
    let mut client = RerankServiceClient::connect(grpc).await.unwrap();
    for _ in 0..20 {
        client.rerank(wire("alpha?", &["alpha", "beta"])).await.unwrap();
    }
    assert_eq!(engine.live.figures(), LiveFigures::default(), "not even the queue was full");
}

/// One request runs all the time, and others come and go. What does not fit the queue is dropped.
#[tokio::test]
async fn a_busy_server_measures_nothing() {
    let observable = measuring(Duration::ZERO).await;
    let (live, admission) = (&observable.server.engine.live, &observable.server.admission);
    let held = admission.admit(Terms::default(), Place::Beside).unwrap();
    let mut client = observable.server.client().await;
    for _ in 0..30 {
        client.rerank(wire("alpha?", &["alpha", "beta", "gamma"])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let figures = live.figures();
    assert_eq!((figures.measured(), skipped(&figures, Skip::Interrupted)), (0, 0));
    assert_eq!(skipped(&figures, Skip::QueueFull), 30 - 17, "sixteen wait, and one is next");
    drop(held);
    wait_for("the idle server measures", || live.figures().measured() > 0).await;
}

/// The measurement would take seconds. It leaves nothing in the generator.
#[tokio::test]
async fn a_request_ends_a_measurement() {
    let observable = measuring(Duration::from_millis(2)).await;
    let mut client = observable.server.client().await;
    client.rerank(wire("alpha?", &["alpha", "beta"])).await.unwrap();
    let running = |page: &page::Page| page.sum("rerankd_requests_running", &[]);
    observable.scrape_until("the request ended", |page| running(page) == 0.0).await;
    observable.scrape_until("the measurement runs", |page| running(page) == 1.0).await;
    assert_eq!(observable.server.admission.in_flight(), 0);
    client.rerank(wire("beta?", &["alpha", "beta"])).await.unwrap();
    let page = observable
        .scrape_until("it ended", |page| {
            page.sum("rerankd_live_skipped_total", &[("reason", "interrupted")]) == 1.0 && running(page) == 0.0
        })
        .await;
    assert_eq!(page.sum("rerankd_live_entropy_reduction_nats_count", &[]), 0.0);
    assert_eq!(page.sum("rerankd_backlog_tokens", &[]), 0.0);
}

#[tokio::test]
async fn a_ranking_without_passages_is_counted_as_empty() {
    let observable = measuring(Duration::ZERO).await;
    let mut client = observable.server.client().await;
    let request = v1::RerankRequest { score_threshold: Some(1.0), ..wire("alpha?", &["alpha", "beta"]) };
    assert!(client.rerank(request).await.unwrap().into_inner().results.is_empty());
    client.rerank(wire("alpha?", &["", " "])).await.unwrap();
    assert_eq!(skipped(&observable.server.engine.live.figures(), Skip::Empty), 2);
}
