//! Messages that cannot be read are the caller's fault.
//!
//! tonic answers INTERNAL where a frame has a wrong flag, ends early or is not gzip though it says so. A caller that retries
//! INTERNAL would send the same bytes again and again. Every service is behind this one place, those without a permit too.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::codegen::{BoxFuture, Service, http};

use super::{record, status};

/// A service whose INTERNAL for an unreadable message becomes INVALID_ARGUMENT.
#[derive(Clone)]
pub(super) struct Readable<S>(pub S);

impl<S, B, A> Service<http::Request<B>> for Readable<S>
where
    S: Service<http::Request<B>, Response = http::Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<A>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // Here too because this is the one place behind the check of tokens that every request comes to.
        record::named(request.extensions());
        let answer = self.0.call(request);
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
