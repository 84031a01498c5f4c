//! What is wrong with the command itself is found before a file or a model is read, and told once.

use std::process::Output;

use crate::{common, program};
use program::{command, error, run};

const LISTS: &str = "{\"question\": \"Which river?\", \"answers\": [\"x\"], \"passages\": [{\"id\": \"a\", \"text\": \"one\"}]}\n\
                     {\"question\": \"Who?\", \"answers\": [\"y\"], \"passages\": [{\"id\": \"b\", \"text\": \"two\"}]}\n";

/// 0 was no result in this process and all of them on a server, which takes it for a field that is not set.
#[test]
fn a_count_of_nothing_is_refused() {
    for arguments in [
        &["rerank", "--query", "q", "--top-n", "0"][..],
        &["rerank", "--query", "q", "--orders", "0"],
        &["rerank", "--query", "q", "--token-budget", "0"],
        &["utility", "-n", "0"],
        &["compare", "--data", "x", "--passage-tokens", "0"],
        &["evaluate", "x", "--out", "y", "--depth", "0"],
        &["analyse", "stability", "--data", "x", "--questions", "0"],
        &["calibrate", "--data", "x", "--passage-tokens", "0"],
    ] {
        let refused = run(arguments);
        let said = error(&refused);
        assert!(refused.status.code() == Some(2) && said.contains("must be a whole number above 0"), "{said}");
    }
}

fn once(refused: &Output, expected: &str, file: &str) {
    let said = error(refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(expected) && !said.contains(file), "{said}");
}

/// Every line of the file was blamed, after the models were loaded.
#[test]
fn a_wrong_option_is_no_fault_of_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.jsonl").display().to_string();
    std::fs::write(&file, LISTS).unwrap();
    for (arguments, expected) in [
        (&["utility", &*file, "--task", "classification"][..], "labels: "),
        (&["utility", &file, "-n", "2000"], "samples: "),
        (&["rerank", "--lists", &file, "--score-threshold", "2"], "score_threshold: must lie between 0 and 1"),
        (&["rerank", "--lists", &file, "--latency-budget-ms=-1"], "latency_budget_ms: "),
        (&["rerank", "--lists", &file, "--method", "first", "--instruction", "Find."], "instruction: first does not"),
        (&["rerank", "--lists", &file, "--compress", "selective-context", "--ratio", "2"], "ratio: "),
    ] {
        let absent = ["--set", "generator.model=absent"];
        once(&run(&[arguments, &absent].concat()), expected, "lists.jsonl");
    }
}

/// A secret that was made of a file ends with the file's line.
#[test]
fn a_token_of_the_environment_is_trimmed_and_a_wrong_one_is_named_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(common::Scripted::default().serve());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.jsonl").display().to_string();
    std::fs::write(&file, LISTS).unwrap();
    let asked = |token: &str| {
        let arguments = ["rerank", "--lists", &file, "--method", "retriever", "--server", &server.address];
        command(&arguments).env("RERANKD_TOKEN", token).output().unwrap()
    };
    let answered = asked("abc\n");
    assert!(answered.status.success(), "{}", error(&answered));
    assert_eq!(String::from_utf8_lossy(&answered.stdout).lines().count(), 2);
    once(&asked("a\u{1}b"), "RERANKD_TOKEN, must be printable ASCII", "lists.jsonl");
    runtime.block_on(server.stop());
}

/// `RERANKD_CONFIG=` in a unit's environment file: every command ended with a fault of `--config`.
#[test]
fn an_empty_name_of_a_configuration_is_none() {
    let checked = command(&["check-config"]).env("RERANKD_CONFIG", "").output().unwrap();
    assert!(checked.status.success(), "{}", error(&checked));
    let flag = run(&["check-config", "--config", ""]);
    assert_eq!(flag.status.code(), Some(2), "{}", error(&flag));
    let missing = command(&["check-config"]).env("RERANKD_CONFIG", "/nowhere.toml").output().unwrap();
    assert!(!missing.status.success() && error(&missing).contains("/nowhere.toml"), "{}", error(&missing));
}
