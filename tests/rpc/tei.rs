//! tei.v1 over a real channel: its answers, its errors, its headers.

use std::time::Duration;

use crate::common;
use common::{LIMITS, Running, Scripted, fields};
use engine::methods;
use engine::types::Limits;
use prefix_scheduler::model::{Capacity, GeneratorInfo};
use protocol::tei_v1 as tei;
use protocol::tei_v1::info_client::InfoClient;
use protocol::tei_v1::rerank_client::RerankClient;
use server::rpc::server::ServerOptions;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

const TEXTS: [&str; 4] = ["zzzz yyyy", "the question is here", "wwww", "question question"];

fn request(query: &str, texts: &[&str]) -> tei::RerankRequest {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    tei::RerankRequest { query: query.to_owned(), texts, ..tei::RerankRequest::default() }
}

fn message(query: &str, text: &str) -> tei::RerankStreamRequest {
    tei::RerankStreamRequest { query: query.into(), text: text.into(), ..tei::RerankStreamRequest::default() }
}

async fn client(server: &Running) -> RerankClient<Channel> {
    RerankClient::new(server.channel().await)
}

async fn rank(server: &Running, request: tei::RerankRequest) -> tei::RerankResponse {
    client(server).await.rerank(request).await.unwrap().into_inner()
}

async fn refused(server: &Running, request: tei::RerankRequest) -> Status {
    client(server).await.rerank(request).await.unwrap_err()
}

async fn stream(server: &Running, messages: Vec<tei::RerankStreamRequest>) -> Result<tei::RerankResponse, Status> {
    let answer = client(server).await.rerank_stream(tokio_stream::iter(messages)).await;
    answer.map(tonic::Response::into_inner)
}

/// A server whose prompts hold few tokens.
async fn narrow() -> Running {
    let limits = Limits { truncate: true, ..LIMITS };
    let capacity = Capacity { cells: 300, sequences: 16, batch: 64 };
    Scripted { capacity, limits, ..Scripted::default() }.serve().await
}

#[tokio::test]
async fn info_states_the_model_that_the_method_asks() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let engine = common::with_scripted_reranker(&engine, "bge-small");
    let tei = methods::find("cross-encoder");
    let options = ServerOptions { tei, ..ServerOptions::default() };
    let server = common::serve_with(engine, observed, queue_length, options).await;
    let info =
        || async { InfoClient::new(server.channel().await).info(tei::InfoRequest {}).await.unwrap().into_inner() };
    let before = info().await;
    assert_eq!((before.model_id.as_str(), before.model_sha), ("bge-small", Some("2".repeat(64))));
    assert_eq!((before.model_dtype.as_str(), before.max_input_length), ("", 0));
    rank(&server, request("question", &TEXTS)).await;
    assert_eq!(info().await.max_input_length, 100);
    server.stop().await;
}

#[tokio::test]
async fn info_states_model_and_bounds() {
    let server = Scripted::default().serve().await;
    let info = InfoClient::new(server.channel().await).info(tei::InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.model_type(), tei::ModelType::Reranker);
    assert_eq!((info.model_id.as_str(), info.model_sha), ("scripted", Some("0".repeat(64))));
    assert_eq!((info.max_client_batch_size, info.max_concurrent_requests), (20, 8));
    assert_eq!((info.max_input_length, info.max_batch_tokens), (4_096, 64));
    assert!(info.sha.is_none() && info.docker_label.is_none() && info.max_batch_requests.is_none());
    assert!(info.tokenization_workers > 0);
    server.stop().await;
}

