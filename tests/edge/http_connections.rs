//! Bounds on connections of the ports that speak HTTP/1.1: HTTP/JSON and the page of metrics. tests/edge/connections.rs has
//! those of the gRPC port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{common, http};
use axum::Router;
use common::{Scripted, wait_for};
use prefix_scheduler::call::Admission;
use server::observe::{Metrics, page};
use server::transport::{Bounds, Protocol, listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A port, a path that it serves, and a guard that stops it.
struct Port {
    address: SocketAddr,
    path: &'static str,
    requests: server::transport::InFlight,
    _stop: DropGuard,
}

/// Both ports with these bounds.
async fn ports(bounds: Bounds) -> [Port; 2] {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let metrics = Arc::new(Metrics::new(engine.clone()).unwrap());
    let json = server::http::router(engine, Admission::new(queue_length), http::options(), Arc::default());
    let ready = tokio::sync::watch::channel(true).1;
    [port(json, "/openapi.json", bounds).await, port(page::router(metrics, ready), "/metrics", bounds).await]
}

async fn port(router: Router, path: &'static str, bounds: Bounds) -> Port {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let options = listener::Options::new(Protocol::Http1, bounds);
    let requests = options.requests.clone();
    tokio::spawn(listener::serve(listener, router, options, stop.clone()));
    Port { address, path, requests, _stop: stop.drop_guard() }
}

impl Port {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn request(&self, more: &str) -> String {
        format!("GET {} HTTP/1.1\r\nhost: server\r\n{more}\r\n", self.path)
    }

    /// The status of a request with these headers on a new connection; `None` if it is closed without an answer.
    async fn status(&self, more: &str) -> Option<u16> {
        status(&mut self.connect().await, &self.request(more)).await
    }
}

/// Sends a request and reads its answer. `None` if the connection is closed.
async fn status(stream: &mut TcpStream, request: &str) -> Option<u16> {
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let length = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut part)).await.expect("no answer");
        let length = length.ok().filter(|length| *length > 0)?;
        answer.extend_from_slice(&part[..length]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let stated = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        if body.len() >= stated {
            return Some(head.split(' ').nth(1).unwrap().parse().unwrap());
        }
    }
}

/// Waits until the server closes the connection, for 20 s at most.
async fn closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    let _ = read.expect("the connection is still open");
}

/// The client reads no answers, so they fill the buffers of the sockets and then wait.
#[tokio::test]
async fn answers_that_are_not_read_end_their_connection() {
    let short = Duration::from_millis(300);
    let bounds = Bounds { unread: short, idle: Some(short), closing: short, connections: 1, ..Bounds::default() };
    for port in ports(bounds).await {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut slow = socket.connect(port.address).await.unwrap();
        let requests = port.request("").repeat(4_000);
        let sent = slow.write(requests.as_bytes()).await.unwrap();
        assert!(sent > 10_000, "{sent}");
        // Only one connection is allowed. The next one succeeds once the slow one has ended.
        let end = Instant::now() + Duration::from_secs(20);
        while port.status("").await.is_none() {
            assert!(Instant::now() < end, "{}: the slow reader is still served", port.path);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        drop(slow);
        wait_for("the answer that was not read is dropped", || port.requests.count() == 0).await;
    }
}

#[tokio::test]
async fn connections_without_requests_are_closed() {
    for port in ports(Bounds { idle: Some(Duration::from_millis(400)), ..Bounds::default() }).await {
        let (mut silent, mut used) = (port.connect().await, port.connect().await);
        assert_eq!(status(&mut used, &port.request("")).await, Some(200));
        closed(&mut silent).await;
        closed(&mut used).await;
    }
}

#[tokio::test]
async fn old_connections_are_closed_between_requests() {
    for port in ports(Bounds { age: Some(Duration::from_millis(400)), ..Bounds::default() }).await {
        let mut stream = port.connect().await;
        let began = Instant::now();
        let mut answers = 0;
        while status(&mut stream, &port.request("")).await.is_some() {
            answers += 1;
            assert!(began.elapsed() < Duration::from_secs(20), "the connection is still open");
        }
        assert!(answers > 0);
        assert_eq!(port.status("").await, Some(200));
    }
}

#[tokio::test]
async fn headers_are_bounded_in_size_and_number() {
    for port in ports(Bounds { header_bytes: 2_048, ..Bounds::default() }).await {
        assert_eq!(port.status(&format!("x-long: {}\r\n", "x".repeat(1_000))).await, Some(200));
        assert_eq!(port.status(&format!("x-long: {}\r\n", "x".repeat(4_000))).await, Some(431));
        assert_eq!(port.status(&"x-many: 1\r\n".repeat(99)).await, Some(200));
        assert_eq!(port.status(&"x-many: 1\r\n".repeat(101)).await, Some(431));
    }
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed() {
    for port in ports(Bounds { connections: 1, ..Bounds::default() }).await {
        let mut first = port.connect().await;
        assert_eq!(status(&mut first, &port.request("")).await, Some(200));
        assert_eq!(port.status("").await, None);
        assert_eq!(status(&mut first, &port.request("")).await, Some(200), "the first one goes on");
    }
}
