//! Bounds of a compression, over the real channel: cut passages, budgets, and requests that read nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use crate::compression::{QUERY, TEXTS, ask, compressed, lingua, request, selective};
use common::{Running, Scripted, wire};
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_types::StatusExt;

/// Tokens that a request needs, from its refusal.
fn tokens_needed(status: &tonic::Status) -> u64 {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let violation = &status.get_details_quota_failure().unwrap().violations[0];
    assert_eq!(violation.subject, "limits.tokens_per_request");
    violation.description.split(' ').next().unwrap().parse().unwrap()
}

/// A third of each passage is read, and the ratio keeps half of that third.
#[tokio::test]
async fn a_ratio_is_a_share_of_what_is_read() {
    let server = Scripted::default().serve().await;
    let long = TEXTS.map(|text| [text; 3].join(" "));
    let texts: Vec<&str> = long.iter().map(String::as_str).collect();
    let truncation = Some(v1::Truncation { max_passage_tokens: 100, ..v1::Truncation::default() });
    let unit = v1::CompressionUnit::Token.into();
    for base in [selective(0.5), lingua(0.5)] {
        let asked = v1::RerankRequest { truncation, ..request(&texts, v1::Compression { unit, ..base }) };
        let report = ask(&server, asked).await.compression.unwrap();
        // 89 bytes of each text are read, after "Document:" and before two line breaks.
        assert!((100..=134 + 27).contains(&report.tokens_after), "{report:?}");
        assert!(report.tokens_before > 700, "{report:?}");
        for passage in &report.passages {
            let read = &texts[passage.original_index as usize][..89];
            let words: Vec<&str> = read.split(' ').collect();
            assert!(passage.compressed_text.split(' ').all(|word| word.is_empty() || words.contains(&word)), "{read}");
        }
    }
    // The formatting of the prompt leaves no room for a token of text, so nothing is read and nothing is left.
    let truncation = Some(v1::Truncation { max_passage_tokens: 1, ..v1::Truncation::default() });
    for base in [selective(0.5), lingua(0.5)] {
        let answer = ask(&server, v1::RerankRequest { truncation, ..request(&texts, base) }).await;
        assert!(answer.compression.unwrap().passages.iter().all(|passage| passage.dropped));
        assert!(answer.warnings.iter().any(|warning| warning == "compression dropped every passage"));
    }
    server.stop().await;
}

/// A ratio of 1 or a target of all tokens needs no generator, whatever the size and the budget.
#[tokio::test]
async fn compressions_that_read_nothing_need_no_room_and_no_budget() {
    let server = Scripted::default().serve().await;
    let long = "water over the weir ".repeat(400);
    let before = server.observed.tokens.load(Ordering::SeqCst);
    let off = v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 };
    for compression in [
        selective(1.0),
        lingua(1.0),
        v1::Compression { target_tokens: 100_000, ..v1::Compression::default() },
        v1::Compression { target_tokens: 100_000, ratio: None, ..selective(1.0) },
    ] {
        let asked =
            v1::RerankRequest { token_budget: 1, truncation: Some(off), ..request(&[&long, TEXTS[0]], compression) };
        let report = ask(&server, asked).await.compression.unwrap();
        assert_eq!((report.passages[0].compressed_text.as_str(), report.tokens_evaluated), (long.as_str(), 0));
    }
    assert_eq!(server.observed.tokens.load(Ordering::SeqCst), before);
    server.stop().await;
}

/// The least token budget of a request.
async fn least(server: &Running, query: &str, compression: v1::Compression) -> u64 {
    let asked = v1::RerankRequest { query: query.into(), token_budget: 1, ..request(&TEXTS, compression) };
    tokens_needed(&server.client().await.rerank(asked).await.unwrap_err())
}

/// Selective-Context has no query in its prompts, so any query costs and keeps the same.
#[tokio::test]
async fn selective_context_does_not_pay_for_the_query() {
    let server = Scripted::default().serve().await;
    let long = QUERY.repeat(10);
    assert_eq!(least(&server, &long, selective(0.5)).await, least(&server, QUERY, selective(0.5)).await);
    assert_eq!(
        least(&server, &long, lingua(0.5)).await,
        least(&server, QUERY, lingua(0.5)).await + 9 * QUERY.len() as u64
    );
    server.stop().await;
}

