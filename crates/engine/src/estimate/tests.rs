//! Sizes of requests by hand, which results the estimate learns from, and bounds.

use super::*;
use crate::methods;
use crate::types::{Inline, PromptPrefix, Scheme};

fn request(passages: usize, bytes: usize) -> RerankRequest {
    let passage = Passage { text: "x".repeat(bytes), ..Passage::default() };
    RerankRequest { query: "who?".into(), passages: vec![passage; passages], ..RerankRequest::default() }
}

fn learn(estimator: &Estimator, size: &Size, tokens: usize) {
    estimator.learn(size.class, size.bytes, tokens);
}

#[test]
fn an_estimate_follows_earlier_requests_of_its_method() {
    let estimator = Estimator::default();
    let size = Size::of_rerank(&request(4, 400), 1_000_000);
    assert_eq!((size.bytes, size.kind), (4 * 400 + 4 * 132, Kind::Reads));
    assert_eq!(size.tokens(&estimator), 532, "a quarter of the bytes");
    learn(&estimator, &size, 1_064);
    assert_eq!(size.tokens(&estimator), 1_064);
    assert_eq!(Size::of_rerank(&request(4, 800), 1_000_000).tokens(&estimator), 1_864, "half of its bytes");
    assert_eq!(Size::of_rerank(&request(40, 400), 1_000_000).tokens(&estimator), 10_640, "another number of passages");
    let method = |method| RerankRequest { method: methods::find(method), ..request(4, 400) };
    let other = Size::of_rerank(&method("pairwise"), 1_000_000);
    assert_eq!(other.tokens(&estimator), 532, "another method is not concerned");
    let draws = |name| Size::of_rerank(&method(name), 1_000_000).kind;
    assert_eq!((draws("pairwise"), draws("listwise"), draws("leave-one-out")), (Kind::Reads, Kind::Draws, Kind::Draws));
}

/// The orders multiplied the estimate of methods that ignore them.
#[test]
fn orders_count_for_moi_alone() {
    let of = |method: &str, orders: Option<usize>| {
        let mut request = request(4, 400);
        request.method = methods::find(method);
        request.moi.orders = orders;
        let size = Size::of_ranking(&request, usize::MAX);
        (size.bytes, size.class)
    };
    assert_eq!(of("query-generation", Some(1_000)), of("query-generation", None));
    assert!(of("moi", Some(1_000)).0 > 100 * of("moi", None).0);
}

/// None of 64 contexts was counted, but samples that are not drawn were.
#[test]
fn an_evaluation_counts_its_contexts_and_what_it_draws() {
    let passages = request(4, 400).passages;
    let rankings = vec![vec![0, 1], vec![1, 0], vec![0, 1], vec![2]];
    let plain = EvaluateRequest { question: "who?".into(), passages, rankings, ..EvaluateRequest::default() };
    let size = |request: &EvaluateRequest| Size::of_evaluation(request, 1_000_000);
    assert_eq!(size(&plain).bytes, 4 * (400 + 132));
    let whole = EvaluateRequest { end_to_end: true, ..plain.clone() };
    assert_eq!(size(&whole).bytes - size(&plain).bytes, 2 * (800 + 132) + 400 + 132, "equal contexts are one");
    let answers = EvaluateRequest { label_passages: false, ..whole.clone() };
    assert_eq!(size(&answers).bytes, size(&whole).bytes - size(&plain).bytes, "no passage is read by itself");
    let annotators = vec![Annotator::SeperSoft];
    let sampling = SampleOptions { samples: Some(2), max_tokens: Some(3), ..SampleOptions::default() };
    let drawn = EvaluateRequest { annotators, sampling, ..plain.clone() };
    assert_eq!(size(&drawn).bytes - size(&plain).bytes, 4 * 2 * 3 * BYTES_PER_TOKEN);
    assert_ne!(size(&drawn).class, size(&plain).class, "they teach others of their kind only");
}

/// A bound of the request was not counted: passages of samples were whole, and evaluations had no budget.
#[test]
fn bounds_of_a_request_bound_its_estimate() {
    let passages = request(2, 100_000).passages;
    let contexts = vec![vec![0], vec![1]];
    let sampling =
        BeliefRequest { passages: passages.clone(), contexts, passage_tokens: Some(64), ..Default::default() };
    let drawn = 2 * (FRAME + grown(&sampling.options));
    assert_eq!(Size::of_samples(&sampling, usize::MAX).bytes, drawn + 2 * 64 * BYTES_PER_TOKEN);
    let evaluation = EvaluateRequest { passages, token_budget: Some(77), ..EvaluateRequest::default() };
    assert_eq!(Size::of_evaluation(&evaluation, usize::MAX).tokens(&Estimator::default()), 77);
}

