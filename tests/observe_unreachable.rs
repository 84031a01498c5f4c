//! An unreachable collector: requests do not wait, and dropped spans are counted.
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
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

mod common;
#[path = "common/page.rs"]
mod page;

use std::time::{Duration, Instant};

use common::{Scripted, wire};
use rerankd::config::Config;
use rerankd::telemetry;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_wait_for_a_collector_that_is_not_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = listener.local_addr().unwrap();
    drop(listener);
    let flags = [("traces.endpoint".to_owned(), format!("http://{closed}"))];
    let config = Config::from_parts(None, &[], &flags).unwrap();
    let (subscriber, export) = telemetry::subscriber(&config, false, std::io::sink).unwrap();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let observable = page::observable(engine, observed, queue_length).await;
    let mut client = observable.server.client().await;
    let started = Instant::now();
    for _ in 0..20 {
        client.rerank(wire("who?", &["alpha beta", "gamma delta"])).await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let dropped = |page: &page::Page| page.sum("rerankd_spans_dropped_total", &[]) >= 20.0;
    observable.scrape_until("the spans were dropped", dropped).await;
    let stopping = Instant::now();
    export.unwrap().flush().await;
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
}
