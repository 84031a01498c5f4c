//! The caller's deadline, from the `grpc-timeout` header.

use std::time::{Duration, Instant};

use tonic::metadata::MetadataMap;

use crate::engine::EngineError;

/// When the answer must be on its way. A little of the time is kept for the answer itself, so that the caller hears
/// DEADLINE_EXCEEDED from us before its own clock or the transport's ends the call as cancelled.
pub(super) fn of(metadata: &MetadataMap, now: Instant) -> Option<Instant> {
    let given = parse(metadata.get("grpc-timeout")?.to_str().ok()?)?;
    let kept = (given / 20).clamp(Duration::from_millis(1), Duration::from_millis(20));
    now.checked_add(given.saturating_sub(kept))
}

/// Runs work until the deadline; dropping it there is what stops it.
pub(super) async fn within<T>(
    until: Option<Instant>,
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    match until {
        None => work.await,
        Some(until) => tokio::time::timeout_at(until.into(), work).await.unwrap_or(Err(EngineError::DeadlineExceeded)),
    }
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
}
