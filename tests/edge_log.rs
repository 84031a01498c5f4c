//! The log of a call with a token, at every level.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

mod common;

use std::sync::{Arc, Mutex};

use common::{Scripted, wire};
use server::rpc::server::ServerOptions;
use server::transport::{Access, AccessFiles, NewToken};
use tonic::Request;

/// The log at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The caller's name is logged. Its token, query and passages are not, neither for an answer nor for an error.
#[tokio::test]
async fn the_log_names_the_caller_and_quotes_nothing() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_env_filter("rerankd=trace,info").with_writer(move || writer.clone()).init();
    let folder = tempfile::tempdir().unwrap();
    let new = NewToken::new("search-frontend").unwrap();
    let path = folder.path().join("tokens");
    std::fs::write(&path, &new.line).unwrap();
    let access =
        Access::load(&AccessFiles { tls: None, tokens: Some(path) }).unwrap_or_else(|faults| panic!("{faults:?}"));
    let server = Scripted::default().serve_with(ServerOptions { access, ..ServerOptions::default() }).await;
    let ask = |request, token: &str| {
        let mut request = Request::new(request);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let server = &server;
        async move { server.client().await.rerank(request).await }
    };
    ask(wire("zebrafinch", &["marmoset", "ocelot"]), &new.token).await.unwrap();
    ask(wire(" ", &["marmoset", "ocelot"]), &new.token).await.unwrap_err();
    ask(wire("zebrafinch", &["marmoset"; 30]), &new.token).await.unwrap_err();
    ask(wire("zebrafinch", &["marmoset"]), "capybara").await.unwrap_err();
    server.stop().await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("search-frontend") && text.contains("reranked"), "{text}");
    for secret in ["zebrafinch", "marmoset", "ocelot", "capybara", &new.token] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
}
