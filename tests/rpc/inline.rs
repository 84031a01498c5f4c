//! Errors and budgets of the utility that a ranking measures: refused before any work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::{Running, Scripted, fields, wire};
use protocol::v1;
use protocol::v1::utility_service_client::UtilityServiceClient;
use tonic::Code;

async fn server(scripted: Scripted) -> Running {
    let (engine, observed, queue_length) = scripted.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

fn asked(texts: &[&str], utility: v1::InlineUtility) -> v1::RerankRequest {
    let method = v1::Method::QueryGeneration.into();
    v1::RerankRequest { method, utility: Some(utility), ..wire("aaaa", texts) }
}

fn utility() -> v1::InlineUtility {
    v1::InlineUtility { references: vec!["aaaa".into()], samples: 1, max_tokens: 1, seed: 1 }
}

#[tokio::test]
async fn faults_are_refused_by_field_before_any_work() {
    let server = server(Scripted::default()).await;
    type Change = fn(&mut v1::InlineUtility);
    let cases: [(&str, Change); 5] = [
        ("utility.references[1]", |utility| utility.references.push(" ".into())),
        ("utility.references[0]", |utility| utility.references[0] = "x".repeat(1_001)),
        ("utility.references", |utility| utility.references = vec!["x".into(); 65]),
        ("utility.samples", |utility| utility.samples = 101),
        ("utility.max_tokens", |utility| utility.max_tokens = 513),
    ];
    for (field, change) in cases {
        let mut bad = utility();
        change(&mut bad);
        let status = server.client().await.rerank(asked(&["aaaa bbbb", "cccc"], bad)).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    assert_eq!(server.observed.tokens.load(Ordering::SeqCst), 0);
    server.stop().await;
}

/// The returned passages may be longer than the first ones, so the longest count.
#[tokio::test]
async fn the_longest_passages_that_may_be_returned_count_against_the_budget() {
    let long = ["aaaa ".repeat(80), "aaaa b".repeat(80)];
    let texts = ["cccc", "dddd", &long[0], &long[1]];
    let asked = |token_budget| v1::RerankRequest { top_n: 2, token_budget, ..asked(&texts, utility()) };
    let first = server(Scripted::default()).await;
    let answer = first.client().await.rerank(asked(0)).await.unwrap().into_inner();
    let returned: Vec<u32> = answer.results.iter().map(|result| result.original_index).collect();
    assert!(returned.contains(&2) && returned.contains(&3), "{returned:?}");
    let taken = answer.usage.unwrap().tokens;
    first.stop().await;
    let second = server(Scripted::default()).await;
    let status = second.client().await.rerank(asked(taken - 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(second.observed.tokens.load(Ordering::SeqCst), 0, "refused before any work");
    second.stop().await;
}

/// The model is loaded before the first sample.
#[tokio::test]
async fn an_entailment_model_that_cannot_be_loaded_costs_no_sample() {
    use prefix_scheduler::model::ModelError;
    use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let loader = Box::new(|_: &mut dyn FnMut(&mut dyn prefix_scheduler::model::entailment::Entailment)| {
        Err(ModelError::Unusable { path: "nli.onnx".into(), problem: "damaged".into() })
    });
    let judge = Judge::start(EntailmentOptions { cache_entries: 10 }, ConfiguredModel::default(), loader).unwrap();
    let engine = common::with_judge(&engine, judge);
    let server = common::serve(engine.clone(), observed, queue_length).await;
    for _ in 0..2 {
        let mut utilities = UtilityServiceClient::new(server.channel().await);
        let passages = wire("q", &["aaaa", "bbbb"]).passages;
        let request = v1::MeasureUtilityRequest { question: "which".into(), passages, ..Default::default() };
        let request = v1::MeasureUtilityRequest { references: vec!["aaaa".into()], ..request };
        let refused = utilities.measure_utility(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    }
    let inline = asked(&["aaaa", "bbbb"], utility());
    assert_eq!(server.client().await.rerank(inline).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(common::generator(&engine).scheduler.stats().tokens.load(Ordering::SeqCst), 0);
    server.stop().await;
}
