//! ONNX Runtime behind the `model` traits. The library is loaded when it is first needed, from the store or from where the
//! configuration says; there is one environment a process.

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
    /// The ONNX file; `tokenizer.json` and, unless the head that comes with the program fits it, `config.json` lie beside it.
    pub network: PathBuf,
    /// Name to be told.
    pub name: String,
    /// SHA-256 of the network.
    pub sha256: String,
    /// ONNX Runtime's shared library.
    pub library: PathBuf,
    /// Threads of a step.
    pub threads: usize,
    /// Pairs a step; 0 for 1 where the network quantises over the whole batch, else 16.
    pub batch: usize,
}

static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads the shared library at the first call; later calls get the same environment, whatever they name.
fn environment(library: &Path) -> Result<Environment, ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: library.display().to_string(), problem };
    let mut known = ENVIRONMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(environment) = &*known {
        return Ok(environment.clone());
    }
    if !library.is_file() {
        return Err(unusable("is not there: `rerankd models pull` fetches ONNX Runtime".to_owned()));
    }
    let builder = ort::init_from(library).map_err(|error| unusable(error.to_string()))?;
    let environment = builder.with_name("rerankd").build().map_err(|error| unusable(error.to_string()))?;
    Ok(known.insert(environment).clone())
}

/// Loads the model and lends it to `use_it` until that returns. To be called on the thread that will own it.
///
/// # Errors
/// [`ModelError::Unusable`] naming the file.
pub fn with_model(settings: &Settings, use_it: &mut dyn FnMut(&mut dyn Entailment)) -> Result<(), ModelError> {
    let mut network = Network::load(settings)?;
    use_it(&mut network);
    Ok(())
}
