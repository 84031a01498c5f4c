//! Contexts for prompts over the wire, and near-duplicates in rankings.

use std::sync::Arc;

use crate::common;
use common::{Running, Scripted, fields, wire};
use protocol::v1;
use tonic::{Code, Status};

/// The best for the query "question" are 3, 1 and their copies 5 and 6.
const TEXTS: [&str; 7] = [
    "zzzz {n} yyyy\r\nxxxx",
    "the question is here",
    "wwww",
    "question question of the 東京 town",
    " \n",
    "The QUESTION, is here!",
    "question question of the 東京 town",
];

async fn build(server: &Running, request: v1::BuildContextRequest) -> Result<v1::BuildContextResponse, Box<Status>> {
    Ok(server.client().await.build_context(request).await.map_err(Box::new)?.into_inner())
}

/// A request by single-passage prompts.
fn request(max_tokens: u32) -> v1::BuildContextRequest {
    let ranking = v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..wire("question", &TEXTS) };
    v1::BuildContextRequest { request: Some(ranking), max_tokens, ..v1::BuildContextRequest::default() }
}

fn with(change: impl FnOnce(&mut v1::RerankRequest)) -> v1::BuildContextRequest {
    let mut request = request(1_000);
    change(request.request.as_mut().unwrap());
    request
}

/// Each passage of the request is in the context or left out, and spans and sizes are exact. The scripted tokenizer
/// has a token per byte.
fn check(request: &v1::BuildContextRequest, built: &v1::BuildContextResponse) {
    let passages = &request.request.as_ref().unwrap().passages;
    for passage in &built.passages {
        let text = &built.text[passage.start as usize..passage.end as usize];
        let whole = &passages[passage.original_index as usize];
        assert_eq!(passage.id, whole.id);
        let kept = if passage.cut { whole.text.trim().starts_with(text) } else { whole.text.trim() == text };
        assert!(kept || passage.compressed, "{text:?}");
    }
    assert_eq!(built.tokens, built.text.len() as u64);
    assert_eq!(built.characters, built.text.chars().count() as u64);
    assert!(request.max_tokens == 0 || built.tokens <= request.max_tokens.into());
    let mut all: Vec<u32> = built.passages.iter().map(|passage| passage.original_index).collect();
    assert_eq!(built.context_order.as_ref().unwrap().original_indices, all);
    all.extend(built.left_out.iter().map(|passage| passage.original_index));
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..passages.len() as u32), "{all:?}");
}

fn indices(built: &v1::BuildContextResponse) -> Vec<u32> {
    built.passages.iter().map(|passage| passage.original_index).collect()
}

fn left_out(built: &v1::BuildContextResponse) -> Vec<(u32, v1::LeftOutReason, Option<u32>)> {
    built.left_out.iter().map(|passage| (passage.original_index, passage.reason(), passage.duplicate_of)).collect()
}

#[tokio::test]
async fn a_context_holds_the_best_passages_once_with_their_places() {
    let server = Scripted::default().serve().await;
    let asked = v1::BuildContextRequest { separator: Some("\n--\n".into()), ..request(1_000) };
    let built = build(&server, asked.clone()).await.unwrap();
    check(&asked, &built);
    let best = indices(&built);
    assert_eq!(best[..2], [3, 1]);
    assert!(built.text.starts_with("[1] question question of the 東京 town\n--\n[2] the question is here\n--\n[3] "));
    assert!(built.text.contains("zzzz {n} yyyy\r\nxxxx"), "{}", built.text);
    let (duplicate, empty) = (v1::LeftOutReason::Duplicate, v1::LeftOutReason::Empty);
    assert_eq!(left_out(&built), [(4, empty, None), (5, duplicate, Some(1)), (6, duplicate, Some(3))]);
    assert_eq!((&built.passages[0].duplicates, &built.passages[1].duplicates), (&vec![6], &vec![5]));
    assert_eq!((built.model.as_str(), built.reader.as_str()), ("scripted", "scripted"));
    // `left_out` names the blank passage.
    assert!(built.usage.unwrap().tokens > 0);
    assert!(!built.warnings.iter().any(|warning| warning.contains("passages[4]")), "{:?}", built.warnings);
    let again = build(&server, asked.clone()).await.unwrap();
    assert_eq!((again.text, again.left_out), (built.text, built.left_out), "equal requests");
    server.stop().await;
}

