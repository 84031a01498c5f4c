//! Entailment models, cross-encoders and embedding models in ONNX Runtime. The shared library is loaded at the first use, from
//! the program's folder, the store or `ORT_DYLIB_PATH`. A process has one environment.

mod cross_encoder;
mod embedding;
mod encoder;
mod fused;
pub mod graft;
mod labels;
mod network;
mod providers;
mod session;

use std::path::{Path, PathBuf};

use ort::environment::Environment;
use parking_lot::Mutex;

use crate::catalog::Pooling;
use cross_encoder::CrossEncoder;
use embedding::Embedder;
use network::Network;
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::entailment::Entailment;
use prefix_scheduler::model::reranker::Reranker;

/// Settings for loading an entailment model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The ONNX file. Its folder holds `tokenizer.json` and `config.json`. The latter is not needed if the built-in head
    /// was trained on this network.
    pub network: PathBuf,
    /// Catalogue name or file name, as reported to callers.
    pub name: String,
    /// SHA-256 of the ONNX file, lower-case hexadecimal.
    pub sha256: String,
    /// ONNX Runtime's shared library.
    pub library: PathBuf,
    /// Total number of threads of all sessions.
    pub threads: usize,
    /// Pairs in a step; 0 chooses 1 for a network that quantises over the whole batch, else 16.
    pub batch: usize,
}

/// Kinds of networks that score passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassageNetwork {
    /// Reads query and passage together and gives a logit.
    CrossEncoder,
    /// Embeds query and passage separately.
    Embedding {
        /// Text before every query.
        query_prefix: String,
        /// Text before every passage.
        passage_prefix: String,
        /// How the vectors of the tokens are combined; `None` if the network's other files state it.
        pooling: Option<Pooling>,
        /// Number of texts whose vectors are cached.
        cache_entries: usize,
    },
}

/// Settings for loading a network that scores passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageSettings {
    /// Kind of network.
    pub kind: PassageNetwork,
    /// The ONNX file. Its folder, or the one above a folder `onnx`, holds `tokenizer.json` and usually `config.json`,
    /// `tokenizer_config.json` and, for an embedding model, `1_Pooling/config.json`.
    pub network: PathBuf,
    /// Catalogue name or file name, as reported to callers.
    pub name: String,
    /// SHA-256 of the ONNX file, lower-case hexadecimal.
    pub sha256: String,
    /// ONNX Runtime's shared library.
    pub library: PathBuf,
    /// Maximum number of tokens of a pair or text; the model's maximum if that is lower.
    pub most_tokens: usize,
    /// Threads per step.
    pub threads: usize,
    /// Pairs or texts in a step; 0 chooses 1 for a network that quantises over the whole batch, else 16.
    pub batch: usize,
}

static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads the shared library at the first call. Later calls return the same environment, even for another path.
fn environment(library: &Path) -> Result<Environment, ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: library.display().to_string(), problem };
    let mut loaded = ENVIRONMENT.lock();
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

/// The version of a library of ONNX Runtime, from the name that an ELF file gives to its symbols. The library is not loaded.
/// `None` if the file is not such a library.
pub fn version(library: &Path) -> Option<String> {
    const NAME: &[u8] = b"\0VERS_";
    let file = std::fs::read(library).ok()?;
    let (_, rest) = file.split_at_checked(memchr::memmem::find(&file, NAME)? + NAME.len())?;
    let version = std::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()?;
    version.chars().all(|one| one.is_ascii_digit() || one == '.').then(|| version.to_owned())
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

/// Loads a network that scores passages, calls `serve` with it, and frees it when `serve` returns.
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