#[tokio::test]
async fn something_of_the_best_passage_stays() {
    let server = Scripted::default().serve().await;
    let report = compressed(&server, &TEXTS, lingua(1e-6)).await;
    assert!(!report.passages[0].dropped && report.tokens_after > 0, "{report:?}");
    server.stop().await;
}

/// A method without the generator takes only the time of its compression.
#[tokio::test]
async fn a_latency_budget_bounds_a_compression_alone() {
    let server = Scripted { delay: Duration::from_micros(20), ..Scripted::default() }.serve().await;
    let within =
        |milliseconds| v1::RerankRequest { latency_budget_ms: Some(milliseconds), ..request(&TEXTS, lingua(0.5)) };
    // The first request measures the speed.
    ask(&server, request(&TEXTS, selective(0.5))).await;
    tokens_needed(&server.client().await.rerank(within(1e-6)).await.unwrap_err());
    assert!(ask(&server, within(1e9)).await.compression.is_some());
    server.stop().await;
}

#[tokio::test]
async fn streams_compress_as_single_requests_do() {
    use v1::rerank_stream_response::Outcome;
    let server = Scripted::default().serve().await;
    let asked = [("good", lingua(0.5)), ("bad", lingua(2.0)), ("other", selective(0.5))];
    let requests: Vec<v1::RerankStreamRequest> = asked
        .iter()
        .map(|(id, options)| v1::RerankStreamRequest {
            request_id: (*id).into(),
            request: Some(request(&TEXTS, *options)),
        })
        .collect();
    let mut answers = server.client().await.rerank_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut seen = 0;
    while let Some(answer) = answers.message().await.unwrap() {
        seen += 1;
        let (_, options) = asked.iter().find(|(id, _)| *id == answer.request_id).unwrap();
        match answer.outcome.unwrap() {
            Outcome::Response(response) => {
                let streamed = response.compression.unwrap();
                let single = compressed(&server, &TEXTS, *options).await;
                assert_eq!((streamed.passages, streamed.unit), (single.passages, single.unit));
            }
            Outcome::Error(error) => {
                assert_eq!(answer.request_id, "bad");
                assert!(error.message.contains("compression.ratio"), "{}", error.message);
            }
        }
    }
    assert_eq!(seen, 3);
    server.stop().await;
}

/// The ranking reads the logits of the passages, so the compression reads them only after the query, or not at all. It
/// keeps the same words as a compression that reads everything itself.
#[tokio::test]
async fn the_ranking_scores_the_passages_for_the_compression() {
    use v1::Method::{BayesSaliency, Cascade, ListwiseBayes, Moi, QueryGeneration};
    for (method, base) in [QueryGeneration, Cascade, Moi, BayesSaliency, ListwiseBayes]
        .into_iter()
        .flat_map(|method| [(method, selective(0.5)), (method, lingua(0.5))])
    {
        let ranked = v1::RerankRequest { method: method.into(), ..request(&TEXTS, base) };
        // Separate servers share no cache.
        let server = Scripted::default().serve().await;
        let together = ask(&server, ranked.clone()).await;
        server.stop().await;
        let server = Scripted::default().serve().await;
        let alone = ask(&server, v1::RerankRequest { compression: None, ..ranked }).await;
        server.stop().await;
        let utilities = |answer: &v1::RerankResponse| answer.results.clone();
        assert_eq!(
            utilities(&together),
            utilities(&alone),
            "{method:?}: the compression changes nothing for the method"
        );
        let order: Vec<&str> = together.results.iter().map(|one| TEXTS[one.original_index as usize]).collect();
        let server = Scripted::default().serve().await;
        let apart = compressed(&server, &order, base).await;
        server.stop().await;
        let report = together.compression.unwrap();
        let mut texts = vec![String::new(); TEXTS.len()];
        for passage in &report.passages {
            texts[passage.original_index as usize] = passage.compressed_text.clone();
        }
        let left: Vec<&String> = together.results.iter().map(|one| &texts[one.original_index as usize]).collect();
        let expected: Vec<&String> = apart.passages.iter().map(|passage| &passage.compressed_text).collect();
        assert_eq!(left, expected, "{method:?}");
        assert!(report.tokens_evaluated + report.tokens_before <= apart.tokens_evaluated, "{method:?}");
        if report.method() == v1::CompressionMethod::SelectiveContext {
            assert_eq!(report.tokens_evaluated, 0, "{method:?}");
        }
    }
}

