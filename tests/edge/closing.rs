//! Idle and old connections end without losing a call, over real sockets.

use std::time::{Duration, Instant};

use crate::common;
use common::{Running, Scripted, wire};
use prost::Message;
use server::rpc::server::ServerOptions;
use server::transport::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn bounded(scripted: Scripted, bounds: Bounds) -> Running {
    scripted.serve_with(ServerOptions { bounds, ..ServerOptions::default() }).await
}

/// A client library reconnects by itself. A silent connection is closed.
#[tokio::test]
async fn idle_connections_are_closed_and_their_clients_lose_nothing() {
    let server =
        bounded(Scripted::default(), Bounds { idle: Some(Duration::from_millis(100)), ..Bounds::default() }).await;
    let mut silent = TcpStream::connect(&server.address).await.unwrap();
    let mut client = server.client().await;
    for _ in 0..3 {
        client.rerank(wire("ab", &["ab", "cd"])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), silent.read_to_end(&mut all)).await;
    let _ = read.expect("the connection is still open");
    server.stop().await;
}

/// A call that has begun when the connection ends is answered or was never sent.
#[tokio::test]
async fn old_connections_are_replaced_without_losing_a_call() {
    let server =
        bounded(Scripted::default(), Bounds { age: Some(Duration::from_millis(100)), ..Bounds::default() }).await;
    let mut client = server.client().await;
    let end = Instant::now() + Duration::from_secs(2);
    let mut calls = 0;
    while Instant::now() < end {
        match client.rerank(wire("ab", &["ab", "cd"])).await {
            Ok(_) => calls += 1,
            Err(status) => assert!(common::failures::unsent(&status), "{status:?}"),
        }
    }
    assert!(calls > 3, "{calls}");
    server.stop().await;
}

/// A frame of HTTP/2: type, flags, stream, payload.
async fn frame(socket: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.ok()?;
    let mut body = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    socket.read_exact(&mut body).await.ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), body))
}

fn framed(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// A request in flight when the server announces the close is served to its end.
#[tokio::test]
async fn a_request_that_comes_while_its_connection_closes_is_answered() {
    let (idle, closing) = (Some(Duration::from_millis(100)), Duration::from_millis(200));
    let scripted = Scripted { delay: Duration::from_millis(10), ..Scripted::default() };
    let server = bounded(scripted, Bounds { idle, closing, ..Bounds::default() }).await;
    let mut socket = TcpStream::connect(&server.address).await.unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    socket.write_all(&framed(4, 0, 0, &[])).await.unwrap();
    const GOAWAY: u8 = 7;
    while frame(&mut socket).await.expect("the connection is closed").0 != GOAWAY {}
    // Like a distant client, this one has not answered the ping that follows.
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    let headers = [
        vec![0x83, 0x86, 0x04],
        text("/rerankd.v1.RerankService/Rerank"),
        vec![0x01],
        text("server"),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ]
    .concat();
    let message = wire("ab", &["ab", "cd"]).encode_to_vec();
    let message = [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat();
    socket.write_all(&framed(1, 4, 1, &headers)).await.unwrap();
    socket.write_all(&framed(0, 1, 1, &message)).await.unwrap();
    let began = Instant::now();
    let answered = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match frame(&mut socket).await {
                Some((0, _, 1, body)) if !body.is_empty() => break true,
                Some(_) => {}
                None => break false,
            }
        }
    });
    assert!(answered.await.unwrap(), "the connection was cut after {:?}", began.elapsed());
    assert!(began.elapsed() > closing * 2, "{:?}: the call is too short to show it", began.elapsed());
    server.stop().await;
}
