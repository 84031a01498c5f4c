//! The terms of a request from its headers.

use std::time::{Duration, Instant};

use axum::http::request::Parts;

use super::problem::Problem;
use crate::transport::{Caller, Peer};
use prefix_scheduler::call::{PRIORITY_LEVEL, PRIORITY_NAME, Priority, Terms, deadline};
use rag_metrics::quoted;

/// Timeout of the caller, in milliseconds.
pub(super) const TIMEOUT: &str = "x-request-timeout-ms";

/// Reads `x-request-timeout-ms`, `x-request-id`, the priority, the peer's address and the token's name. `configured` is
/// the timeout of requests that state none.
pub(super) fn of(parts: &Parts, operation: &str, configured: Option<Duration>) -> Result<Terms, Problem> {
    let text = |key: &str| parts.headers.get(key).map(|value| value.to_str().unwrap_or("?"));
    let refused = |key: &str, problem: String| Problem::Malformed(format!("{key}: {problem}"));
    let priority = Priority::stated(text(PRIORITY_LEVEL), text(PRIORITY_NAME))
        .map_err(|(header, problem)| refused(header, problem))?;
    let timeout = match text(TIMEOUT) {
        None => configured,
        Some(number) => {
            let milliseconds = number.trim().parse::<u64>().ok().filter(|milliseconds| *milliseconds > 0);
            let problem = || refused(TIMEOUT, format!("must be a whole number above 0, is {}", quoted(number)));
            Some(Duration::from_millis(milliseconds.ok_or_else(problem)?))
        }
    };
    Ok(Terms {
        operation: operation.to_owned(),
        id: text("x-request-id").and_then(Terms::usable_id),
        caller: parts.extensions.get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default(),
        name: parts.extensions.get::<Caller>().and_then(Caller::name).map(str::to_owned),
        priority,
        deadline: timeout.and_then(|timeout| deadline(timeout, Instant::now())),
        request: None,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut builder = Request::builder();
        for (key, value) in headers {
            builder = builder.header(*key, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    #[test]
    fn headers_become_terms() {
        let read =
            of(&parts(&[(TIMEOUT, "1000"), ("x-request-id", "a-1"), ("rerankd-priority", "low")]), "/rerank", None);
        let read = read.unwrap();
        assert_eq!((read.id.as_deref(), read.priority), (Some("a-1"), Priority::LOW));
        let left = read.deadline.unwrap() - Instant::now();
        assert!(left > Duration::from_millis(900) && left < Duration::from_millis(990), "{left:?}");
        assert_eq!(of(&parts(&[]), "/rerank", None).unwrap().deadline, None);
        let configured = of(&parts(&[]), "/rerank", Some(Duration::from_mins(1))).unwrap();
        assert!(configured.deadline.unwrap() - Instant::now() > Duration::from_secs(50));
    }

    #[test]
    fn wrong_headers_are_refused() {
        for (key, value) in [
            (TIMEOUT, "0"),
            (TIMEOUT, "soon"),
            (TIMEOUT, "-5"),
            ("rerankd-priority", "urgent"),
            ("x-rerankd-priority", "10"),
        ] {
            let problem = of(&parts(&[(key, value)]), "/rerank", None).unwrap_err();
            assert!(matches!(&problem, Problem::Malformed(text) if text.starts_with(key)), "{problem:?}");
        }
    }
}
