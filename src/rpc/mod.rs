//! The gRPC edge, the only module that uses tonic and prost. The `convert` modules translate messages to engine types.

mod admit;
mod belief;
pub mod client;
mod codec;
pub mod connect;
mod convert;
mod convert_belief;
mod convert_citation;
mod convert_compression;
mod convert_evaluate;
mod convert_fit;
mod convert_fusion;
mod convert_metrics;
mod convert_opening;
pub mod convert_task;
mod count;
mod edge;
mod events;
mod metrics;
mod models;
mod operations;
mod questions;
mod readable;
mod record;
mod rerank;
pub mod server;
mod shape;
mod status;
pub mod tei;
mod utility;
mod whole;

/// Messages, servers and clients generated from proto/rerankd/v1. The comments there document them.
#[expect(clippy::all, clippy::pedantic, reason = "generated from proto/rerankd/v1, where the comments are")]
pub mod v1 {
    tonic::include_proto!("rerankd.v1");
}

/// Messages, servers and clients generated from proto/tei/v1. The comments there document them.
#[expect(clippy::all, clippy::pedantic, reason = "generated from proto/tei/v1, where the comments are")]
pub mod tei_v1 {
    tonic::include_proto!("tei.v1");
}

/// Encoded file descriptors of the protocol, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rerankd.bin"));
