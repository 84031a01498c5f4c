//! Log-likelihoods of references as answers, over the real channel, on a generator whose log-probabilities the test
//! computes itself.

use std::time::Duration;

use crate::common;
use common::scripted::overlap_script;
use common::{Running, Scripted, wire};
use engine::types::Limits;
use prefix_scheduler::plan::Token;
use protocol::v1;
use protocol::v1::utility_service_client::UtilityServiceClient;
use tonic::Code;

const PASSAGES: [&str; 2] = ["aaaa bbbb", "cccc dddd"];
const REFERENCES: [&str; 2] = ["aaaa", "  cccc bbbb "];

async fn server() -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

async fn measure(server: &Running, request: v1::MeasureUtilityRequest) -> v1::MeasureUtilityResponse {
    let mut client = UtilityServiceClient::new(server.channel().await);
    client.measure_utility(request).await.unwrap().into_inner()
}

fn request(score_references: bool) -> v1::MeasureUtilityRequest {
    v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: REFERENCES.map(str::to_owned).to_vec(),
        measure_list: true,
        measure_each: true,
        sampling: Some(v1::SamplingOptions { samples: 2, max_tokens: 6, ..v1::SamplingOptions::default() }),
        return_answers: true,
        score_references,
        ..v1::MeasureUtilityRequest::default()
    }
}

/// The number of needed tokens in a refusal.
fn said(status: &tonic::Status) -> usize {
    let number = status.message().split(' ').find_map(|word| word.parse::<usize>().ok());
    number.unwrap_or_else(|| panic!("{}", status.message()))
}

/// log P of each reference after a prompt, by the script itself.
fn expected(prompt: &str) -> Vec<f64> {
    let script = overlap_script();
    let score = |reference: &&str| {
        let mut history: Vec<Token> = std::iter::once(256).chain(prompt.bytes().map(Token::from)).collect();
        let mut sum = 0.0;
        for token in format!(" {}", reference.trim()).bytes().map(Token::from) {
            sum += script(&history, token);
            history.push(token);
        }
        sum
    };
    REFERENCES.iter().map(score).collect()
}

fn near(found: &[f64], prompt: &str) {
    let expected = expected(prompt);
    assert_eq!(found.len(), expected.len(), "{prompt}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-9, "{prompt}: {found}, expected {expected}");
    }
}

#[tokio::test]
async fn references_are_scored_in_every_context_with_the_samples() {
    let server = server().await;
    // The first request has no scores: its cached context-free answers must not replace scored ones.
    let plain = measure(&server, request(false)).await;
    assert!(plain.reference_log_likelihoods_without_context.is_empty());
    assert!(plain.utilities.iter().all(|utility| utility.reference_log_likelihoods.is_empty()));
    let scored = measure(&server, request(true)).await;
    let with = |passages: &[&str]| {
        let passages = passages.iter().map(|passage| format!("Document: {passage}\n\n")).collect::<Vec<_>>().concat();
        format!("Answer the question with a few words from the documents.\n\n{passages}Question: which\nShort answer:")
    };
    let without = "Answer the question with a few words.\n\nQuestion: which\nShort answer:";
    near(&scored.reference_log_likelihoods_without_context, without);
    near(&scored.utilities[0].reference_log_likelihoods, &with(&PASSAGES));
    for (index, passage) in PASSAGES.iter().enumerate() {
        near(&scored.utilities[index + 1].reference_log_likelihoods, &with(&[passage]));
    }
    for (plain, scored) in plain.utilities.iter().zip(&scored.utilities) {
        assert_eq!(plain.belief, scored.belief, "the samples are the same");
    }
    let usage = scored.usage.unwrap();
    assert!(usage.tokens < usage.naive_tokens, "{usage:?}");
    // The second time the context-free scores come from the cache.
    let again = measure(&server, request(true)).await;
    assert_eq!(again.utilities, scored.utilities);
    assert_eq!(again.reference_log_likelihoods_without_context, scored.reference_log_likelihoods_without_context);
    server.stop().await;
}

#[tokio::test]
async fn without_references_there_are_no_scores_and_their_tokens_count() {
    let server = server().await;
    let none =
        measure(&server, v1::MeasureUtilityRequest { question: "who".into(), references: Vec::new(), ..request(true) })
            .await;
    assert!(none.reference_log_likelihoods_without_context.is_empty());
    let needed = |score_references: bool| {
        let server = &server;
        async move {
            let bounded = v1::MeasureUtilityRequest { token_budget: 1, ..request(score_references) };
            let mut client = UtilityServiceClient::new(server.channel().await);
            let status = client.measure_utility(bounded).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            said(&status)
        }
    };
    let (without, with) = (needed(false).await, needed(true).await);
    // Four contexts. The last token of a reference is predicted and never read.
    let read: usize = REFERENCES.iter().map(|reference| reference.trim().len()).sum();
    assert_eq!(with - without, 4 * read, "{without} and {with}");
    server.stop().await;
}

/// Laying out 64 references of 16 KiB in a thousand contexts takes many seconds, so samples and the references of
/// distinct contexts are counted against the budget first.
#[tokio::test]
async fn many_long_references_are_refused_before_they_are_laid_out() {
    let server = server().await;
    let references: Vec<String> = (0..64).map(|number| format!("{number} {}", "a b ".repeat(200))).collect();
    // The list, each passage and none: equal contexts count once.
    let least = 4 * references.iter().map(|reference| reference.trim().len()).sum::<usize>();
    let subsets = vec![v1::PassageSubset { indices: vec![0] }; 15];
    let hostile = v1::MeasureUtilityRequest { references, subsets, ..request(true) };
    let mut client = UtilityServiceClient::new(server.channel().await);
    let status = client.measure_utility(hostile).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let needed = said(&status);
    assert!(needed > least && needed < least + 10_000, "{needed}, {least} by the references: {status}");
    server.stop().await;
}

#[tokio::test]
async fn a_reference_that_does_not_fit_is_named() {
    let limits = Limits { query_bytes: 20_000, ..common::LIMITS };
    let (engine, observed, queue_length) = Scripted { limits, ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    let server = common::serve(engine, observed, queue_length).await;
    let mut client = UtilityServiceClient::new(server.channel().await);
    let long = v1::MeasureUtilityRequest { references: vec!["x".into(), "a b ".repeat(4_000)], ..request(true) };
    let status = client.measure_utility(long.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().starts_with("references[1]"), "{status}");
    // The entailment model may read a prefix of the reference; only a score needs all of it.
    client.measure_utility(v1::MeasureUtilityRequest { score_references: false, ..long }).await.unwrap();
    server.stop().await;
}
