//! Cached passages over a real socket with a scripted generator: the cost of requests, and prefetching.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::{Running, Scripted, fields, wire};
use prefix_scheduler::model::Capacity;
use prefix_scheduler::warm::{DiskOptions, Options};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use tonic::Code;

const TEXTS: [&str; 3] = ["the looms of the town", "rye flour and water", "a station of signal lamps"];

fn scripted(memory_bytes: u64) -> Scripted {
    Scripted { warm: Options { memory_bytes, disk: None }, ..Scripted::default() }
}

fn request(query: &str) -> v1::RerankRequest {
    v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..wire(query, &TEXTS) }
}

fn passages(texts: &[&str]) -> v1::WarmPassagesRequest {
    v1::WarmPassagesRequest { passages: wire("", texts).passages }
}

async fn warm(
    server: &Running,
    wanted: v1::WarmPassagesRequest,
) -> Result<Vec<v1::WarmPassagesResponse>, tonic::Status> {
    let mut events = server.client().await.warm_passages(wanted).await?.into_inner();
    let mut all = Vec::new();
    while let Some(progress) = events.message().await? {
        all.push(progress);
    }
    Ok(all)
}

async fn info(server: &Running) -> Option<v1::WarmInfo> {
    let mut client = ModelServiceClient::new(server.channel().await);
    client.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner().warm
}

#[tokio::test]
async fn a_second_query_costs_its_own_tokens() {
    let (warm, cold) = (scripted(1 << 20).serve().await, scripted(0).serve().await);
    for (turn, query) in ["which river?", "rye or wheat", "where is the station"].into_iter().enumerate() {
        let restored = warm.client().await.rerank(request(query)).await.unwrap().into_inner();
        let evaluated = cold.client().await.rerank(request(query)).await.unwrap().into_inner();
        assert_eq!(restored.results, evaluated.results);
        let (ours, theirs) = (restored.usage.unwrap(), evaluated.usage.unwrap());
        assert_eq!((ours.tokens + ours.cached_tokens, theirs.cached_tokens), (theirs.tokens, 0));
        if turn > 0 {
            // A byte is a token. Each of four prompts reads the last byte of the cue, the space, and the query except
            // its last byte.
            assert_eq!(ours.tokens, 4 * (query.len() as u64 + 1));
        }
    }
    let figures = info(&warm).await.unwrap();
    assert_eq!(
        (figures.states, figures.hits, figures.misses),
        (7, 14, 7),
        "three passages, the cue after each and after none"
    );
    assert_eq!(info(&cold).await, None);
    warm.stop().await;
    cold.stop().await;
}

/// The cache is full of popular passages, so it keeps nothing of these lists. A request of several rounds keeps its own
/// passages, and its results do not change.
#[tokio::test]
async fn later_rounds_of_a_request_restore_what_earlier_ones_read() {
    let (full, cold) = (scripted(2_048).serve().await, scripted(0).serve().await);
    let popular: Vec<String> = (0..20).map(|number| format!("{} number {number}", TEXTS[number % 3])).collect();
    let popular: Vec<&str> = popular.iter().map(String::as_str).collect();
    for _ in 0..4 {
        full.client()
            .await
            .rerank(v1::RerankRequest { passages: wire("", &popular).passages, ..request("a") })
            .await
            .unwrap();
    }
    let states = info(&full).await.unwrap();
    assert!(states.bytes > states.bytes_limit * 9 / 10, "{states:?}");
    let methods = [v1::Method::Cascade, v1::Method::ListwiseBayes, v1::Method::Setwise, v1::Method::PairwiseSliding];
    for (number, method) in methods.into_iter().enumerate() {
        let texts = ["mill", "mill ", " mill", "weir", "lock"].map(|text| format!("{text}{number}"));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let asked = v1::RerankRequest { method: method.into(), ..wire("mill", &texts) };
        let before = full.observed.restored.load(Ordering::SeqCst);
        let ours = full.client().await.rerank(asked.clone()).await.unwrap().into_inner();
        let restored = full.observed.restored.load(Ordering::SeqCst) - before;
        let theirs = cold.client().await.rerank(asked).await.unwrap().into_inner();
        assert_eq!(ours.results, theirs.results, "{method:?}");
        let (ours, theirs) = (ours.usage.unwrap(), theirs.usage.unwrap());
        assert_eq!((ours.tokens + ours.cached_tokens, theirs.cached_tokens), (theirs.tokens, 0), "{method:?}");
        // A request has separate room for the passages of its later rounds.
        assert!(restored >= 2, "{method:?}: {restored}, {ours:?}");
    }
    full.stop().await;
    cold.stop().await;
}

#[tokio::test]
async fn prefetched_passages_are_not_read_again() {
    let server = scripted(1 << 20).serve().await;
    let texts: Vec<String> = (0..40).map(|number| format!("{} number {number}", TEXTS[number % 3])).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).chain(TEXTS).collect();
    let first = warm(&server, passages(&texts)).await.unwrap();
    let done: Vec<u32> = first.iter().map(|progress| progress.passages).collect();
    assert_eq!(done, [16, 32, 43, 43], "a message per group, and the result");
    let last = first.last().unwrap();
    assert_eq!((last.present, last.kept), (0, 43));
    let tokens = server.observed.tokens.load(Ordering::SeqCst);
    assert_eq!(last.tokens, tokens as u64);
    let again = warm(&server, passages(&texts)).await.unwrap();
    assert_eq!(
        again.last(),
        Some(&v1::WarmPassagesResponse { passages: 43, present: 43, kept: 0, tokens: 0, model: "scripted".into() })
    );
    assert_eq!(server.observed.tokens.load(Ordering::SeqCst), tokens);
    let usage = server.client().await.rerank(request("which river?")).await.unwrap().into_inner().usage.unwrap();
    // The cue of the prompt without a passage is not prefetched.
    assert!(usage.tokens < 4 * 13 + 30 && usage.cached_tokens > 60, "{usage:?}");
    let nothing = v1::WarmPassagesResponse { model: "scripted".into(), ..v1::WarmPassagesResponse::default() };
    assert_eq!(warm(&server, passages(&[])).await.unwrap(), vec![nothing]);
    server.stop().await;
}

