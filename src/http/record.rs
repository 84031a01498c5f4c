//! What is recorded of every request over HTTP: the counts that gRPC's requests have, and one line in the log.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};

use crate::call::{Observer, Operation, Refusal, Tally};
use crate::observe::traces;

/// A request in progress. Dropping it records that the caller left.
pub(super) struct Record {
    observer: Arc<dyn Observer>,
    operation: Operation,
    started: Instant,
    /// Counts of the work for the request.
    pub tally: Arc<Tally>,
    ended: bool,
}

impl Record {
    /// Begins the record of a request to `path` with the id `id`. Its trace is that of its `traceparent`, if there is one.
    pub fn begin(observer: Arc<dyn Observer>, path: &'static str, id: &str, headers: &HeaderMap) -> Self {
        let operation = Operation { kind: "unary", service: "http".to_owned(), method: path.to_owned() };
        observer.started(&operation);
        let tally = Arc::new(Tally::new(traces::over_http("POST", path, id, headers)));
        Self { observer, operation, started: Instant::now(), tally, ended: false }
    }

    /// Records the answer.
    pub fn end(&mut self, status: StatusCode, id: &str, caller: &str) {
        self.handled(code(status));
        traces::answered_over_http(&self.tally, status.as_u16());
        if let Some(reason) = refusal(status, self.tally.tokens()) {
            self.observer.refused(reason);
        }
        tracing::info!(
            path = %self.operation.method,
            status = status.as_u16(),
            milliseconds = self.started.elapsed().as_secs_f64() * 1e3,
            passages = self.tally.passages(),
            tokens = self.tally.tokens(),
            %id,
            %caller,
            "answered"
        );
    }

    fn handled(&mut self, code: &'static str) {
        self.ended = true;
        self.observer.handled(&self.operation, code, self.started.elapsed());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.ended {
            self.handled("Canceled");
            traces::answered_over_http(&self.tally, LEFT);
        }
    }
}

/// The status of a request whose caller left, as nginx has it.
const LEFT: u16 = 499;

/// The status as dashboards for gRPC name it.
const fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "OK",
        401 => "Unauthenticated",
        429 => "ResourceExhausted",
        LEFT => "Canceled",
        503 => "Unavailable",
        504 => "DeadlineExceeded",
        400..=498 => "InvalidArgument",
        _ => "Internal",
    }
}

/// Why a request was refused before the generator worked for it.
const fn refusal(status: StatusCode, tokens: u64) -> Option<Refusal> {
    match status.as_u16() {
        400..=428 => Some(Refusal::Invalid),
        429 => Some(Refusal::QueueFull),
        503 => Some(Refusal::Unavailable),
        504 if tokens == 0 => Some(Refusal::Deadline),
        _ => None,
    }
}
