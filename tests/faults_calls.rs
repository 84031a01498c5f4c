//! Calls that end badly: callers that vanish, messages that never end, a model that fails under load. After each of
//! them the server holds nothing of the call, and still serves.
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
#[path = "common/leaks.rs"]
mod leaks;
#[path = "common/raw.rs"]
mod raw;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::scripted::Fault;
use common::{Running, Scripted, wire};
use leaks::{no_descriptor_is_left, nothing_is_left};
use prost::Message;
use protocol::{tei_v1, v1};
use raw::{Connection, framed};
use server::rpc::server::ServerOptions;
use server::transport::Bounds;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::{Code, Request};

const PASSAGES: [&str; 3] = ["alpha beta gamma", "delta epsilon zeta", "eta theta iota"];
const RERANK: &str = "/rerankd.v1.RerankService/Rerank";

/// Descriptors are counted for the whole process, so one test runs at a time.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

async fn serves(server: &Running) {
    for _ in 0..3 {
        let answer = server.client().await.rerank(wire("who is alpha?", &PASSAGES)).await.unwrap();
        assert_eq!(answer.into_inner().results.len(), 3);
    }
}

/// Runs one request of the operation `number % 4` to its end.
async fn ask(channel: tonic::transport::Channel, number: usize) -> Result<(), tonic::Status> {
    let mut reranks = v1::rerank_service_client::RerankServiceClient::new(channel.clone());
    let request = wire(["who is alpha?", "where is delta?"][number / 4 % 2], &PASSAGES);
    match number % 4 {
        0 => drop(reranks.rerank(request).await?),
        1 => {
            let watched = v1::WatchRerankRequest { request: Some(request) };
            let mut events = reranks.watch_rerank(watched).await?.into_inner();
            while events.message().await?.is_some() {}
        }
        2 => {
            let ask =
                |id: usize| v1::RerankStreamRequest { request_id: id.to_string(), request: Some(request.clone()) };
            let mut answers = reranks.rerank_stream(tokio_stream::iter([ask(0), ask(1)])).await?.into_inner();
            while answers.message().await?.is_some() {}
        }
        _ => {
            let mut beliefs = v1::belief_service_client::BeliefServiceClient::new(channel);
            let sampling = v1::SamplingOptions { samples: 2, max_tokens: 8, ..v1::SamplingOptions::default() };
            let (question, passages) = (request.query, request.passages);
            let sample = v1::SampleRequest { question, passages, sampling: Some(sampling), ..Default::default() };
            let mut events = beliefs.sample(sample).await?.into_inner();
            while events.message().await?.is_some() {}
        }
    }
    Ok(())
}

/// A thousand requests of four operations, cancelled at moments from their sending to a few times their service: before
/// they are read, in the queue, between steps, while answers are sent. Half of them close their connections, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancelled_requests_leave_nothing() {
    let _alone = alone().await;
    let server = Scripted { queue_length: 512, delay: Duration::from_micros(20), ..Scripted::default() }.serve().await;
    serves(&server).await;
    let before = leaks::descriptors("self");
    // The shortest of four, because after a pause of the machine all requests would be answered.
    let mut longest = Duration::MAX;
    for _ in 0..4 {
        let began = Instant::now();
        for number in 0..4 {
            ask(server.channel().await, number).await.unwrap();
        }
        longest = longest.min(began.elapsed() * 4);
    }
    let (shared, room) = (server.channel().await, Arc::new(Semaphore::new(48)));
    let mut cancelled = JoinSet::new();
    for number in 0..1_000_usize {
        let place = Arc::clone(&room).acquire_owned().await.unwrap();
        let channel = if number % 8 < 4 { shared.clone() } else { server.channel().await };
        // All values from 0 to 996, in a scattered order.
        let share = u32::try_from(number * 617 % 997).unwrap();
        cancelled.spawn(async move {
            let _place = place;
            tokio::time::timeout(longest * share / 997, ask(channel, number)).await
        });
    }
    let mut ends = BTreeMap::new();
    while let Some(end) = cancelled.join_next().await {
        let end = match end.unwrap() {
            Err(_) => "given up".to_owned(),
            Ok(Ok(())) => "answered".to_owned(),
            // A full server refuses.
            Ok(Err(status)) => format!("{:?}", status.code()),
        };
        *ends.entry(end).or_insert(0) += 1;
    }
    println!("{ends:?}");
    let known = ["given up", "answered", "ResourceExhausted"];
    assert!(ends.keys().all(|end| known.contains(&end.as_str())), "{ends:?}");
    assert!(ends.get("given up").is_some_and(|number| *number > 50), "{ends:?}");
    nothing_is_left(&server, "a thousand cancelled requests").await;
    let abandoned = common::generator(&server.engine).scheduler.stats().abandoned.load(Ordering::SeqCst);
    assert!(abandoned > 0, "none was given up while the generator worked for it");
    drop(shared);
    serves(&server).await;
    nothing_is_left(&server, "requests that were answered").await;
    no_descriptor_is_left(before).await;
    server.stop().await;
}

