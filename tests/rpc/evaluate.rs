//! eRAG over the wire, and its errors.

use std::time::Duration;

use crate::common;
use common::{Running, Scripted, fields, real_engine, wire};
use protocol::v1;
use protocol::v1::Annotator;
use protocol::v1::evaluate_retrieval_stream_response::Outcome;
use protocol::v1::utility_service_client::UtilityServiceClient;
use rag_metrics::{bleu, lexical};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

const PASSAGES: [&str; 4] = ["aaaa bbbb", "cccc", "dddd aaaa", "an answer stands here"];

/// Without BERT_SCORE, which needs an embedding model: tests/rpc/bert_score.rs.
const ALL: [Annotator; 15] = [
    Annotator::ExactMatch,
    Annotator::TokenF1,
    Annotator::RougeL,
    Annotator::Containment,
    Annotator::Accuracy,
    Annotator::SeperSoft,
    Annotator::SeperHard,
    Annotator::DeltaSeperSoft,
    Annotator::DeltaSeperHard,
    Annotator::ContainsAnswer,
    Annotator::Provenance,
    Annotator::LlmJudgement,
    Annotator::Bleu,
    Annotator::AnswerJudgement,
    Annotator::EragJudgement,
];

pub async fn server() -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

pub async fn utilities(server: &Running) -> UtilityServiceClient<Channel> {
    UtilityServiceClient::new(server.channel().await)
}

pub fn numbers(annotators: &[Annotator]) -> Vec<i32> {
    annotators.iter().map(|annotator| (*annotator).into()).collect()
}

fn request(annotators: &[Annotator]) -> v1::EvaluateRetrievalRequest {
    v1::EvaluateRetrievalRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["an answer".into()],
        annotators: numbers(annotators),
        provenance: vec![1.0, 0.0, 0.5, 0.0],
        sampling: Some(v1::SamplingOptions { samples: 3, max_tokens: 6, seed: 4, ..v1::SamplingOptions::default() }),
        answer_tokens: 6,
        return_answers: true,
        ..v1::EvaluateRetrievalRequest::default()
    }
}

fn subset(indices: &[u32]) -> v1::PassageSubset {
    v1::PassageSubset { indices: indices.to_vec() }
}

#[tokio::test]
async fn end_to_end_answers_come_from_the_contexts_and_metrics_from_the_rankings() {
    let server = server().await;
    let annotators = [Annotator::TokenF1, Annotator::Provenance];
    let (ranking, context) = ([0, 1, 2, 3], [3, 1, 0, 2]);
    // The scripted generator repeats the letter of the first passage.
    let texts = ["q", "z", "j", "v"].map(|letter| letter.repeat(200));
    let asked = v1::EvaluateRetrievalRequest {
        passages: wire("q", &texts.each_ref().map(String::as_str)).passages,
        end_to_end: true,
        rankings: vec![subset(&ranking), subset(&ranking), subset(&context)],
        contexts: vec![subset(&ranking), subset(&context), subset(&context)],
        ..request(&annotators)
    };
    let answer = utilities(&server).await.evaluate_retrieval(asked.clone()).await.unwrap().into_inner();
    let [by_ranking, by_context, plain] = &answer.rankings[..] else { panic!("{answer:?}") };
    assert_eq!((by_context.indices.as_slice(), by_context.context.as_slice()), (&ranking[..], &context[..]));
    assert_eq!(by_context.scores[1].metrics, by_ranking.scores[1].metrics, "metrics are over the ranking");
    assert_eq!((&by_context.answer, by_context.scores[0].end_to_end), (&plain.answer, plain.scores[0].end_to_end));
    assert_ne!(by_context.answer.as_ref().unwrap().text, by_ranking.answer.as_ref().unwrap().text);
    // Rankings with one context share its prompt, and without contexts the rankings are the contexts.
    let alone = v1::EvaluateRetrievalRequest {
        rankings: vec![subset(&ranking), subset(&context)],
        contexts: Vec::new(),
        ..asked
    };
    let alone = utilities(&server).await.evaluate_retrieval(alone).await.unwrap().into_inner();
    assert_eq!(alone.rankings[1], *plain);
    assert_eq!(alone.usage.unwrap().tokens, answer.usage.unwrap().tokens);
    server.stop().await;
}

