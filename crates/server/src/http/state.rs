//! Server state: health, names of models, and text-embeddings-inference's model info.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::model::Names;
use super::options::HttpOptions;
use super::problem::{Problem, Shape, json_response, seconds};
use crate::observe::record::Recorded;
use crate::peers::{self, ServedModel};
use crate::transport::Tokens;
use engine::Engine;
use engine::types::RerankRequest;
use prefix_scheduler::call::Admission;

pub(super) const HEALTH: &str = "/health";
/// Health at a path of text-embeddings-inference and vLLM.
pub(super) const PING: &str = "/ping";
/// Health at NVIDIA NIM's path.
pub(super) const READY: &str = "/v1/health/ready";
/// NVIDIA NIM's path for liveness: 200 while the process answers.
pub(super) const LIVE: &str = "/v1/health/live";
pub(super) const OPENAPI: &str = "/openapi.json";
pub(super) const MODELS: &str = "/v1/models";
/// Names of models in infinity's format.
pub(super) const INFINITY_MODELS: &str = "/models";
/// One model; its name may contain slashes.
pub(super) const MODEL: &str = "/v1/models/{*name}";
/// Prefix of the paths of single models.
pub(super) const OF_MODEL: &str = "/v1/models/";
pub(super) const INFO: &str = "/info";

/// The GET paths, without the path of a single model.
pub(super) const PATHS: [&str; 8] = [HEALTH, PING, MODELS, INFINITY_MODELS, INFO, READY, LIVE, OPENAPI];

/// True while the server is warm and not stopping; an extension of the router. Without it, `/health` depends only on
/// the models.
#[derive(Debug, Clone)]
pub(super) struct Ready(pub watch::Receiver<bool>);

impl Ready {
    pub fn is(&self) -> bool {
        *self.0.borrow()
    }
}

/// State shared by the handlers.
pub(super) struct Http {
    pub engine: Engine,
    pub admission: Admission,
    pub options: HttpOptions,
    pub tokens: Arc<Tokens>,
}

impl Http {
    /// Name of the model that a request asks, as stated in answers; the method's name if the method asks no model.
    pub fn model_of(&self, request: &RerankRequest) -> String {
        self.engine.reranker.model_of_request(request).unwrap_or_else(|| request.method().name().to_owned())
    }

    pub fn names(&self) -> Names {
        Names::of(&self.engine, self.options.method)
    }
}

/// True if a path needs no token.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, HEALTH | PING | READY | LIVE)
}

pub(super) async fn health(State(http): State<Arc<Http>>, ready: Option<Extension<Ready>>) -> Response {
    if serves(&http, ready) {
        return json_response(StatusCode::OK, &json!({ "status": "ok" }));
    }
    unavailable()
}

fn serves(http: &Http, ready: Option<Extension<Ready>>) -> bool {
    http.engine.models().serve() && ready.is_none_or(|Extension(ready)| ready.is())
}

fn unavailable() -> Response {
    let mut response = json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "unavailable" }));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
    response
}

pub(super) async fn ready(State(http): State<Arc<Http>>, ready: Option<Extension<Ready>>) -> Response {
    if serves(&http, ready) { nim("ready") } else { unavailable() }
}

pub(super) async fn live() -> Response {
    nim("live")
}

/// Health in NVIDIA NIM's format.
fn nim(state: &str) -> Response {
    let body = json!({ "object": "health.response", "message": format!("Service is {state}."), "status": state });
    json_response(StatusCode::OK, &body)
}

pub(super) async fn models(State(http): State<Arc<Http>>) -> Response {
    listed(&http, |name| entry(name, name))
}

/// Names of models for infinity's client, which requires `stats` and this owner.
pub(super) async fn infinity_models(State(http): State<Arc<Http>>) -> Response {
    listed(&http, |name| {
        json!({
            "id": name,
            "stats": {},
            "object": "model",
            "owned_by": "infinity",
            "created": seconds(),
            "backend": "rerankd",
            "capabilities": ["rerank"],
        })
    })
}

fn listed(http: &Http, entry: impl Fn(&str) -> Value) -> Response {
    let names = http.names();
    let data: Vec<_> = names.all().into_iter().map(entry).collect();
    json_response(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

/// One model. Xinference's clients ask for it before they rank, and read the type.
pub(super) async fn model(
    State(http): State<Arc<Http>>,
    Extension(received): Extension<Recorded>,
    Path(name): Path<String>,
) -> Response {
    let name = name.trim_end_matches('/');
    match http.names().root(name) {
        Ok(root) => json_response(StatusCode::OK, &entry(name, root)),
        Err(error) => Problem::from(error).response(Shape::Nested, &received.id),
    }
}

fn entry(id: &str, root: &str) -> Value {
    let created = seconds();
    json!({
        "id": id,
        "object": "model",
        "created": created,
        "owned_by": "rerankd",
        "root": root,
        "model_type": "rerank",
        "model_name": id,
    })
}

/// The model for requests in text-embeddings-inference's format, and its bounds.
pub(super) async fn info(State(http): State<Arc<Http>>, Extension(received): Extension<Recorded>) -> Response {
    let model = match ServedModel::of(&http.engine, http.options.method) {
        Ok(model) => model,
        Err(error) => return Problem::from(error).response(Shape::Tei, &received.id),
    };
    let limits = http.engine.limits();
    let body = json!({
        "model_id": model.name,
        "model_sha": model.sha256,
        "model_dtype": model.encoding,
        // There is one score, which has no name.
        "model_type": { "reranker": { "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 } } },
        "max_concurrent_requests": http.admission.limit(),
        "max_input_length": model.longest_input,
        "max_batch_tokens": model.batch,
        "max_batch_requests": null,
        "max_client_batch_size": limits.passages,
        "auto_truncate": limits.truncate,
        "tokenization_workers": peers::tokenising_threads(),
        "version": env!("CARGO_PKG_VERSION"),
        "sha": null,
        "docker_label": null,
    });
    json_response(StatusCode::OK, &body)
}
