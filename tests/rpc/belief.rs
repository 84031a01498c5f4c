//! Beliefs and utilities over the wire: sampling, entailment, clusters, measures, and their faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common;
use common::{Running, Scripted, wire};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::measure_utility_stream_response::Outcome;
use protocol::v1::sample_response::Event;
use protocol::v1::utility_service_client::UtilityServiceClient;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt;

const PASSAGES: [&str; 3] = ["aaaa bbbb", "cccc", "dddd aaaa"];

pub async fn server(scripted: Scripted) -> (Running, Arc<AtomicUsize>) {
    let (engine, observed, queue_length) = scripted.engine().await;
    let (engine, judged) = common::with_scripted_judge(&engine, Duration::ZERO);
    (common::serve(engine, observed, queue_length).await, judged)
}

pub async fn utilities(server: &Running) -> UtilityServiceClient<Channel> {
    UtilityServiceClient::new(server.channel().await)
}

pub async fn beliefs(server: &Running) -> BeliefServiceClient<Channel> {
    BeliefServiceClient::new(server.channel().await)
}

pub fn options(samples: u32, seed: u64) -> v1::SamplingOptions {
    v1::SamplingOptions { samples, max_tokens: 6, seed, ..v1::SamplingOptions::default() }
}

pub fn request() -> v1::MeasureUtilityRequest {
    v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["aaaa".into()],
        sampling: Some(options(4, 1)),
        return_answers: true,
        ..v1::MeasureUtilityRequest::default()
    }
}

