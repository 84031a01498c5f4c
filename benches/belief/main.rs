//! Sampling, entailment and belief measures on labelled data, compared with simpler programs and with another binding.
//!
//! `cargo bench --bench belief -- PART --data FOLDER`. PART is `entailment`, `peer`, `tokens` or `gold`.
//! FOLDER holds nli/snli-dev.tsv.gz and qa/*.jsonl.gz. Prints JSON lines. The spread of SePer over draws and the agreement of
//! entailment with people are `rerankd analyse repeatability` and `rerankd analyse equivalence`.
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
mod data;
mod entailment;
mod gold;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
mod sampling;

use rerankd::config::Config;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let folder = data::option(&rest, "data").ok_or_else(|| anyhow::anyhow!("--data FOLDER is missing"))?;
    let folder = std::path::Path::new(folder);
    let number = |name: &str, default: usize| data::option(&rest, name).map_or(Ok(default), str::parse);
    let runtime = tokio::runtime::Runtime::new()?;
    let config = Config::load(None, &[("passage_cache.memory_bytes".to_owned(), "off".to_owned())])?;
    rerankd::telemetry::install(&config, false);
    match command.as_str() {
        "entailment" => runtime.block_on(entailment::quality(&config, folder, number("pairs", 4_000)?)),
        "peer" => {
            runtime.block_on(entailment::peer(&config, folder, data::option(&rest, "python").unwrap_or("python3")))
        }
        "tokens" => runtime.block_on(sampling::tokens(&config, folder)),
        "gold" => runtime.block_on(gold::run(&config, folder, number("questions", 60)?, number("samples", 10)?)),
        other => anyhow::bail!("unknown part {other:?}: entailment, peer, tokens or gold"),
    }
}

/// Starts the engine. Every line printed from here on names its generator.
async fn engine(config: &Config) -> anyhow::Result<engine::Engine> {
    let engine = rerankd::app::engine(config).await?;
    report::about(&engine.generator()?.info);
    Ok(engine)
}
