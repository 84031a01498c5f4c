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

/// What a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Bounds on connections, so that no client holds more of the server than they say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most connections at once. Further ones are closed as soon as they are accepted.
    pub connections: usize,
    /// Most requests in progress on one HTTP/2 connection; HTTP/1.1 has one at a time.
    pub streams: u32,
    /// Most bytes of the header fields of a request. A request over HTTP/1.1 has at most [`HEADER_FIELDS`] of them.
    pub header_bytes: u32,
    /// Most streams that a client may have reset before the server took them up. More close the connection: this is the
    /// pattern of the rapid-reset attack (CVE-2023-44487).
    pub pending_resets: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// How long a connection may have no request; `None` for no bound.
    pub idle: Option<Duration>,
    /// How old a connection may become; `None` for no bound. It differs by up to a tenth between connections, so that the
    /// clients of a server do not connect again all at once.
    pub age: Option<Duration>,
    /// How long requests may go on after the connection has reached its age.
    pub age_grace: Duration,
    /// How long a connection that closes for want of requests waits for its client to close.
    pub closing: Duration,
    /// Time between HTTP/2 pings; `None` for none.
    pub keepalive: Option<Duration>,
    /// How long a client may take to answer a ping.
    pub keepalive_timeout: Duration,
    /// How long a client may leave a part of a response unread.
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

/// Most bytes of the body of an HTTP/2 stream that wait to be read.
const STREAM_WINDOW: u32 = 64 << 10;

/// Most bytes that wait on a connection of so many streams: all that its streams may send. With less, streams that are not read
/// would keep the others from what they wait for.
fn connection_window(streams: u32) -> u32 {
    // The most that HTTP/2 allows (RFC 9113, section 6.9.1).
    const MOST: u32 = (1 << 31) - 1;
    STREAM_WINDOW.saturating_mul(streams).clamp(STREAM_WINDOW, MOST)
}

/// Least buffer that hyper takes for HTTP/1.1.
const LEAST_BUFFER: usize = 8_192;

/// What all connections of a listener share.
#[derive(Clone)]
pub(super) struct Shared {
    pub protocol: Protocol,
    pub bounds: Bounds,
    /// Requests that a stopping server finishes.
    pub requests: InFlight,
    /// Whether a request of this path goes on for as long as the client likes, so that a stopping server does not wait for it.
    pub endless: fn(&str) -> bool,
    /// Ends the connections once their requests are answered.
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
            // hyper's timer for headers would also end connections that wait for their next request. `Life` ends those that
            // have no complete header for too long.
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

/// When a connection ends.
struct Life {
    peer: Peer,
    bounds: Bounds,
    /// Its requests in progress.
    open: InFlight,
    /// Tells its requests that it closes.
    closing: Closing,
    stop: CancellationToken,
}

impl Life {
    /// Serves the connection, and closes it when it is idle, old, or the server stops.
    async fn lead(self, connection: impl GracefulConnection<Error = hyper::Error>) {
        // Closes the connection once: first in agreement with the client, then without.
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
                    // Requests that came while an unused connection was being closed end as those of an old one do.
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
                // The drain of the server bounds what is left.
                () = stop.cancelled(), if !closing.is_cancelled() => end.set(at(None)),
            }
            closing.cancel();
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// Sleeps until `end`, or for ever.
async fn at(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => pending().await,
    }
}

/// An age between nine tenths and all of `age`, by the client's port.
fn spread(age: Duration, peer: Peer) -> Duration {
    age * (1_000 - u32::from(peer.0.port() % 100)) / 1_000
}

/// Resolves when there were no requests for the time of `bound`.
async fn unused(open: &InFlight, bound: Option<Duration>) {
    match bound {
        Some(bound) => open.none_for(bound).await,
        None => pending().await,
    }
}
