//! The HTTP edge: JSON in the formats of clients of Cohere, Jina, vLLM, llama-server and text-embeddings-inference.
//! One handler serves all of them; docs/how-to/migrate.md lists how their differences are resolved.
//!
//! `json` parses bodies, `request` and `score` interpret them, `answer` and `problem` write responses. A request gets
//! its slot, deadline and cancellation as over gRPC: it is admitted by its headers, before its body is read, and
//! cancelled when its caller disconnects.
//!
//! `transport` owns the connections. In [`router`], the token check wraps the paths, and the records of requests wrap
//! the token check.

mod answer;
mod context;
mod documents;
mod instruction;
mod json;
mod model;
mod openapi;
mod options;
mod own;
mod page;
mod paths;
mod problem;
mod record;
mod request;
mod routes;
mod score;
mod state;
mod terms;
mod unread;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::{from_fn_with_state, map_request};
use axum::response::Response;
use axum::routing::{get, post};
use http_body_util::LengthLimitError;
use tokio::sync::watch;
use tower_layer::Layer;

use crate::observe::record::Recorded;
use crate::transport::{Authenticate, MESSAGE, Refused, Tokens};
use engine::Engine;
use engine::types::RerankRequest;
use model::{Choice, Names};
pub use options::HttpOptions;
use paths::ModelOfPath;
use prefix_scheduler::call::{Admission, Call, LARGE, Terms, beside_the_reactor};
use problem::{Problem, Shape};
use record::Recorder;
use routes::{Kind, ROUTES, Route};
use state::{Http, Ready};

/// The paths and their handlers, including alternative spellings. If `tokens` are required, every path except those for
/// health answers 401 without a valid one.
pub fn router(engine: Engine, admission: Admission, options: HttpOptions, tokens: Arc<Tokens>) -> Router {
    let recorder = Recorder::new(admission.observer());
    let mut router = Router::new()
        .route(state::HEALTH, get(state::health))
        .route(state::PING, get(state::health))
        .route(state::READY, get(state::ready))
        .route(state::LIVE, get(state::live))
        .route(state::MODELS, get(state::models))
        .route(state::INFINITY_MODELS, get(state::infinity_models))
        .route(state::MODEL, get(state::model))
        .route(state::INFO, get(state::info))
        .route(state::OPENAPI, get(openapi::document));
    if options.page {
        router = router.route(page::PAGE, get(page::page));
    }
    for route in &ROUTES {
        let handler = move |State(http): State<Arc<Http>>, received: Extension<Recorded>, request: Request| {
            handle(http, route, received.0, request)
        };
        router = router.route(route.path, post(handler));
    }
    let most = options.body_bytes;
    let refuse = |refused: Refused| Problem::Unauthenticated(refused.to_string()).unshaped();
    let router = router
        .fallback(|uri: Uri| async move { Problem::NoPath(paths::nearest(uri.path())).unshaped() })
        .method_not_allowed_fallback(
            |uri: Uri| async move { Problem::NoMethod(paths::method_of(uri.path())).unshaped() },
        )
        .with_state(Arc::new(Http { engine, admission, options, tokens: Arc::clone(&tokens) }))
        .layer(Authenticate::layer(tokens, state::is_open, refuse))
        // Outside the token check, to count the requests that it refuses.
        .layer(from_fn_with_state(recorder, record::recorded))
        .layer(from_fn_with_state(most, unread::heard));
    // Outside all layers, so that they only see served paths.
    router.clone().fallback_service(map_request(paths::respelt).layer(router))
}

/// The router whose `/health` also follows `ready`.
pub fn with_readiness(router: Router, ready: watch::Receiver<bool>) -> Router {
    router.layer(Extension(Ready(ready)))
}

/// Admits a request, works for it within its terms, and answers it.
async fn handle(http: Arc<Http>, route: &'static Route, received: Recorded, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // Browsers send Origin with every page's POST, which needs no preflight. A caller with a token is not such a page.
    let is_trusted = http.tokens.required() || (http.options.page && page::is_sender(&parts.headers));
    if !is_trusted && parts.headers.contains_key(header::ORIGIN) {
        return Problem::FromPage.response(route.shape(), &received.id);
    }
    if let Some(encoding) = parts.headers.get(header::CONTENT_ENCODING).filter(|value| !is_identity(value)) {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Problem::Encoded(encoding).response(route.shape(), &received.id);
    }
    match terms::of(&parts, route.path, http.options.timeout) {
        Ok(terms) => {
            let terms = Terms { request: Some(received.tally), id: Some(received.id), ..terms };
            let named = parts.extensions.get::<ModelOfPath>().map(|model| model.0.clone());
            admitted(http, route, named, terms, body).await
        }
        Err(problem) => problem.response(route.shape(), &received.id),
    }
}

/// True if a body with this `content-encoding` is not encoded.
fn is_identity(encoding: &HeaderValue) -> bool {
    encoding.to_str().is_ok_and(|value| {
        value.split(',').all(|one| matches!(one.trim(), one if one.is_empty() || one.eq_ignore_ascii_case("identity")))
    })
}

