//! Benchmarks of evaluation: metrics of a million rows against pytrec_eval, EvaluateRanking over gRPC, and eRAG on
//! labelled questions.
//!
//! `cargo bench --bench evaluation -- PART`. PART is `rows` (with `--python PYTHON`, which needs pytrec-eval-terrier),
//! `rpc`, or `erag` (with `--data FILE`, gzipped questions; may be repeated). Prints JSON lines.
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
mod erag;
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
    let config = Config::load(None, &[("warm.memory_bytes".to_owned(), "0".to_owned())])?;
    rerankd::telemetry::install(&config, false);
    let runtime = tokio::runtime::Runtime::new()?;
    match command.as_str() {
        "rows" => rows::run(data::option(&rest, "python").unwrap_or("python3"), number("queries", 1_000)?),
        "rpc" => runtime.block_on(rpc::run(&config, number("seconds", 10)?)),
        "erag" => {
            let files: Vec<&str> =
                rest.windows(2).filter(|pair| pair[0] == "--data").map(|pair| pair[1].as_str()).collect();
            anyhow::ensure!(!files.is_empty(), "--data FILE is missing");
            let engine = runtime.block_on(rerankd::app::engine(&config))?;
            report::about(&engine.generator()?.info);
            let (questions, samples) = (number("questions", 50)?, number("samples", 5)?);
            for file in &files {
                runtime.block_on(erag::cost(&engine, file, questions.min(20)))?;
            }
            drop(engine);
            let evaluated: Result<Vec<_>, _> =
                files.iter().map(|file| erag::correlations(file, questions, samples)).collect();
            match data::option(&rest, "out") {
                Some(folder) => erag::write(std::path::Path::new(folder), &evaluated?),
                None => evaluated.map(drop),
            }
        }
        other => anyhow::bail!("unknown part {other:?}: rows, rpc or erag"),
    }
}
