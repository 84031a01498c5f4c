//! Adapters: llama.cpp and ONNX Runtime behind the traits of `model`.

pub mod llama;
pub mod onnx;
mod passages;
