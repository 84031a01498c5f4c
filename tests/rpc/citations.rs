//! Citations of an answer over the wire: statements, measures, bounds, faults, and the real entailment model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::{common, program};
use common::{Running, Scripted, fields, wire};
use program::{error, run, succeeded};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

async fn server(delay: Duration) -> (Running, Arc<AtomicUsize>) {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, judged) = common::with_scripted_judge(&engine, delay);
    (common::serve(engine, observed, queue_length).await, judged)
}

async fn client(server: &Running) -> BeliefServiceClient<Channel> {
    BeliefServiceClient::new(server.channel().await)
}

async fn check(
    server: &Running,
    request: v1::CheckCitationsRequest,
) -> Result<v1::CheckCitationsResponse, Box<Status>> {
    Ok(client(server).await.check_citations(request).await.map_err(Box::new)?.into_inner())
}

/// The scripted model entails by words: a premise that has all words of the statement supports it.
fn request(answer: &str) -> v1::CheckCitationsRequest {
    v1::CheckCitationsRequest {
        answer: answer.into(),
        passages: wire("q", &["red apples grow. here", "green pears grow. there", "red"]).passages,
        ..v1::CheckCitationsRequest::default()
    }
}

#[tokio::test]
async fn statements_are_checked_against_what_they_cite() {
    let (server, judged) = server(Duration::ZERO).await;
    let answer = check(&server, request("Red apples grow. [1][3] Red pears grow. [2][3] Pears are blue [7]. Nothing."));
    let answer = answer.await.unwrap();
    let texts: Vec<&str> = answer.statements.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["Red apples grow.", "Red pears grow.", "Pears are blue.", "Nothing."]);
    let supported: Vec<bool> = answer.statements.iter().map(|one| one.supported).collect();
    assert_eq!(supported, [true, true, false, false]);
    let cited = |statement: usize| {
        let citations = &answer.statements[statement].citations;
        citations.iter().map(|one| (one.number, one.exists, one.precise)).collect::<Vec<_>>()
    };
    // Passage 1 supports the first statement, so citation 3 is irrelevant. The second statement needs both citations.
    assert_eq!(cited(0), [(1, true, true), (3, true, false)]);
    assert_eq!(cited(1), [(2, true, true), (3, true, true)]);
    assert_eq!((cited(2), cited(3)), (vec![(7, false, false)], vec![]));
    assert_eq!((answer.recall, answer.precision, answer.citations), (0.5, Some(0.6), 5));
    let alone: Vec<Option<f64>> = answer.statements[0].citations.iter().map(|one| one.entailment).collect();
    assert_eq!((alone, answer.statements[0].entailment), (vec![Some(0.9), Some(0.1)], Some(0.9)));
    assert_eq!((answer.statements[2].entailment, answer.statements[2].citations[0].entailment), (None, None));
    // Two statements with three premises each: both passages together, and each of them.
    assert_eq!((answer.judged_pairs, judged.load(Ordering::SeqCst)), (6, 6));
    assert_eq!((answer.model.as_str(), answer.model_sha256.len()), ("scripted", 64));
    assert!(answer.warnings.is_empty());
    let again = check(&server, request("Red apples grow [1][3].")).await.unwrap();
    assert_eq!((again.judged_pairs, again.precision), (0, Some(0.5)), "verdicts are cached");
    server.stop().await;
}

