//! The OpenAPI document, for clients and for people.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The document. [`document`] replaces its version by the server's.
const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub(super) async fn document() -> Response {
    let document = DOCUMENT.replace("\"0.0.0\"", concat!('"', env!("CARGO_PKG_VERSION"), '"'));
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::http::request::{COMMON, RANKING};
    use crate::http::terms::TIMEOUT;
    use crate::http::{context, own};
    use crate::peers::cost_headers;
    use engine::types::Usage;
    use prefix_scheduler::call::{PRIORITY_LEVEL, PRIORITY_NAME};

    /// The headers that set a request's terms and trace, at every path that ranks.
    #[test]
    fn every_header_is_described() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let name = |parameter: &Value| {
            let pointer = parameter["$ref"].as_str().unwrap().trim_start_matches('#');
            document.pointer(pointer).unwrap()["name"].as_str().unwrap().to_owned()
        };
        let headers = [TIMEOUT, "x-request-id", PRIORITY_NAME, PRIORITY_LEVEL, "traceparent"];
        let paths =
            document["paths"].as_object().unwrap().iter().filter(|(_, operations)| !operations["post"].is_null());
        let described: Vec<&String> = paths
            .map(|(path, operations)| {
                let parameters = operations["post"]["parameters"].as_array().unwrap();
                assert_eq!(parameters.iter().map(name).collect::<Vec<_>>(), headers, "{path}");
                path
            })
            .collect();
        assert_eq!(described.len(), 11, "{described:?}");
    }

    /// The headers of answers: the cost headers of text-embeddings-inference, the warnings, and the request's id.
    #[test]
    fn every_header_of_an_answer_is_described() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let costs = cost_headers(1, &Usage::default(), "cpu");
        let of_lists: Vec<&str> =
            costs.iter().map(|(name, _)| *name).chain(["x-request-id", "x-rerankd-warning"]).collect();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let Some(headers) = operations["post"]["responses"]["200"]["headers"].as_object() else { continue };
            let wanted =
                if path.ends_with("score") { vec!["x-request-id", "x-rerankd-warning"] } else { of_lists.clone() };
            assert_eq!(headers.len(), wanted.len(), "{path}");
            for name in wanted {
                let pointer = headers[name]["$ref"].as_str().unwrap().trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{path} {name}");
            }
        }
    }

    /// The document describes every field. The fields with lists of passages are in one of two schemas.
    #[test]
    fn every_field_of_a_body_is_described() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let described =
            |schema: &str, field: &str| !document["components"]["schemas"][schema]["properties"][field].is_null();
        let in_one_schema = [
            "passages",
            "documents",
            "return_documents",
            "rank_fields",
            "max_chunks_per_doc",
            "max_tokens_per_query",
            "texts",
            "return_text",
        ];
        for field in COMMON.into_iter().chain(RANKING).chain(own::FIELDS) {
            let (one, other) = (described("RerankRequest", field), described("TeiRerankRequest", field));
            assert!(if in_one_schema.contains(&field) { one != other } else { one && other }, "{field}");
        }
        for field in context::FIELDS {
            assert!(described("ContextFields", field), "{field}");
        }
        for field in COMMON {
            assert!(described("ScoreRequest", field), "{field}");
        }
    }
}
