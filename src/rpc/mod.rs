//! The edge: the only part that names tonic and prost. Wire types stop in `convert`.

mod belief;
pub mod client;
mod codec;
mod convert;
mod convert_belief;
mod convert_evaluate;
mod convert_fit;
mod convert_metrics;
mod edge;
mod events;
mod metrics;
mod models;
mod questions;
mod rerank;
pub mod server;
mod status;
mod utility;

/// The generated protocol.
#[expect(clippy::all, clippy::pedantic, reason = "generated from proto/rerankd/v1, where the comments are")]
pub mod v1 {
    tonic::include_proto!("rerankd.v1");
}

/// Descriptors of the protocol, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rerankd.bin"));
