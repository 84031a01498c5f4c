//! METHOD_SEMANTIC_UTILITY over a real channel: with scripted models, and with the default ones.
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

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::scripted::Observed;
use common::{LIMITS, Running, Scripted, wire};
use rerankd::engine::Limits;
use rerankd::rpc::v1;
use rerankd::rpc::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;
use tonic::Code;

const PASSAGES: [&str; 3] = ["aaaa bbbb", "the question is here", "zzzz zzzz zzzz"];

fn request(query: &str, passages: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: v1::Method::SemanticUtility.into(), ..wire(query, passages) }
}

/// A server with scripted models, and the count of pairs that were judged.
async fn scripted(pairs: usize) -> (Running, Arc<std::sync::atomic::AtomicUsize>) {
    let limits = Limits { pairs, ..LIMITS };
    let (engine, observed, queue_length) = Scripted { limits, ..Scripted::default() }.engine().await;
    let (engine, judged) = common::with_scripted_judge(&engine, Duration::ZERO);
    (common::serve(engine, observed, queue_length).await, judged)
}

#[tokio::test]
async fn every_passage_has_a_utility_and_equal_requests_have_equal_answers() {
    let (server, judged) = scripted(20_000).await;
    for count in 1..=PASSAGES.len() {
        let before = judged.load(Ordering::SeqCst);
        let ask = || async { server.client().await.rerank(request("question", &PASSAGES[..count])).await };
        let first = ask().await.unwrap().into_inner();
        assert_eq!(first.results.len(), count);
        for result in &first.results {
            assert!(result.utility.abs() <= 1.0 && (0.26..0.74).contains(&result.score), "{result:?}");
            assert!(result.standard_error.is_some_and(|error| error.is_finite() && error >= 0.0), "{result:?}");
        }
        assert!(first.results.windows(2).all(|pair| pair[0].utility >= pair[1].utility));
        assert!(first.none_helps.is_some() && first.warnings.is_empty());
        let usage = first.usage.unwrap();
        assert_eq!(usage.pairs as usize, judged.load(Ordering::SeqCst) - before);
        assert!(usage.pairs > 0 && usage.tokens > 0 && usage.tokens < usage.naive_tokens, "{usage:?}");
        let again = ask().await.unwrap().into_inner();
        assert_eq!(again.results, first.results);
        assert_eq!(again.usage.unwrap().pairs, 0, "the verdicts were kept");
    }
    // Other random numbers, other answers.
    let seeded = |seed| {
        let moi = Some(v1::MoiOptions { seed, ..v1::MoiOptions::default() });
        v1::RerankRequest { moi, ..request("question", &PASSAGES) }
    };
    let mut client = server.client().await;
    let (zero, one) = (client.rerank(seeded(0)).await.unwrap(), client.rerank(seeded(1)).await.unwrap());
    assert_ne!(zero.into_inner().results, one.into_inner().results);
    server.stop().await;
}

#[tokio::test]
async fn the_answers_are_one_round_and_the_last_event_is_the_answer() {
    let (server, _) = scripted(20_000).await;
    let watched = v1::WatchRerankRequest { request: Some(request("question", &PASSAGES)) };
    let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event.unwrap().event.unwrap());
    }
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Planned(_))).count(), 1);
    let Some(Event::Final(last)) = events.last() else { panic!("the last event is not the answer") };
    let unary = server.client().await.rerank(request("question", &PASSAGES)).await.unwrap().into_inner();
    assert_eq!(last.results, unary.results);
    server.stop().await;
}

#[tokio::test]
async fn without_an_entailment_model_or_pairs_it_is_refused() {
    let server = Scripted::default().serve().await;
    let status = server.client().await.rerank(request("question", &PASSAGES)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("entailment.model"), "{status}");
    assert_eq!(server.observed.steps.load(Ordering::SeqCst), 0, "refused before any work");
    server.stop().await;
    let (server, judged) = scripted(3).await;
    let status = server.client().await.rerank(request("question", &PASSAGES)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(judged.load(Ordering::SeqCst) <= 3);
    let moi = Some(v1::MoiOptions { token_budget: 100, ..v1::MoiOptions::default() });
    let small = v1::RerankRequest { moi, ..request("question", &PASSAGES) };
    assert_eq!(server.client().await.rerank(small).await.unwrap_err().code(), Code::ResourceExhausted);
    server.stop().await;
}

#[tokio::test]
async fn the_default_models_measure_every_passage() {
    let engine = common::with_judge(&common::real_engine().await, common::real_judge(0));
    let server = common::serve(engine, Arc::new(Observed::default()), 8).await;
    let texts = [
        "Rye flour absorbs more water than wheat, and a long rest keeps the crust from tearing.",
        "The looms of Harrowgate were driven by water from the River Senn, led over a weir above the town.",
        "The station of Harrowgate closed in 1964 and houses a museum of signal lamps.",
    ];
    let asked = request("Which river drove the looms of Harrowgate?", &texts);
    let answer = server.client().await.rerank(asked).await.unwrap().into_inner();
    for result in &answer.results {
        println!("{} {:.3} +- {:.3}", result.original_index, result.utility, result.standard_error.unwrap());
    }
    assert_eq!(answer.results.len(), texts.len());
    for result in &answer.results {
        assert!(result.utility.is_finite() && result.utility.abs() <= 1.0, "{result:?}");
        assert!(result.standard_error.is_some_and(|error| error.is_finite() && error >= 0.0), "{result:?}");
    }
    let usage = answer.usage.unwrap();
    assert!(usage.pairs > 0 && usage.tokens > 0, "{usage:?}");
    server.stop().await;
}
