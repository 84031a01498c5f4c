//! A server under hostile requests: latency of the health check, memory of the process, and time to shut down.
//!
//! `cargo bench --bench hostile -- [--seconds 20]`: 64 concurrent callers send the hostile requests in turn, and half
//! of the requests are cancelled early. The health check runs every 20 ms on a connection of its own. Then the server
//! gets SIGTERM, with a drain of five seconds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark that fails says where; its numbers are small"
)]

#[path = "../scoring/report.rs"]
#[allow(dead_code, reason = "shared with the scoring benchmark")]
mod report;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use report::Line;
use rerankd::rpc::v1;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const CALLERS: usize = 64;
const DRAIN: u64 = 5;
const MESSAGE: usize = 16 << 20;

type Outcomes = Arc<Mutex<BTreeMap<String, usize>>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.iter().position(|argument| argument == "--seconds");
    let seconds: u64 = seconds.and_then(|at| arguments.get(at + 1)).map_or(Ok(20), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(Duration::from_secs(seconds)))
}

/// Kills the server process when the benchmark ends, also after an error.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn run(period: Duration) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let address_file = scratch.path().join("address");
    let child = Command::new(env!("CARGO_BIN_EXE_rerankd"))
        .args(["serve", "--listen", "127.0.0.1:0", "--address-file"])
        .arg(&address_file)
        .args(["--set", &format!("server.drain_seconds={DRAIN}"), "--set", "position_bias.learn=false"])
        .stderr(Stdio::null())
        .spawn()?;
    let mut server = Server(child);
    while !address_file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let address = format!("http://{}", std::fs::read_to_string(&address_file)?);
    let channel = || async { anyhow::Ok(Channel::from_shared(address.clone())?.connect().await?) };
    let mut health = HealthClient::new(channel().await?);
    while health.check(HealthCheckRequest::default()).await?.into_inner().status() as i32 != 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = resident(server.0.id())?;
    let (going, outcomes) = (Arc::new(AtomicBool::new(true)), Outcomes::default());
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (channel, going, outcomes) = (channel().await?, Arc::clone(&going), Arc::clone(&outcomes));
        callers.push(tokio::spawn(async move {
            let mut round = caller;
            while going.load(Ordering::Relaxed) {
                // Every second request is cancelled after 400 ms. The others wait up to 8 s.
                let patience = Duration::from_millis(if round % 2 == 0 { 400 } else { 8_000 });
                let (name, work) = hostile(round, channel.clone());
                let outcome = match tokio::time::timeout(patience, work).await {
                    Ok(Ok(())) => "answered".to_owned(),
                    Ok(Err(status)) => format!("{:?}", status.code()),
                    Err(_) => "left".to_owned(),
                };
                *outcomes.lock().unwrap().entry(format!("{name}: {outcome}")).or_default() += 1;
                round += 1;
            }
        }));
    }
    let (mut worst, mut peak, mut asked, end) = (Duration::ZERO, before, 0_usize, Instant::now() + period);
    while Instant::now() < end {
        let started = Instant::now();
        health.check(HealthCheckRequest::default()).await?;
        worst = worst.max(started.elapsed());
        asked += 1;
        peak = peak.max(resident(server.0.id())?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let id = server.0.id().to_string();
    let stopping = Instant::now();
    Command::new("kill").args(["-TERM", &id]).status()?;
    going.store(false, Ordering::Relaxed);
    let code = server.0.wait()?;
    let stopped = stopping.elapsed().as_secs_f64();
    for (what, count) in outcomes.lock().unwrap().iter() {
        Line::new(what, *count as f64, "calls").print();
    }
    Line::new("health checks", asked as f64, "calls").print();
    Line::new("slowest health check", worst.as_secs_f64() * 1e3, "ms")
        .ratio(worst.as_secs_f64() / 0.1)
        .at_most(1.0)
        .print();
    Line::new("peak resident memory", peak, "MB").ratio(peak / before).print();
    Line::new("end after SIGTERM", stopped, "s").ratio(stopped / (DRAIN + 2) as f64).at_most(1.0).print();
    Line::new("exit code", f64::from(code.code().unwrap_or(-1)), "").print();
    for caller in callers {
        caller.abort();
    }
    Ok(())
}

fn resident(process: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm"))?;
    Ok(text.split(' ').nth(1).unwrap_or("0").parse::<f64>()? * 4096.0 / 1e6)
}

fn passages(count: usize) -> Vec<v1::Passage> {
    let text =
        |index: usize| format!("Passage {index} tells of wheel {} and weir {}.", index * 7 % 31, index * 13 % 17);
    (0..count).map(|index| v1::Passage { id: index.to_string(), text: text(index), ..v1::Passage::default() }).collect()
}

fn rerank(count: usize, moi: v1::MoiOptions) -> v1::RerankRequest {
    v1::RerankRequest { query: "which wheel?".into(), passages: passages(count), moi: Some(moi), ..Default::default() }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<(), tonic::Status>> + Send>>;

/// Requests that are expensive to compute or to convert, and messages that are small on the wire and large in memory.
fn hostile(number: usize, channel: Channel) -> (&'static str, Work) {
    use v1::belief_service_client::BeliefServiceClient;
    use v1::metrics_service_client::MetricsServiceClient;
    use v1::rerank_service_client::RerankServiceClient;
    let reranks = RerankServiceClient::new(channel.clone()).max_encoding_message_size(2 * MESSAGE);
    let numbers = MetricsServiceClient::new(channel.clone()).max_encoding_message_size(2 * MESSAGE);
    let mut beliefs = BeliefServiceClient::new(channel);
    let unary = |moi: v1::MoiOptions, count: usize| -> Work {
        let mut client = reranks.clone();
        Box::pin(async move { client.rerank(rerank(count, moi)).await.map(drop) })
    };
    match number % 9 {
        0 => {
            let fit =
                v1::MoiOptions { depth: 100, budget_policy: v1::BudgetPolicy::Fit.into(), ..v1::MoiOptions::default() };
            ("(m) fit to the budget, 100 passages", unary(fit, 100))
        }
        1 => {
            let order = |shift: u32| v1::ScoredOrder {
                passages: (0..200).map(|p| (p * 7 + shift) % 200).collect(),
                score: f64::from(shift * 31 % 97),
            };
            let request =
                v1::FitMoiRequest { passages: 200, orders: (0..5_000).map(order).collect(), ..Default::default() };
            let mut client = numbers.clone();
            (
                "(m) FitMoi of 200 passages, 5,000 orders",
                Box::pin(async move { client.fit_moi(request).await.map(drop) }),
            )
        }
        2 => {
            let latin = v1::MoiOptions { design: v1::Design::Latin.into(), orders: 1_024, ..v1::MoiOptions::default() };
            let request = v1::WatchRerankRequest { request: Some(rerank(12, latin)) };
            let mut client = reranks.clone();
            let watch = async move {
                let mut events = client.watch_rerank(request).await?.into_inner();
                while events.message().await?.is_some() {}
                Ok(())
            };
            ("(n) watched Latin design of 1,024 orders", Box::pin(watch))
        }
        3 => ("(o) 100 passages", unary(v1::MoiOptions::default(), 100)),
        4 => {
            let adaptive = v1::MoiOptions {
                design: v1::Design::Adaptive.into(),
                rounds: 64,
                settle_probability: Some(0.999_999),
                ..v1::MoiOptions::default()
            };
            ("(p) adaptive, 64 rounds", unary(adaptive, 40))
        }
        5 => {
            let documents = vec![v1::RankedDocument { id: "d".into(), ..Default::default() }];
            let query = |number: usize| v1::RankedQuery {
                id: number.to_string(),
                documents: documents.clone(),
                ..v1::RankedQuery::default()
            };
            let metrics = (1..=256).map(|cut| format!("P@{cut}")).collect();
            let request = v1::EvaluateRankingRequest {
                queries: (0..100_000).map(query).collect(),
                metrics,
                resampling: Some(v1::Resampling { resamples: Some(0), ..v1::Resampling::default() }),
                ..v1::EvaluateRankingRequest::default()
            };
            let mut client = numbers.clone();
            (
                "(q) 100,000 queries by 256 metrics",
                Box::pin(async move { client.evaluate_ranking(request).await.map(drop) }),
            )
        }
        6 => {
            let request = v1::EvaluateRankingRequest {
                queries: vec![v1::RankedQuery::default(); 4_000_000],
                metrics: vec!["P@5".into()],
                ..v1::EvaluateRankingRequest::default()
            };
            let mut client = numbers.clone();
            (
                "(q) four million empty queries",
                Box::pin(async move { client.evaluate_ranking(request).await.map(drop) }),
            )
        }
        7 => {
            let series =
                v1::Series { name: "s".into(), values: (0..100_000).map(|v| f64::from(v * 7 % 1_009)).collect() };
            let request = v1::CorrelateRequest {
                target: (0..100_000).map(|v| f64::from(v * 13 % 997)).collect(),
                series: vec![series],
                kinds: vec![v1::CorrelationKind::KendallB.into(); 64],
                ..v1::CorrelateRequest::default()
            };
            let mut client = numbers.clone();
            ("(q) a correlation asked for 64 times", Box::pin(async move { client.correlate(request).await.map(drop) }))
        }
        _ => {
            let texts = (0..1_000).map(|number| format!("answer {number}")).collect();
            let request = v1::ClusterRequest { texts, ..v1::ClusterRequest::default() };
            ("(r) clusters of 1,000 texts", Box::pin(async move { beliefs.cluster(request).await.map(drop) }))
        }
    }
}
