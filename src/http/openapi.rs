//! The OpenAPI document, for clients and for people.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;

/// The document. Its version is that of the server.
const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub(super) async fn document() -> Response {
    let document = DOCUMENT.replace("\"0.0.0\"", concat!('"', env!("CARGO_PKG_VERSION"), '"'));
    let mut response = Response::new(Body::from(document));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
