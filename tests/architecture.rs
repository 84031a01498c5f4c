//! Layering, read off the sources.
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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which rooms of the crate each may name in a `crate::` path: the table of src/lib.rs. A room may name itself.
fn allowed() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let names = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("//! | `")?.split('|').collect();
        let room = cells[0].trim().trim_end_matches('`').to_owned();
        let mut may = names(cells[2]);
        may.push(room.clone());
        Some((room, may))
    };
    let rows: BTreeMap<String, Vec<String>> = text.lines().filter_map(row).collect();
    assert!(rows.len() > 15, "the table of src/lib.rs is not read: {rows:?}");
    rows
}

/// Crates that only one part may name.
const RESERVED: [(&str, &str); 12] = [
    ("ort", "src/runtime/onnx/"),
    ("tokenizers", "src/runtime/onnx/"),
    ("tonic", "src/rpc/"),
    ("prost", "src/rpc/"),
    ("llama_cpp_2", "src/runtime/llama/"),
    ("llama_cpp_sys_2", "src/runtime/llama/"),
    ("clarabel", "src/fit/solve.rs"),
    ("hf_hub", "src/storage/fetch.rs"),
    ("clap", "src/cli/"),
    ("comfy_table", "src/cli/"),
    ("prometheus", "src/observe/"),
    ("opentelemetry", "src/observe/"),
];

/// Rooms of pure code: numbers in, numbers out.
const PURE: [&str; 7] =
    ["src/numeric/", "src/fit/", "src/fusion/", "src/compress/", "src/belief/", "src/metrics/", "src/plan/"];

/// Crates that pure code does not name.
const IMPURE: [&str; 6] = ["tokio", "tracing", "std::time", "std::fs", "std::env", "std::net"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
}

/// The code of a file without comments and without its inline test module.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let body = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    body.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[test]
fn modules_name_only_what_lies_below_them() {
    let allowed = allowed();
    for path in sources(&root().join("src")) {
        let name = relative(&path);
        let module = name.trim_start_matches("src/").split(['/', '.']).next().unwrap().to_owned();
        if ["lib", "main"].contains(&module.as_str()) || is_test(&name) {
            continue;
        }
        let may = allowed.get(&module).unwrap_or_else(|| panic!("{name}: a module without a rule"));
        for (at, _) in code(&path).match_indices("crate::") {
            let rest = &code(&path)[at + "crate::".len()..];
            // Grouped imports name several modules at once.
            let names: Vec<String> = if let Some(group) = rest.strip_prefix('{') {
                let inner = group.split('}').next().unwrap();
                inner.split(',').map(|part| part.trim().split("::").next().unwrap().to_owned()).collect()
            } else {
                vec![rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()]
            };
            for used in names.iter().filter(|used| !used.is_empty()) {
                assert!(may.contains(used), "{name} names crate::{used}, which is not below {module}");
            }
        }
    }
}

/// What lies above a room may name it; nobody may name each other.
#[test]
fn no_two_rooms_name_each_other() {
    let allowed = allowed();
    for (room, may) in &allowed {
        for other in may.iter().filter(|other| *other != room) {
            let back = allowed.get(other).unwrap_or_else(|| panic!("{room} may name {other}, which has no row"));
            assert!(!back.contains(room), "{room} and {other} name each other");
        }
    }
}

#[test]
fn crates_stay_where_they_belong() {
    for path in sources(&root().join("src")) {
        let (name, code) = (relative(&path), code(&path));
        for (reserved, place) in RESERVED {
            let starts = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            let path = format!("{reserved}::");
            let used =
                code.match_indices(&path).any(|(at, _)| starts(at)) || code.contains(&format!("use {reserved};"));
            assert!(!used || name.starts_with(place), "{name} names {reserved}, which belongs to {place}");
        }
        let pure = PURE.iter().any(|room| name.starts_with(room)) && !is_test(&name);
        for impure in IMPURE.iter().filter(|_| pure) {
            assert!(!code.contains(&format!("{impure}::")), "{name} names {impure}, but is pure");
        }
        let environment = code.contains("env::var") && !name.starts_with("src/config/");
        assert!(!environment, "{name} reads the environment; only config may");
    }
}

#[test]
fn unsafe_code_stays_in_the_adapter() {
    for path in sources(&root().join("src")) {
        let name = relative(&path);
        let used = code(&path).contains("unsafe {") || code(&path).contains("unsafe fn");
        assert!(!used || name.starts_with("src/runtime/llama/"), "{name} holds unsafe code");
    }
}
