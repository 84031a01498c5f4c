//! The quality gate of `rerankd compare` and `rerankd evaluate`, and answers without labels, against scripted models.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{common, labelled, program};
use labelled::list;
use program::{error, run, succeeded};
use serde_json::{Value, json};

/// A server with a scripted generator and entailment model.
fn scripted(runtime: &tokio::runtime::Runtime) -> common::Running {
    runtime.block_on(async {
        let (engine, observed, queue_length) = common::Scripted::default().engine().await;
        let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
        common::serve(engine, observed, queue_length).await
    })
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

/// Lists with the relevant passage last, or first.
fn lists(path: &Path, last: bool) {
    let line = |number: usize| {
        let mut list = list(number, false);
        if !last {
            list["passages"][3]["score"] = json!(20.0);
            list["passages"].as_array_mut().unwrap().reverse();
        }
        format!("{list}\n")
    };
    std::fs::write(path, (0..12).map(line).collect::<String>()).unwrap();
}

#[test]
fn a_comparison_has_a_gate() {
    let (runtime, folder) = (tokio::runtime::Runtime::new().unwrap(), Folder::new());
    let server = scripted(&runtime);
    lists(&folder.path("last.jsonl"), true);
    lists(&folder.path("first.jsonl"), false);
    let [junit, summary, baseline] = ["junit.xml", "summary.md", "baseline.json"].map(|name| folder.name(name));
    let asked = |data: &str, more: &[&str]| {
        let data = folder.name(data);
        let fixed = ["compare", &data, "--server", &server.address, "--method", "retriever"];
        run(&[&fixed[..], &["--resamples", "100", "--test-resamples", "200"], more].concat())
    };
    let code = |output: &std::process::Output| output.status.code();
    // The relevant passage is last of four: 1 / log2(5). BM25 ranks it first.
    let passed = ["--fail-under", "nDCG@10=0.43", "--fail-under", "bm25:MRR=1", "--save-baseline", &baseline];
    let output = asked("last.jsonl", &passed);
    assert_eq!(code(&output), Some(0), "{}", error(&output));
    assert!(error(&output).contains("quality gate passed: 2 checks"), "{}", error(&output));
    let saved: Value = serde_json::from_str(&folder.text("baseline.json")).unwrap();
    assert_eq!((&saved["format"], &saved["settings"]["study"]), (&json!("rerankd baseline 1"), &json!("compare")));
    assert_eq!((saved["questions"][5].as_str(), &saved["values"]["retriever"]["MRR"][5]), (Some("q5"), &json!(0.25)));
    let files = ["--junit", &junit, "--summary", &summary];
    let output = asked("last.jsonl", &[&files[..], &["--fail-under", "ndcg@10=0.5"]].concat());
    assert_eq!(code(&output), Some(3));
    let said = "quality gate failed: retriever nDCG@10 is 0.431, below 0.5";
    assert!(error(&output).contains(said) && folder.text("summary.md").contains(said), "{}", error(&output));
    assert!(folder.text("junit.xml").contains("<failure message=\"retriever nDCG@10 is 0.431, below 0.5\">"));
    // The summary is appended, because the steps of a job share its file.
    let unchanged = asked("last.jsonl", &[&files[..], &["--baseline", &baseline]].concat());
    assert_eq!(code(&unchanged), Some(0), "{}", error(&unchanged));
    assert_eq!(folder.text("summary.md").matches("## rerankd compare\n").count(), 2);
    assert!(folder.text("junit.xml").contains("failures=\"0\""));
    // Another retriever for the same questions: better, then back.
    let output = asked("first.jsonl", &["--baseline", &baseline, "--save-baseline", &baseline]);
    assert_eq!(code(&output), Some(0), "{}", error(&output));
    let better = folder.text("baseline.json");
    let output = asked("last.jsonl", &["--baseline", &baseline, "--max-drop", "0.02", "--save-baseline", &baseline]);
    assert_eq!(code(&output), Some(3));
    let said = "retriever nDCG@10 fell from 1.000 to 0.431, more than 0.02 beyond noise: -0.569 [-0.569, -0.569]";
    assert!(error(&output).contains(said), "{}", error(&output));
    assert_eq!(folder.text("baseline.json"), better, "a failed gate saves no baseline");
    let tolerated = asked("last.jsonl", &["--baseline", &baseline, "--max-drop", "nDCG@10=0.6"]);
    assert_eq!(code(&tolerated), Some(0), "{}", error(&tolerated));
    // Refused with the reason, before a question is asked.
    for (more, said) in [
        (vec!["--baseline", &baseline, "--limit", "3"], "--baseline: has other questions: 12 instead of 3"),
        (vec!["--baseline", &baseline, "--relevance-threshold", "0.7"], "relevance_threshold (stored 0.5, now 0.7)"),
        (vec!["--baseline", &baseline, "--method", "query-generation"], "has no system \"query-generation\""),
        (vec!["--baseline", &junit], "junit.xml: invalid JSON"),
        (vec!["--fail-under", "nDCG@3=1"], "--fail-under: \"nDCG@3\" is not measured; metrics are MRR, nDCG@10"),
        (vec!["--fail-under", "0.8"], "must be METRIC=VALUE, as in nDCG@10=0.8"),
        (vec!["--max-drop", "0.1"], "--baseline <FILE>"),
        (vec!["--baseline", &baseline, "--max-drop", "MRR=-1"], "must be at least 0"),
        (vec!["--junit", &junit], "--junit: needs a bound: give --fail-under or --baseline"),
    ] {
        let output = asked("last.jsonl", &more);
        assert!(code(&output) == Some(2) && error(&output).contains(said), "{said}\n{}", error(&output));
    }
    let unwritable = asked("last.jsonl", &["--save-baseline", &folder.name("last.jsonl/baseline.json")]);
    assert_eq!(code(&unwritable), Some(1), "{}", error(&unwritable));
    runtime.block_on(server.stop());
}

/// The scripted generator repeats the letter of the first passage: z if that is the supporting one.
fn questions(path: &Path, count: usize, supporting: usize) {
    let line = |number: usize| {
        let mut passages: Vec<Value> = ["q", "v", "j"].map(|letter| json!({ "text": letter.repeat(200) })).to_vec();
        passages.insert(supporting, json!({ "text": "z".repeat(200), "supporting": true }));
        let answers: Vec<String> = (1..20).map(|length| "z".repeat(length)).collect();
        json!({ "id": format!("q{number}"), "question": "zzj", "answers": answers, "passages": passages })
    };
    std::fs::write(path, (0..count).map(|number| line(number).to_string() + "\n").collect::<String>()).unwrap();
}

#[test]
fn an_evaluation_has_a_gate_on_labels_and_on_answers() {
    let (runtime, folder) = (tokio::runtime::Runtime::new().unwrap(), Folder::new());
    let server = scripted(&runtime);
    questions(&folder.path("first.jsonl"), 12, 0);
    questions(&folder.path("second.jsonl"), 12, 1);
    let asked = |data: &str, out: &str, more: &[&str]| {
        let (data, out) = (folder.name(data), folder.name(out));
        run(&[&program::arguments(&data, &out)[..], &["--server", &server.address], more].concat())
    };
    let baseline = folder.name("baseline.json");
    // The metric of a bound is computed without being asked for: 1 / log2(3) at the second place.
    let labels = ["--annotators", "provenance", "--no-end-to-end"];
    let bound =
        ["--fail-under", "nDCG@10=0.63", "--fail-under", "given:provenance/RR=0.5", "--save-baseline", &baseline];
    let document = succeeded(&asked("second.jsonl", "a", &[&labels[..], &bound].concat()));
    assert_eq!(document["settings"]["metrics"], json!(["P", "Success", "AP", "RR", "nDCG", "R", "nDCG@10"]));
    let output = asked("second.jsonl", "a", &[&labels[..], &["--fail-under", "ndcg@10=0.64"]].concat());
    assert_eq!(output.status.code(), Some(3));
    assert!(error(&output).contains("given provenance/nDCG@10 is 0.631, below 0.64"), "{}", error(&output));
    // The same gate on answers, without labels.
    let answers = ["--answers-only", "--annotators", "token-f1,containment", "--top-n", "1"];
    let output = asked("first.jsonl", "b", &[&answers[..], &["--baseline", &baseline]].concat());
    assert!(
        output.status.code() == Some(2) && error(&output).contains("has no metric \"token-f1\""),
        "{}",
        error(&output)
    );
    succeeded(&asked("first.jsonl", "b", &[&answers[..], &["--save-baseline", &baseline]].concat()));
    let worse =
        [&answers[..], &["--baseline", &baseline, "--max-drop", "0.05", "--max-drop", "containment=1"]].concat();
    let output = asked("second.jsonl", "c", &worse);
    assert_eq!(output.status.code(), Some(3), "{}", error(&output));
    let said = error(&output);
    assert!(said.contains("given token-f1 fell from ") && !said.contains("containment fell"), "{said}");
    // A question is refused, so the values are incomplete.
    let refused = json!({ "id": "none", "question": "Who?", "answers": ["x"], "passages": [] });
    std::fs::write(folder.path("more.jsonl"), format!("{}{refused}\n", folder.text("first.jsonl"))).unwrap();
    let output = asked("more.jsonl", "e", &[&answers[..], &["--save-baseline", &folder.name("more.json")]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(!folder.path("more.json").exists(), "{}", error(&output));
    let other = asked("second.jsonl", "d", &["--save-baseline", &baseline, "--baseline", &folder.name("none")]);
    assert!(error(&other).contains("write one with --save-baseline"), "{}", error(&other));
    runtime.block_on(server.stop());
}

#[test]
fn answers_are_evaluated_without_labels() {
    let (runtime, folder) = (tokio::runtime::Runtime::new().unwrap(), Folder::new());
    let server = scripted(&runtime);
    questions(&folder.path("q.jsonl"), 3, 1);
    let asked = |out: &str, more: &[&str]| {
        let (data, out) = (folder.name("q.jsonl"), folder.name(out));
        run(&[&program::arguments(&data, &out)[..], &["--server", &server.address], more].concat())
    };
    let lines = |out: &str| -> Vec<Value> {
        let text = folder.text(&format!("{out}/results.jsonl"));
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["value"].clone()).collect()
    };
    let both = ["--method", "given,query-generation"];
    let only = ["--answers-only", "--top-n", "2", "--count", "2"];
    let document = succeeded(&asked("only", &[&both[..], &only].concat()));
    assert_eq!((&document["settings"]["answers_only"], &document["settings"]["top_n"]), (&json!(true), &json!(2)));
    let names = |rows: &Value| -> Vec<String> {
        rows.as_array().unwrap().iter().map(|row| row["annotator"].as_str().unwrap().to_owned()).collect()
    };
    let scores = ["exact-match", "token-f1", "rouge-l", "containment", "delta-seper-soft"];
    for system in document["summary"]["systems"].as_array().unwrap() {
        assert_eq!(
            (names(&system["end_to_end"]), system["metrics"].as_array().unwrap().len()),
            (scores.map(str::to_owned).to_vec(), 0)
        );
        assert_eq!(names(&system["cost"]), ["tokens", "seconds"]);
        assert!(system["cost"].as_array().unwrap().iter().all(|cost| cost["value"].as_f64() > Some(0.0)), "{system}");
    }
    let differences = &document["summary"]["comparisons"][0]["differences"];
    assert_eq!(names(differences), [&scores[..], &["tokens", "seconds"]].concat());
    let tokens = &differences[scores.len()];
    // Reading for the ranking costs tokens, so it loses on each question.
    assert!(tokens["difference"].as_f64() > Some(0.0) && tokens["losses"] == 3, "{tokens}");
    for line in lines("only") {
        let given = &line["systems"]["given"];
        assert_eq!((&given["ranking"], &given["context"]), (&json!([0, 1]), &json!([0, 1])));
        assert!(line.get("labels").is_none() && line.get("passage_answers").is_none(), "{line}");
        assert_eq!(line["systems"]["query-generation"]["ranking"].as_array().unwrap().len(), 2);
        let tokens = |system: &str| line["systems"][system]["answer_tokens"].as_u64().unwrap();
        assert!(
            tokens("given") > 400 && line["tokens"].as_u64().unwrap() > tokens("given") + tokens("query-generation")
        );
    }
    let report = folder.text("only/report.md");
    assert!(
        report.contains("the first 2 of the ranked list") && !report.contains("Metrics over the labels"),
        "{report}"
    );
    // The same answers beside labels.
    succeeded(&asked("whole", &[&both[..], &["--answers-only"]].concat()));
    succeeded(&asked("labelled", &both));
    for (alone, beside) in lines("whole").iter().zip(lines("labelled")) {
        for system in ["given", "query-generation"] {
            let [alone, beside] = [alone, &beside].map(|line| &line["systems"][system]);
            assert_eq!((&alone["answer"], &alone["context"]), (&beside["answer"], &beside["context"]));
            assert_eq!(alone["end_to_end"]["token-f1"], beside["end_to_end"]["token-f1"]);
        }
        assert!(alone["tokens"].as_u64() < beside["tokens"].as_u64());
    }
    // An interrupted evaluation continues with the seconds of its first questions.
    let results = folder.text("only/results.jsonl");
    std::fs::write(folder.path("only/results.jsonl"), results.lines().next().unwrap().to_owned() + "\n").unwrap();
    let again = succeeded(&asked("only", &[&both[..], &only].concat()));
    assert_eq!(
        (folder.text("only/results.jsonl"), &again["summary"]["systems"][1]["cost"][1]["questions"]),
        (results, &json!(3))
    );
    // Long answers are checked for their citations. The scripted generator cites nothing.
    let long = succeeded(&asked("long", &["--answers-only", "--task", "long-answer"]));
    let rows = &long["summary"]["systems"][0]["end_to_end"];
    assert_eq!(names(rows), ["token-f1", "rouge-l", "citation-recall", "citation-precision"]);
    assert_eq!((&rows[2]["value"], &rows[2]["questions"]), (&json!(0.0), &json!(3)), "{rows}");
    for (more, said) in [
        (vec!["--answers-only", "--no-end-to-end"], "cannot be used with"),
        (vec!["--answers-only", "-m", "P@5"], "cannot be used with"),
        (vec!["--top-n", "2"], "--answers-only"),
        (vec!["--answers-only", "--annotators", "provenance"], "provenance labels passages"),
    ] {
        let output = asked("refused", &more);
        assert!(output.status.code() == Some(2) && error(&output).contains(said), "{said}\n{}", error(&output));
    }
    runtime.block_on(server.stop());
}