#[tokio::test]
async fn samples_are_sent_as_they_end_and_depend_on_the_seed_alone() {
    let (server, _) = server(Scripted::default()).await;
    let ask = |seed: u64| {
        let server = &server;
        async move {
            let request = v1::SampleRequest {
                question: "which".into(),
                passages: wire("q", &PASSAGES).passages,
                sampling: Some(options(5, seed)),
                ..v1::SampleRequest::default()
            };
            let mut stream = beliefs(server).await.sample(request).await.unwrap().into_inner();
            let (mut answers, mut done) = (vec![None; 5], None);
            while let Some(event) = stream.next().await {
                assert!(done.is_none(), "nothing follows the end");
                match event.unwrap().event.unwrap() {
                    Event::Sampled(sampled) => answers[sampled.number as usize] = sampled.answer,
                    Event::Progress(progress) => assert!(progress.tokens_done <= progress.tokens_total),
                    Event::Done(end) => done = Some(end),
                }
            }
            let usage = done.unwrap().usage.unwrap();
            assert!(usage.tokens > 0 && usage.tokens < usage.naive_tokens);
            answers.into_iter().map(Option::unwrap).collect::<Vec<v1::Answer>>()
        }
    };
    let (first, again, other) = (ask(1).await, ask(1).await, ask(2).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    for answer in &first {
        let sum: f64 = answer.token_log_probabilities.iter().sum();
        assert!((sum - answer.log_likelihood).abs() < 1e-9 && !answer.token_log_probabilities.is_empty());
        assert_ne!(answer.finish_reason(), v1::FinishReason::Unspecified);
    }
    server.stop().await;
}

#[tokio::test]
async fn every_context_is_measured_from_one_plan() {
    let (server, _) = server(Scripted::default()).await;
    let all = v1::MeasureUtilityRequest {
        measure_list: true,
        measure_each: true,
        measure_prefixes: true,
        measure_leave_one_out: true,
        subsets: vec![v1::PassageSubset { indices: vec![2, 0] }, v1::PassageSubset::default()],
        ..request()
    };
    let answer = utilities(&server).await.measure_utility(all.clone()).await.unwrap().into_inner();
    let kinds: Vec<_> = answer.utilities.iter().map(|utility| (utility.kind(), utility.number)).collect();
    use v1::ContextKind::{List, Passage, Prefix, Subset, Without};
    let expected = [(List, 0), (Passage, 0), (Passage, 1), (Passage, 2), (Prefix, 1), (Prefix, 2), (Prefix, 3)];
    assert_eq!(kinds[..7], expected);
    assert_eq!(kinds[7..], [(Without, 0), (Without, 1), (Without, 2), (Subset, 0), (Subset, 1)]);
    let context_free = answer.without_context.as_ref().unwrap();
    for utility in &answer.utilities {
        let belief = utility.belief.as_ref().unwrap();
        let soft = belief.seper_soft.as_ref().unwrap().value;
        assert!((0.0..=1.0).contains(&soft));
        let delta = utility.delta_seper_soft.as_ref().unwrap().value;
        assert!((delta - (soft - context_free.seper_soft.unwrap().value)).abs() < 1e-12 && delta.abs() <= 1.0);
        assert!((belief.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!((belief.answers.len(), belief.cluster_of.len()), (4, 4));
        assert!(utility.semantic_entropy_reduction.is_some() && utility.predictive_entropy_reduction.is_some());
        let (corrected, plug_in) = (belief.semantic_entropy_corrected.unwrap(), belief.semantic_entropy_count.unwrap());
        assert!(corrected.value >= plug_in.value - 1e-12);
        let all_differ = belief.founders.len() == 4;
        assert_eq!((corrected.standard_error.is_none(), plug_in.standard_error.is_none()), (all_differ, all_differ));
        let reduction = utility.semantic_entropy_corrected_reduction.unwrap().value;
        let expected = context_free.semantic_entropy_corrected.unwrap().value - corrected.value;
        assert!((reduction - expected).abs() < 1e-12);
    }
    // Equal contexts have equal beliefs: the whole list and its longest prefix; no context and the empty subset.
    assert_eq!(answer.utilities[0].belief, answer.utilities[6].belief);
    assert_eq!(answer.utilities[1].belief, answer.utilities[4].belief);
    let empty = &answer.utilities[11];
    assert_eq!(empty.belief.as_ref(), Some(context_free));
    // Both sides are the same samples, so their difference is exactly 0.
    let zero = Some(v1::Measured { value: 0.0, standard_error: Some(0.0) });
    assert_eq!((empty.delta_seper_soft, empty.predictive_entropy_reduction), (zero, zero));
    let usage = answer.usage.unwrap();
    assert!(usage.tokens * 2 < usage.naive_tokens, "{usage:?}");
    // Context-free answers are cached, and equal requests have equal answers.
    let again = utilities(&server).await.measure_utility(all).await.unwrap().into_inner();
    assert_eq!((again.utilities, again.judged_pairs), (answer.utilities, 0));
    assert!(again.usage.unwrap().tokens < usage.tokens);
    server.stop().await;
}

#[tokio::test]
async fn without_references_only_entropies_are_measured() {
    let (server, _) = server(Scripted::default()).await;
    let plain = v1::MeasureUtilityRequest { references: vec![], return_answers: false, ..request() };
    let answer = utilities(&server).await.measure_utility(plain).await.unwrap().into_inner();
    assert_eq!(answer.utilities.len(), 1, "the whole list is measured by default");
    let utility = &answer.utilities[0];
    assert!(utility.delta_seper_soft.is_none() && utility.semantic_entropy_reduction.is_some());
    assert!(utility.belief.as_ref().unwrap().answers.is_empty());
    assert!(answer.warnings.iter().any(|warning| warning.contains("no references")));
    server.stop().await;
}

#[tokio::test]
async fn duplicates_never_add_a_call() {
    let (server, judged) = server(Scripted::default()).await;
    let greedy = v1::SamplingOptions { temperature: Some(0.0), ..options(10, 0) };
    let same = v1::MeasureUtilityRequest { sampling: Some(greedy), ..request() };
    let answer = utilities(&server).await.measure_utility(same).await.unwrap().into_inner();
    assert_eq!(answer.utilities[0].belief.as_ref().unwrap().founders.len(), 1);
    // Ten equal answers with context and ten without: each distinct text is judged against the reference in both
    // directions.
    assert!(judged.load(Ordering::SeqCst) <= 4, "{judged:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_answers_by_id_and_survives_a_bad_question() {
    let (server, _) = server(Scripted::default()).await;
    let of = |id: &str, request: Option<v1::MeasureUtilityRequest>| v1::MeasureUtilityStreamRequest {
        id: id.into(),
        request,
    };
    let bad = v1::MeasureUtilityRequest { question: String::new(), ..request() };
    let asked = vec![of("a", Some(request())), of("bad", Some(bad)), of("none", None), of("b", Some(request()))];
    let stream = utilities(&server).await.measure_utility_stream(tokio_stream::iter(asked)).await.unwrap();
    let answers: Vec<_> = stream.into_inner().map(|answer| answer.unwrap()).collect().await;
    let outcome = |id: &str| answers.iter().find(|answer| answer.id == id).unwrap().outcome.clone().unwrap();
    assert_eq!(answers.len(), 4);
    assert!(matches!(outcome("a"), Outcome::Response(_)));
    let measured = |outcome: Outcome| match outcome {
        Outcome::Response(response) => response.utilities,
        Outcome::Error(error) => panic!("{error:?}"),
    };
    assert_eq!(measured(outcome("a")), measured(outcome("b")));
    for (id, field) in [("bad", "question: "), ("none", "request: ")] {
        let Outcome::Error(error) = outcome(id) else { panic!("{id} has an answer") };
        assert_eq!(error.code, Code::InvalidArgument as i32);
        assert!(error.message.starts_with(field), "{}", error.message);
    }
    server.stop().await;
}

#[tokio::test]
async fn entailment_and_clusters_of_the_callers_own_texts() {
    let (server, _) = server(Scripted::default()).await;
    let pair =
        |premise: &str, hypothesis: &str| v1::EntailmentPair { premise: premise.into(), hypothesis: hypothesis.into() };
    let pairs = vec![pair("a b", "a"), pair("a", "c"), pair("a b", "a")];
    let request = v1::EntailRequest { pairs, question: String::new() };
    let answer = beliefs(&server).await.entail(request).await.unwrap().into_inner();
    assert_eq!((answer.judged_pairs, answer.verdicts.len(), answer.model.as_str()), (2, 3, "scripted"));
    assert!(answer.verdicts[0].entailment > 0.5 && answer.verdicts[1].contradiction > 0.5);
    let texts = ["x y", "y x", "z", "x y"].map(str::to_owned).to_vec();
    let request = v1::ClusterRequest { texts, ..v1::ClusterRequest::default() };
    let answer = beliefs(&server).await.cluster(request).await.unwrap().into_inner();
    assert_eq!((answer.cluster_of, answer.founders), (vec![0, 0, 1, 0], vec![0, 2]));
    server.stop().await;
}

#[tokio::test]
async fn bad_fields_are_named() {
    let (server, _) = server(Scripted::default()).await;
    let drawn = |options: v1::SamplingOptions| v1::MeasureUtilityRequest { sampling: Some(options), ..request() };
    let default = v1::SamplingOptions::default;
    let rule = |rule: i32, threshold| v1::MeasureOptions { rule, threshold, ..v1::MeasureOptions::default() };
    let measure = |measure| v1::MeasureUtilityRequest { measure: Some(measure), ..request() };
    for (bad, field) in [
        (v1::MeasureUtilityRequest { question: " ".into(), ..request() }, "question"),
        (v1::MeasureUtilityRequest { references: vec!["x".into(), String::new()], ..request() }, "references[1]"),
        (v1::MeasureUtilityRequest { passages: wire("q", &["a"; 21]).passages, ..request() }, "passages"),
        (
            v1::MeasureUtilityRequest { subsets: vec![v1::PassageSubset { indices: vec![3] }], ..request() },
            "subsets[0]",
        ),
        (
            v1::MeasureUtilityRequest { subsets: vec![v1::PassageSubset { indices: vec![1, 1] }], ..request() },
            "subsets[0]",
        ),
        (drawn(v1::SamplingOptions { samples: 101, ..default() }), "sampling.samples"),
        (drawn(v1::SamplingOptions { max_tokens: 513, ..default() }), "sampling.max_tokens"),
        (drawn(v1::SamplingOptions { temperature: Some(f64::NAN), ..default() }), "sampling.temperature"),
        (drawn(v1::SamplingOptions { top_p: Some(0.0), ..default() }), "sampling.top_p"),
        (drawn(v1::SamplingOptions { stop: vec![String::new()], ..default() }), "sampling.stop"),
        (measure(rule(99, None)), "measure.rule"),
        (measure(rule(3, Some(1.5))), "measure.threshold"),
    ] {
        let status = utilities(&server).await.measure_utility(bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{field}");
        let found = status.get_details_bad_request().unwrap().field_violations[0].field.clone();
        assert_eq!(found, field, "{}", status.message());
    }
    let empty = beliefs(&server).await.entail(v1::EntailRequest::default()).await.unwrap_err();
    assert!(empty.message().starts_with("pairs: "));
    let empty = beliefs(&server).await.cluster(v1::ClusterRequest::default()).await.unwrap_err();
    assert!(empty.message().starts_with("texts: "));
    let small = v1::MeasureUtilityRequest { token_budget: 20, ..request() };
    let status = utilities(&server).await.measure_utility(small).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.stop().await;
}

#[tokio::test]
async fn without_an_entailment_model_the_setting_is_named() {
    let server = Scripted::default().serve().await;
    let status = utilities(&server).await.measure_utility(request()).await.unwrap_err();
    assert_eq!((status.code(), status.message().contains("entailment.model")), (Code::FailedPrecondition, true));
    let sample =
        v1::SampleRequest { question: "q".into(), sampling: Some(options(1, 0)), ..v1::SampleRequest::default() };
    assert!(beliefs(&server).await.sample(sample).await.is_ok(), "sampling needs no entailment");
    let inline = v1::RerankRequest { utility: Some(v1::InlineUtility::default()), ..wire("q", &PASSAGES) };
    assert_eq!(server.client().await.rerank(inline).await.unwrap_err().code(), Code::FailedPrecondition);
    server.stop().await;
}

#[tokio::test]
async fn a_deadline_in_the_middle_of_sampling_and_a_caller_that_leaves() {
    let slow = Scripted { delay: Duration::from_millis(2), ..Scripted::default() };
    let (server, _) = server(slow).await;
    let long = v1::MeasureUtilityRequest { measure_each: true, sampling: Some(options(50, 0)), ..request() };
    let mut call = tonic::Request::new(long.clone());
    call.set_timeout(Duration::from_millis(400));
    let status = utilities(&server).await.measure_utility(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let mut client = utilities(&server).await;
    let left = tokio::time::timeout(Duration::from_millis(100), client.measure_utility(long)).await;
    assert!(left.is_err());
    let settled = async {
        while server.observed.cells.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), settled).await.expect("all cells are freed");
    let quick = v1::MeasureUtilityRequest { sampling: Some(options(1, 0)), ..request() };
    utilities(&server).await.measure_utility(quick).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_rerank_measures_both_orders_within_its_budget() {
    let (server, _) = server(Scripted::default()).await;
    let inline = v1::InlineUtility { references: vec!["aaaa".into()], samples: 3, max_tokens: 5, seed: 1 };
    let reverse = v1::ContextOrder::Reverse.into();
    // This method does not spend less under a small budget.
    let asked = v1::RerankRequest {
        method: v1::Method::Moi.into(),
        utility: Some(inline),
        context_order: reverse,
        top_n: 2,
        ..wire("aaaa", &PASSAGES)
    };
    let answer = server.client().await.rerank(asked.clone()).await.unwrap().into_inner();
    let measured = answer.utility.unwrap();
    assert_eq!(measured.given.as_ref().unwrap().original_indices, vec![0, 1]);
    let arranged = measured.arranged.unwrap();
    assert_eq!(arranged.original_indices, answer.context_order.unwrap().original_indices);
    assert!(arranged.delta_seper_soft.unwrap().abs() <= 1.0 && measured.seper_without.is_some());
    let plain = v1::RerankRequest { utility: None, ..asked.clone() };
    let without = server.client().await.rerank(plain).await.unwrap().into_inner();
    assert!(without.utility.is_none() && without.usage.unwrap().tokens < answer.usage.unwrap().tokens);
    assert_eq!(without.results, answer.results);
    let token_budget = u64::from(u32::try_from(without.usage.unwrap().tokens).unwrap()) + 10;
    let before = server.observed.tokens.load(Ordering::SeqCst);
    let status = server.client().await.rerank(v1::RerankRequest { token_budget, ..asked }).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(before, server.observed.tokens.load(Ordering::SeqCst), "refused before any work");
    server.stop().await;
}

#[tokio::test]
async fn a_worker_that_dies_in_the_middle_of_a_stream_is_replaced() {
    let fault = Some(common::scripted::Fault::Panic(3));
    let (server, _) = server(Scripted { fault, ..Scripted::default() }).await;
    let request = v1::SampleRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        sampling: Some(options(4, 0)),
        ..v1::SampleRequest::default()
    };
    let stream = beliefs(&server).await.sample(request.clone()).await.unwrap().into_inner();
    let events: Vec<_> = stream.collect().await;
    assert_eq!(events.last().unwrap().as_ref().unwrap_err().code(), Code::Unavailable);
    let scheduler = &server.engine.generator().unwrap().scheduler;
    let mut ready = scheduler.status();
    // The call fails before the status changes.
    let back = ready.wait_for(|status| scheduler.restarts() > 0 && status.serves());
    tokio::time::timeout(Duration::from_secs(10), back).await.unwrap().unwrap();
    let stream = beliefs(&server).await.sample(request).await.unwrap().into_inner();
    let events: Vec<_> = stream.collect().await;
    assert!(matches!(events.last().unwrap().as_ref().unwrap().event, Some(Event::Done(_))));
    server.stop().await;
}

#[tokio::test]
async fn an_entailment_worker_that_dies_costs_one_request() {
    use common::scripted::ScriptedEntailment;
    use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let mut first = true;
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::entailment::Entailment)| {
        let panics = std::mem::take(&mut first);
        serve(&mut ScriptedEntailment { delay: Duration::ZERO, judged: Arc::default(), panics, three_way: true });
        Ok(())
    });
    let judge = Judge::start(EntailmentOptions { cache_entries: 10 }, ConfiguredModel::default(), loader).unwrap();
    let server = common::serve(common::with_judge(&engine, judge), observed, queue_length).await;
    assert_eq!(utilities(&server).await.measure_utility(request()).await.unwrap_err().code(), Code::Unavailable);
    utilities(&server).await.measure_utility(request()).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_two_way_model_measures_all_but_hard_seper() {
    use common::scripted::ScriptedEntailment;
    use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::entailment::Entailment)| {
        serve(&mut ScriptedEntailment {
            delay: Duration::ZERO,
            judged: Arc::default(),
            panics: false,
            three_way: false,
        });
        Ok(())
    });
    let judge = Judge::start(EntailmentOptions { cache_entries: 100 }, ConfiguredModel::default(), loader).unwrap();
    let drawn = Arc::clone(&observed);
    let steps = move || drawn.steps.load(Ordering::Relaxed);
    let server = common::serve(common::with_judge(&engine, judge), observed, queue_length).await;
    let answer = utilities(&server).await.measure_utility(request()).await.unwrap().into_inner();
    assert!(answer.utilities[0].delta_seper_soft.is_some() && answer.utilities[0].delta_seper_hard.is_none());
    assert!(answer.warnings.iter().any(|warning| warning.contains("two-way")));
    // A rule that the model cannot apply is refused before an answer is sampled.
    let before = steps();
    let loose = v1::MeasureOptions { rule: v1::EquivalenceRule::Loose.into(), ..v1::MeasureOptions::default() };
    let refused = v1::MeasureUtilityRequest { measure: Some(loose), ..request() };
    let status = utilities(&server).await.measure_utility(refused).await.unwrap_err();
    assert_eq!((status.code(), status.message().contains("three-way")), (Code::FailedPrecondition, true));
    assert_eq!(steps(), before);
    server.stop().await;
}
