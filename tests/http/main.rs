//! HTTP/JSON over a real socket, on scripted models.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

#[path = "../common/mod.rs"]
mod common;
mod context;
mod errors;
#[path = "../common/http.rs"]
mod http;
mod input;
mod lenient;
mod own;
mod page;
mod refusals;
mod score;
mod shapes;
mod small;
mod strict;
