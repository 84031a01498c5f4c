//! The analyses of *Mixture of Interventions* as a program, on tiny lists and the real models.

use std::collections::BTreeMap;
use std::path::Path;

use crate::program;
use program::{alone, error, run};
use serde_json::{Value, json};

/// Two lists of three passages with labels and answers, and one without either. Written for this test.
fn data(folder: &Path) -> String {
    let passage =
        |id: &str, text: &str, label: u8, score: f64| json!({ "id": id, "text": text, "label": label, "score": score });
    let lists = [
        json!({ "id": "q1", "question": "Who keeps the mill?", "answers": ["Ada Voss"], "passages": [
            passage("a", "Rye needs a cool spring.", 0, 3.0), passage("b", "The mill is kept by Ada Voss.", 1, 2.0),
            passage("c", "The weir was mended in May.", 0, 1.0)] }),
        json!({ "id": "q2", "question": "How deep is the well?", "answers": ["forty metres", "40 metres"], "passages": [
            passage("a", "The well is forty metres deep.", 1, 9.0), passage("b", "Tin is mined at Orrin.", 0, 2.0),
            passage("c", "The chapel has a slate roof.", 0, 1.5)] }),
        json!({ "id": "q3", "question": "What is mined at Orrin?", "passages": [
            passage("a", "The chapel has a slate roof.", 0, 2.0), passage("b", "The weir was mended in May.", 0, 1.0),
            passage("c", "Rye needs a cool spring.", 0, 0.5)] }),
    ];
    let path = folder.join("lists.jsonl");
    let lines = lists.iter().map(|list| format!("{list}\n")).collect::<Vec<_>>().concat();
    std::fs::write(&path, lines).unwrap();
    path.display().to_string()
}

/// Figures by name, without the prefix of the analysis.
fn figures(kind: &str, text: &[u8]) -> BTreeMap<String, Value> {
    let lines = std::str::from_utf8(text).unwrap().lines();
    let figure = |line: &str| {
        let figure: Value = serde_json::from_str(line).unwrap();
        let name = figure["name"].as_str().unwrap().strip_prefix(kind).unwrap().trim().to_owned();
        (name, figure)
    };
    lines.map(figure).collect()
}

/// Runs an analysis over the first two lists. Returns its figures and the folder with its page.
fn analysed(kind: &str, folder: &Path, more: &[&str]) -> (BTreeMap<String, Value>, String) {
    let data = data(folder);
    let out = folder.join(kind).display().to_string();
    let arguments = ["analyse", "--format", "json", kind, &data, "--limit", "2", "--resamples", "50", "--out", &out];
    let output = run(&[&arguments[..], more].concat());
    assert!(output.status.success(), "{}", error(&output));
    let page = std::fs::read_to_string(Path::new(&out).join("analysis.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("<table") && !page.contains("NaN"), "{page}");
    assert!(!page.contains("src=") && !page.contains("href=\"http"));
    let figures = figures(kind, &output.stdout);
    assert!(figures.values().all(|figure| figure["questions"].as_u64().unwrap() <= 2));
    (figures, out)
}

fn value(figures: &BTreeMap<String, Value>, name: &str) -> f64 {
    figures.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", figures.keys()))["value"].as_f64().unwrap()
}

#[test]
fn reversing_a_ranking_is_measured_on_the_answer() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (figures, _) = analysed("reversed-ranking", folder.path(), &[]);
    let likelihood = |order: &str| value(&figures, &format!("{order}: log P(reference) a token"));
    for order in ["MOI", "MOI as published", "retriever", "retriever, reversed", "random orders"] {
        assert!(likelihood(order) < 0.0, "{order}");
        assert!((0.0..=1.0).contains(&value(&figures, &format!("{order}: token F1"))));
    }
    let drop = value(&figures, "MOI − MOI, reversed: log P(reference) a token");
    assert!((drop - (likelihood("MOI") - likelihood("MOI, reversed"))).abs() < 1e-9);
}

#[test]
fn orders_have_distances_within_their_bounds() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (figures, out) = analysed("order-distance", folder.path(), &[]);
    let within = value(&figures, "orders that begin alike (within a group)");
    let between = value(&figures, "orders that do not (between groups)");
    assert!((0.0..=2.0).contains(&within) && (0.0..=2.0).contains(&between));
    assert!(within > 0.0, "another order changes the prompt");
    assert!((value(&figures, "between − within") - (between - within)).abs() < 1e-9);
    assert!((0.0..=1.0).contains(&value(&figures, "its group's rotation is the nearest")));
    // Only mean distances are stored, not the distributions.
    let results = std::fs::metadata(Path::new(&out).join("results.jsonl")).unwrap();
    assert!(results.len() < 10_000, "{}", results.len());
}

#[test]
fn seeds_are_compared_for_every_design() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (figures, _) = analysed("stability", folder.path(), &["--repeats", "2"]);
    for design in ["random", "cyclic", "latin", "prefix", "adaptive"] {
        assert!((-1.0..=1.0).contains(&value(&figures, &format!("{design}: Kendall's tau of two seeds"))));
        assert!((0.0..=1.0).contains(&value(&figures, &format!("{design}: nDCG@10, mean over seeds"))));
        assert!(value(&figures, &format!("{design}: tokens of a ranking")) > 0.0);
    }
    let tokens = |design: &str| value(&figures, &format!("{design}: tokens of a ranking"));
    assert!(tokens("prefix") < tokens("random"));
}

#[test]
fn designs_are_measured_by_labels_and_answers_and_a_list_without_either_is_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (figures, _) = analysed("designs", folder.path(), &[]);
    for design in ["complete", "cyclic", "pruned", "variable pruning", "prefix"] {
        assert!((0.0..=1.0).contains(&value(&figures, &format!("{design}: nDCG@10"))));
        assert!(value(&figures, &format!("{design}: log P(reference) a token")) < 0.0);
    }
    let share = |design: &str| value(&figures, &format!("{design}: tokens over the complete design's"));
    assert!((share("complete") - 1.0).abs() < 1e-9);
    assert!(share("pruned") < share("cyclic") && share("cyclic") < 1.0);
    assert!((value(&figures, "relevant passage at place 1: RR") - 1.0).abs() < 1e-9);
    assert!((value(&figures, "relevant passage at place 2: RR") - 0.5).abs() < 1e-9);

    let data = data(folder.path());
    let refused = run(&["analyse", "--format", "json", "designs", &data, "--skip", "2"]);
    assert!(!refused.status.success());
    assert!(error(&refused).contains("labels: no passage"), "{}", error(&refused));
}

#[test]
fn lists_that_cannot_be_asked_are_refused_by_their_field() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let short = run(&["analyse", "--format", "json", "order-distance", &data, "--passages", "2", "--limit", "1"]);
    assert_eq!(short.status.code(), Some(2));
    assert!(error(&short).contains("no question has what order-distance needs"), "{}", error(&short));
    let unanswered = run(&["analyse", "--format", "json", "reversed-ranking", &data, "--skip", "2"]);
    assert_eq!(unanswered.status.code(), Some(2));
    assert!(error(&unanswered).contains("no question has what reversed-ranking needs"), "{}", error(&unanswered));
}
