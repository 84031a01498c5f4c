//! Calls per second of EvaluateRanking relative to the health check, the cheapest call, on the same connections.

use std::time::{Duration, Instant};

use protocol::v1;
use protocol::v1::metrics_service_client::MetricsServiceClient;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rerankd::app::Control;
use rerankd::config::Config;
use server::transport::Access;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::report::{self, Line};

/// Concurrent callers, each on its own connection.
const CALLERS: usize = 4;
const DOCUMENTS: u32 = 100;

fn request(seed: u64) -> v1::EvaluateRankingRequest {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let documents = (0..DOCUMENTS).map(|index| v1::RankedDocument {
        id: format!("document-{index}"),
        score: Some(random.random()),
        label: None,
    });
    let documents = documents.collect();
    let judgements = (0..DOCUMENTS).step_by(4).map(|index| (format!("document-{index}"), f64::from(index % 3)));
    v1::EvaluateRankingRequest {
        queries: vec![v1::RankedQuery {
            id: "q".into(),
            documents,
            judgements: judgements.collect(),
            ..Default::default()
        }],
        metrics: ["nDCG@10", "AP", "RR", "P@10", "R@100"].map(str::to_owned).to_vec(),
        ..v1::EvaluateRankingRequest::default()
    }
}

/// Calls per second, and the median and 99th percentile of their latency in milliseconds.
async fn load<W: Future<Output = anyhow::Result<()>> + Send>(
    address: &str,
    seconds: usize,
    call: impl Fn(Channel, u64) -> W + Clone + Send + Sync + 'static,
) -> anyhow::Result<(f64, f64, f64)> {
    let end = Instant::now() + Duration::from_secs(seconds as u64);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS as u64 {
        let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
        let call = call.clone();
        callers.spawn(async move {
            let mut taken = Vec::new();
            while Instant::now() < end {
                let started = Instant::now();
                call(channel.clone(), caller).await?;
                taken.push(started.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(taken)
        });
    }
    let mut taken = Vec::new();
    while let Some(caller) = callers.join_next().await {
        taken.extend(caller??);
    }
    taken.sort_by(f64::total_cmp);
    Ok((taken.len() as f64 / seconds as f64, taken[taken.len() / 2], taken[taken.len() * 99 / 100]))
}

pub async fn run(config: &Config, seconds: usize) -> anyhow::Result<()> {
    let engine = rerankd::app::engine(config).await?;
    report::about(&engine.generator()?.info);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let serving = config.clone();
    let server = tokio::spawn(async move {
        rerankd::app::serve(&serving, engine, Access::default(), listener, Control::default()).await
    });
    protocol::client::wait_until_serving(&address.as_str().into(), Duration::from_mins(1)).await?;
    let bare = load(&address, seconds, |channel, _| async move {
        HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
        Ok(())
    });
    let bare = bare.await?;
    let ranked = load(&address, seconds, |channel, caller| async move {
        MetricsServiceClient::new(channel).evaluate_ranking(request(caller)).await?;
        Ok(())
    });
    let ranked = ranked.await?;
    let what = format!("EvaluateRanking, lists of {DOCUMENTS}, five metrics, {CALLERS} callers");
    Line::new(&what, ranked.0, "requests/s").ratio(ranked.0 / bare.0).print();
    Line::new(&format!("{what}: median"), ranked.1, "ms").ratio(ranked.1 / bare.1).print();
    Line::new(&format!("{what}: 99th percentile"), ranked.2, "ms").ratio(ranked.2 / bare.2).print();
    Line::new("health check, the same callers", bare.0, "requests/s").print();
    server.abort();
    Ok(())
}
