//! The record of a request, over gRPC and over HTTP: counts, a span for traces, a request id, and one line in the log.
//!
//! The layers that make records are outside the services and the token check, so that refusals are recorded too.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, Request};

use super::traces;
use crate::transport::{LearnsCaller, Peer};
use prefix_scheduler::call::{self, Observer, Operation, Refusal, Tally, Terms};

/// Header of the request id, in requests and answers.
const REQUEST_ID: &str = "x-request-id";

/// HTTP status of a request whose caller disconnected, as in nginx.
const LEFT: u16 = 499;

/// The code of a request without a valid token.
const UNAUTHENTICATED: &str = "Unauthenticated";

/// The part of the record that layers and handlers use; an extension of the request.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The caller's id, or a new one.
    pub id: String,
    /// Counts of the work for the request.
    pub tally: Arc<Tally>,
}

/// The caller's request id in usable form, or a new one.
pub fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    given.and_then(Terms::usable_id).unwrap_or_else(call::fresh_id)
}

/// Puts the request id into the headers of a request or an answer.
pub fn put_id(id: &str, headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, value);
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The name of its gRPC status, also over HTTP, so that counts of both can be added.
    pub code: &'static str,
    /// Its status over HTTP; `None` over gRPC.
    pub status: Option<u16>,
    /// The reason for a refusal, if nothing was evaluated.
    pub refusal: Option<Refusal>,
    /// True if the server is at fault.
    pub server_fault: bool,
}

/// A running request. Dropping it records that the caller disconnected.
pub struct Record {
    observer: Arc<dyn Observer>,
    operation: Arc<Operation>,
    recorded: Recorded,
    caller: String,
    name: LearnsCaller,
    started: Instant,
    /// Deadline of a request over gRPC. The transport itself ends a late answer.
    deadline: Option<Instant>,
    over_http: bool,
    ended: bool,
}

impl Record {
    /// Begins the record of a request over gRPC, which must be answered at `deadline`.
    pub fn over_grpc<B>(
        observer: Arc<dyn Observer>,
        operation: Arc<Operation>,
        request: &mut Request<B>,
        deadline: Option<Instant>,
    ) -> Self {
        let id = request_id(request.headers());
        let trace = traces::request(&operation, &id, request.headers());
        let mut record = Self::begin(observer, operation, id, Tally::new(trace), request);
        (record.deadline, record.over_http) = (deadline, false);
        record
    }

    /// Begins the record of a request over HTTP.
    pub fn over_http<B>(
        observer: Arc<dyn Observer>,
        operation: Arc<Operation>,
        request: &mut Request<B>,
        id: String,
    ) -> Self {
        let method = match request.method().as_str() {
            "GET" => "GET",
            "POST" => "POST",
            _ => "_OTHER",
        };
        let trace = traces::over_http(method, &operation.method, &id, request.headers());
        Self::begin(observer, operation, id, Tally::new(trace), request)
    }

    fn begin<B>(
        observer: Arc<dyn Observer>,
        operation: Arc<Operation>,
        id: String,
        tally: Tally,
        request: &mut Request<B>,
    ) -> Self {
        observer.started(&operation);
        let peer = request.extensions().get::<Peer>();
        let caller = peer.map(|peer| peer.0.to_string()).unwrap_or_default();
        let (recorded, name) = (Recorded { id, tally: Arc::new(tally) }, LearnsCaller::default());
        put_id(&recorded.id, request.headers_mut());
        request.extensions_mut().insert(recorded.clone());
        request.extensions_mut().insert(name.clone());
        let started = Instant::now();
        Self { observer, operation, recorded, caller, name, started, deadline: None, over_http: true, ended: false }
    }

    /// The part that layers and handlers use.
    pub const fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Ends the record, once.
    pub fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let (tally, elapsed) = (&self.recorded.tally, self.started.elapsed());
        self.observer.handled(&self.operation, end.code, elapsed);
        // A call is not refused if work for it has begun.
        let refusal = end.refusal.filter(|refusal| *refusal != Refusal::Deadline || !tally.has_begun());
        if let Some(reason) = refusal {
            self.observer.refused(reason);
        }
        match end.status {
            Some(status) => traces::answered_over_http(tally, status),
            None => traces::answered(tally, end.code, end.server_fault),
        }
        let path = self.over_http.then_some(self.operation.method.as_str());
        let method = (!self.over_http).then(|| format!("{}/{}", self.operation.service, self.operation.method));
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    method = method.as_ref().map(tracing::field::display),
                    path = path.map(tracing::field::display),
                    code = (!self.over_http).then_some(end.code),
                    status = end.status,
                    milliseconds = elapsed.as_secs_f64() * 1e3,
                    passages = tally.passages(),
                    tokens = tally.tokens(),
                    id = %self.recorded.id,
                    caller = %self.caller,
                    name = self.name.name(),
                    "answered"
                )
            };
        }
        // At debug level, because callers without a token must not fill the log.
        if end.code == UNAUTHENTICATED { line!(debug) } else { line!(info) }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.end(End {
            code: if late { "DeadlineExceeded" } else { "Canceled" },
            status: self.over_http.then_some(LEFT),
            refusal: late.then_some(Refusal::Deadline),
            server_fault: late,
        });
    }
}
