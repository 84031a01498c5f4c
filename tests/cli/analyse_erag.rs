//! The analyses of eRAG and Recall as programs: small lists, the default generator, pages and figures out.

use std::path::Path;

use crate::program;
use program::{alone, error, run};
use serde_json::{Value, json};

/// Three lists of six passages with labels, numbers of relevant passages, and answers. Written for this test.
fn lists() -> Vec<Value> {
    let facts = [
        ("Who keeps the mill?", "Ada Voss", "The mill is kept by Ada Voss."),
        ("How deep is the well?", "forty metres", "The well is forty metres deep."),
        ("What is mined at Orrin?", "tin", "Tin is mined at Orrin."),
    ];
    let others = ["Rye needs a cool spring.", "The weir was mended in May.", "The chapel has a slate roof."];
    let list = |(at, (question, answer, _)): (usize, &(&str, &str, &str))| {
        let texts = facts.iter().map(|fact| fact.2).chain(others);
        let passages = texts.enumerate().map(|(index, text)| {
            json!({ "id": index.to_string(), "text": text, "label": u8::from(index == at), "score": 1.0 })
        });
        let passages: Vec<Value> = passages.collect();
        json!({ "id": format!("q{at}"), "question": question, "answers": [answer], "relevant": 1, "passages": passages })
    };
    facts.iter().enumerate().map(list).collect()
}