#[tokio::test]
async fn every_size_is_kept_and_the_last_passage_is_cut() {
    let server = Scripted::default().serve().await;
    let mut cuts = 0;
    for most in 1..110 {
        let asked = request(most);
        let built = build(&server, asked.clone()).await.unwrap();
        check(&asked, &built);
        let cut = built.passages.iter().filter(|passage| passage.cut).count();
        assert!(cut <= 1, "{most}");
        cuts += cut;
        let empty = built.warnings.iter().any(|warning| warning.starts_with("the context is empty: no passage fits"));
        assert_eq!(built.passages.is_empty(), empty, "{most}: {:?}", built.warnings);
        let mut whole = asked.clone();
        let off = v1::Truncation { mode: v1::TruncationMode::Off.into(), ..v1::Truncation::default() };
        whole.request.as_mut().unwrap().truncation = Some(off);
        let whole_only = build(&server, whole.clone()).await.unwrap();
        check(&whole, &whole_only);
        assert!(whole_only.passages.iter().all(|passage| !passage.cut), "{most}");
        let characters = v1::BuildContextRequest { max_tokens: 0, max_characters: most, ..asked };
        let built = build(&server, characters.clone()).await.unwrap();
        check(&characters, &built);
        assert!(built.characters <= most.into(), "{most}");
    }
    assert!(cuts > 20, "{cuts}");
    server.stop().await;
}

#[tokio::test]
async fn options_leave_passages_out_and_say_so() {
    let server = Scripted::default().serve().await;
    let (ranking, empty) = (v1::LeftOutReason::Ranking, v1::LeftOutReason::Empty);
    let one = with(|ranking| ranking.top_n = 1);
    let built = build(&server, one.clone()).await.unwrap();
    check(&one, &built);
    assert_eq!(indices(&built), [3]);
    assert_eq!(left_out(&built)[0], (0, ranking, None));
    assert!(left_out(&built).contains(&(6, v1::LeftOutReason::Duplicate, Some(3))));
    // No passage reaches this score: an empty context is an answer.
    let none = with(|ranking| ranking.score_threshold = Some(1.0));
    let built = build(&server, none.clone()).await.unwrap();
    check(&none, &built);
    assert!(built.text.is_empty() && built.tokens == 0);
    assert!(built.warnings.iter().any(|warning| warning.contains("the context is empty")), "{:?}", built.warnings);
    assert!(left_out(&built).iter().all(|(index, reason, _)| *reason == if *index == 4 { empty } else { ranking }));
    let all = build(&server, with(|ranking| ranking.dedup = None)).await.unwrap();
    let helpful = build(&server, with(|ranking| ranking.only_helpful = true)).await.unwrap();
    let useful = all.passages.iter().filter(|passage| passage.utility > 0.0).count();
    assert!(helpful.passages.len() == useful && helpful.passages.iter().all(|passage| passage.utility > 0.0));
    let off = v1::Dedup { mode: v1::DedupMode::Off.into(), similarity: None };
    let copies = build(&server, with(|ranking| ranking.dedup = Some(off))).await.unwrap();
    assert_eq!(copies.passages.len(), 6);
    let last = v1::ContextOrder::Reverse.into();
    let reversed = build(&server, with(|ranking| ranking.context_order = last)).await.unwrap();
    assert_eq!(indices(&reversed), indices(&all).into_iter().rev().collect::<Vec<_>>());
    assert!(reversed.text.ends_with("question question of the 東京 town"));
    server.stop().await;
}

#[tokio::test]
async fn a_source_is_bounded() {
    let server = Scripted::default().serve().await;
    let titled = |ranking: &mut v1::RerankRequest| {
        for (index, title) in [(0, "A"), (1, "A"), (2, "A"), (5, "B")] {
            ranking.passages[index].title = title.into();
        }
    };
    let asked = v1::BuildContextRequest { max_per_source: 1, ..with(titled) };
    let built = build(&server, asked.clone()).await.unwrap();
    check(&asked, &built);
    let of_a = built.passages.iter().filter(|passage| [0, 1, 2].contains(&passage.original_index)).count();
    assert_eq!(of_a, 1);
    let source = v1::LeftOutReason::Source;
    assert_eq!(built.left_out.iter().filter(|passage| passage.reason() == source).count(), 2, "{:?}", left_out(&built));
    assert!(built.text.contains("] A\n"), "{}", built.text);
    server.stop().await;
}

