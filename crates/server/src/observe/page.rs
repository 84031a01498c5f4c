//! HTTP endpoints for operators: `GET /metrics` for Prometheus, `/healthz` for the process, `/readyz` for readiness.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

use super::Metrics;

/// The paths and their handlers. `/readyz` agrees with gRPC health: the models serve, and `ready` is true, so the
/// server is warm and not stopping.
pub fn router(metrics: Arc<Metrics>, ready: watch::Receiver<bool>) -> Router {
    let readiness = |State(metrics): State<Arc<Metrics>>| async move { answer(metrics.is_ready() && *ready.borrow()) };
    Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readiness))
        .with_state(metrics)
}

async fn page(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.page() {
        Ok(page) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot write the metrics page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn answer(ready: bool) -> Response {
    if ready {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the generator is not ready, or the server is stopping\n").into_response()
    }
}