/// `named` is the model that the path names.
async fn admitted(http: Arc<Http>, route: &'static Route, named: Option<String>, terms: Terms, body: Body) -> Response {
    let id = terms.id.clone().unwrap_or_default();
    // The call cannot know yet if the generator is needed: the body decides.
    let Ok(call) = http.admission.admit_unread(terms) else {
        return Problem::from(http.engine.models().queue_full()).response(route.shape(), &id);
    };
    let mut shape = route.shape();
    let outcome = call.run(Box::pin(answered(&http, route, named, &call, body, &mut shape))).await;
    // In the span of the call, so that logged faults have its id.
    outcome.unwrap_or_else(|problem| call.in_span(|| problem.response(shape, call.id())))
}

/// Reads the body and answers it. Sets `shape` to the shape of the body.
async fn answered(
    http: &Http,
    route: &Route,
    named: Option<String>,
    call: &Call,
    body: Body,
    shape: &mut Shape,
) -> Result<Response, Problem> {
    let body = receive(body, http.options.body_bytes, MESSAGE).await?;
    // Without a generator the request is still read; the engine then refuses it.
    let served = |scorer| Some((scorer, http.engine.models().scoring(scorer).ok()?.get().ok()?));
    let generators = ["", "generator"].into_iter().filter_map(served).collect();
    let (limits, options) = (*http.engine.limits(), http.options.clone());
    let reader =
        request::Reader { own: *shape, options, limits, names: Names { of_path: named, ..http.names() }, generators };
    match route.kind {
        Kind::Rerank { echo, version, envelope } => {
            let (asked_in, asked) = call.compute(move |_| Ok::<_, Problem>(reader.rerank(&body, echo))).await?;
            *shape = asked_in;
            let asked = asked?;
            let ranked = http.engine.reranker.rerank(call, asked.request.clone(), None).await;
            let ranked = ranked.map_err(|error| asked.named(error))?;
            let model = http.model_of(&asked.request);
            tracing::debug!(
                passages = asked.request.passages.len(),
                tokens = ranked.usage.tokens,
                milliseconds = ranked.usage.total_ms,
                "reranked"
            );
            let about = answer::About { id: call.id(), model: &model, version, envelope };
            let write = || answer::reranked(&asked, &ranked, &about, &http.engine.compute());
            let returned: usize = asked.request.passages.iter().map(|passage| passage.text.len()).sum();
            // Counting their characters takes time, too.
            Ok(if returned > LARGE { beside_the_reactor(write) } else { write() })
        }
        Kind::Context => {
            let (asked, request) = call.compute(move |_| reader.context(&body)).await?;
            let model = http.model_of(&request.ranking);
            let built = Box::pin(http.engine.context_builder.build(call, request)).await;
            let built = built.map_err(|error| context::named(&asked, error))?;
            tracing::debug!(
                passages = built.passages.len(),
                tokens = built.usage.tokens,
                context_tokens = built.tokens,
                milliseconds = built.usage.total_ms,
                "context built"
            );
            let about = answer::About { id: call.id(), model: &model, version: "1", envelope: answer::Envelope::List };
            let write = || context::answer(&asked, &built, &about, &http.engine.compute());
            let sent: usize = asked.request.passages.iter().map(|passage| passage.text.len()).sum();
            // Counting their characters takes time, too.
            Ok(if sent.max(built.text.len()) > LARGE { beside_the_reactor(write) } else { write() })
        }
        Kind::Score => {
            let asked = call.compute(move |_| reader.score(&body)).await?;
            let Choice { method, scorer, .. } = asked.choice;
            let scored = http.engine.reranker.score_pairs(call, asked.pairs.clone(), method, scorer).await;
            let scored = scored.map_err(|error| asked.named(error))?;
            tracing::debug!(
                pairs = scored.scores.len(),
                tokens = scored.usage.tokens,
                milliseconds = scored.usage.total_ms,
                "pairs scored"
            );
            let like = RerankRequest { method, scorer: scorer.to_owned(), ..RerankRequest::default() };
            let model = http.model_of(&like);
            Ok(answer::scored(&asked, &scored, call.id(), &model))
        }
    }
}

/// Reads a body of at most `most` bytes, which must be complete within `patience`.
async fn receive(body: Body, most: usize, patience: Duration) -> Result<Bytes, Problem> {
    let read = tokio::time::timeout(patience, to_bytes(body, most)).await.map_err(|_| Problem::Slow)?;
    read.map_err(|error| match error.source() {
        Some(source) if source.is::<LengthLimitError>() => Problem::TooLarge(most),
        _ => Problem::Malformed("body: ended early".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    /// A caller that sends small parts slowly does not extend the deadline.
    #[tokio::test]
    async fn a_body_must_be_complete_in_time() {
        let (sender, parts) = mpsc::channel::<std::io::Result<Vec<u8>>>(1);
        let body = Body::from_stream(ReceiverStream::new(parts));
        let drip = tokio::spawn(async move {
            while sender.send(Ok(vec![7])).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let received = receive(body, usize::MAX, Duration::from_millis(100)).await;
        assert!(matches!(received, Err(Problem::Slow)));
        drip.await.unwrap();
    }

    #[tokio::test]
    async fn a_body_must_fit() {
        for (bytes, fits) in [(100, true), (101, false)] {
            let received = receive(Body::from(vec![7; bytes]), 100, MESSAGE).await;
            assert_eq!(received.is_ok(), fits, "{bytes}");
            assert!(fits || matches!(received, Err(Problem::TooLarge(100))));
        }
    }
}
