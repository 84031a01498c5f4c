//! Servers with the tiny models of golden/rerankers, and requests to them.

use std::path::{Path, PathBuf};

use engine::Engine;
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rerankd::app;
use rerankd::config::Config;

use super::{Running, Scripted, wire};

/// A file or folder of golden/rerankers.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rerankers").join(name)
}

/// Serves a scripted generator and the models that these settings name.
pub async fn serve(settings: &[(&str, &str)]) -> Running {
    serve_in_steps(settings, 0).await
}

/// [`serve`] with steps of `batch` texts; 0 lets the runtime choose.
pub async fn serve_in_steps(settings: &[(&str, &str)], batch: usize) -> Running {
    // Later flags win, so only the requested models are configured.
    let none = [("embedding.model", "off")];
    let flags = none.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let flags: Vec<_> = flags.collect();
    let mut config = Config::load(None, &flags).unwrap();
    for model in [&mut config.rerankers.reranker, &mut config.rerankers.embedding].into_iter().flatten() {
        model.batch = batch;
    }
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let models = app::with_passage_models(engine.models().clone(), &config).unwrap();
    super::serve(Engine::new(models, *engine.limits()), observed, queue_length).await
}

/// [`serve`] with one model.
pub async fn serve_model(section: &str, path: &Path) -> Running {
    serve(&[(&format!("{section}.model"), path.to_str().unwrap())]).await
}

/// A copy of a model with its file `name` rewritten by `change`. A missing file counts as empty.
pub fn changed(model: &str, name: &str, change: impl Fn(String) -> String) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder(model)).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let path = copy.path().join(name);
    std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap_or_default())).unwrap();
    copy
}

/// A request with the query of the golden values.
pub fn request(method: v1::Method, passages: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: method.into(), ..wire("what makes the tide", passages) }
}

pub async fn rerank(running: &Running, request: v1::RerankRequest) -> Result<v1::RerankResponse, tonic::Status> {
    running.client().await.rerank(request).await.map(tonic::Response::into_inner)
}

pub async fn info(running: &Running) -> v1::GetServerInfoResponse {
    let mut client = ModelServiceClient::new(running.channel().await);
    client.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner()
}

/// The utility of each passage, in the order of the request.
pub fn utilities(response: &v1::RerankResponse) -> Vec<f64> {
    let mut results = response.results.clone();
    results.sort_by_key(|result| result.original_index);
    results.iter().map(|result| result.utility).collect()
}

pub fn assert_close(tolerance: f64, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found} found, {expected} expected");
    }
}