/// The returned passages are evaluated once or twice more.
#[test]
fn a_compression_counts_what_is_returned() {
    let plain = Size::of_rerank(&request(4, 400), 1_000_000);
    let with = |method, top_n| {
        let compression = Some(Compression::by(method));
        Size::of_rerank(&RerankRequest { top_n, compression, ..request(4, 400) }, 1_000_000)
    };
    assert_eq!(with(CompressionMethod::SelectiveContext, None).bytes - plain.bytes, 4 * 400 + FRAME);
    assert_eq!(with(CompressionMethod::LongLlmLingua, Some(2)).bytes - plain.bytes, 2 * (2 * 400 + FRAME));
    assert_ne!(with(CompressionMethod::LongLlmLingua, None).class, plain.class, "they teach others of their kind only");
    let compression = Some(Compression { ratio: Some(1.0), ..Compression::by(CompressionMethod::LongLlmLingua) });
    let whole = Size::of_rerank(&RerankRequest { compression, ..request(4, 400) }, 1_000_000);
    assert_eq!(whole, plain, "a ratio of 1 reads nothing");
}

#[test]
fn a_callers_opening_counts_once() {
    let prefix = PromptPrefix { instruction: "x".repeat(1_000), ..PromptPrefix::default() };
    let own = RerankRequest { prefix, ..request(4, 400) };
    let (own, built_in) = (Size::of_rerank(&own, 1_000_000), Size::of_rerank(&request(4, 400), 1_000_000));
    assert_eq!(own.bytes, built_in.bytes + 1_000);
    assert_ne!(own.class, built_in.class, "requests that reuse an opening teach each other");
}

#[test]
fn requests_with_different_options_do_not_teach_each_other() {
    let prefix = PromptPrefix { instruction: "x".repeat(1_000), ..PromptPrefix::default() };
    let opened = RerankRequest { prefix: prefix.clone(), ..request(4, 400) };
    let measured = RerankRequest { inline: Some(Inline::default()), ..request(4, 400) };
    let mut ordered = request(4, 400);
    ordered.moi.orders = Some(3);
    let both = RerankRequest { prefix, ..measured.clone() };
    let (mut random, mut deep) = (request(4, 400), request(4, 400));
    random.moi.scheme = Some(Scheme::Random);
    deep.moi.depth = Some(4);
    let sizes =
        [request(4, 400), opened, measured, ordered, both, random, deep].map(|one| Size::of_rerank(&one, 1_000_000));
    let classes: std::collections::BTreeSet<Class> = sizes.iter().map(|size| size.class).collect();
    assert_eq!(classes.len(), sizes.len());
}

#[test]
fn the_answers_that_a_method_draws_count() {
    let method = |name| RerankRequest { method: methods::find(name), ..request(4, 400) };
    let (drawing, scoring) = (method("semantic-utility"), method("query-generation"));
    let bytes = |request: &RerankRequest| Size::of_rerank(request, usize::MAX).bytes;
    // Ten answers of 64 tokens in six contexts: none, all, and each of four passages.
    assert_eq!(bytes(&drawing) - bytes(&scoring), 10 * 6 * 64 * BYTES_PER_TOKEN);
}

#[test]
fn an_estimate_is_bounded_whatever_the_shape() {
    let tokens = |request: &RerankRequest, limit| Size::of_rerank(request, limit).tokens(&Estimator::default());
    let hostile = request(20, 100_000);
    assert_eq!(tokens(&hostile, 5_000), 5_000, "the limit of a request");
    let mut cut = RerankRequest { passage_tokens: Some(64), ..hostile };
    assert_eq!(Size::of_rerank(&cut, usize::MAX).bytes, 20 * (256 + 132));
    cut.token_budget = Some(77);
    assert_eq!(tokens(&cut, usize::MAX), 77);
    cut.moi.orders = Some(usize::MAX);
    cut.token_budget = None;
    assert_eq!(Size::of_rerank(&cut, usize::MAX).bytes, usize::MAX, "it does not overflow");
    assert_eq!(tokens(&RerankRequest::default(), 0), 1);
}