#[tokio::test]
async fn prefetching_ends_if_there_is_no_room() {
    let server = scripted(2_000).serve().await;
    let texts: Vec<String> = (0..100).map(|number| format!("passage {number} of a hundred short ones")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let last = warm(&server, passages(&texts)).await.unwrap().pop().unwrap();
    assert!(last.passages < 48 && last.kept > 0 && last.kept < 16, "{last:?}");
    assert!(info(&server).await.unwrap().bytes <= 2_000);
    server.stop().await;
}

#[tokio::test]
async fn a_passage_too_long_for_the_cache_does_not_end_a_repeated_prefetch() {
    let server = scripted(1_500).serve().await;
    let long = "a passage that goes on ".repeat(20);
    let texts = [TEXTS[0], TEXTS[1], &long, TEXTS[2]];
    for turn in 0..2 {
        let last = warm(&server, passages(&texts)).await.unwrap().pop().unwrap();
        assert_eq!((last.passages, last.present, last.kept), (4, 3 * turn, 3 - 3 * turn), "turn {turn}");
    }
    server.stop().await;
}

#[tokio::test]
async fn prefetching_ends_if_the_disk_is_full_and_deletes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Some(DiskOptions { folder: scratch.path().join("warm"), bytes: 6_000 });
    let server = Scripted { warm: Options { memory_bytes: 200, disk }, ..Scripted::default() }.serve().await;
    let texts: Vec<String> = (0..100).map(|number| format!("passage {number} of a hundred short ones")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let last = warm(&server, passages(&texts)).await.unwrap().pop().unwrap();
    assert!(last.passages < 100 && last.kept > 0, "{last:?}");
    let again = warm(&server, passages(&texts[..1])).await.unwrap().pop().unwrap();
    assert_eq!((again.present, again.tokens), (1, 0), "the first one is still there");
    server.stop().await;
}

#[tokio::test]
async fn cached_states_survive_on_disk_beyond_the_bound_of_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = Some(DiskOptions { folder: scratch.path().join("warm"), bytes: 1 << 20 });
    let scripted = || Scripted { warm: Options { memory_bytes: 200, disk: disk.clone() }, ..Scripted::default() };
    let server = scripted().serve().await;
    let last = warm(&server, passages(&TEXTS)).await.unwrap().pop().unwrap();
    assert_eq!((last.passages, last.kept), (3, 3));
    let expected = server.client().await.rerank(request("which river?")).await.unwrap().into_inner();
    server.stop().await;
    let server = scripted().serve().await;
    let answer = server.client().await.rerank(request("which river?")).await.unwrap().into_inner();
    assert_eq!(answer.results, expected.results);
    let usage = answer.usage.unwrap();
    assert!(usage.cached_tokens > 0 && usage.tokens < expected.usage.unwrap().naive_tokens, "{usage:?}");
    let again = warm(&server, passages(&TEXTS)).await.unwrap().pop().unwrap();
    assert_eq!((again.present, again.tokens), (3, 0));
    assert!(info(&server).await.unwrap().read_from_disk > 0);
    server.stop().await;
}

#[tokio::test]
async fn impossible_prefetches_are_refused_by_field() {
    let server = scripted(1 << 20).serve().await;
    let refused = |wanted| async { warm(&server, wanted).await.unwrap_err() };
    let many = v1::WarmPassagesRequest { passages: vec![v1::Passage::default(); 10_001] };
    assert_eq!(fields(&refused(many).await), vec!["passages"]);
    let huge = "x".repeat(3_000_001);
    assert_eq!(fields(&refused(passages(&["a", &huge])).await), vec!["passages[1].text"]);
    server.stop().await;
    let without = scripted(0).serve().await;
    assert_eq!(warm(&without, passages(&["a"])).await.unwrap_err().code(), Code::FailedPrecondition);
    without.stop().await;
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_prefetch_and_keeps_its_passages() {
    let capacity = Capacity { cells: 4_096, sequences: 64, batch: 64 };
    let server = Scripted { delay: Duration::from_micros(300), capacity, ..scripted(1 << 20) }.serve().await;
    let texts: Vec<String> = (0..200).map(|number| format!("{number} is the number of this passage")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut events = server.client().await.warm_passages(passages(&texts)).await.unwrap().into_inner();
    let first = events.message().await.unwrap().unwrap();
    assert_eq!((first.passages, first.kept), (16, 16));
    drop(events);
    let stats = server.engine.generator().unwrap().scheduler.clone();
    while stats.stats().active.load(Ordering::SeqCst) > 0 || server.admission.in_flight() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(server.observed.tokens.load(Ordering::SeqCst) < 200 * 30);
    let repeated = warm(&server, passages(&texts[..16])).await.unwrap().pop().unwrap();
    assert_eq!((repeated.present, repeated.tokens), (16, 0));
    server.stop().await;
}
