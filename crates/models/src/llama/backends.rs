//! llama.cpp's backends as shared libraries, in a portable build: their folder, and why one is not used.

use std::path::{Path, PathBuf};

#[cfg(feature = "portable")]
use llama_cpp_2::llama_backend::{load_backends, load_backends_from_path};

const PREFIX: &str = "libggml-";
const SUFFIX: &str = ".so";

/// Loads the backends in the program's folder if there are any, otherwise those of the build.
#[cfg(feature = "portable")]
pub(super) fn load_all() {
    let beside = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
    // llama.cpp's binding accepts UTF-8 paths only.
    let beside = beside.filter(|folder| folder.to_str().is_some() && has_kernels(&libraries(folder)));
    match &beside {
        Some(folder) => load_backends_from_path(folder),
        None => load_backends(),
    }
    if let Some(folder) = beside {
        explain(&folder);
    }
}

/// The backends in a folder: `cuda` for libggml-cuda.so.
fn libraries(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let file = entry.file_name();
        let name = file.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        Some((name.to_owned(), entry.path()))
    });
    let mut found: Vec<_> = named.collect();
    found.sort();
    found
}

/// True if one of the libraries is a CPU backend, which llama.cpp always needs.
fn has_kernels(libraries: &[(String, PathBuf)]) -> bool {
    libraries.iter().any(|(name, _)| name.starts_with("cpu"))
}

/// Accelerator backends, by the names of ggml's libraries.
const ACCELERATORS: [&str; 8] = ["cann", "cuda", "hip", "metal", "musa", "opencl", "sycl", "vulkan"];

/// Warns of each accelerator backend if none found a device. llama.cpp then silently computes on the CPU.
fn explain(folder: &Path) {
    if super::accelerator().is_some() {
        return;
    }
    for (_, path) in libraries(folder).iter().filter(|(name, _)| ACCELERATORS.contains(&&**name)) {
        // SAFETY: llama.cpp opened the same file before, so its initialisers have run already, or fail again.
        #[expect(unsafe_code, reason = "the loader's reason comes from opening the library alone")]
        let opened = unsafe { libloading::Library::new(path) };
        let problem = match opened {
            Ok(_) => "it finds no device or has another version: check the driver".to_owned(),
            Err(error) => match std::error::Error::source(&error) {
                Some(reason) => format!("{error}: {reason}"),
                None => error.to_string(),
            },
        };
        tracing::warn!(library = %path.display(), problem, "an accelerator's backend is not used: models run on the CPU");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_found_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libggml-cuda.so", "libggml-base.so", "libggml-base.so.0", "libggml-cpu-haswell.so", "rerankd"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let all = libraries(folder.path());
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["base", "cpu-haswell", "cuda"]);
        assert!(has_kernels(&all) && !has_kernels(&all[2..]));
        assert!(libraries(Path::new("no such folder")).is_empty());
    }

    /// An empty file is not a library: it is reported, and the process continues.
    #[test]
    fn a_library_that_cannot_be_loaded_does_not_end_the_process() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libggml-cuda.so"), "").unwrap();
        explain(folder.path());
    }
}
