//! The default ranking over a real channel: fusion, stages, budgets and abstention, with a scripted generator.

use std::time::Duration;

use crate::common;
use common::{LIMITS, Scripted, wire};
use engine::types::Limits;
use prefix_scheduler::model::Capacity;
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;
use tonic::Code;

/// A list of `count` passages in the order of their retriever scores.
fn list(count: usize) -> v1::RerankRequest {
    let texts: Vec<String> = (0..count).map(|index| format!("passage {index} of the mill race")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut request = wire("which mill race?", &texts);
    for (index, passage) in request.passages.iter_mut().enumerate() {
        passage.retriever_score = Some((count - index) as f64);
    }
    request
}

async fn ask(server: &common::Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

fn indices(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

#[tokio::test]
async fn the_answer_says_what_was_mixed_and_which_stage_placed_each_passage() {
    let server = Scripted { limits: Limits { passages: 60, ..LIMITS }, ..Scripted::default() }.serve().await;
    let answer = ask(&server, list(60)).await;
    let fusion = answer.fusion.as_ref().unwrap();
    assert_eq!((fusion.source(), fusion.scaling()), (v1::FusionSource::Retriever, v1::FusionScaling::Floor));
    assert_eq!(answer.results.len(), 60);
    let read = |result: &&v1::RankedPassage| result.stage() != v1::Stage::Retriever;
    assert_eq!(answer.results.iter().filter(read).count(), 24, "a list of 60 is read in part");
    assert!(answer.results[..24].iter().all(|result| result.original_index < 24), "the retriever's best are read");
    let rest: Vec<u32> = indices(&answer)[24..].to_vec();
    assert_eq!(rest, (24..60).collect::<Vec<u32>>(), "unread passages keep the first-stage order");
    assert!(answer.results.windows(2).all(|pair| pair[0].score >= pair[1].score));
    assert!(answer.results[..59].iter().all(|result| result.outranks_next.unwrap() >= 0.5));
    assert_eq!(ask(&server, list(60)).await.results, answer.results, "equal requests, equal answers");
    let plain: Vec<v1::Passage> =
        list(8).passages.into_iter().map(|passage| v1::Passage { retriever_score: None, ..passage }).collect();
    let answer = ask(&server, v1::RerankRequest { passages: plain, ..list(0) }).await;
    assert_eq!(answer.fusion.unwrap().source(), v1::FusionSource::Bm25);
    server.stop().await;
}

/// Without an embedding model there are two signals. Their sum orders the passages that were read; the rest have no
/// signals.
#[tokio::test]
async fn the_answer_says_what_each_signal_adds() {
    let server = Scripted { limits: Limits { passages: 60, ..LIMITS }, ..Scripted::default() }.serve().await;
    let settled = Some(v1::MoiOptions { settle_probability: Some(0.5), ..v1::MoiOptions::default() });
    let answer = ask(&server, v1::RerankRequest { moi: settled.clone(), ..list(60) }).await;
    let sums: Vec<f64> = answer.results[..24]
        .iter()
        .map(|result| {
            let v1::Signals { model, embedding, source } = result.signals.unwrap();
            assert_eq!(embedding, None);
            model.unwrap() + source.unwrap()
        })
        .collect();
    assert!(sums.is_sorted_by(|one, next| one >= next), "{sums:?}");
    assert!(answer.results[24..].iter().all(|result| result.signals == Some(v1::Signals::default())));
    // Refining the first results does not change the signals of the others.
    let ties = wire("mill", &["mill", "mill ", " mill", "weir", "lock", "mil", "null"]);
    let [tied, settled] =
        [ask(&server, ties.clone()).await, ask(&server, v1::RerankRequest { moi: settled, ..ties }).await];
    assert_eq!(tied.results.iter().filter(|result| result.stage() == v1::Stage::Together).count(), 3);
    for result in tied.results.iter().filter(|result| result.stage() == v1::Stage::Alone) {
        let same = settled.results.iter().find(|other| other.id == result.id).unwrap();
        assert_eq!((same.signals, same.stage()), (result.signals, v1::Stage::Alone));
    }
    let off = Some(v1::Fusion { mode: v1::FusionMode::Off.into(), ..v1::Fusion::default() });
    let alone = ask(&server, v1::RerankRequest { fusion: off, ..list(4) }).await;
    assert!(alone.results.iter().all(|result| result.signals.is_none()), "nothing was fused");
    server.stop().await;
}

/// A request that would end after its deadline in the third stage is answered from the second.
#[tokio::test]
async fn the_third_stage_is_left_out_if_the_deadline_leaves_no_time_for_it() {
    let server = Scripted { delay: Duration::from_millis(2), ..Scripted::default() }.serve().await;
    let texts = ["a", "b", "c"].map(|end| "mill ".repeat(40) + end);
    let settled = Some(v1::MoiOptions { settle_probability: Some(0.9999), ..v1::MoiOptions::default() });
    let ties = v1::RerankRequest { moi: settled, ..wire("mill", &texts.each_ref().map(String::as_str)) };
    let mut stages = Vec::new();
    for seconds in [60, 3] {
        let mut call = tonic::Request::new(ties.clone());
        call.set_timeout(Duration::from_secs(seconds));
        let answer = server.client().await.rerank(call).await.unwrap().into_inner();
        let late = answer.warnings.iter().any(|warning| warning.contains("the deadline leaves no time"));
        stages.push((answer.results[0].stage(), late));
    }
    assert_eq!(stages, [(v1::Stage::Together, false), (v1::Stage::Alone, true)]);
    server.stop().await;
}

/// Urgent work that arrives during the third stage takes the time that was left for it.
#[tokio::test]
async fn a_third_stage_that_other_work_delays_is_given_up_before_the_deadline() {
    let server = Scripted { delay: Duration::from_millis(2), ..Scripted::default() }.serve().await;
    let texts = ["a", "b", "c"].map(|end| "mill ".repeat(40) + end);
    let settled = Some(v1::MoiOptions { settle_probability: Some(0.9999), ..v1::MoiOptions::default() });
    let ties = v1::RerankRequest { moi: settled, ..wire("mill", &texts.each_ref().map(String::as_str)) };
    let mut call = tonic::Request::new(v1::WatchRerankRequest { request: Some(ties) });
    call.set_timeout(Duration::from_secs(10));
    let mut stream = server.client().await.watch_rerank(call).await.unwrap().into_inner();
    let (mut stages, mut urgent, mut last) = (0, None, None);
    while let Some(event) = stream.next().await {
        match event.unwrap().event.unwrap() {
            Event::Planned(_) => stages += 1,
            Event::Final(answer) => last = Some(answer),
            _ => {}
        }
        if stages == 2 && urgent.is_none() {
            let texts: Vec<String> = (0..20).map(|number| format!("{}{number}", "weir ".repeat(250))).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut call = tonic::Request::new(v1::RerankRequest {
                method: v1::Method::QueryGeneration.into(),
                ..wire("mill", &texts)
            });
            call.metadata_mut().insert("x-rerankd-priority", "0".parse().unwrap());
            let mut client = server.client().await;
            urgent = Some(tokio::spawn(async move { client.rerank(call).await }));
        }
    }
    let answer = last.unwrap();
    assert_eq!((stages, answer.results[0].stage()), (2, v1::Stage::Alone));
    assert!(answer.warnings.iter().any(|warning| warning.contains("the deadline leaves no time")));
    urgent.unwrap().abort();
    server.stop().await;
}

/// Each word is in one passage of the list. In the collection one word is in nearly every document, so it says nothing
/// about relevance.
#[tokio::test]
async fn frequencies_of_the_collection_tell_which_word_counts() {
    let server = Scripted::default().serve().await;
    let mut request = wire("river mill", &["river river stone", "mill wheel stone", "salt and bread"]);
    let fusion = v1::Fusion { mode: v1::FusionMode::Bm25.into(), weight: Some(0.0), ..v1::Fusion::default() };
    request.fusion = Some(fusion.clone());
    assert_eq!(indices(&ask(&server, request.clone()).await)[0], 0);
    let frequencies = [("river".to_owned(), 990), ("mill".to_owned(), 2)].into();
    let background = Some(v1::Background { documents: 1_000, frequencies });
    request.fusion = Some(v1::Fusion { background, ..fusion });
    assert_eq!(indices(&ask(&server, request).await)[0], 1);
    server.stop().await;
}

/// Equal values leave the order undecided, so the first three passages are scored in orders, and the answer has a fit
/// of three positions.
#[tokio::test]
async fn undecided_first_places_are_fitted_together() {
    let server = Scripted::default().serve().await;
    let mut request = wire("mill", &["mill", "mill ", " mill", "weir", "lock"]);
    request.fusion = Some(v1::Fusion { mode: v1::FusionMode::Off.into(), ..v1::Fusion::default() });
    let answer = ask(&server, request).await;
    let together: Vec<u32> = answer
        .results
        .iter()
        .filter(|result| result.stage() == v1::Stage::Together)
        .map(|result| result.original_index)
        .collect();
    assert_eq!(together.len(), 3);
    assert!(answer.results[..3].iter().all(|result| result.standard_error.is_some()));
    assert!(answer.position_bias.iter().any(|bias| bias.weights.len() == 3));
    assert!(answer.fusion.is_none() && answer.diagnostics.is_some());
    let one = ask(&server, wire("mill", &["the mill"])).await;
    assert_eq!((one.results.len(), one.diagnostics), (1, None));
    server.stop().await;
}

#[tokio::test]
async fn the_third_stage_does_not_depend_on_ids_or_on_the_order_of_the_request() {
    let server = Scripted::default().serve().await;
    let settled = v1::MoiOptions { settle_probability: Some(0.9999), ..v1::MoiOptions::default() };
    let request = v1::RerankRequest { moi: Some(settled), ..list(6) };
    let utilities = |answer: v1::RerankResponse, places: &[u32]| -> Vec<(u32, u64)> {
        let results = answer.results.iter();
        let mut all: Vec<(u32, u64)> =
            results.map(|result| (places[result.original_index as usize], result.utility.to_bits())).collect();
        all.sort_unstable();
        all
    };
    let places = [0, 1, 2, 3, 4, 5];
    let first = ask(&server, request.clone()).await;
    assert_eq!(first.results.iter().filter(|result| result.stage() == v1::Stage::Together).count(), 3);
    let expected = utilities(first, &places);
    for ids in [["f", "e", "d", "c", "b", "a"], ["b", "a", "c", "d", "f", "e"]] {
        let mut renamed = request.clone();
        for (passage, id) in renamed.passages.iter_mut().zip(ids) {
            passage.id = id.to_owned();
        }
        assert_eq!(utilities(ask(&server, renamed).await, &places), expected, "{ids:?}");
    }
    let mut reversed = request;
    reversed.passages.reverse();
    assert_eq!(utilities(ask(&server, reversed).await, &[5, 4, 3, 2, 1, 0]), expected);
    server.stop().await;
}

/// Each passage fits a prompt, three together do not. The third stage may not run, so they are not cut for it.
#[tokio::test]
async fn passages_are_not_cut_for_the_third_stage() {
    let capacity = Capacity { cells: 1_024, sequences: 64, batch: 64 };
    let server = Scripted { capacity, ..Scripted::default() }.serve().await;
    let mut request = list(3);
    for passage in &mut request.passages {
        passage.text.push_str(&"x".repeat(500));
    }
    let settled = v1::MoiOptions { settle_probability: Some(0.9999), ..v1::MoiOptions::default() };
    let off = v1::Truncation { mode: v1::TruncationMode::Off.into(), ..v1::Truncation::default() };
    (request.truncation, request.moi) = (Some(off), Some(settled));
    let answer = ask(&server, request).await;
    assert!(answer.results.iter().all(|result| result.tokens_cut == 0 && result.stage() == v1::Stage::Alone));
    server.stop().await;
}

#[tokio::test]
async fn a_budget_is_spent_on_the_retrievers_first() {
    let limits = Limits { tokens: 2_000, ..LIMITS };
    let server = Scripted { limits, ..Scripted::default() }.serve().await;
    let mut request = list(20);
    for passage in &mut request.passages {
        passage.text.push_str(&"x".repeat(300));
    }
    let answer = ask(&server, request.clone()).await;
    let read: Vec<u32> = answer
        .results
        .iter()
        .filter(|result| result.stage() != v1::Stage::Retriever)
        .map(|result| result.original_index)
        .collect();
    assert!(!read.is_empty() && read.len() < 20 && read.iter().all(|index| (*index as usize) < read.len()), "{read:?}");
    assert!(answer.usage.unwrap().tokens <= 2_000);
    request.token_budget = 100;
    let refused = server.client().await.rerank(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "not even one passage");
    // The budget counts the lengths of the first passages, not the mean length of all.
    let mut uneven = list(20);
    for passage in &mut uneven.passages[10..] {
        passage.text.push_str(&"x".repeat(1_500));
    }
    let answer = ask(&server, uneven).await;
    let read = answer.results.iter().filter(|result| result.stage() != v1::Stage::Retriever).count();
    assert!((8..20).contains(&read), "{read}");
    server.stop().await;
}

/// Half of the time for all passages is enough for some, ten times for all. Without a measured speed all are read.
#[tokio::test]
async fn a_latency_budget_is_spent_on_the_retrievers_first() {
    let server = Scripted { delay: Duration::from_micros(100), ..Scripted::default() }.serve().await;
    let mut request = list(20);
    for passage in &mut request.passages {
        passage.text.push_str(&"x".repeat(60));
    }
    let read = |answer: &v1::RerankResponse| -> Vec<u32> {
        let results = answer.results.iter().filter(|result| result.stage() != v1::Stage::Retriever);
        results.map(|result| result.original_index).collect()
    };
    let within = |milliseconds: f64| v1::RerankRequest { latency_budget_ms: Some(milliseconds), ..request.clone() };
    let first = ask(&server, within(1.0)).await;
    assert_eq!(read(&first).len(), 20);
    assert!(first.warnings.iter().any(|warning| warning.starts_with("latency_budget_ms had no effect")));
    let mut whole = f64::INFINITY;
    for _ in 0..3 {
        whole = whole.min(ask(&server, request.clone()).await.usage.unwrap().score_ms);
    }
    let some = read(&ask(&server, within(whole / 2.0)).await);
    assert!((1..20).contains(&some.len()) && some.iter().all(|index| (*index as usize) < some.len()), "{some:?}");
    assert_eq!(read(&ask(&server, within(whole * 10.0)).await).len(), 20);
    server.stop().await;
}

/// Cached tokens take no time, so a budget reads more of a warm list.
#[tokio::test]
async fn a_latency_budget_is_not_spent_on_cached_tokens() {
    let warm = prefix_scheduler::warm::Options { memory_bytes: 100_000_000, disk: None };
    let server = Scripted { delay: Duration::from_micros(100), warm, ..Scripted::default() }.serve().await;
    let mut request = list(20);
    for passage in &mut request.passages {
        passage.text.push_str(&"x".repeat(300));
    }
    let cold = ask(&server, request.clone()).await.usage.unwrap();
    request.query.push_str(" again");
    let hurried = v1::RerankRequest { latency_budget_ms: Some(cold.score_ms / 2.0), ..request };
    let answer = ask(&server, hurried).await;
    assert!(answer.results.iter().all(|result| result.stage() != v1::Stage::Retriever), "{:?}", answer.usage);
    let usage = answer.usage.unwrap();
    assert!(usage.cached_tokens > 2 * usage.tokens, "{usage:?}");
    server.stop().await;
}

#[tokio::test]
async fn unhelpful_passages_are_left_out_on_request() {
    let server = Scripted::default().serve().await;
    let mut request = wire("mill", &["zzz", "yyy", "the mill"]);
    let all = ask(&server, request.clone()).await;
    request.only_helpful = true;
    let helpful = ask(&server, request.clone()).await;
    assert!(helpful.results.len() < all.results.len(), "{:?}", helpful.results);
    assert!(helpful.results.iter().all(|result| result.utility > 0.0));
    assert_eq!(helpful.none_helps, Some(helpful.results.is_empty()));
    request.passages.truncate(2);
    let none = ask(&server, request).await;
    assert_eq!((none.results.len(), none.none_helps), (0, Some(true)));
    assert!(none.context_order.unwrap().original_indices.is_empty());
    server.stop().await;
}

/// Every fused value is above 0, so the model's utility decides.
#[tokio::test]
async fn harmful_passages_are_left_out_even_if_the_retriever_prefers_them() {
    let server = Scripted::default().serve().await;
    let mut request = wire("mill", &["zzz", "the mill", "yyy"]);
    for (passage, score) in request.passages.iter_mut().zip([30.0, 20.0, 10.0]) {
        passage.retriever_score = Some(score);
    }
    request.only_helpful = true;
    let helpful = ask(&server, request.clone()).await;
    assert!(!helpful.results.is_empty() && helpful.results.iter().all(|result| result.utility > 0.0));
    assert!(helpful.results.last().unwrap().outranks_next.is_none());
    // Ranks have no zero: nothing is omitted, and a warning says why.
    request.method = v1::Method::Listwise.into();
    let ranks = ask(&server, request).await;
    assert_eq!((ranks.results.len(), ranks.none_helps), (3, None));
    assert!(ranks.warnings.iter().any(|warning| warning.starts_with("only_helpful has no effect")));
    server.stop().await;
}

#[tokio::test]
async fn bad_options_are_named() {
    let server = Scripted::default().serve().await;
    let fusion = |fusion| v1::RerankRequest { fusion: Some(fusion), ..list(3) };
    for (field, request) in [
        ("fusion.weight", fusion(v1::Fusion { weight: Some(f64::NAN), ..v1::Fusion::default() })),
        ("fusion.weight", fusion(v1::Fusion { weight: Some(1.1), ..v1::Fusion::default() })),
        ("fusion.embedding_weight", fusion(v1::Fusion { embedding_weight: Some(f64::NAN), ..v1::Fusion::default() })),
        ("fusion.mode", fusion(v1::Fusion { mode: 9, ..v1::Fusion::default() })),
        ("fusion.scaling", fusion(v1::Fusion { scaling: 9, ..v1::Fusion::default() })),
        (
            "fusion.background.frequencies",
            fusion(v1::Fusion {
                background: Some(v1::Background {
                    documents: 9,
                    frequencies: (0..10_001).map(|word| (word.to_string(), 1)).collect(),
                }),
                ..v1::Fusion::default()
            }),
        ),
        (
            "fusion.background.documents",
            fusion(v1::Fusion {
                background: Some(v1::Background {
                    frequencies: [("river".to_owned(), 2)].into(),
                    ..Default::default()
                }),
                ..v1::Fusion::default()
            }),
        ),
        (
            "moi",
            v1::RerankRequest {
                method: v1::Method::Cascade.into(),
                moi: Some(v1::MoiOptions { depth: 3, ..v1::MoiOptions::default() }),
                ..list(3)
            },
        ),
        ("latency_budget_ms", v1::RerankRequest { latency_budget_ms: Some(-1.0), ..list(3) }),
    ] {
        let status = server.client().await.rerank(request).await.unwrap_err();
        assert_eq!((status.code(), common::fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]));
    }
    server.stop().await;
}

/// Any method accepts a fusion, which leaves its utilities unchanged.
#[tokio::test]
async fn fusion_of_another_method_changes_the_order_and_not_the_utilities() {
    let server = Scripted::default().serve().await;
    let method = v1::Method::QueryGeneration.into();
    let alone = ask(&server, v1::RerankRequest { method, ..list(6) }).await;
    let mode = v1::FusionMode::On.into();
    let retriever = v1::Fusion { mode, weight: Some(0.0), ..v1::Fusion::default() };
    let fused = ask(&server, v1::RerankRequest { method, fusion: Some(retriever), ..list(6) }).await;
    assert!(alone.fusion.is_none() && fused.fusion.is_some());
    assert_eq!(indices(&fused), [0, 1, 2, 3, 4, 5]);
    for result in &fused.results {
        let same = alone.results.iter().find(|other| other.original_index == result.original_index).unwrap();
        assert_eq!(result.utility, same.utility);
    }
    server.stop().await;
}
