//! A read-only folder of cached passage states: the server reads it and serves. Needs the default generator.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{mounted, serving};
use mounted::Mounted;
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rustix::process::Signal;
use serving::{Serving, own_store, request};

/// A cached passage rounds differently, and most with block types ("Rounding" in docs/experiments/speed.md). A wrong state
/// differs by many nats.
const TOLERANCE: f64 = 1.5;

const TEXTS: [&str; 3] = [
    "The looms of Harrowgate were driven by water from the River Senn.",
    "Rye flour absorbs more water than wheat.",
    "The station of Harrowgate closed in 1964 and houses a museum of signal lamps.",
];

const OTHERS: [&str; 2] = ["Bees swarm in the last week of May.", "The library opens at nine."];

async fn ask(serving: &Serving, texts: &[&str]) -> v1::RerankResponse {
    let texts = texts.iter().map(ToString::to_string).collect();
    let asked = request(v1::Method::QueryGeneration, texts);
    serving.client().await.rerank(asked).await.unwrap().into_inner()
}

async fn ends_well(mut serving: Serving) -> String {
    serving.signal(Signal::TERM);
    assert_eq!(serving.exit(Duration::from_secs(30)).await.code(), Some(0), "{}", serving.log());
    serving.log()
}

/// Names and contents of the files of a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_that_cannot_be_written_are_read_and_fail_no_request() {
    let (disk, scratch) = (Mounted::of("64m"), Arc::new(tempfile::tempdir().unwrap()));
    // Permissions do not bind the root user.
    if disk.is_none() && rustix::process::geteuid().is_root() {
        eprintln!("this test needs the right to mount a file system, or another user than root, and is skipped");
        return;
    }
    let states = disk.as_ref().map_or(scratch.path(), Mounted::path).join("states");
    let writable = |writable: bool| match &disk {
        Some(disk) => disk.remount(if writable { "rw" } else { "ro" }),
        None => {
            let mode = if writable { 0o700 } else { 0o500 };
            std::fs::set_permissions(&states, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let config = format!("{}[passage_cache]\ndisk = {states:?}\n", own_store(scratch.path()));
    let serving = Serving::start_in(&scratch, &config, &[], "").await;
    let expected = ask(&serving, &TEXTS).await;
    ends_well(serving).await;
    let (damaged, mut bytes) = files(&states).pop_first().unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    std::fs::write(&damaged, bytes).unwrap();
    let before = files(&states);
    if disk.is_some() {
        // Like a mounted volume; once it is read-only, group access cannot be removed.
        std::fs::set_permissions(&states, std::fs::Permissions::from_mode(0o750)).unwrap();
    }
    writable(false);

    let serving = Serving::start_in(&scratch, &config, &[], "").await;
    for _ in 0..3 {
        let answer = ask(&serving, &TEXTS).await;
        let usage = answer.usage.unwrap();
        assert!(usage.cached_tokens > 0, "{usage:?}");
        assert_eq!(answer.results.len(), expected.results.len());
        for (result, first) in answer.results.iter().zip(&expected.results) {
            assert_eq!(result.id, first.id);
            assert!((result.utility - first.utility).abs() < TOLERANCE, "{result:?} {first:?}");
        }
        // The server tries to write the states of these passages.
        assert_eq!(ask(&serving, &OTHERS).await.results.len(), OTHERS.len());
    }
    let mut models = ModelServiceClient::connect(format!("http://{}", serving.address)).await.unwrap();
    let info = models.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner().warm.unwrap();
    assert!(info.read_from_disk > 0, "{info:?}");
    let mut lines = vec!["states of passages cannot be written", "state on disk is damaged and cannot be deleted"];
    if disk.is_some() {
        lines.push("others may read the folder of states, which is read-only");
    }
    for line in &lines {
        serving.wait_for_log(line).await;
    }
    let log = ends_well(serving).await;
    for line in &lines {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
    assert!(log.contains(states.to_str().unwrap()) && !log.contains("panicked"), "{log}");
    assert_eq!(files(&states), before);

    // Once the folder is writable, the missing states are written, and the damaged file is deleted.
    writable(true);
    let serving = Serving::start_in(&scratch, &config, &[], "").await;
    ask(&serving, &TEXTS).await;
    ask(&serving, &OTHERS).await;
    assert!(ends_well(serving).await.contains("is damaged; it is deleted"));
    let after = files(&states);
    assert!(after.len() > before.len() && before.iter().all(|(path, bytes)| *path == damaged || after[path] == *bytes));
}
