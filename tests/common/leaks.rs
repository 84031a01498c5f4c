//! Resources that calls and connections could leave behind in a server.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{self, Running};

/// Slots, plans that wait or are active, tokens of the ledger, and cells that calls hold in a server.
fn parts(server: &Running) -> [usize; 5] {
    let generator = common::generator(&server.engine);
    let stats = generator.scheduler.stats();
    [
        server.admission.in_flight(),
        stats.waiting.load(Ordering::SeqCst),
        stats.active.load(Ordering::SeqCst),
        generator.scheduler.ledger().total(),
        server.observed.cells.load(Ordering::SeqCst),
    ]
}

/// The sum of these resources.
pub fn left(server: &Running) -> usize {
    parts(server).iter().sum()
}

/// Waits until nothing of any call is left in the server.
pub async fn nothing_is_left(server: &Running, after: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while left(server) > 0 {
        let [slots, waiting, active, tokens, cells] = parts(server);
        let what = format!("{slots} slots, {waiting} waiting, {active} active, {tokens} tokens, {cells} cells");
        assert!(Instant::now() < end, "{after} left {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Open file descriptors of a process; 0 if unknown.
pub fn descriptors(process: &str) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// Waits until this process has no more open file descriptors than `before`.
pub async fn no_descriptor_is_left(before: usize) {
    common::wait_for("file descriptors stay open", || descriptors("self") <= before).await;
}
