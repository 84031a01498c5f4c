//! Cached passages: seconds of a rerank, and a stream of requests under a bound.
//!
//! `cargo bench --bench warm -- [--model FILE] [--only rerank|stream|simulate|equal|cells|evaluate|shapes|streams]
//! [--requests 300] [--passages 10,20,50,100]`. Passages and queries are words of a seeded generator, cut to a number
//! of tokens. The server is a separate process, called over gRPC. Figures of seconds are ratios within one run: servers
//! with and without the store take turns.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    missing_docs,
    reason = "a benchmark that fails says where; its numbers are small"
)]

mod cells;
mod equal;
mod evaluate;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
mod rerank;
mod server;
mod shapes;
mod simulate;
mod stream;
mod streams;
mod texts;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value =
        |flag: &str| arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1));
    let (model, only) = (value("--model").map(String::as_str), value("--only").map(String::as_str));
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let texts = texts::Texts::load(model)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if wanted("rerank") {
        let sizes = value("--passages").map_or("", String::as_str).split(',').filter(|size| !size.is_empty());
        let sizes: Vec<usize> = sizes.map(str::parse).collect::<Result<_, _>>()?;
        runtime.block_on(rerank::run(model, &texts, &sizes))?;
    }
    if wanted("stream") {
        let requests = value("--requests").map_or(Ok(300), |number| number.parse())?;
        runtime.block_on(stream::run(model, &texts, requests))?;
    }
    if wanted("simulate") {
        simulate::run();
    }
    if wanted("cells") {
        runtime.block_on(cells::run(model, &texts))?;
    }
    if wanted("evaluate") {
        runtime.block_on(evaluate::run(model, &texts))?;
    }
    if wanted("streams") {
        streams::run(model)?;
    }
    if wanted("shapes") {
        shapes::run(model, &texts)?;
    }
    if wanted("equal") {
        runtime.block_on(equal::run(model, &texts))?;
    }
    Ok(())
}
