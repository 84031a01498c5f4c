//! The life of a call over a real channel: permits, deadlines, cancellation, loading, the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use common::scripted::{ByteTokenizer, Observed, ScriptedGenerator, overlap_script};
use common::{LIMITS, Running, Scripted, wire};
use engine::Engine;
use engine::models::{FileRead, GeneratorModel, Models, Published};
use engine::position_bias::PositionBias;
use prefix_scheduler::model::{Capacity, GeneratorInfo};
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use protocol::v1;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const PASSAGES: [&str; 4] = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta"];

async fn health(server: &Running, service: &str) -> ServingStatus {
    let mut client = HealthClient::new(server.channel().await);
    client.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner().status()
}

/// An engine whose generator loads when `go` is set.
fn loading(go: Arc<AtomicBool>) -> Engine {
    let published = Published::default();
    let place = Arc::clone(&published);
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
        while !go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let info = GeneratorInfo {
            name: "slow".into(),
            sha256: "2".repeat(64),
            encoding: "as shipped".into(),
            running_sha256: "2".repeat(64),
            description: String::new(),
            bytes: 0,
            trained_context: 4_096,
            chat: false,
            frame: prefix_scheduler::model::PromptFormat::Chat,
            yes_no: prefix_scheduler::model::YesNoPrompt::Generic,
            compute: "cpu".into(),
            adapter: None,
            cell_bytes: None,
            cell_type: "f16",
        };
        let tokenizer = Arc::new(ByteTokenizer::default());
        let position_bias = PositionBias::default();
        *place.lock() = Some(FileRead { tokenizer, info, position_bias, calibrations: Vec::new() });
        let capacity = Capacity { cells: 4_096, sequences: 64, batch: 64 };
        serve(&mut ScriptedGenerator::new(capacity, overlap_script(), Arc::new(Observed::default())));
        Ok(())
    });
    let started = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
    Engine::new(Models::new(GeneratorModel::new("slow".into(), started, published), None), LIMITS)
}

#[tokio::test]
async fn the_port_is_open_and_health_is_honest_while_the_model_loads() {
    let go = Arc::new(AtomicBool::new(false));
    let server = common::serve(loading(Arc::clone(&go)), Arc::default(), 8).await;
    for service in ["", "rerankd.v1.RerankService"] {
        assert_eq!(health(&server, service).await, ServingStatus::NotServing, "{service:?}");
    }
    assert_eq!(health(&server, "rerankd.v1.MetricsService").await, ServingStatus::Serving);
    let mut models = v1::model_service_client::ModelServiceClient::new(server.channel().await);
    let info = models.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.generator.unwrap().name, info.worker.unwrap().ready), ("slow".to_owned(), false));
    let early = server.client().await.rerank(wire("who?", &PASSAGES)).await.unwrap_err();
    assert_eq!(early.code(), Code::Unavailable);
    go.store(true, Ordering::SeqCst);
    let end = Instant::now() + Duration::from_secs(20);
    while health(&server, "").await != ServingStatus::Serving {
        assert!(Instant::now() < end);
    }
    server.client().await.rerank(wire("who?", &PASSAGES)).await.unwrap();
    server.stop().await;
}

/// One slot holds for all rounds, so the second round of an adaptive request never meets a full queue.
#[tokio::test]
async fn a_request_keeps_its_slot_through_all_of_its_rounds() {
    let server = Scripted { queue_length: 1, delay: Duration::from_micros(300), ..Scripted::default() }.serve().await;
    let adaptive = v1::MoiOptions {
        design: v1::Design::Adaptive.into(),
        settle_probability: Some(0.999_999),
        rounds: 4,
        ..v1::MoiOptions::default()
    };
    let request = v1::RerankRequest { moi: Some(adaptive), ..wire("alpha gamma?", &PASSAGES) };
    let mut client = server.client().await;
    let running = tokio::spawn(async move { client.rerank(request).await });
    common::wait_for("the request is in", || server.admission.in_flight() == 1).await;
    let mut refused = 0;
    while !running.is_finished() {
        match server.client().await.rerank(wire("who?", &PASSAGES)).await {
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                refused += 1;
            }
            Ok(_) => break,
        }
    }
    let answer = running.await.unwrap().unwrap().into_inner();
    assert!(answer.design.unwrap().rounds > 1 && refused > 0, "{refused} refused");
    server.stop().await;
}

