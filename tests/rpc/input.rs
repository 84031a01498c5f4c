//! The table of docs/reference/input.md over gRPC: a passage without text costs itself, and not the request.

use std::time::Duration;

use crate::common;
use common::{Running, Scripted, wire};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::rerank_stream_response::Outcome;
use protocol::v1::utility_service_client::UtilityServiceClient;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;

const BLANK: [&str; 3] = ["", " \n", "\u{feff}"];

async fn server() -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

async fn rank(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

fn order(answer: &v1::RerankResponse) -> Vec<u32> {
    answer.results.iter().map(|result| result.original_index).collect()
}

fn by(method: v1::Method, query: &str, texts: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: method.into(), return_passages: true, ..wire(query, texts) }
}

#[tokio::test]
async fn an_empty_passage_comes_last_by_every_method() {
    let server = server().await;
    let methods = [
        v1::Method::Cascade,
        v1::Method::Moi,
        v1::Method::QueryGeneration,
        v1::Method::Retriever,
        v1::Method::YesNo,
        v1::Method::Pairwise,
        v1::Method::Setwise,
        v1::Method::Listwise,
        v1::Method::First,
        v1::Method::LeaveOneOut,
        v1::Method::SemanticUtility,
    ];
    for method in methods {
        let read = rank(&server, by(method, "question", &["zzzz", "a question", "wwww"])).await;
        for blank in BLANK {
            let texts = [blank, "zzzz", "a question", blank, "wwww"];
            let answer = rank(&server, by(method, "question", &texts)).await;
            let places: Vec<u32> = order(&read).into_iter().map(|index| [1, 2, 4][index as usize]).collect();
            assert_eq!(order(&answer), [places, vec![0, 3]].concat(), "{method:?} {blank:?}");
            let (ranked, empty) = answer.results.split_at(3);
            for (one, other) in ranked.iter().zip(&read.results) {
                assert_eq!(
                    (one.score, one.utility, one.stage),
                    (other.score, other.utility, other.stage),
                    "{method:?}"
                );
            }
            let lowest = ranked.iter().map(|one| one.utility).fold(0.0, f64::min);
            for one in empty {
                assert_eq!((one.score, one.utility, one.stage()), (0.0, lowest, v1::Stage::Retriever), "{method:?}");
                assert_eq!(one.passage.as_ref().unwrap().text, blank);
            }
            let warned = "passages[0], passages[3] are empty: ranked last with the score 0";
            assert!(answer.warnings.iter().any(|warning| warning == warned), "{:?}", answer.warnings);
            let mut context = answer.context_order.unwrap().original_indices;
            context.sort_unstable();
            assert_eq!(context, [1, 2, 4]);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn thresholds_leave_empty_passages_out_and_counts_take_them_last() {
    let server = server().await;
    let asked = by(v1::Method::QueryGeneration, "question", &["", "a question", "b"]);
    let counted = |top_n| v1::RerankRequest { top_n, ..asked.clone() };
    assert_eq!(rank(&server, counted(2)).await.results.len(), 2);
    assert_eq!(order(&rank(&server, counted(3)).await)[2], 0);
    let chosen = [
        v1::RerankRequest { score_threshold: Some(0.0), ..asked.clone() },
        v1::RerankRequest { only_helpful: true, ..asked.clone() },
    ];
    for request in chosen {
        let answer = rank(&server, request).await;
        assert!(!order(&answer).contains(&0));
        let warned = "passages[0] is empty: left out";
        assert!(answer.warnings.iter().any(|warning| warning == warned), "{:?}", answer.warnings);
    }
    let none = rank(&server, by(v1::Method::Cascade, "question", &["", " "])).await;
    assert!(none.results.iter().all(|result| result.score == 0.0) && order(&none) == [0, 1], "{none:?}");
    assert_eq!((none.none_helps, none.usage.unwrap().tokens), (Some(true), 0));
    server.stop().await;
}

/// A title is a text, and a mark at the beginning is none. Parts of one document may have its id.
#[tokio::test]
async fn titles_marks_and_repeated_ids_are_read() {
    let server = server().await;
    let plain = rank(&server, by(v1::Method::QueryGeneration, "question", &["a question", "b"])).await;
    let mut request = by(v1::Method::QueryGeneration, "\u{feff}question", &["", "\u{feff}b"]);
    request.passages[0].title = "\u{feff}a question".into();
    let titled = rank(&server, request).await;
    let scores = |answer: &v1::RerankResponse| answer.results.iter().map(|one| one.score).collect::<Vec<_>>();
    assert_eq!((order(&titled), scores(&titled)), (order(&plain), scores(&plain)));
    let mut twins = by(v1::Method::QueryGeneration, "question", &["a question", "b"]);
    twins.passages[1].id = twins.passages[0].id.clone();
    let twins = rank(&server, twins).await;
    assert_eq!(scores(&twins), scores(&plain));
    let warned = "passages[1].id: \"p0\" occurs twice: original_index tells the results apart";
    assert!(twins.warnings.iter().any(|warning| warning == warned), "{:?}", twins.warnings);
    server.stop().await;
}

#[tokio::test]
async fn streams_follow_the_same_rules() {
    let server = server().await;
    let request = Some(by(v1::Method::QueryGeneration, "question", &["", "a question", "wwww", "zzzz", "b"]));
    let watched = v1::WatchRerankRequest { request: request.clone() };
    let mut events = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
    let mut last = None;
    while let Some(event) = events.message().await.unwrap() {
        if let Some(Event::Interim(interim)) = &event.event {
            assert_eq!((interim.original_indices.len(), interim.original_indices.last()), (5, Some(&0)));
        }
        last = event.event;
    }
    let Some(Event::Final(answer)) = last else { panic!("no answer") };
    assert_eq!((answer.results.len(), order(&answer)[4]), (5, 0));
    let one = v1::RerankStreamRequest { request_id: "a".into(), request };
    let stream = server.client().await.rerank_stream(tokio_stream::iter([one])).await.unwrap().into_inner();
    let answers: Vec<_> = stream.collect::<Result<Vec<_>, _>>().await.unwrap();
    let Some(Outcome::Response(streamed)) = &answers[0].outcome else { panic!("{answers:?}") };
    assert_eq!(order(streamed), order(&answer));
    server.stop().await;
}

/// An empty passage adds nothing to a prompt: what is measured of it is what the generator says without it.
#[tokio::test]
async fn measurements_read_nothing_of_an_empty_passage() {
    let server = server().await;
    let sampling = Some(v1::SamplingOptions { samples: 3, max_tokens: 6, seed: 4, ..Default::default() });
    let warned = "passages[1] is empty: left out of prompts";
    let utility = |texts: &[&str]| v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", texts).passages,
        references: vec!["an answer".into()],
        measure_list: true,
        measure_each: true,
        sampling: sampling.clone(),
        ..Default::default()
    };
    let mut client = UtilityServiceClient::new(server.channel().await);
    let answer = client.measure_utility(utility(&["aaaa bbbb", " ", "cccc"])).await.unwrap().into_inner();
    let without = client.measure_utility(utility(&["aaaa bbbb", "cccc"])).await.unwrap().into_inner();
    assert!(answer.warnings.iter().any(|warning| warning == warned), "{:?}", answer.warnings);
    let delta = |answer: &v1::MeasureUtilityResponse, at: usize| answer.utilities[at].delta_seper_soft;
    assert_eq!(delta(&answer, 0), delta(&without, 0), "the list");
    assert_eq!((delta(&answer, 1), delta(&answer, 3)), (delta(&without, 1), delta(&without, 2)));
    assert_eq!(answer.utilities[2].belief, answer.without_context, "the empty one alone");

    let labels = v1::EvaluateRetrievalRequest {
        question: "which".into(),
        passages: wire("q", &["an answer", "", "cccc"]).passages,
        references: vec!["an answer".into()],
        annotators: [v1::Annotator::ContainsAnswer, v1::Annotator::LlmJudgement, v1::Annotator::DeltaSeperSoft]
            .map(Into::into)
            .to_vec(),
        sampling: sampling.clone(),
        answer_tokens: 6,
        ..Default::default()
    };
    let labelled = client.evaluate_retrieval(labels).await.unwrap().into_inner();
    assert!(labelled.warnings.iter().any(|warning| warning == warned), "{:?}", labelled.warnings);
    for labels in &labelled.labels {
        assert_eq!((labels.labels.len(), labels.labels[1]), (3, 0.0), "{labels:?}");
    }

    let mut beliefs = BeliefServiceClient::new(server.channel().await);
    let citations = v1::CheckCitationsRequest {
        answer: "Red apples grow. [1] Red apples grow. [2] Red apples grow. [1][2]".into(),
        passages: wire("q", &["Red apples grow.", ""]).passages,
        ..Default::default()
    };
    let checked = beliefs.check_citations(citations).await.unwrap().into_inner();
    let supported: Vec<bool> = checked.statements.iter().map(|one| one.supported).collect();
    assert_eq!((supported, &checked.warnings[..]), (vec![true, false, true], &[warned.to_owned()][..]));

    let sample = v1::SampleRequest {
        question: "which".into(),
        passages: wire("q", &["aaaa", ""]).passages,
        sampling,
        ..Default::default()
    };
    let mut events = beliefs.sample(sample).await.unwrap().into_inner();
    let mut warnings = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        if let Some(v1::sample_response::Event::Done(done)) = event.event {
            warnings = done.warnings;
        }
    }
    assert_eq!(warnings, [warned]);
    server.stop().await;
}

#[tokio::test]
async fn an_empty_passage_does_not_end_reading_ahead() {
    let warm = prefix_scheduler::warm::Options { memory_bytes: 1 << 20, disk: None };
    let server = Scripted { warm, ..Scripted::default() }.serve().await;
    let request = v1::WarmPassagesRequest { passages: wire("", &["one text", "", "another text"]).passages };
    let mut events = server.client().await.warm_passages(request).await.unwrap().into_inner();
    let mut last = v1::WarmPassagesResponse::default();
    while let Some(progress) = events.message().await.unwrap() {
        last = progress;
    }
    assert_eq!((last.passages, last.kept + last.present), (3, 3));
    server.stop().await;
}
