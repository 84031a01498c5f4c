//! Hours of mixed calls on one server, whose memory, descriptors and threads must stay flat.
//!
//! `cargo bench --bench soak -- [--seconds 1800] [--clients 4]` starts a server with everything on (HTTP, metrics,
//! cached passages in memory and on disk, entailment) and calls it in closed loops: all services, streams, faulty
//! requests, passed deadlines, callers that leave. Every client opens a new connection after some calls. Every 15 s the
//! server's resident memory, descriptors and threads are printed. The last third of the time is compared with the third
//! before it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark that fails says where; its numbers are small"
)]

mod calls;
#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;
#[path = "../load/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use report::Line;
use server::Server;

/// Calls a server for a long time and reports its resources.
#[derive(Parser)]
struct Arguments {
    /// Seconds of the load.
    #[arg(long, default_value_t = 1_800)]
    seconds: u64,
    /// Concurrent clients.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Setting of the server, `section.key=value`.
    #[arg(long = "set")]
    settings: Vec<String>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Resources of a process.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Resident memory in MB.
    resident: f64,
    descriptors: f64,
    threads: f64,
}

impl Held {
    fn by(process: u32) -> anyhow::Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        Ok(Self {
            resident: number("VmRSS:").unwrap_or(f64::NAN) / 1e3,
            descriptors: std::fs::read_dir(format!("/proc/{process}/fd"))?.count() as f64,
            threads: number("Threads:").unwrap_or(f64::NAN),
        })
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Number of calls by kind and outcome.
type Outcomes = Arc<Mutex<BTreeMap<(&'static str, String), u64>>>;

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let (http, metrics) = (free_port()?, free_port()?);
    let mut settings = vec![
        format!("http.listen=127.0.0.1:{http}"),
        format!("metrics.listen=127.0.0.1:{metrics}"),
        "passage_cache.memory_bytes=67108864".to_owned(),
        format!("passage_cache.disk={}", scratch.path().join("states").display()),
        "passage_cache.disk_bytes=134217728".to_owned(),
        "log.filter=off".to_owned(),
    ];
    settings.extend(arguments.settings.iter().cloned());
    let server = Server::start(None, &settings).await?;
    let start = Held::by(server.id())?;
    Line::new("resident memory at the start", start.resident, "MB").print();
    let outcomes = Outcomes::default();
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..arguments.clients {
        let target = calls::Target { grpc: server.address.clone(), http, metrics };
        clients.spawn(calls::run(target, client, end, Arc::clone(&outcomes)));
    }
    let mut seen = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(15)).await;
        let held = Held::by(server.id())?;
        let calls: u64 = outcomes.lock().unwrap().values().sum();
        eprintln!(
            "{} s left, {calls} calls: {:.0} MB, {} descriptors, {} threads",
            end.saturating_duration_since(Instant::now()).as_secs(),
            held.resident,
            held.descriptors,
            held.threads
        );
        seen.push(held);
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    // By then the server has noticed closed connections.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let last = Held::by(server.id())?;
    for ((kind, outcome), calls) in outcomes.lock().unwrap().iter() {
        Line::new(&format!("calls, {kind}: {outcome}"), *calls as f64, "calls").print();
    }
    let third = seen.len() / 3;
    let (before, after) = (&seen[third..2 * third], &seen[2 * third..]);
    for (name, unit, of) in [
        ("resident memory", "MB", (|held| held.resident) as fn(&Held) -> f64),
        ("descriptors", "open", |held| held.descriptors),
        ("threads", "running", |held| held.threads),
    ] {
        let most = |held: &[Held]| held.iter().map(of).fold(0.0, f64::max);
        let line = Line::new(&format!("{name}, most in the last third beside the third before"), most(after), unit);
        let line = line.ratio(most(after) / most(before));
        // Threads of blocking work come and go.
        if name == "threads" { line } else { line.at_most(1.03) }.print();
        Line::new(&format!("{name} at the end beside the start"), of(&last), unit)
            .ratio(of(&last) / of(&start))
            .print();
    }
    Ok(())
}