#[tokio::test]
async fn options_change_what_counts() {
    let (server, _) = server(Duration::ZERO).await;
    let wrong = "Red apples grow [1][9]. Green pears grow [2].";
    let by_definition = check(&server, request(wrong)).await.unwrap();
    assert_eq!((by_definition.recall, by_definition.precision), (0.5, Some(1.0 / 3.0)));
    let skip = v1::CheckCitationsRequest { skip_out_of_range: true, ..request(wrong) };
    let as_the_program = check(&server, skip).await.unwrap();
    assert_eq!((as_the_program.precision, as_the_program.citations), (Some(1.0), 1));
    let strict = v1::CheckCitationsRequest { threshold: Some(0.95), ..request("Red apples grow [1].") };
    assert_eq!(check(&server, strict).await.unwrap().recall, 0.0);
    let loose = v1::CheckCitationsRequest { threshold: Some(0.1), ..request("Red apples grow [3].") };
    assert_eq!(check(&server, loose).await.unwrap().recall, 1.0);
    // The question is prepended to statements, not to passages.
    let asked = v1::CheckCitationsRequest { question: "there".into(), ..request("Green pears grow. [2]\nRed [3]") };
    let asked = check(&server, asked).await.unwrap();
    assert_eq!(asked.statements.iter().map(|one| one.supported).collect::<Vec<_>>(), [true, false]);
    // A title precedes its text.
    let mut titled = request("Title: Fruit red [3]");
    titled.passages[2].title = "Fruit".into();
    assert_eq!(check(&server, titled).await.unwrap().recall, 1.0);
    let nothing = check(&server, request("Red.")).await.unwrap();
    assert_eq!((nothing.recall, nothing.precision, nothing.judged_pairs), (0.0, None, 0));
    // The scripted model reads 512 tokens.
    let mut long = request("Red [3]");
    long.passages[2].text = "red ".repeat(2_000);
    let warnings = check(&server, long).await.unwrap().warnings;
    assert_eq!(warnings, ["the passages of 1 statements may be longer than the 512 tokens that are read"]);
    server.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_by_field() {
    let (server, judged) = server(Duration::ZERO).await;
    type Change = fn(&mut v1::CheckCitationsRequest);
    let cases: [(&str, Change); 13] = [
        ("answer", |r| r.answer.clear()),
        ("answer", |r| r.answer = "[1] ... [2]".into()),
        ("answer", |r| r.answer = "word ".repeat(600_001)),
        ("answer", |r| r.answer = "Red.\n".repeat(1_001)),
        ("answer", |r| r.answer = (1..10_002).map(|number| format!("a [{number}] ")).collect::<Vec<_>>().concat()),
        ("passages", |r| r.passages.clear()),
        ("passages", |r| r.passages = vec![r.passages[0].clone(); 21]),
        ("question", |r| r.question = "  ".into()),
        ("question", |r| r.question = "q".repeat(1_001)),
        ("threshold", |r| r.threshold = Some(0.0)),
        ("threshold", |r| r.threshold = Some(f64::NAN)),
        // A statement with very many citations.
        ("answer", |r| {
            r.answer = format!("Red {}.\n", (1..302).map(|at| format!("[{at}]")).collect::<Vec<_>>().concat());
        }),
        // A long premise for each of 300 statements.
        ("passages", |r| {
            r.passages = vec![v1::Passage { text: "x".repeat(175_000), ..Default::default() }; 20];
            let order =
                |first: usize| (0..20).map(|at| format!("[{}]", (first + at) % 20 + 1)).collect::<Vec<_>>().concat();
            r.answer = (0..300).map(|first| format!("Red {first} {}.\n", order(first))).collect::<Vec<_>>().concat();
        }),
    ];
    for (field, change) in cases {
        let mut asked = request("Red [1].");
        change(&mut asked);
        let status = check(&server, asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    // 401 statements with one citation each: the server's limit is 400 pairs.
    let many = (0..401).map(|number| format!("Red {number} [1].\n")).collect::<Vec<_>>().concat();
    let status = check(&server, request(&many)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(judged.load(Ordering::SeqCst), 0);
    server.stop().await;
    let bare = Scripted::default().serve().await;
    let status = check(&bare, request("Red [1].")).await.unwrap_err();
    assert_eq!((status.code(), status.message().contains("entailment.model")), (Code::FailedPrecondition, true));
    bare.stop().await;
}

#[tokio::test]
async fn a_deadline_ends_the_check_and_the_next_one_is_answered() {
    let (server, _) = server(Duration::from_millis(20)).await;
    let many = (0..300).map(|number| format!("Red {number} [1].\n")).collect::<Vec<_>>().concat();
    let mut call = tonic::Request::new(request(&many));
    call.set_timeout(Duration::from_millis(300));
    let status = client(&server).await.check_citations(call).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    assert_eq!(check(&server, request("Red [3].")).await.unwrap().judged_pairs, 1);
    server.stop().await;
}

const ANSWER: &str = "The lighthouse of Arden was built by Moira Kell [1][2]. It is painted blue [1].";
const PASSAGES: [&str; 2] = [
    "The lighthouse of Arden was built of grey granite in 1871 by the engineer Moira Kell.",
    "Arden lies on the coast.",
];

#[tokio::test]
async fn the_real_model_finds_the_passage_that_supports() {
    let _alone = common::alone().await;
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let engine = common::with_judge(&engine, common::real_judge(8));
    let server = common::serve(engine, observed, queue_length).await;
    let asked = v1::CheckCitationsRequest {
        answer: ANSWER.into(),
        passages: wire("q", &PASSAGES).passages,
        ..v1::CheckCitationsRequest::default()
    };
    let answer = check(&server, asked).await.unwrap();
    let found: Vec<(bool, Vec<bool>)> = answer
        .statements
        .iter()
        .map(|one| (one.supported, one.citations.iter().map(|citation| citation.precise).collect()))
        .collect();
    assert_eq!(found, [(true, vec![true, false]), (false, vec![false])], "{answer:?}");
    assert_eq!((answer.recall, answer.precision), (0.5, Some(1.0 / 3.0)));
    // The command agrees, both in process and with a server.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.jsonl");
    let passages = [json!(PASSAGES[0]), json!({ "text": PASSAGES[1], "title": "" })];
    let lines = [json!({ "answer": ANSWER, "passages": passages }), json!({ "answer": "No.", "passages": passages })];
    std::fs::write(&file, lines.each_ref().map(ToString::to_string).join("\n")).unwrap();
    let (file, address) = (file.to_str().unwrap().to_owned(), server.address.clone());
    let programs = tokio::task::spawn_blocking(move || {
        let here = succeeded(&run(&["citations", &file]));
        let there = succeeded(&run(&["citations", &file, "--server", &address]));
        assert_eq!(here["answers"][0]["statements"].as_array().unwrap().len(), 2);
        for found in [&here, &there] {
            assert_eq!(found["recall"], 0.25);
            assert!((found["precision"].as_f64().unwrap() - 1.0 / 6.0).abs() < 1e-12);
            assert_eq!(found["answers"][0]["statements"][0]["citations"][1]["precise"], false);
            assert!(found["answers"][1]["precision"].is_null());
        }
        std::fs::write(&file, "{\"answer\": \"a\", \"passages\": [\"b\"]}\n{\"answer\": 3}").unwrap();
        let bad = run(&["citations", &file]);
        assert_eq!(bad.status.code(), Some(2));
        assert!(error(&bad).contains("answers.jsonl:2: "), "{}", error(&bad));
        // A refused answer does not affect the others.
        let refused = json!({ "answer": "[1]", "passages": passages }).to_string();
        std::fs::write(&file, [lines[0].to_string(), refused, lines[1].to_string()].join("\n")).unwrap();
        let some = run(&["citations", &file]);
        assert_eq!(some.status.code(), Some(2));
        for told in ["answers.jsonl:2: answer: must hold a statement", "1 of 3 answers were refused"] {
            assert!(error(&some).contains(told), "{}", error(&some));
        }
        let found: Value = serde_json::from_slice(&some.stdout).unwrap();
        assert_eq!(found["answers"].as_array().unwrap().iter().map(|one| &one["line"]).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(found["recall"], 0.25);
        std::fs::write(&file, "{\"answer\": \"[1]\", \"passages\": [\"b\"]}").unwrap();
        let bad = run(&["citations", &file]);
        assert_eq!(bad.status.code(), Some(2));
        assert!(error(&bad).contains("answers.jsonl:1: answer: must hold a statement"), "{}", error(&bad));
    });
    programs.await.unwrap();
    server.stop().await;
}
