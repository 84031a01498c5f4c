//! Effect of compression on answers: at three quarters, half and a quarter of the tokens of the retriever's first
//! passages, the reference answer's log-likelihood and DeltaSePer, against the whole passages, and, with equal tokens,
//! against passages cut at their ends and against fewer passages; and the tokens and seconds of ranking and shortening.
//!
//! `cargo bench --bench compress -- --data FILE --questions 40 --samples 5`. FILE holds labelled lists as `rerankd compare` reads
//! them, gzipped or not, with `answers`. Prints JSON lines: means, and paired differences with their 95 % intervals over questions.
//! Without samples there is no DeltaSePer.
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

#[path = "../scoring/data.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod data;
mod figures;
#[path = "../answers/list.rs"]
#[allow(dead_code, reason = "shared with the answers benchmark")]
mod list;
mod measure;

use std::path::Path;

use engine::types::Limits;
use figures::Figures;
use rerankd::config::Config;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |name: &str, default: usize| data::option(&arguments, name).map_or(Ok(default), str::parse);
    let files: Vec<&str> =
        arguments.windows(2).filter(|pair| pair[0] == "--data").map(|pair| pair[1].as_str()).collect();
    anyhow::ensure!(!files.is_empty(), "--data FILE is missing");
    let settings = measure::Settings {
        passages: number("passages", 5)?,
        passage_tokens: number("passage-tokens", 96)?,
        samples: number("samples", 5)?,
    };
    let (questions, skip) = (number("questions", 40)?, number("skip", 0)?);
    // A request to measure holds the passages of all contexts.
    let most = measure::CONTEXTS * settings.passages;
    let config = Config::load(None, &[("limits.passages".to_owned(), most.max(100).to_string())])?;
    rerankd::telemetry::install(&config, false);
    let runtime = tokio::runtime::Runtime::new()?;
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    let Limits { passages: allowed, .. } = *engine.limits();
    anyhow::ensure!(allowed >= most, "limits.passages is {allowed}, {most} are needed");
    let model = engine.generator()?.info.clone();
    for file in files {
        let lists = list::read(Path::new(file), skip, questions)?;
        let mut figures = Figures::new(Path::new(file), &model);
        for (number, list) in lists.iter().enumerate() {
            figures.add(runtime.block_on(measure::question(&engine, list, settings))?);
            eprintln!("{} of {} questions of {file}", number + 1, lists.len());
        }
        figures.print();
    }
    Ok(())
}
