//! Generators in llama.cpp.

mod generator;
pub mod reencode;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{LogOptions, send_logs_to_tracing};

pub use vocabulary::Vocabulary;

use crate::model::{Generator, ModelError};

/// How a generator is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// GGUF file.
    pub path: PathBuf,
    /// Cache cells.
    pub cells: usize,
    /// Tokens evaluated in one step.
    pub batch: usize,
    /// Threads of a step.
    pub threads: usize,
    /// Layers on the accelerator, where the build has one.
    pub gpu_layers: u32,
    /// Whether to use flash attention.
    pub flash_attention: bool,
}

/// llama.cpp is initialised once a process and never taken down: tests and restarts build many models.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp does not start.
pub fn backend() -> Result<&'static LlamaBackend, ModelError> {
    static BACKEND: OnceLock<Result<LlamaBackend, String>> = OnceLock::new();
    BACKEND
        .get_or_init(|| {
            send_logs_to_tracing(LogOptions::default());
            #[cfg(feature = "portable")]
            llama_cpp_2::llama_backend::load_backends();
            LlamaBackend::init().map_err(|error| error.to_string())
        })
        .as_ref()
        .map_err(|error| ModelError::Decode(format!("llama.cpp does not start: {error}")))
}

fn load(path: &Path, params: &LlamaModelParams) -> Result<LlamaModel, ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: path.display().to_string(), problem };
    if !path.is_file() {
        return Err(unusable("no such file".into()));
    }
    let model = LlamaModel::load_from_file(backend()?, path, params)
        .map_err(|error| unusable(format!("llama.cpp cannot read it: {error}")))?;
    if model.is_recurrent() || model.is_hybrid() {
        return Err(unusable("recurrent and hybrid models are not supported: their cache cannot be forked".into()));
    }
    Ok(model)
}

/// Whether layers will run on an accelerator.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp does not start.
pub fn offloads(settings: &Settings) -> Result<bool, ModelError> {
    Ok(settings.gpu_layers > 0 && backend()?.supports_gpu_offload())
}

/// Builds the generator on this thread's stack and lends it to `lend`.
///
/// # Errors
/// [`ModelError::Unusable`] for a file that cannot be loaded or a context that does not fit into memory.
pub fn with_model(settings: &Settings, serve: &mut dyn FnMut(&mut dyn Generator)) -> Result<(), ModelError> {
    let params = LlamaModelParams::default().with_n_gpu_layers(settings.gpu_layers);
    let model = load(&settings.path, &params)?;
    let mut generator = generator::LlamaGenerator::new(&model, backend()?, settings)?;
    serve(&mut generator);
    Ok(())
}
