//! Converts engine errors to gRPC statuses with details. The text of internal errors is logged and not sent.

use std::time::Duration;

use tokio::task::JoinError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use engine::types::EngineError;
use rag_metrics::{MOST_REPEATED, brief, clipped};

/// Delay suggested to the caller while the model loads or its worker restarts.
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(1);

/// Message of this server's own INTERNAL statuses.
const INTERNAL: &str = "internal error; see the log";

/// Message at the end of a stream whose connection closes.
const CLOSING: &str = "the server closes this connection: questions without an answer were not processed";

/// Common end of the messages of late statuses.
const LATE: &str = "message was not received in time";

pub(super) fn of(error: EngineError) -> Status {
    let text = error.to_string();
    let message = brief(&text).into_owned();
    match error {
        EngineError::Invalid { field, problem } => {
            bad_field(message, &clipped(&field, MOST_REPEATED), &brief(&problem))
        }
        EngineError::TooLong { field, needed, available } => {
            let field = clipped(&field, MOST_REPEATED);
            let mut details = ErrorDetails::with_bad_request_violation(field, &message);
            let numbers = [("tokens_needed", needed), ("tokens_available", available)];
            let metadata: std::collections::HashMap<String, String> =
                numbers.map(|(name, number)| (name.to_owned(), number.to_string())).into();
            details.set_error_info("TOO_LONG", "rerankd", metadata);
            Status::with_error_details(Code::InvalidArgument, message, details)
        }
        EngineError::Budget { needed, allowed } => {
            let description = format!("{needed} tokens needed, at most {allowed} allowed");
            let details = ErrorDetails::with_quota_failure_violation("limits.tokens_per_request", description);
            Status::with_error_details(Code::ResourceExhausted, message, details)
        }
        EngineError::Pairs { allowed } => {
            let description = format!("at most {allowed} entailment judgements allowed");
            let details = ErrorDetails::with_quota_failure_violation("limits.pairs_per_request", description);
            Status::with_error_details(Code::ResourceExhausted, message, details)
        }
        EngineError::QueueFull { retry_after } => {
            let details = ErrorDetails::with_retry_info(Some(retry_after));
            Status::with_error_details(Code::ResourceExhausted, message, details)
        }
        EngineError::Precondition(_) => Status::failed_precondition(message),
        EngineError::Cancelled => Status::cancelled(message),
        EngineError::DeadlineExceeded => Status::deadline_exceeded(message),
        EngineError::Unavailable => {
            let details = ErrorDetails::with_retry_info(Some(RETRY_UNAVAILABLE));
            Status::with_error_details(Code::Unavailable, message, details)
        }
        EngineError::Internal(text) => {
            tracing::error!(error = %text, "request failed");
            Status::internal(INTERNAL)
        }
    }
}

/// A task that panicked. The text of the panic is only logged.
pub(super) fn of_panic(error: &JoinError) -> Status {
    of(EngineError::Internal(error.to_string()))
}

/// The end of a stream of questions whose connection closes. Unanswered questions can be asked again on a new
/// connection.
pub(super) fn closing() -> Status {
    let details = ErrorDetails::with_retry_info(Some(RETRY_UNAVAILABLE));
    Status::with_error_details(Code::Unavailable, CLOSING, details)
}

/// The time after which a busy server suggests another attempt.
pub(super) fn busy(status: &Status) -> Option<Duration> {
    let details = status.get_details_retry_info().filter(|_| status.code() == Code::ResourceExhausted);
    details.and_then(|details| details.retry_delay)
}

/// True for the status [`closing`].
pub(super) fn is_closing(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message() == CLOSING
}

/// The end of a request whose message was not complete in time.
pub(super) fn late() -> Status {
    Status::deadline_exceeded(format!("the {LATE}"))
}

/// The end of a stream of parts of one request whose next part did not come in time.
pub(super) fn next_late() -> Status {
    Status::deadline_exceeded(format!("the next {LATE}"))
}

/// The end of a stream of parts of one request that did not end in time.
pub(super) fn stream_late() -> Status {
    Status::deadline_exceeded(format!("the stream's last {LATE}"))
}

/// True for late statuses: the caller was slow, not the server.
pub(super) fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && status.message().ends_with(LATE)
}

/// A required message field is not set.
pub(super) fn unset(field: &str) -> Status {
    of(EngineError::invalid(field, "must be set"))
}

pub(super) fn bad_field(message: String, field: &str, problem: &str) -> Status {
    let details = ErrorDetails::with_bad_request_violation(field, problem);
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// Converts two statuses of tonic: INTERNAL for an unreadable message to INVALID_ARGUMENT, and RESOURCE_EXHAUSTED for a
/// compressed message that is too large to OUT_OF_RANGE, as for an uncompressed one. Other statuses stay unchanged.
pub(super) fn readable(status: Status) -> Status {
    // This server's own statuses have details: a retry time or a bound.
    if status.code() == Code::ResourceExhausted && status.details().is_empty() {
        return Status::out_of_range(status.message());
    }
    if status.code() != Code::Internal || status.message() == INTERNAL {
        return status;
    }
    bad_field(format!("message: {}", status.message()), "message", status.message())
}

/// Prefixes the field paths of a status with `parent`, the field that holds the refused message.
pub(super) fn under(parent: &str, status: Status) -> Status {
    let Some(request) = status.get_details_bad_request() else { return status };
    let mut details = status.get_error_details();
    let violations = request.field_violations.into_iter().map(|violation| {
        tonic_types::FieldViolation::new(format!("{parent}.{}", violation.field), violation.description)
    });
    details.set_bad_request(violations.collect::<Vec<_>>());
    Status::with_error_details(status.code(), format!("{parent}.{}", status.message()), details)
}
