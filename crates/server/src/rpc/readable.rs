//! The message of a request must arrive in time and be readable. Otherwise the caller is at fault.
//!
//! tonic waits for a message without limit, and answers INTERNAL if a frame has a wrong flag, ends early or is wrongly
//! marked as gzip. A caller that retries INTERNAL would send the same bytes again. Every service is behind this layer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};

use super::{edge, status};
use crate::transport::MESSAGE;

/// A service that waits at most [`MESSAGE`] for a message, and answers an unreadable one with INVALID_ARGUMENT instead
/// of INTERNAL.
#[derive(Clone)]
pub(super) struct Readable<S>(pub S);

impl<S, B, A> Service<http::Request<B>> for Readable<S>
where
    S: Service<http::Request<Body>, Response = http::Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<A>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let end = Instant::now() + MESSAGE;
        let end = edge::deadline_of(request.headers()).map_or(end, |deadline| end.min(deadline.into()));
        let is_stream = edge::takes_many(request.uri().path());
        let answer = self.0.call(request.map(|body| {
            let body = Body::new(body);
            if is_stream { body } else { Body::new(Timely { inner: body, end: Box::pin(sleep_until(end)) }) }
        }));
        Box::pin(async move {
            let mut response = answer.await?;
            if let Some(status) = Status::from_header_map(response.headers()) {
                // A status whose details cannot be a header stays unchanged.
                let _ = status::readable(status).add_header(response.headers_mut());
            }
            Ok(response)
        })
    }
}

/// A body that fails unless it is complete in time.
struct Timely {
    inner: Body,
    end: Pin<Box<Sleep>>,
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => self.end.as_mut().poll(context).map(|()| Some(Err(status::late()))),
            ready @ Poll::Ready(_) => ready,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Code;

    use super::*;

    /// A caller that sends bytes slowly does not extend the deadline.
    #[tokio::test]
    async fn a_message_must_be_complete_in_time() {
        let (sender, parts) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let inner = Body::new(axum::body::Body::from_stream(ReceiverStream::new(parts)));
        let end = Box::pin(sleep_until(Instant::now() + Duration::from_millis(100)));
        let mut body = Timely { inner, end };
        let drip = tokio::spawn(async move {
            while sender.send(Ok(Bytes::from_static(b"x"))).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let status = loop {
            if let Err(status) = body.frame().await.unwrap() {
                break status;
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded);
        drop(body);
        drip.await.unwrap();
    }
}
