//! Latency budgets of the default ranking over a real channel, with a scripted generator of known speed.

use std::time::Duration;

use crate::common;
use common::{Scripted, wire};
use engine::types::Role;
use protocol::v1;
use server::rpc::server::ServerOptions;
use tonic::{Code, Request};

/// `count` passages of about `bytes` bytes, one token each; the last passage has the highest retriever score.
fn list(count: usize, bytes: usize) -> v1::RerankRequest {
    let texts: Vec<String> = (0..count).map(|index| format!("mill {index} {}", "abc ".repeat(bytes / 4))).collect();
    let mut request = wire("which mill", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    for (index, passage) in request.passages.iter_mut().enumerate() {
        passage.retriever_score = Some(index as f64);
    }
    request
}

fn within(milliseconds: f64, request: v1::RerankRequest) -> v1::RerankRequest {
    v1::RerankRequest { latency_budget_ms: Some(milliseconds), ..request }
}

async fn ask(server: &common::Running, request: v1::RerankRequest) -> Result<v1::RerankResponse, tonic::Status> {
    server.client().await.rerank(request).await.map(tonic::Response::into_inner)
}

fn order(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

#[tokio::test]
async fn a_budget_too_short_for_one_passage_leaves_the_order_that_is_known_without_the_generator() {
    let server = Scripted { delay: Duration::from_micros(100), ..Scripted::default() }.serve().await;
    ask(&server, list(2, 20)).await.unwrap();
    let hurried = v1::RerankRequest { only_helpful: true, score_threshold: Some(0.9), ..within(2.0, list(5, 100)) };
    let answer = ask(&server, hurried.clone()).await.unwrap();
    assert_eq!(order(&answer), [4, 3, 2, 1, 0]);
    assert!(answer.results.iter().all(|result| result.stage() == v1::Stage::Retriever), "{:?}", answer.results);
    // Nothing was measured, so nothing is claimed.
    assert!(answer.results.iter().all(|result| (result.utility, result.score) == (0.0, 0.5)));
    assert!(answer.results.iter().all(|result| result.outranks_next.is_none()));
    assert_eq!((answer.none_helps, answer.none_relevant, answer.score_calibrated), (None, None, false));
    let fusion = answer.fusion.unwrap();
    assert_eq!((fusion.source(), fusion.weight), (v1::FusionSource::Retriever, 0.0));
    assert_eq!(answer.usage.unwrap().tokens, 0);
    let says = |begin: &str| answer.warnings.iter().any(|warning| warning.starts_with(begin));
    assert!(says("latency_budget_ms does not suffice") && says("no passage was read: "), "{:?}", answer.warnings);
    let fusion = Some(v1::Fusion { mode: v1::FusionMode::Off.into(), ..v1::Fusion::default() });
    let given = ask(&server, v1::RerankRequest { fusion, top_n: 3, ..hurried.clone() }).await.unwrap();
    assert_eq!((order(&given), given.fusion.is_some()), (vec![0, 1, 2], false));
    // A token budget is the caller's bound, so it is enforced however short the time.
    for milliseconds in [0.01, 60_000.0] {
        let counted = v1::RerankRequest { token_budget: 10, ..within(milliseconds, list(5, 100)) };
        assert_eq!(ask(&server, counted).await.unwrap_err().code(), Code::ResourceExhausted, "{milliseconds} ms");
    }
    server.stop().await;
}

#[tokio::test]
async fn requested_extras_of_a_ranking_are_not_left_out() {
    let (engine, observed, _) = Scripted { delay: Duration::from_micros(100), ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    let server = common::serve_with(engine, observed, 100, ServerOptions::default()).await;
    ask(&server, list(2, 20)).await.unwrap();
    let references = vec!["the mill".to_owned()];
    let utility = Some(v1::InlineUtility { references, ..v1::InlineUtility::default() });
    let measured = v1::RerankRequest { utility, ..list(3, 40) };
    ask(&server, measured.clone()).await.unwrap();
    assert_eq!(ask(&server, within(2.0, measured)).await.unwrap_err().code(), Code::ResourceExhausted);
    server.stop().await;
}

/// Admission counts the passages that the budget allows, not all of them.
#[tokio::test]
async fn a_request_that_is_bounded_by_its_budget_is_admitted_by_it() {
    let server = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.serve().await;
    ask(&server, list(2, 100)).await.unwrap();
    // 20 passages of 600 tokens take 12 seconds.
    let mut hurried = Request::new(within(2_000.0, list(20, 600)));
    hurried.set_timeout(Duration::from_secs(6));
    let answer = server.client().await.rerank(hurried).await.unwrap().into_inner();
    let read = answer.results.iter().filter(|result| result.stage() != v1::Stage::Retriever).count();
    assert!((1..=3).contains(&read), "{read}");
    server.stop().await;
}

/// The embedding model loads for as long as the test runs.
#[tokio::test]
async fn a_server_that_ranks_without_an_embedding_model_does_not_wait_for_its_file() {
    use prefix_scheduler::scheduler::entailment::ConfiguredModel;
    use prefix_scheduler::scheduler::reranker::PassageScorer;
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let loader = Box::new(move |_: &mut dyn FnMut(&mut dyn prefix_scheduler::model::reranker::Reranker)| {
        let _ = held.recv();
        Ok(())
    });
    let scorer = PassageScorer::start("embedding", ConfiguredModel::default(), None, loader).unwrap();
    scorer.serve_without();
    let models = engine.models().clone().with_scorer(Role::Embedding, scorer);
    let engine = engine::Engine::new(models, *engine.limits());
    let server = common::serve(engine, observed, queue_length).await;
    let answer = tokio::time::timeout(Duration::from_secs(20), ask(&server, list(3, 20))).await;
    let answer = answer.expect("it waits for the file").unwrap();
    let without = "ranked without the embedding model: it is not loaded yet";
    assert!(answer.warnings.iter().any(|one| one == without), "{:?}", answer.warnings);
    assert!(answer.results.iter().all(|result| result.stage() != v1::Stage::Retriever));
    drop(release);
    server.stop().await;
}

/// The runtime's error goes to the log, not to callers.
#[tokio::test]
async fn an_embedding_model_that_fails_tells_callers_nothing_of_its_runtime() {
    use prefix_scheduler::model::ModelError;
    use prefix_scheduler::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TextError};
    use prefix_scheduler::scheduler::entailment::ConfiguredModel;
    use prefix_scheduler::scheduler::reranker::PassageScorer;
    struct Broken;
    impl Reranker for Broken {
        fn info(&self) -> RerankerInfo {
            RerankerInfo { name: "broken".into(), ..RerankerInfo::default() }
        }
        fn query(&self, _: &str, _: bool) -> Result<Encoded, TextError> {
            Ok(Encoded::default())
        }
        fn passage(&self, _: &Encoded, _: &str, _: Shortening) -> Result<Encoded, TextError> {
            Ok(Encoded::default())
        }
        fn query_cost(&self, _: &Encoded) -> usize {
            1
        }
        fn score(&mut self, _: &Encoded, _: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
            Err(ModelError::Decode("device 0 is lost".into()))
        }
    }
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let loader = Box::new(|serve: &mut dyn FnMut(&mut dyn Reranker)| {
        serve(&mut Broken);
        Ok(())
    });
    let scorer = PassageScorer::start("embedding", ConfiguredModel::default(), None, loader).unwrap();
    let models = engine.models().clone().with_scorer(Role::Embedding, scorer);
    let server = common::serve(engine::Engine::new(models, *engine.limits()), observed, queue_length).await;
    let answer = ask(&server, list(3, 20)).await.unwrap();
    let said = "ranked without the embedding model: it failed; see the log";
    assert!(answer.warnings.iter().any(|one| one == said), "{:?}", answer.warnings);
    server.stop().await;
}

/// A server whose embedding model takes a second for 10 passages of 100 words. Its speed is known, and the generator's, too.
async fn with_slow_embedding() -> common::Running {
    let (engine, observed, _) = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.engine().await;
    let engine = common::with_slow_scorer(&engine, Role::Embedding, "slow", Duration::from_millis(100));
    let server = common::serve_with(engine, observed, 100, ServerOptions::default()).await;
    ask(&server, list(2, 20)).await.unwrap();
    let taught = v1::RerankRequest { method: v1::Method::Embedding.into(), ..list(10, 800) };
    for _ in 0..2 {
        ask(&server, taught.clone()).await.unwrap();
    }
    server
}

#[tokio::test]
async fn a_budget_that_suffices_for_no_passage_is_refused_before_the_embedding_model_reads() {
    let server = with_slow_embedding().await;
    let scorer = server.engine.models().scorer(Role::Embedding).unwrap();
    let before = scorer.scored();
    let refused = ask(&server, v1::RerankRequest { token_budget: 100, ..list(10, 800) }).await.unwrap_err();
    assert_eq!((refused.code(), scorer.scored()), (Code::ResourceExhausted, before));
    server.stop().await;
}

#[tokio::test]
async fn an_embedding_model_that_ends_within_the_budget_may_take_more_than_half_of_it() {
    let server = with_slow_embedding().await;
    // The embedding model takes a second, more than half of the budget or of the deadline. The rest is too short for
    // 800 tokens of the generator.
    let mut hurried = Request::new(within(1_600.0, list(10, 800)));
    hurried.set_timeout(Duration::from_millis(1_900));
    let answer = server.client().await.rerank(hurried).await.unwrap().into_inner();
    assert!(answer.fusion.unwrap().embedding_weight.is_some(), "{:?}", answer.warnings);
    assert!(answer.usage.unwrap().embedding_tokens > 0);
    // Time reserved for a compression belongs to the generator.
    let compression = Some(v1::Compression { ratio: Some(0.5), ..v1::Compression::default() });
    let compressed = v1::RerankRequest { compression, top_n: 1, ..within(2_500.0, list(10, 800)) };
    let answer = ask(&server, compressed).await.unwrap();
    let bounded = ["ranked without the embedding model", "the embedding model had time for"];
    assert!(answer.warnings.iter().any(|one| bounded.iter().any(|begin| one.starts_with(begin))), "{answer:?}");
    // If the model cannot read two passages within the budget, it is not started, and a warning says so.
    let answer = ask(&server, within(120.0, list(10, 800))).await.unwrap();
    assert_eq!(answer.fusion.unwrap().embedding_weight, None);
    let without = "ranked without the embedding model: it cannot end within its share of the time";
    assert!(answer.warnings.iter().any(|one| one == without), "{:?}", answer.warnings);
    server.stop().await;
}

#[tokio::test]
async fn an_embedding_model_reads_the_first_passages_if_the_budget_does_not_suffice_for_all() {
    let server = with_slow_embedding().await;
    // Three quarters of the budget allow eleven of twenty passages. The generator takes 0.8 s per passage.
    let answer = ask(&server, within(1_500.0, list(20, 800))).await.unwrap();
    let says = |words: &str| answer.warnings.iter().any(|warning| warning.contains(words));
    assert!(says("the embedding model had time for") && says("of 20 passages"), "{:?}", answer.warnings);
    assert!(answer.fusion.unwrap().embedding_weight.is_some());
    let embedded = |result: &v1::RankedPassage| result.signals.unwrap().embedding.is_some();
    let read = answer.results.iter().filter(|result| embedded(result)).count();
    assert!((2..=11).contains(&read), "{read}");
    // They come first. The others follow in first-stage order, here the last index first.
    let order = order(&answer);
    assert!(
        answer.results[..read].iter().all(embedded) && order[..read].iter().all(|index| *index >= 20 - read as u32)
    );
    assert!(order[read..].is_sorted_by(|one, next| one > next), "{order:?}");
    server.stop().await;
}
