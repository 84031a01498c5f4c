//! Faults of a server process: killed, its model file replaced, out of descriptors, on a full disk. Needs the default generator.
#![cfg(target_os = "linux")]
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

#[path = "common/program.rs"]
mod program;
#[path = "common/serving.rs"]
mod serving;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use protocol::v1;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serving::{FULL_DISK, Serving, own_store, request, short};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};
use tonic::Code;

/// First bytes of a client: the preface and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Every server uses all cores, and some have their own limits, so one runs at a time.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

fn folder() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

/// Identifiers and utilities of an answer.
async fn answer(serving: &Serving, method: v1::Method) -> Vec<(String, u64)> {
    let answer = serving.client().await.rerank(short(method)).await.unwrap().into_inner();
    answer.results.iter().map(|result| (result.id.clone(), result.utility.to_bits())).collect()
}

async fn ends_well(mut serving: Serving) -> String {
    serving.signal(Signal::TERM);
    assert_eq!(serving.exit(Duration::from_secs(30)).await.code(), Some(0), "{}", serving.log());
    serving.log()
}

/// Files below a folder whose names contain one of these.
fn named(folder: &Path, parts: &[&str]) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(named(&path, parts));
        } else if parts.iter().any(|part| path.file_name().unwrap().to_string_lossy().contains(part)) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_starts_again_on_what_it_left() {
    let _alone = alone().await;
    let folder = folder();
    let states = folder.path().join("states");
    // The wait is unbounded, because a busy machine exceeds a bound.
    let config = format!(
        "{}[passage_cache]\ndisk = {states:?}\n[limits]\nqueue_seconds = \"unlimited\"\n",
        own_store(folder.path())
    );
    let mut serving = Serving::start_in(&folder, &config, &[], "").await;
    let expected = answer(&serving, v1::Method::QueryGeneration).await;
    for round in 0..2 {
        let answered = Arc::new(AtomicUsize::new(0));
        let mut load = tokio::task::JoinSet::new();
        for method in [v1::Method::Moi, v1::Method::QueryGeneration, v1::Method::YesNo] {
            let (mut client, answered) = (serving.client().await, Arc::clone(&answered));
            load.spawn(async move {
                loop {
                    match client.rerank(short(method)).await {
                        Ok(_) => answered.fetch_add(1, Ordering::SeqCst),
                        Err(status) => return status,
                    };
                }
            });
        }
        while answered.load(Ordering::SeqCst) < 6 * (round + 1) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        serving.signal(Signal::KILL);
        assert_eq!(serving.exit(Duration::from_secs(10)).await.code(), None, "it was killed");
        while let Some(status) = load.join_next().await {
            let status = status.unwrap();
            // The client library reports these codes for a broken connection.
            assert!(matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled), "{status:?}");
        }
        // Files of interrupted writes: a fresh one and an old one.
        let (fresh, stale) = (states.join("writing-fresh1"), states.join("writing-stale1"));
        for (path, age) in [(&fresh, 0), (&stale, 3_600)] {
            let file = std::fs::File::create(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        serving = Serving::start_in(&folder, &config, &[], "").await;
        let again = answer(&serving, v1::Method::QueryGeneration).await;
        let order = |answer: &[(String, u64)]| answer.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        assert_eq!(order(&again), order(&expected));
        assert!(!serving.log().contains("damaged"), "{}", serving.log());
        assert_eq!(named(folder.path(), &["damaged"]), Vec::<String>::new());
        assert!(fresh.exists() && !stale.exists(), "a fresh temporary file stays, an abandoned one does not");
    }
    let log = ends_well(serving).await;
    assert!(!log.contains("damaged") && !log.contains("ERROR"), "{log}");
}

/// If another file is renamed over an open file, processes that have opened it keep the old content. Overwriting in
/// place changes the weights of the running server, which maps them.
#[tokio::test]
async fn a_model_file_that_is_replaced_or_deleted_is_served_until_the_next_start() {
    let _alone = alone().await;
    let folder = folder();
    let config = rerankd::config::Config::load(None, &[]).unwrap();
    let located = config.store.locate(&config.generator.model, models::catalog::Role::Generator).unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::copy(&located.path, &model).unwrap();
    // Without a passage cache every request reads the weights.
    let text = format!(
        "{}[generator]\nmodel = {model:?}\n[passage_cache]\nmemory_bytes = \"off\"\n[position_bias]\nlearn = false\n",
        own_store(folder.path())
    );
    let serving = Serving::start_in(&folder, &text, &[], "").await;
    let expected = answer(&serving, v1::Method::Moi).await;
    let other = folder.path().join("other");
    std::fs::write(&other, b"GGUF and no more").unwrap();
    std::fs::rename(&other, &model).unwrap();
    assert_eq!(answer(&serving, v1::Method::Moi).await, expected, "replaced");
    std::fs::remove_file(&model).unwrap();
    assert_eq!(answer(&serving, v1::Method::Moi).await, expected, "deleted");
    ends_well(serving).await;

    std::fs::write(&model, b"GGUF and no more").unwrap();
    let file = folder.path().join("rerankd.toml");
    let refused =
        program::run(&["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(program::error(&refused).contains("model.gguf"), "{}", program::error(&refused));
}

/// Connections that say nothing after their preface.
async fn idle(serving: &Serving, number: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(number);
    for _ in 0..number {
        let mut socket = TcpStream::connect(&serving.address).await.unwrap();
        socket.write_all(PREFACE).await.unwrap();
        open.push(socket);
    }
    open
}

fn descriptors(serving: &Serving) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", serving.child.id())).unwrap().count()
}

/// Resident bytes of the server.
fn resident(serving: &Serving) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The server raises its limit of descriptors from 1,024 to the maximum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_cost_memory_and_nothing_else() {
    let _alone = alone().await;
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let number = 10_000.min(most.map_or(usize::MAX, |most| usize::try_from(most).unwrap()).saturating_sub(500));
    assert!(number > 300, "{most:?} descriptors are too few for this test");
    let serving = Serving::start_in(&folder(), "", &[], "ulimit -Sn 1024;").await;
    answer(&serving, v1::Method::QueryGeneration).await;
    let (before, memory) = (descriptors(&serving), resident(&serving));
    let open = idle(&serving, number).await;
    wait_until("connections are accepted", || descriptors(&serving) >= number).await;
    let each = resident(&serving).saturating_sub(memory) / number as u64;
    println!("{number} idle connections of {each} bytes each");
    assert!(each < 100_000, "{each} bytes per connection");
    answer(&serving, v1::Method::QueryGeneration).await;
    drop(open);
    wait_until("descriptors come back", || descriptors(&serving) <= before + 8).await;
    answer(&serving, v1::Method::QueryGeneration).await;
    ends_well(serving).await;
}

/// A server without free descriptors keeps its connections, and accepts new ones when others have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_descriptors_serves_on_and_recovers() {
    let _alone = alone().await;
    let serving = Serving::start_in(&folder(), "", &[], "ulimit -n 160;").await;
    let mut client = serving.client().await;
    client.rerank(short(v1::Method::QueryGeneration)).await.unwrap();
    let open = idle(&serving, 200).await;
    serving.wait_for_log("cannot accept a connection").await;
    client.rerank(short(v1::Method::QueryGeneration)).await.unwrap();
    drop(open);
    answer(&serving, v1::Method::QueryGeneration).await;
    ends_well(serving).await;
}

/// Receipts, learnt profiles and passage states cannot be written. Requests succeed, and the log reports it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_fails_no_request() {
    let _alone = alone().await;
    let folder = folder();
    let states = folder.path().join("states");
    // The wait is unbounded, because a busy machine exceeds a bound.
    let config = format!(
        "{}[passage_cache]\ndisk = {states:?}\n[limits]\nqueue_seconds = \"unlimited\"\n",
        own_store(folder.path())
    );
    let serving = Serving::start_in(&folder, &config, &[], FULL_DISK).await;
    let passages = short(v1::Method::Moi).passages;
    let mut warmed = serving.client().await.warm_passages(v1::WarmPassagesRequest { passages }).await.unwrap();
    while warmed.get_mut().message().await.unwrap().is_some() {}
    for _ in 0..3 {
        answer(&serving, v1::Method::Moi).await;
    }
    serving.wait_for_log("states of passages cannot be written").await;
    assert_eq!(serving.log().matches("states of passages cannot be written").count(), 1, "{}", serving.log());
    let log = ends_well(serving).await;
    assert!(!log.contains("panicked"), "{log}");
    let kept = named(folder.path(), &["writing-", ".tmp", ".state", "learnt"]);
    assert!(kept.iter().all(|path| path.contains("learnt")), "{kept:?}");
}

/// The step outlasts the server's wait. Destructors of llama.cpp must not free the memory that the step uses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_in_the_middle_of_a_step_ends_with_its_code() {
    let _alone = alone().await;
    let config = |_: &Path| {
        "[generator]\nthreads = 2\nbatch = 8192\ncontext_tokens = 8192\n[server]\ndrain_seconds = 1\n".to_owned()
    };
    let mut serving = Serving::start(config, &[]).await;
    let mut client = serving.client().await;
    let long = "the looms were driven by the river ".repeat(900);
    let call = tokio::spawn(async move { client.rerank(request(v1::Method::QueryGeneration, vec![long])).await });
    // The prompt is in the generator's step by then, and takes much longer than the drain and the last wait.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!call.is_finished(), "the step was over too soon to be a test: {:?}", call.await);
    serving.signal(Signal::TERM);
    let status = serving.exit(Duration::from_mins(1)).await;
    assert_eq!(status.code(), Some(75), "{status:?}\n{}", serving.log());
    assert!(call.await.unwrap().is_err());
}
