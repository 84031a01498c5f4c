//! What is recorded of every request over HTTP: its id, the counts that gRPC's requests have, and one line in the log.
//!
//! The layer [`recorded`] lies outside the check of tokens, so it sees what that refuses. [`named`] lies inside, and tells the
//! record whose token it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::problem::{Outcome, Problem};
use super::state::{HEALTH, INFINITY_MODELS, INFO, LIVE, MODEL, MODELS, OF_MODEL, OPENAPI, PING, READY};
use super::{ROUTES, Ready, shape_of};
use crate::observe::traces;
use crate::transport::{Caller, Peer};
use prefix_scheduler::call::{self, Observer, Operation, Refusal, Tally, Terms};

/// Header of the request id, in requests and answers.
const REQUEST_ID: &str = "x-request-id";

/// Paths whose requests are not recorded, as health and reflection are not over gRPC.
const UNRECORDED: [&str; 5] = [HEALTH, PING, READY, LIVE, OPENAPI];

/// Stands for every path that the server does not have, because their text is the caller's.
const UNKNOWN: &str = "unknown";

/// The status of a request whose caller left, as nginx has it.
const LEFT: u16 = 499;

/// What the records of all requests share. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    observer: Arc<dyn Observer>,
    /// Whether a request found the server ready. A server that is so no more stops.
    was_ready: Arc<AtomicBool>,
}

/// What is known of a request before its handler runs.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// The caller's id, or a new one.
    pub id: String,
    /// Counts of the work for the request.
    pub tally: Arc<Tally>,
    /// Name of the caller's token.
    name: Arc<OnceLock<String>>,
}

/// A request in progress. Dropping it records that the caller left.
struct Record {
    recorder: Recorder,
    operation: Operation,
    received: Received,
    caller: String,
    ready: Option<Ready>,
    started: Instant,
    ended: bool,
}

impl Recorder {
    /// Tells `observer` of the requests.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        for path in served() {
            observer.offered(&operation(path));
        }
        Self { observer, was_ready: Arc::default() }
    }

    /// Whether the server is ready now, which is remembered.
    fn sees_ready(&self, ready: Option<&Ready>) -> bool {
        let is = ready.is_none_or(Ready::is);
        if is {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        is
    }
}

impl Received {
    fn new(id: &str, tally: Tally) -> Self {
        Self { id: id.to_owned(), tally: Arc::new(tally), name: Arc::default() }
    }
}

/// The paths whose requests are recorded.
fn served() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|route| route.path).chain([MODELS, INFINITY_MODELS, MODEL, INFO])
}

fn operation(path: &str) -> Operation {
    Operation { kind: "unary", service: "http".to_owned(), method: path.to_owned() }
}

/// Gives a request its id and its record, and a problem without a body the one of its path.
pub(super) async fn recorded(State(recorder): State<Recorder>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let id = given.and_then(Terms::usable_id).unwrap_or_else(call::fresh_id);
    let shape = shape_of(request.uri().path());
    let mut record = Record::begin(&recorder, &request, &id);
    let received =
        record.as_ref().map_or_else(|| Received::new(&id, Tally::default()), |record| record.received.clone());
    let span = received.tally.trace().clone();
    request.extensions_mut().insert(received);
    let mut response = next.run(request).instrument(span).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let allow = response.headers_mut().remove(header::ALLOW);
        response = problem.response(shape, &id);
        response.headers_mut().extend(allow.map(|methods| (header::ALLOW, methods)));
    }
    if let Ok(header) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, header);
    }
    if let Some(record) = &mut record {
        record.answered(&response);
    }
    response
}

/// Tells the record of a request whose token it carries. The check has let the request in.
pub(super) async fn named(request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    if let (Some(received), Some(name)) =
        (extensions.get::<Received>(), extensions.get::<Caller>().and_then(Caller::name))
    {
        let _ = received.name.set(name.to_owned());
    }
    next.run(request).await
}

impl Record {
    /// Begins the record of a request; `None` where nothing is recorded. Its trace is that of its `traceparent`, if there is
    /// one.
    fn begin(recorder: &Recorder, request: &Request, id: &str) -> Option<Self> {
        let (path, ready) = (request.uri().path(), request.extensions().get::<Ready>());
        recorder.sees_ready(ready);
        if UNRECORDED.contains(&path) {
            return None;
        }
        let named = path.starts_with(OF_MODEL).then_some(MODEL);
        let path = served().find(|served| *served == path).or(named).unwrap_or(UNKNOWN);
        let operation = operation(path);
        recorder.observer.started(&operation);
        let method = match request.method().as_str() {
            "GET" => "GET",
            "POST" => "POST",
            _ => "_OTHER",
        };
        let trace = traces::over_http(method, path, id, request.headers());
        Some(Self {
            recorder: recorder.clone(),
            operation,
            received: Received::new(id, Tally::new(trace)),
            caller: request.extensions().get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default(),
            ready: ready.cloned(),
            started: Instant::now(),
            ended: false,
        })
    }

    fn answered(&mut self, response: &Response) {
        let outcome = response.extensions().get::<Outcome>().copied().unwrap_or(Outcome::ANSWERED);
        self.end(response.status().as_u16(), outcome);
    }

    fn end(&mut self, status: u16, outcome: Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (tally, elapsed) = (&self.received.tally, self.started.elapsed());
        self.recorder.observer.handled(&self.operation, outcome.code, elapsed);
        if let Some(reason) = self.refusal(outcome) {
            self.recorder.observer.refused(reason);
        }
        traces::answered_over_http(tally, status);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    path = %self.operation.method,
                    status,
                    milliseconds = elapsed.as_secs_f64() * 1e3,
                    passages = tally.passages(),
                    tokens = tally.tokens(),
                    id = %self.received.id,
                    caller = %self.caller,
                    name = self.received.name.get().map(String::as_str),
                    "answered"
                )
            };
        }
        // Nobody may fill the log without a token.
        if outcome.code == Outcome::UNAUTHENTICATED { line!(debug) } else { line!(info) }
    }

    /// Why the request was refused; `None` for one that was answered, or that was worked for.
    fn refusal(&self, outcome: Outcome) -> Option<Refusal> {
        match outcome.refusal {
            Some(Refusal::Deadline) if self.received.tally.has_begun() => None,
            Some(Refusal::Unavailable) if self.stopping() => Some(Refusal::Draining),
            refusal => refusal,
        }
    }

    fn stopping(&self) -> bool {
        !self.recorder.sees_ready(self.ready.as_ref()) && self.recorder.was_ready.load(Ordering::Relaxed)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(LEFT, Outcome { code: "Canceled", refusal: None });
    }
}
