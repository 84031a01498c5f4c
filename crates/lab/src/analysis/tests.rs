//! What all analyses have in common.

use super::*;
use serde_json::{Map, json};

use engine::prompt::Frame;
use engine::task::{Task, TaskKind};

#[test]
fn names_are_distinct_and_found() {
    let mut names: Vec<&str> = all().map(Analysis::name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(all().all(|one| find(one.name()).is_ok()));
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
        let (data, left_out) = suitable(find(kind).unwrap(), &settings, data());
        (data.questions.len(), left_out)
    };
    assert_eq!(of("position-bias", None), (3, 1));
    assert_eq!(of("order-distance", None), (2, 2));
    assert_eq!(of("reversed-ranking", None), (2, 2));
    assert_eq!(of("recall-correlation", None), (3, 1));
    assert_eq!(of("order-distance", Some(2)), (0, 4), "fewer are taken than are needed");
}

#[test]
fn what_the_protocol_does_not_carry_needs_an_engine() {
    let mut data = Data { questions: vec![Question::default()], ..Data::default() };
    let local = |data: &Data| all().filter(|one| one.local(data)).map(Analysis::name).collect::<Vec<_>>();
    let always = ["reversed-ranking", "order-distance", "sample-size", "erag-cost", "recall-correlation"];
    assert_eq!(local(&data), always);
    data.questions[0].list.answers = vec!["a".to_owned()];
    assert_eq!(
        local(&data),
        ["reversed-ranking", "order-distance", "designs", "sample-size", "erag-cost", "recall-correlation"]
    );
}

fn manifest(kind: &str, models: &ModelIdentity) -> Map<String, Value> {
    readings::tests::settings().manifest(find(kind).unwrap(), models)
}

#[test]
fn prompts_without_a_chat_template_bind_the_results_to_them() {
    let frames = |frame, scorer_frame| {
        let models = ModelIdentity { frame, scorer_frame, ..ModelIdentity::scripted("") };
        let manifest = manifest("stability", &models);
        ["chat_template", "scorer_chat_template"].map(|key| manifest.get(key).cloned())
    };
    assert_eq!(
        frames(Some(Frame::Chat), Some(Frame::Chat)),
        [None, None],
        "analyses from before there were entries go on"
    );
    assert_eq!(frames(Some(Frame::Plain), None), [Some(json!(false)), None]);
    assert_eq!(frames(Some(Frame::Chat), Some(Frame::Plain)), [None, Some(json!(false))]);
}

/// eRAG's Table 1 has FEVER, a task of labels, and Wizard of Wikipedia, whose answers are longer.
#[test]
fn another_task_binds_the_results_and_is_refused_where_nothing_is_answered() {
    let asked = |kind, labels: &[&str]| {
        let task = Task { kind, labels: labels.iter().map(|label| (*label).to_owned()).collect() };
        Settings { task, ..readings::tests::settings() }
    };
    let (short, fever) = (asked(TaskKind::ShortAnswer, &[]), asked(TaskKind::FactVerification, &[]));
    let erag = find("erag-correlation").unwrap();
    let manifest = |settings: &Settings| settings.manifest(erag, &ModelIdentity::scripted(""));
    assert!(!manifest(&short).contains_key("task"), "the default has no entry");
    assert_eq!(manifest(&fever)["task"], json!(["fact-verification", ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]]));
    assert_eq!([&short, &fever, &asked(TaskKind::Dialogue, &[])].map(Settings::answer_tokens), [24, 24, 128]);
    let refused =
        |settings: &Settings, kind: &str| settings.check(find(kind).unwrap()).err().map(|one| one.to_string());
    assert_eq!((refused(&fever, "erag-correlation"), refused(&short, "position-bias")), (None, None));
    assert!(refused(&fever, "position-bias").unwrap().starts_with("--task: position-bias asks for no answer"));
    assert!(refused(&asked(TaskKind::ShortAnswer, &["a", "b"]), "erag-cost").unwrap().starts_with("--labels"));
    let deep = Settings { depths: vec![1, 5], ..short.clone() };
    assert_eq!((manifest(&deep)["depths"].clone(), manifest(&short).get("depths")), (json!([1, 5]), None));
    assert_eq!(refused(&deep, "utility-by-depth"), None);
}

/// Lines from when all questions had one design, or too many tokens were counted, are not mixed with others.
#[test]
fn lines_that_mean_something_else_have_another_format() {
    let format = |kind: &str| manifest(kind, &ModelIdentity::scripted(""))["analysis_format"].clone();
    for kind in ["position-bias", "reversed-ranking", "order-distance", "designs"] {
        assert_eq!(format(kind), json!(3), "{kind}");
    }
    for (kind, expected) in
        [("utility-of-compression", 6), ("sample-size", 6), ("utility-by-depth", 5), ("repeatability", 4)]
    {
        assert_eq!(format(kind), json!(expected), "{kind}");
    }
    assert_eq!((format("stability"), format("erag-correlation")), (json!(2), json!(2)));
}
