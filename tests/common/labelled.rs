//! Labelled lists for `rerankd compare`, and the figures that it prints.

use std::io::Write;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::error;

/// Questions, each with the passage that answers it. Written for this test.
pub const FACTS: [(&str, &str, &str); 6] = [
    (
        "Who carved the weathercock of Brenny chapel?",
        "Weathercock",
        "Ansel Roo carved the weathercock of Brenny chapel.",
    ),
    ("What do the keepers of Ulm Point burn in fog?", "Fog", "In fog the keepers of Ulm Point burn tarred rope."),
    ("How deep is the well in Carrow market?", "The well", "The well in Carrow market is forty metres deep."),
    ("Which apple ripens first in the Tarn orchards?", "Apples", "In the Tarn orchards the Grey Pippin ripens first."),
    (
        "Why was the Nessel bridge closed in March?",
        "Closed",
        "The Nessel bridge was closed in March for its rotten piers.",
    ),
    ("When do the bees of Lower Hask swarm?", "Swarms", "The bees of Lower Hask swarm in the last week of May."),
];

/// A list whose relevant passage is last, or absent if `missing`.
pub fn list(number: usize, missing: bool) -> Value {
    let other = |shift: usize| {
        let fact = (number + shift) % FACTS.len();
        let (_, title, text) = FACTS[fact];
        json!({ "id": format!("f{fact}"), "title": title, "text": text, "score": 10.0 - shift as f64, "label": 0 })
    };
    let mut passages = vec![other(1), other(2), other(3)];
    if !missing {
        let (_, title, text) = FACTS[number % FACTS.len()];
        passages.push(json!({ "id": "gold", "title": title, "text": text, "score": 1.0, "supporting": true }));
    }
    let question = FACTS[number % FACTS.len()].0;
    json!({ "id": format!("q{number}"), "question": question, "answers": [], "relevant": 2, "passages": passages })
}

/// `count` lists; the last one has no relevant passage.
pub fn lists(path: &Path, count: usize) {
    let lines: Vec<String> = (0..count).map(|at| format!("{}\n", list(at, at + 1 == count))).collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(lines.concat().as_bytes()).unwrap();
    std::fs::write(path, packed.finish().unwrap()).unwrap();
}

pub fn figures(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", error(output));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn figure<'a>(figures: &'a [Value], name: &str) -> &'a Value {
    figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name} in {figures:#?}"))
}
