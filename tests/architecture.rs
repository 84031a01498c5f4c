//! Rules for the sources that the compiler does not check.
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

use std::path::{Path, PathBuf};

/// Sources of pure code: numbers in, numbers out. Their crates depend on neither tokio nor tracing, which cargo checks.
const PURE: [&str; 6] = [
    "crates/numeric/src/",
    "crates/moi/src/",
    "crates/rag-metrics/src/",
    "crates/prefix-scheduler/src/plan/",
    "crates/engine/src/fusion/",
    "crates/engine/src/compress/",
];

const IMPURE: [&str; 5] = ["tokio::", "std::time::", "std::fs::", "std::env::", "std::net::"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of all crates by name, without comments, inline test modules and files of tests.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    for folder in crates.chain([root().join("src")]) {
        collect(&folder, &mut found);
    }
    assert!(found.len() > 300, "only {} files were found", found.len());
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !name.ends_with("/tests.rs")
            && !name.contains("/tests/")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            let body = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code: Vec<&str> = body.lines().map(|line| line.split("//").next().unwrap()).collect();
            found.push((name, code.join("\n")));
        }
    }
}

#[test]
fn pure_code_reads_no_files_and_no_clock() {
    for (name, code) in sources().iter().filter(|(name, _)| PURE.iter().any(|place| name.starts_with(place))) {
        for impure in IMPURE {
            assert!(!code.contains(impure), "{name} names {impure}");
        }
    }
}

#[test]
fn only_the_configuration_reads_the_environment() {
    for (name, code) in sources() {
        assert!(!code.contains("env::var") || name.starts_with("src/config/"), "{name} reads the environment");
    }
}

#[test]
fn unsafe_code_stays_in_the_adapter_of_llama_cpp() {
    for (name, code) in sources() {
        let used = code.contains("unsafe {") || code.contains("unsafe fn");
        assert!(!used || name.starts_with("crates/models/src/llama/"), "{name} holds unsafe code");
    }
}

/// Every module of the engine may use the data of requests and results, so these data may use none of them.
#[test]
fn the_types_of_the_engine_import_no_other_module_of_it() {
    for (name, code) in sources().iter().filter(|(name, _)| name.starts_with("crates/engine/src/types/")) {
        let outside = name.ends_with("/types/mod.rs") && code.contains("super::");
        assert!(!code.contains("crate::") && !code.contains("super::super") && !outside, "{name} leaves its folder");
    }
}
