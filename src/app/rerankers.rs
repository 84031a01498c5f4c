//! Starts the workers of the models that score passages.

use std::path::Path;

use anyhow::Context;

use crate::config::Config;
use crate::config::rerankers::PassageModel;
use crate::engine::models::{Models, Role};
use crate::model::ModelError;
use crate::model::reranker::Reranker;
use crate::runtime::llama;
use crate::runtime::onnx::{self, PassageNetwork};
use crate::scheduler::entailment::ConfiguredModel;
use crate::scheduler::reranker::{Loader, PassageScorer};
use crate::storage::catalog;
use crate::storage::store::{Located, Store, StoreError};

/// Files that a model folder is searched for, in this order.
const NETWORKS: [&str; 4] = ["model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx"];

/// Adds the configured rerankers and embedding models, each with its own worker. They load at their first use;
/// a server uses the embedding model when it starts.
///
/// # Errors
/// No thread could be started.
pub fn with_passage_models(mut models: Models, config: &Config) -> anyhow::Result<Models> {
    let configured = [(Role::Reranker, &config.rerankers.reranker), (Role::Embedding, &config.rerankers.embedding)];
    for (role, model) in configured {
        if let Some(model) = model {
            let started = start(role, model, config);
            let scorer = started.with_context(|| format!("cannot start a thread for the {} model", role.name()))?;
            models = models.with_scorer(role, scorer);
        }
    }
    Ok(models)
}

fn start(role: Role, model: &PassageModel, config: &Config) -> std::io::Result<PassageScorer> {
    let store = config.store.clone();
    let configured = match locate(&store, role, &model.model) {
        Ok(located) => ConfiguredModel { name: located.name, sha256: located.sha256 },
        // A missing or damaged model is reported at its first use.
        Err(_) => ConfiguredModel { name: model.model.clone(), sha256: String::new() },
    };
    // The last digits of a vector depend on the other texts of its step.
    let cache_entries = if config.scheduler.reproducible { 0 } else { model.cache_entries };
    let model = model.completed_by(store.catalog());
    let settings = model.own_settings();
    let (library, gpu_layers) = (config.entailment.library.clone(), config.generator.gpu_layers);
    let loader: Loader = Box::new(move |serve| {
        let unusable =
            |error: StoreError| ModelError::Unusable { path: model.model.clone(), problem: error.to_string() };
        let located = locate(&store, role, &model.model).map_err(unusable)?;
        if located.path.extension().is_some_and(|extension| extension == "gguf") {
            return serve_gguf(role, &model, gpu_layers, located, serve);
        }
        let library = match &library {
            Some(path) => path.clone(),
            None => store.locate("onnxruntime", catalog::Role::Library).map_err(unusable)?.path,
        };
        let kind = match role {
            Role::Embedding => PassageNetwork::Embedding {
                query_prefix: model.query_prefix.clone(),
                passage_prefix: model.passage_prefix.clone(),
                pooling: model.pooling,
                cache_entries,
            },
            _ => PassageNetwork::CrossEncoder,
        };
        let network = onnx::PassageSettings {
            kind,
            network: located.path,
            name: located.name,
            sha256: located.sha256,
            library,
            most_tokens: model.most_tokens,
            threads: model.threads,
            batch: model.batch,
        };
        onnx::with_passage_model(&network, serve)
    });
    let started = PassageScorer::start(role.name(), configured, config.scheduler.longest_wait, loader)?;
    Ok(started.with_settings(&settings))
}

fn serve_gguf(
    role: Role,
    model: &PassageModel,
    gpu_layers: u32,
    located: Located,
    serve: &mut dyn FnMut(&mut dyn Reranker),
) -> Result<(), ModelError> {
    if role != Role::Reranker {
        let problem = "an embedding model must be an ONNX file".to_owned();
        return Err(ModelError::Unusable { path: located.path.display().to_string(), problem });
    }
    let settings = llama::RerankerSettings {
        path: located.path,
        name: located.name,
        sha256: located.sha256,
        most_tokens: model.most_tokens,
        threads: model.threads,
        batch: model.batch,
        gpu_layers,
    };
    llama::with_reranker(&settings, serve)
}

/// Finds a model by catalogue name, file or folder.
fn locate(store: &Store, role: Role, model: &str) -> Result<Located, StoreError> {
    let wanted = if role == Role::Embedding { catalog::Role::Embedding } else { catalog::Role::Reranker };
    let folder = Path::new(model);
    if store.catalog().find(model).is_some() || !folder.is_dir() {
        return store.locate(model, wanted);
    }
    let network = NETWORKS.iter().map(|file| folder.join(file)).find(|path| path.is_file());
    let located = store.locate(&network.unwrap_or_else(|| folder.join(NETWORKS[0])).to_string_lossy(), wanted)?;
    // The file is called the same in every folder.
    let name = folder.file_name().map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Located { name, ..located })
}