#[tokio::test]
async fn every_text_is_ranked_once_and_scores_descend() {
    let server = Scripted::default().serve().await;
    let plain = rank(&server, request("question", &TEXTS)).await;
    let mut indices: Vec<u32> = plain.ranks.iter().map(|rank| rank.index).collect();
    assert_eq!(indices[0], 3);
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert!(plain.ranks.windows(2).all(|pair| pair[0].score >= pair[1].score));
    assert!(plain.ranks.iter().all(|rank| rank.score > 0.0 && rank.score < 1.0 && rank.text.is_none()));
    let shown = tei::RerankRequest { return_text: true, raw_scores: true, ..request("question", &TEXTS) };
    let raw = rank(&server, shown).await;
    let texts: Vec<&str> = raw.ranks.iter().map(|rank| rank.text.as_deref().unwrap()).collect();
    assert_eq!(texts, raw.ranks.iter().map(|rank| TEXTS[rank.index as usize]).collect::<Vec<_>>());
    // Utilities are in nats: those of the scripted model do not all lie in (0, 1).
    assert!(raw.ranks.iter().any(|rank| rank.score <= 0.0 || rank.score >= 1.0), "{:?}", raw.ranks);
    server.stop().await;
}

/// The method scores each text separately, so equal texts have equal scores.
#[tokio::test]
async fn the_configured_method_scores_and_ties_keep_the_order_of_the_request() {
    use engine::position_bias::PositionBias;
    use server::rpc::server::serve;
    let (engine, _, queue_length) = Scripted::default().engine().await;
    // The generator names the compute device, because a build for accelerators may run on a machine without one.
    let served = common::generator(&engine);
    let info = GeneratorInfo { compute: "cuda".into(), ..served.info.clone() };
    let engine = common::engine_of(served.scheduler.clone(), info, PositionBias::default(), LIMITS);
    let tei = methods::find("query-generation");
    let options = ServerOptions { message_bytes: 1 << 20, drain: Duration::ZERO, tei, ..ServerOptions::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let admission = prefix_scheduler::call::Admission::new(queue_length);
    let server = tokio::spawn(serve(engine, admission, options, listener, std::future::pending()));
    let mut client = RerankClient::connect(address).await.unwrap();
    let same = ["same text"; 5];
    let unary = client.rerank(request("question", &same)).await.unwrap();
    assert_eq!(unary.metadata().get("x-compute-type").unwrap(), "cuda");
    let unary = unary.into_inner();
    assert_eq!(unary.ranks.iter().map(|rank| rank.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(unary.ranks.iter().all(|rank| rank.score == unary.ranks[0].score));
    let messages: Vec<_> = same.iter().map(|text| message("question", text)).collect();
    let streamed = client.rerank_stream(tokio_stream::iter(messages)).await.unwrap().into_inner();
    assert_eq!(streamed.ranks, unary.ranks);
    server.abort();
}

#[tokio::test]
async fn a_stream_is_answered_once_as_a_list_is() {
    let server = Scripted::default().serve().await;
    let unary = rank(&server, request("question", &TEXTS)).await;
    let messages = TEXTS.iter().map(|text| message("question", text)).collect();
    assert_eq!(stream(&server, messages).await.unwrap().ranks, unary.ranks);
    // Each message has a query; the first message decides the options of the output.
    let mut messages = vec![message("question", "question question"), message("zzzz", "zzzz yyyy zzzz")];
    messages.push(message("question", "wwww"));
    messages[0].return_text = true;
    messages[1].raw_scores = true;
    let mixed = stream(&server, messages).await.unwrap();
    assert!(mixed.ranks.iter().all(|rank| rank.text.is_some() && rank.score > 0.0 && rank.score < 1.0));
    assert_eq!(mixed.ranks[2].index, 2);
    assert!(mixed.ranks.windows(2).all(|pair| pair[0].score >= pair[1].score));
    server.stop().await;
}

#[tokio::test]
async fn cost_is_in_message_and_headers() {
    let server = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.serve().await;
    let answer = client(&server).await.rerank(request("ab", &["cde", "f"])).await.unwrap();
    let header = |name: &str| answer.metadata().get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("x-compute-type"), "cpu");
    // The query counts once per text.
    assert_eq!(header("x-compute-characters"), "8");
    let number = |name: &str| header(name).parse::<u64>().unwrap();
    for name in ["x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"] {
        assert!(number(name) < 20_000, "{name}");
    }
    let tokens = number("x-compute-tokens");
    let metadata = answer.into_inner().metadata.unwrap();
    assert_eq!((metadata.compute_chars, u64::from(metadata.compute_tokens)), (8, tokens));
    assert!(metadata.total_time_ns >= metadata.inference_time_ns && metadata.inference_time_ns > 0 && tokens > 0);
    server.stop().await;
}

/// A reranker scores one list after the other, so their times add up.
#[tokio::test]
async fn times_of_lists_that_are_scored_in_turn_are_added() {
    let delay = Duration::from_millis(20);
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let engine = common::with_slow_reranker(&engine, "slow", delay);
    let tei = methods::find("cross-encoder");
    let options = ServerOptions { tei, ..ServerOptions::default() };
    let server = common::serve_with(engine, observed, queue_length, options).await;
    let messages = ["a", "b", "c", "d"].map(|query| message(query, "text")).to_vec();
    let metadata = stream(&server, messages).await.unwrap().metadata.unwrap();
    assert!(metadata.inference_time_ns >= 4 * 20_000_000, "{metadata:?}");
    server.stop().await;
}

/// As over HTTP, an empty text must not prevent the ranking of the others.
#[tokio::test]
async fn empty_texts_come_last() {
    let server = Scripted::default().serve().await;
    let answer =
        rank(&server, tei::RerankRequest { return_text: true, ..request("query", &["", "a query", " ", "zz"]) }).await;
    let order: Vec<u32> = answer.ranks.iter().map(|rank| rank.index).collect();
    assert_eq!(order, [1, 3, 0, 2]);
    assert_eq!((answer.ranks[3].score.to_bits(), answer.ranks[3].text.as_deref()), (0, Some(" ")));
    let warned = client(&server).await.rerank(request("query", &["a", "\u{feff}"])).await.unwrap();
    let warning = warned.metadata().get("x-rerankd-warning").unwrap();
    assert_eq!(warning, "texts[1] is empty: ranked last with the score 0");
    let none = rank(&server, request("query", &["", " "])).await;
    assert!(none.ranks.len() == 2 && none.ranks.iter().all(|rank| rank.score == 0.0));
    let none = stream(&server, vec![message("query", ""), message("which", " ")]).await.unwrap();
    assert!(none.ranks.len() == 2 && none.ranks.iter().all(|rank| rank.score == 0.0));
    let streamed = vec![message("query", ""), message("query", "zz"), message("query", "a query")];
    let order: Vec<u32> = stream(&server, streamed).await.unwrap().ranks.iter().map(|rank| rank.index).collect();
    assert_eq!(order, [2, 1, 0]);
    server.stop().await;
}

#[tokio::test]
async fn bad_fields_are_named_in_the_terms_of_the_protocol() {
    let server = Scripted::default().serve().await;
    let direction = tei::RerankRequest { truncation_direction: 7, ..request("q", &["a"]) };
    let rows = [
        (request("", &["a"]), "query"),
        (request("q", &[]), "texts"),
        (request("q", &["a"; 21]), "texts"),
        (direction, "truncation_direction"),
    ];
    for (request, field) in rows {
        let status = refused(&server, request).await;
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]));
        assert!(status.message().starts_with(field), "{}", status.message());
    }
    let mut bad_direction = message("q", "a");
    bad_direction.truncation_direction = 7;
    let rows = [
        (vec![], "messages"),
        (vec![message("q", "a"), message("", "b")], "messages[1].query"),
        (vec![message("q", "a"), message(&"q".repeat(1_001), "b")], "messages[1].query"),
        (vec![message("q", "a"); 21], "messages"),
        // Together they exceed the size of a message.
        (vec![message("q", &"a".repeat(2_900_000)); 6], "messages"),
        (vec![message("q", "a"), bad_direction], "messages[1].truncation_direction"),
    ];
    for (messages, field) in rows {
        let status = stream(&server, messages).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]));
    }
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn texts_are_cut_at_the_side_that_is_named_or_not_at_all() {
    let server = narrow().await;
    let long = format!("question {}", "x ".repeat(400));
    let long_end = format!("{} question", "x ".repeat(400));
    let ask = |text: &str, truncate, direction: tei::TruncationDirection| tei::RerankRequest {
        truncate,
        raw_scores: true,
        truncation_direction: direction.into(),
        ..request("question", &[text])
    };
    use tei::TruncationDirection::{Left, Right};
    let status = refused(&server, ask(&long, false, Right)).await;
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["texts[0]".to_owned()]));
    let mut scores = Vec::new();
    for (text, direction) in [(&long, Right), (&long, Left), (&long_end, Right), (&long_end, Left)] {
        scores.push(rank(&server, ask(text, true, direction)).await.ranks[0].score);
    }
    // Cutting the other side keeps the words of the query.
    assert!(scores[0] > scores[1] && scores[3] > scores[2], "{scores:?}");
    let mut cut = message("question", &long_end);
    (cut.truncate, cut.raw_scores, cut.truncation_direction) = (true, true, Left.into());
    let kept = stream(&server, vec![cut.clone()]).await.unwrap();
    assert_eq!(kept.ranks[0].score, scores[3]);
    cut.truncate = false;
    let status = stream(&server, vec![cut]).await.unwrap_err();
    assert_eq!(fields(&status), ["messages[0].text"]);
    server.stop().await;
}

