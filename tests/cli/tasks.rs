//! `--task` and `--labels` of the commands: results of another task are not continued.

use crate::program;
use program::{alone, arguments, error, run, succeeded};
use serde_json::{Value, json};

fn claims(folder: &std::path::Path) -> String {
    let path = folder.join("claims.jsonl");
    let claim = |text: &str, label: &str| {
        let passages = [
            json!({ "id": "a", "text": "The lighthouse of Arden was built in 1871 by Moira Kell." }),
            json!({ "id": "b", "text": "Sea otters wrap themselves in kelp before they sleep." }),
        ];
        json!({ "question": text, "answers": [label], "passages": passages }).to_string()
    };
    let lines = [
        claim("The lighthouse of Arden was built in 1871.", "SUPPORTS"),
        claim("The lighthouse of Arden was built in 1999.", "REFUTES"),
    ];
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_evaluation_holds_its_task_and_labels() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (claims(folder.path()), folder.path().join("out"));
    let plain = arguments(&file, out.to_str().unwrap());
    let fever = [plain.clone(), vec!["--task", "fact-verification"]].concat();
    let document = succeeded(&run(&fever));
    assert_eq!(document["settings"]["task"], "fact-verification");
    assert_eq!(document["settings"]["labels"], json!(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]));
    assert_eq!(document["settings"]["annotators"], json!(["accuracy", "llm-judgement"]));
    assert_eq!(document["summary"]["evaluated"], 2);
    let lines = std::fs::read_to_string(out.join("results.jsonl")).unwrap();
    for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        for answer in line["value"]["passage_answers"].as_array().unwrap() {
            assert!(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"].contains(&answer.as_str().unwrap()), "{line}");
        }
    }
    for (others, named) in [
        (vec![], "task (stored \"fact-verification\", now \"short-answer\")"),
        (vec!["--task", "fact-verification", "--labels", "SUPPORTS, REFUTES"], "labels (stored "),
    ] {
        let refused = run(&[plain.clone(), others].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(error(&refused).contains(named), "{}", error(&refused));
    }
    // A question whose reference is not a label cannot be evaluated.
    let own = ["--task", "classification", "--labels", "REFUTES,OTHER", "--restart"].to_vec();
    let partly = run(&[plain.clone(), own].concat());
    assert_eq!(partly.status.code(), Some(1));
    assert!(error(&partly).contains("references[0]: is none of the labels"), "{}", error(&partly));
    let few = run(&[plain, vec!["--task", "classification", "--labels", "one"]].concat());
    assert_eq!(few.status.code(), Some(2));
    assert!(error(&few).contains("--labels: 1 given, 2 to 64 allowed"), "{}", error(&few));
}

#[test]
fn a_utility_has_the_probabilities_of_the_labels() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = claims(folder.path());
    let asked = ["utility", "--format", "json", &file, "-n", "2", "--max-tokens", "4", "--task", "fact-verification"];
    let output = run(&asked);
    assert!(output.status.success(), "{}", error(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        assert_eq!(line["task"], "TASK_FACT_VERIFICATION");
        for labels in [&line["label_probabilities_without_context"], &line["utilities"][0]["label_probabilities"]] {
            let sum: f64 = labels.as_array().unwrap().iter().map(|one| one["probability"].as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-9 && labels[2]["label"] == "NOT ENOUGH INFO", "{labels}");
        }
    }
    let unknown = run(&["utility", "--format", "json", &file, "--task", "poetry"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(error(&unknown).contains("long-answer"), "{}", error(&unknown));
    let help = String::from_utf8(run(&["evaluate", "--help"]).stdout).unwrap().replace('\\', "");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("--task fact-verification") && help.contains("one of the labels"), "{help}");
}

/// The answers of an evaluation are the input of `rerankd citations`, with the passages in the order of their numbers.
#[test]
fn long_answers_are_checked_for_their_citations() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (claims(folder.path()), folder.path().join("out"));
    let long = [arguments(&file, out.to_str().unwrap()), vec!["--task", "long-answer"]].concat();
    succeeded(&run(&long));
    let answers = out.join("answers.jsonl");
    let lines: Vec<Value> =
        std::fs::read_to_string(&answers).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!((line["system"].as_str(), line["passages"].as_array().unwrap().len()), (Some("given"), 2));
        assert!(line["passages"][0]["text"].as_str().unwrap().contains("lighthouse") && line["answer"].is_string());
    }
    let checked = succeeded(&run(&["citations", answers.to_str().unwrap()]));
    assert_eq!(checked["systems"]["given"]["count"], 2, "{checked}");
    assert_eq!(checked["systems"]["given"]["recall"], checked["recall"]);
    let named: Vec<&Value> = checked["answers"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(named, [&lines[0]["id"], &lines[1]["id"]]);
    let short = folder.path().join("short");
    succeeded(&run(&arguments(&file, short.to_str().unwrap())));
    assert!(!short.join("answers.jsonl").exists(), "short answers cite nothing");
}
