//! The check of bearer tokens, as a tower layer.

use std::sync::{Arc, OnceLock};

use http::{Request, Response};
use tower_http::validate_request::{ValidateRequest, ValidateRequestHeaderLayer};

use super::{Caller, Peer, Refused, Tokens};

/// Refuses requests without a valid token. Adds the [`Caller`] to the extensions of the others.
#[derive(Clone)]
pub struct Authenticate<R> {
    tokens: Arc<Tokens>,
    open: fn(&str) -> bool,
    refuse: R,
}

impl<R> Authenticate<R> {
    /// A layer that checks `tokens`. `open` is true for the paths that need no token. `refuse` makes the response to a
    /// refusal.
    pub fn layer(
        tokens: Arc<Tokens>,
        open: fn(&str) -> bool,
        refuse: R,
    ) -> ValidateRequestHeaderLayer<Authenticate<R>> {
        ValidateRequestHeaderLayer::custom(Self { tokens, open, refuse })
    }
}

/// Receives the caller of a request from the token check. A layer outside the check adds it to the request's
/// extensions.
#[derive(Debug, Clone, Default)]
pub struct LearnsCaller(Arc<OnceLock<Caller>>);

impl LearnsCaller {
    /// Name of the token; `None` if the request was refused, or the server needs no token.
    pub fn name(&self) -> Option<&str> {
        self.0.get().and_then(Caller::name)
    }
}

impl<B, A, R: Fn(Refused) -> Response<A>> ValidateRequest<B> for Authenticate<R> {
    type ResponseBody = A;

    fn validate(&mut self, request: &mut Request<B>) -> Result<(), Response<A>> {
        if (self.open)(request.uri().path()) {
            return Ok(());
        }
        match self.tokens.check(request.headers()) {
            Ok(caller) => {
                if let Some(learns) = request.extensions().get::<LearnsCaller>() {
                    let _ = learns.0.set(caller.clone());
                }
                request.extensions_mut().insert(caller);
                Ok(())
            }
            Err(refused) => {
                let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
                tracing::debug!(?peer, path = request.uri().path(), reason = %refused, "caller refused");
                Err((self.refuse)(refused))
            }
        }
    }
}