/// Their scores are those of the same answers beside labels, for fewer tokens.
#[tokio::test]
async fn answers_alone_are_scored_without_labels() {
    let server = server().await;
    let annotators = [Annotator::TokenF1, Annotator::Containment, Annotator::DeltaSeperSoft];
    let rankings = vec![subset(&[3, 0, 1]), subset(&[])];
    let both = v1::EvaluateRetrievalRequest { end_to_end: true, rankings, ..request(&annotators) };
    let alone = v1::EvaluateRetrievalRequest { end_to_end: false, answers_only: true, ..both.clone() };
    let mut utilities = utilities(&server).await;
    let both = utilities.evaluate_retrieval(both).await.unwrap().into_inner();
    let answer = utilities.evaluate_retrieval(alone.clone()).await.unwrap().into_inner();
    assert!(answer.labels.is_empty() && answer.passage_answers.is_empty(), "{answer:?}");
    let end_to_end = |answer: &v1::EvaluateRetrievalResponse| {
        let of = |ranking: &v1::RankingScores| ranking.scores.iter().map(|one| one.end_to_end).collect::<Vec<_>>();
        answer.rankings.iter().map(|ranking| (of(ranking), ranking.answer.clone().unwrap().text)).collect::<Vec<_>>()
    };
    assert_eq!(end_to_end(&answer), end_to_end(&both));
    assert!(answer.rankings.iter().flat_map(|ranking| &ranking.scores).all(|scores| scores.metrics.is_empty()));
    let read = |answer: &v1::EvaluateRetrievalResponse| answer.usage.as_ref().map(|usage| usage.naive_tokens).unwrap();
    assert!(read(&answer) < read(&both), "{} {}", read(&answer), read(&both));
    let labels = v1::EvaluateRetrievalRequest { annotators: numbers(&[Annotator::Provenance]), ..alone };
    let refused = utilities.evaluate_retrieval(labels).await.unwrap_err();
    assert_eq!(refused.message(), "annotators: provenance labels passages, and answers_only leaves labels out");
    server.stop().await;
}