fn written(folder: &Path, lists: &[Value]) -> String {
    let path = folder.join("lists.jsonl");
    let lines: Vec<String> = lists.iter().map(ToString::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

/// Runs an analysis into a folder, and returns its figures.
fn analysed(kind: &str, data: &str, out: &Path, more: &[&str]) -> Vec<Value> {
    let out = out.display().to_string();
    let output =
        run(&[&["analyse", "--format", "json", kind, data, "--out", &out, "--resamples", "20"], more].concat());
    assert!(output.status.success(), "{}", error(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn checked_page(folder: &Path, title: &str) {
    let page = read(folder, "analysis.html");
    assert!(page.contains("<svg") && !page.contains("src=") && !page.contains("href=\"http"), "{page}");
    assert!(read(folder, "analysis.md").starts_with(&format!("# {title}")));
}

fn value(figures: &[Value], name: &str) -> Option<f64> {
    figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}"))["value"].as_f64()
}

#[test]
#[ignore = "slow: make nightly"]
fn labels_are_correlated_with_the_answers() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (written(folder.path(), &lists()), folder.path().join("out"));
    let figures = analysed("erag-correlation", &data, &out, &["--passages", "3"]);
    checked_page(&out, "Agreement of labels with the answer from the whole list");
    let results: Vec<Value> =
        read(&out, "results.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 3);
    for (at, line) in results.iter().enumerate() {
        let labelled = &line["value"];
        assert_eq!(labelled["cutoffs"], json!([1, 2, 3]));
        // One passage of the three holds the answer.
        let marks: Vec<f64> = (0..3).map(|index| f64::from(u8::from(index == at))).collect();
        assert_eq!(labelled["labels"]["provenance"], json!(marks));
        assert_eq!(labelled["labels"]["contains-answer"], json!(marks));
        // The first cut-off holds only the first passage, so both answers are equal.
        assert_eq!(labelled["labels"]["token-f1"][0], labelled["quality"]["token-f1"][0]);
        assert!(labelled["labels"]["erag-judgement"][0].as_f64().is_some_and(|yes| (0.0..=1.0).contains(&yes)));
    }
    // Every question has the same mean label, 1/3, so the correlation is undefined.
    assert_eq!(value(&figures, "erag-correlation tau-b of P by provenance with token-f1"), None);
    let correlations = figures.iter().filter_map(|figure| figure["value"].as_f64());
    assert!(correlations.clone().count() > 0);
    for one in correlations {
        assert!((-2.0..=2.0).contains(&one), "{one}");
    }
}

#[test]
#[ignore = "slow: make nightly"]
fn costs_are_the_same_in_every_run_but_for_their_seconds() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path(), &lists());
    let (once, twice) = (folder.path().join("once"), folder.path().join("twice"));
    let figures = analysed("erag-cost", &data, &once, &["--passages", "6"]);
    checked_page(&once, "Cost of passage labels and of the answer from the whole list");
    analysed("erag-cost", &data, &twice, &["--passages", "6", "--limit", "2"]);
    let continued = analysed("erag-cost", &data, &twice, &["--passages", "6"]);
    // The third question is the first one of the continued process.
    assert_eq!(read(&once, "results.jsonl"), read(&twice, "results.jsonl"));
    assert!(!read(&once, "results.jsonl").contains("times"));
    for found in [&figures, &continued] {
        for size in [5, 6] {
            for way in ["end to end", "labels, one call", "labels, a call each"] {
                for (measure, least) in
                    [("Tokens", 10.0), ("Seconds", 0.0), ("Cells of the cache", 10.0), ("MiB of the cache", 0.0)]
                {
                    let name = format!("erag-cost {way}, {size} passages: {measure}");
                    assert!(value(found, &name).is_some_and(|value| value > least), "{name}");
                }
            }
            // Prompts of one call share a prefix, and each is shorter than the prompt of the whole list.
            let ratio =
                |what: &str| value(found, &format!("erag-cost {what} over end to end, {size} passages")).unwrap();
            assert!(ratio("Tokens, one call") < ratio("Tokens, a call each"));
            assert!(ratio("MiB of the cache, a call each") < 1.0);
        }
    }
    // Seconds from an earlier command are read from timing.jsonl.
    assert_eq!(continued.len(), figures.len());
    // Without timing.jsonl only tokens and memory are reported.
    std::fs::write(twice.join("timing.jsonl"), "").unwrap();
    let left = analysed("erag-cost", &data, &twice, &["--passages", "6"]);
    assert_eq!(value(&left, "erag-cost end to end, 6 passages: Seconds"), None);
    assert_eq!(
        value(&left, "erag-cost end to end, 6 passages: Tokens"),
        value(&figures, "erag-cost end to end, 6 passages: Tokens")
    );
}

#[test]
fn measures_are_correlated_with_the_answers_from_the_first_passages() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut lists = lists();
    lists[2].as_object_mut().unwrap().remove("relevant");
    let (data, out) = (written(folder.path(), &lists), folder.path().join("out"));
    let figures = analysed("recall-correlation", &data, &out, &["--passages", "3"]);
    checked_page(&out, "Does a measure of retrieval need the number of relevant documents?");
    for line in read(&out, "results.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let numbers = |field: &str| -> Vec<f64> {
            line["value"][field].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
        };
        assert!(numbers("token_f1").iter().all(|one| (0.0..=1.0).contains(one)));
        let likelihoods = numbers("log_likelihood");
        assert!(likelihoods.len() == 3 && likelihoods.iter().all(|one| *one < 0.0), "{likelihoods:?}");
    }
    let of = |measure: &str| {
        value(&figures, &format!("recall-correlation rho of {measure} with log P(reference), all lists and cut-offs"))
    };
    for measure in ["F", "Fe", "T", "T'", "nDCG", "precision", "recall"] {
        assert!(of(measure).is_some_and(|rho| (-1.0..=1.0).contains(&rho)), "{measure}");
    }
    // F at its best alpha is at least F at either end of the range.
    assert!(of("F") >= of("recall"));
    let markdown = read(&out, "analysis.md");
    // Two of three lists state N; all have six passages.
    let row = |name: &str| markdown.lines().find(|line| line.starts_with(&format!("| {name} | "))).unwrap().to_owned();
    assert!(row("F").ends_with("| 6 |") && row("Fe").ends_with("| 9 |") && row("T").ends_with("| 9 |"), "{markdown}");
}

#[test]
fn lists_without_answers_are_refused_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut lists = lists();
    for list in &mut lists {
        list.as_object_mut().unwrap().remove("answers");
    }
    let data = written(folder.path(), &lists);
    for kind in ["erag-correlation", "recall-correlation"] {
        let output = run(&["analyse", "--format", "json", kind, &data]);
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains(&format!("no question has what {kind} needs")), "{}", error(&output));
    }
    // The list states fewer relevant documents than it holds.
    lists[0]["relevant"] = json!(0);
    let data = written(folder.path(), &lists);
    let output = run(&["analyse", "--format", "json", "recall-correlation", &data]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("relevant: is 0"), "{}", error(&output));
}
