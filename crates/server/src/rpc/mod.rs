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
pub mod tei;
mod utility;
