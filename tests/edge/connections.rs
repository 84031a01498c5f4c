//! Bounds on connections, unreadable messages, and the end of a server, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use bytes::Bytes;
use common::{Running, Scripted, wire};
use http::HeaderMap;
use prost::Message;
use protocol::client;
use protocol::v1;
use server::rpc::server::{Ended, ServerOptions};
use server::transport::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const RERANK: &str = "/rerankd.v1.RerankService/Rerank";

/// First bytes of a client: the preface and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn bounded(bounds: Bounds) -> Running {
    Scripted::default().serve_with(ServerOptions { bounds, ..ServerOptions::default() }).await
}

async fn is_well(server: &Running) {
    client::wait_until_serving(&server.address.as_str().into(), Duration::from_secs(10)).await.unwrap();
    server.client().await.rerank(wire("ab", &["ab", "cd"])).await.unwrap();
}

/// Reads until the server closes. Fails after ten seconds.
async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut all)).await;
    let _ = read.expect("the connection is still open");
    all
}

/// A client without tonic, for messages that tonic would not send.
struct Raw(h2::client::SendRequest<Bytes>);

impl Raw {
    async fn new(server: &Running) -> Self {
        let socket = TcpStream::connect(&server.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> http::Response<h2::RecvStream> {
        let mut request = http::Request::post(format!("http://server{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (answer, mut stream) = self.0.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::from(body), true).unwrap();
        answer.await.unwrap()
    }

    /// The gRPC status, from the headers or the trailers.
    async fn code(&mut self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Code {
        let answer = self.send(path, headers, body).await;
        let read = |headers: &HeaderMap| {
            headers.get("grpc-status").map(|code| Code::from(code.to_str().unwrap().parse::<i32>().unwrap()))
        };
        if let Some(code) = read(answer.headers()) {
            return code;
        }
        let mut body = answer.into_body();
        while let Some(data) = body.data().await {
            let length = data.unwrap().len();
            body.flow_control().release_capacity(length).unwrap();
        }
        read(&body.trailers().await.unwrap().unwrap()).unwrap()
    }
}

/// A gRPC message: a flag, the length, the bytes.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[flag][..], &length.to_be_bytes(), message].concat()
}

#[tokio::test]
async fn unreadable_messages_are_the_callers_fault() {
    let server = Scripted::default().serve().await;
    let mut raw = Raw::new(&server).await;
    let good = framed(0, &wire("ab", &["ab", "cd"]).encode_to_vec());
    assert_eq!(raw.code(RERANK, &[], good.clone()).await, Code::Ok);
    let mut short = good.clone();
    short.truncate(good.len() - 3);
    let gzip = [("grpc-encoding", "gzip")];
    for path in [
        RERANK,
        "/rerankd.v1.ModelService/GetPositionBias",
        "/rerankd.v1.MetricsService/FitMoi",
        "/grpc.health.v1.Health/Check",
    ] {
        for (what, headers, body) in [
            ("not protobuf", &[][..], framed(0, b"\xff\xff\xff")),
            ("an unknown flag", &[], framed(7, b"")),
            ("a message that ends early", &[], short.clone()),
            ("nothing at all", &[], Vec::new()),
            ("invalid gzip", &gzip, framed(1, b"no gzip")),
        ] {
            let code = raw.code(path, headers, body).await;
            // Health does not take gzip.
            let refused = code == Code::InvalidArgument || (path.contains("Health") && headers == gzip);
            assert!(refused, "{path}: {what}: {code:?}");
        }
    }
    // A small message that unpacks beyond the limit is too long; it is not a lack of room.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &vec![0; 5 << 20]).unwrap();
    let packed = framed(1, &packed.finish().unwrap());
    assert_eq!(raw.code(RERANK, &gzip, packed).await, Code::OutOfRange);
    assert_eq!(raw.code(RERANK, &[], good).await, Code::Ok, "the connection goes on");
    server.stop().await;
}

/// Methods without a slot must not hold large messages.
#[tokio::test]
async fn requests_that_take_no_permit_are_small() {
    let server = Scripted::default().serve().await;
    let mut raw = Raw::new(&server).await;
    // Only the header of a message of 64 KiB.
    let header = vec![0, 0, 1, 0, 0];
    for path in [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/rerankd.v1.ModelService/GetServerInfo",
        "/rerankd.v1.ModelService/GetPositionBias",
        "/tei.v1.Info/Info",
    ] {
        assert_eq!(raw.code(path, &[], header.clone()).await, Code::OutOfRange, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn malformed_frames_end_their_connection_and_nothing_else() {
    let server = Scripted::default().serve().await;
    let mut number = 12_345_u64;
    for round in 0..200_usize {
        let mut socket = TcpStream::connect(&server.address).await.unwrap();
        let mut bytes = if round % 4 == 0 { Vec::new() } else { PREFACE.to_vec() };
        for _ in 0..round * 3 + 9 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes.push(number.to_be_bytes()[0]);
        }
        let _ = socket.write_all(&bytes).await;
    }
    is_well(&server).await;
    server.stop().await;
}

/// HEADERS and RST_STREAM for one stream after the other (CVE-2023-44487).
#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let server = Scripted::default().serve().await;
    let mut bytes = PREFACE.to_vec();
    for stream in (1..20_001_u32).step_by(2) {
        // POST, http, / from the static table.
        bytes.extend_from_slice(&[0, 0, 3, 1, 4]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(&[0x83, 0x86, 0x84, 0, 0, 4, 3, 0]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(&8_u32.to_be_bytes());
    }
    let mut socket = TcpStream::connect(&server.address).await.unwrap();
    let _ = socket.write_all(&bytes).await;
    let answer = rest(&mut socket).await;
    // A GOAWAY frame, with ENHANCE_YOUR_CALM if all of it arrived.
    assert!(answer.is_empty() || answer.windows(4).any(|window| window == [0, 0, 0, 11]), "{answer:?}");
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn long_headers_are_refused() {
    let server = bounded(Bounds { header_bytes: 2_048, ..Bounds::default() }).await;
    let mut request = tonic::Request::new(wire("ab", &["ab", "cd"]));
    request.metadata_mut().insert("x-long", "x".repeat(100_000).parse().unwrap());
    assert!(server.client().await.rerank(request).await.is_err());
    is_well(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed() {
    let server = bounded(Bounds { connections: 3, ..Bounds::default() }).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(&server.address).await.unwrap();
        socket.write_all(PREFACE).await.unwrap();
        assert!(socket.read(&mut [0; 9]).await.unwrap() > 0, "settings");
        open.push(socket);
    }
    assert_eq!(rest(&mut TcpStream::connect(&server.address).await.unwrap()).await, b"");
    // Room for the two connections that follow, one after the other.
    open.truncate(1);
    is_well(&server).await;
    drop(open);
    server.stop().await;
}

/// The response is larger than the window, and the client does not extend the window.
#[tokio::test]
async fn a_response_that_is_not_read_is_dropped() {
    let server = bounded(Bounds { unread: Duration::from_millis(300), ..Bounds::default() }).await;
    let mut raw = Raw::new(&server).await;
    let text = "ab ".repeat(300_000);
    let request = v1::RerankRequest { return_passages: true, ..wire("ab", &[&text, "cd"]) };
    let body = framed(0, &request.encode_to_vec());
    let mut slow = raw.send(RERANK, &[], body.clone()).await.into_body();
    let mut taken = 0;
    // The client reads without extending the window.
    while let Ok(data) = tokio::time::timeout(Duration::from_secs(1), slow.data()).await {
        taken += data.unwrap().unwrap().len();
    }
    // It reads on and gets a reset.
    slow.flow_control().release_capacity(taken).unwrap();
    let reset = loop {
        match slow.data().await.expect("the response is not complete") {
            Ok(data) => taken += data.len(),
            Err(error) => break error,
        }
    };
    assert!(reset.is_reset() && taken < 200_000, "{reset} after {taken}");
    drop(slow);
    // The connection still serves other requests.
    assert_eq!(raw.code(RERANK, &[], body).await, Code::Ok);
    common::wait_for("the slot is free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn many_idle_connections_leave_room_for_calls() {
    let server = Scripted::default().serve().await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        let mut socket = TcpStream::connect(&server.address).await.unwrap();
        socket.write_all(PREFACE).await.unwrap();
        idle.push(socket);
    }
    is_well(&server).await;
    assert_eq!(server.stop_and_tell().await, Ended::Answered);
}

async fn health(server: &Running) -> ServingStatus {
    let mut client = HealthClient::new(server.channel().await);
    client.check(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn health_waits_for_the_trial_of_the_generator() {
    let (trial, warm) = tokio::sync::watch::channel(false);
    let server = Scripted::default().serve_with(ServerOptions { warm, ..ServerOptions::default() }).await;
    assert_eq!(health(&server).await, ServingStatus::NotServing);
    trial.send_replace(true);
    let end = Instant::now() + Duration::from_secs(10);
    while health(&server).await != ServingStatus::Serving {
        assert!(Instant::now() < end);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_lame_duck_says_so_and_still_serves() {
    let options = ServerOptions { lame_duck: Duration::from_secs(2), ..ServerOptions::default() };
    let mut server = Scripted::default().serve_with(options).await;
    // A client that watches health keeps its connection, and must not keep the server.
    let mut watcher = HealthClient::new(server.channel().await);
    let mut watched = watcher.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let began = Instant::now();
    server.begin_to_stop();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(health(&server).await, ServingStatus::NotServing);
    server.client().await.rerank(wire("ab", &["ab", "cd"])).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "the machine is too slow for this test");
    assert_eq!(server.stop_and_tell().await, Ended::Answered);
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

/// Every accepted call is answered; the others were never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_under_load_loses_no_call() {
    let slow = Scripted { delay: Duration::from_millis(1), queue_length: 64, ..Scripted::default() };
    let server = slow.serve().await;
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (mut client, done, answered) = (server.client().await, Arc::clone(&done), Arc::clone(&answered));
        load.spawn(async move {
            while !done.load(Ordering::SeqCst) {
                match client.rerank(wire("who?", &["alpha beta", "gamma", "delta"])).await {
                    Ok(_) => answered.fetch_add(1, Ordering::SeqCst),
                    Err(status) => return Some(status),
                };
            }
            None
        });
    }
    let end = Instant::now() + Duration::from_secs(20);
    while answered.load(Ordering::SeqCst) < 8 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.stop_and_tell().await, Ended::Answered);
    done.store(true, Ordering::SeqCst);
    while let Some(outcome) = load.join_next().await {
        if let Some(status) = outcome.unwrap() {
            assert!(common::failures::unsent(&status), "{status:?}");
        }
    }
}

#[tokio::test]
async fn a_cut_drain_is_reported() {
    let scripted = Scripted { delay: Duration::from_millis(20), ..Scripted::default() };
    let options = ServerOptions { drain: Duration::from_millis(100), ..ServerOptions::default() };
    let server = scripted.serve_with(options).await;
    let mut client = server.client().await;
    let running = tokio::spawn(async move { client.rerank(wire("who?", &["alpha", "beta", "gamma"])).await });
    while server.admission.in_flight() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(server.stop_and_tell().await, Ended::Cut(1));
    assert!(running.await.unwrap().is_err());
}
