//! Entailment models, cross-encoders and embedding models in ONNX Runtime. The shared library is loaded at the first use, from
//! the store or from `ORT_DYLIB_PATH`. A process has one environment.

mod cross_encoder;
mod embedding;
mod encoder;
pub mod graft;
mod labels;
mod network;
mod providers;
mod session;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::environment::Environment;

use crate::catalog::Pooling;
use cross_encoder::CrossEncoder;
use embedding::Embedder;
use network::Network;
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::entailment::Entailment;
use prefix_scheduler::model::reranker::Reranker;

/// How an entailment model is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The ONNX file. Its folder holds `tokenizer.json` and, unless the built-in head was trained on this network,
    /// `config.json`.
    pub network: PathBuf,
    /// Catalogue name or file name, as reported to callers.
    pub name: String,
    /// SHA-256 of the ONNX file, lower-case hexadecimal.
    pub sha256: String,
    /// ONNX Runtime's shared library.
    pub library: PathBuf,
    /// Threads over all sessions.
    pub threads: usize,
    /// Pairs in a step; 0 chooses 1 for a network that quantises over the whole batch, else 16.
    pub batch: usize,
}

/// What a network that scores passages is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassageNetwork {
    /// It reads query and passage together and gives a logit.
    CrossEncoder,
    /// It embeds query and passage apart.
    Embedding {
        /// Text before every query.
        query_prefix: String,
        /// Text before every passage.
        passage_prefix: String,
        /// How the vectors of the tokens become one; `None` where the files beside it say it.
        pooling: Option<Pooling>,
        /// Texts whose vectors are kept.
        cache_entries: usize,
    },
}

/// How a network that scores passages is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageSettings {
    /// What it is.
    pub kind: PassageNetwork,
    /// The ONNX file. Its folder, or for a folder `onnx` the one above, holds `tokenizer.json` and as a rule `config.json`,
    /// `tokenizer_config.json` and, for an embedding model, `1_Pooling/config.json`.
    pub network: PathBuf,
    /// Catalogue name or file name, as reported to callers.
    pub name: String,
    /// SHA-256 of the ONNX file, lower-case hexadecimal.
    pub sha256: String,
    /// ONNX Runtime's shared library.
    pub library: PathBuf,
    /// Maximum number of tokens of a pair or text; the model's own maximum where that is lower.
    pub most_tokens: usize,
    /// Threads of a step.
    pub threads: usize,
    /// Pairs or texts in a step; 0 chooses 1 for a network that quantises over the whole batch, else 16.
    pub batch: usize,
}

static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads the shared library at the first call. Later calls return the same environment, even for another path.
fn environment(library: &Path) -> Result<Environment, ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: library.display().to_string(), problem };
    let mut loaded = ENVIRONMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(environment) = &*loaded {
        return Ok(environment.clone());
    }
    if !library.is_file() {
        return Err(unusable("no such file; `rerankd models pull` fetches ONNX Runtime".to_owned()));
    }
    let builder = ort::init_from(library).map_err(|error| unusable(error.to_string()))?;
    let environment = builder.with_name("rerankd").build().map_err(|error| unusable(error.to_string()))?;
    Ok(loaded.insert(environment).clone())
}

/// Loads the model, calls `serve` with it, and frees it when `serve` returns. The model stays on the calling thread.
///
/// # Errors
/// [`ModelError::Unusable`] naming the file.
pub fn with_model(settings: &Settings, serve: &mut dyn FnMut(&mut dyn Entailment)) -> Result<(), ModelError> {
    let mut network = Network::load(settings)?;
    serve(&mut network);
    Ok(())
}

/// The same for a network that scores passages.
///
/// # Errors
/// [`ModelError::Unusable`] naming the file.
pub fn with_passage_model(
    settings: &PassageSettings,
    serve: &mut dyn FnMut(&mut dyn Reranker),
) -> Result<(), ModelError> {
    match &settings.kind {
        PassageNetwork::CrossEncoder => serve(&mut CrossEncoder::load(settings)?),
        PassageNetwork::Embedding { query_prefix, passage_prefix, pooling, cache_entries } => {
            serve(&mut Embedder::load(settings, (query_prefix, passage_prefix), *pooling, *cache_entries)?);
        }
    }
    Ok(())
}
