//! The listener: TLS, tokens, bounds on connections, unreadable messages, drains.
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

#[path = "../common/certificates.rs"]
mod certificates;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod drain;
#[path = "../common/http.rs"]
mod http;
mod http_connections;
mod tls;
mod tokens;
