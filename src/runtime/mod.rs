//! Adapters: llama.cpp behind the `model` traits, and the files that models are.

pub mod catalog;
pub mod fetch;
pub mod llama;
pub mod onnx;
pub mod profiles;
pub mod store;
