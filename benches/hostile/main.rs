//! A server under hostile requests: latency of the health check, memory of the process, and time to shut down.
//!
//! `cargo bench --bench hostile -- [--seconds 20]`: 64 concurrent callers send the hostile requests in turn, and half
//! of the requests are cancelled early. The health check runs every 20 ms on a separate connection. Then the server
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
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use protocol::v1;
use report::Line;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const CALLERS: usize = 64;
const DRAIN: u64 = 5;

type Outcomes = Arc<Mutex<BTreeMap<String, usize>>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value =
        |flag: &str| arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1));
    let seconds: u64 = value("--seconds").map_or(Ok(20), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match value("--call") {
        Some(address) => runtime.block_on(call(address, Duration::from_secs(seconds))),
        None => runtime.block_on(run(Duration::from_secs(seconds))),
    }
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
        .args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--address-file"])
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
    // A separate process with a low priority stands for callers on other machines.
    let mut callers = Command::new("nice")
        .args(["-n", "10"])
        .arg(std::env::current_exe()?)
        .args(["--call", &address, "--seconds", &period.as_secs().to_string()])
        .spawn()?;
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
    let code = server.0.wait()?;
    let stopped = stopping.elapsed().as_secs_f64();
    callers.wait()?;
    Line::new("health checks", asked as f64, "calls").print();
    Line::new("slowest health check", worst.as_secs_f64() * 1e3, "ms")
        .ratio(worst.as_secs_f64() / 0.1)
        .at_most(1.0)
        .print();
    Line::new("peak resident memory", peak, "MB").ratio(peak / before).print();
    Line::new("end after SIGTERM", stopped, "s").ratio(stopped / DRAIN as f64).at_most(1.0).print();
    Line::new("exit code", f64::from(code.code().unwrap_or(-1)), "").print();
    Ok(())
}

/// The callers' process: calls until the server is gone, and prints the outcomes of calls in the first `period`.
async fn call(address: &str, period: Duration) -> anyhow::Result<()> {
    let (outcomes, end) = (Outcomes::default(), Instant::now() + period);
    let mut channels = Vec::new();
    for _ in 0..CALLERS {
        channels.push(Channel::from_shared(address.to_owned())?.connect().await?);
    }
    let requests = Arc::new(hostile());
    let mut callers = Vec::new();
    for (caller, channel) in channels.into_iter().enumerate() {
        let (outcomes, requests) = (Arc::clone(&outcomes), Arc::clone(&requests));
        callers.push(tokio::spawn(async move {
            for round in caller.. {
                // Every second request is cancelled after 400 ms. The others wait up to 8 s.
                let patience = Duration::from_millis(if round % 2 == 0 { 400 } else { 8_000 });
                let (name, path, message) = &requests[round % requests.len()];
                let outcome = match tokio::time::timeout(patience, send(&channel, path, message)).await {
                    Ok(Ok(())) => "answered".to_owned(),
                    Ok(Err(status)) => format!("{:?}", status.code()),
                    Err(_) => "left".to_owned(),
                };
                if outcome.starts_with("Unavailable") {
                    break;
                }
                if Instant::now() < end {
                    *outcomes.lock().unwrap().entry(format!("{name}: {outcome}")).or_default() += 1;
                }
            }
        }));
    }
    for caller in callers {
        let _ = tokio::time::timeout(period + Duration::from_secs(20), caller).await;
    }
    for (what, count) in outcomes.lock().unwrap().iter() {
        Line::new(what, *count as f64, "calls").print();
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

/// Messages as bytes, so that a caller costs nothing but the copy. Answers are not decoded.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        source.advance(source.remaining());
        Ok(Some(()))
    }
}

/// Sends a message and reads the answer to its end.
async fn send(channel: &Channel, path: &'static str, message: &Bytes) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = tonic::Request::new(message.clone());
    let mut answers = client.server_streaming(request, PathAndQuery::from_static(path), Raw).await?.into_inner();
    while answers.message().await?.is_some() {}
    Ok(())
}

