//! The measurement of live traffic: latency of the same requests with and without it, and none under load.
//!
//! Requests arrive so rarely that the server measures between them, and often enough that some arrive during a
//! measurement. Servers with and without it take turns. Requests of a round have the same texts and arrival times, so their
//! latencies are paired.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use super::caller::Caller;
use super::offer::{self, Arrivals, Shot, Target};
use super::report::Line;
use super::server::Server;
use tonic::Code;

/// Turns of each server.
const ROUNDS: u64 = 3;

/// Arrivals per second: a mean of three seconds between requests.
const RATE: f64 = 1.0 / 3.0;

/// Samples of the metrics page.
struct Page(String);

impl Page {
    async fn read(port: u16) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self(client.get(format!("http://127.0.0.1:{port}/metrics")).send().await?.text().await?))
    }

    fn value(&self, series: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
    }

    fn measured(&self) -> f64 {
        self.value("rerankd_live_entropy_reduction_nats_count")
    }

    fn interrupted(&self) -> f64 {
        self.value("rerankd_live_skipped_total{reason=\"interrupted\"}")
    }
}

/// Milliseconds of the requests, in the order of their arrival.
fn latencies(mut shots: Vec<Shot>) -> anyhow::Result<Vec<f64>> {
    shots.sort_by_key(|shot| shot.date);
    let failed = shots.iter().find(|shot| shot.code != Code::Ok);
    anyhow::ensure!(failed.is_none(), "a request failed: {failed:?}");
    Ok(shots.iter().map(|shot| shot.latency().as_secs_f64() * 1e3).collect())
}

/// Offers both kinds of traffic to servers with and without the measurement. A round takes `period` per server.
pub async fn measure(
    program: Option<&Path>,
    settings: &[String],
    callers: &[Caller],
    seed: u64,
    period: Duration,
) -> anyhow::Result<()> {
    let patient: Vec<Caller> = callers.iter().map(|caller| Caller { deadline: None, ..caller.clone() }).collect();
    let (mut pairs, mut counts) = (Vec::new(), [0.0; 3]);
    for round in 0..ROUNDS {
        let mut of_round = Vec::new();
        for ratio in [0, 1] {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let own = [format!("metrics.listen=127.0.0.1:{port}"), format!("live.sample_ratio={ratio}")];
            let server = Server::start(program, &[settings, &own].concat()).await?;
            let target = Target::Grpc(server.address.clone());
            let offer = |arrivals, seed, period| offer::run(&target, &patient, arrivals, seed, period);
            // The first requests are slower than those after them.
            offer(Arrivals::Closed(1), !seed, Duration::from_secs(2)).await?;
            of_round.push(latencies(offer(Arrivals::Poisson(RATE), seed.wrapping_add(round), period).await?)?);
            if ratio == 1 {
                let before = Page::read(port).await?;
                latencies(offer(Arrivals::Closed(4), seed, period / 4).await?)?;
                let after = Page::read(port).await?;
                counts[0] += before.measured();
                counts[1] += before.interrupted();
                counts[2] += after.measured() - before.measured();
            }
        }
        let (off, on) = (&of_round[0], &of_round[1]);
        anyhow::ensure!(off.len() == on.len(), "{} and {} requests", off.len(), on.len());
        pairs.extend(off.iter().copied().zip(on.iter().copied()));
    }
    let number = pairs.len() as f64;
    let mean = |value: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(value).sum::<f64>() / number;
    let (off, added) = (mean(&|pair| pair.0), mean(&|pair| pair.1 - pair.0));
    let variance = mean(&|pair| (pair.1 - pair.0 - added).powi(2)) * number / (number - 1.0);
    Line::new("live off, mean latency", off, "ms").print();
    Line::new("live on, added latency", added, "ms").spread((variance / number).sqrt()).ratio(added / off).print();
    for percent in [50, 99] {
        let quantile = |value: &dyn Fn(&(f64, f64)) -> f64| {
            let mut sorted: Vec<f64> = pairs.iter().map(value).collect();
            sorted.sort_by(f64::total_cmp);
            sorted[(sorted.len() * percent).div_ceil(100) - 1]
        };
        let (off, on) = (quantile(&|pair| pair.0), quantile(&|pair| pair.1));
        Line::new(&format!("live on, p{percent}"), on, "ms").ratio(on / off).print();
    }
    for (name, count) in
        ["measured between requests", "interrupted by requests", "measured under load"].iter().zip(counts)
    {
        Line::new(&format!("live on, {name}"), count, "rankings").print();
    }
    anyhow::ensure!(counts[2] == 0.0, "a server under load measured rankings");
    Ok(())
}
