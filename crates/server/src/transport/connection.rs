//! One connection of HTTP/1.1 or HTTP/2: its bounds and its end.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::in_flight::InFlight;
use super::response::Parts;
use super::{Closing, Peer};

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Bounds on the resources that a client may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most connections at once. Further ones are closed right after they are accepted.
    pub connections: usize,
    /// Most requests in flight on one HTTP/2 connection; HTTP/1.1 has one at a time.
    pub streams: u32,
    /// Most bytes of the header fields of a request. A request over HTTP/1.1 has at most [`HEADER_FIELDS`] of them.
    pub header_bytes: u32,
    /// Most streams that a client may have reset before the server accepted them. More close the connection: this is
    /// the pattern of the rapid-reset attack (CVE-2023-44487).
    pub pending_resets: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest time of a connection without requests; `None` for no bound.
    pub idle: Option<Duration>,
    /// Longest life of a connection; `None` for no bound. It varies by up to a tenth between connections, so that
    /// clients do not all reconnect at once.
    pub age: Option<Duration>,
    /// Time for requests to end after the connection has reached its age.
    pub age_grace: Duration,
    /// Time for the client of an idle connection to close it.
    pub closing: Duration,
    /// Time between HTTP/2 pings; `None` for none.
    pub keepalive: Option<Duration>,
    /// Longest time for a client to answer a ping.
    pub keepalive_timeout: Duration,
    /// Longest time for which a client may leave a part of a response unread.
    pub unread: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 16_384,
            streams: 256,
            header_bytes: 16_384,
            pending_resets: 20,
            handshake: Duration::from_secs(10),
            idle: Some(Duration::from_mins(15)),
            age: None,
            age_grace: Duration::from_mins(5),
            closing: Duration::from_secs(5),
            keepalive: Some(Duration::from_mins(1)),
            keepalive_timeout: Duration::from_secs(20),
            unread: Duration::from_secs(30),
        }
    }
}

/// Most header fields of a request over HTTP/1.1.
pub const HEADER_FIELDS: usize = 100;

/// Most unread bytes of the body of an HTTP/2 stream.
const STREAM_WINDOW: u32 = 64 << 10;

/// Most unread bytes of a connection with this many streams: enough for all of them. With less, unread streams would
/// block the others.
fn connection_window(streams: u32) -> u32 {
    // The most that HTTP/2 allows (RFC 9113, section 6.9.1).
    const MOST: u32 = (1 << 31) - 1;
    STREAM_WINDOW.saturating_mul(streams).clamp(STREAM_WINDOW, MOST)
}

/// hyper's smallest buffer for HTTP/1.1.
const LEAST_BUFFER: usize = 8_192;

/// Shared by all connections of a listener.
#[derive(Clone)]
pub(super) struct Shared {
    pub protocol: Protocol,
    pub bounds: Bounds,
    /// Requests that a stopping server finishes.
    pub requests: InFlight,
    /// True for paths whose requests last until the client ends them. A stopping server does not wait for these.
    pub endless: fn(&str) -> bool,
    /// Ends the connections after their requests are answered.
    pub stop: CancellationToken,
}

/// Serves one connection until it ends.
pub(super) async fn serve<I, S, B>(io: I, peer: Peer, service: S, shared: Shared)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Shared { protocol, bounds, requests, endless, stop } = shared;
    let (open, closing) = (InFlight::default(), Closing::default());
    let life = Life { peer, bounds, open: open.clone(), closing: closing.clone(), stop };
    let service = TowerToHyperService::new(service);
    let handler = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(closing.clone());
        let counted = (open.begin(), (!endless(request.uri().path())).then(|| requests.begin()));
        let answer = hyper::service::Service::call(&service, request);
        async move { answer.await.map(|response| response.map(|body| Parts::of(body, bounds.unread, counted))) }
    });
    match protocol {
        Protocol::Http1 => {
            let bytes = bounds.header_bytes as usize;
            let mut builder = http1::Builder::new();
            // hyper's timer for headers would also end connections that wait for their next request. `Life` ends
            // connections without a complete header.
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_headers(HEADER_FIELDS)
                .max_header_size(bytes)
                .max_buf_size(bytes.max(LEAST_BUFFER));
            life.lead(builder.serve_connection(TokioIo::new(io), handler)).await;
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(bounds.streams)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(connection_window(bounds.streams))
                .max_header_list_size(bounds.header_bytes)
                .max_pending_accept_reset_streams(bounds.pending_resets)
                .keep_alive_interval(bounds.keepalive)
                .keep_alive_timeout(bounds.keepalive_timeout);
            life.lead(builder.serve_connection(TokioIo::new(io), handler)).await;
        }
    }
}

/// Decides when a connection ends.
struct Life {
    peer: Peer,
    bounds: Bounds,
    /// Its requests in flight.
    open: InFlight,
    /// Signals to its requests that it closes.
    closing: Closing,
    stop: CancellationToken,
}

impl Life {
    /// Serves the connection. Closes it when it is idle or old, or when the server stops.
    async fn lead(self, connection: impl GracefulConnection<Error = hyper::Error>) {
        // Closes the connection in two steps: first gracefully, then by force.
        let Self { peer, bounds, open, closing: Closing(closing), stop } = self;
        let mut connection = pin!(connection);
        let mut graced = false;
        let mut end = pin!(at(bounds.age.map(|age| Instant::now() + spread(age, peer))));
        loop {
            tokio::select! {
                outcome = &mut connection => {
                    if let Err(error) = outcome {
                        tracing::debug!(peer = %peer.0, %error, "connection failed");
                    }
                    return;
                }
                () = &mut end => {
                    // Requests that arrived while an idle connection was closing get the same grace as those of an old
                    // one.
                    if closing.is_cancelled() && (graced || open.count() == 0) {
                        tracing::debug!(peer = %peer.0, "connection cut");
                        return;
                    }
                    graced = true;
                    end.set(at(Some(Instant::now() + bounds.age_grace)));
                }
                () = unused(&open, bounds.idle), if !closing.is_cancelled() => {
                    end.set(at(Some(Instant::now() + bounds.closing)));
                }
                // The server's drain bounds the rest.
                () = stop.cancelled(), if !closing.is_cancelled() => end.set(at(None)),
            }
            closing.cancel();
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Sleeps until `end`, or forever.
async fn at(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => pending().await,
    }
}

/// An age between nine tenths of `age` and `age`, depending on the client's port.
fn spread(age: Duration, peer: Peer) -> Duration {
    age * (1_000 - u32::from(peer.0.port() % 100)) / 1_000
}

/// Resolves after `bound` without requests.
async fn unused(open: &InFlight, bound: Option<Duration>) {
    match bound {
        Some(bound) => open.none_for(bound).await,
        None => pending().await,
    }
}
