//! The gRPC services. The crate `protocol` has their messages.

mod admit;
mod belief;
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
mod status;
mod tei;
mod utility;

/// The outcome of a call.
type Reply<T> = Result<tonic::Response<T>, tonic::Status>;