#[tokio::test]
async fn a_slot_is_freed_however_a_call_ends() {
    let server = Scripted { queue_length: 1, delay: Duration::from_millis(20), ..Scripted::default() }.serve().await;
    let mut client = server.client().await;
    let gone = tokio::spawn(async move { client.rerank(wire("who?", &PASSAGES)).await });
    common::wait_for("the request is in", || server.admission.in_flight() == 1).await;
    gone.abort();
    common::wait_for("a caller that left", || server.admission.in_flight() == 0).await;
    let mut late = Request::new(wire("who?", &PASSAGES));
    late.set_timeout(Duration::from_millis(400));
    assert_eq!(server.client().await.rerank(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    common::wait_for("a deadline", || server.admission.in_flight() == 0).await;
    let bad = server.client().await.rerank(wire("", &PASSAGES)).await.unwrap_err();
    assert_eq!(bad.code(), Code::InvalidArgument);
    common::wait_for("a bad request", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_refuses_before_it_decodes() {
    let server = Scripted { queue_length: 1, delay: Duration::from_millis(5), ..Scripted::default() }.serve().await;
    let mut client = server.client().await;
    let running = tokio::spawn(async move { client.rerank(wire("who?", &PASSAGES)).await });
    common::wait_for("the request is in", || server.admission.in_flight() == 1).await;
    // A ranking may need no generator, so the server decodes it if a slot without the generator is free.
    let beside = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Beside)
        .unwrap();
    // Once decoded, this message is refused for its two million passages.
    let large = v1::RerankRequest { passages: vec![v1::Passage::default(); 2_000_000], ..wire("who?", &[]) };
    let refused = server.client().await.rerank(large.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    running.await.unwrap().unwrap();
    // The generator is free, and a context needs nothing else.
    let context =
        v1::BuildContextRequest { request: Some(wire("who?", &PASSAGES)), ..v1::BuildContextRequest::default() };
    server.client().await.build_context(context).await.unwrap();
    drop(beside);
    let refused = server.client().await.rerank(large).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn headers_of_a_call_are_checked() {
    let server = Scripted::default().serve().await;
    let mut request = Request::new(wire("who?", &PASSAGES));
    request.metadata_mut().insert("rerankd-priority", "urgent".parse().unwrap());
    let status = server.client().await.rerank(request).await.unwrap_err();
    assert_eq!((status.code(), common::fields(&status)), (Code::InvalidArgument, vec!["rerankd-priority".to_owned()]));
    let mut request = Request::new(wire("who?", &PASSAGES));
    request.metadata_mut().insert("rerankd-priority", "low".parse().unwrap());
    request.metadata_mut().insert("x-request-id", "abc".parse().unwrap());
    server.client().await.rerank(request).await.unwrap();
    server.stop().await;
}

/// The drain is shorter than the work. Other test servers drain for ten seconds.
#[tokio::test]
async fn the_end_of_the_drain_reaches_a_call_in_flight() {
    let scripted = Scripted { delay: Duration::from_millis(20), ..Scripted::default() };
    let (engine, observed, queue_length) = scripted.engine().await;
    let server = common::serve_draining(engine, observed, queue_length, Duration::from_millis(100)).await;
    let mut client = server.client().await;
    let running = tokio::spawn(async move { client.rerank(wire("who?", &PASSAGES)).await });
    common::wait_for("the request is in", || server.admission.in_flight() == 1).await;
    let stopping = Instant::now();
    server.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(8), "{:?}", stopping.elapsed());
    assert!(running.await.unwrap().is_err());
}

#[tokio::test]
async fn the_last_result_outranks_nobody() {
    let server = Scripted::default().serve().await;
    let cut = v1::RerankRequest { top_n: 2, ..wire("alpha gamma?", &PASSAGES) };
    let results = server.client().await.rerank(cut).await.unwrap().into_inner().results;
    assert!(results[0].outranks_next.is_some() && results[1].outranks_next.is_none());
    server.stop().await;
}

/// A thousand texts could need a million pairs.
#[tokio::test]
async fn clustering_has_a_budget_of_pairs() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, judged) = common::with_scripted_judge(&engine, Duration::ZERO);
    let server = common::serve(engine, observed, queue_length).await;
    let mut client = v1::belief_service_client::BeliefServiceClient::new(server.channel().await);
    let texts: Vec<String> = (0..1_000).map(|number| format!("text{number}")).collect();
    let status = client.cluster(v1::ClusterRequest { texts, ..v1::ClusterRequest::default() }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains(&LIMITS.pairs.to_string()), "{status}");
    assert!(judged.load(Ordering::SeqCst) <= LIMITS.pairs);
    let few: Vec<String> = (0..10).map(|number| format!("text{number}")).collect();
    let clusters = client.cluster(v1::ClusterRequest { texts: few, ..v1::ClusterRequest::default() }).await.unwrap();
    assert_eq!(clusters.into_inner().founders.len(), 10);
    server.stop().await;
}
