//! Tests of all analyses.

use super::*;
use serde_json::json;

use engine::types::{Task, TaskKind};

fn about(kind: &str) -> About {
    find(kind).unwrap().about()
}

#[test]
fn names_are_distinct_and_found() {
    let mut names: Vec<&str> = all().map(|one| one.about().name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(all().all(|one| find(one.about().name).is_ok()));
    let error = find("bias").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("position-bias"), "{error}");
}

#[test]
fn questions_without_what_an_analysis_needs_are_left_out() {
    let question = |passages: usize, answers: &[&str]| {
        let mut question = Question::default();
        question.list.passages = (0..passages).map(|index| Passage::untitled(index, "x".into())).collect();
        question.list.answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        question
    };
    let data = || Data {
        questions: vec![question(1, &["a"]), question(2, &[]), question(3, &["a"]), question(4, &["a"])],
        ..Data::default()
    };
    let of = |kind: &str, passages: Option<usize>| {
        let settings = Settings { passages, ..readings::tests::settings() };
        let (data, left_out) = suitable(&about(kind), &settings, data());
        (data.questions.len(), left_out)
    };
    assert_eq!(of("position-bias", None), (3, 1));
    assert_eq!(of("order-distance", None), (2, 2));
    assert_eq!(of("reversed-ranking", None), (2, 2));
    assert_eq!(of("recall-correlation", None), (3, 1));
    assert_eq!(of("order-distance", Some(2)), (0, 4), "fewer are taken than are needed");
}

#[test]
fn some_analyses_need_an_engine() {
    let mut data = Data { questions: vec![Question::default()], ..Data::default() };
    let local = |data: &Data| all().filter(|one| one.local(data)).map(|one| one.about().name).collect::<Vec<_>>();
    let always = ["reversed-ranking", "order-distance", "sample-size", "erag-cost", "recall-correlation"];
    assert_eq!(local(&data), always);
    data.questions[0].list.answers = vec!["a".to_owned()];
    assert_eq!(
        local(&data),
        ["reversed-ranking", "order-distance", "designs", "sample-size", "erag-cost", "recall-correlation"]
    );
}

/// A server cuts passages that exceed its context, so a page must not call them whole.
#[test]
fn a_page_does_not_say_that_passages_were_whole() {
    let note = |kind: &str, passage_tokens| {
        let settings = Settings { passage_tokens, ..readings::tests::settings() };
        notes(&about(kind), &settings, &ModelIdentity::scripted(""), 3, 0).remove(0)
    };
    assert_eq!(
        note("stability", None),
        "3 questions, the first 5 passages of each; passages as the context holds them; seed 0."
    );
    assert!(note("stability", Some(64)).contains("; passages of at most 64 tokens; "));
    assert_eq!(note("equivalence", None), "3 questions; seed 0.", "its passages are answers");
}

#[test]
fn a_result_of_another_form_is_refused_by_its_question() {
    let question = Question { id: "q7".to_owned(), ..Question::default() };
    let answer = Answer { question: &question, value: json!({ "f1": "high" }) };
    let error = values::<readings::Quality>(&[answer]).unwrap_err().to_string();
    assert!(error.contains("\"q7\"") && error.contains("--restart"), "{error}");
}

/// eRAG's Table 1 has FEVER, a task with labels, and Wizard of Wikipedia, with longer answers.
#[test]
fn another_task_binds_the_results_and_is_refused_without_answers() {
    let asked = |kind, labels: &[&str]| {
        let task = Task { kind, labels: labels.iter().map(|label| (*label).to_owned()).collect() };
        Settings { task, ..readings::tests::settings() }
    };
    let (short, fever) = (asked(TaskKind::ShortAnswer, &[]), asked(TaskKind::FactVerification, &[]));
    let erag = about("erag-correlation");
    let manifest = |settings: &Settings| settings.manifest(&erag, &ModelIdentity::scripted(""));
    assert_eq!(manifest(&short)["task"], json!(["short-answer", []]));
    assert_eq!(manifest(&fever)["task"], json!(["fact-verification", ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]]));
    assert_eq!([&short, &fever, &asked(TaskKind::Dialogue, &[])].map(Settings::answer_tokens), [24, 24, 128]);
    let refused = |settings: &Settings, kind: &str| settings.check(&about(kind)).err().map(|one| one.to_string());
    assert_eq!((refused(&fever, "erag-correlation"), refused(&short, "position-bias")), (None, None));
    assert!(refused(&fever, "position-bias").unwrap().starts_with("--task: position-bias does not support"));
    assert!(refused(&asked(TaskKind::ShortAnswer, &["a", "b"]), "erag-cost").unwrap().starts_with("--labels"));
    let deep = Settings { depths: vec![1, 5], ..short.clone() };
    assert_eq!((&manifest(&deep)["depths"], &manifest(&short)["depths"]), (&json!([1, 5]), &json!([])));
    assert_eq!(refused(&deep, "utility-by-depth"), None);
}
