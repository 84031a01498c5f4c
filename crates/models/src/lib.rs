//! Model files and how they run: the store on disk, fetching, llama.cpp and ONNX Runtime.
#![warn(missing_docs)]

pub mod adopt;
pub mod catalog;
pub mod fetch;
pub mod llama;
pub mod onnx;
mod passages;
mod receipts;
pub mod scratch;
pub mod store;
pub mod tokenizers;
