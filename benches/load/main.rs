//! Load on a server, from one client or several: goodput, latency and refusals at multiples of its capacity.
//!
//! `cargo bench --bench load` starts a server, measures its capacity with a closed loop, and offers 0.5, 1, 2, 5 and 10
//! times the capacity in an open loop. `--address` uses a running server; `--http` uses any server of the rerank API,
//! so that others can be measured in the same way (`llama-server.py` starts one). Each point is written to a file in
//! the JSON schema of ghz (`ghz -O json`), and its figures are printed as JSON lines.
//!
//! In the open loop requests arrive at times drawn in advance (Poisson, seeded), whether or not earlier ones were
//! answered, and latency counts from that time. A stalled server therefore delays no request of the load, and all of
//! its delay is visible.
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
    reason = "a benchmark that fails says where; its numbers are small"
)]

mod caller;
mod ghz;
mod http;
mod live;
mod offer;
mod refusal;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use caller::Caller;
use clap::Parser;
use ghz::Options;
use offer::{Arrivals, Shot, Target};
use report::Line;
use server::Server;
use tonic::Code;

/// Offers load to a server and reports the outcomes.
#[derive(Parser)]
struct Arguments {
    /// Address of a running server, `host:port`. Without it one is started, and stopped at the end.
    #[arg(long)]
    address: Option<String>,
    /// URL that ranks over HTTP, such as http://127.0.0.1:8080/v1/rerank: any running server that reads {"query",
    /// "documents"}.
    #[arg(long, conflicts_with_all = ["address", "program", "settings"])]
    http: Option<String>,
    /// Name of the model in the body of requests over HTTP. Without it they name none.
    #[arg(long, requires = "http")]
    model: Option<String>,
    /// Program to start instead of the one that was built, to compare two versions.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Setting of the server that is started, `section.key=value`.
    #[arg(long = "set")]
    settings: Vec<String>,
    /// Seconds of each point.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Capacity of the server in requests per second; measured with a closed loop if absent.
    #[arg(long)]
    capacity: Option<f64>,
    /// Multiples of the capacity to offer.
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,2,5,10")]
    times: Vec<f64>,
    /// Keep this many requests in flight, each after the answer to the one before, instead of the open loop.
    #[arg(long)]
    closed: Option<usize>,
    /// A caller as `key=value` pairs: name, weight, priority (0 to 9), deadline (seconds, 0 for none), passages, words, method,
    /// from (local address), token. Repeat it for several.
    #[arg(long = "caller", default_value = "name=search")]
    callers: Vec<Caller>,
    /// Seed of arrivals and texts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the reports.
    #[arg(long, default_value = "target/load")]
    out: PathBuf,
    /// Measure only the cost of a refusal.
    #[arg(long)]
    refusal: bool,
    /// Measure only the latency with and without the measurement of live traffic (`live.sample_ratio`), and that a server
    /// under load measures nothing.
    #[arg(long, conflicts_with_all = ["address", "http"])]
    live: bool,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Requests in flight while the capacity is measured: more than one, so that no gap is left between them.
const SATURATING: usize = 4;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.refusal {
        return refusal::measure().await;
    }
    if arguments.live {
        let (program, period) = (arguments.program.as_deref(), Duration::from_secs(arguments.seconds));
        return live::measure(program, &arguments.settings, &arguments.callers, arguments.seed, period).await;
    }
    let mut started = None;
    let target = match (&arguments.http, &arguments.address) {
        (Some(url), _) => Target::Http { url: url.clone(), model: arguments.model.clone() },
        (None, Some(address)) => Target::Grpc(address.clone()),
        (None, None) => {
            let server = started.insert(Server::start(arguments.program.as_deref(), &arguments.settings).await?);
            Target::Grpc(server.address.clone())
        }
    };
    std::fs::create_dir_all(&arguments.out)?;
    let period = Duration::from_secs(arguments.seconds);
    let asked = |open_loop| Options { target: &target, open_loop, period };
    // Every point has new texts, or a server with a cache would answer the second point from the first.
    let mut seeds = (1_u64..).map(|point| arguments.seed.wrapping_add(point.wrapping_mul(0xD134_2543_DE82_EF95)));
    let mut seed = || seeds.next().unwrap_or(arguments.seed);
    let offer = |arrivals: Arrivals, period, seed| offer::run(&target, &arguments.callers, arrivals, seed, period);
    if let Some(number) = arguments.closed {
        let shots = offer(Arrivals::Closed(number), period, seed()).await?;
        point(&format!("closed-{number}"), &shots, &asked(false), None, &arguments.out)?;
        return Ok(());
    }
    let capacity = match arguments.capacity {
        Some(capacity) => capacity,
        None => {
            // Late answers are work, too: a server that is slower than the deadlines has a capacity.
            let patient = |caller: &Caller| Caller { deadline: None, ..caller.clone() };
            let patient: Vec<Caller> = arguments.callers.iter().map(patient).collect();
            let closed = |period, seed| offer::run(&target, &patient, Arrivals::Closed(SATURATING), seed, period);
            // The first requests are slower than those after them.
            closed(Duration::from_secs(3), seed()).await?;
            let shots = closed(period / 2, seed()).await?;
            goodput(&shots, period / 2)
        }
    };
    Line::new("capacity", capacity, "requests/s").print();
    let mut measured = Vec::new();
    for &times in &arguments.times {
        let shots = offer(Arrivals::Poisson(capacity * times), period, seed()).await?;
        measured.push((times, point(&format!("open-{times}"), &shots, &asked(true), Some(capacity), &arguments.out)?));
    }
    let best = measured.iter().map(|(_, goodput)| *goodput).fold(f64::MIN_POSITIVE, f64::max);
    if let Some((times, goodput)) = measured.iter().max_by(|one, other| one.0.total_cmp(&other.0)) {
        let line = Line::new(&format!("open-{times} goodput beside the best"), *goodput, "requests/s");
        line.ratio(goodput / best).at_least(0.9).print();
    }
    Ok(())
}

