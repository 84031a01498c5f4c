//! Turns a request into a [`Call`]: headers state its terms, and `admit` gives it a slot before its message is decoded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Status;
use tonic::codegen::http;

use super::status;
use crate::observe::record::Recorded;
use crate::transport::{Caller, Peer};
use engine::Engine;
use engine::types::EngineError;
use prefix_scheduler::call::{
    Admission, Call, PRIORITY_LEVEL, PRIORITY_NAME, Place, Priority, Stopped, Terms, deadline,
};

/// Operations that wait for the generator. They are refused before their message is decoded if no request can end in
/// time behind the admitted work.
const GENERATOR: [&str; 4] = [WARM, "MeasureUtility", "EvaluateRetrieval", "Sample"];

/// The operation that evaluates passages with the generator that scores.
const WARM: &str = "WarmPassages";

/// Operations that need the generator only for some methods. The method is in the message.
const UNREAD: [&str; 4] = ["Rerank", "WatchRerank", "RerankStream", "BuildContext"];

/// Shared by all services: the use cases and the admission.
#[derive(Clone)]
pub(super) struct Edge {
    pub engine: Engine,
    pub admission: Admission,
    /// True for callers in this process. Their calls need no slot and are never refused for what others do.
    pub local: bool,
    /// Largest message in bytes, read or sent (`server.message_bytes`).
    pub message_bytes: usize,
    /// Longest wait of a stream for its next question; `None` for no bound.
    pub idle: Option<Duration>,
}

impl Edge {
    /// Takes a slot for a call, with or without the generator.
    pub fn admit(&self, terms: Terms) -> Result<Call, Status> {
        if self.local {
            return Ok(Call::local_with(terms.deadline));
        }
        let reads = GENERATOR.contains(&terms.operation.as_str());
        let fills = terms.operation == WARM;
        let unread = UNREAD.contains(&terms.operation.as_str());
        let place = if reads || unread { Place::Generator } else { Place::Beside };
        let admitted = if unread { self.admission.admit_unread(terms) } else { self.admission.admit(terms, place) };
        let call = admitted.map_err(|_| status::of(self.engine.models().queue_full_at(place)))?;
        let models = self.engine.models();
        let model = if fills { models.scoring("") } else { models.generator(None) };
        if reads && let Ok(model) = model {
            model.scheduler().admit_unread(&call).map_err(|error| status::of(error.into()))?;
        }
        Ok(call)
    }

    /// Waits for a slot for a question of a stream, as long as a unary call without a deadline. The request id is
    /// `stream/question`.
    pub async fn admit_question(&self, terms: Terms, question: &str, place: Place) -> Result<Call, Status> {
        if self.local {
            return Ok(Call::local_with(terms.deadline));
        }
        let id = terms.id.as_deref().map(|stream| id_of_question(stream, question));
        let terms = Terms { id, ..terms };
        let admitted = self.admission.admit_when_free(terms, place);
        let admitted = match self.engine.limits().permit_wait {
            Some(bound) => tokio::time::timeout(bound, admitted).await,
            None => Ok(admitted.await),
        };
        let admitted = admitted.map_err(|_| self.engine.models().queue_full_at(place));
        admitted.and_then(|call| call.map_err(EngineError::from)).map_err(status::of)
    }
}

/// The id of a question of a stream in the log. Every line contains it, so it has at most 64 characters of the
/// question's id, and only those that [`Terms::usable_id`] allows.
pub(super) fn id_of_question(stream: &str, question: &str) -> String {
    let beginning: String = question.chars().take(64).collect();
    format!("{stream}/{}", Terms::usable_id(&beginning).unwrap_or_default())
}

