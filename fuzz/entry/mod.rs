//! What the fuzz targets run on one input. tests/fuzz_corpus.rs runs the same on the inputs that are kept.
//!
//! A function returns for every input; a panic is a fault of the program. What the program promises is asserted beside: no input
//! of a caller is the server's fault, no permit is kept, and what a reader accepts is what its writer writes.

pub mod files;
pub mod grpc;
pub mod http;
mod server;
pub mod states;

/// A target and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the name of their folder of inputs.
pub const TARGETS: [Target; 5] =
    [("grpc", grpc::run), ("http", http::run), ("states", states::run), ("files", files::run), ("gguf", files::gguf)];
