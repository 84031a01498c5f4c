//! The page to try the server in a browser: one HTML document with its style, script and example.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::problem::{Problem, Shape};
use super::state::Http;
use crate::observe::record::Recorded;
use engine::methods;
use engine::types::{EngineError, MethodRef};

/// The path of the page, and of rankings for text-embeddings-inference.
pub(super) const PAGE: &str = "/";

const DOCUMENT: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The example of `make demo`.
const QUERY: &str = include_str!("../../../../models/demo/question.txt");
const PASSAGES: &str = include_str!("../../../../models/demo/passages.jsonl");

/// `GET /`
pub(super) async fn page(State(http): State<Arc<Http>>, Extension(received): Extension<Recorded>) -> Response {
    let mut nonce = [0; 16];
    if let Err(error) = getrandom::fill(&mut nonce) {
        let error = EngineError::Internal(format!("no random bytes: {error}"));
        return Problem::from(error).response(Shape::Nested, &received.id);
    }
    let nonce = hex::encode(nonce);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, [(header::CONTENT_SECURITY_POLICY, policy)], written(&data(&http), &nonce)).into_response()
}

/// The document with its parts.
fn written(data: &Value, nonce: &str) -> String {
    // A text with `</script>` would end the element that holds the data.
    let data = data.to_string().replace('<', "\\u003c");
    let parts = [("{{nonce}}", nonce), ("{{style}}", STYLE), ("{{script}}", SCRIPT), ("{{data}}", &data)];
    parts.into_iter().fold(DOCUMENT.to_owned(), |page, (name, part)| page.replace(name, part))
}

/// The example, and the methods whose models the server has. The first one ranks requests that name none.
fn data(http: &Http) -> Value {
    let default = http.options.method.unwrap_or_default();
    let has_model = |method: &MethodRef| {
        method.passage_model().is_none_or(|role| http.engine.models().scorer_if_any(role).is_some())
    };
    let others = methods::all().filter(|method| *method != default && !method.is_baseline()).filter(has_model);
    let named = |method: MethodRef| json!({ "name": method.name(), "summary": method.summary() });
    let methods: Vec<Value> = [default].into_iter().chain(others).map(named).collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "methods": methods, "query": QUERY.trim(), "passages": example() })
}

/// The passages of the example as paragraphs, each after its title.
fn example() -> Vec<String> {
    let passages = PASSAGES.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    passages
        .filter_map(|passage| Some(format!("{}\n{}", passage["title"].as_str()?, passage["text"].as_str()?)))
        .collect()
}

/// True if the server's own page sent a request. Its host must be an address or localhost: whoever owns another name
/// can serve a page from it, and then point the name at this server (DNS rebinding).
pub(super) fn is_sender(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else { return false };
    let origin = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let cannot_be_rebound = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    cannot_be_rebound && origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_complete() {
        let data = json!({ "query": "</script><script>" });
        let page = written(&data, "ab12");
        assert!(!page.contains("{{"), "a part is missing");
        assert!(page.contains("<style nonce=\"ab12\">") && page.contains("<script nonce=\"ab12\">"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2, "the data and the script");
        assert!(page.contains(r#"{"query":"\u003c/script>\u003cscript>"}"#));
        // The policy would block them.
        assert!(!page.contains(" style=") && !page.contains(" onclick="));
    }

    /// The policy would block the request.
    #[test]
    fn the_page_names_no_other_server() {
        for line in [DOCUMENT, STYLE, SCRIPT].into_iter().flat_map(str::lines) {
            assert!(!line.contains("://") || line.contains("//www.w3.org/2000/svg"), "{line}");
        }
    }

    #[test]
    fn the_example_is_the_demonstration() {
        let passages = example();
        assert_eq!(passages.len(), PASSAGES.lines().count());
        assert!(passages[2].starts_with("Power for the looms\nThe looms of Harrowgate were driven by water"));
    }

    #[test]
    fn only_a_page_of_the_same_address_is_the_own_one() {
        let rows = [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("https://127.0.0.1", "127.0.0.1", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://localhost:8080", "localhost:8080", true),
            ("http://localhost:8080", "LOCALHOST:8080", true),
            ("http://192.168.1.20:8080", "192.168.1.20:8080", true),
            ("http://localhost:3000", "localhost:8080", false),
            ("http://localhost:8080", "127.0.0.1:8080", false),
            ("http://evil.example", "127.0.0.1:8080", false),
            ("http://evil.example:8080", "evil.example:8080", false),
            ("http://127.0.0.1.evil.example:8080", "127.0.0.1.evil.example:8080", false),
            ("null", "127.0.0.1:8080", false),
            ("file://127.0.0.1:8080", "127.0.0.1:8080", false),
            ("http://127.0.0.1:8080", "", false),
        ];
        for (origin, host, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            headers.insert(header::HOST, host.parse().unwrap());
            assert_eq!(is_sender(&headers), expected, "{origin} {host}");
        }
        assert!(!is_sender(&HeaderMap::new()));
    }
}
