//! The instruction sets and devices that llama.cpp uses on this machine.

use std::sync::OnceLock;

use llama_cpp_2::list_llama_ggml_backend_devices;

use super::{ModelError, backend};

/// The instruction sets and devices that llama.cpp uses on this machine.
#[derive(Debug, Clone)]
pub struct System {
    /// The CPU generation whose kernels a portable build chose, such as `sapphirerapids`; `None` for other builds.
    pub kernels: Option<String>,
    /// Instruction sets and other options of the CPU's kernels, by ggml's names.
    pub instructions: Vec<String>,
    /// True if matrices are multiplied with AMX.
    pub amx: bool,
    /// ggml's name and the description of each device.
    pub devices: Vec<(String, String)>,
}

impl System {
    /// Asks llama.cpp. No model is loaded.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when llama.cpp cannot be initialised.
    pub fn read() -> Result<Self, ModelError> {
        backend()?;
        let devices = list_llama_ggml_backend_devices().into_iter();
        Ok(Self {
            kernels: std::fs::read_to_string("/proc/self/maps").ok().and_then(|maps| kernels(&maps)),
            instructions: of_cpu(features()),
            amx: uses_amx(),
            devices: devices.map(|device| (device.name, device.description)).collect(),
        })
    }
}

/// True if llama.cpp multiplies with AMX on this CPU. Its kernels are selected when it is initialised.
pub(super) fn uses_amx() -> bool {
    of_cpu(features()).iter().any(|name| name == "AMX_INT8")
}

/// The features of all backends; empty if llama.cpp cannot be initialised.
fn features() -> &'static str {
    static FEATURES: OnceLock<String> = OnceLock::new();
    // Asked once: the function fills a static string, and models load at the same time.
    FEATURES.get_or_init(|| {
        if backend().is_err() {
            return String::new();
        }
        // SAFETY: the function returns a static string, which no other call changes.
        #[expect(unsafe_code, reason = "llama-cpp-2 has no wrapper")]
        let features = unsafe { std::ffi::CStr::from_ptr(llama_cpp_sys_2::llama_print_system_info()) };
        features.to_string_lossy().into_owned()
    })
}

/// The CPU generation in the name of the backend that a portable build loaded. `maps` lists the files in the process's memory;
/// only Linux has such a list.
fn kernels(maps: &str) -> Option<String> {
    let (_, name) = maps.split_once("/libggml-cpu-")?;
    name.split_once(".so").map(|(generation, _)| generation.to_owned())
}

/// The features of the CPU backend, from llama.cpp's list such as `CPU : AVX = 1 | FMA = 1 | CUDA : ARCHS = 900 | `.
fn of_cpu(features: &str) -> Vec<String> {
    let mut of_cpu = false;
    let mut found = Vec::new();
    for item in features.split('|') {
        let feature = match item.split_once(" : ") {
            Some((backend, feature)) => {
                of_cpu = backend.trim() == "CPU";
                feature
            }
            None => item,
        };
        if let Some(name) = feature.trim().strip_suffix(" = 1").filter(|_| of_cpu) {
            found.push(name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_belong_to_the_backend_before_them() {
        let all = "CUDA : ARCHS = 900 | USE_GRAPHS = 1 | CPU : SSE3 = 1 | AMX_INT8 = 1 | SVE_CNT = 16 | REPACK = 1 | ";
        assert_eq!(of_cpu(all), ["SSE3", "AMX_INT8", "REPACK"]);
        assert!(of_cpu("Metal : EMBED_LIBRARY = 1 | ").is_empty() && of_cpu("").is_empty());
    }

    #[test]
    fn a_portable_build_names_its_kernels() {
        let maps = "7f1 r-xp 00 08:01 1 /lib/libggml-base.so.0\n7f2 r-xp 00 08:01 2 /lib/libggml-cpu-zen4.so\n";
        assert_eq!(kernels(maps).as_deref(), Some("zen4"));
        assert_eq!(kernels("7f1 r-xp 00 08:01 1 /lib/libggml-cpu.so\n"), None);
    }

    #[test]
    fn the_cpu_is_a_device() {
        let system = System::read().unwrap();
        assert!(system.devices.iter().any(|(name, _)| name == "CPU"), "{system:?}");
        assert_eq!(system.amx, system.instructions.contains(&"AMX_INT8".to_owned()));
        // Every CPU that Rust's targets of this architecture allow has it.
        assert!(cfg!(not(target_arch = "x86_64")) || system.instructions.contains(&"SSE3".to_owned()), "{system:?}");
    }
}
