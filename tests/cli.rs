//! The binary itself: exit codes, messages, formats.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn rerankd(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rerankd"))
        .args(arguments)
        .env_remove("RERANKD_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses early closes its input; that is no fault of the test.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands: [&[&str]; 9] = [
        &["serve"],
        &["rerank"],
        &["fit"],
        &["models"],
        &["models", "list"],
        &["models", "pull"],
        &["models", "verify"],
        &["health"],
        &["check-config"],
    ];
    for command in commands {
        let output = rerankd(&[command, &["--help"]].concat(), "");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example:"), "{command:?}");
    }
    assert!(rerankd(&["--version"], "").status.success());
}

#[test]
fn fit_reads_standard_input_and_writes_json() {
    let problem = r#"{"n":2,"permutations":[[0,1],[1,0],[0,1],[1,0]],"scores":[1.0,0.2,1.2,0.1],"lam":0.05,"rho":2.0,
        "a0":[0.8888888888888888,0.1111111111111111]}"#;
    let output = rerankd(&["fit", "--input", "-"], problem);
    assert!(output.status.success(), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((answer["objective"].as_f64().unwrap() - 0.059_119_588_381).abs() < 1e-9);
    assert_eq!(answer["ranking"], serde_json::json!([0, 1]));
    let output = rerankd(&["fit", "--input", "-"], r#"{"n":2,"permutations":[[0,1]],"scores":["x"]}"#);
    assert_eq!(output.status.code(), Some(2));
    let output = rerankd(&["fit", "--input", "/nowhere.json"], "");
    assert_eq!((output.status.code(), error(&output).contains("/nowhere.json")), (Some(2), true));
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let unreachable = rerankd(&["rerank", "--query", "q", "--server", "127.0.0.1:9"], "\"a\"\n");
    assert_eq!(unreachable.status.code(), Some(69), "{}", error(&unreachable));
    assert_eq!(rerankd(&["health", "--server", "127.0.0.1:9"], "").status.code(), Some(69));
    assert_eq!(rerankd(&["rerank"], "").status.code(), Some(2), "the query is missing");
    let faulty = rerankd(&["check-config", "--set", "limits.passages=none", "--set", "limits.unheard=1"], "");
    assert_eq!(faulty.status.code(), Some(78));
    assert!(error(&faulty).contains("limits.passages") && error(&faulty).contains("limits.unheard"));
    let good = rerankd(&["check-config", "--set", "limits.passages=7"], "");
    assert!(good.status.success() && String::from_utf8_lossy(&good.stdout).contains("passages = 7"));
    let unknown = rerankd(&["models", "pull", "nobody"], "");
    assert_eq!((unknown.status.code(), error(&unknown).contains("nobody")), (Some(2), true));
    let missing = rerankd(&["serve", "--listen", "127.0.0.1:0", "--model", "/nowhere/x.gguf"], "");
    assert_eq!((missing.status.code(), error(&missing).contains("/nowhere/x.gguf")), (Some(1), true));
}

#[test]
fn bad_passages_name_their_line() {
    for (line, expected) in [
        ("{\"id\":1}", "standard input:2: must be a string, or an object"),
        ("{nonsense", "standard input:2: "),
        ("{\"text\":\"x\",\"score\":\"high\"}", "standard input:2: must be"),
    ] {
        let output = rerankd(&["rerank", "--query", "q", "--server", "127.0.0.1:9"], &format!("\"fine\"\n{line}\n"));
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains(expected), "{}", error(&output));
    }
}

#[test]
fn a_rerank_in_process_prints_json_in_a_pipe() {
    let input = "{\"id\":\"a\",\"text\":\"Rye flour absorbs more water than wheat.\"}\n\
                 {\"id\":\"b\",\"text\":\"The looms were driven by the River Senn.\"}\n";
    let arguments = ["rerank", "--query", "Which river drove the looms?", "--method", "query-generation"];
    let output = rerankd(&arguments, input);
    assert!(output.status.success(), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["results"][0]["id"], "b");
    assert!(answer["usage"]["tokens"].as_u64().unwrap() > 20);
}
