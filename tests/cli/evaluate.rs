//! `rerankd evaluate` and `rerankd metrics` as programs: files in, files out, interrupted and continued.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::{common, program};
use program::{alone, arguments, command, error, run, succeeded};
use serde_json::{Value, json};

pub const FACTS: [(&str, &str, &str); 6] = [
    ("Who built the lighthouse of Arden?", "Moira Kell", "The lighthouse of Arden was built in 1871 by Moira Kell."),
    ("What do sea otters wrap themselves in?", "kelp", "Sea otters wrap themselves in kelp before they sleep."),
    (
        "How often is a sourdough starter fed?",
        "every day",
        "A sourdough starter is fed every day with flour and water.",
    ),
    ("Which river runs through Tolm?", "the Esk", "The river Esk runs through the town of Tolm."),
    ("What colour is the door of the mill?", "green", "The door of the old mill is green and hangs askew."),
    ("When does the ferry to Holm leave?", "at noon", "The ferry to Holm leaves at noon on weekdays."),
];

/// Questions over passages written for them; ids q0, q1, …
fn questions(path: &Path, count: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    for number in 0..count {
        let (question, answer, _) = FACTS[number % FACTS.len()];
        let passage = |shift: usize| {
            let fact = (number + shift) % FACTS.len();
            json!({ "id": format!("f{fact}"), "text": FACTS[fact].2, "supporting": shift == 0 })
        };
        let passages = [passage(1 + number % 2), passage(0), passage(3)];
        let line =
            json!({ "id": format!("q{number}"), "question": question, "answers": [answer], "passages": passages });
        writeln!(file, "{line}").unwrap();
    }
}

#[test]
fn an_evaluation_writes_results_summary_and_report() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("q.jsonl"), folder.path().join("out"));
    questions(&file, 6);
    let (file, place) = (file.to_str().unwrap(), out.to_str().unwrap());
    let asked = [arguments(file, place), vec!["--method", "given", "--method", "query-generation"]].concat();
    let document = succeeded(&run(&asked));
    let summary = &document["summary"];
    assert_eq!((&summary["questions"], &summary["evaluated"]), (&json!(6), &json!(6)));
    assert_eq!(document["settings"]["systems"], json!(["given", "query-generation"]));
    let of = |system: usize, annotator: &str, metric: &str| {
        let rows = summary["systems"][system]["metrics"].as_array().unwrap();
        rows.iter().find(|row| row["annotator"] == annotator && row["metric"] == metric).unwrap()["value"]
            .as_f64()
            .unwrap()
    };
    // The supporting passage is second in the input order; the caller gives the labels.
    assert_eq!(of(0, "provenance", "RR"), 0.5);
    assert!(of(1, "provenance", "RR") > 0.9);
    assert!(of(1, "containment", "RR") > of(0, "containment", "RR"));
    let compared = &summary["comparisons"][0];
    assert_eq!((&compared["system"], &compared["against"]), (&json!("query-generation"), &json!("given")));
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    for part in ["Metrics over the labels", "Comparisons", "Utility by rank", "<svg", "q0"] {
        assert!(report.contains(part), "{part}");
    }
    // The page opens with its verdict.
    assert!(report.contains("</h1><p class=\"verdict\">"), "{report}");
    for outside in ["http://www", "https://", "src=", "@import", "url("] {
        let found = report.matches(outside).count()
            - report.matches("http://www.w3.org/2000/svg").count() * usize::from(outside == "http://www");
        assert_eq!(found, 0, "the report asks for {outside}");
    }
    // A repeated command evaluates nothing. Other settings are refused by name.
    let before = std::fs::read(out.join("results.jsonl")).unwrap();
    succeeded(&run(&asked));
    assert_eq!(before, std::fs::read(out.join("results.jsonl")).unwrap());
    let other = run(&[asked.clone(), vec!["--seed", "7"]].concat());
    assert_eq!(other.status.code(), Some(2));
    assert!(error(&other).contains("seed (stored 0, now 7)"), "{}", error(&other));
    // More questions continue the evaluation; a changed one is refused.
    questions(Path::new(file), 7);
    assert_eq!(succeeded(&run(&asked))["summary"]["evaluated"], 7);
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, text.replacen("Esk", "Usk", 1)).unwrap();
    let changed = run(&asked);
    assert_eq!(changed.status.code(), Some(2));
    assert!(error(&changed).contains("or its passages have changed"), "{}", error(&changed));
    std::fs::write(file, text).unwrap();
    // A line of another question is refused, too.
    let text = std::fs::read_to_string(out.join("results.jsonl")).unwrap().replace("\"id\":\"q1\"", "\"id\":\"q9\"");
    std::fs::write(out.join("results.jsonl"), text).unwrap();
    let torn = run(&asked);
    assert_eq!(torn.status.code(), Some(2));
    assert!(error(&torn).contains("results.jsonl:2: has question \"q9\", expected \"q1\""), "{}", error(&torn));
    succeeded(&run(&[asked, vec!["--restart"]].concat()));
}

