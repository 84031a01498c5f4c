//! Each method over the real channel: a permutation comes back, equal requests have equal answers, budgets hold.

use crate::common;
use common::{Scripted, wire};
use protocol::v1;

const PASSAGES: [&str; 5] = ["zzzz yyyy", "the question is here", "wwww", "question question", "an answer, perhaps"];

fn order(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

const COMPARING: [v1::Method; 5] = [
    v1::Method::YesNo,
    v1::Method::Pairwise,
    v1::Method::PairwiseSliding,
    v1::Method::Setwise,
    v1::Method::ListwiseBayes,
];

fn sorted(order: &[u32]) -> Vec<u32> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted
}

#[tokio::test]
async fn each_method_gives_a_permutation_and_equal_requests_equal_answers() {
    let server = Scripted::default().serve().await;
    for method in COMPARING {
        for count in 1..=PASSAGES.len() {
            let request = v1::RerankRequest { method: method.into(), ..wire("question", &PASSAGES[..count]) };
            let ask = || async { server.client().await.rerank(request.clone()).await.unwrap().into_inner() };
            let (first, second) = (ask().await, ask().await);
            assert_eq!(first.results, second.results, "{method:?}");
            assert_eq!(sorted(&order(&first)), (0..u32::try_from(count).unwrap()).collect::<Vec<_>>(), "{method:?}");
            assert!(first.results.iter().all(|result| result.score > 0.0 && result.score < 1.0), "{method:?}");
            assert!(first.warnings.is_empty() && first.diagnostics.is_none(), "{method:?}");
            let outranks = method == v1::Method::Pairwise;
            for (rank, result) in first.results.iter().enumerate() {
                assert_eq!(result.outranks_next.is_some(), outranks && rank + 1 < count, "{method:?}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn utilities_descend_but_for_the_greedy_choice() {
    let server = Scripted::default().serve().await;
    for method in COMPARING.into_iter().filter(|method| *method != v1::Method::ListwiseBayes) {
        let request = v1::RerankRequest { method: method.into(), ..wire("question", &PASSAGES) };
        let answer = server.client().await.rerank(request).await.unwrap().into_inner();
        assert!(answer.results.windows(2).all(|pair| pair[0].utility >= pair[1].utility), "{method:?}");
    }
    // The script favours repeated letters, so the greedy choice begins with the best single passage.
    let first = |method: v1::Method| v1::RerankRequest { method: method.into(), ..wire("question", &PASSAGES) };
    let mut client = server.client().await;
    let single = client.rerank(first(v1::Method::QueryGeneration)).await.unwrap().into_inner();
    let greedy = client.rerank(first(v1::Method::ListwiseBayes)).await.unwrap().into_inner();
    assert_eq!(order(&single)[0], order(&greedy)[0]);
    server.stop().await;
}

#[tokio::test]
async fn the_first_round_is_refused_and_later_ones_are_left_out() {
    let server = Scripted::default().serve().await;
    let ask = |method: v1::Method, token_budget| v1::RerankRequest {
        method: method.into(),
        token_budget,
        ..wire("question", &PASSAGES)
    };
    for method in COMPARING {
        let mut client = server.client().await;
        let status = client.rerank(ask(method, 10)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{method:?}");
        let whole = client.rerank(ask(method, 0)).await.unwrap().into_inner();
        let less = whole.usage.unwrap().tokens - 1;
        match client.rerank(ask(method, less)).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                assert!(answer.usage.unwrap().tokens <= less && answer.warnings.len() == 1, "{method:?}");
                assert_eq!(sorted(&order(&answer)), vec![0, 1, 2, 3, 4]);
            }
            // These methods have one round.
            Err(status) => {
                assert!([v1::Method::YesNo, v1::Method::Pairwise].contains(&method), "{method:?}: {status}");
                assert_eq!(status.code(), tonic::Code::ResourceExhausted);
            }
        }
    }
    server.stop().await;
}

/// Mean utility and order of each method on one request: golden values of the shared registry, driver and prompts.
/// Utilities of three methods subtract the score of the query without a passage: -26.801 780 275 214, for LongLLMLingua
/// -3.512 649 668 354 per token.
#[tokio::test]
async fn golden_means_and_orders_hold() {
    const NONE: f64 = -26.801_780_275_214;
    let recorded = [
        (v1::Method::Moi, -26.558_274_053_373 - NONE, [3, 1, 4, 2, 0]),
        (v1::Method::QueryGeneration, -26.558_274_053_373 - NONE, [3, 1, 2, 4, 0]),
        (v1::Method::BayesSaliency, -6.502_997_614_329, [1, 3, 4, 2, 0]),
        (v1::Method::LongLlmLingua, -3.316_982_479_193 + 3.512_649_668_354, [1, 3, 4, 2, 0]),
        (v1::Method::Retriever, -2.0, [0, 1, 2, 3, 4]),
    ];
    let server = Scripted::default().serve().await;
    for (method, recorded, ranking) in recorded {
        let request = v1::RerankRequest { method: method.into(), ..wire("question", &PASSAGES) };
        let answer = server.client().await.rerank(request).await.unwrap().into_inner();
        let mean = answer.results.iter().map(|result| result.utility).sum::<f64>() / PASSAGES.len() as f64;
        assert!((mean - recorded).abs() < 1e-9, "{method:?}: {mean}");
        assert_eq!(order(&answer), ranking, "{method:?}");
    }
    server.stop().await;
}
