//! The tower layer that asks for a token.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{Peer, Refused, Tokens};

/// Refuses requests without a valid token. The others carry their [`super::Caller`] in their extensions.
///
/// `open` tells by the path of a request whether it needs no token. `refuse` makes the response to a refusal.
#[derive(Clone)]
pub struct Authenticate<R> {
    tokens: Arc<Tokens>,
    open: fn(&str) -> bool,
    refuse: R,
}

impl<R> Authenticate<R> {
    /// A layer that checks `tokens`.
    pub const fn new(tokens: Arc<Tokens>, open: fn(&str) -> bool, refuse: R) -> Self {
        Self { tokens, open, refuse }
    }
}

impl<S, R: Clone> Layer<S> for Authenticate<R> {
    type Service = Authenticated<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticated { inner, gate: self.clone() }
    }
}

/// A service behind [`Authenticate`].
#[derive(Clone)]
pub struct Authenticated<S, R> {
    inner: S,
    gate: Authenticate<R>,
}

impl<S, R, B, A> Service<Request<B>> for Authenticated<S, R>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
    R: Fn(Refused) -> Response<A>,
    A: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<A>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if !(self.gate.open)(request.uri().path()) {
            match self.gate.tokens.check(request.headers()) {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                }
                Err(refused) => {
                    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
                    tracing::debug!(?peer, path = request.uri().path(), reason = %refused, "caller refused");
                    let response = (self.gate.refuse)(refused);
                    return Box::pin(std::future::ready(Ok(response)));
                }
            }
        }
        Box::pin(self.inner.call(request))
    }
}
