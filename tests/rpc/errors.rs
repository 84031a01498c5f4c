//! Every row of the error table, over a real channel. The server answers the next request after each.

use std::time::{Duration, Instant};

use crate::common;
use common::scripted::Fault;
use common::{LIMITS, Running, Scripted, wire};
use engine::types::Limits;
use prefix_scheduler::model::Capacity;
use protocol::v1;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

async fn refused(server: &Running, request: v1::RerankRequest) -> Status {
    let status = server.client().await.rerank(request).await.unwrap_err();
    // The server still serves.
    let good = server.client().await.rerank(wire("ab", &["ab", "cd"])).await.unwrap().into_inner();
    assert_eq!(good.results.len(), 2);
    status
}

fn field(status: &Status) -> String {
    let details = status.get_details_bad_request().expect("BadRequest details");
    details.field_violations[0].field.clone()
}

#[tokio::test]
async fn bad_fields_are_named() {
    let server = Scripted::default().serve().await;
    let good = || wire("who?", &["alpha", "beta"]);
    let long = "x".repeat(3 << 20);
    let mut cases: Vec<(&str, v1::RerankRequest)> = vec![
        ("query", wire("", &["alpha"])),
        ("query", wire(" \n\t", &["alpha"])),
        ("query", wire(&"q".repeat(2_000), &["alpha"])),
        ("passages", wire("who?", &[])),
        ("passages", wire("who?", &vec!["x"; 10_000])),
        ("passages[1].text", wire("who?", &["alpha", &long])),
        ("method", v1::RerankRequest { method: 77, ..good() }),
        ("score_threshold", v1::RerankRequest { score_threshold: Some(f64::NAN), ..good() }),
        ("score_threshold", v1::RerankRequest { score_threshold: Some(1.5), ..good() }),
    ];
    for number in [f64::NAN, f64::INFINITY] {
        let mut request = good();
        request.passages[1].retriever_score = Some(number);
        cases.push(("passages[1].retriever_score", request));
    }
    let moi = |moi| v1::RerankRequest { moi: Some(moi), ..good() };
    let base = v1::MoiOptions::default;
    cases.extend([
        ("moi.design", moi(v1::MoiOptions { design: 99, ..base() })),
        ("moi.outcome", moi(v1::MoiOptions { outcome: -1, ..base() })),
        ("moi.score_domain", moi(v1::MoiOptions { score_domain: 42, ..base() })),
        ("moi.objective", moi(v1::MoiOptions { objective: 42, ..base() })),
        ("moi.orders", moi(v1::MoiOptions { orders: 5_000, ..base() })),
        ("moi.sigma2", moi(v1::MoiOptions { sigma2: Some(1.0), ..base() })),
        ("moi.sigma2", moi(v1::MoiOptions { sigma2: Some(f64::NAN), ..base() })),
        ("moi.position_prior", moi(v1::MoiOptions { position_prior: vec![0.9, 0.9], ..base() })),
        ("moi.position_prior", moi(v1::MoiOptions { position_prior: vec![1.0], ..base() })),
        ("moi.position_prior", moi(v1::MoiOptions { position_prior: vec![0.2, 0.8], monotone: true, ..base() })),
        ("moi.copies", moi(v1::MoiOptions { design: v1::Design::Trie.into(), copies: 200, ..base() })),
        ("moi.copies", moi(v1::MoiOptions { copies: 5_000, ..base() })),
        (
            "moi.softmax_temperature",
            moi(v1::MoiOptions {
                score_domain: v1::ScoreDomain::Softmax.into(),
                softmax_temperature: Some(0.0),
                ..base()
            }),
        ),
        (
            "truncation.mode",
            v1::RerankRequest { truncation: Some(v1::Truncation { mode: 9, max_passage_tokens: 0 }), ..good() },
        ),
    ]);
    for (path, request) in cases {
        let status = refused(&server, request).await;
        assert_eq!((status.code(), field(&status).as_str()), (Code::InvalidArgument, path), "{status}");
    }
    // An id may be a whole text. A warning about it is short.
    let mut long = good();
    for passage in &mut long.passages {
        passage.id = "x".repeat(50_000);
    }
    let warnings = server.client().await.rerank(long).await.unwrap().into_inner().warnings;
    assert!(
        warnings.iter().any(|warning| warning.starts_with("passages[1].id: ") && warning.len() < 300),
        "{warnings:?}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_watched_request_names_fields_under_its_own() {
    let server = Scripted::default().serve().await;
    let mut client = server.client().await;
    let empty = client.watch_rerank(v1::WatchRerankRequest { request: None }).await.unwrap_err();
    assert_eq!(field(&empty), "request");
    let unknown = v1::RerankRequest { method: 5_000, ..wire("q", &["a"]) };
    let status = client.watch_rerank(v1::WatchRerankRequest { request: Some(unknown) }).await.unwrap_err();
    assert_eq!(field(&status), "request.method");
    let long = wire("q", &["a", &"x".repeat(3 << 20)]);
    let mut answers = client.watch_rerank(v1::WatchRerankRequest { request: Some(long) }).await.unwrap().into_inner();
    let status = answers.message().await.unwrap_err();
    assert_eq!(field(&status), "request.passages[1].text");
    assert!(status.message().starts_with("request.passages[1].text: "), "{status}");
    server.stop().await;
}

#[tokio::test]
async fn oversized_passages_are_cut_or_refused_with_numbers() {
    let server = Scripted::default().serve().await;
    let text = "lorem ipsum ".repeat(600);
    let cut = server.client().await.rerank(wire("who?", &[&text, "short"])).await.unwrap().into_inner();
    assert!(cut.results.iter().any(|result| result.id == "p0" && result.tokens_cut > 3_000));
    assert!(cut.results.iter().all(|result| result.id == "p0" || result.tokens_cut == 0));
    assert!(cut.warnings.iter().any(|warning| warning.contains("cut")));
    let off = Some(v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 });
    let status = refused(&server, v1::RerankRequest { truncation: off, ..wire("who?", &["short", &text]) }).await;
    assert_eq!((status.code(), field(&status).as_str()), (Code::InvalidArgument, "passages[1].text"));
    let numbers = status.get_details_error_info().unwrap().metadata;
    assert!(numbers["tokens_needed"].parse::<usize>().unwrap() > 7_000);
    assert!(numbers["tokens_available"].parse::<usize>().unwrap() < 4_096);
    // Each passage fits, both together do not.
    let off = Some(v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 });
    let [half, other] = ["lorem ipsum ", "dolor sit am"].map(|text| text.repeat(200));
    let moi = Some(v1::MoiOptions { design: v1::Design::Random.into(), ..v1::MoiOptions::default() });
    let request = v1::RerankRequest { truncation: off, moi, ..wire("who?", &[&half, &other]) };
    assert_eq!(field(&refused(&server, request).await), "passages");
    server.stop().await;
}

