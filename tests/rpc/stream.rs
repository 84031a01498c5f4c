//! `RerankStream`: many queries on one stream, over a real channel.

use std::time::{Duration, Instant};

use crate::common;
use common::{Running, Scripted, wire};
use protocol::v1;
use protocol::v1::rerank_stream_response::Outcome;
use protocol::v1::utility_service_client::UtilityServiceClient;
use server::rpc::server::{Ended, ServerOptions};
use server::transport::Bounds;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

const PASSAGES: [&str; 3] = ["zzzz yyyy", "the question is here", "question question"];

/// Requests of one stream that the server works on at once.
const IN_FLIGHT: usize = 4;

fn ask(id: &str, request: v1::RerankRequest) -> v1::RerankStreamRequest {
    v1::RerankStreamRequest { request_id: id.to_owned(), request: Some(request) }
}

/// A request whose first passage has about 20 times `repeats` tokens.
fn long(repeats: usize) -> v1::RerankRequest {
    let text = "the long question is ".repeat(repeats);
    wire("question", &[&text, "question"])
}

struct Stream {
    requests: mpsc::Sender<v1::RerankStreamRequest>,
    answers: Streaming<v1::RerankStreamResponse>,
}

async fn open(server: &Running, headers: &[(&'static str, &str)]) -> Stream {
    let (requests, receiver) = mpsc::channel(64);
    let mut call = Request::new(ReceiverStream::new(receiver));
    for (key, value) in headers {
        call.metadata_mut().insert(*key, value.parse().unwrap());
    }
    let answers = server.client().await.rerank_stream(call).await.unwrap().into_inner();
    Stream { requests, answers }
}

impl Stream {
    async fn next(&mut self) -> v1::RerankStreamResponse {
        let answer = tokio::time::timeout(Duration::from_secs(20), self.answers.next()).await;
        answer.expect("no answer came").expect("the stream ended").unwrap()
    }

    /// The end of a stream that the server ends.
    async fn end(&mut self) -> Status {
        let end = tokio::time::timeout(Duration::from_secs(20), self.answers.next()).await;
        end.expect("the stream goes on").expect("the stream ended well").unwrap_err()
    }
}

fn closes(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message().starts_with("the server closes this connection")
}

fn response(answer: v1::RerankStreamResponse) -> v1::RerankResponse {
    match answer.outcome.unwrap() {
        Outcome::Response(response) => response,
        Outcome::Error(error) => panic!("{error:?}"),
    }
}

fn error(answer: v1::RerankStreamResponse) -> v1::RerankStreamError {
    match answer.outcome.unwrap() {
        Outcome::Error(error) => error,
        Outcome::Response(response) => panic!("{response:?}"),
    }
}

#[tokio::test]
async fn answers_are_those_of_unary_calls_and_carry_their_ids() {
    let server = Scripted::default().serve().await;
    let alone = server.client().await.rerank(wire("question", &PASSAGES)).await.unwrap().into_inner();
    let mut stream = open(&server, &[]).await;
    // Ids are returned unchanged, even if empty or equal.
    for id in ["a", "b", "b", ""] {
        stream.requests.send(ask(id, wire("question", &PASSAGES))).await.unwrap();
    }
    let mut ids = Vec::new();
    for _ in 0..4 {
        let answer = stream.next().await;
        ids.push(answer.request_id.clone());
        let results = response(answer).results;
        // Requests share steps, so rounding may differ.
        let order = |results: &[v1::RankedPassage]| results.iter().map(|each| each.id.clone()).collect::<Vec<_>>();
        assert_eq!(order(&results), order(&alone.results));
    }
    ids.sort();
    assert_eq!(ids, ["", "a", "b", "b"]);
    drop(stream.requests);
    assert!(stream.answers.next().await.is_none());
    server.stop().await;
}

#[tokio::test]
async fn a_short_request_overtakes_a_long_one() {
    let delay = Duration::from_micros(200);
    let server = Scripted { delay, ..Scripted::default() }.serve().await;
    let mut stream = open(&server, &[]).await;
    stream.requests.send(ask("long", long(60))).await.unwrap();
    common::wait_for("the long request begins", || server.admission.in_flight() == 1).await;
    // It needs no model, so it does not depend on the scheduler.
    let short = v1::RerankRequest { method: v1::Method::Retriever.into(), ..wire("q", &["q"]) };
    stream.requests.send(ask("short", short)).await.unwrap();
    assert_eq!(stream.next().await.request_id, "short");
    assert_eq!(stream.next().await.request_id, "long");
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn an_error_is_an_answer_and_not_the_end() {
    let server = Scripted::default().serve().await;
    let mut stream = open(&server, &[]).await;
    let unknown = v1::RerankRequest { method: 99, ..wire("question", &PASSAGES) };
    let over = v1::RerankRequest { token_budget: 3, method: v1::Method::Moi.into(), ..wire("question", &PASSAGES) };
    let rows = [
        ("no query", Some(wire("", &PASSAGES)), Code::InvalidArgument, "query: must not be empty"),
        ("no passages", Some(wire("q", &[])), Code::InvalidArgument, "passages: must not be empty"),
        ("nothing", None, Code::InvalidArgument, "request: must be set"),
        ("method", Some(unknown), Code::InvalidArgument, "method: unknown value 99"),
        ("budget", Some(over), Code::ResourceExhausted, "the request needs"),
    ];
    for (id, request, code, message) in rows {
        stream.requests.send(v1::RerankStreamRequest { request_id: id.into(), request }).await.unwrap();
        let answer = stream.next().await;
        assert_eq!(answer.request_id, id);
        let error = error(answer);
        assert_eq!(Code::from(error.code), code, "{id}: {}", error.message);
        assert!(error.message.starts_with(message), "{id}: {}", error.message);
    }
    stream.requests.send(ask("good", wire("question", &PASSAGES))).await.unwrap();
    assert_eq!(response(stream.next().await).results.len(), 3);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_half_closed_stream_is_answered_in_full() {
    let server = Scripted::default().serve().await;
    let requests: Vec<v1::RerankStreamRequest> =
        (0..30).map(|index| ask(&index.to_string(), wire("question", &PASSAGES))).collect();
    // The request side ends before the first answer is read.
    let answers = server.client().await.rerank_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut ids: Vec<usize> =
        answers.map(|answer| answer.unwrap().request_id.parse().unwrap()).collect::<Vec<usize>>().await;
    ids.sort_unstable();
    assert_eq!(ids, (0..30).collect::<Vec<_>>());
    common::wait_for("slots are free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

/// If a caller does not read its answers, the server stops reading its requests and holds no slots for it.
#[tokio::test]
async fn a_caller_that_does_not_read_is_not_read() {
    let server = Scripted { queue_length: 64, ..Scripted::default() }.serve().await;
    let text = "x".repeat(1 << 20);
    // Answers carry the passages, so a few fill the windows of the transport.
    let request = v1::RerankRequest {
        method: v1::Method::Retriever.into(),
        return_passages: true,
        ..wire("question", &[&text, "question"])
    };
    let (requests, receiver) = mpsc::channel(1);
    let answers = server.client().await.rerank_stream(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_secs(2), requests.send(ask("x", request.clone()))).await.is_ok() {
        sent += 1;
        assert!(sent < 60, "the server reads without bound");
    }
    assert!(sent >= IN_FLIGHT, "{sent}");
    common::wait_for("slots are free", || server.admission.in_flight() == 0).await;
    drop(requests);
    // Only the request in transmission at the timeout is lost.
    assert_eq!(answers.collect::<Vec<_>>().await.len(), sent);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_has_few_requests_in_flight() {
    let delay = Duration::from_micros(200);
    let server = Scripted { queue_length: 64, delay, ..Scripted::default() }.serve().await;
    let stream = open(&server, &[]).await;
    for index in 0..20 {
        stream.requests.send(ask(&index.to_string(), long(20))).await.unwrap();
    }
    let end = Instant::now() + Duration::from_millis(300);
    let (mut most, mut before) = (0, 0);
    while Instant::now() < end {
        // A request that changes its place holds two permits for an instant, so only a value seen twice counts.
        let now = server.admission.in_flight();
        most = most.max(now.min(before));
        before = now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(most, IN_FLIGHT);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_request_of_a_stream_waits_for_a_slot() {
    let server = Scripted { queue_length: 1, ..Scripted::default() }.serve().await;
    let held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    let mut stream = open(&server, &[]).await;
    stream.requests.send(ask("a", wire("question", &PASSAGES))).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(100), stream.answers.next()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    drop(held);
    assert_eq!(response(stream.next().await).results.len(), 3);
    drop(stream);
    server.stop().await;
}

/// A refusal would be the final answer of a question, although the stream could have waited.
#[tokio::test]
async fn a_request_of_a_stream_is_asked_again_while_the_server_is_busy() {
    let longest_wait = Some(Duration::from_millis(20));
    let server = Scripted { queue_length: 1, longest_wait, ..Scripted::default() }.serve().await;
    let held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    let mut bounded = open(&server, &[("grpc-timeout", "40m")]).await;
    bounded.requests.send(ask("late", wire("question", &PASSAGES))).await.unwrap();
    let mut stream = open(&server, &[]).await;
    stream.requests.send(ask("waits", wire("question", &PASSAGES))).await.unwrap();
    let refused = error(bounded.next().await);
    assert_eq!(Code::from(refused.code), Code::ResourceExhausted, "{}", refused.message);
    let waiting = tokio::time::timeout(Duration::from_millis(200), stream.answers.next()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    drop(held);
    assert_eq!(response(stream.next().await).results.len(), 3);
    drop((stream, bounded));
    server.stop().await;
}

/// Limits are checked before a request waits for a slot, and before the contexts of a list are made, whose number is
/// the square of its length.
#[tokio::test]
async fn requests_beyond_the_limits_are_refused_before_they_wait() {
    let server = Scripted { queue_length: 1, ..Scripted::default() }.serve().await;
    let _held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    let many = wire("question", &[""; 1_000]);
    let check = |code: i32, message: &str| {
        assert_eq!(Code::from(code), Code::InvalidArgument, "{message}");
        assert_eq!(message, "passages: 1000 given, at most 20 allowed");
    };
    let mut stream = open(&server, &[]).await;
    stream.requests.send(ask("many", many.clone())).await.unwrap();
    let refused = error(stream.next().await);
    check(refused.code, &refused.message);

    let mut client = UtilityServiceClient::new(server.channel().await);
    let request = v1::MeasureUtilityRequest {
        question: "question".into(),
        passages: many.passages.clone(),
        measure_prefixes: true,
        ..v1::MeasureUtilityRequest::default()
    };
    let asked = v1::MeasureUtilityStreamRequest { id: "many".into(), request: Some(request) };
    let mut answers = client.measure_utility_stream(tokio_stream::iter([asked])).await.unwrap().into_inner();
    let answer = tokio::time::timeout(Duration::from_secs(20), answers.next()).await.expect("it waits");
    match answer.unwrap().unwrap().outcome.unwrap() {
        v1::measure_utility_stream_response::Outcome::Error(refused) => check(refused.code, &refused.message),
        other @ v1::measure_utility_stream_response::Outcome::Response(_) => panic!("{other:?}"),
    }

    let request = v1::EvaluateRetrievalRequest {
        question: "question".into(),
        passages: many.passages,
        references: vec!["answer".into()],
        ..v1::EvaluateRetrievalRequest::default()
    };
    let asked = v1::EvaluateRetrievalStreamRequest { id: "many".into(), request: Some(request) };
    let mut answers = client.evaluate_retrieval_stream(tokio_stream::iter([asked])).await.unwrap().into_inner();
    let answer = tokio::time::timeout(Duration::from_secs(20), answers.next()).await.expect("it waits");
    match answer.unwrap().unwrap().outcome.unwrap() {
        v1::evaluate_retrieval_stream_response::Outcome::Error(refused) => check(refused.code, &refused.message),
        other @ v1::evaluate_retrieval_stream_response::Outcome::Response(_) => panic!("{other:?}"),
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn the_deadline_of_a_stream_is_that_of_its_requests() {
    let delay = Duration::from_millis(2);
    let server = Scripted { delay, ..Scripted::default() }.serve().await;
    let mut stream = open(&server, &[("grpc-timeout", "400m")]).await;
    stream.requests.send(ask("late", long(40))).await.unwrap();
    let answer = stream.next().await;
    assert_eq!(Code::from(error(answer).code), Code::DeadlineExceeded);
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_frees_the_worker() {
    let delay = Duration::from_millis(1);
    let server = Scripted { delay, ..Scripted::default() }.serve().await;
    let stream = open(&server, &[]).await;
    for index in 0..8 {
        stream.requests.send(ask(&index.to_string(), long(50))).await.unwrap();
    }
    common::wait_for("requests are in flight", || server.admission.in_flight() == IN_FLIGHT).await;
    drop(stream);
    common::wait_for("slots are free", || server.admission.in_flight() == 0).await;
    let answer = server.client().await.rerank(wire("q", &["q"])).await.unwrap().into_inner();
    assert_eq!(answer.results.len(), 1);
    server.stop().await;
}

/// An idle stream must not delay the drain, and a busy one must get no new work.
#[tokio::test]
async fn a_stopping_server_answers_what_it_has_read_and_reads_no_more() {
    let scripted = Scripted { delay: Duration::from_micros(200), ..Scripted::default() };
    let options = ServerOptions { drain: Duration::from_mins(2), ..ServerOptions::default() };
    let mut server = scripted.serve_with(options).await;
    let (mut idle, mut busy) = (open(&server, &[]).await, open(&server, &[]).await);
    idle.requests.send(ask("a", wire("question", &PASSAGES))).await.unwrap();
    response(idle.next().await);
    common::wait_for("its slot is free", || server.admission.in_flight() == 0).await;
    busy.requests.send(ask("long", long(60))).await.unwrap();
    common::wait_for("the request is in flight", || server.admission.in_flight() == 1).await;
    let began = Instant::now();
    server.begin_to_stop();
    let end = idle.end().await;
    assert!(closes(&end), "{end:?}");
    let _ = busy.requests.send(ask("late", wire("question", &PASSAGES))).await;
    let answer = busy.next().await;
    assert_eq!(answer.request_id, "long");
    response(answer);
    let end = busy.end().await;
    assert!(closes(&end), "{end:?}");
    assert_eq!(server.stop_and_tell().await, Ended::Answered);
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

/// An old connection must not cut requests in flight.
#[tokio::test]
async fn a_stream_on_an_old_connection_ends_between_questions() {
    let bounds = Bounds { age: Some(Duration::from_millis(300)), ..Bounds::default() };
    let server = Scripted::default().serve_with(ServerOptions { bounds, ..ServerOptions::default() }).await;
    let mut stream = open(&server, &[]).await;
    let end = Instant::now() + Duration::from_mins(1);
    let status = loop {
        assert!(Instant::now() < end, "the stream outlives its connection");
        // A request that is sent after the end of the stream is lost.
        let _ = stream.requests.send(ask("x", wire("question", &PASSAGES))).await;
        match stream.answers.next().await.expect("the stream ended well") {
            Ok(answer) => assert_eq!(response(answer).results.len(), 3),
            Err(status) => break status,
        }
    };
    assert!(closes(&status), "{status:?}");
    server.stop().await;
}
