//! Where a request becomes a [`Call`]: after it was decoded within the limits of size and
//! of fields, and before any work on its content. Headers state its terms.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::status;
use crate::call::{Admission, Call, Priority, Stopped, Terms};
use crate::engine::{Engine, EngineError};

/// What every service needs: the use cases, and who may come in.
#[derive(Clone)]
pub(super) struct Edge {
    pub engine: Engine,
    pub admission: Admission,
}

impl Edge {
    /// Takes a place for a call.
    pub fn admit<T>(&self, operation: &'static str, request: &Request<T>) -> Result<Call, Status> {
        let terms = terms(operation, request).map_err(|error| status::of(&error))?;
        self.admission.admit(terms).map_err(|_| self.full())
    }

    /// Takes a place for a question of a stream, waiting for one.
    pub async fn admit_question(&self, terms: Terms) -> Result<Call, Status> {
        self.admission.admit_when_free(terms).await.map_err(|stopped| status::of(&stopped.into()))
    }

    fn full(&self) -> Status {
        let scheduler = self.engine.models().generator(None).map(|model| model.scheduler().stats().retry_after());
        let retry_after = scheduler.unwrap_or(Duration::from_secs(1));
        status::of(&EngineError::QueueFull { retry_after })
    }
}

/// Runs the work of a call within its terms, and turns what went wrong into a status.
pub(super) async fn answer<T, E: From<Stopped>>(
    call: &Call,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Status>
where
    EngineError: From<E>,
{
    call.run(work).await.map_err(|error| status::of(&error.into()))
}

/// The terms that headers and connection state: `grpc-timeout`, `x-request-id`, `rerankd-priority`, the peer's address.
pub(super) fn terms<T>(operation: &'static str, request: &Request<T>) -> Result<Terms, EngineError> {
    let metadata = request.metadata();
    let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
    let priority = match text("rerankd-priority") {
        None | Some("normal") => Priority::Normal,
        Some("low") => Priority::Low,
        Some("high") => Priority::High,
        Some(other) => {
            return Err(EngineError::invalid("rerankd-priority", format!("must be low, normal or high, is {other:?}")));
        }
    };
    // An id stands in every log line, so a long one is not taken.
    let id = text("x-request-id").filter(|id| !id.is_empty() && id.len() <= 128).map(str::to_owned);
    let caller = request.remote_addr().map(|address| address.to_string()).unwrap_or_default();
    Ok(Terms { operation, id, caller, priority, deadline: deadline(metadata, Instant::now()) })
}

/// When the answer must be on its way. A little of the time is kept for the answer itself, so that the caller hears
/// DEADLINE_EXCEEDED from us before its own clock or the transport's ends the call as cancelled.
fn deadline(metadata: &MetadataMap, now: Instant) -> Option<Instant> {
    let timeout = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    let kept = (timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(20));
    now.checked_add(timeout.saturating_sub(kept))
}

/// Up to eight digits and a unit (gRPC over HTTP/2, Timeout).
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_the_specification() {
        assert_eq!(parse("3S"), Some(Duration::from_secs(3)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "S", "5", "-5S", "123456789S", "5x", "é"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn headers_become_terms() {
        let mut request = Request::new(());
        request.metadata_mut().insert("x-request-id", "abc-1".parse().unwrap());
        request.metadata_mut().insert("rerankd-priority", "high".parse().unwrap());
        request.metadata_mut().insert("grpc-timeout", "1S".parse().unwrap());
        let read = terms("Rerank", &request).unwrap();
        assert_eq!((read.id.as_deref(), read.priority, read.operation), (Some("abc-1"), Priority::High, "Rerank"));
        let left = read.deadline.unwrap() - Instant::now();
        assert!(left > Duration::from_millis(900) && left < Duration::from_millis(990), "{left:?}");
        request.metadata_mut().insert("rerankd-priority", "urgent".parse().unwrap());
        assert!(terms("Rerank", &request).unwrap_err().to_string().starts_with("rerankd-priority: must be"));
    }
}
