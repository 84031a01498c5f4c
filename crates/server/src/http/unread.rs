//! Unread bodies of refused requests.
//!
//! A server that closes an HTTP/1.1 connection before it has read the whole request resets the connection. A caller
//! that still sends then sees the reset instead of the answer, such as a 401, or a 429 with its retry time. So the rest
//! of the body, up to the maximum size of a body, is read and dropped before such an answer is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::transport::{Closing, MESSAGE};

/// A body that can still be read after the handler returned.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Body> {
        self.0.lock()
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.lock().size_hint()
    }
}

/// Before a refusal is sent, reads up to `most` more bytes of the request's body.
pub(super) async fn heard(State(most): State<usize>, request: Request, next: Next) -> Response {
    // A caller with `expect` waits for permission, and sends no body after a refusal.
    if request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let Closing(closing) = request.extensions().get::<Closing>().cloned().unwrap_or_default();
    let (parts, body) = request.into_parts();
    let body = Shared(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    let status = response.status();
    // A body that timed out gets no more time.
    let refused = (status.is_client_error() || status.is_server_error()) && status != StatusCode::REQUEST_TIMEOUT;
    if refused && !body.is_end_stream() {
        tokio::select! {
            _ = timeout(MESSAGE, drain(body, most)) => {}
            // The connection closes soon; the answer must be sent first.
            () = closing.cancelled() => {}
        }
    }
    response
}

/// Drops up to `most` bytes.
async fn drain(mut body: Shared, most: usize) {
    let mut total = 0_usize;
    while let Some(Ok(frame)) = body.frame().await {
        total = total.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if total > most {
            return;
        }
    }
}
