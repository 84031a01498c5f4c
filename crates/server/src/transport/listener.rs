//! The accept loop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::connection::{self, Bounds, Protocol, Shared};
use super::{InFlight, Peer, Tls};

/// Options of a listener.
#[derive(Clone)]
pub struct Options {
    /// The protocol.
    pub protocol: Protocol,
    /// Bounds on connections.
    pub bounds: Bounds,
    /// TLS of new connections; `None` for plain text.
    pub tls: Option<Arc<Tls>>,
    /// Counts the requests that a stopping server finishes.
    pub requests: InFlight,
    /// True for paths whose requests last until the client ends them. Such requests are not counted.
    pub endless: fn(&str) -> bool,
}

impl Options {
    /// A plain-text listener whose requests all end.
    pub fn new(protocol: Protocol, bounds: Bounds) -> Self {
        Self { protocol, bounds, tls: None, requests: InFlight::default(), endless: |_| false }
    }
}

/// Pause after a failed accept. The usual cause is a lack of file descriptors, and connections must end first.
const PAUSE: Duration = Duration::from_millis(100);

/// Least time between two warnings about connections, so that clients cannot fill the log.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// True if a warning may be logged now. `last` is the time of the last one.
fn is_due(last: &mut Option<Instant>) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS);
    if due {
        *last = Some(Instant::now());
    }
    due
}

/// Accepts connections and serves requests on them until `stop`. Then the listener closes, connections end when their
/// requests are answered, and the future resolves after the last of them. Dropping it ends all connections at once.
pub async fn serve<S, B>(listener: TcpListener, service: S, options: Options, stop: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Options { protocol, bounds, tls, requests, endless } = options;
    let shared = Shared { protocol, bounds, requests, endless, stop: stop.clone() };
    let mut connections = JoinSet::new();
    let mut warned = None;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) if connections.len() >= bounds.connections => {
                drop(socket);
                if is_due(&mut warned) {
                    tracing::warn!(limit = bounds.connections, "connections.limit reached: new connections are closed");
                }
            }
            Ok((socket, address)) => {
                let (service, shared, tls) = (service.clone(), shared.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => connection::serve(nodelay(socket), Peer(address), service, shared).await,
                        Some(tls) => {
                            let handshake = tls.acceptor(shared.protocol).accept(nodelay(socket));
                            let handshake =
                                shared.stop.run_until_cancelled(tokio::time::timeout(bounds.handshake, handshake));
                            let Some(outcome) = handshake.await else { return };
                            match outcome {
                                Ok(Ok(io)) => connection::serve(io, Peer(address), service, shared).await,
                                Ok(Err(error)) => tracing::debug!(peer = %address, %error, "TLS handshake failed"),
                                Err(_) => tracing::debug!(peer = %address, "TLS handshake not complete in time"),
                            }
                        }
                    }
                });
            }
            Err(error) => {
                if is_due(&mut warned) {
                    tracing::warn!(%error, "cannot accept a connection");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Time for the last step of a cancelled call: a computation checks its call every few milliseconds, the generator
/// before every step.
const LAST_STEP: Duration = Duration::from_secs(1);

/// The last part of a drain, in which the remaining calls are cancelled and answered. It is included in the drain, so
/// that a sender of SIGTERM can rely on the length of the drain.
pub fn last_step(drain: Duration) -> Duration {
    LAST_STEP.min(drain / 5)
}

/// [`serve`] until `stop` resolves. Requests in flight then have at most `drain` to end. `cancel` is called before the
/// [`last_step`] if any remain.
pub async fn serve_until<S, B>(
    listener: TcpListener,
    service: S,
    options: Options,
    stop: impl Future<Output = ()> + Send,
    drain: Duration,
    cancel: impl FnOnce() + Send,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (requests, stopping) = (options.requests.clone(), CancellationToken::new());
    let mut serving = std::pin::pin!(serve(listener, service, options, stopping.clone()));
    tokio::select! {
        () = &mut serving => return,
        () = stop => stopping.cancel(),
    }
    finish(serving, &requests, drain, cancel).await;
}

/// Time for connections to send the last answers after the last request has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Drains a listener that was told to stop; `serving` is its [`serve`]. Requests have at most `drain` to end, and
/// `cancel` is called before the [`last_step`] if any remain. Does not wait for connections: one may have sent half of
/// a head, or nothing, and a client that watches health keeps its connection open.
pub async fn finish(
    mut serving: impl Future<Output = ()> + Unpin,
    requests: &InFlight,
    drain: Duration,
    cancel: impl FnOnce(),
) {
    let last_step = last_step(drain);
    let answered = |patience| tokio::time::timeout(patience, requests.none());
    tokio::select! {
        () = &mut serving => return,
        outcome = answered(drain.saturating_sub(last_step)) => if outcome.is_err() {
            cancel();
        }
    }
    tokio::select! {
        () = &mut serving => return,
        _ = answered(last_step) => {}
    }
    let _ = tokio::time::timeout(LAST_ANSWERS.min(last_step), serving).await;
}

/// Small answers must not wait for the acknowledgement of earlier ones.
fn nodelay(socket: TcpStream) -> TcpStream {
    let _ = socket.set_nodelay(true);
    socket
}