/// Runs the work of a call within its terms, and converts an error to a status.
pub(super) async fn answer<T, E: From<Stopped>>(
    call: &Call,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Status>
where
    EngineError: From<E>,
{
    let outcome = call.run(work).await;
    // Converted in the span of the call, so that the log line of a fault has its id.
    outcome.map_err(|error| call.in_span(|| status::of(error.into())))
}

/// The terms from headers and connection: `grpc-timeout`, `x-request-id`, the priority, the peer's address, the token's
/// name.
pub(super) fn terms<B>(request: &http::Request<B>) -> Result<Terms, EngineError> {
    let text = |key: &str| request.headers().get(key).and_then(|value| value.to_str().ok());
    // A value that is not text is invalid, too.
    let stated = |key: &str| request.headers().get(key).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let priority = Priority::stated(stated(PRIORITY_LEVEL), stated(PRIORITY_NAME))
        .map_err(|(header, problem)| EngineError::invalid(header, problem))?;
    if stated(TIMEOUT).is_some_and(|value| parse(value).is_none()) {
        let problem = "must be up to eight digits and one of the units H, M, S, m, u and n";
        return Err(EngineError::invalid(TIMEOUT, problem));
    }
    let id = text("x-request-id").and_then(Terms::usable_id);
    let caller = request.extensions().get::<Peer>().map(|peer| peer.0.to_string()).unwrap_or_default();
    let name = request.extensions().get::<Caller>().and_then(Caller::name).map(str::to_owned);
    let operation = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let recorded = request.extensions().get::<Recorded>();
    Ok(Terms {
        operation,
        id,
        caller,
        name,
        priority,
        deadline: deadline_of(request.headers()),
        request: recorded.map(|recorded| Arc::clone(&recorded.tally)),
    })
}

/// True if the method of this path takes a stream of messages. By convention of this protocol its name ends in
/// `Stream`.
pub(super) fn takes_many(path: &str) -> bool {
    path.ends_with("Stream") || path.starts_with("/grpc.reflection.")
}

/// The deadline of a call with these headers; `None` for no deadline.
pub(super) fn deadline_of(headers: &http::HeaderMap) -> Option<Instant> {
    let timeout = headers.get(TIMEOUT).and_then(|value| value.to_str().ok()).and_then(parse)?;
    deadline(timeout, Instant::now())
}

/// The header of a call's deadline.
const TIMEOUT: &str = "grpc-timeout";

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
        assert_eq!(parse("99999999H"), Some(Duration::from_hours(99_999_999)));
        for wrong in ["", "S", "5", "-5S", "123456789S", "5x", "é"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    /// A line break in an id must not begin a new line in the log.
    #[test]
    fn the_id_of_a_question_forges_no_log_line() {
        assert_eq!(id_of_question("stream", "q-1"), "stream/q-1");
        let forged = "q\n2026-01-01 INFO answered id=\"other\" \u{1b}[31m";
        assert_eq!(id_of_question("stream", forged), "stream/q2026-01-01INFOansweredid=other31m");
        assert_eq!(id_of_question("stream", &"x".repeat(1_000)).len(), "stream/".len() + 64);
        for unusable in ["", "\u{1f600}", "\r\n"] {
            assert_eq!(id_of_question("stream", unusable), "stream/");
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
            (Some("abc-1"), Priority::HIGH, "Rerank")
        );
        let left = read.deadline.unwrap() - Instant::now();
        assert!(left > Duration::from_millis(900) && left < Duration::from_millis(990), "{left:?}");
        for wrong in ["5", "1.5S", "5s", "123456789S"] {
            request.headers_mut().insert("grpc-timeout", wrong.parse().unwrap());
            assert!(terms(&request).unwrap_err().to_string().starts_with("grpc-timeout: must be"), "{wrong}");
        }
        request.headers_mut().remove("grpc-timeout");
        request.headers_mut().insert("x-rerankd-priority", http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(terms(&request).unwrap_err().to_string().starts_with("x-rerankd-priority: must be"));
        request.headers_mut().remove("x-rerankd-priority");
        request.headers_mut().insert("rerankd-priority", "urgent".parse().unwrap());
        assert!(terms(&request).unwrap_err().to_string().starts_with("rerankd-priority: must be"));
        request.headers_mut().insert("x-rerankd-priority", "0".parse().unwrap());
        assert_eq!(terms(&request).unwrap().priority.level(), 0, "the level takes precedence over the name");
        for wrong in ["10", "-1", "", "high"] {
            request.headers_mut().insert("x-rerankd-priority", wrong.parse().unwrap());
            let error = terms(&request).unwrap_err().to_string();
            assert!(error.starts_with("x-rerankd-priority: must be"), "{error}");
        }
    }
}