#[tokio::test]
async fn a_request_over_the_token_budget_is_refused_before_work() {
    let limits = Limits { tokens: 2_000, ..LIMITS };
    let server = Scripted { limits, ..Scripted::default() }.serve().await;
    let passages: Vec<String> = (0..20).map(|p| format!("{p} {}", "x".repeat(300))).collect();
    let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
    let request = v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("who?", &passages) };
    let status = server.client().await.rerank(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].subject, "limits.tokens_per_request");
    assert!(status.message().contains("at most 2000 allowed"), "{status}");
    assert_eq!(server.observed.steps.load(std::sync::atomic::Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let slow = Scripted { queue_length: 1, delay: Duration::from_micros(300), ..Scripted::default() };
    let server = slow.serve().await;
    let mut client = server.client().await;
    let long = "x".repeat(300);
    let first = tokio::spawn(async move { client.rerank(wire("who?", &[&long, "b", "c"])).await });
    tokio::time::sleep(Duration::from_millis(60)).await;
    let status = server.client().await.rerank(wire("who?", &["a", "b"])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
    assert!(first.await.unwrap().is_ok());
    server.stop().await;
}

#[tokio::test]
async fn deadlines_are_answered_as_such() {
    let server = Scripted { delay: Duration::from_micros(500), ..Scripted::default() }.serve().await;
    for (milliseconds, text) in [(1, "a".repeat(20)), (150, "a".repeat(900))] {
        let mut request = Request::new(wire("who?", &[&text, "b", "c"]));
        // Only the header is set, because the client's timer must not answer first.
        request.metadata_mut().insert("grpc-timeout", format!("{milliseconds}m").parse().unwrap());
        let asked = Instant::now();
        let status = server.client().await.rerank(request).await.unwrap_err();
        // On a busy machine the transport of this client may notice a millisecond before the answer is here.
        let own_timer = milliseconds == 1 && status.message() == "Timeout expired";
        assert!(status.code() == Code::DeadlineExceeded || own_timer, "{milliseconds} ms: {status}");
        assert!(asked.elapsed() < Duration::from_secs(5));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_the_worker() {
    let server = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.serve().await;
    let mut client = server.client().await;
    let text = "x".repeat(900);
    let call = tokio::spawn(async move { client.rerank(wire("who?", &[&text, "b", "c"])).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    call.abort();
    let left = Instant::now();
    let generator = common::generator(&server.engine);
    let stats = generator.scheduler.stats();
    while stats.abandoned.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        assert!(left.elapsed() < Duration::from_secs(10), "the work was not dropped");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.observed.cells.load(std::sync::atomic::Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_failed_step_is_internal_and_hides_its_cause() {
    let server = Scripted { fault: Some(Fault::Error(2)), ..Scripted::default() }.serve().await;
    let status = refused(&server, wire("who?", &["alpha", "beta"])).await;
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("injected"));
    server.stop().await;
}

#[tokio::test]
async fn a_dead_worker_is_unavailable_and_comes_back() {
    let server = Scripted { fault: Some(Fault::Panic(2)), ..Scripted::default() }.serve().await;
    let status = server.client().await.rerank(wire("who?", &["alpha", "beta"])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match server.client().await.rerank(wire("who?", &["alpha", "beta"])).await {
            Ok(answer) => break assert_eq!(answer.into_inner().results.len(), 2),
            Err(status) => assert!(status.code() == Code::Unavailable && Instant::now() < patience, "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    protocol::client::wait_until_serving(&server.address.as_str().into(), Duration::from_secs(20)).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_prompt_longer_than_the_context_names_the_query() {
    let capacity = Capacity { cells: 80, sequences: 8, batch: 16 };
    let server = Scripted { capacity, ..Scripted::default() }.serve().await;
    let status = server.client().await.rerank(wire(&"q".repeat(300), &["a"])).await.unwrap_err();
    assert_eq!((status.code(), field(&status).as_str()), (Code::InvalidArgument, "query"));
    server.stop().await;
}