/// If few of many passages are returned, reading them again is cheaper than logits of all. They are also read again if
/// all are cached without scores.
#[tokio::test]
async fn the_ranking_scores_no_passages_if_that_does_not_pay() {
    let texts: Vec<String> = (0..6).map(|number| format!("{} {number}", TEXTS[number % 3])).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let method = v1::Method::QueryGeneration.into();
    let ranked = |top_n, compression| v1::RerankRequest { method, top_n, compression, ..wire(QUERY, &texts) };
    let server = Scripted::default().serve().await;
    let few = ask(&server, ranked(1, Some(selective(0.5)))).await.compression.unwrap();
    assert!(few.tokens_evaluated >= few.tokens_before, "{few:?}");
    server.stop().await;
    let server = Scripted::default().serve().await;
    let all = ask(&server, ranked(0, Some(selective(0.5)))).await.compression.unwrap();
    assert_eq!(all.tokens_evaluated, 0);
    server.stop().await;
    let warm =
        prefix_scheduler::warm::Options { memory_bytes: 10_000_000, ..prefix_scheduler::warm::Options::default() };
    let server = Scripted { warm, ..Scripted::default() }.serve().await;
    ask(&server, ranked(0, None)).await;
    let kept = ask(&server, ranked(0, Some(selective(0.5)))).await;
    let report = kept.compression.unwrap();
    assert!(report.tokens_evaluated >= report.tokens_before, "{report:?}");
    assert!(kept.usage.unwrap().cached_tokens >= report.tokens_before, "the ranking found its passages");
    // Now the cache holds their scores, too.
    assert_eq!(ask(&server, ranked(0, Some(selective(0.5)))).await.compression.unwrap().tokens_evaluated, 0);
    server.stop().await;
    // A cache entry with scores also serves a ranking without compression.
    let warm =
        prefix_scheduler::warm::Options { memory_bytes: 10_000_000, ..prefix_scheduler::warm::Options::default() };
    let server = Scripted { warm, ..Scripted::default() }.serve().await;
    let first = ask(&server, ranked(0, Some(selective(0.5)))).await;
    let plain = ask(&server, ranked(0, None)).await;
    assert_eq!(plain.results, first.results);
    assert!(plain.usage.unwrap().cached_tokens >= first.compression.unwrap().tokens_before, "{plain:?}");
    server.stop().await;
}

/// Scoring for the compression does not appear in the events: interim orders and the answer equal those without a
/// compression.
#[tokio::test]
async fn a_watched_ranking_does_not_see_scores_for_the_compression() {
    let observed = |compression| async move {
        // Interim orders are computed during the scoring, which must take some time.
        let server = Scripted { delay: Duration::from_micros(200), ..Scripted::default() }.serve().await;
        let method = v1::Method::QueryGeneration.into();
        let texts: Vec<String> = (0..12).map(|number| format!("{} {number}", TEXTS[number % 3])).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let request = v1::RerankRequest { method, compression, ..wire(QUERY, &texts) };
        let watched = v1::WatchRerankRequest { request: Some(request) };
        let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
        let (mut last, mut interim) = (None, Vec::new());
        while let Some(event) = stream.next().await {
            match event.unwrap().event.unwrap() {
                Event::Final(answer) => last = Some(answer),
                Event::Interim(order) => interim.push(order.observations),
                _ => {}
            }
        }
        server.stop().await;
        (last.unwrap(), interim)
    };
    let ((plain, _), (compressed, interim)) = (observed(None).await, observed(Some(selective(0.5))).await);
    assert_eq!(plain.results, compressed.results);
    assert_eq!(compressed.compression.unwrap().tokens_evaluated, 0);
    assert!(interim.iter().all(|observations| *observations <= 13), "a prompt counts once: {interim:?}");
}
