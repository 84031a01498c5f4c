//! The messages of the protocol, their conversions to and from the engine's types, and the client.

pub mod client;
pub mod connect;
pub mod convert;
pub mod convert_belief;
pub mod convert_citation;
pub mod convert_compression;
pub mod convert_context;
pub mod convert_evaluate;
pub mod convert_fit;
pub mod convert_fusion;
pub mod convert_metrics;
pub mod convert_models;
pub mod convert_opening;
pub mod convert_parts;
pub mod convert_task;

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
