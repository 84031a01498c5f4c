//! Errors in the shape that the caller of a path expects.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use engine::types::EngineError;
use prefix_scheduler::call::{Refusal, Stopped};
use rag_metrics::{MOST_REPEATED, brief, clipped, quoted};

/// Delay suggested to the caller while the model loads or its worker restarts.
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(1);

/// The body of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `{error: {message, type, param, code}}` of vLLM and llama-server, together with Jina's `detail` and Cohere's
    /// `message`.
    Nested,
    /// As `Nested`, but `detail` of a 422 is FastAPI's list. Clients of infinity and NVIDIA NIM iterate over it.
    Listed,
    /// Cohere's `{message, id}`.
    Flat,
    /// text-embeddings-inference's `{error, error_type}`.
    Tei,
}

/// The reason why a request over HTTP failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Problem {
    /// An error of the request or of the work for it.
    Engine(EngineError),
    /// The body is not a JSON object, or a header is invalid.
    Malformed(String),
    /// The body is larger than this number of bytes.
    TooLarge(usize),
    /// The body did not arrive in time.
    Slow,
    /// The request has no valid token; the reason.
    Unauthenticated(String),
    /// The body has this content-encoding.
    Encoded(String),
    /// A page in a browser sent the request.
    FromPage,
    /// Unknown path; method and path of the nearest served one.
    NoPath((&'static str, &'static str)),
    /// The path is served only with this method.
    NoMethod(&'static str),
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<Stopped> for Problem {
    fn from(stopped: Stopped) -> Self {
        Self::Engine(stopped.into())
    }
}

/// Status and body of a problem.
struct Facts {
    status: u16,
    /// The class of errors in SDKs of OpenAI's shape.
    class: &'static str,
    /// `error_type` as text-embeddings-inference writes it (its documentation uses lower case). It has no `Timeout` and
    /// `Unauthenticated`.
    tei: &'static str,
    message: String,
    field: Option<String>,
    retry_after: Option<Duration>,
}

/// The result of a request as a gRPC code, so that counts of both protocols can be added. An extension of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The code's name, as in dashboards for gRPC.
    pub code: &'static str,
    /// The reason for a refusal, if nothing was evaluated.
    pub refusal: Option<Refusal>,
}

impl Outcome {
    /// No problem.
    pub const ANSWERED: Self = Self { code: "OK", refusal: None };
}

impl Problem {
    /// Code and reason of gRPC, as in `rpc::status` and `rpc::record`.
    const fn outcome(&self) -> Outcome {
        let (code, refusal) = match self {
            Self::Engine(EngineError::Invalid { .. } | EngineError::TooLong { .. })
            | Self::Malformed(_)
            | Self::Encoded(_) => ("InvalidArgument", Some(Refusal::Invalid)),
            Self::Engine(EngineError::Budget { .. } | EngineError::Pairs { .. }) => {
                ("ResourceExhausted", Some(Refusal::Budget))
            }
            Self::Engine(EngineError::QueueFull { .. }) => ("ResourceExhausted", Some(Refusal::QueueFull)),
            Self::Engine(EngineError::DeadlineExceeded) => ("DeadlineExceeded", Some(Refusal::Deadline)),
            // The caller was slow; the server's capacity was not the cause.
            Self::Slow => ("DeadlineExceeded", None),
            Self::Engine(EngineError::Cancelled) => ("Canceled", None),
            Self::Engine(EngineError::Precondition(_)) => ("FailedPrecondition", None),
            Self::Engine(EngineError::Unavailable) => ("Unavailable", Some(Refusal::Unavailable)),
            Self::Engine(EngineError::Internal(_)) => ("Internal", None),
            Self::TooLarge(_) => ("OutOfRange", None),
            Self::Unauthenticated(_) => ("Unauthenticated", None),
            Self::FromPage => ("PermissionDenied", None),
            Self::NoPath(_) | Self::NoMethod(_) => ("Unimplemented", None),
        };
        Outcome { code, refusal }
    }

    fn facts(self, shape: Shape) -> Facts {
        let plain =
            |status, class, tei, message: String| Facts { status, class, tei, message, field: None, retry_after: None };
        match self {
            Self::Engine(error) => of_engine(error, shape),
            Self::Malformed(message) => plain(400, "BadRequestError", "Validation", message),
            Self::TooLarge(most) => {
                let message = format!("body: more than {most} bytes given");
                plain(413, "RequestEntityTooLargeError", "Validation", message)
            }
            Self::Encoded(encoding) => {
                let message =
                    format!("content-encoding: {} is not supported; send the body unencoded", quoted(&encoding));
                plain(415, "UnsupportedMediaTypeError", "Validation", message)
            }
            Self::Slow => plain(408, "RequestTimeoutError", "Timeout", "body: was not received in time".to_owned()),
            Self::Unauthenticated(reason) => plain(401, "AuthenticationError", "Unauthenticated", reason),
            Self::FromPage => {
                let message =
                    "origin: pages in a browser may not call a server without tokens (auth.tokens_file)".to_owned();
                plain(403, "PermissionDeniedError", "Validation", message)
            }
            Self::NoPath((method, path)) => {
                let message = format!("unknown path; the nearest is {method} {path}");
                plain(404, "NotFoundError", "Validation", message)
            }
            Self::NoMethod(method) => plain(405, "MethodNotAllowedError", "Validation", format!("use {method}")),
        }
    }