#[tokio::test]
async fn passages_are_compressed_if_they_do_not_all_fit() {
    let server = Scripted::default().serve().await;
    let compression = v1::Compression { unit: v1::CompressionUnit::Token.into(), ..v1::Compression::default() };
    let asked = |most| {
        let mut asked = with(|ranking| ranking.compression = Some(compression));
        asked.max_tokens = most;
        asked
    };
    let whole = build(&server, asked(1_000)).await.unwrap();
    assert!(whole.passages.iter().all(|passage| !passage.compressed), "everything fits");
    let short = build(&server, asked(60)).await.unwrap();
    check(&asked(60), &short);
    assert!(short.passages.iter().any(|passage| passage.compressed), "{}", short.text);
    assert!(short.warnings.iter().all(|warning| !warning.contains("compression")), "{:?}", short.warnings);
    let same = v1::Compression { ratio: Some(1.0), ..compression };
    let mut unused = with(|ranking| ranking.compression = Some(same));
    unused.max_tokens = 60;
    let unused = build(&server, unused).await.unwrap();
    assert!(
        unused.warnings.iter().any(|warning| warning.contains("compression was not used")),
        "{:?}",
        unused.warnings
    );
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_with_its_field() {
    let server = Scripted::default().serve().await;
    let dedup = |mode: v1::DedupMode, similarity| v1::Dedup { mode: mode.into(), similarity };
    let ok = request(100);
    let rows = [
        (v1::BuildContextRequest { request: None, ..ok.clone() }, "request"),
        (v1::BuildContextRequest { template: "{text} {".into(), ..ok.clone() }, "template"),
        (v1::BuildContextRequest { template: "no text".into(), ..ok.clone() }, "template"),
        (v1::BuildContextRequest { separator: Some("x".repeat(1_001)), ..ok.clone() }, "separator"),
        (v1::BuildContextRequest { max_characters: 5, ..ok.clone() }, "max_characters"),
        (v1::BuildContextRequest { tokenizer: "other".into(), ..ok.clone() }, "tokenizer"),
        (with(|ranking| ranking.query = " ".into()), "request.query"),
        (with(|ranking| ranking.passages.clear()), "request.passages"),
        (with(|ranking| ranking.passages[2].retriever_score = Some(f64::NAN)), "request.passages[2].retriever_score"),
        (with(|ranking| ranking.context_order = 99), "request.context_order"),
        (with(|ranking| ranking.utility = Some(v1::InlineUtility::default())), "request.utility"),
        (with(|ranking| ranking.dedup = Some(dedup(v1::DedupMode::PushDown, None))), "request.dedup.mode"),
        (with(|ranking| ranking.dedup = Some(dedup(v1::DedupMode::OnePlace, Some(0.0)))), "request.dedup.similarity"),
        (with(|ranking| ranking.dedup = Some(v1::Dedup { mode: 9, similarity: None })), "request.dedup.mode"),
    ];
    for (asked, field) in rows {
        let status = build(&server, asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    let little = build(&server, with(|ranking| ranking.token_budget = 3)).await.unwrap_err();
    assert_eq!(little.code(), Code::ResourceExhausted);
    server.stop().await;
}

/// The reader may be another model than the server's generator.
#[tokio::test]
async fn a_stated_tokenizer_counts() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let find = |name: &str| -> Result<engine::models::CountTokens, String> {
        if name == "words" {
            Ok(Arc::new(|text| text.split_whitespace().count()))
        } else {
            Err("is none of: words".into())
        }
    };
    let models = engine.models().clone().with_tokenizers(Arc::new(find));
    let engine = engine::Engine::new(models, *engine.limits());
    let server = common::serve(engine, observed, queue_length).await;
    let by = |tokenizer: &str| v1::BuildContextRequest { tokenizer: tokenizer.into(), ..request(8) };
    let built = build(&server, by("words")).await.unwrap();
    assert_eq!(built.text, "[1] question question of the 東京 town");
    assert_eq!((built.tokens, built.reader.as_str()), (7, "words"));
    let status = build(&server, by("../words")).await.unwrap_err();
    assert!(status.message().contains("\"../words\" is none of: words"), "{status}");
    assert_eq!(fields(&status), ["tokenizer"]);
    server.stop().await;
}

#[tokio::test]
async fn near_duplicates_share_a_place_or_come_last() {
    let server = Scripted::default().serve().await;
    let rank = |mode: v1::DedupMode, similarity: Option<f64>, top_n: u32| {
        let dedup = Some(v1::Dedup { mode: mode.into(), similarity });
        let method = v1::Method::QueryGeneration.into();
        let asked = v1::RerankRequest { dedup, top_n, method, ..wire("question", &TEXTS) };
        let server = &server;
        async move {
            let answer = server.client().await.rerank(asked).await.unwrap().into_inner();
            assert!(answer.results.iter().enumerate().all(|(rank, result)| result.rank as usize == rank));
            let found = answer.results.iter().map(|result| (result.original_index, result.duplicates.clone()));
            found.collect::<Vec<(u32, Vec<u32>)>>()
        }
    };
    let shared = rank(v1::DedupMode::OnePlace, None, 0).await;
    assert_eq!(shared[..2], [(3, vec![6]), (1, vec![5])]);
    let order: Vec<u32> = shared.iter().map(|(index, _)| *index).collect();
    assert_eq!(order.len(), 5);
    assert_eq!(order[4], 4, "the blank passage");
    assert_eq!(rank(v1::DedupMode::Unspecified, None, 2).await, shared[..2], "top_n counts places");
    let pushed = rank(v1::DedupMode::PushDown, None, 0).await;
    assert_eq!(pushed[..4], shared[..4]);
    assert_eq!(pushed[4..].iter().map(|(index, _)| *index).collect::<Vec<_>>(), [6, 5, 4]);
    let kept = rank(v1::DedupMode::Off, None, 0).await;
    assert!(kept.len() == 7 && kept.iter().all(|(_, duplicates)| duplicates.is_empty()));
    server.stop().await;
}
