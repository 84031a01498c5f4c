//! Passages of equal text: every method gives them equal scores and leaves them in the order of the request.

use std::collections::HashMap;
use std::time::Duration;

use crate::common;
use common::{LIMITS, Running, Scripted, fields, wire};
use engine::methods;
use engine::types::{Limits, Role};
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use tonic::Code;

/// Adjacent copies, separate copies, copies of the best and of the worst passage, and a list of copies only.
const LISTS: [&[&str]; 5] = [
    &["zzzz yyyy", "the question is here", "zzzz yyyy", "question question", "the question is here"],
    &["wwww", "wwww", "an answer, perhaps", "question question"],
    &["question question", "an answer, perhaps", "wwww", "question question", "question question", "wwww"],
    &["an answer, perhaps", "wwww", "an answer, perhaps"],
    &["the question is here", "the question is here", "the question is here"],
];

/// A server with a scripted model of every role.
async fn serve() -> Running {
    let limits = Limits { pairs: 20_000, tokens: 2_000_000, ..LIMITS };
    let (engine, observed, queue_length) = Scripted { limits, ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    let engine = common::with_slow_scorer(&engine, Role::Reranker, "reranker", Duration::ZERO);
    let engine = common::with_slow_scorer(&engine, Role::Embedding, "embedding", Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

async fn rerank(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

fn wire_method(name: &str) -> v1::Method {
    v1::Method::from_str_name(&format!("METHOD_{}", name.replace('-', "_").to_uppercase())).unwrap()
}

/// Methods that rank documents instead of passages, so copies share a score.
fn merging() -> impl Iterator<Item = v1::Method> {
    let apart = ["retriever", "listwise-bayes"];
    methods::all().map(engine::types::MethodRef::name).filter(move |name| !apart.contains(name)).map(wire_method)
}

fn order(answer: &v1::RerankResponse) -> Vec<usize> {
    answer.results.iter().map(|result| result.original_index as usize).collect()
}

/// Fields that copies share.
fn found(result: &v1::RankedPassage) -> (f64, f64, Option<f64>, u32, i32) {
    (result.score, result.utility, result.standard_error, result.tokens_cut, result.stage)
}

/// Results of equal score are in the order of the request, and copies have equal scores.
fn check(texts: &[&str], answer: &v1::RerankResponse, about: &str) {
    let mut by_text: HashMap<&str, &v1::RankedPassage> = HashMap::new();
    for result in &answer.results {
        let text = texts[result.original_index as usize];
        if let Some(before) = by_text.insert(text, result) {
            assert_eq!(found(before), found(result), "{about}: {text}");
            assert!(before.original_index < result.original_index, "{about}: {text}: {:?}", order(answer));
        }
    }
    assert!(answer.results.is_sorted_by(|one, next| one.score >= next.score), "{about}");
}

#[tokio::test]
async fn copies_have_equal_scores_and_keep_their_order_under_every_method() {
    let server = serve().await;
    for method in merging() {
        for texts in LISTS {
            let about = format!("{method:?} {texts:?}");
            let request = v1::RerankRequest { method: method.into(), ..wire("question", texts) };
            let answer = rerank(&server, request.clone()).await;
            check(texts, &answer, &about);
            let mut sorted = order(&answer);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..texts.len()).collect::<Vec<_>>(), "{about}");
            // The list without copies has the same scores, and takes as many tokens.
            let mut seen = Vec::new();
            let first: Vec<&str> = texts
                .iter()
                .copied()
                .filter(|text| {
                    !seen.contains(text) && {
                        seen.push(*text);
                        true
                    }
                })
                .collect();
            let alone = rerank(&server, v1::RerankRequest { method: method.into(), ..wire("question", &first) }).await;
            let scores = |texts: &[&str], answer: &v1::RerankResponse| -> HashMap<String, f64> {
                let one =
                    |result: &v1::RankedPassage| (texts[result.original_index as usize].to_owned(), result.utility);
                answer.results.iter().map(one).collect()
            };
            assert_eq!(scores(texts, &answer), scores(&first, &alone), "{about}");
            let read = |answer: &v1::RerankResponse| answer.usage.unwrap().naive_tokens;
            assert_eq!(read(&answer), read(&alone), "{about}");
            assert_eq!(answer.warnings, alone.warnings, "{about}");
            // `top_n` does not change the results that remain.
            let some = rerank(&server, v1::RerankRequest { top_n: 2, ..request }).await;
            assert_eq!(order(&some), order(&answer)[..2.min(texts.len())], "{about}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn methods_that_tell_copies_apart_keep_their_order() {
    let server = serve().await;
    for name in ["retriever", "listwise-bayes"] {
        for texts in LISTS {
            let request = v1::RerankRequest { method: wire_method(name).into(), ..wire("question", texts) };
            let answer = rerank(&server, request).await;
            let order = order(&answer);
            for (place, &passage) in order.iter().enumerate() {
                let later = order[place + 1..].iter().find(|&&other| texts[other] == texts[passage]);
                assert!(later.is_none_or(|&other| passage < other), "{name} {texts:?}: {order:?}");
            }
        }
    }
    // With a weight per position, copies take separate positions.
    let moi = v1::MoiOptions { position_prior: vec![0.5, 0.3, 0.2], ..v1::MoiOptions::default() };
    let request = v1::RerankRequest { method: v1::Method::Moi.into(), moi: Some(moi), ..wire("question", LISTS[3]) };
    assert_eq!(rerank(&server, request).await.results.len(), 3);
    server.stop().await;
}

/// A document has the best retriever score of its copies under every fusion.
#[tokio::test]
async fn retriever_scores_of_copies_may_differ() {
    let server = serve().await;
    let texts = LISTS[0];
    let some = [
        v1::Method::Cascade,
        v1::Method::QueryGeneration,
        v1::Method::Moi,
        v1::Method::Pairwise,
        v1::Method::Setwise,
        v1::Method::Embedding,
    ];
    for method in some {
        for mode in [v1::FusionMode::Unspecified, v1::FusionMode::On, v1::FusionMode::Bm25] {
            let ask = |scores: [f64; 5]| {
                let mut request = v1::RerankRequest { method: method.into(), ..wire("question", texts) };
                request.fusion = Some(v1::Fusion { mode: mode.into(), ..v1::Fusion::default() });
                for (passage, score) in request.passages.iter_mut().zip(scores) {
                    passage.retriever_score = Some(score);
                }
                request
            };
            let answer = rerank(&server, ask([1.0, 2.0, 9.0, 3.0, 0.5])).await;
            check(texts, &answer, &format!("{method:?} {mode:?}"));
            let best = rerank(&server, ask([9.0, 2.0, 9.0, 3.0, 2.0])).await;
            assert_eq!(answer.results, best.results, "{method:?} {mode:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn cuts_orders_and_events_have_the_passages_of_the_request() {
    let server = serve().await;
    let texts = LISTS[2];
    let ask = || v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..wire("question", texts) };
    let all = rerank(&server, ask()).await;
    // A threshold keeps all copies of a document, or none.
    let threshold = all.results.iter().find(|one| texts[one.original_index as usize] == "question question").unwrap();
    let above = rerank(&server, v1::RerankRequest { score_threshold: Some(threshold.score), ..ask() }).await;
    assert!(order(&above).ends_with(&[0, 3, 4]), "{:?}", order(&above));
    let helpful = rerank(&server, v1::RerankRequest { only_helpful: true, ..ask() }).await;
    assert!(helpful.results.iter().all(|one| one.utility > 0.0));
    let given = rerank(&server, v1::RerankRequest { context_order: v1::ContextOrder::Given.into(), ..ask() }).await;
    assert_eq!(given.context_order.unwrap().original_indices, (0..6).collect::<Vec<u32>>());
    // Interim orders hold every passage. They are computed during the scoring, which must take some time.
    let slow = Scripted { delay: Duration::from_micros(100), ..Scripted::default() }.serve().await;
    let many: Vec<String> = (0..12).map(|number| format!("the text of number {} is here", number % 8)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let moi = v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("question", &many) };
    let request = v1::WatchRerankRequest { request: Some(moi) };
    let mut stream = slow.client().await.watch_rerank(request).await.unwrap().into_inner();
    let mut interim = 0;
    while let Some(message) = stream.message().await.unwrap() {
        if let Some(Event::Interim(one)) = message.event {
            let mut order = one.original_indices.clone();
            order.sort_unstable();
            assert_eq!(order, (0..12).collect::<Vec<u32>>());
            interim += 1;
        }
    }
    assert!(interim > 0);
    slow.stop().await;
    // Messages about lengths count passages, not documents.
    let long = "question ".repeat(600);
    let cut = [long.as_str(), "wwww", "wwww", long.as_str()];
    let answer = rerank(&server, v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("question", &cut) }).await;
    assert!(answer.warnings.iter().any(|one| one.starts_with("2 passages were cut")), "{:?}", answer.warnings);
    let whole = Some(v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 });
    let uncut = v1::RerankRequest { truncation: whole, ..wire("question", &["wwww", "wwww", &long]) };
    let refused = server.client().await.rerank(uncut).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["passages[2].text".to_owned()]));
    server.stop().await;
}

/// A title is a part of its document.
#[tokio::test]
async fn another_title_is_another_document() {
    let server = serve().await;
    let mut request =
        v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..wire("question", &["a", "a", "a"]) };
    request.passages[1].title = "question".into();
    let answer = rerank(&server, request).await;
    let utility = |index| answer.results.iter().find(|one| one.original_index == index).unwrap().utility;
    assert!(utility(0) == utility(2) && utility(0) != utility(1));
    server.stop().await;
}

/// Compression and utility cover the returned passages, copies included.
#[tokio::test]
async fn copies_are_compressed_and_measured_as_they_are_returned() {
    let server = serve().await;
    let texts = ["a question of words", "another text of words", "a question of words"];
    let request = v1::RerankRequest {
        method: v1::Method::QueryGeneration.into(),
        compression: Some(v1::Compression {
            method: v1::CompressionMethod::SelectiveContext.into(),
            ratio: Some(0.5),
            ..v1::Compression::default()
        }),
        utility: Some(v1::InlineUtility::default()),
        ..wire("question", &texts)
    };
    let answer = rerank(&server, request).await;
    assert!(answer.utility.is_some());
    let compressed = answer.compression.unwrap().passages;
    let text = |index: u32| &compressed.iter().find(|one| one.original_index == index).unwrap().compressed_text;
    assert_eq!((compressed.len(), text(0)), (3, text(2)));
    server.stop().await;
}
