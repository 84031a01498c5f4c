//! Messages that cannot be read are the caller's fault.
//!
//! tonic answers INTERNAL where a frame has a wrong flag, ends early or is not gzip though it says so. A caller that retries
//! INTERNAL would send the same bytes again and again. Messages that begin and do not end are the caller's fault, too
//! (`whole`). Every service is behind this one place, those without a permit too.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};

use super::admit::MESSAGE;
use super::whole::{Received, WholeMessages};
use super::{record, status};

/// A service whose INTERNAL for an unreadable message becomes INVALID_ARGUMENT, and that waits for no message for ever.
#[derive(Clone)]
pub(super) struct Readable<S>(pub S);

impl<S, B, A> Service<http::Request<B>> for Readable<S>
where
    S: Service<http::Request<Body>, Response = http::Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<A>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        // Here too because this is the one place behind the check of tokens that every request comes to.
        record::named(request.extensions());
        let received = Received::default();
        request.extensions_mut().insert(received.clone());
        let answer = self.0.call(request.map(|body| Body::new(WholeMessages::new(body, MESSAGE, received))));
        Box::pin(async move {
            let mut response = answer.await?;
            if let Some(status) = Status::from_header_map(response.headers()) {
                // A status whose details cannot be a header stays as it is.
                let _ = status::readable(status).add_header(response.headers_mut());
            }
            Ok(response)
        })
    }
}
