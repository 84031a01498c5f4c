//! Starts the workers of rerankers and embedding models.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::generator::KeyError;
use super::{configured, onnx_library};
use crate::config::Config;
use crate::config::rerankers::PassageModel;
use engine::models::Models;
use engine::types::Role;
use models::catalog;
use models::llama;
use models::onnx::{self, PassageNetwork};
use models::store::{Located, Store, StoreError};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::Reranker;
use prefix_scheduler::scheduler::reranker::{Loader, PassageScorer};

/// Files that are looked for in a model folder, in this order.
const NETWORKS: [&str; 4] = ["model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx"];

/// Adds the configured rerankers and embedding models, each with its own worker. They load at their first use;
/// a server uses the embedding model when it starts.
///
/// # Errors
/// A name is not an entry of the catalogue with this role, or no thread could be started.
pub fn with_passage_models(mut models: Models, config: &Config) -> anyhow::Result<Models> {
    let configured = [(Role::Reranker, &config.rerankers.reranker), (Role::Embedding, &config.rerankers.embedding)];
    for (role, model) in configured {
        if let Some(model) = model {
            let located = locate(&config.store, role, &model.model);
            match located {
                // A path may appear later.
                Err(StoreError::Unknown { .. }) if model.model.contains('/') => {}
                Err(error @ (StoreError::Unknown { .. } | StoreError::WrongRole { .. })) => {
                    return Err(KeyError::of(role, "model")(error).into());
                }
                _ => {}
            }
            let started = start(role, model, located, config);
            let scorer = started.with_context(|| format!("cannot start a thread for the {} model", role.name()))?;
            models = models.with_scorer(role, scorer);
        }
    }
    Ok(models)
}

fn start(
    role: Role,
    model: &PassageModel,
    located: Result<Located, StoreError>,
    config: &Config,
) -> std::io::Result<PassageScorer> {
    let store = config.store.clone();
    // Files of a catalogue entry are checked against it.
    let own = located.as_ref().ok().filter(|_| store.catalog().find(&model.model).is_none());
    let beside = own.map_or_else(String::new, |located| files_beside(&store, &located.path));
    let configured = configured(located, &model.model);
    // The last digits of a vector depend on the other texts of its step, so cached ones may differ.
    let cache_entries = if config.scheduler.reproducible { 0 } else { model.cache_entries };
    let model = model.completed_by(store.catalog());
    let settings = model.own_settings() + &beside;
    let (library, gpu_layers) = (config.entailment.library.clone(), config.generator.gpu_layers);
    let loader: Loader = Box::new(move |serve| {
        let unusable =
            |error: StoreError| ModelError::Unusable { path: model.model.clone(), problem: error.to_string() };
        let located = locate(&store, role, &model.model).map_err(unusable)?;
        if located.path.extension().is_some_and(|extension| extension == "gguf") {
            return serve_gguf(role, &model, gpu_layers, located, serve);
        }
        let library = onnx_library(library.clone(), &store).map_err(unusable)?;
        let kind = match role {
            Role::Embedding => PassageNetwork::Embedding {
                query_prefix: model.query_prefix.clone().unwrap_or_default(),
                passage_prefix: model.passage_prefix.clone().unwrap_or_default(),
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

/// Files in the folder of a network that its scores also depend on.
const BESIDE: [&str; 5] =
    ["config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"];

/// Names and SHA-256 of the other files that the scores of an ONNX network depend on, weights included; empty for a GGUF
/// file, which is complete. The text is hashed and stored: it must not change.
fn files_beside(store: &Store, network: &Path) -> String {
    let is_gguf = network.extension().is_some_and(|extension| extension == "gguf");
    let Some(folder) = network.parent().filter(|_| !is_gguf) else { return String::new() };
    // As when the network is loaded: the other files may be above a folder `onnx`.
    let above = folder.parent().filter(|_| folder.ends_with("onnx"));
    let folders = || std::iter::once(folder).chain(above);
    let found = |file: &str| folders().map(|folder| folder.join(file)).find(|path| path.is_file());
    let mut files: Vec<(String, PathBuf)> =
        BESIDE.iter().filter_map(|file| Some(((*file).to_owned(), found(file)?))).collect();
    files.extend(weights_beside(network));
    files.sort();
    let known = files.into_iter().filter_map(|(file, path)| Some(format!("|{file}:{}", store.identify(&path).ok()?)));
    known.collect()
}

/// Files with the weights of an ONNX network, by name. Exporters name them after the network: `model.onnx_data`,
/// `model.onnx.data`.
pub(super) fn weights_beside(network: &Path) -> Vec<(String, PathBuf)> {
    let (Some(folder), Some(name)) = (network.parent(), network.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let weights = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let file = entry.file_name().to_str()?.to_owned();
        let rest = file.strip_prefix(name)?;
        let named = rest.starts_with("_data") || rest.starts_with(".data");
        (named && entry.path().is_file()).then(|| (file.clone(), entry.path()))
    });
    let mut weights: Vec<_> = weights.collect();
    weights.sort();
    weights
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
    // The file has the same name in every folder.
    let name = folder.file_name().map_or_else(|| model.to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Located { name, ..located })
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::catalog::Catalog;
    use models::fetch::Hub;

    /// Otherwise a calibration for another pooling, tokenizer or weights file would still apply.
    #[test]
    fn files_beside_a_network_are_part_of_what_a_calibration_belongs_to() {
        let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::new(kept.path().to_owned(), Catalog::load(None).unwrap(), Hub::default());
        let network = folder.path().join("onnx/model.onnx");
        std::fs::create_dir_all(folder.path().join("onnx")).unwrap();
        std::fs::create_dir_all(folder.path().join("1_Pooling")).unwrap();
        let mut seen = vec![files_beside(&store, &network)];
        for file in ["tokenizer.json", "1_Pooling/config.json", "onnx/model.onnx_data", "onnx/tokenizer.json"] {
            std::fs::write(folder.path().join(file), file).unwrap();
            let now = files_beside(&store, &network);
            assert!(!seen.contains(&now), "{file}: {now}");
            assert_eq!(now, files_beside(&store, &network));
            seen.push(now);
        }
        for file in ["onnx/other.json", "onnx/model.onnx.part"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        assert_eq!(seen.last(), Some(&files_beside(&store, &network)));
        assert_eq!(files_beside(&store, &folder.path().join("onnx/model.gguf")), "");
    }
}
