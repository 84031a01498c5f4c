//! Compression of the returned passages over the real channel, on a generator whose log-probabilities the test computes itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::scripted::{ByteTokenizer, overlap_script};
use common::{Running, Scripted, wire};
use prefix_scheduler::model::Tokenizer;
use prefix_scheduler::plan::Token;
use protocol::v1;
use tonic::{Code, Request};
use tonic_types::StatusExt;

pub const QUERY: &str = "which river drove the looms";
pub const TEXTS: [&str; 3] = [
    "the looms of the town were driven by water from a river led over the weir above it",
    "rye flour absorbs more water than wheat and a long rest keeps the crust from tearing",
    "bring out knights before bishops and castle early in the opening of the game",
];

pub fn selective(ratio: f64) -> v1::Compression {
    v1::Compression {
        method: v1::CompressionMethod::SelectiveContext.into(),
        ratio: Some(ratio),
        ..v1::Compression::default()
    }
}

pub fn lingua(ratio: f64) -> v1::Compression {
    v1::Compression { ratio: Some(ratio), ..v1::Compression::default() }
}

pub fn request(texts: &[&str], compression: v1::Compression) -> v1::RerankRequest {
    let method = v1::Method::Retriever.into();
    v1::RerankRequest { method, compression: Some(compression), ..wire(QUERY, texts) }
}

