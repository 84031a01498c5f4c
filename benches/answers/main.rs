//! Effect of a ranking on answers: for the first 1, 3, 5 and all passages of a list, the reference answer's
//! log-likelihood, the generator's greedy answer and DeltaSePer, in first-stage order, in the default order, at random,
//! and with the relevant passages first.
//!
//! `cargo bench --bench answers -- --data FILE --questions 40 --skip 60 --samples 5`. FILE holds labelled lists as
//! `rerankd compare` reads them, gzipped or not, with `answers`. Prints JSON lines; `--out FILE` writes tables, too.
//! `--moi 10` adds the order of MOI as published (3 N whole random orders, its own objective) of the retriever's first
//! ten passages, which takes minutes per question. `--methods query-generation,first` adds the orders of these methods.
//! Without samples there is no DeltaSePer. `--whole 8` uses all passages as a context for the first eight questions
//! only, because these contexts take most of the time.
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
mod list;
mod measure;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
mod tables;

use std::path::Path;

use engine::methods;
use engine::types::MethodRef;
use rerankd::config::Config;
use tables::Tables;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |name: &str, default: usize| data::option(&arguments, name).map_or(Ok(default), str::parse);
    let files: Vec<&str> =
        arguments.windows(2).filter(|pair| pair[0] == "--data").map(|pair| pair[1].as_str()).collect();
    anyhow::ensure!(!files.is_empty(), "--data FILE is missing");
    let named = data::option(&arguments, "methods").unwrap_or_default();
    let find = |name| methods::find(name).ok_or_else(|| anyhow::anyhow!("--methods: {name:?} is not a ranking method"));
    let chosen: Vec<MethodRef> =
        named.split(',').filter(|name| !name.is_empty()).map(find).collect::<Result<_, _>>()?;
    let settings = measure::Settings {
        methods: &chosen,
        passage_tokens: number("passage-tokens", 96)?,
        samples: number("samples", 5)?,
        moi: number("moi", 0)?,
        whole: true,
    };
    let whole = number("whole", usize::MAX)?;
    let (questions, skip) = (number("questions", 40)?, number("skip", 0)?);
    let config = Config::load(None, &[])?;
    rerankd::telemetry::install(&config, false);
    let runtime = tokio::runtime::Runtime::new()?;
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    report::about(&engine.generator()?.info);
    let mut text = String::new();
    for file in files {
        let lists = list::read(Path::new(file), skip, questions)?;
        let mut tables = Tables::new(Path::new(file));
        for (number, list) in lists.iter().enumerate() {
            let settings = measure::Settings { whole: number < whole, ..settings };
            tables.add(&runtime.block_on(measure::question(&engine, list, number as u64, settings))?);
            // Written after every question, so that an interrupted run keeps its tables.
            if let Some(out) = data::option(&arguments, "out") {
                std::fs::write(out, format!("{text}{}", tables.markdown()))?;
            }
            eprintln!("{} of {} questions of {file}", number + 1, lists.len());
        }
        tables.print();
        text.push_str(&tables.markdown());
    }
    Ok(())
}
