//! Benchmarks of evaluation: metrics of a million rows against pytrec_eval, and EvaluateRanking over gRPC. `rerankd
//! analyse erag-cost` and `erag-correlation` measure the cost and the agreement of passage labels.
//!
//! `cargo bench --bench evaluation -- PART`. PART is `rows` (with `--python PYTHON`, which needs pytrec-eval-terrier) or
//! `rpc`. Prints JSON lines.
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

#[path = "../scoring/data.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod data;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
mod rows;
mod rpc;

use rerankd::config::Config;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let number = |name: &str, default: usize| data::option(&rest, name).map_or(Ok(default), str::parse);
    let config = Config::load(None, &[("passage_cache.memory_bytes".to_owned(), "off".to_owned())])?;
    rerankd::telemetry::install(&config, false);
    let runtime = tokio::runtime::Runtime::new()?;
    match command.as_str() {
        "rows" => rows::run(data::option(&rest, "python").unwrap_or("python3"), number("queries", 1_000)?),
        "rpc" => runtime.block_on(rpc::run(&config, number("seconds", 10)?)),
        other => anyhow::bail!("unknown part {other:?}: rows or rpc"),
    }
}
