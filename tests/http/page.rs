//! The page to try the server: its headers, its key, its token, and which pages may call the server.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use server::http::HttpOptions;

use crate::common::Scripted;
use crate::http;
use http::{Served, options, serve, serve_with};

/// Status, headers and text of `GET /`.
async fn page(server: &Served, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let mut request = reqwest::Client::builder().no_proxy().build().unwrap().get(format!("{}/", server.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.headers().clone(), response.text().await.unwrap())
}

/// The data of the page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[tokio::test]
async fn the_page_runs_only_its_own_script() {
    let server = serve(Scripted::default()).await;
    let (status, headers, text) = page(&server, &[]).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-store");
    let policy = headers["content-security-policy"].to_str().unwrap();
    let (_, nonce) = policy.split_once("script-src 'nonce-").unwrap();
    let nonce = nonce.split_once('\'').unwrap().0;
    assert_eq!(nonce.len(), 32);
    assert_eq!(text.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "the style and the script");
    for directive in ["default-src 'none'", "connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'"] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    let (_, other, _) = page(&server, &[]).await;
    assert_ne!(other["content-security-policy"], headers["content-security-policy"], "a nonce is used once");
    let texts = json!({ "query": "question", "texts": ["a question", "b"] });
    assert_eq!(server.post("/", &texts).await.status, 200, "the path still ranks");
    server.stop().await;
}

#[tokio::test]
async fn the_page_has_the_example_and_the_methods_that_can_run() {
    let configured = HttpOptions { method: engine::methods::find("query-generation"), ..options() };
    let server = serve_with(Scripted::default(), configured).await;
    let data = data(&page(&server, &[]).await.2);
    assert_eq!((data["passages"].as_array().unwrap().len(), &data["version"]), (10, &json!(env!("CARGO_PKG_VERSION"))));
    let methods = data["methods"].as_array().unwrap();
    let names: Vec<&str> = methods.iter().map(|method| method["name"].as_str().unwrap()).collect();
    // There is no reranker and no embedding model.
    let expected = ["query-generation", "cascade", "moi", "listwise-bayes", "yes-no", "retriever", "context-cite"];
    assert_eq!(names, expected);
    for method in names {
        let body = json!({ "query": "question", "documents": ["a question", "b"], "rerankd_method": method });
        assert_eq!(server.post("/v2/rerank", &body).await.status, 200, "{method}");
    }
    server.stop().await;
}

/// The page's own requests have an origin, too.
#[tokio::test]
async fn the_page_may_call_its_server() {
    let server = serve(Scripted::default()).await;
    let body = json!({ "query": "question", "documents": ["a question", "b"] }).to_string();
    let own = server.send("/v2/rerank", &[("origin", &server.url)], body.clone()).await;
    assert_eq!(own.status, 200, "{}", own.body);
    // The name was pointed at this server after the page was loaded.
    let rebound = [("origin", "http://evil.example"), ("host", "evil.example")];
    assert_eq!(server.send("/v2/rerank", &rebound, body).await.status, 403);
    server.stop().await;
}

#[tokio::test]
async fn without_the_page_its_path_only_ranks() {
    let server = serve_with(Scripted::default(), HttpOptions { page: false, ..options() }).await;
    assert_eq!(server.get("/").await.status, 405);
    let body = json!({ "query": "question", "documents": ["a question", "b"] }).to_string();
    assert_eq!(server.send("/v2/rerank", &[("origin", &server.url)], body).await.status, 403);
    server.stop().await;
}

#[tokio::test]
async fn the_page_needs_the_token() {
    let (server, token) = http::serve_with_token().await;
    let (status, headers, text) = page(&server, &[]).await;
    assert_eq!(status, 401);
    assert_eq!(headers["www-authenticate"], "Bearer");
    assert!(!text.contains("<html") && !headers.contains_key("content-security-policy"), "{text}");
    let bearer = format!("Bearer {token}");
    let (status, _, text) = page(&server, &[("authorization", &bearer)]).await;
    assert!(status == 200 && text.contains("<html"), "{status}");
    server.stop().await;
}
