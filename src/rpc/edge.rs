//! Where a request becomes a [`Call`]: headers state its terms, and it gets a place before its message is decoded
//! (`admit`).

use std::time::{Duration, Instant};

use tonic::Status;
use tonic::codegen::http;
use tonic::transport::server::TcpConnectInfo;

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
    pub fn admit(&self, terms: Terms) -> Result<Call, Status> {
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
pub(super) fn terms<B>(request: &http::Request<B>) -> Result<Terms, EngineError> {
    let text = |key: &str| request.headers().get(key).and_then(|value| value.to_str().ok());
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
    let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
    let caller = peer.map(|address| address.to_string()).unwrap_or_default();
    let operation = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Terms { operation, id, caller, priority, deadline: deadline(text("grpc-timeout"), Instant::now()) })
}

/// When the answer must be on its way. A little of the time is kept for the answer itself, so that the caller hears
/// DEADLINE_EXCEEDED from us before its own clock or the transport's ends the call as cancelled.
fn deadline(timeout: Option<&str>, now: Instant) -> Option<Instant> {
    let timeout = parse(timeout?)?;
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
        let mut request = http::Request::builder()
            .uri("/rerankd.v1.RerankService/Rerank")
            .header("x-request-id", "abc-1")
            .header("rerankd-priority", "high")
            .header("grpc-timeout", "1S")
            .body(())
            .unwrap();
        let read = terms(&request).unwrap();
        assert_eq!(
            (read.id.as_deref(), read.priority, read.operation.as_str()),
            (Some("abc-1"), Priority::High, "Rerank")
        );
        let left = read.deadline.unwrap() - Instant::now();
        assert!(left > Duration::from_millis(900) && left < Duration::from_millis(990), "{left:?}");
        request.headers_mut().insert("rerankd-priority", "urgent".parse().unwrap());
        assert!(terms(&request).unwrap_err().to_string().starts_with("rerankd-priority: must be"));
    }
}
