//! The default models with their weights; `make setup` fetches them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

#[path = "../common/mod.rs"]
mod common;
mod compression;
mod embedding;
mod generator;
mod listwise;
mod live;
#[path = "../common/program.rs"]
mod program;
mod warm;
