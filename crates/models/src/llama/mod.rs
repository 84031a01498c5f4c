//! Generators, tokenizers and rerankers in llama.cpp.

#[cfg(any(test, feature = "portable"))]
mod backends;
mod causal;
mod chat_template;
mod end;
mod generator;
mod gguf;
mod head;
mod lora;
pub mod reencode;
mod reranker;
mod state;
mod system;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use llama_cpp_2::context::params::KvCacheType;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::{
    LlamaBackendDevice, LlamaBackendDeviceType, LogOptions, list_llama_ggml_backend_devices, send_logs_to_tracing,
};

pub use end::end_process;
pub use gguf::reencoded_bytes;
pub use head::check_output;
pub use lora::{Adapter, verify as verify_adapter};
pub use reranker::{RerankerSettings, with_reranker};
pub use system::System;
pub use vocabulary::Vocabulary;

use prefix_scheduler::model::{Generator, ModelError};
use system::uses_amx;

/// Number formats of the KV cache, by ggml's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheType {
    /// Half precision: 2 bytes per number.
    #[default]
    F16,
    /// Brain floating point: 2 bytes per number, the range of single precision.
    Bf16,
    /// Blocks of 32 eight-bit numbers with a scale: 1.06 bytes per number.
    Q8_0,
}

impl CacheType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::Q8_0];

    /// Name in the configuration and in the identity of states.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Bytes of this many numbers.
    pub const fn bytes(self, numbers: usize) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2 * numbers,
            Self::Q8_0 => 34 * numbers.div_ceil(32),
        }
    }

    const fn of_llama(self) -> KvCacheType {
        match self {
            Self::F16 => KvCacheType::F16,
            Self::Bf16 => KvCacheType::BF16,
            Self::Q8_0 => KvCacheType::Q8_0,
        }
    }
}

/// Settings for loading a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The GGUF file.
    pub path: PathBuf,
    /// Size of the key-value cache in tokens, over all sequences; 0 for the default of the CPU or accelerator.
    pub cells: usize,
    /// Maximum number of tokens in one step; 0 for the default of the CPU or accelerator. A value below 256 also bounds
    /// the number of sequences.
    pub batch: usize,
    /// Threads that evaluate a step.
    pub threads: usize,
    /// Layers on the accelerator; ignored when the build supports none.
    pub gpu_layers: u32,
    /// Number format of the cache.
    pub cache_type: CacheType,
    /// SHA-256 of the file at `path`. It may be empty unless saved states outlive the process.
    pub sha256: String,
    /// Adapter that is added to the model's matrices.
    pub adapter: Option<Adapter>,
}

/// Default sizes of cache and step.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    cells: usize,
    batch: usize,
}

/// Larger steps are no faster on a CPU, and delay other requests.
const ON_CPU: Sizes = Sizes { cells: 8_192, batch: 512 };

/// A step on an accelerator has a fixed cost, which many tokens must share (docs/experiments/gpu.md).
const ON_ACCELERATOR: Sizes = Sizes { cells: 16_384, batch: 4_096 };

impl Settings {
    /// The settings with the defaults filled in.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when llama.cpp cannot be initialised.
    pub fn sized(&self) -> Result<Self, ModelError> {
        Ok(self.sized_by(if offloads(self)? { ON_ACCELERATOR } else { ON_CPU }))
    }

    fn sized_by(&self, usual: Sizes) -> Self {
        let cells = if self.cells == 0 { usual.cells.max(self.batch) } else { self.cells };
        let batch = if self.batch == 0 { usual.batch.min(cells) } else { self.batch };
        Self { cells, batch, ..self.clone() }
    }
}

/// Initialises llama.cpp at the first call. It stays initialised until the process ends, because a process may load
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
            backends::load_all();
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

/// True if some layers run on an accelerator.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp cannot be initialised.
pub fn offloads(settings: &Settings) -> Result<bool, ModelError> {
    Ok(settings.gpu_layers > 0 && backend()?.supports_gpu_offload())
}

/// The device that computes the steps of a generator: `cpu`, or the kind of accelerator that llama.cpp found. A build for
/// accelerators finds none on a machine without one, and a portable build may load other backends.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp cannot be initialised.
pub fn computes(settings: &Settings) -> Result<String, ModelError> {
    if !offloads(settings)? {
        return Ok("cpu".to_owned());
    }
    Ok(accelerator().map_or_else(|| "cpu".to_owned(), |device| kind(&device.backend)))
}

