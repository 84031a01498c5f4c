//! A stream of requests whose passages follow Zipf's law, with a bounded store and without one.

use protocol::v1::Method;

use crate::report::Line;
use crate::server::Server;
use crate::texts::{Texts, zipf};

const BYTES: u64 = 512 << 20;
const PASSAGES: usize = 2_000;

pub async fn run(model: Option<&str>, texts: &Texts, number_of_requests: usize) -> anyhow::Result<()> {
    let passages: Vec<String> = (0..PASSAGES as u64).map(|index| texts.passage(9_000_000 + index, 60)).collect();
    let (with, without) = (Server::start(model, BYTES).await?, Server::start(model, 0).await?);
    let before = with.resident()?;
    // Seconds of both, over all requests and over the second half, whose passages the store has seen.
    let (mut seconds, mut later, mut peak) = ([0.0; 2], [0.0; 2], before);
    let (mut asked, mut cached) = (0, 0);
    for (number, chosen) in zipf(number_of_requests, 10, PASSAGES).iter().enumerate() {
        let wanted: Vec<String> = chosen.iter().map(|&passage| passages[passage].clone()).collect();
        let query = texts.query(8_000_000 + number as u64, 17);
        for (place, server) in [&with, &without].into_iter().enumerate() {
            let (took, answer) = server.rerank(Method::QueryGeneration, &query, &wanted).await?;
            seconds[place] += took;
            later[place] += if number >= number_of_requests / 2 { took } else { 0.0 };
            if place == 0 {
                let usage = answer.usage.unwrap_or_default();
                cached += usage.cached_tokens;
                asked += usage.cached_tokens + usage.tokens;
            }
        }
        peak = peak.max(with.resident()?);
    }
    let requests = number_of_requests as f64;
    Line::new("stream, without the store", requests / seconds[1], "requests/s").print();
    Line::new("stream, with the store", requests / seconds[0], "requests/s")
        .ratio(seconds[1] / seconds[0])
        .at_least(2.5)
        .print();
    Line::new("stream, with the store, second half", requests / 2.0 / later[0], "requests/s")
        .ratio(later[1] / later[0])
        .print();
    Line::new("stream, tokens that were kept", cached as f64 / asked as f64, "of all tokens").print();
    let warm = with.info().await?.warm.unwrap_or_default();
    let hits = warm.hits as f64 / (warm.hits + warm.misses) as f64;
    Line::new("stream, hit rate of passages and cues", hits, "").print();
    Line::new("stream, bytes of states", warm.bytes as f64, "bytes")
        .ratio(warm.bytes as f64 / BYTES as f64)
        .at_most(1.0)
        .print();
    Line::new("stream, peak resident memory above the start", peak - before, "MB")
        .ratio((peak - before) / (BYTES as f64 / 1e6))
        .at_most(1.25)
        .print();
    Ok(())
}
