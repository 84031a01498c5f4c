//! Bodies of every path of HTTP/JSON. Byte 0 is the path, by its index in [`PATHS`]; the rest is the body.

use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use server::http::{HttpOptions, router};
use tower_service::Service;

use super::server::{DEADLINE_MILLISECONDS, Server, lock};

/// New paths come last, because stored inputs name a path by its index.
pub const PATHS: [&str; 11] = [
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/reranking",
    "/v1/reranking",
    "/score",
    "/v1/score",
    "/",
    "/invocations",
    "/v1/ranking",
    "/v1/context",
];

static SERVER: LazyLock<Mutex<Server<Router>>> = LazyLock::new(|| {
    Server::new(|engine, admission| router(engine, admission, HttpOptions::default(), Arc::default()))
});

/// Posts one body.
///
/// # Panics
/// The answer is the server's fault or not JSON, or the request keeps its permit.
pub fn run(input: &[u8]) {
    let [path, body @ ..] = input else { return };
    let path = PATHS[usize::from(*path) % PATHS.len()];
    let request = http::Request::post(path)
        .header("x-request-timeout-ms", DEADLINE_MILLISECONDS.to_string())
        .body(Body::from(body.to_vec()))
        .unwrap();
    let server = lock(&SERVER);
    let (status, text) = server.block_on(async {
        let answer = server.edge.clone().call(request).await.unwrap();
        (answer.status().as_u16(), to_bytes(answer.into_body(), 1 << 24).await.unwrap())
    });
    assert!(status != 500 && status != 404 || says_model(&text), "{path}: {status}");
    serde_json::from_slice::<serde_json::Value>(&text).expect("an answer that is not JSON");
    server.settle();
}

/// Only an unknown model gives 404, because all paths are served.
fn says_model(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).contains("model")
}