/// The first half of a message, and then nothing: a reset, a closed connection, or silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_message_holds_its_slot_for_a_bounded_time() {
    let _alone = alone().await;
    let server = Scripted::default().serve().await;
    serves(&server).await;
    let before = leaks::descriptors("self");
    let message = framed(&wire("who is alpha?", &PASSAGES).encode_to_vec());
    let half = &message[..message.len() / 2];
    let held = || common::wait_for("the request is in", || server.admission.in_flight() == 1);

    let mut connection = Connection::open(&server.address).await;
    let mut begun = connection.begin(RERANK, &[], half).await;
    held().await;
    begun.body.send_reset(h2::Reason::CANCEL);
    nothing_is_left(&server, "a stream that was reset").await;

    let _begun = connection.begin(RERANK, &[], half).await;
    held().await;
    drop(connection);
    nothing_is_left(&server, "a connection that was closed").await;

    let mut connection = Connection::open(&server.address).await;
    let begun = connection.begin(RERANK, &[("grpc-timeout", "500m")], half).await;
    held().await;
    assert_eq!(raw::code(begun.answer.await.unwrap()).await, Code::DeadlineExceeded);
    nothing_is_left(&server, "the caller's deadline").await;

    // The stream ends in the middle of the message.
    let mut begun = connection.begin(RERANK, &[], half).await;
    begun.body.send_data(bytes::Bytes::new(), true).unwrap();
    assert_eq!(raw::code(begun.answer.await.unwrap()).await, Code::InvalidArgument);

    // Without a deadline the server's own applies: half a minute, or less for the parts of a stream.
    let text = tei_v1::RerankStreamRequest { query: "who?".into(), text: "alpha".into(), ..Default::default() };
    let text = framed(&text.encode_to_vec());
    let streamed = [text.clone(), text[..text.len() / 2].to_vec()].concat();
    let began = Instant::now();
    let unary = connection.begin(RERANK, &[], half).await;
    let stream = connection.begin("/tei.v1.Rerank/RerankStream", &[], &streamed).await;
    // It also applies to methods without a slot, which health and information are.
    let health = connection.begin("/grpc.health.v1.Health/Check", &[], &[0, 0, 0, 0, 9, 10]).await;
    let info = connection.begin("/rerankd.v1.ModelService/GetServerInfo", &[], &[0, 0, 0, 0, 9, 10]).await;
    for begun in [unary, stream, health, info] {
        let answer = tokio::time::timeout(Duration::from_secs(40), begun.answer).await.expect("no answer").unwrap();
        assert_eq!(raw::code(answer).await, Code::DeadlineExceeded);
        drop(begun.body);
    }
    assert!(began.elapsed() > Duration::from_secs(5), "{:?}", began.elapsed());
    nothing_is_left(&server, "the server's own deadline").await;
    serves(&server).await;
    drop(connection);
    no_descriptor_is_left(before).await;
    server.stop().await;
}

/// Half of a message on a stream of many requests: the requests before it are answered, the rest holds no slot, and the
/// stream ends. A shorter silence does not end a stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_stops_in_a_message_is_answered_up_to_there() {
    let _alone = alone().await;
    let bounds = Bounds { idle: Some(Duration::from_secs(5)), ..Bounds::default() };
    let server = Scripted::default().serve_with(ServerOptions { bounds, ..ServerOptions::default() }).await;
    let ask =
        |id: &str| v1::RerankStreamRequest { request_id: id.into(), request: Some(wire("who is alpha?", &PASSAGES)) };
    let (first, second) = (framed(&ask("a").encode_to_vec()), framed(&ask("b").encode_to_vec()));
    let sent = [&first[..], &second[..second.len() / 2]].concat();
    let mut connection = Connection::open(&server.address).await;
    let begun = connection.begin("/rerankd.v1.RerankService/RerankStream", &[], &sent).await;
    let mut answers = begun.answer.await.unwrap().into_body();
    let answer = answers.data().await.unwrap().unwrap();
    let answer = v1::RerankStreamResponse::decode(&answer[5..]).unwrap();
    assert_eq!(answer.request_id, "a");
    nothing_is_left(&server, "a half-sent request of a stream").await;
    let mut silent = connection.begin("/rerankd.v1.RerankService/RerankStream", &[], &first).await;
    let mut answered = (&mut silent.answer).await.unwrap().into_body();
    answered.data().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    silent.body.send_data(second.into(), false).unwrap();
    let answer = answered.data().await.unwrap().unwrap();
    assert_eq!(v1::RerankStreamResponse::decode(&answer[5..]).unwrap().request_id, "b");
    let end = tokio::time::timeout(Duration::from_secs(40), answers.trailers()).await.expect("it goes on").unwrap();
    assert_eq!(end.unwrap()["grpc-status"], "4");
    drop(connection);
    serves(&server).await;
    server.stop().await;
}

