//! Injected faults of files, folders, clocks and stores.
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

mod adapters;
#[path = "../common/certificates.rs"]
mod certificates;
mod clock;
#[path = "../common/mod.rs"]
mod common;
mod disk;
#[path = "../common/gguf.rs"]
mod gguf;
#[path = "../common/mounted.rs"]
mod mounted;
#[path = "../common/page.rs"]
mod page;
#[path = "../common/program.rs"]
mod program;
mod read_only;
#[path = "../common/serving.rs"]
mod serving;
mod store;