#[test]
fn concurrent_questions_give_the_results_of_sequential_ones() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.jsonl");
    questions(&file, 7);
    let results = |name: &str, concurrency: &str| {
        let out = folder.path().join(name);
        let same = ["--set", "generator.reproducible=true", "--concurrency", concurrency];
        let asked = [arguments(file.to_str().unwrap(), out.to_str().unwrap()), same.to_vec()].concat();
        let document = succeeded(&run(&asked));
        let timing = std::fs::read_to_string(out.join("timing.jsonl")).unwrap();
        (std::fs::read_to_string(out.join("results.jsonl")).unwrap(), document["summary"]["systems"].clone(), timing)
    };
    let (alone, at_once) = (results("alone", "1"), results("at-once", "3"));
    assert_eq!(alone.0, at_once.0);
    assert_eq!(alone.1, at_once.1);
    assert_eq!(at_once.2.lines().count(), 7);
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| memchr::memchr_iter(b'\n', &bytes).count())
}

fn killed_after(mut child: Child, results: &Path, pause: Duration) -> bool {
    let (begun, started) = (lines(results), Instant::now());
    while lines(results) <= begun && child.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_mins(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(pause);
    let running = child.try_wait().unwrap().is_none();
    // SIGKILL.
    let _ = child.kill();
    child.wait().unwrap();
    running
}

#[test]
fn an_evaluation_killed_four_times_ends_as_an_uninterrupted_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.jsonl");
    questions(&file, 12);
    let file = file.to_str().unwrap();
    let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
    // Short work per question: the test is about the moments between questions.
    let short = ["--no-end-to-end", "--annotators", "containment"];
    let asked = |out| [arguments(file, out), short.to_vec()].concat();
    let broken_off = asked(broken.to_str().unwrap());
    succeeded(&run(&asked(whole.to_str().unwrap())));
    let results = broken.join("results.jsonl");
    let mut kills = 0;
    // Fractions of a question's time, so kills fall before, within and between questions on any machine.
    let timing = std::fs::read_to_string(whole.join("timing.jsonl")).unwrap();
    let seconds = timing.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seconds"].as_f64().unwrap());
    let question = seconds.sum::<f64>() / 12.0;
    for pause in [0.0, 0.9, 0.3, 1.3] {
        let child = command(&broken_off).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        kills += usize::from(killed_after(child.unwrap(), &results, Duration::from_secs_f64(pause * question)));
    }
    assert_eq!(kills, 4, "an evaluation ended before it was killed: it needs more questions");
    // The worst case: half a line.
    let mut torn = std::fs::File::options().append(true).open(&results).unwrap();
    torn.write_all(b"{\"id\":\"q11\",\"pass").unwrap();
    drop(torn);
    let document = succeeded(&run(&broken_off));
    assert_eq!(document["summary"]["evaluated"], 12);
    assert_eq!(std::fs::read(whole.join("results.jsonl")).unwrap(), std::fs::read(&results).unwrap());
}

#[test]
fn a_server_gives_the_results_that_this_process_gives() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.jsonl");
    questions(&file, 3);
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let mut methods = vec!["--method", "given", "--method", "moi", "--annotators", "containment,seper-soft"];
    methods.extend(["--count", "2"]);
    let asked = |out: &Path| -> Vec<String> {
        let plain = [arguments(file.to_str().unwrap(), out.to_str().unwrap()), methods.clone()].concat();
        plain.into_iter().map(str::to_owned).collect()
    };
    let ours = asked(&here);
    succeeded(&run(&ours.iter().map(String::as_str).collect::<Vec<_>>()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let serve = async { common::serve(common::real_engine().await, std::sync::Arc::default(), 8).await };
    let server = runtime.block_on(serve);
    let theirs = [asked(&there), vec!["--server".into(), server.address.clone()]].concat();
    succeeded(&run(&theirs.iter().map(String::as_str).collect::<Vec<_>>()));
    let file = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(file(&here, "results.jsonl"), file(&there, "results.jsonl"));
    // Each continues the other's results. A server does not report its engine's bounds.
    let read = |folder: &Path| serde_json::from_str::<Value>(&file(folder, "manifest.json")).unwrap();
    let (mut manifest, other) = (read(&here), read(&there));
    assert!(
        manifest
            .as_object_mut()
            .unwrap()
            .remove("engine")
            .is_some_and(|bounds| bounds["models"]["generator"]["context"].is_number())
    );
    assert_eq!(manifest, other);
    let back = [asked(&here), vec!["--server".into(), server.address.clone()]].concat();
    succeeded(&run(&back.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(manifest["entailment_sha256"].as_str().unwrap().len(), 64, "another model would mix labels");
    runtime.block_on(server.stop());
}

#[test]
fn questions_that_fail_are_listed_and_do_not_end_the_evaluation() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("q.jsonl"), folder.path().join("out"));
    questions(&file, 2);
    let mut more = std::fs::File::options().append(true).open(&file).unwrap();
    writeln!(more, "{}", json!({ "id": "none", "question": "Who?", "answers": ["x"], "passages": [] })).unwrap();
    writeln!(more, "{}", json!({ "id": "bare", "question": " ", "answers": ["x"], "passages": [{ "text": "y" }] }))
        .unwrap();
    let output = run(&arguments(file.to_str().unwrap(), out.to_str().unwrap()));
    assert_eq!(output.status.code(), Some(1));
    assert!(error(&output).contains("2 of 4 questions were not evaluated"), "{}", error(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = json!([{ "id": "none", "error": "passages: must not be empty" }, { "id": "bare", "error": "question: must not be empty" }]);
    assert_eq!(document["summary"]["failed"], failed);
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("2 failed") && report.contains("passages: must not be empty"));
}
