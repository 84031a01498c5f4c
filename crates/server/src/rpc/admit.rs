//! Admission: a request gets its slot by its headers, before its message is decoded. A refusal then costs neither the
//! time nor the memory of a message, which may be as large as `server.message_bytes`.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::edge::{self, Edge};
use super::status;
use engine::types::EngineError;
use prefix_scheduler::call::{Call, Terms};

/// A service whose handlers find their [`Call`] in the request: [`call`], or [`terms`] for a stream of requests.
#[derive(Clone)]
pub(super) struct Admitted<S> {
    inner: S,
    edge: Edge,
}

impl<S> Admitted<S> {
    pub const fn new(inner: S, edge: Edge) -> Self {
        Self { inner, edge }
    }
}

impl<S: NamedService> NamedService for Admitted<S> {
    const NAME: &'static str = S::NAME;
}

/// The call of a request.
pub(super) fn call<T>(request: &Request<T>) -> Result<Call, Status> {
    let call = request.extensions().get::<Call>().cloned();
    call.ok_or_else(|| status::of(EngineError::Internal("the request was not admitted".to_owned())))
}

/// The terms of a stream of requests. Each of its questions is admitted separately.
pub(super) fn terms<T>(request: &Request<T>) -> Result<Terms, Status> {
    let terms = request.extensions().get::<Terms>().cloned();
    terms.ok_or_else(|| status::of(EngineError::Internal("the stream has no terms".to_owned())))
}

impl<S> Admitted<S> {
    /// Puts the call, or a stream's terms, into the request.
    fn admit<B>(&self, request: &mut http::Request<B>) -> Result<(), Status> {
        let terms = edge::terms(request).map_err(status::of)?;
        if edge::takes_many(request.uri().path()) {
            request.extensions_mut().insert(terms);
        } else {
            let call = self.edge.admit(terms)?;
            request.extensions_mut().insert(call);
        }
        Ok(())
    }
}

impl<S, B, R> Service<http::Request<B>> for Admitted<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = http::Response<R>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        match self.admit(&mut request) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