/// Answers within the deadline per second of the period.
fn goodput(shots: &[Shot], period: Duration) -> f64 {
    shots.iter().filter(|shot| shot.code == Code::Ok).count() as f64 / period.as_secs_f64()
}

/// Prints the figures of a point, writes its report, and returns its goodput.
fn point(name: &str, shots: &[Shot], asked: &Options<'_>, capacity: Option<f64>, out: &Path) -> anyhow::Result<f64> {
    std::fs::write(out.join(format!("{name}.json")), serde_json::to_vec_pretty(&ghz::report(name, shots, asked))?)?;
    let period = asked.period;
    let reached = goodput(shots, period);
    let line = Line::new(&format!("{name} goodput"), reached, "requests/s");
    match capacity {
        Some(capacity) => line.ratio(reached / capacity).print(),
        None => line.print(),
    }
    let latencies = |code: Code, what: &str| {
        let mut of: Vec<f64> =
            shots.iter().filter(|shot| shot.code == code).map(|shot| shot.latency().as_secs_f64() * 1e3).collect();
        of.sort_by(f64::total_cmp);
        let share = of.len() as f64 / shots.len().max(1) as f64;
        Line::new(&format!("{name} {what}"), of.len() as f64, "calls").ratio(share).print();
        for percent in [50, 99] {
            if !of.is_empty() {
                // The nearest rank, as in the report.
                let value = of[(of.len() * percent).div_ceil(100) - 1];
                Line::new(&format!("{name} {what}, p{percent}"), value, "ms").print();
            }
        }
    };
    latencies(Code::Ok, "answered");
    latencies(Code::ResourceExhausted, "refused");
    latencies(Code::DeadlineExceeded, "deadline exceeded");
    let known = [Code::Ok, Code::ResourceExhausted, Code::DeadlineExceeded];
    let other = shots.iter().filter(|shot| !known.contains(&shot.code)).count();
    Line::new(&format!("{name} other errors"), other as f64, "calls").print();
    let mut callers: Vec<&str> = shots.iter().map(|shot| shot.caller.as_ref()).collect();
    callers.sort_unstable();
    callers.dedup();
    for caller in callers.iter().filter(|_| callers.len() > 1) {
        let own: Vec<Shot> = shots.iter().filter(|shot| shot.caller.as_ref() == *caller).cloned().collect();
        let offered = own.len() as f64 / period.as_secs_f64();
        let reached = goodput(&own, period);
        Line::new(&format!("{name} goodput of {caller}"), reached, "requests/s").ratio(reached / offered).print();
    }
    Ok(reached)
}
