//! Alternative spellings of the served paths. Clients append a path to a base URL that ends in a slash or a version,
//! and NVIDIA's hosted API has the model in the path.

use axum::extract::Request;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;

use super::routes::ROUTES;
use super::state::{self, OF_MODEL};

/// Only this many bytes of a path are compared with the served paths.
const COMPARED: usize = 64;

/// A served path must begin within this many parts of a path.
const MOST_STARTS: usize = 4;

/// The model that a path names, in the extensions of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelOfPath(pub String);

/// The served methods and paths.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|route| ("POST", route.path)).chain(state::PATHS.into_iter().map(|path| ("GET", path)))
}

fn is_served(path: &str) -> bool {
    all().any(|(_, served)| served == path) || path.strip_prefix(OF_MODEL).is_some_and(|name| !name.is_empty())
}

/// Rewrites the path of a request to the served path, if it is an alternative spelling.
pub(super) async fn respelt(mut request: Request) -> Request {
    let Some((path, model)) = spelling(request.uri().path()) else { return request };
    let whole = request.uri().query().map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
    let mut parts = request.uri().clone().into_parts();
    let Ok(whole) = PathAndQuery::try_from(whole) else { return request };
    parts.path_and_query = Some(whole);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
        if let Some(model) = model {
            request.extensions_mut().insert(ModelOfPath(model));
        }
    }
    request
}

/// The served path that `path` means, and the model in it. `None` if the path is served unchanged, or not at all.
fn spelling(path: &str) -> Option<(String, Option<String>)> {
    if is_served(path) {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // A base URL may end in a part of a served path. The client then appends the whole path.
    let is_base = |part: &&str| all().any(|(_, served)| served.split('/').any(|word| word == *part));
    for start in 0..parts.len().clamp(1, MOST_STARTS) {
        let rest = &parts[start..];
        if let ["v1", "retrieval", model @ .., "reranking"] = rest
            && !model.is_empty()
        {
            let model = percent_encoding::percent_decode_str(&model.join("/")).decode_utf8_lossy().into_owned();
            return Some(("/v1/ranking".to_owned(), Some(model)));
        }
        let version = if let ["models", _, ..] = rest { "/v1/" } else { "/" };
        let path = format!("{version}{}", rest.join("/"));
        if is_served(&path) {
            return Some((path, None));
        }
        if !rest.first().is_some_and(is_base) {
            break;
        }
    }
    None
}

/// The method of a served path, for a request with another method.
pub(super) fn method_of(path: &str) -> &'static str {
    all().find(|(_, served)| *served == path).map_or("GET", |(method, _)| method)
}

/// The served path with the smallest edit distance to `path`, and its method.
pub(super) fn nearest(path: &str) -> (&'static str, &'static str) {
    let path = &path[..path.floor_char_boundary(COMPARED)];
    all().min_by_key(|(_, served)| strsim::levenshtein(path, served)).unwrap_or(("POST", "/v1/rerank"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_under_its_other_spellings() {
        for path in all().map(|(_, path)| path) {
            assert_eq!(spelling(path), None);
            for other in [format!("{path}/"), format!("/{path}"), format!("//{}//", path.replace('/', "//"))] {
                assert_eq!(spelling(&other), Some((path.to_owned(), None)), "{other}");
            }
            for version in path.starts_with("/v").then_some(["/v1", "/v2", "/v1/v1/"]).into_iter().flatten() {
                assert_eq!(spelling(&format!("{version}{path}")), Some((path.to_owned(), None)), "{version}{path}");
            }
        }
        let rows = [
            ("/models/org/name", Some(("/v1/models/org/name", None))),
            ("/v1/models//data/model.gguf", None),
            ("/v1/retrieval/nvidia/rerank-v2/reranking", Some(("/v1/ranking", Some("nvidia/rerank-v2")))),
            ("/v1/v1/retrieval/a%2Fb/reranking/", Some(("/v1/ranking", Some("a/b")))),
            ("/v1/retrieval/reranking", None),
            ("/v1/rerank/v1/rerank", Some(("/v1/rerank", None))),
            ("/v1/rerank/v2/rerank", Some(("/v2/rerank", None))),
            ("/rerank/rerank", Some(("/rerank", None))),
            ("/v1/health", Some(("/health", None))),
            ("/api/v1/rerank", None),
            ("/v1/embeddings", None),
            ("/v3/rerank", None),
            ("/v1", None),
            ("/v1/v1", None),
            ("/v1/v1/v1/v1/rerank", Some(("/v1/rerank", None))),
            ("/v1/v1/v1/v1/v1/rerank", None),
            (&"/v1".repeat(5_000), None),
        ];
        for (path, expected) in rows {
            let expected = expected.map(|(path, model)| (path.to_owned(), model.map(str::to_owned)));
            assert_eq!(spelling(path), expected, "{path}");
        }
    }

    #[test]
    fn the_nearest_path_is_the_one_with_the_fewest_changes() {
        let rows = [
            ("/v1/reranks", ("POST", "/v1/rerank")),
            ("/v3/rerank", ("POST", "/v1/rerank")),
            ("/api/v2/rerank", ("POST", "/v2/rerank")),
            ("/healthz", ("GET", "/health")),
            ("/v1/scores", ("POST", "/v1/score")),
            ("/openapi.yaml", ("GET", "/openapi.json")),
        ];
        for (path, expected) in rows {
            assert_eq!(nearest(path), expected, "{path}");
        }
        let long = "/é".repeat(100_000);
        assert!(nearest(&long).1.starts_with('/'));
    }
}
