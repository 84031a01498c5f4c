use std::sync::Arc;

use super::*;

const SETTINGS: Settings =
    Settings { scored: Scored::Orders(3), passages: Some(2), passage_tokens: None, threshold: 0.5, skip: 0, seed: 0 };

fn list(labels: &[f64]) -> LabelledList {
    let passage = |at: usize| Passage { id: format!("p{at}"), text: format!("text {at}"), ..Passage::default() };
    LabelledList {
        id: "q".into(),
        question: "Who?".into(),
        passages: (0..labels.len()).map(passage).collect(),
        labels: labels.to_vec(),
        relevant: None,
        answers: Vec::new(),
    }
}

fn kept(labels: &[f64], passages: Option<usize>) -> Vec<usize> {
    Chosen::of(&list(labels), &Settings { passages, ..SETTINGS }).kept
}

fn entry(outcome: Result<Preferences, &str>) -> Entry<Preferences> {
    let error = outcome.as_ref().err().map(|problem| (*problem).to_owned());
    Entry { id: "q".into(), data: "d".into(), value: outcome.ok(), error }
}

#[test]
fn the_first_passages_are_taken_and_a_relevant_one() {
    assert_eq!(kept(&[0.0, 1.0, 0.0, 1.0], Some(2)), [0, 1]);
    assert_eq!(kept(&[0.0, 0.0, 0.0, 1.0, 1.0], Some(2)), [0, 3]);
    assert_eq!(kept(&[0.0, 0.0, 0.4], Some(2)), [0, 1], "the list has no relevant passage");
    assert_eq!(kept(&[0.0, 1.0], Some(9)), [0, 1]);
    assert_eq!(kept(&[0.0, 0.0, 1.0], None), [0, 1, 2]);
    assert_eq!(kept(&[0.0, 1.0], Some(1)), [1]);
}

#[test]
fn a_fingerprint_depends_on_exported_data_only() {
    let print = |list: &LabelledList, settings: &Settings| Chosen::of(list, settings).fingerprint();
    let (one, other) = (list(&[1.0, 0.0, 0.0]), list(&[1.0, 0.0, 1.0]));
    let first = print(&one, &SETTINGS);
    assert_eq!(first.len(), 16);
    assert_eq!(first, print(&other, &SETTINGS), "the third passage is not exported");
    assert_eq!(first, print(&one, &Settings { scored: Scored::Tokens, seed: 5, ..SETTINGS }));
    let all = Settings { passages: None, ..SETTINGS };
    assert_ne!(print(&one, &all), print(&other, &all), "labels are exported");
    let mut changed = one.clone();
    changed.passages[1].text.push('.');
    assert_ne!(first, print(&changed, &SETTINGS));
}

#[test]
fn the_seed_of_a_question_depends_on_its_id_and_the_seed() {
    let (one, mut other) = (list(&[1.0]), list(&[1.0]));
    other.id = "r".into();
    let seed = |list: &LabelledList, seed: u64| Chosen::of(list, &SETTINGS).seed(seed);
    assert_eq!(seed(&one, 7), seed(&one, 7));
    assert_ne!(seed(&one, 7), seed(&one, 8));
    assert_ne!(seed(&one, 7), seed(&other, 7));
}

#[test]
fn a_refused_question_has_a_line_with_the_reason() {
    let list = list(&[1.0, 0.0]);
    let chosen = Chosen::of(&list, &SETTINGS);
    let line = serde_json::to_value(chosen.line(entry(Err("too long")))).unwrap();
    assert_eq!(line["error"], "too long");
    assert_eq!(line["passages"][0], json!({ "id": "p0", "title": "", "text": "text 0", "label": 1.0 }));
    assert!(line.get("query_tokens").is_none() && line.get("orders").is_none(), "{line}");
}

#[test]
fn scores_are_rounded_and_unscored_members_are_absent() {
    let list = list(&[1.0, 0.0]);
    let chosen = Chosen::of(&list, &SETTINGS);
    let scores = Preferences {
        query: vec![5, 6],
        passages: vec![Arc::from([1, 2]), Arc::from([3])],
        cut: vec![0, 4],
        orders: vec![vec![1, 0]],
        query_after_order: vec![-1.234_567_89],
        passages_in_order: vec![-20.0],
        query_after_passage: vec![-3.0, -4.0],
        query_alone: Some(-0.1 - 0.2),
    };
    let line = serde_json::to_value(chosen.line(entry(Ok(scores.clone())))).unwrap();
    assert_eq!((&line["query_tokens"], &line["orders"]), (&json!([5, 6]), &json!([[1, 0]])));
    assert_eq!((&line["query_after_order"], &line["query_alone"]), (&json!([-1.234_568]), &json!(-0.3)));
    assert_eq!((&line["passages"][1]["tokens"], &line["passages"][1]["tokens_cut"]), (&json!([3]), &json!(4)));
    let tokens = Preferences {
        orders: Vec::new(),
        query_after_order: Vec::new(),
        passages_in_order: Vec::new(),
        query_after_passage: Vec::new(),
        query_alone: None,
        ..scores
    };
    let line = serde_json::to_value(chosen.line(entry(Ok(tokens)))).unwrap();
    let mut members: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(members, ["data", "id", "passages", "query_tokens", "question"]);
}
