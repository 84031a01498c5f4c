//! One connection of HTTP/1.1 or HTTP/2: its bounds, its end, and responses that are not taken.
//!
//! hyper runs every stream of an HTTP/2 connection as a task of its own, through the executor that it is given. `Streams` is
//! that executor. It counts the streams, so that a connection without any can be closed, and ends a stream whose response the
//! client does not take. An HTTP/1.1 connection has one request at a time, which is counted where it is handled. `Patient`
//! ends a connection of either protocol whose client takes nothing, or does not end its header.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::in_flight::{Counted, InFlight};
use super::patient::Patient;
use super::refused::{Listen, Resets};
use super::seldom::Seldom;
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

/// Longest time from the first byte of a request over HTTP/1.1 to the end of its header.
const HEADER: Duration = Duration::from_secs(30);

/// Bytes a second at which a request may come for as long as it likes.
pub const SLOWEST: u32 = 64 << 10;

/// Most bytes of the body of an HTTP/2 stream that wait to be read. A caller as far away as a second still comes at [`SLOWEST`].
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
    /// Hears of requests over HTTP/2 that are refused before they reach the service.
    pub unserved: Listen,
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
    let Shared { protocol, bounds, requests, endless, unserved, stop } = shared;
    let (open, closing) = (InFlight::default(), Closing::default());
    let service = TowerToHyperService::new(service);
    let told = closing.clone();
    let own = (protocol == Protocol::Http1).then(|| open.clone());
    let handler = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(told.clone());
        let counted = (!endless(request.uri().path())).then(|| requests.begin());
        let counted = (counted, own.as_ref().map(InFlight::begin));
        let answer = hyper::service::Service::call(&service, request);
        async move { answer.await.map(|response| response.map(|body| Paced::new(body, counted))) }
    });
    let header = (protocol == Protocol::Http1).then_some(HEADER);
    let resets = (protocol == Protocol::Http2).then(|| Resets::new(unserved));
    let io = TokioIo::new(Patient::new(io, bounds.unread, header, open.clone(), resets));
    let life = Life { peer, bounds, open: open.clone(), closing, stop };
    match protocol {
        Protocol::Http1 => {
            let bytes = bounds.header_bytes as usize;
            let mut builder = http1::Builder::new();
            // hyper's own timer for headers would also end connections that wait for their next request.
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_headers(HEADER_FIELDS)
                .max_header_size(bytes)
                .max_buf_size(bytes.max(LEAST_BUFFER));
            life.lead(builder.serve_connection(io, handler)).await;
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(Streams { open, patience: bounds.unread });
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(bounds.streams)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(connection_window(bounds.streams))
                .max_header_list_size(bounds.header_bytes)
                .max_pending_accept_reset_streams(bounds.pending_resets)
                .keep_alive_interval(bounds.keepalive)
                .keep_alive_timeout(bounds.keepalive_timeout);
            life.lead(builder.serve_connection(io, handler)).await;
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

/// Resolves when there were no open streams for the time of `bound`.
async fn unused(open: &InFlight, bound: Option<Duration>) {
    let Some(bound) = bound else { return pending().await };
    loop {
        match open.idle_since() {
            None => open.none().await,
            Some(since) if since.elapsed() >= bound => return,
            Some(since) => tokio::time::sleep_until(since + bound).await,
        }
    }
}

tokio::task_local! {
    /// In the task of a stream: the part of the response that was handed out and that the client has not yet taken.
    static OFFERED: Cell<Option<Offered>>;
}

/// A part of a response that waits for the client.
#[derive(Debug, Clone, Copy)]
struct Offered {
    since: Instant,
    /// Bytes of the message that were taken before, and how long the client let them wait.
    sent: usize,
    waited: Duration,
}

/// Of all connections: a client without a token may open thousands.
static UNREAD: Seldom = Seldom::new();

/// Runs the streams of one connection.
#[derive(Clone)]
pub(super) struct Streams {
    open: InFlight,
    patience: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (open, counted, patience) = (self.open.clone(), self.open.begin(), self.patience);
        tokio::spawn(async move {
            let _counted = counted;
            if !taken(stream, patience, &open).await
                && let Some(untold) = UNREAD.is_due()
            {
                let seconds = patience.as_secs();
                tracing::warn!(seconds, untold, "the client did not read its response: stream reset");
            }
        });
    }
}

/// Streams of a connection that may share the least rate at which responses are taken. More would let a client hold the responses
/// of all its streams for hours.
const SHARING: u32 = 8;

/// Runs a stream. Drops it, which resets it, and returns false where a part of its response is not taken within `patience`, or the
/// parts of a message together not within it and the time that their bytes take at [`SLOWEST`], which the connection's streams share.
async fn taken(stream: impl Future<Output = ()>, patience: Duration, open: &InFlight) -> bool {
    let watched = async move {
        let mut stream = pin!(stream);
        let mut timer = pin!(tokio::time::sleep(patience));
        poll_fn(|context| {
            if stream.as_mut().poll(context).is_ready() {
                return Poll::Ready(true);
            }
            let Some(Offered { since, sent, waited }) = OFFERED.with(Cell::get) else { return Poll::Pending };
            let streams = u32::try_from(open.count()).unwrap_or(SHARING).clamp(1, SHARING);
            let allowed = Duration::from_secs(sent as u64) / SLOWEST * streams;
            let end = since + patience.saturating_sub(waited.saturating_sub(allowed));
            if timer.deadline() != end {
                timer.as_mut().reset(end);
            }
            timer.as_mut().poll(context).map(|()| false)
        })
        .await
    };
    OFFERED.scope(Cell::new(None), watched).await
}

/// Largest part of a response that is handed to HTTP/2 at once. HTTP/2 buffers what it is given, so without this a response
/// would wait in memory for a client that does not read, and nobody would know.
const PART: usize = 16 << 10;

pin_project_lite::pin_project! {
    /// A response body in parts.
    pub(super) struct Paced<B> {
        #[pin]
        inner: B,
        rest: Bytes,
        // Of the message that `rest` is the end of: the bytes handed out, and how long they waited.
        sent: usize,
        waited: Duration,
        offered: Option<Instant>,
        counted: (Option<Counted>, Option<Counted>),
    }
}

impl<B> Paced<B> {
    fn new(inner: B, counted: (Option<Counted>, Option<Counted>)) -> Self {
        Self { inner, rest: Bytes::new(), sent: 0, waited: Duration::ZERO, offered: None, counted }
    }
}

impl<B: Body<Data = Bytes>> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        offer(None);
        if let Some(since) = this.offered.take() {
            *this.waited += since.elapsed();
        }
        if this.rest.is_empty() {
            (*this.sent, *this.waited) = (0, Duration::ZERO);
            match ready!(this.inner.poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let since = Instant::now();
        *this.offered = Some(since);
        offer(Some(Offered { since, sent: *this.sent, waited: *this.waited }));
        let part = this.rest.split_to(this.rest.len().min(PART));
        *this.sent += part.len();
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// Notes that a part was handed out, or that the last one was taken. Outside a stream's task there is nothing to note.
fn offer(part: Option<Offered>) {
    let _ = OFFERED.try_with(|offered| offered.set(part));
}
