//! Effect of an accelerator: agreement with the CPU, and seconds of requests, over gRPC, with servers as processes.
//!
//! `cargo bench --bench gpu -- [--model FILE] [--layers 999] [--passages 10,100] [--batches 512,2048,4096]`. Each
//! figure has its reference from the same run. Without an accelerator everything runs on the CPU, which only shows that
//! the benchmark works.
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

mod memory;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
#[path = "../warm/server.rs"]
#[allow(dead_code, reason = "shared with the benchmark of warm passages")]
mod server;
#[path = "../warm/texts.rs"]
#[allow(dead_code, reason = "shared with the benchmark of warm passages")]
mod texts;

use std::time::Instant;

use clap::Parser;
use protocol::v1::{self, Method};
use report::Line;
use server::{Server, request, utilities};
use texts::Texts;

const PASSAGE: usize = 110;
const QUERY: usize = 17;
/// States of a hundred passages of a model with 8 billion parameters take a gigabyte and a half, and each figure uses
/// new ones.
const STORE: u64 = 48 << 30;

/// Measures a server on an accelerator.
#[derive(Parser)]
struct Arguments {
    /// Another GGUF file than the default generator.
    #[arg(long)]
    model: Option<String>,
    /// Layers on the accelerator.
    #[arg(long, default_value_t = 999)]
    layers: u32,
    /// Numbers of passages of a list: the first for MOI and utility, the last for query generation.
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    passages: Vec<usize>,
    /// Values of `generator.batch` to compare; the first is the reference.
    #[arg(long, value_delimiter = ',', default_value = "512,2048,4096")]
    batches: Vec<usize>,
    /// Requests of each figure of seconds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Parts to measure, in this order: agreement with the CPU, MOI, beliefs, cached passages, batches, CUDA graphs.
    #[arg(long, value_delimiter = ',', default_value = "agreement,moi,utility,warm,batches,graphs")]
    parts: Vec<Part>,
    /// Largest difference of a utility between CPU and accelerator that counts as agreement, as a share of the largest utility.
    #[arg(long, default_value_t = 0.02)]
    tolerance: f64,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Agreement,
    Moi,
    Utility,
    Warm,
    Batches,
    Graphs,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    anyhow::ensure!(!arguments.passages.is_empty() && arguments.rounds > 0, "--passages and --rounds need a value");
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(&arguments))
}

struct Bench<'a> {
    arguments: &'a Arguments,
    texts: Texts,
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let bench = Bench { arguments, texts: Texts::load(arguments.model.as_deref())? };
    let server = bench.start(STORE, &[], &[]).await?;
    let compute = server.info().await?.generator.unwrap_or_default().compute;
    eprintln!("the generator computes on {compute}");
    Line::new(&format!("on an accelerator ({compute})"), f64::from(u8::from(compute != "cpu")), "").print();
    let (few, many) = (arguments.passages[0], arguments.passages[arguments.passages.len() - 1]);
    let wanted = |part| arguments.parts.contains(&part);
    if wanted(Part::Agreement) {
        bench.agreement(&server).await?;
    }
    if wanted(Part::Moi) {
        bench.moi(&server, few).await?;
    }
    if wanted(Part::Utility)
        && let Err(error) = bench.utility(&server, few).await
    {
        // Only this part needs another model, which may be missing.
        eprintln!("DeltaSePer: {error:#}");
    }
    if wanted(Part::Warm) {
        bench.warm(&server, many).await?;
    }
    memory::print("with the defaults");
    drop(server);
    if wanted(Part::Batches) {
        bench.batches(many).await?;
    }
    if wanted(Part::Graphs) {
        bench.graphs(few).await?;
    }
    Ok(())
}

