//! The cost of a refusal: a scripted generator sleeps over a long request, so the machine is free, and calls that
//! cannot be admitted are made one after another over a socket.

use std::time::{Duration, Instant};

use tonic::{Code, Request};

use super::report::Line;

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Scripted, wire};

const CALLS: usize = 2_000;

/// CPU time of this process.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Measures calls that are refused before their message is decoded, and after it.
pub async fn measure() -> anyhow::Result<()> {
    let server = Scripted { delay: Duration::from_millis(10), ..Scripted::default() }.serve().await;
    let passages = ["alpha beta gamma delta"; 6];
    server.client().await.rerank(wire("who?", &passages)).await?;
    let mut long = server.client().await;
    // About fifty thousand tokens, which take far longer than the calls that are refused.
    let text = "epsilon zeta ".repeat(200);
    let held = tokio::spawn(async move { long.rerank(wire("what is it?", &[text.as_str(); 20])).await });
    while server.admission.in_flight() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut client = server.client().await;
    let (mut taken, used, started) = (Vec::new(), cpu(), Instant::now());
    while taken.len() < CALLS && !held.is_finished() {
        let mut request = Request::new(wire("who?", &passages));
        request.set_timeout(Duration::from_secs(2));
        let sent = Instant::now();
        let status = client.rerank(request).await.err();
        let code = status.map(|status| status.code());
        anyhow::ensure!(code == Some(Code::ResourceExhausted), "not refused: {code:?}");
        taken.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    let (used, wall) = (cpu().saturating_sub(used).as_secs_f64() * 1e3, started.elapsed());
    taken.sort_by(f64::total_cmp);
    let each = used / taken.len() as f64;
    Line::new("refusals", taken.len() as f64, "calls").ratio(taken.len() as f64 / wall.as_secs_f64()).print();
    Line::new("refusal, round trip p50", taken[taken.len() / 2], "ms").print();
    Line::new("refusal, round trip p99", taken[taken.len() * 99 / 100], "ms").print();
    Line::new("refusal, CPU of client and server", each, "ms").ratio(each / 0.2).at_most(1.0).print();
    held.abort();
    server.stop().await;
    Ok(())
}