/// Requests that are expensive to compute or to convert, and messages that are small on the wire and large in memory.
fn hostile() -> Vec<(&'static str, &'static str, Bytes)> {
    const RERANK: &str = "/rerankd.v1.RerankService/Rerank";
    const RANKING: &str = "/rerankd.v1.MetricsService/EvaluateRanking";
    let fit = v1::MoiOptions { depth: 100, budget_policy: v1::BudgetPolicy::Fit.into(), ..v1::MoiOptions::default() };
    let order = |shift: u32| v1::ScoredOrder {
        passages: (0..200).map(|p| (p * 7 + shift) % 200).collect(),
        score: f64::from(shift * 31 % 97),
    };
    let orders = v1::FitMoiRequest { passages: 200, orders: (0..5_000).map(order).collect(), ..Default::default() };
    let latin = v1::MoiOptions { design: v1::Design::Latin.into(), orders: 1_024, ..v1::MoiOptions::default() };
    let latin = v1::WatchRerankRequest { request: Some(rerank(12, latin)) };
    let adaptive = v1::MoiOptions {
        design: v1::Design::Adaptive.into(),
        rounds: 64,
        settle_probability: Some(0.999_999),
        ..v1::MoiOptions::default()
    };
    let documents = vec![v1::RankedDocument { id: "d".into(), ..Default::default() }];
    let query = |number: usize| v1::RankedQuery {
        id: number.to_string(),
        documents: documents.clone(),
        ..v1::RankedQuery::default()
    };
    let values = v1::EvaluateRankingRequest {
        queries: (0..100_000).map(query).collect(),
        metrics: (1..=256).map(|cut| format!("P@{cut}")).collect(),
        resampling: Some(v1::Resampling { resamples: Some(0), ..v1::Resampling::default() }),
        ..v1::EvaluateRankingRequest::default()
    };
    let empty = v1::EvaluateRankingRequest {
        queries: vec![v1::RankedQuery::default(); 2_000_000],
        metrics: vec!["P@5".into()],
        ..v1::EvaluateRankingRequest::default()
    };
    let numbers = |factor: i32, prime: i32| (0..100_000).map(|v: i32| f64::from(v * factor % prime)).collect();
    let kinds = v1::CorrelateRequest {
        target: numbers(13, 997),
        series: vec![v1::Series { name: "s".into(), values: numbers(7, 1_009) }],
        kinds: vec![v1::CorrelationKind::KendallB.into(); 64],
        ..v1::CorrelateRequest::default()
    };
    let texts = (0..1_000).map(|number| format!("answer {number}")).collect();
    let clusters = v1::ClusterRequest { texts, ..v1::ClusterRequest::default() };
    vec![
        ("(m) fit to the budget, 100 passages", RERANK, rerank(100, fit).encode_to_vec().into()),
        (
            "(m) FitMoi of 200 passages, 5,000 orders",
            "/rerankd.v1.MetricsService/FitMoi",
            orders.encode_to_vec().into(),
        ),
        (
            "(n) watched Latin design of 1,024 orders",
            "/rerankd.v1.RerankService/WatchRerank",
            latin.encode_to_vec().into(),
        ),
        ("(o) 100 passages", RERANK, rerank(100, v1::MoiOptions::default()).encode_to_vec().into()),
        ("(p) adaptive, 64 rounds", RERANK, rerank(40, adaptive).encode_to_vec().into()),
        ("(q) 100,000 queries by 256 metrics", RANKING, values.encode_to_vec().into()),
        ("(q) two million empty queries", RANKING, empty.encode_to_vec().into()),
        ("(q) a correlation asked for 64 times", "/rerankd.v1.MetricsService/Correlate", kinds.encode_to_vec().into()),
        ("(r) clusters of 1,000 texts", "/rerankd.v1.BeliefService/Cluster", clusters.encode_to_vec().into()),
    ]
}
