//! Serves HTTP/JSON on a free port with a scripted generator, and a client for it.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::methods;
use prefix_scheduler::call::Admission;
use reqwest::header::HeaderMap;
use serde_json::Value;
use server::http::{self, HttpOptions};
use server::transport::{Access, AccessFiles, Bounds, NewToken, Protocol, Tokens, listener};

use crate::common::Scripted;

/// A running server.
pub struct Served {
    pub url: String,
    pub engine: Engine,
    pub admission: Admission,
    client: reqwest::Client,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<()>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    /// The indices of the results of an envelope, or of a bare list.
    pub fn order(&self) -> Vec<u64> {
        let results = self.body.get("results").unwrap_or(&self.body);
        results.as_array().unwrap().iter().map(|result| result["index"].as_u64().unwrap()).collect()
    }

    /// The scores of the results of an envelope.
    pub fn scores(&self) -> Vec<f64> {
        let results = self.body["results"].as_array().unwrap();
        results.iter().map(|result| result["relevance_score"].as_f64().unwrap()).collect()
    }
}

pub fn options() -> HttpOptions {
    HttpOptions::default()
}

/// Starts a server with the engine of `scripted`.
pub async fn serve(scripted: Scripted) -> Served {
    serve_with(scripted, options()).await
}

pub async fn serve_with(scripted: Scripted, options: HttpOptions) -> Served {
    let (engine, _, queue_length) = scripted.engine().await;
    serve_engine(engine, queue_length, options).await
}

pub async fn serve_engine(engine: Engine, queue_length: usize, options: HttpOptions) -> Served {
    serve_bounded(engine, queue_length, options, Bounds::default()).await
}

pub async fn serve_bounded(engine: Engine, queue_length: usize, options: HttpOptions, bounds: Bounds) -> Served {
    let admission = Admission::new(queue_length);
    let router = http::router(engine.clone(), admission.clone(), options, Arc::default());
    serve_router(engine, admission, router, bounds).await
}

/// Starts a server with this router, which uses this engine and these permits.
pub async fn serve_router(engine: Engine, admission: Admission, router: axum::Router, bounds: Bounds) -> Served {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let until = async {
        let _ = stopped.await;
    };
    let options = listener::Options::new(Protocol::Http1, bounds);
    let (all, drain) = (admission.clone(), Duration::from_secs(10));
    let cancel = move || all.cancel_all();
    let server = tokio::spawn(listener::serve_until(listener, router, options, until, drain, cancel));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Served { url, engine, admission, client, stop: Some(stop), server }
}

/// Writes a token file with one token of this name. Returns the tokens of the file, and the new token.
pub fn tokens(folder: &Path, name: &str) -> (Arc<Tokens>, String) {
    let (new, path) = (NewToken::new(name).unwrap(), folder.join("tokens"));
    std::fs::write(&path, &new.line).unwrap();
    let access = Access::load(&AccessFiles { tls: None, tokens: Some(path) });
    (access.unwrap_or_else(|faults| panic!("{faults:?}")).tokens, new.token)
}

/// A server that asks for a token, and the token.
pub async fn serve_with_token() -> (Served, String) {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let admission = Admission::new(queue_length);
    let folder = tempfile::tempdir().unwrap();
    let (tokens, token) = tokens(folder.path(), "search");
    let router = http::router(engine.clone(), admission.clone(), options(), tokens);
    (serve_router(engine, admission, router, Bounds::default()).await, token)
}

/// Options with a method whose scores do not depend on the other documents of a list.
pub fn alone() -> HttpOptions {
    HttpOptions { method: methods::find("query-generation"), ..options() }
}

impl Served {
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(path, &[], body.to_string()).await
    }

    pub async fn send(&self, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
        let mut request = self.client.post(format!("{}{path}", self.url)).body(body);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        read(request.send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[]).await
    }

    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.client.get(format!("{}{path}", self.url));
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        read(request.send().await.unwrap()).await
    }

    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        drop(self.client);
        self.server.await.unwrap();
    }
}

async fn read(response: reqwest::Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Answer { status, headers, body }
}
