//! Functions that the fuzz targets run on one input. tests/fuzz_corpus.rs runs them on the stored inputs.
//!
//! A function returns for every input; a panic is a fault of the program. The functions also assert that no input is
//! the server's fault, that no permit stays taken, and that a reader accepts only what its writer writes.

pub mod files;
pub mod grpc;
pub mod http;
mod server;
pub mod states;

/// A target and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the name of their folder of inputs.
pub const TARGETS: [Target; 5] =
    [("grpc", grpc::run), ("http", http::run), ("states", states::run), ("files", files::run), ("gguf", files::gguf)];
