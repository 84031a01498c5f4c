//! METHOD_SEMANTIC_UTILITY over a real channel: with scripted models, and with the default ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::scripted::Observed;
use common::{LIMITS, Running, Scripted, fields, wire};
use engine::methods;
use engine::types::{EngineError, Limits, Pair};
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;
use tonic::Code;

const PASSAGES: [&str; 3] = ["aaaa bbbb", "the question is here", "zzzz zzzz zzzz"];

fn request(query: &str, passages: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: v1::Method::SemanticUtility.into(), ..wire(query, passages) }
}

/// A server with scripted models, and its count of judged pairs.
async fn scripted(pairs: usize) -> (Running, Arc<std::sync::atomic::AtomicUsize>) {
    slow(pairs, Duration::ZERO).await
}

/// `scripted` with an entailment model that takes `delay` per pair.
async fn slow(pairs: usize, delay: Duration) -> (Running, Arc<std::sync::atomic::AtomicUsize>) {
    let limits = Limits { pairs, ..LIMITS };
    let (engine, observed, queue_length) = Scripted { limits, ..Scripted::default() }.engine().await;
    let (engine, judged) = common::with_scripted_judge(&engine, delay);
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
        assert_eq!(again.usage.unwrap().pairs, 0, "the verdicts were cached");
    }
    // Another seed gives other answers.
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
    // Two answers of different texts are compared in both directions.
    let (server, judged) = scripted(1).await;
    let status = server.client().await.rerank(request("question", &PASSAGES)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(judged.load(Ordering::SeqCst), 0, "refused before the first pair");
    let small = v1::RerankRequest { token_budget: 100, ..request("question", &PASSAGES) };
    assert_eq!(server.client().await.rerank(small).await.unwrap_err().code(), Code::ResourceExhausted);
    server.stop().await;
}

/// Pairs that a request takes on a server without cached verdicts.
async fn pairs_of(request: v1::RerankRequest) -> usize {
    let (server, _) = scripted(20_000).await;
    let answer = server.client().await.rerank(request).await.unwrap().into_inner();
    server.stop().await;
    let (ranking, inline) = (answer.usage.unwrap().pairs, answer.utility.map_or(0, |utility| utility.judged_pairs));
    (ranking + inline) as usize
}

#[tokio::test]
async fn the_pairs_of_all_lists_of_a_request_count_together() {
    let of = |query: &str| pairs_of(request(query, &PASSAGES[..1]));
    let (one, other) = (of("question").await, of("other question").await);
    assert!(one > 0 && other > 0);
    let pair = |query: &str| Pair { query: query.into(), text: PASSAGES[0].into(), ..Pair::default() };
    for (allowed, refused) in [(one + other, false), (one + other - 1, true)] {
        let (server, _) = scripted(allowed).await;
        let pairs = vec![pair("question"), pair("other question")];
        let scored =
            server.engine.reranker.score_pairs(&common::call(), pairs, methods::find("semantic-utility"), "").await;
        assert_eq!(scored.as_ref().err(), refused.then_some(&EngineError::Pairs { allowed }), "{scored:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn the_pairs_of_an_inline_utility_count_with_those_of_the_ranking() {
    let measured = |method: v1::Method| v1::RerankRequest {
        method: method.into(),
        utility: Some(v1::InlineUtility { references: vec!["aaaa".into()], ..v1::InlineUtility::default() }),
        context_order: v1::ContextOrder::Given.into(),
        ..request("question", &PASSAGES)
    };
    let inline = pairs_of(measured(v1::Method::QueryGeneration)).await;
    let ranking = pairs_of(request("question", &PASSAGES)).await;
    assert!(inline > 0 && ranking > 0);
    for (allowed, code) in [(ranking + inline, Code::Ok), (ranking + inline - 1, Code::ResourceExhausted)] {
        let (server, _) = scripted(allowed).await;
        let answer = server.client().await.rerank(measured(v1::Method::SemanticUtility)).await;
        assert_eq!(answer.as_ref().map_or_else(tonic::Status::code, |_| Code::Ok), code, "{answer:?}");
        if let Err(status) = answer {
            assert!(status.message().contains(&format!("more than {allowed} entailment")), "{status}");
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn the_time_of_verdicts_is_in_the_usage_and_no_latency_budget_is_taken() {
    // A lower bound: the scripted model sleeps for every pair.
    let (server, judged) = slow(20_000, Duration::from_millis(1)).await;
    let usage = server.client().await.rerank(request("question", &PASSAGES)).await.unwrap().into_inner().usage.unwrap();
    assert!(usage.score_ms >= judged.load(Ordering::SeqCst) as f64 && usage.queue_ms > 0.0, "{usage:?}");
    let steps = server.observed.steps.load(Ordering::SeqCst);
    let hurried = v1::RerankRequest { latency_budget_ms: Some(100.0), ..request("question", &PASSAGES) };
    let status = server.client().await.rerank(hurried).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["latency_budget_ms".to_owned()]));
    assert_eq!(steps, server.observed.steps.load(Ordering::SeqCst));
    server.stop().await;
}

#[tokio::test]
async fn the_default_models_measure_every_passage() {
    let _alone = common::alone().await;
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
