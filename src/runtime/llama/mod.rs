//! Generators and tokenizers in llama.cpp.

mod generator;
mod gguf;
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
    /// The GGUF file.
    pub path: PathBuf,
    /// Size of the key-value cache in tokens, over all sequences.
    pub cells: usize,
    /// Maximum number of tokens in one step. A value below 256 also bounds the sequences held at once.
    pub batch: usize,
    /// Threads that evaluate a step.
    pub threads: usize,
    /// Layers on the accelerator; ignored when the build supports none.
    pub gpu_layers: u32,
    /// Whether attention is computed in one fused kernel.
    pub flash_attention: bool,
}

/// Initialises llama.cpp at the first call. It stays initialised to the end of the process, because a process may load
/// several models one after another.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp cannot be initialised.
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
        .map_err(|error| ModelError::Decode(format!("llama.cpp cannot be initialised: {error}")))
}

fn load(path: &Path, params: &LlamaModelParams) -> Result<LlamaModel, ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: path.display().to_string(), problem };
    if !path.is_file() {
        return Err(unusable("no such file".into()));
    }
    let model = LlamaModel::load_from_file(backend()?, path, params)
        .map_err(|error| unusable(format!("llama.cpp cannot read it: {error}")))?;
    if model.is_recurrent() || model.is_hybrid() {
        return Err(unusable(
            "recurrent and hybrid models are not supported, because their state cannot be forked".into(),
        ));
    }
    Ok(model)
}

/// Whether some layers run on an accelerator.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp cannot be initialised.
pub fn offloads(settings: &Settings) -> Result<bool, ModelError> {
    Ok(settings.gpu_layers > 0 && backend()?.supports_gpu_offload())
}

/// Loads the model, calls `serve` with it, and frees it when `serve` returns. Model and context stay on the calling thread.
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
