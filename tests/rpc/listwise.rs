//! The methods that rank a list at once, over a real channel: labels, written lists, rotations, answers.

use crate::common;
use common::{LIMITS, Running, Scripted, wire};
use engine::types::Limits;
use prefix_scheduler::model::Capacity;
use protocol::v1;

const METHODS: [v1::Method; 4] =
    [v1::Method::First, v1::Method::Listwise, v1::Method::PermutationSelfConsistency, v1::Method::SelfConsistency];

async fn server() -> Running {
    let limits = Limits { passages: 100, tokens: 1_000_000, ..LIMITS };
    let capacity = Capacity { cells: 8_192, sequences: 64, batch: 512 };
    Scripted { capacity, limits, ..Scripted::default() }.serve().await
}

fn request(method: v1::Method, passages: usize) -> v1::RerankRequest {
    let words = ["zzz", "question here", "w", "the question", "[1] yyy", "qqq"];
    let texts: Vec<String> = (0..passages).map(|index| format!("{} {index}", words[index % words.len()])).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    v1::RerankRequest { method: method.into(), return_passages: true, ..wire("question", &texts) }
}

async fn ask(server: &Running, request: &v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request.clone()).await.unwrap().into_inner()
}

fn order(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

#[tokio::test]
async fn every_method_gives_a_permutation_and_equal_requests_equal_answers() {
    let server = server().await;
    for method in METHODS {
        for passages in [1, 2, 5, 20, 25] {
            // Thirty answers over many passages are slow.
            if method == v1::Method::SelfConsistency && passages > 5 {
                continue;
            }
            let request = request(method, passages);
            let (first, second) = (ask(&server, &request).await, ask(&server, &request).await);
            assert_eq!(first.results, second.results, "{method:?} of {passages}");
            let mut seen = order(&first);
            seen.sort_unstable();
            assert_eq!(seen, (0..u32::try_from(passages).unwrap()).collect::<Vec<_>>(), "{method:?} of {passages}");
            assert!(first.results.windows(2).all(|pair| pair[0].utility >= pair[1].utility));
            for result in &first.results {
                assert!(result.utility.is_finite() && result.score > 0.0 && result.score < 1.0);
                let given = &request.passages[usize::try_from(result.original_index).unwrap()].text;
                assert_eq!(&result.passage.as_ref().unwrap().text, given, "rewritten for the prompt only");
            }
            let usage = first.usage.unwrap();
            assert_eq!(usage.tokens == 0, passages == 1, "one passage is ranked already");
            let shares = method == v1::Method::PermutationSelfConsistency;
            let pairs = first.results.len() - 1;
            assert!(first.results[..pairs].iter().all(|result| result.outranks_next.is_some() == shares));
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_hundred_passages_are_ranked_in_windows() {
    let server = server().await;
    for method in [v1::Method::First, v1::Method::Listwise] {
        let answer = ask(&server, &request(method, 100)).await;
        let mut seen = order(&answer);
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>(), "{method:?}");
        assert_eq!(
            (answer.results[0].utility, answer.results[99].utility),
            (100.0, 1.0),
            "the number of passages minus the rank"
        );
    }
    server.stop().await;
}

/// Two passages: labels A and B. The overlap script prefers the label whose letter occurs more often and earlier.
#[tokio::test]
async fn the_neutral_query_takes_the_labels_own_weight_away() {
    let server = server().await;
    // Both passages have equal letters, and the query has neither label, so only the label differs, under both queries.
    let twins = v1::RerankRequest { method: v1::Method::First.into(), ..wire("N/A", &["same", "mesa"]) };
    let answer = ask(&server, &twins).await;
    assert_eq!(order(&answer), [0, 1]);
    assert!(answer.results.iter().all(|result| result.utility == 0.0 && result.score == 0.5));
    // A query with many Bs makes the second label likelier than "N/A" does.
    let second = v1::RerankRequest { method: v1::Method::First.into(), ..wire("BBBBBBBB", &["same", "mesa"]) };
    assert_eq!(order(&ask(&server, &second).await), [1, 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_small_budget_is_refused_before_the_first_window_and_ends_a_later_one() {
    let server = server().await;
    let with = |method, token_budget, passages| v1::RerankRequest { token_budget, ..request(method, passages) };
    for method in METHODS {
        let status = server.client().await.rerank(with(method, 50, 5)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{method:?}");
    }
    for method in [v1::Method::First, v1::Method::Listwise] {
        let whole = ask(&server, &request(method, 25)).await;
        let budget = whole.usage.unwrap().tokens * 3 / 4;
        let short = ask(&server, &with(method, budget, 25)).await;
        assert!(short.usage.unwrap().tokens <= budget);
        assert_eq!(short.results.len(), 25);
        assert_eq!(order(&short)[..5], [0, 1, 2, 3, 4], "the first places were not reached");
        assert!(short.warnings.iter().any(|warning| warning.contains("after 1 of 2 windows")), "{:?}", short.warnings);
    }
    server.stop().await;
}

#[tokio::test]
async fn self_consistency_names_the_answer_and_its_share() {
    let server = server().await;
    let answer = ask(&server, &request(v1::Method::SelfConsistency, 4)).await;
    // The scripted generator may answer with nothing but an article, which is no answer.
    let told =
        |warning: &String| warning.contains("orders gave the answer") || warning.contains("no order gave an answer");
    assert!(answer.warnings.iter().any(told), "{:?}", answer.warnings);
    assert!(answer.results.iter().all(|result| result.utility.abs() <= 1.0));
    server.stop().await;
}