#[tokio::test]
async fn a_full_server_refuses_both_methods() {
    let server = Scripted { queue_length: 1, ..Scripted::default() }.serve().await;
    let held = server
        .admission
        .admit(prefix_scheduler::call::Terms::default(), prefix_scheduler::call::Place::Generator)
        .unwrap();
    assert_eq!(refused(&server, request("q", &["a"])).await.code(), Code::ResourceExhausted);
    let status = stream(&server, vec![message("q", "a")]).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(held);
    assert_eq!(rank(&server, request("q", &["a"])).await.ranks.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn deadlines_and_vanished_callers_end_the_work() {
    let delay = Duration::from_millis(2);
    let server = Scripted { delay, ..Scripted::default() }.serve().await;
    let text = "x ".repeat(400);
    let mut call = tonic::Request::new(request("question", &[&text]));
    call.set_timeout(Duration::from_millis(400));
    let status = client(&server).await.rerank(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    // An endless stream holds its slot only until its deadline.
    let endless = tokio_stream::iter([message("q", "a")]).chain(tokio_stream::pending());
    let mut call = tonic::Request::new(endless);
    call.set_timeout(Duration::from_millis(400));
    let status = client(&server).await.rerank_stream(call).await.unwrap_err();
    // The client's own timer may end first, as Cancelled.
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    let mut leaving = client(&server).await;
    let asked = leaving.rerank(request("question", &[&text]));
    assert!(tokio::time::timeout(Duration::from_millis(100), asked).await.is_err());
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while server.admission.in_flight() > 0 {
        assert!(std::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn reflection_and_health_know_the_services() {
    let server = Scripted::default().serve().await;
    let mut health = HealthClient::new(server.channel().await);
    for service in ["tei.v1.Info", "tei.v1.Rerank"] {
        let asked = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(asked).await.unwrap().into_inner().status(), ServingStatus::Serving);
    }
    let mut reflection = ServerReflectionClient::new(server.channel().await);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::iter([list])).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["tei.v1.Info", "tei.v1.Rerank", "rerankd.v1.RerankService"] {
        assert!(names.iter().any(|each| each == name), "{names:?}");
    }
    server.stop().await;
}
