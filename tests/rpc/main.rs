//! The services over a real gRPC channel, on scripted models unless a file says otherwise.
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

mod adapters;
mod answer_methods;
mod arrangement;
mod belief;
mod bert_score;
mod calibration;
mod calls;
mod cascade;
mod citations;
#[path = "../common/mod.rs"]
mod common;
mod compression;
mod compression_bounds;
mod concurrency;
mod context;
mod contexts;
mod copies;
mod cut;
mod domains;
mod errors;
mod evaluate;
#[path = "../common/gguf.rs"]
mod gguf;
#[path = "../common/http.rs"]
mod http;
mod in_process;
mod inline;
mod input;
mod latency;
mod listwise;
mod measures;
mod methods;
mod opening;
mod overload;
mod places;
#[path = "../common/program.rs"]
mod program;
mod references;
mod rerankers;
mod rerankers_gguf;
mod scorer;
mod semantic_utility;
mod small;
mod stream;
mod surface;
mod tasks;
mod tei;
mod warm;
mod yes_no;
