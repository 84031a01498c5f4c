//! `rerankd analyse` on the studies of SePer: each kind once, with the default models.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program;
use program::{alone, error, run};
use serde_json::{Value, json};

/// Lists of two passages, with answers. Written for this test.
fn lists(folder: &Path) -> String {
    let passage = |text: &str, label: u8| json!({ "text": text, "label": label });
    let lists = [
        json!({ "id": "q1", "question": "Who keeps the mill?", "answers": ["Ada Voss"], "passages": [
            passage("Rye needs a cool spring.", 0), passage("The mill is kept by Ada Voss.", 1)] }),
        json!({ "id": "q2", "question": "How deep is the well?", "answers": ["forty metres"], "passages": [
            passage("The well is forty metres deep.", 1), passage("Tin is mined at Orrin.", 0)] }),
        json!({ "id": "q3", "question": "What roof has the chapel?", "answers": [], "passages": [
            passage("The chapel has a slate roof.", 1)] }),
    ];
    write(folder, "lists.jsonl", &lists)
}

/// Candidate answers with the verdicts that a reader would give.
fn judged(folder: &Path) -> String {
    let candidate = |system: &str, text: &str, is: bool| json!({ "system": system, "text": text, "equivalent": is });
    let questions = [
        json!({ "question": "Who keeps the mill?", "answers": ["Ada Voss"], "candidates": [
            candidate("long", "The mill is kept by Ada Voss.", true), candidate("short", "Tom Reed", false)] }),
        json!({ "question": "How deep is the well?", "answers": ["forty metres", "40 m"], "candidates": [
            candidate("long", "The well is forty metres deep.", true), candidate("short", "ten metres", false)] }),
        json!({ "question": "What is mined at Orrin?", "answers": ["tin"], "candidates": [
            candidate("long", "Gold is mined at Orrin.", false), candidate("short", "Tin", true)] }),
    ];
    write(folder, "judged.jsonl", &questions)
}

fn write(folder: &Path, name: &str, lines: &[Value]) -> String {
    let path = folder.join(name);
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Runs an analysis, checks its page, and returns its figures by name, without the prefix of the analysis.
fn analyse(kind: &str, data: &str, more: &[&str]) -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let asked = ["analyse", "--format", "json", kind, data, "--out", &out, "--count", "3", "--resamples", "50"];
    let done = run(&[&asked[..], more].concat());
    assert!(done.status.success(), "{}", error(&done));
    let page = std::fs::read_to_string(Path::new(&out).join("analysis.html")).unwrap();
    assert!(page.contains("class=\"verdict\"") && page.contains("<svg") && !page.contains("href=\"http"), "{page}");
    assert!(std::fs::read_to_string(Path::new(&out).join("analysis.md")).unwrap().contains("\n|---|"));
    // A repeated command prints the stored results.
    let results = || std::fs::read_to_string(Path::new(&out).join("results.jsonl")).unwrap();
    let before = results();
    let again = run(&[&asked[..], more].concat());
    assert!(again.status.success(), "{}", error(&again));
    assert_eq!((&again.stdout, results()), (&done.stdout, before));
    let figure = |line: &str| {
        let figure: Value = serde_json::from_str(line).unwrap();
        let name = figure["name"].as_str().unwrap().strip_prefix(kind).unwrap().trim_start().to_owned();
        (name, figure["value"].clone())
    };
    String::from_utf8(done.stdout).unwrap().lines().map(figure).collect()
}

/// Returns the figure, which must exist and lie within the bounds.
fn within(figures: &BTreeMap<String, Value>, name: &str, (low, high): (f64, f64)) -> f64 {
    let value = figures.get(name).unwrap_or_else(|| panic!("{name:?} is not among {:#?}", figures.keys()));
    let value = value.as_f64().unwrap_or_else(|| panic!("{name:?} has no value"));
    assert!((low..=high).contains(&value), "{name}: {value}");
    value
}

#[test]
#[ignore = "slow: make nightly"]
fn depth_has_both_orders_at_every_number_of_passages() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let figures = analyse("utility-by-depth", &lists(folder.path()), &[]);
    for kind in ["soft", "hard"] {
        for k in [1, 2] {
            let of = |what: &str| within(&figures, &format!("{kind}, {what}, {k} passages"), (-1.0, 1.0));
            let (given, reranked) = (of("retriever's order"), of("reranked"));
            assert!((of("reranked less retriever's") - (reranked - given)).abs() < 1e-9);
        }
    }
    assert!(!figures.keys().any(|name| name.contains("3 passages")));
    // All depths of twenty passages take forty contexts per question; the paper's figure shows three depths.
    let two = analyse("utility-by-depth", &lists(folder.path()), &["--depths", "2,2"]);
    for name in ["soft, retriever's order, 2 passages", "soft, reranked, 2 passages"] {
        within(&two, name, (-1.0, 1.0));
    }
    assert!(!two.keys().any(|name| name.contains("1 passages")));
    for (kind, depths, problem) in [
        ("utility-by-depth", "1,11", "--depths: 11 of the first 10 passages"),
        ("sample-size", "1", "--depths: sample-size does not use depths"),
    ] {
        let refused = run(&["analyse", "--format", "json", kind, &lists(folder.path()), "--depths", depths]);
        assert!(refused.status.code() == Some(2) && error(&refused).contains(problem), "{}", error(&refused));
    }
}

