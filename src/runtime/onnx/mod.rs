//! Entailment models in ONNX Runtime. The shared library is loaded at the first use, from the store or from
//! `entailment.library`. A process has one environment.

pub mod graft;
mod labels;
mod network;
mod providers;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::environment::Environment;

use crate::model::ModelError;
use crate::model::entailment::Entailment;
use network::Network;

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
