//! Runs the program under test as a child process.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rerankd"));
    command
        .args(arguments)
        .env_remove("RERANKD_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

static ALONE: Mutex<()> = Mutex::const_new(());

/// Held while a program with a generator runs: on a small machine two at once are many times slower than two in turn.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.blocking_lock()
}

/// [`alone`] for an asynchronous test.
pub async fn alone_here() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Standard error of the program.
pub fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output as JSON. Fails if the command failed.
pub fn succeeded(output: &Output) -> Value {
    assert!(output.status.success(), "{}", error(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Arguments of a short evaluation.
pub fn arguments<'a>(questions: &'a str, out: &'a str) -> Vec<&'a str> {
    vec![
        "evaluate",
        "--format",
        "json",
        questions,
        "--out",
        out,
        "--max-tokens",
        "12",
        "--resamples",
        "50",
        "--test-resamples",
        "50",
    ]
}
