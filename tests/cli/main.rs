//! The binary: exit codes, messages, output formats, interrupted and resumed work.
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

mod analyse;
mod analyse_erag;
mod analyse_moi;
mod analyse_seper;
#[path = "../common/certificates.rs"]
mod certificates;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod context;
mod distil;
mod evaluate;
mod evaluate_context;
mod evaluate_runs;
mod gate;
#[path = "../common/gguf.rs"]
mod gguf;
#[path = "../common/labelled.rs"]
mod labelled;
mod mistakes;
#[path = "../common/program.rs"]
mod program;
mod scorer;
mod serve;
#[path = "../common/serving.rs"]
mod serving;
mod shell;
mod tasks;
mod usage;
