//! `--concurrency`: several questions of a file in flight at a server, on a scripted generator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::common::{self, Scripted};
use crate::program::{error, run};

/// Runs a command on a file of twelve lists. Returns its output and the most concurrent requests at the server.
async fn most_in_flight(server: &common::Running, arguments: &[&str]) -> (std::process::Output, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.jsonl");
    let passage =
        |number: usize| json!({ "text": format!("word{number} other words of a passage"), "label": number % 2 });
    let line = |number: usize| json!({ "id": format!("q{number}"), "question": format!("word{number}"), "answers": ["words"], "passages": [passage(number), passage(number + 1)] });
    std::fs::write(&file, (0..12).map(|number| line(number).to_string()).collect::<Vec<_>>().join("\n")).unwrap();
    let place = file.to_str().unwrap();
    let out = folder.path().join("out");
    let fill = |argument: &&str| argument.replace("LISTS", place).replace("OUT", out.to_str().unwrap());
    let arguments: Vec<String> =
        arguments.iter().map(fill).chain(["--server".into(), server.address.clone()]).collect();
    let (done, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watched = tokio::spawn({
        let (admission, done, most) = (server.admission.clone(), Arc::clone(&done), Arc::clone(&most));
        async move {
            while !done.load(Ordering::SeqCst) {
                most.fetch_max(admission.in_flight(), Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let output = tokio::task::spawn_blocking(move || run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    let output = output.await.unwrap();
    done.store(true, Ordering::SeqCst);
    watched.await.unwrap();
    assert!(output.status.success(), "{}", error(&output));
    (output, most.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrency_bounds_the_questions_in_flight_and_keeps_their_order() {
    let _alone = common::alone().await;
    let server = Scripted { delay: Duration::from_millis(1), ..Scripted::default() }.serve().await;
    let trec = ["rerank", "--lists", "LISTS", "--method", "query-generation", "--format", "trec"];
    let (alone, one) = most_in_flight(&server, &trec).await;
    let (at_once, several) = most_in_flight(&server, &[&trec[..], &["--concurrency", "4"]].concat()).await;
    assert_eq!(alone.stdout, at_once.stdout);
    assert_eq!(String::from_utf8_lossy(&alone.stdout).lines().count(), 24);
    // A call counts until its slot is released, which is after its answer was sent.
    assert!(one <= 2 && (2..=5).contains(&several) && one < several, "{one}, {several}");
    for command in [
        vec![
            "compare",
            "--format",
            "json",
            "LISTS",
            "--method",
            "query-generation",
            "--test-resamples",
            "10",
            "--concurrency",
            "4",
        ],
        vec!["evaluate", "--format", "json", "LISTS", "--out", "OUT", "--annotators", "token-f1", "--concurrency", "4"],
    ] {
        let (output, several) = most_in_flight(&server, &command).await;
        assert!((2..=4).contains(&several), "{command:?}: {several}");
        assert!(!error(&output).contains("no annotator scores answers"), "{}", error(&output));
    }
    // A warning says that answers from whole lists are left out. These calls are too short to be seen in flight.
    let unread =
        ["evaluate", "--format", "json", "LISTS", "--out", "OUT", "--annotators", "provenance", "--concurrency", "4"];
    let (output, _) = most_in_flight(&server, &unread).await;
    assert!(error(&output).contains("no annotator scores answers"), "{}", error(&output));
    server.stop().await;
}

/// A refused question is retried, so none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn more_questions_at_once_than_the_server_takes_are_all_answered() {
    let _alone = common::alone().await;
    let server = Scripted { delay: Duration::from_millis(1), queue_length: 2, ..Scripted::default() }.serve().await;
    let asked =
        ["rerank", "--lists", "LISTS", "--method", "query-generation", "--format", "trec", "--concurrency", "9"];
    let (output, most) = most_in_flight(&server, &asked).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 24);
    // Two permits for calls with the generator, and two for those whose message is not read yet.
    assert!(most <= 4, "{most}");
    server.stop().await;
}
