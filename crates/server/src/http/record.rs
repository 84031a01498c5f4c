//! Records of requests over HTTP. [`recorded`] is a layer outside the token check, so it also sees refused requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::page::PAGE;
use super::problem::{Outcome, Problem};
use super::routes::{ROUTES, shape_of};
use super::state::Ready;
use super::state::{HEALTH, INFINITY_MODELS, INFO, LIVE, MODEL, MODELS, OF_MODEL, OPENAPI, PING, READY};
use crate::observe::record::{End, Record, Recorded, put_id, request_id};
use prefix_scheduler::call::{Observer, Operation, Refusal, Tally};

/// Paths whose requests are not recorded, like health and reflection over gRPC. Neither are those for the page, whose
/// path also ranks.
const UNRECORDED: [&str; 5] = [HEALTH, PING, READY, LIVE, OPENAPI];

/// Replaces unknown paths, because the caller chooses their text.
const UNKNOWN: &str = "unknown";

/// Shared by the records of all requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    observer: Arc<dyn Observer>,
    /// True once a request found the server ready. If the server is not ready afterwards, it is stopping.
    was_ready: Arc<AtomicBool>,
}

impl Recorder {
    /// Reports the requests to `observer`.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        for path in served() {
            observer.offered(&operation(path));
        }
        Self { observer, was_ready: Arc::default() }
    }

    /// True if the server is ready. Remembers it.
    fn sees_ready(&self, ready: Option<&Ready>) -> bool {
        let is = ready.is_none_or(Ready::is);
        if is {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        is
    }

    /// Begins the record of a request; `None` if requests to its path are not recorded.
    fn begin(&self, request: &mut Request, id: &str) -> Option<Record> {
        let path = request.uri().path();
        if UNRECORDED.contains(&path) || (path == PAGE && request.method() == Method::GET) {
            return None;
        }
        let named = path.starts_with(OF_MODEL).then_some(MODEL);
        let path = served().find(|served| *served == path).or(named).unwrap_or(UNKNOWN);
        let (observer, operation) = (Arc::clone(&self.observer), Arc::new(operation(path)));
        Some(Record::over_http(observer, operation, request, id.to_owned()))
    }
}

/// The paths whose requests are recorded.
fn served() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|route| route.path).chain([MODELS, INFINITY_MODELS, MODEL, INFO])
}

fn operation(path: &str) -> Operation {
    Operation { kind: "unary", service: "http".to_owned(), method: path.to_owned() }
}

/// Adds id and record to a request. Writes the body of a problem in the shape of its path.
pub(super) async fn recorded(State(recorder): State<Recorder>, mut request: Request, next: Next) -> Response {
    let ready = request.extensions().get::<Ready>().cloned();
    recorder.sees_ready(ready.as_ref());
    let (id, shape) = (request_id(request.headers()), shape_of(request.uri().path()));
    let record = recorder.begin(&mut request, &id);
    let span = match &record {
        Some(record) => record.recorded().tally.trace().clone(),
        None => {
            request.extensions_mut().insert(Recorded { id: id.clone(), tally: Arc::new(Tally::default()) });
            tracing::Span::none()
        }
    };
    let mut response = next.run(request).instrument(span).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let allow = response.headers_mut().remove(header::ALLOW);
        response = problem.response(shape, &id);
        response.headers_mut().extend(allow.map(|methods| (header::ALLOW, methods)));
    }
    put_id(&id, response.headers_mut());
    if let Some(mut record) = record {
        let Outcome { code, refusal } = response.extensions().get().copied().unwrap_or(Outcome::ANSWERED);
        let stopping = !recorder.sees_ready(ready.as_ref()) && recorder.was_ready.load(Ordering::Relaxed);
        let refusal = refusal.map(|reason| match reason {
            Refusal::Unavailable if stopping => Refusal::Draining,
            other => other,
        });
        let status = response.status();
        record.end(End { code, status: Some(status.as_u16()), refusal, server_fault: status.is_server_error() });
    }
    response
}