    /// A response without a body, for a caller that does not know the request. `record` writes the body for the path.
    pub fn unshaped(self) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(self);
        response
    }

    /// The response. `id` is the id of the request.
    pub fn response(self, shape: Shape, id: &str) -> Response {
        let outcome = self.outcome();
        let challenge = matches!(self, Self::Unauthenticated(_));
        let facts = self.facts(shape).brief();
        let status = StatusCode::from_u16(facts.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_response(status, &facts.body(shape, id));
        if let Some(delay) = facts.retry_after {
            // Whole seconds, rounded up: a caller that comes back early is refused again.
            let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if challenge {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(outcome);
        response
    }
}

/// A response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn of_engine(error: EngineError, shape: Shape) -> Facts {
    let message = error.to_string();
    let tei_status = |other: u16, tei: u16| if shape == Shape::Tei { tei } else { other };
    let (status, class, tei) = match &error {
        // text-embeddings-inference has a separate error for an empty list.
        EngineError::Invalid { field, problem } if field == "texts" && problem == "must not be empty" => {
            (400, "BadRequestError", "Empty")
        }
        // Not 429, which clients retry: the request would exceed its budget again.
        EngineError::Invalid { .. }
        | EngineError::TooLong { .. }
        | EngineError::Budget { .. }
        | EngineError::Pairs { .. } => (422, "UnprocessableEntityError", "Validation"),
        EngineError::QueueFull { .. } => (429, "RateLimitError", "Overloaded"),
        EngineError::DeadlineExceeded => (504, "TimeoutError", "Timeout"),
        EngineError::Precondition(_) => (tei_status(400, 424), "BadRequestError", "Backend"),
        // Cancelled: the server stops. Clients retry 503, on another replica.
        EngineError::Unavailable | EngineError::Cancelled => (503, "ServiceUnavailableError", "Unhealthy"),
        EngineError::Internal(text) => {
            tracing::error!(error = %text, "request failed");
            (500, "InternalServerError", "Backend")
        }
    };
    let internal = matches!(error, EngineError::Internal(_));
    let retry_after = match error {
        EngineError::QueueFull { retry_after } => Some(retry_after),
        EngineError::Unavailable | EngineError::Cancelled => Some(RETRY_UNAVAILABLE),
        _ => None,
    };
    let key = match &error {
        EngineError::Budget { .. } => Some("limits.tokens_per_request, or the request's own budget"),
        EngineError::Pairs { .. } => Some("limits.pairs_per_request"),
        _ => None,
    };
    let field = match error {
        EngineError::Invalid { field, .. } | EngineError::TooLong { field, .. } => Some(field),
        _ => None,
    };
    let message = match key {
        _ if internal => "internal error; see the log".to_owned(),
        Some(key) => format!("{message} ({key})"),
        None => message,
    };
    Facts { status, class, tei, message, field, retry_after }
}

impl Facts {
    /// Shortens message and field, because a shape repeats the message several times.
    fn brief(mut self) -> Self {
        if let Cow::Owned(short) = brief(&self.message) {
            self.message = short;
        }
        if let Some(Cow::Owned(short)) = self.field.as_deref().map(|field| clipped(field, MOST_REPEATED)) {
            self.field = Some(short);
        }
        self
    }

    fn body(&self, shape: Shape, id: &str) -> Value {
        let (message, status) = (&self.message, self.status);
        match shape {
            Shape::Flat => json!({ "message": message, "id": id }),
            Shape::Tei => json!({ "error": message, "error_type": self.tei }),
            Shape::Nested | Shape::Listed => {
                let error = json!({ "message": message, "type": self.class, "param": self.field, "code": status });
                if status == 422 {
                    let errors = [json!({ "field": self.field, "message": message })];
                    let detail = match shape {
                        Shape::Listed => {
                            let place = ["body"].into_iter().chain(self.field.as_deref());
                            json!([{ "loc": place.collect::<Vec<_>>(), "msg": message, "type": "value_error" }])
                        }
                        _ => json!(message),
                    };
                    json!({ "error": error, "detail": detail, "message": message, "id": id, "request_id": id,
                            "errors": errors })
                } else {
                    let detail = json!({ "message": message, "request_id": id, "code": status });
                    json!({ "error": error, "detail": detail, "message": message, "id": id })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(problem: impl Into<Problem>, shape: Shape) -> (u16, Option<String>) {
        let response = problem.into().response(shape, "id-1");
        let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), retry)
    }

    #[test]
    fn a_refused_token_is_answered_with_the_scheme() {
        let response = Problem::Unauthenticated("no token".into()).response(Shape::Nested, "id-1");
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert!(Problem::NoMethod("POST").response(Shape::Nested, "id-1").headers().get("www-authenticate").is_none());
    }

    #[test]
    fn every_error_has_its_status() {
        let full = |retry_after| EngineError::QueueFull { retry_after };
        let rows: [(EngineError, u16, Option<&str>); 9] = [
            (EngineError::invalid("query", "must not be empty"), 422, None),
            (EngineError::TooLong { field: "query".into(), needed: 2, available: 1 }, 422, None),
            (EngineError::Budget { needed: 2, allowed: 1 }, 422, None),
            (full(Duration::from_millis(2_100)), 429, Some("3")),
            (EngineError::DeadlineExceeded, 504, None),
            (EngineError::Cancelled, 503, Some("1")),
            (EngineError::Precondition("no model".into()), 400, None),
            (EngineError::Unavailable, 503, Some("1")),
            (EngineError::Internal("secret".into()), 500, None),
        ];
        for (error, code, retry) in rows {
            assert_eq!(status(error.clone(), Shape::Nested), (code, retry.map(str::to_owned)), "{error}");
        }
        assert_eq!(status(full(Duration::ZERO), Shape::Tei), (429, Some("1".into())));
        assert_eq!(status(EngineError::Precondition("no model".into()), Shape::Tei).0, 424);
        assert_eq!(status(EngineError::invalid("texts", "must not be empty"), Shape::Tei).0, 400);
        // Its documentation says 413.
        assert_eq!(status(EngineError::invalid("texts", "21 given, at most 20 allowed"), Shape::Tei).0, 422);
        assert_eq!(status(Problem::TooLarge(5), Shape::Flat).0, 413);
        assert_eq!(status(Problem::Slow, Shape::Flat).0, 408);
    }

    #[test]
    fn every_problem_has_the_code_and_the_reason_of_grpc() {
        let rows = [
            (Problem::Slow, "DeadlineExceeded", None),
            (Problem::TooLarge(5), "OutOfRange", None),
            (Problem::Malformed("body".into()), "InvalidArgument", Some(Refusal::Invalid)),
            (EngineError::Cancelled.into(), "Canceled", None),
            (EngineError::Pairs { allowed: 1 }.into(), "ResourceExhausted", Some(Refusal::Budget)),
            (EngineError::Precondition("no model".into()).into(), "FailedPrecondition", None),
            (EngineError::Unavailable.into(), "Unavailable", Some(Refusal::Unavailable)),
            (EngineError::Internal("secret".into()).into(), "Internal", None),
        ];
        for (problem, code, refusal) in rows {
            let outcome = Outcome { code, refusal };
            assert_eq!(problem.outcome(), outcome);
            let response = problem.response(Shape::Flat, "id-1");
            assert_eq!(response.extensions().get(), Some(&outcome));
        }
    }

    #[test]
    fn the_text_of_an_internal_error_is_not_sent() {
        for shape in [Shape::Nested, Shape::Listed, Shape::Flat, Shape::Tei] {
            let body = Problem::from(EngineError::Internal("secret".into())).facts(shape).body(shape, "x").to_string();
            assert!(!body.contains("secret") && body.contains("see the log"), "{body}");
        }
    }

    #[test]
    fn bodies_have_the_keys_of_their_shape() {
        let body = |shape| Problem::from(EngineError::invalid("top_n", "is wrong")).facts(shape).body(shape, "r-1");
        assert_eq!(body(Shape::Flat), json!({ "message": "top_n: is wrong", "id": "r-1" }));
        assert_eq!(body(Shape::Tei), json!({ "error": "top_n: is wrong", "error_type": "Validation" }));
        let nested = body(Shape::Nested);
        assert_eq!(nested["error"]["param"], "top_n");
        assert_eq!(nested["error"]["code"], 422);
        assert_eq!(nested["detail"], "top_n: is wrong");
        // A Cohere client of version 1 reads no other field.
        assert_eq!((&nested["message"], &nested["id"]), (&json!("top_n: is wrong"), &json!("r-1")));
        let listed = json!([{ "loc": ["body", "top_n"], "msg": "top_n: is wrong", "type": "value_error" }]);
        assert_eq!((&body(Shape::Listed)["detail"], &body(Shape::Listed)["error"]), (&listed, &nested["error"]));
        let other = Problem::NoPath(("POST", "/rerank")).facts(Shape::Nested).body(Shape::Nested, "r-1");
        assert_eq!(other["error"]["type"], "NotFoundError");
    }
}
