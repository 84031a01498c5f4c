//! `rerankd analyse` as a program: labelled lists in, a page, tables and figures out.

use std::path::Path;

use crate::program;
use program::{alone, error, run};
use serde_json::{Value, json};

/// Three lists of three passages with labels and answers. Written for this test.
fn data(folder: &Path) -> String {
    let passage = |id: &str, text: &str, label: u8| json!({ "id": id, "text": text, "label": label, "score": 1.0 });
    let lists = [
        json!({ "id": "q1", "question": "Who keeps the mill?", "answers": ["Ada Voss"], "passages": [
            passage("a", "Rye needs a cool spring.", 0), passage("b", "The mill is kept by Ada Voss.", 1),
            passage("c", "The weir was mended in May.", 0)] }),
        json!({ "id": "q2", "question": "How deep is the well?", "answers": ["forty metres"], "passages": [
            passage("a", "The well is forty metres deep.", 1), passage("b", "Tin is mined at Orrin.", 0),
            passage("c", "The chapel has a slate roof.", 0)] }),
        json!({ "id": "q3", "question": "What is mined at Orrin?", "answers": ["tin"], "passages": [
            passage("a", "The chapel has a slate roof.", 0), passage("b", "The weir was mended in May.", 0),
            passage("c", "Tin is mined at Orrin.", 1)] }),
    ];
    let path = folder.join("lists.jsonl");
    let lines: Vec<String> = lists.iter().map(ToString::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

fn figures(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_analysis_is_a_page_and_is_not_asked_twice() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let out = folder.path().join("bias").display().to_string();
    let first = run(&["analyse", "--format", "json", "position-bias", &data, "--limit", "2", "--out", &out]);
    assert!(first.status.success(), "{}", error(&first));
    let results = || std::fs::read_to_string(Path::new(&out).join("results.jsonl")).unwrap();
    let two = results();
    assert_eq!(two.lines().count(), 2);
    let all = run(&["analyse", "--format", "json", "position-bias", &data, "--out", &out]);
    assert!(all.status.success(), "{}", error(&all));
    assert!(results().starts_with(&two), "stored results are kept");
    let weights: Vec<f64> = figures(&String::from_utf8(all.stdout).unwrap())
        .iter()
        .filter(|figure| figure["name"].as_str().unwrap().ends_with(", 3 passages") && figure["unit"] == "weight")
        .filter(|figure| figure["name"].as_str().unwrap().contains("position "))
        .map(|figure| figure["value"].as_f64().unwrap())
        .collect();
    assert_eq!(weights.len(), 3);
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{weights:?}");
    let page = std::fs::read_to_string(Path::new(&out).join("analysis.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("src=") && !page.contains("href=\"http"), "{page}");
    let markdown = std::fs::read_to_string(Path::new(&out).join("analysis.md")).unwrap();
    assert!(markdown.contains("| position | weight | times the fair share |"), "{markdown}");

    let other = run(&["analyse", "--format", "json", "position-bias", &data, "--out", &out, "--seed", "1"]);
    assert_eq!(other.status.code(), Some(2), "results of another seed are not continued");
    assert!(error(&other).contains("seed"), "{}", error(&other));
    let plain = ["--out", &out, "--set", "generator.chat_template=off"];
    let plain = run(&[&["analyse", "--format", "json", "position-bias", &data][..], &plain].concat());
    assert_eq!(plain.status.code(), Some(2), "results of another chat template are not continued");
    assert!(error(&plain).contains("chat_template (stored nothing, now false)"), "{}", error(&plain));
}

#[test]
fn bad_usage_is_reported_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let unknown = run(&["analyse", "--format", "json", "bias", &data]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(error(&unknown).contains("position-bias"), "{}", error(&unknown));
    let missing = run(&["analyse", "--format", "json", "position-bias", "missing.jsonl"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(error(&missing).contains("missing.jsonl"), "{}", error(&missing));
    let threshold = run(&["analyse", "--format", "json", "position-bias", &data, "--relevance-threshold", "NaN"]);
    assert!(error(&threshold).contains("--relevance-threshold"), "{}", error(&threshold));
    let repeats = run(&["analyse", "--format", "json", "stability", &data, "--repeats", "101"]);
    assert_eq!(repeats.status.code(), Some(2));
    assert!(error(&repeats).contains("--repeats"), "{}", error(&repeats));
}

/// No server listens at the address: the command must fail before it connects and before it removes results.
#[test]
fn analyses_without_server_support_are_refused_before_results_are_removed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let out = folder.path().join("kept");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("results.jsonl"), "kept").unwrap();
    let named = out.display().to_string();
    let (data, named) = (data.as_str(), named.as_str());
    for kind in ["order-distance", "designs"] {
        let command =
            ["analyse", "--format", "json", kind, data, "--server", "http://127.0.0.1:1", "--out", named, "--restart"];
        let refused = run(&command);
        assert_eq!(refused.status.code(), Some(2), "{}", error(&refused));
        assert!(
            error(&refused).contains("--server: ") && error(&refused).contains("leave it out"),
            "{}",
            error(&refused)
        );
        assert_eq!(std::fs::read_to_string(out.join("results.jsonl")).unwrap(), "kept");
    }
}
