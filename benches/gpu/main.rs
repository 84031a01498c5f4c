//! What an accelerator does: agreement with the CPU, and seconds of what is served, over gRPC, with servers as processes.
//!
//! `cargo bench --bench gpu -- [--model FILE] [--layers 999] [--passages 10,100] [--batches 512,2048,4096]`. Each figure stands beside its
//! reference of the same run. Without an accelerator everything runs on the CPU, which tells that the benchmark works and
//! nothing else.
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
use report::Line;
use rerankd::rpc::v1::{self, Method};
use server::{Server, request, utilities};
use texts::Texts;

const PASSAGE: usize = 110;
const QUERY: usize = 17;
const STORE: u64 = 8 << 30;

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
    /// Requests of each figure of seconds; their median is told.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Largest difference of a utility between CPU and accelerator that counts as agreement, in nats.
    #[arg(long, default_value_t = 0.25)]
    tolerance: f64,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
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
    let server = bench.start(&[], &[]).await?;
    let features = server.info().await?.build.unwrap_or_default().features.join(" ");
    let layers = f64::from(arguments.layers);
    Line::new(&format!("layers on an accelerator, where there is one; features: {features}"), layers, "layers").print();
    bench.agreement(&server).await?;
    let (few, many) = (arguments.passages[0], arguments.passages[arguments.passages.len() - 1]);
    bench.moi(&server, few).await?;
    bench.utility(&server, few).await?;
    bench.warm(&server, many).await?;
    memory::print("with the defaults");
    drop(server);
    bench.batches(many).await?;
    bench.graphs(few).await
}

impl Bench<'_> {
    async fn start(&self, settings: &[String], environment: &[(&str, &str)]) -> anyhow::Result<Server> {
        let layers = format!("generator.gpu_layers={}", self.arguments.layers);
        let settings: Vec<String> = std::iter::once(layers).chain(settings.iter().cloned()).collect();
        let server = Server::with_environment(self.arguments.model.as_deref(), STORE, &settings, environment).await?;
        // The first request of a server makes its opening, and compiles what the accelerator needs.
        server.rerank(Method::QueryGeneration, &self.texts.query(1, QUERY), &self.list(1, 2)).await?;
        Ok(server)
    }

    /// `number` passages that no other seed has.
    fn list(&self, seed: u64, number: usize) -> Vec<String> {
        (0..number as u64).map(|index| self.texts.passage(1_000 * seed + index, PASSAGE)).collect()
    }

    /// Median seconds of a request over lists that are new.
    async fn seconds(&self, server: &Server, method: Method, seed: u64, number: usize) -> anyhow::Result<f64> {
        let mut taken = Vec::new();
        for round in 0..self.arguments.rounds {
            let query = self.texts.query(seed + round, QUERY);
            taken.push(server.rerank(method, &query, &self.list(seed + round, number)).await?.0);
        }
        Ok(median(&mut taken))
    }

    async fn agreement(&self, server: &Server) -> anyhow::Result<()> {
        let on_cpu = Server::with(self.arguments.model.as_deref(), 0, &["generator.gpu_layers=0".into()]).await?;
        for (method, name) in [(Method::QueryGeneration, "query generation"), (Method::BayesSaliencySum, "joint")] {
            let (query, list) = (self.texts.query(90, QUERY), self.list(90, 10));
            let ours = utilities(&server.rerank(method, &query, &list).await?.1);
            let theirs = utilities(&on_cpu.rerank(method, &query, &list).await?.1);
            let apart = ours.iter().zip(&theirs).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max);
            Line::new(&format!("{name}: largest difference from the CPU"), apart, "nats")
                .ratio(apart / self.arguments.tolerance)
                .at_most(1.0)
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

    /// Query generation over a long list, and again with its states in host memory.
    async fn warm(&self, server: &Server, number: usize) -> anyhow::Result<()> {
        let (mut cold, mut warm, mut rate) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.arguments.rounds {
            let list = self.list(4_000 + round, number);
            let (first, answer) =
                server.rerank(Method::QueryGeneration, &self.texts.query(4_000 + round, QUERY), &list).await?;
            rate.push(answer.usage.unwrap_or_default().tokens as f64 / first);
            cold.push(first);
            warm.push(server.rerank(Method::QueryGeneration, &self.texts.query(5_000 + round, QUERY), &list).await?.0);
        }
        let (cold, warm) = (median(&mut cold), median(&mut warm));
        Line::new(&format!("query generation, {number} passages"), cold, "s").print();
        Line::new(&format!("query generation, {number} passages, tokens"), median(&mut rate), "tokens/s").print();
        Line::new(&format!("query generation, {number} passages, read before"), warm, "s").ratio(cold / warm).print();
        let states = server.info().await?.warm.unwrap_or_default();
        Line::new("bytes of states", states.bytes as f64 / 1e6, "MB").print();
        Ok(())
    }

    async fn batches(&self, number: usize) -> anyhow::Result<()> {
        let mut reference = None;
        for batch in &self.arguments.batches {
            // Twice the batch: a step and what its passages hold beyond it.
            let cells = (2 * batch).max(4_096);
            let settings = [format!("generator.batch={batch}"), format!("generator.context_cells={cells}")];
            let server = self.start(&settings, &[]).await?;
            let seconds = self.seconds(&server, Method::QueryGeneration, 6_000, number).await?;
            let reference = *reference.get_or_insert(seconds);
            Line::new(&format!("generator.batch = {batch}, {number} passages"), seconds, "s")
                .ratio(reference / seconds)
                .print();
            memory::print(&format!("generator.batch = {batch}"));
        }
        Ok(())
    }

    /// Launch overhead: CUDA graphs on and off, where steps are small.
    async fn graphs(&self, number: usize) -> anyhow::Result<()> {
        let mut seconds = Vec::new();
        for environment in [&[][..], &[("GGML_CUDA_DISABLE_GRAPHS", "1")][..]] {
            let server = self.start(&[], environment).await?;
            seconds.push(self.seconds(&server, Method::QueryGeneration, 7_000, number).await?);
        }
        Line::new(&format!("CUDA graphs off, {number} passages"), seconds[1], "s")
            .ratio(seconds[1] / seconds[0])
            .print();
        Ok(())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
