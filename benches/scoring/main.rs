//! Benchmarks of scoring: designs on labelled questions, and the engine compared with simpler programs.
//!
//! - `cargo bench --bench scoring -- collect --data questions.jsonl.gz --out scores.jsonl` runs the generator.
//! - `… -- judge scores.jsonl …` fits every design to the scores.
//! - `… -- engine --data questions.jsonl.gz` times the engine.
//! - `… -- arrange --data questions.jsonl.gz` measures the effect of the arrangement of the context.
//!
//! All but the first print JSON lines.
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

mod arrange;
mod collect;
mod data;
mod engine;
mod judge;
mod load;
mod neighbours;
mod plot;
mod report;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "arrange" => arrange::run(&rest),
        "collect" => collect::run(&rest),
        "engine" => engine::run(&rest),
        "judge" => judge::run(&rest),
        other => anyhow::bail!("unknown command {other:?}: arrange, collect, judge or engine"),
    }
}