pub async fn ask(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

pub async fn compressed(server: &Running, texts: &[&str], compression: v1::Compression) -> v1::CompressionReport {
    ask(server, request(texts, compression)).await.compression.unwrap()
}

fn tokens(text: &str) -> Vec<Token> {
    ByteTokenizer::default().text(text)
}

/// Each word of a text with its length and its mean of `value`, both including the space before it.
fn words(text: &str, value: impl Fn(usize) -> f64) -> Vec<(&str, usize, f64)> {
    let (mut at, mut words) = (0, Vec::new());
    for word in text.split(' ') {
        let length = word.len() + 1;
        let mean = (at..at + length).map(&value).sum::<f64>() / length as f64;
        words.push((word, length, mean));
        at += length;
    }
    words
}

/// Log-probabilities of a passage's text after the prefix `before`, by the script itself.
fn log_probabilities(before: &str, text: &str) -> Vec<f64> {
    let script = overlap_script();
    let mut history = [vec![256], tokens(before), tokens("Document:")].concat();
    let of = |token: Token| {
        let score = script(&history, token);
        history.push(token);
        score
    };
    tokens(&format!(" {text}")).into_iter().map(of).collect()
}

const INSTRUCTION: &str = "Read the documents and write the question that they answer.\n\n";

#[tokio::test]
async fn selective_context_keeps_surprising_words() {
    let server = Scripted::default().serve().await;
    let alone = log_probabilities(INSTRUCTION, TEXTS[0]);
    let words = words(TEXTS[0], |at| -alone[at]);
    let mut by_token: Vec<f64> = words.iter().flat_map(|(_, length, mean)| vec![*mean; *length]).collect();
    by_token.sort_by(f64::total_cmp);
    for ratio in [0.25, 0.5, 0.8] {
        let rank = (by_token.len() - 1) as f64 * (1.0 - ratio);
        let (low, high) = (by_token[rank.floor() as usize], by_token[rank.ceil() as usize]);
        let threshold = low + (high - low) * rank.fract();
        let expected: Vec<&str> =
            words.iter().filter(|(_, _, mean)| *mean >= threshold).map(|(word, ..)| *word).collect();
        let unit = v1::CompressionUnit::Token.into();
        let report = compressed(&server, &TEXTS[..1], v1::Compression { unit, ..selective(ratio) }).await;
        assert_eq!(report.passages[0].compressed_text, expected.join(" "), "{ratio}");
    }
    server.stop().await;
}

#[tokio::test]
async fn long_llm_lingua_keeps_words_that_the_query_makes_likelier() {
    let server = Scripted::default().serve().await;
    let alone = log_probabilities(INSTRUCTION, TEXTS[0]);
    let asked = log_probabilities(&format!("{INSTRUCTION}Question: {QUERY}\n\n"), TEXTS[0]);
    let words = words(TEXTS[0], |at| asked[at] - alone[at]);
    for ratio in [0.25, 0.5, 0.8] {
        let budget = (ratio * alone.len() as f64).round() as usize;
        let mut order: Vec<usize> = (1..words.len()).collect();
        order.sort_by(|left, right| words[*right].2.total_cmp(&words[*left].2));
        let (mut kept, mut total) = (vec![0], words[0].1);
        for word in order {
            if total >= budget {
                break;
            }
            kept.push(word);
            total += words[word].1;
        }
        kept.sort_unstable();
        let expected: Vec<&str> = kept.into_iter().map(|word| words[word].0).collect();
        let report = compressed(&server, &TEXTS[..1], lingua(ratio)).await;
        assert_eq!(report.passages[0].compressed_text, expected.join(" "), "{ratio}");
        assert_eq!(report.method(), v1::CompressionMethod::LongLlmLingua);
        assert_eq!(report.unit(), v1::CompressionUnit::Token);
    }
    server.stop().await;
}

/// At ratio 1 texts of all kinds come back byte for byte without evaluation. Below it a subset of their words comes
/// back.
#[tokio::test]
async fn texts_of_every_kind_are_cut_between_words() {
    let texts = [
        "  Two lines.\r\n\r\nIn 1871, George Eliot paid \u{20ac}1,200.50.\t",
        "\u{5c0f}\u{8aac}\u{306f}\u{516b}\u{5dfb}\u{3067}\u{51fa}\u{7248}\u{3055}\u{308c}\u{305f}\u{3002}",
        "flags \u{1f1e9}\u{1f1ea} and \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}, e\u{301}te\u{301}",
        "x",
        "\u{1f600}",
    ];
    let server = Scripted::default().serve().await;
    for whole in [selective(1.0), lingua(1.0)] {
        let report = compressed(&server, &texts, whole).await;
        let back: Vec<&str> = report.passages.iter().map(|passage| passage.compressed_text.as_str()).collect();
        assert_eq!((back.as_slice(), report.tokens_evaluated), (&texts[..], 0));
        assert_eq!(report.tokens_before, report.tokens_after);
    }
    use v1::CompressionUnit::{Phrase, Sentence, Token};
    for unit in [Sentence, Phrase, Token] {
        for ratio in [0.1, 0.5, 0.9] {
            for base in [selective(ratio), lingua(ratio)] {
                let report = compressed(&server, &texts, v1::Compression { unit: unit.into(), ..base }).await;
                assert_eq!(report.unit(), unit);
                assert_eq!(report.passages.len(), texts.len());
                for passage in &report.passages {
                    let original: Vec<char> = texts[passage.original_index as usize].chars().collect();
                    let mut rest = original.iter();
                    let found = passage.compressed_text.chars().all(|char| rest.any(|other| *other == char));
                    assert!(found, "{:?} of {original:?}", passage.compressed_text);
                    assert_eq!(passage.dropped, passage.compressed_text.is_empty());
                    let number = passage.compressed_text.contains('1') || passage.compressed_text.contains('5');
                    let [year, sum] = ["1871", "\u{20ac}1,200.50"].map(|whole| passage.compressed_text.contains(whole));
                    assert!(!number || year || sum, "{:?}", passage.compressed_text);
                }
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn smaller_ratios_and_worse_ranks_keep_less() {
    let server = Scripted::default().serve().await;
    for base in [selective, lingua] {
        let mut before = u64::MAX;
        for ratio in [0.9, 0.7, 0.5, 0.3, 0.1] {
            let unit = v1::CompressionUnit::Token.into();
            let report = compressed(&server, &TEXTS, v1::Compression { unit, ..base(ratio) }).await;
            let target = ratio * report.tokens_before as f64;
            // A unit is a word with its space, and a token is a byte. Each passage may exceed its share by one unit.
            assert!((report.tokens_after as f64 - target).abs() <= 3.0 * 9.0, "{ratio}: {report:?}");
            assert!(report.tokens_after <= before, "{ratio}");
            before = report.tokens_after;
        }
    }
    let report =
        compressed(&server, &TEXTS, v1::Compression { target_tokens: 120, ..v1::Compression::default() }).await;
    let share =
        |rank: usize| f64::from(report.passages[rank].tokens_after) / f64::from(report.passages[rank].tokens_before);
    assert!(share(0) > share(1) && share(1) > share(2), "{report:?}");
    assert!((118..=120 + 27).contains(&report.tokens_after), "{report:?}");
    // The target of 10 tokens, plus 100, holds the first two passages.
    let tiny = compressed(&server, &TEXTS, v1::Compression { target_tokens: 10, ..v1::Compression::default() }).await;
    assert!(tiny.passages[2].dropped && tiny.passages[2].tokens_before > 0 && tiny.passages[2].tokens_after == 0);
    assert!(!tiny.passages[0].dropped);
    server.stop().await;
}

#[tokio::test]
async fn only_returned_passages_are_compressed_and_counted() {
    let server = Scripted::default().serve().await;
    let method = v1::Method::QueryGeneration.into();
    let context_order = v1::ContextOrder::Reverse.into();
    let ranked = v1::RerankRequest { method, top_n: 2, context_order, ..wire(QUERY, &TEXTS) };
    let plain = ask(&server, ranked.clone()).await;
    let both = ask(&server, v1::RerankRequest { compression: Some(lingua(0.5)), ..ranked }).await;
    assert_eq!(plain.results, both.results);
    let report = both.compression.unwrap();
    let order = both.context_order.unwrap().original_indices;
    assert_eq!(report.passages.iter().map(|passage| passage.original_index).collect::<Vec<_>>(), order);
    assert_eq!(order.len(), 2);
    assert!(plain.compression.is_none() && report.tokens_evaluated > 0);
    let used = |usage: Option<v1::Usage>| usage.unwrap().tokens;
    let (alone, together) = (used(plain.usage), used(both.usage));
    assert!(together >= report.tokens_evaluated && together <= alone + report.tokens_evaluated);
    // Nothing is returned, so nothing is compressed.
    let none = v1::RerankRequest { score_threshold: Some(1.0), ..request(&TEXTS, lingua(0.5)) };
    let report = ask(&server, none).await.compression.unwrap();
    assert_eq!((report.passages.len(), report.tokens_before, report.tokens_evaluated), (0, 0, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_passage_is_cut_to_fit_and_the_answer_says_so() {
    let server = Scripted::default().serve().await;
    let long = "water over the weir ".repeat(400);
    let answer = ask(&server, request(&[&long], selective(0.9))).await;
    let report = answer.compression.unwrap();
    assert!(answer.warnings.iter().any(|warning| warning.contains("1 passage was cut to fit before compression")));
    assert!(report.tokens_before > 7_000 && report.passages[0].tokens_after < 4_096, "{}", report.tokens_after);
    let truncation = Some(v1::Truncation { max_passage_tokens: 40, ..v1::Truncation::default() });
    let report = ask(&server, v1::RerankRequest { truncation, ..request(&TEXTS[..1], selective(0.9)) }).await;
    // 29 bytes of the text fit; the last one is the first letter of a word.
    assert_eq!(report.compression.unwrap().passages[0].compressed_text, "the looms of the town were");
    let off = Some(v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 });
    let refused = v1::RerankRequest { truncation: off, ..request(&[&long], selective(0.9)) };
    let status = server.client().await.rerank(refused).await.unwrap_err();
    assert_eq!(field(&status), "passages[0].text");
    server.stop().await;
}

fn field(status: &tonic::Status) -> String {
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    status.get_details_bad_request().map_or_else(
        || status.message().split(':').next().unwrap_or_default().to_owned(),
        |details| details.field_violations[0].field.clone(),
    )
}

#[tokio::test]
async fn bad_options_are_named() {
    let server = Scripted::default().serve().await;
    let base = v1::Compression::default;
    let cases = [
        ("compression.method", v1::Compression { method: 9, ..base() }),
        ("compression.unit", v1::Compression { unit: -1, ..base() }),
        ("compression.ratio", lingua(0.0)),
        ("compression.ratio", lingua(1.5)),
        ("compression.ratio", selective(f64::NAN)),
        ("compression.target_tokens", v1::Compression { target_tokens: 10, ..lingua(0.5) }),
        ("compression.ratio_spread", v1::Compression { ratio_spread: Some(2.0), ..base() }),
        ("compression.ratio_spread", v1::Compression { ratio_spread: Some(f64::NAN), ..base() }),
        ("compression.ratio_spread", v1::Compression { ratio_spread: Some(0.3), ..selective(0.5) }),
    ];
    for (path, compression) in cases {
        let status = server.client().await.rerank(request(&TEXTS, compression)).await.unwrap_err();
        assert_eq!(field(&status), path, "{status}");
    }
    server.stop().await;
}

/// The cost is known in advance: a budget of one token less is refused, and nothing is evaluated.
#[tokio::test]
async fn the_budget_holds_for_ranking_and_compression_together() {
    let server = Scripted::default().serve().await;
    for method in [v1::Method::Retriever, v1::Method::QueryGeneration] {
        for compression in [selective(0.5), lingua(0.5)] {
            let with = |token_budget| v1::RerankRequest {
                method: method.into(),
                token_budget,
                // All passages are read, whatever the ranking.
                ..request(&TEXTS[..2], v1::Compression { target_tokens: 0, ..compression })
            };
            let evaluated = server.observed.tokens.load(Ordering::SeqCst);
            let needed = tokens_needed(&server.client().await.rerank(with(1)).await.unwrap_err());
            let status = server.client().await.rerank(with(needed - 1)).await.unwrap_err();
            assert_eq!(tokens_needed(&status), needed);
            assert_eq!(server.observed.tokens.load(Ordering::SeqCst), evaluated, "nothing was evaluated");
            let used = ask(&server, with(needed)).await.usage.unwrap();
            assert!(used.tokens > 0 && used.tokens <= needed, "{} of {needed}", used.tokens);
        }
    }
    server.stop().await;
}

/// Tokens that a request needs, from its refusal.
fn tokens_needed(status: &tonic::Status) -> u64 {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let violation = &status.get_details_quota_failure().unwrap().violations[0];
    assert_eq!(violation.subject, "limits.tokens_per_request");
    violation.description.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_deadline_ends_it_and_frees_the_generator() {
    let server = Scripted { delay: Duration::from_millis(2), ..Scripted::default() }.serve().await;
    let long = TEXTS[0].repeat(20);
    let mut late = Request::new(request(&[&long], lingua(0.5)));
    late.set_timeout(Duration::from_millis(300));
    let status = server.client().await.rerank(late).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    let admission = server.admission.clone();
    common::wait_for("the permit to be free", move || admission.in_flight() == 0).await;
    server.stop().await;
}