/// The first accelerator that llama.cpp found.
fn accelerator() -> Option<LlamaBackendDevice> {
    let accelerates = |device: &LlamaBackendDevice| {
        matches!(device.device_type, LlamaBackendDeviceType::Gpu | LlamaBackendDeviceType::IntegratedGpu)
    };
    list_llama_ggml_backend_devices().into_iter().find(accelerates)
}

/// The name of ggml's backend as reported to callers.
fn kind(backend: &str) -> String {
    if backend == "MTL" { "metal".to_owned() } else { backend.to_ascii_lowercase() }
}

/// Loads the model, calls `serve` with it, and frees it when `serve` returns. Model and context stay on the calling thread.
///
/// # Errors
/// [`ModelError::Unusable`] for a file or an adapter that cannot be loaded or a context that does not fit into memory.
pub fn with_model(settings: &Settings, serve: &mut dyn FnMut(&mut dyn Generator)) -> Result<(), ModelError> {
    let settings = &settings.sized()?;
    let params = LlamaModelParams::default().with_n_gpu_layers(settings.gpu_layers);
    let mut model = load(&settings.path, &params)?;
    let says = |key: &str| model.meta_val_str(key).ok();
    let architecture = says("general.architecture").unwrap_or_default();
    let causal = says(&format!("{architecture}.attention.causal")).map(|value| value == "true");
    causal::check(&architecture, causal)
        .map_err(|problem| ModelError::Unusable { path: settings.path.display().to_string(), problem })?;
    // The adapter is loaded before the context, which counts the adapter's operations into the size of its graphs. Room
    // for their numbers is allocated at the first step, which is made below on an accelerator.
    let adapter = match &settings.adapter {
        Some(adapter) => Some((lora::load(adapter, &mut model, &settings.path)?, adapter.scale)),
        None => None,
    };
    let mut generator = generator::LlamaGenerator::new(&model, backend()?, settings)?;
    if let Some((mut adapter, scale)) = adapter {
        generator.apply(&mut adapter, scale)?;
    }
    generator.warm_up().map_err(|error| {
        let problem = format!("the first step of {} tokens fails: {error}", settings.batch);
        ModelError::Unusable { path: settings.path.display().to_string(), problem }
    })?;
    serve(&mut generator);
    Ok(())
}

#[cfg(test)]
impl Settings {
    /// Settings of a test: one thread, and no accelerator.
    fn plain(path: &str, cells: usize, batch: usize) -> Self {
        Self {
            path: Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path),
            cells,
            batch,
            threads: 1,
            gpu_layers: 0,
            cache_type: CacheType::default(),
            sha256: String::new(),
            adapter: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that is not a generator would give equal scores for all passages.
    #[test]
    fn an_encoder_is_not_a_generator() {
        let settings = Settings::plain("tests/golden/rerankers/bert.gguf", 64, 64);
        let refused = with_model(&settings, &mut |_| panic!("it is served")).unwrap_err().to_string();
        assert!(refused.contains("bert.gguf") && refused.contains("architecture \"bert\""), "{refused}");
    }

    #[test]
    fn eight_bit_numbers_have_a_scale_per_block() {
        assert_eq!(CacheType::ALL.map(|one| one.bytes(64)), [128, 128, 68]);
        assert_eq!(CacheType::Q8_0.bytes(33), 68);
    }

    #[test]
    fn default_sizes_suit_the_device_and_each_other() {
        let sized = |cells, batch, usual| {
            let sized = Settings::plain("", cells, batch).sized_by(usual);
            (sized.cells, sized.batch)
        };
        assert_eq!(sized(0, 0, ON_CPU), (8_192, 512));
        assert_eq!(sized(0, 0, ON_ACCELERATOR), (16_384, 4_096));
        assert_eq!(sized(1_000, 100, ON_ACCELERATOR), (1_000, 100));
        assert_eq!(sized(0, 60_000, ON_CPU), (60_000, 60_000));
        assert_eq!(sized(256, 0, ON_ACCELERATOR), (256, 256));
    }

    #[test]
    fn accelerators_have_the_names_that_callers_know() {
        let kinds = ["CUDA", "MTL", "Metal", "Vulkan"].map(kind);
        assert_eq!(kinds, ["cuda", "metal", "metal", "vulkan"]);
    }
}