#[tokio::test]
async fn every_annotator_labels_every_passage_from_one_plan() {
    let server = server().await;
    let asked = v1::EvaluateRetrievalRequest {
        end_to_end: true,
        rankings: vec![subset(&[3, 0, 1]), subset(&[0, 1, 2, 3])],
        metrics: vec!["P@2".into(), "ndcg_cut_3".into(), "mrr".into(), "Fe@3".into()],
        ..request(&ALL)
    };
    let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
    assert_eq!(answer.labels.iter().map(v1::PassageLabels::annotator).collect::<Vec<_>>(), ALL);
    let of =
        |annotator: Annotator| answer.labels.iter().find(|one| one.annotator() == annotator).unwrap().labels.clone();
    assert_eq!(of(Annotator::ContainsAnswer), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(of(Annotator::Provenance), [1.0, 0.0, 0.5, 0.0]);
    for labels in &answer.labels {
        let least = if labels.annotator().as_str_name().contains("DELTA") { -1.0 } else { 0.0 };
        assert!(labels.labels.len() == 4 && labels.labels.iter().all(|label| (least..=1.0).contains(label)));
    }
    // Labels belong to the returned answers.
    let references = ["an answer".to_owned()];
    assert_eq!(answer.passage_answers.len(), 4);
    for (index, one) in answer.passage_answers.iter().enumerate() {
        assert_eq!(of(Annotator::TokenF1)[index], lexical::token_f1(&one.text, &references));
        assert_eq!(of(Annotator::ExactMatch)[index], lexical::exact_match(&one.text, &references));
        assert_eq!(of(Annotator::Bleu)[index], bleu::bleu(&one.text, &references));
    }
    // SePer minus DeltaSePer is SePer without context, equal for all passages.
    let gaps: Vec<f64> =
        of(Annotator::SeperSoft).iter().zip(of(Annotator::DeltaSeperSoft)).map(|(with, delta)| with - delta).collect();
    assert!(gaps.iter().all(|gap| (gap - gaps[0]).abs() < 1e-12), "{gaps:?}");
    assert_eq!(answer.rankings.len(), 2);
    let scores = |ranking: usize, annotator: Annotator| {
        answer.rankings[ranking].scores.iter().find(|one| one.annotator() == annotator).unwrap().clone()
    };
    let provenance = scores(0, Annotator::Provenance);
    // [3, 0, 1] has the labels 0, 1, 0; the ideal ranking includes passage 2.
    let values: Vec<(String, Option<f64>)> =
        provenance.metrics.iter().map(|one| (one.metric.clone(), one.value)).collect();
    let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-12;
    assert!(values[0].0 == "P@2" && near(values[0].1, 0.5));
    assert!(values[1].0 == "nDCG@3" && near(values[1].1, 1.0 / 3.0_f64.log2() / (1.0 + 0.5 / 3.0_f64.log2())));
    assert!(values[2].0 == "RR" && near(values[2].1, 0.5));
    assert_eq!(values[3], ("Fe(alpha=0.5)@3".into(), None), "Fe needs a list of 2K");
    assert_eq!(provenance.end_to_end, None);
    let whole = answer.rankings[1].answer.clone().unwrap();
    assert_eq!(scores(1, Annotator::RougeL).end_to_end, Some(lexical::rouge_l(&whole.text, &references)));
    assert_eq!(scores(1, Annotator::Bleu).end_to_end, Some(bleu::bleu(&whole.text, &references)));
    assert!(scores(1, Annotator::DeltaSeperSoft).end_to_end.is_some());
    let usage = answer.usage.unwrap();
    assert!(usage.tokens > 0 && usage.tokens < usage.naive_tokens, "{usage:?}");
    server.stop().await;
}

#[tokio::test]
async fn labels_by_belief_are_those_of_measure_utility() {
    let server = server().await;
    let annotators = [Annotator::SeperSoft, Annotator::SeperHard, Annotator::DeltaSeperSoft];
    let labels = utilities(&server).await.evaluate_retrieval(request(&annotators)).await.unwrap().into_inner().labels;
    let soft_alone = utilities(&server).await.evaluate_retrieval(request(&[Annotator::SeperSoft])).await.unwrap();
    assert_eq!(soft_alone.into_inner().labels[0], labels[0], "without clusters the same");
    let asked = v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["an answer".into()],
        measure_each: true,
        sampling: request(&[]).sampling,
        ..v1::MeasureUtilityRequest::default()
    };
    let measured = utilities(&server).await.measure_utility(asked).await.unwrap().into_inner();
    for (index, utility) in measured.utilities.iter().enumerate() {
        let belief = utility.belief.as_ref().unwrap();
        let expected = [
            belief.seper_soft.unwrap().value,
            belief.seper_hard.unwrap().value,
            utility.delta_seper_soft.unwrap().value,
        ];
        for (labels, expected) in labels.iter().zip(expected) {
            assert!((labels.labels[index] - expected).abs() < 1e-12);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn labels_without_the_generator_ask_it_nothing() {
    let server = server().await;
    let asked = request(&[Annotator::ContainsAnswer, Annotator::Provenance]);
    let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
    assert_eq!(answer.usage.unwrap().tokens, 0);
    // The paper's metrics are the default.
    let names: Vec<String> = answer.rankings[0].scores[0].metrics.iter().map(|one| one.metric.clone()).collect();
    assert_eq!(names, ["P", "Success", "AP", "RR", "nDCG", "R"]);
    server.stop().await;
}

#[tokio::test]
async fn a_stream_answers_every_question_and_survives_a_bad_one() {
    let server = server().await;
    let ask = |id: &str, request: Option<v1::EvaluateRetrievalRequest>| v1::EvaluateRetrievalStreamRequest {
        id: id.into(),
        request,
    };
    let bad = v1::EvaluateRetrievalRequest { references: Vec::new(), ..request(&[Annotator::TokenF1]) };
    let asked = vec![
        ask("one", Some(request(&[Annotator::TokenF1]))),
        ask("bad", Some(bad)),
        ask("none", None),
        ask("two", Some(request(&[Annotator::LlmJudgement]))),
    ];
    let stream = utilities(&server).await.evaluate_retrieval_stream(tokio_stream::iter(asked)).await.unwrap();
    let mut outcomes: Vec<(String, Result<usize, String>)> = stream
        .into_inner()
        .map(|answer| {
            let answer = answer.unwrap();
            let outcome = match answer.outcome.unwrap() {
                Outcome::Response(response) => Ok(response.labels[0].labels.len()),
                Outcome::Error(error) => Err(error.message),
            };
            (answer.id, outcome)
        })
        .collect()
        .await;
    outcomes.sort();
    let expected = [
        ("bad", Err("references: must not be empty for these annotators")),
        ("none", Err("request: must be set")),
        ("one", Ok(4)),
        ("two", Ok(4)),
    ];
    let expected: Vec<(String, Result<usize, String>)> =
        expected.into_iter().map(|(id, outcome)| (id.to_owned(), outcome.map_err(str::to_owned))).collect();
    assert_eq!(outcomes, expected);
    server.stop().await;
}

#[tokio::test]
async fn bad_evaluations_are_refused_by_field() {
    let server = server().await;
    let base = || request(&[Annotator::ExactMatch]);
    type Change = fn(&mut v1::EvaluateRetrievalRequest);
    let cases: [(&str, Change); 23] = [
        ("question", |r| r.question = "  ".into()),
        ("passages", |r| r.passages.clear()),
        ("references", |r| r.references.clear()),
        ("references[0]", |r| r.references[0] = " ".into()),
        ("annotators[0]", |r| r.annotators = vec![99]),
        ("references", |r| (r.annotators, r.references) = (numbers(&[Annotator::AnswerJudgement]), Vec::new())),
        // The prompt of a judgement holds all references, here 64 of 100 tokens each.
        ("references", |r| {
            (r.annotators, r.references) = (numbers(&[Annotator::AnswerJudgement]), vec!["x".repeat(100); 64]);
        }),
        ("annotators[1]", |r| r.annotators.push(0)),
        ("annotators", |r| r.annotators = numbers(&[Annotator::TokenF1, Annotator::TokenF1])),
        ("provenance", |r| (r.annotators, r.provenance) = (numbers(&[Annotator::Provenance]), vec![1.0])),
        ("provenance[2]", |r| r.provenance[2] = f64::NAN),
        ("metrics[1]", |r| r.metrics = vec!["P@1".into(), "nope".into()]),
        ("threshold", |r| r.threshold = Some(f64::INFINITY)),
        ("rankings[0]", |r| r.rankings = vec![subset(&[0, 9])]),
        ("rankings[1]", |r| r.rankings = vec![subset(&[]), subset(&[0; 1_000_000])]),
        ("rankings", |r| r.rankings = vec![subset(&[0]); 100_000]),
        ("contexts", |r| r.contexts = vec![subset(&[0, 1, 2, 3]); 2]),
        ("contexts[0]", |r| r.contexts = vec![subset(&[0, 1, 2])]),
        ("contexts[1]", |r| {
            (r.rankings, r.contexts) = (vec![subset(&[0, 1]); 2], vec![subset(&[1, 0]), subset(&[0, 2])]);
        }),
        ("contexts[0]", |r| (r.rankings, r.contexts) = (vec![subset(&[0, 1])], vec![subset(&[1, 1])])),
        ("metrics[1]", |r| r.metrics = vec!["map".into(), "AP".into()]),
        ("end_to_end", |r| (r.annotators, r.end_to_end) = (numbers(&[Annotator::ContainsAnswer]), true)),
        ("answer_tokens", |r| r.answer_tokens = 100_000),
    ];
    for (field, change) in cases {
        let mut asked = base();
        change(&mut asked);
        let status = utilities(&server).await.evaluate_retrieval(asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    let small = v1::EvaluateRetrievalRequest { token_budget: 3, ..base() };
    let status = utilities(&server).await.evaluate_retrieval(small).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.stop().await;
    let bare = Scripted::default().serve().await;
    let status = utilities(&bare).await.evaluate_retrieval(request(&[Annotator::SeperSoft])).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    bare.stop().await;
}

#[tokio::test]
async fn the_real_generator_finds_the_passage_that_answers() {
    let _alone = common::alone().await;
    let server = common::serve(real_engine().await, std::sync::Arc::default(), 8).await;
    let passages = [
        "The lighthouse of Arden was built of grey granite in 1871 by the engineer Moira Kell.",
        "Sea otters wrap themselves in kelp before they sleep, so that the current does not carry them away.",
        "A sourdough starter is fed with flour and water every day and kept in a warm place.",
    ];
    let asked = v1::EvaluateRetrievalRequest {
        question: "Who built the lighthouse of Arden?".into(),
        passages: wire("q", &passages).passages,
        references: vec!["Moira Kell".into()],
        annotators: numbers(&[
            Annotator::Containment,
            Annotator::TokenF1,
            Annotator::LlmJudgement,
            Annotator::Bleu,
            Annotator::AnswerJudgement,
            Annotator::EragJudgement,
        ]),
        end_to_end: true,
        return_answers: true,
        ..v1::EvaluateRetrievalRequest::default()
    };
    let answer = utilities(&server).await.evaluate_retrieval(asked.clone()).await.unwrap().into_inner();
    assert_eq!(answer.labels[0].labels, [1.0, 0.0, 0.0], "{:?}", answer.passage_answers);
    assert!(answer.labels[1].labels[0] > answer.labels[1].labels[1]);
    assert!(answer.labels[2].labels.iter().all(|label| *label > 0.0 && *label < 1.0));
    let best = answer.labels[3].labels[0];
    assert!(best > 0.0 && answer.labels[3].labels[1..].iter().all(|label| *label < best), "{:?}", answer.labels[3]);
    println!("{:?}", answer.labels);
    for judged in &answer.labels[4..] {
        assert!(judged.labels.iter().all(|label| *label > 0.0 && *label < 1.0), "{judged:?}");
    }
    // The default generator finds the relevant passage. It is too small to judge answers: it says "True" to all of them.
    let relevant = &answer.labels[5].labels;
    assert!(relevant[1..].iter().all(|label| *label < relevant[0]), "{relevant:?}");
    assert_eq!(answer.rankings[0].scores[0].end_to_end, Some(1.0));
    assert_eq!(answer.rankings[0].scores[5].end_to_end, None, "a baseline scores no answer");
    let again = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
    assert_eq!((answer.labels, answer.rankings), (again.labels, again.rankings));
    server.stop().await;
}