impl Bench<'_> {
    async fn start(&self, store: u64, settings: &[String], environment: &[(&str, &str)]) -> anyhow::Result<Server> {
        let layers = format!("generator.gpu_layers={}", self.arguments.layers);
        // All servers use the tensor types of the file.
        let own = [layers, "generator.reencode_megabytes=off".to_owned()];
        let settings: Vec<String> = own.into_iter().chain(settings.iter().cloned()).collect();
        let server = Server::with_environment(self.arguments.model.as_deref(), store, &settings, environment).await?;
        // The first request of a server evaluates the prompt prefix and compiles the accelerator's kernels.
        server.rerank(Method::QueryGeneration, &self.texts.query(1, QUERY), &self.list(1, 2)).await?;
        Ok(server)
    }

    /// `number` passages that no other seed has.
    fn list(&self, seed: u64, number: usize) -> Vec<String> {
        (0..number as u64).map(|index| self.texts.passage(1_000 * seed + index, PASSAGE)).collect()
    }

    /// Median seconds of a request over new lists.
    async fn seconds(&self, server: &Server, method: Method, seed: u64, number: usize) -> anyhow::Result<f64> {
        let mut taken = Vec::new();
        for round in 0..self.arguments.rounds {
            let query = self.texts.query(seed + round, QUERY);
            taken.push(server.rerank(method, &query, &self.list(seed + round, number)).await?.0);
        }
        Ok(median(&mut taken))
    }

    /// Utilities by the accelerator against those by the CPU.
    async fn agreement(&self, server: &Server) -> anyhow::Result<()> {
        // The reference must not find an accelerator at all.
        let hidden = [("CUDA_VISIBLE_DEVICES", ""), ("GGML_VK_VISIBLE_DEVICES", "")];
        let settings = ["generator.gpu_layers=0".to_owned(), "generator.reencode_megabytes=off".to_owned()];
        let on_cpu = Server::with_environment(self.arguments.model.as_deref(), 0, &settings, &hidden).await?;
        for (method, name) in [(Method::QueryGeneration, "query generation"), (Method::BayesSaliency, "joint")] {
            let (query, list) = (self.texts.query(90, QUERY), self.list(90, 10));
            let ours = utilities(&server.rerank(method, &query, &list).await?.1);
            let theirs = utilities(&on_cpu.rerank(method, &query, &list).await?.1);
            anyhow::ensure!(ours.iter().chain(&theirs).all(|utility| utility.is_finite()), "{name}: not finite");
            let differences: Vec<f64> = ours.iter().zip(&theirs).map(|(left, right)| left - right).collect();
            let count = differences.len() as f64;
            eprintln!("{name}: {ours:.2?}, by the CPU {theirs:.2?}");
            let mean = differences.iter().sum::<f64>() / count;
            let scale = theirs.iter().fold(f64::MIN_POSITIVE, |most, utility| most.max(utility.abs()));
            // The difference that all passages share comes from the query without a passage, and moves no rank.
            let beyond = differences.iter().fold(0.0_f64, |most, difference| most.max((difference - mean).abs()));
            Line::new(&format!("{name}: mean difference from the CPU"), mean, "nats").ratio(mean.abs() / scale).print();
            Line::new(
                &format!("{name}: largest difference from the CPU beyond the mean, over the largest utility"),
                beyond,
                "nats",
            )
            .ratio(beyond / scale)
            .at_most(self.arguments.tolerance)
            .print();
        }
        Ok(())
    }

    /// MOI in units of reading the whole list once.
    async fn moi(&self, server: &Server, number: usize) -> anyhow::Result<()> {
        let mut whole = Vec::new();
        for round in 0..self.arguments.rounds {
            let text = self.list(200 + round, number).join("\n");
            whole.push(server.rerank(Method::QueryGeneration, &self.texts.query(200 + round, QUERY), &[text]).await?.0);
        }
        let once = median(&mut whole);
        Line::new(&format!("{number} passages read as one"), once, "s").print();
        for (method, name, goal) in [
            (Method::Moi, "MOI", Some(1.3)),
            (Method::Unspecified, "the default", None),
            (Method::QueryGeneration, "query generation", None),
        ] {
            let seconds = self.seconds(server, method, 300 + 50 * u64::from(method as u8), number).await?;
            let line = Line::new(&format!("{name}, {number} passages"), seconds, "s").ratio(seconds / once);
            if let Some(goal) = goal { line.at_most(goal) } else { line }.print();
        }
        Ok(())
    }

    async fn utility(&self, server: &Server, number: usize) -> anyhow::Result<()> {
        let mut taken = Vec::new();
        for round in 0..self.arguments.rounds {
            let sampling =
                v1::SamplingOptions { samples: 10, max_tokens: 16, seed: round, ..v1::SamplingOptions::default() };
            let asked = request(Method::Unspecified, "", &self.list(3_000 + round, number));
            let request = v1::MeasureUtilityRequest {
                question: self.texts.query(3_000 + round, QUERY),
                passages: asked.passages,
                references: vec!["the old bridge".into()],
                sampling: Some(sampling),
                ..v1::MeasureUtilityRequest::default()
            };
            let started = Instant::now();
            server.utility().measure_utility(request).await?;
            taken.push(started.elapsed().as_secs_f64());
        }
        Line::new("DeltaSePer, 10 samples", median(&mut taken), "s").print();
        Ok(())
    }

    /// Query generation over a long list, three times: cached states are in host memory, and moving them must be worth
    /// it.
    async fn warm(&self, server: &Server, number: usize) -> anyhow::Result<()> {
        let (mut sights, mut rate) = ([const { Vec::new() }; 3], Vec::new());
        for round in 0..self.arguments.rounds {
            let list = self.list(4_000 + round, number);
            for (sight, seconds) in sights.iter_mut().enumerate() {
                let query = self.texts.query(4_000 + 1_000 * sight as u64 + round, QUERY);
                let (taken, answer) = server.rerank(Method::QueryGeneration, &query, &list).await?;
                if sight == 0 {
                    rate.push(answer.usage.unwrap_or_default().tokens as f64 / taken);
                }
                seconds.push(taken);
            }
        }
        let [first, second, third] = sights.map(|mut seconds| median(&mut seconds));
        Line::new(&format!("query generation, {number} passages"), first, "s").print();
        Line::new(&format!("query generation, {number} passages, tokens"), median(&mut rate), "tokens/s").print();
        for (name, seconds) in [("second", second), ("third", third)] {
            let name = format!("query generation, {number} passages, the {name} time");
            Line::new(&name, seconds, "s").ratio(first / seconds).print();
        }
        let info = server.info().await?;
        let inside = info.worker.unwrap_or_default().tokens_per_second;
        Line::new("the same inside llama.cpp, all requests so far", inside, "tokens/s").print();
        let states = info.warm.unwrap_or_default();
        Line::new("bytes of states", states.bytes as f64 / 1e6, "MB").print();
        Ok(())
    }

    /// Query generation by `generator.batch`, with a cache of equal size and without cached states.
    async fn batches(&self, number: usize) -> anyhow::Result<()> {
        let cells = 2 * self.arguments.batches.iter().copied().max().unwrap_or(0);
        let mut reference = None;
        for batch in &self.arguments.batches {
            let settings =
                [format!("generator.batch={batch}"), format!("generator.context_tokens={}", cells.max(8_192))];
            let server = self.start(0, &settings, &[]).await?;
            let seconds = self.seconds(&server, Method::QueryGeneration, 6_000, number).await?;
            let inside = server.info().await?.worker.unwrap_or_default().tokens_per_second;
            let reference = *reference.get_or_insert(seconds);
            Line::new(&format!("generator.batch = {batch}, {number} passages"), seconds, "s")
                .ratio(reference / seconds)
                .print();
            Line::new(&format!("generator.batch = {batch}, inside llama.cpp"), inside, "tokens/s").print();
            memory::print(&format!("generator.batch = {batch}"));
        }
        Ok(())
    }

    /// Launch overhead: CUDA graphs on and off, with similar steps, such as those of growing answers.
    async fn graphs(&self, number: usize) -> anyhow::Result<()> {
        let mut seconds = Vec::new();
        for environment in [&[][..], &[("GGML_CUDA_DISABLE_GRAPHS", "1")][..]] {
            let server = self.start(0, &[], environment).await?;
            seconds.push(self.seconds(&server, Method::Listwise, 7_000, number).await?);
        }
        Line::new(&format!("listwise without CUDA graphs, {number} passages"), seconds[1], "s")
            .ratio(seconds[1] / seconds[0])
            .print();
        Ok(())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
