//! Records of requests over gRPC. A request ends with the status in its trailers. If its answer is dropped before, the
//! caller disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, BoxFuture, Service, http};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tracing::Instrument;

use super::operations::Operations;
use super::{edge, status};
use crate::observe::record::{End, Record, put_id};
use prefix_scheduler::call::{Observer, Refusal};

/// Shared by the records of all requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    observer: Arc<dyn Observer>,
    operations: Arc<Operations>,
    stopping: Arc<AtomicBool>,
}

impl Recorder {
    /// Reports the requests of these methods to `observer`.
    pub fn new(observer: Arc<dyn Observer>, operations: Operations) -> Self {
        for operation in operations.iter() {
            observer.offered(operation);
        }
        Self { observer, operations: Arc::new(operations), stopping: Arc::default() }
    }

    /// Marks the server as stopping. UNAVAILABLE then counts as draining.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl<S> tower_layer::Layer<S> for Recorder {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        Recorded { inner, recorder: self.clone() }
    }
}

/// A service whose requests are recorded.
#[derive(Debug, Clone)]
pub(super) struct Recorded<S> {
    inner: S,
    recorder: Recorder,
}

impl<S, B, E> Service<http::Request<B>> for Recorded<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>, Error = E>,
    S::Future: Send + 'static,
    E: 'static,
{
    type Response = http::Response<Body>;
    type Error = E;
    type Future = BoxFuture<Self::Response, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let Some(operation) = self.recorder.operations.of(request.uri().path()) else {
            return Box::pin(self.inner.call(request));
        };
        let deadline = edge::deadline_of(request.headers());
        let Recorder { observer, stopping, .. } = self.recorder.clone();
        let record = Record::over_grpc(observer, operation, &mut request, deadline);
        let span = record.recorded().tally.trace().clone();
        let answer = span.in_scope(|| self.inner.call(request));
        Box::pin(async move {
            let mut response = answer.instrument(span).await?;
            put_id(&record.recorded().id, response.headers_mut());
            let status = Status::from_header_map(response.headers());
            let mut body = RecordedBody { inner: Body::empty(), record, stopping };
            // An error before the beginning of the answer is in the headers.
            if let Some(status) = status {
                body.end(&status);
            }
            Ok(response.map(|inner| Body::new(RecordedBody { inner, ..body })))
        })
    }
}

/// The reason for a refusal; `None` for a request that was answered. The end of a stream with its connection is not a
/// refusal, because its questions are answered. A late message is not one either: it shows no lack of capacity.
pub(super) fn refusal(status: &Status, stopping: bool) -> Option<Refusal> {
    match status.code() {
        _ if status::is_closing(status) || status::is_late(status) => None,
        Code::InvalidArgument => Some(Refusal::Invalid),
        Code::ResourceExhausted if status.get_details_quota_failure().is_some() => Some(Refusal::Budget),
        Code::ResourceExhausted => Some(Refusal::QueueFull),
        Code::DeadlineExceeded => Some(Refusal::Deadline),
        Code::Unavailable if stopping => Some(Refusal::Draining),
        Code::Unavailable => Some(Refusal::Unavailable),
        _ => None,
    }
}

/// True for the server's faults by OpenTelemetry's semantic conventions, except ends of streams with their connections
/// and late messages.
fn is_server_fault(status: &Status) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    if status::is_closing(status) || status::is_late(status) {
        return false;
    }
    matches!(status.code(), Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}

/// Names of the codes, as in dashboards for gRPC.
pub(super) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// A body that ends the record of its request.
struct RecordedBody {
    inner: Body,
    record: Record,
    stopping: Arc<AtomicBool>,
}

impl RecordedBody {
    fn end(&mut self, status: &Status) {
        self.record.end(End {
            code: code_name(status.code()),
            status: None,
            refusal: refusal(status, self.stopping.load(Ordering::Relaxed)),
            server_fault: is_server_fault(status),
        });
    }
}

impl HttpBody for RecordedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Status>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    this.end(&status);
                }
            }
            Poll::Ready(Some(Err(status))) => this.end(status),
            Poll::Ready(None) => this.end(&Status::unknown("")),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is neither a lack of capacity nor a fault of the server.
    #[test]
    fn a_message_that_was_not_sent_in_time_is_its_callers_fault() {
        let (late, passed) = (status::late(), Status::deadline_exceeded("the deadline passed"));
        for late in [late, status::next_late()] {
            assert_eq!((refusal(&late, false), is_server_fault(&late)), (None, false));
        }
        assert_eq!((refusal(&passed, false), is_server_fault(&passed)), (Some(Refusal::Deadline), true));
        assert_eq!((refusal(&status::closing(), true), is_server_fault(&status::closing())), (None, false));
    }
}
