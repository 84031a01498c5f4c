//! Bodies that a refusal leaves unread.
//!
//! A connection of HTTP/1.1 that is closed before all of a request was read is reset, and its caller, still sending, learns of the
//! reset instead of the answer: of a 401 or of a 429 and the time after which to try again. So what is left of the body is read
//! and dropped before such an answer is sent, as far as a body may be.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::{Instant, timeout_at};
use tokio_stream::StreamExt;

use crate::transport::{Closing, SLOWEST};

/// A body that a handler may read, and that is still there where it did not.
#[derive(Clone)]
struct Shared(Arc<Mutex<Kept>>);

struct Kept {
    body: Body,
    /// Whether the handler began to read it.
    begun: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let mut kept = self.lock();
        kept.begun = true;
        Pin::new(&mut kept.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.lock().body.size_hint()
    }
}

/// Reads what is left of the body of a refused request, `most` bytes of it, before the refusal is sent.
pub(super) async fn heard(State(most): State<usize>, request: Request, next: Next) -> Response {
    // A caller that asks first has not sent its body, and will not after a refusal.
    if request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let Closing(closing) = request.extensions().get::<Closing>().cloned().unwrap_or_default();
    let (parts, body) = request.into_parts();
    let body = Shared(Arc::new(Mutex::new(Kept { body, begun: false })));
    let response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    // Where it was begun, its caller had the time that a body may take.
    let unread = !body.lock().begun && !body.is_end_stream();
    if unread && (response.status().is_client_error() || response.status().is_server_error()) {
        tokio::select! {
            () = drain(Body::new(body), most, super::BODY) => {}
            // The connection has little time left, and the answer is to be sent in it.
            () = closing.cancelled() => {}
        }
    }
    response
}

/// Drops up to `most` bytes. They may take `patience`, and as much more as what came would take at [`SLOWEST`].
async fn drain(body: Body, most: usize, patience: Duration) {
    let (mut chunks, mut total, began) = (body.into_data_stream(), 0, Instant::now());
    while total <= most {
        let end = began + patience + Duration::from_secs(total as u64) / SLOWEST;
        let Ok(Some(Ok(chunk))) = timeout_at(end, chunks.next()).await else { return };
        total = total.saturating_add(chunk.len());
    }
}