/// A stream that nobody reads must not use up the window of its connection, or messages on other streams do not get
/// through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_read_holds_up_no_other() {
    let _alone = alone().await;
    let server = Scripted { queue_length: 2, ..Scripted::default() }.serve().await;
    let held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    let mut connection = Connection::open(&server.address).await;
    let message = framed(&wire("who is alpha?", &PASSAGES).encode_to_vec());
    let (half, rest) = message.split_at(message.len() / 2);
    // This request has the second slot. The requests of the stream wait for one, so the stream is not read.
    let mut begun = connection.begin(RERANK, &[], half).await;
    common::wait_for("the request is in", || server.admission.in_flight() == 2).await;
    let ask =
        |id: usize| v1::RerankStreamRequest { request_id: id.to_string(), request: Some(wire("who?", &PASSAGES)) };
    let few: Vec<u8> = (0..4).flat_map(|id| framed(&ask(id).encode_to_vec())).collect();
    let unread = framed(&vec![0; 4 << 20]);
    let stream = connection.begin("/rerankd.v1.RerankService/RerankStream", &[], &[few, unread].concat()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    begun.body.send_data(bytes::Bytes::copy_from_slice(rest), true).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(40), begun.answer).await.expect("no answer").unwrap();
    assert_eq!(raw::code(answer).await, Code::Ok);
    drop((stream, held, connection));
    nothing_is_left(&server, "a stream that was not read").await;
    serves(&server).await;
    server.stop().await;
}

/// A step fails, or the worker dies, while eight calls share the generator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_fails_under_load_fails_calls_and_keeps_nothing() {
    let _alone = alone().await;
    for (fault, code) in [
        (Fault::Error(9), Code::Internal),
        (Fault::Error(2), Code::Internal),
        (Fault::Panic(9), Code::Unavailable),
        (Fault::Panic(2), Code::Unavailable),
    ] {
        let scripted =
            Scripted { fault: Some(fault), queue_length: 64, delay: Duration::from_micros(20), ..Scripted::default() };
        let server = scripted.serve().await;
        let mut load = JoinSet::new();
        for number in 0..8 {
            let channel = server.channel().await;
            load.spawn(ask(channel, number));
        }
        let mut failed = 0;
        while let Some(outcome) = load.join_next().await {
            if let Err(status) = outcome.unwrap() {
                assert_eq!(status.code(), code, "{fault:?}: {status:?}");
                assert!(!status.message().contains("injected"), "{status:?}");
                failed += 1;
            }
        }
        println!("{fault:?}: {failed} of 8 calls failed");
        let address = server.address.as_str().into();
        protocol::client::wait_until_serving(&address, Duration::from_secs(20)).await.unwrap();
        // A dead generator no longer counts its cells. Its replacement counts from its first step on.
        serves(&server).await;
        nothing_is_left(&server, "a model that failed").await;
        server.stop().await;
    }
}

/// A caller that leaves while its samples are streamed to it, by closing its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_from_a_response_leaves_nothing() {
    let _alone = alone().await;
    let server = Scripted { delay: Duration::from_micros(200), ..Scripted::default() }.serve().await;
    serves(&server).await;
    let before = leaks::descriptors("self");
    let sampling = v1::SamplingOptions { samples: 16, max_tokens: 64, ..v1::SamplingOptions::default() };
    let sample = v1::SampleRequest {
        question: "who is alpha?".into(),
        passages: wire("", &PASSAGES).passages,
        sampling: Some(sampling),
        ..v1::SampleRequest::default()
    };
    let mut connection = Connection::open(&server.address).await;
    let message = framed(&sample.encode_to_vec());
    let mut begun = connection.begin("/rerankd.v1.BeliefService/Sample", &[], &message).await;
    begun.body.send_data(bytes::Bytes::new(), true).unwrap();
    let mut events = begun.answer.await.unwrap().into_body();
    events.data().await.unwrap().unwrap();
    assert!(leaks::left(&server) > 0, "the samples are drawn already");
    drop(connection);
    nothing_is_left(&server, "a client that vanished").await;
    drop(events);

    // Then a client library stops reading.
    let mut client = v1::belief_service_client::BeliefServiceClient::new(server.channel().await);
    let mut request = Request::new(sample);
    request.set_timeout(Duration::from_mins(1));
    let mut events = client.sample(request).await.unwrap().into_inner();
    events.next().await.unwrap().unwrap();
    drop((events, client));
    nothing_is_left(&server, "a client that stopped reading").await;
    serves(&server).await;
    no_descriptor_is_left(before).await;
    server.stop().await;
}
