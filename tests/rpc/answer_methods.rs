//! Over the wire: the methods that attribute the generator's own answer to the passages.

use std::sync::atomic::Ordering;

use crate::common;
use common::{Scripted, wire};
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;

const METHODS: [v1::Method; 3] = [v1::Method::AnswerLikelihood, v1::Method::LeaveOneOut, v1::Method::ContextCite];

/// The scripted generator repeats the most frequent byte, so its answer is a run of z, from the second passage. Six
/// passages, because methods sample subsets only of more than five.
const PASSAGES: [&str; 6] = [
    "wwww is here",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "zzzzzzzz yyyy",
    "nothing to see",
    "question question",
    "vvvv",
];

/// The most frequent byte is the space, so the answer is empty.
const BLANK: [&str; 4] = ["a b c d", "one two three", "the question is here", "no"];

fn request(method: v1::Method, passages: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: method.into(), ..wire("question", passages) }
}

fn order(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

#[tokio::test]
async fn the_passage_with_the_answer_is_first_and_equal_requests_have_equal_answers() {
    let server = Scripted::default().serve().await;
    for method in METHODS {
        let ask = || async { server.client().await.rerank(request(method, &PASSAGES)).await.unwrap().into_inner() };
        let (first, again) = (ask().await, ask().await);
        assert_eq!(first.results, again.results, "{method:?}");
        assert!(first.warnings.is_empty(), "{:?}", first.warnings);
        let mut sorted = order(&first);
        assert_eq!(sorted[0], 1, "{method:?}");
        sorted.sort_unstable();
        assert_eq!(sorted, (0..6).collect::<Vec<_>>(), "{method:?}");
        let best = &first.results[0];
        assert!(best.utility > 0.0 && best.score > 0.5, "{method:?} {best:?}");
        assert!(first.results.windows(2).all(|pair| pair[0].utility >= pair[1].utility));
        assert!(first.diagnostics.is_none() && best.standard_error.is_none());
        let usage = first.usage.unwrap();
        assert!(usage.tokens > 0 && usage.tokens < usage.naive_tokens, "{usage:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn one_passage_and_a_threshold_at_the_zero() {
    let server = Scripted::default().serve().await;
    for method in METHODS {
        let one = server.client().await.rerank(request(method, &PASSAGES[1..2])).await.unwrap().into_inner();
        assert_eq!(order(&one), vec![0], "{method:?}");
        assert!(one.results[0].utility > 0.0, "{method:?}");
        // Utility 0 is score 0.5, so this threshold keeps passages that make the answer likelier.
        let strict = v1::RerankRequest { score_threshold: Some(0.5), ..request(method, &PASSAGES) };
        let strict = server.client().await.rerank(strict).await.unwrap().into_inner();
        assert!(!strict.results.is_empty() && strict.results.iter().all(|result| result.utility >= 0.0), "{method:?}");
    }
    server.stop().await;
}

/// The most passages that the server accepts: prompts of a method share a prefix and fit the cache together.
#[tokio::test]
async fn twenty_passages() {
    let server = Scripted::default().serve().await;
    let many: Vec<&str> = (0..20).map(|index| PASSAGES[index % 6]).collect();
    for method in METHODS {
        let answer = server.client().await.rerank(request(method, &many)).await.unwrap().into_inner();
        let mut sorted = order(&answer);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>(), "{method:?}");
        assert!(answer.results.iter().all(|result| result.utility.is_finite()), "{method:?}");
        assert!(!answer.warnings.iter().any(|warning| warning.contains("empty")), "{:?}", answer.warnings);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_empty_own_answer_keeps_the_given_order_with_a_warning() {
    let server = Scripted::default().serve().await;
    for method in METHODS {
        let answer = server.client().await.rerank(request(method, &BLANK)).await.unwrap().into_inner();
        assert_eq!(order(&answer), vec![0, 1, 2, 3], "{method:?}");
        assert!(answer.results.iter().all(|result| result.utility == 0.0 && result.score == 0.5));
        assert!(answer.warnings.iter().any(|warning| warning.contains("answer is empty")), "{:?}", answer.warnings);
    }
    server.stop().await;
}

#[tokio::test]
async fn both_rounds_are_reported_and_the_last_event_is_the_answer() {
    let server = Scripted::default().serve().await;
    for method in METHODS {
        let watched = v1::WatchRerankRequest { request: Some(request(method, &PASSAGES)) };
        let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            events.push(event.unwrap().event.unwrap());
        }
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Planned(_))).count(), 2, "{method:?}");
        let Some(Event::Final(last)) = events.last() else { panic!("the last event is not the answer") };
        let unary = server.client().await.rerank(request(method, &PASSAGES)).await.unwrap().into_inner();
        assert_eq!(last.results, unary.results, "{method:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_budget_that_the_second_round_exceeds_is_refused_before_the_first() {
    let server = Scripted::default().serve().await;
    for method in METHODS {
        let watched = v1::WatchRerankRequest { request: Some(request(method, &PASSAGES)) };
        let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
        let mut first = None;
        while let Some(event) = stream.next().await {
            if let Event::Planned(planned) = event.unwrap().event.unwrap() {
                first = first.or(Some(planned.tokens));
            }
        }
        // Enough for the first round only.
        let token_budget = first.unwrap();
        let before = server.observed.tokens.load(Ordering::SeqCst);
        let small = v1::RerankRequest { token_budget, ..request(method, &PASSAGES) };
        let status = server.client().await.rerank(small).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{method:?}");
        assert_eq!(server.observed.tokens.load(Ordering::SeqCst), before, "{method:?}");
    }
    server.stop().await;
}
