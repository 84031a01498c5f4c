//! What is recorded of every request: counts, a span for traces, a request id, and one line in the log.
//!
//! The layer lies outside all services and the check of tokens, so it sees refusals as well; behind that check [`named`] tells
//! it whose token a request has. A request ends with the status in its trailers, or when its answer is dropped: then the caller
//! has left.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, BoxFuture, Service, http};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use tracing::Instrument;

use super::operations::Operations;
use super::{edge, status};
use crate::observe::traces;
use crate::transport::{Caller, Peer};
use prefix_scheduler::call::{self, Observer, Operation, Refusal, Tally, Terms};

/// Header of the request id, in requests and answers.
const REQUEST_ID: &str = "x-request-id";

/// What the records of all requests share. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    observer: Arc<dyn Observer>,
    operations: Arc<Operations>,
    stopping: Arc<AtomicBool>,
}

impl Recorder {
    /// Tells `observer` of the requests of these methods.
    pub fn new(observer: Arc<dyn Observer>, operations: Operations) -> Self {
        for operation in operations.iter() {
            observer.offered(operation);
        }
        Self { observer, operations: Arc::new(operations), stopping: Arc::default() }
    }

    /// From now on an unavailable server is one that stops.
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
        let id = request_id(request.headers());
        let mut record = Record::begin(&self.recorder, operation, &id, &request);
        let header = http::HeaderValue::from_str(&id).ok();
        if let Some(header) = &header {
            request.headers_mut().insert(REQUEST_ID, header.clone());
        }
        request.extensions_mut().insert(Arc::clone(&record.tally));
        request.extensions_mut().insert(record.name.clone());
        let span = record.tally.trace().clone();
        let answer = span.in_scope(|| self.inner.call(request));
        Box::pin(async move {
            let mut response = answer.instrument(span).await?;
            if let Some(header) = header {
                response.headers_mut().insert(REQUEST_ID, header);
            }
            // An error that is known before the answer begins stands in its headers.
            if let Some(status) = Status::from_header_map(response.headers()) {
                record.end(&status);
            }
            Ok(response.map(|inner| Body::new(RecordedBody { inner, record })))
        })
    }
}

/// Where the record of a request learns the name of its token.
#[derive(Debug, Clone, Default)]
struct Name(Arc<OnceLock<String>>);

/// Tells the record of a request that the check of tokens has let in whose token it has.
pub(super) fn named(extensions: &http::Extensions) {
    if let (Some(record), Some(name)) = (extensions.get::<Name>(), extensions.get::<Caller>().and_then(Caller::name)) {
        let _ = record.0.set(name.to_owned());
    }
}

/// The caller's request id as it is used, or a new one.
fn request_id(headers: &http::HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    given.and_then(Terms::usable_id).unwrap_or_else(call::fresh_id)
}

/// A request in progress. Dropping it records that the caller left.
struct Record {
    recorder: Recorder,
    operation: Arc<Operation>,
    id: String,
    caller: String,
    name: Name,
    started: Instant,
    deadline: Option<Instant>,
    tally: Arc<Tally>,
    ended: bool,
}

impl Record {
    fn begin<B>(recorder: &Recorder, operation: Arc<Operation>, id: &str, request: &http::Request<B>) -> Self {
        recorder.observer.started(&operation);
        let peer = request.extensions().get::<Peer>();
        Self {
            recorder: recorder.clone(),
            id: id.to_owned(),
            caller: peer.map(|peer| peer.0.to_string()).unwrap_or_default(),
            name: Name::default(),
            started: Instant::now(),
            deadline: edge::deadline_of(request.headers()),
            tally: Arc::new(Tally::new(traces::request(&operation, id, request.headers()))),
            operation,
            ended: false,
        }
    }

    fn end(&mut self, status: &Status) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (code, elapsed, tally) = (code_name(status.code()), self.started.elapsed(), &self.tally);
        self.recorder.observer.handled(&self.operation, code, elapsed);
        let stopping = self.recorder.stopping.load(Ordering::Relaxed);
        if let Some(reason) = refusal(status, tally.has_begun(), stopping) {
            self.recorder.observer.refused(reason);
        }
        traces::answered(tally, code, is_server_fault(status));
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    method = %format_args!("{}/{}", self.operation.service, self.operation.method),
                    code,
                    milliseconds = elapsed.as_secs_f64() * 1e3,
                    passages = tally.passages(),
                    tokens = tally.tokens(),
                    id = %self.id,
                    caller = %self.caller,
                    name = self.name.0.get().map(String::as_str),
                    "answered"
                )
            };
        }
        // Nobody may fill the log without a token.
        if status.code() == Code::Unauthenticated { line!(debug) } else { line!(info) }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // The transport ends a late answer itself; nobody waits for it any more.
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let status = if late { Status::deadline_exceeded("") } else { Status::cancelled("") };
        self.end(&status);
    }
}

/// Why a request was refused; `None` for one that was answered, or that was worked for. The end of a stream with its
/// connection refuses nothing: what was read of the stream is answered. A message that its caller did not send in time says
/// nothing of the server's capacity.
pub(super) fn refusal(status: &Status, begun: bool, stopping: bool) -> Option<Refusal> {
    match status.code() {
        _ if status::is_closing(status) || status::is_late(status) => None,
        Code::InvalidArgument => Some(Refusal::Invalid),
        Code::ResourceExhausted if status.get_details_quota_failure().is_some() => Some(Refusal::Budget),
        Code::ResourceExhausted => Some(Refusal::QueueFull),
        Code::DeadlineExceeded if !begun => Some(Refusal::Deadline),
        Code::Unavailable if stopping => Some(Refusal::Draining),
        Code::Unavailable => Some(Refusal::Unavailable),
        _ => None,
    }
}

/// Statuses that say a fault of the server, by the semantic conventions of OpenTelemetry; but not the ends of streams with their
/// connections, nor of messages that their callers did not send.
fn is_server_fault(status: &Status) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    if status::is_closing(status) || status::is_late(status) {
        return false;
    }
    matches!(status.code(), Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}

/// Names of the codes as dashboards for gRPC know them.
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

/// A body whose end is the end of its request.
struct RecordedBody {
    inner: Body,
    record: Record,
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
                    this.record.end(&status);
                }
            }
            Poll::Ready(Some(Err(status))) => this.record.end(status),
            Poll::Ready(None) => this.record.end(&Status::unknown("")),
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

    /// It counted as a lack of capacity, and marked the trace as a fault of the server.
    #[test]
    fn a_message_that_was_not_sent_in_time_is_its_callers_fault() {
        let (late, passed) = (status::late(), Status::deadline_exceeded("the deadline passed"));
        for late in [late, status::next_late()] {
            assert_eq!((refusal(&late, false, false), is_server_fault(&late)), (None, false));
        }
        assert_eq!((refusal(&passed, false, false), is_server_fault(&passed)), (Some(Refusal::Deadline), true));
        assert_eq!((refusal(&status::closing(), false, true), is_server_fault(&status::closing())), (None, false));
    }
}
