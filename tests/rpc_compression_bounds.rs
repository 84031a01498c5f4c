//! What a compression may cost and what of a text is read, over the real channel: cut passages, budgets, and what reads nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Running, Scripted, wire};
use rerankd::rpc::v1;
use tonic::Code;
use tonic_types::StatusExt;

const QUERY: &str = "which river drove the looms";
const TEXTS: [&str; 3] = [
    "the looms of the town were driven by water from a river led over the weir above it",
    "rye flour absorbs more water than wheat and a long rest keeps the crust from tearing",
    "bring out knights before bishops and castle early in the opening of the game",
];

fn selective(ratio: f64) -> v1::Compression {
    v1::Compression {
        method: v1::CompressionMethod::SelectiveContext.into(),
        ratio: Some(ratio),
        ..v1::Compression::default()
    }
}

fn lingua(ratio: f64) -> v1::Compression {
    v1::Compression { ratio: Some(ratio), ..v1::Compression::default() }
}

fn request(texts: &[&str], compression: v1::Compression) -> v1::RerankRequest {
    let method = v1::Method::Retriever.into();
    v1::RerankRequest { method, compression: Some(compression), ..wire(QUERY, texts) }
}

async fn ask(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

async fn compressed(server: &Running, texts: &[&str], compression: v1::Compression) -> v1::CompressionReport {
    ask(server, request(texts, compression)).await.compression.unwrap()
}

/// What a request needs, as its refusal says.
fn tokens_needed(status: &tonic::Status) -> u64 {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let violation = &status.get_details_quota_failure().unwrap().violations[0];
    assert_eq!(violation.subject, "limits.tokens_per_request");
    violation.description.split(' ').next().unwrap().parse().unwrap()
}

/// Passages of which a third is read: half of that is kept, and not all of it.
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
        // 89 bytes of each text are read, behind "Document:" and before two line breaks.
        assert!((100..=134 + 27).contains(&report.tokens_after), "{report:?}");
        assert!(report.tokens_before > 700, "{report:?}");
        for passage in &report.passages {
            let read = &texts[passage.original_index as usize][..89];
            let words: Vec<&str> = read.split(' ').collect();
            assert!(passage.compressed_text.split(' ').all(|word| word.is_empty() || words.contains(&word)), "{read}");
        }
    }
    // No token of a text fits beside its frame: nothing was read of it, so nothing is left.
    let truncation = Some(v1::Truncation { max_passage_tokens: 1, ..v1::Truncation::default() });
    for base in [selective(0.5), lingua(0.5)] {
        let answer = ask(&server, v1::RerankRequest { truncation, ..request(&texts, base) }).await;
        assert!(answer.compression.unwrap().passages.iter().all(|passage| passage.dropped));
        assert!(answer.warnings.iter().any(|warning| warning == "compression dropped every passage"));
    }
    server.stop().await;
}

/// A ratio of 1, and a target of all tokens, are answered without the generator, whatever the size and the budget.
#[tokio::test]
async fn what_reads_nothing_needs_no_room_and_no_budget() {
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
        let moi = Some(v1::MoiOptions { token_budget: 1, ..v1::MoiOptions::default() });
        let asked = v1::RerankRequest { moi, truncation: Some(off), ..request(&[&long, TEXTS[0]], compression) };
        let report = ask(&server, asked).await.compression.unwrap();
        assert_eq!((report.passages[0].compressed_text.as_str(), report.tokens_evaluated), (long.as_str(), 0));
    }
    assert_eq!(server.observed.tokens.load(Ordering::SeqCst), before);
    server.stop().await;
}

/// Tokens that a request must be allowed.
async fn least(server: &Running, query: &str, compression: v1::Compression) -> u64 {
    let moi = Some(v1::MoiOptions { token_budget: 1, ..v1::MoiOptions::default() });
    let asked = v1::RerankRequest { query: query.into(), moi, ..request(&TEXTS, compression) };
    tokens_needed(&server.client().await.rerank(asked).await.unwrap_err())
}

/// Without the query in its prompts, Selective-Context costs and keeps the same for any query.
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

/// A method that asks no generator has the time that its compression takes.
#[tokio::test]
async fn a_latency_budget_bounds_a_compression_alone() {
    let server = Scripted { delay: Duration::from_micros(20), ..Scripted::default() }.serve().await;
    let within =
        |milliseconds| v1::RerankRequest { latency_budget_ms: Some(milliseconds), ..request(&TEXTS, lingua(0.5)) };
    // The speed is known once something was read.
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