#[test]
#[ignore = "slow: make nightly"]
fn compression_keeps_fewer_tokens_at_every_step() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let figures = analyse("utility-of-compression", &lists(folder.path()), &["--limit", "1"]);
    let tokens = |name: &str| within(&figures, &format!("{name}, tokens"), (0.0, 1e3));
    for method in ["long-llm-lingua", "selective-context"] {
        assert!(tokens(&format!("{method} at 0.25")) <= tokens(&format!("{method} at 0.75")));
        assert!(tokens(&format!("{method} at 0.75")) <= tokens("whole passages"));
        within(&figures, &format!("{method} at 0.5, soft, less whole"), (-2.0, 2.0));
    }
    // At least three of the nine tokens per passage are formatting, so at most six belong to the text.
    let bounded = ["--limit", "1", "--passage-tokens", "9"];
    let figures = analyse("utility-of-compression", &lists(folder.path()), &bounded);
    within(&figures, "whole passages, tokens", (2.0, 12.0));
}

#[test]
fn repeats_have_a_spread() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let figures = analyse("repeatability", &lists(folder.path()), &["--repeats", "2"]);
    within(&figures, "SePer soft, mean", (0.0, 1.0));
    let spread = within(&figures, "SePer soft, standard deviation of a question", (0.0, 0.5));
    assert!(spread > 0.0, "draws with other seeds differ");
    within(&figures, "DeltaSePer hard, mean over questions, standard deviation", (0.0, 1.0));
    within(&figures, "Pearson's r of DeltaSePer soft of a passage with its label, all questions", (-1.0, 1.0));
}

#[test]
#[ignore = "slow: make nightly"]
fn all_answers_agree_with_themselves() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let figures = analyse("sample-size", &lists(folder.path()), &[]);
    for samples in [1, 2] {
        within(&figures, &format!("soft, {samples} answers, deviation of SePer"), (0.0, 1.0));
    }
    within(&figures, "soft, 3 answers, deviation of SePer", (0.0, 1e-12));
    within(&figures, "soft, 3 answers, deviation of DeltaSePer", (0.0, 1e-12));
    let r = within(&figures, "soft, 3 answers, Pearson's r with the estimate of all", (0.9, 1.0));
    assert!(r > 1.0 - 1e-9);
    // A task with labels is answered with one of them.
    let labelled = ["--task", "classification", "--labels", "Ada Voss,forty metres"];
    let figures = analyse("sample-size", &lists(folder.path()), &labelled);
    within(&figures, "soft, 3 answers, deviation of SePer", (0.0, 1e-12));
}

#[test]
#[ignore = "slow: make nightly"]
fn equivalence_is_compared_with_human_verdicts() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let figures = analyse("equivalence", &judged(folder.path()), &[]);
    within(&figures, "entailment, AUC", (0.5, 1.0));
    // Containment is right about all six: only equivalent candidates contain a reference.
    within(&figures, "containment, accuracy", (1.0, 1.0));
    within(&figures, "exact match, accuracy", (4.0 / 6.0 - 1e-9, 4.0 / 6.0 + 1e-9));
    within(&figures, "containment, short, F1", (1.0, 1.0));
    within(&figures, "entailment, long, accuracy", (1.0 / 3.0 - 1e-9, 1.0));
}

#[test]
fn bad_data_is_refused_by_field_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |kind: &str, data: &str| {
        let done = run(&["analyse", "--format", "json", kind, data]);
        assert_eq!(done.status.code(), Some(2), "{}", error(&done));
        error(&done)
    };
    let told = refused("equivalence", &lists(folder.path()));
    assert!(told.contains("lists.jsonl:1: candidates: is missing"), "{told}");
    let told = refused("utility-by-depth", &judged(folder.path()));
    assert!(told.contains("judged.jsonl:1: passages: is missing"), "{told}");
    let empty =
        write(folder.path(), "bad.jsonl", &[json!({ "question": "Who?", "answers": ["A"], "text": "x", "label": 2 })]);
    let told = refused("equivalence", &empty);
    assert!(told.contains("bad.jsonl:1: label: must be true or false, or 1 or 0"), "{told}");
    let alone = json!({ "question": "Who?", "passages": [{ "text": "x", "label": 1 }] });
    let told = refused("sample-size", &write(folder.path(), "unanswered.jsonl", &[alone]));
    assert!(told.contains("no question has what sample-size needs"), "{told}");
}
