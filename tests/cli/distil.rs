//! `rerankd distil export`: its scores on a scripted generator, and the program on the default one, killed and resumed.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::{common, program};
use common::Scripted;
use common::scripted::overlap_script;
use engine::Engine;
use engine::preferences::{PreferenceRequest, Scored};
use engine::types::{EngineError, Passage};
use prefix_scheduler::plan::Token;
use program::{alone, command, error, run, succeeded};
use serde_json::{Value, json};

/// Questions, each with the passage that answers it. Written for this test.
const FACTS: [(&str, &str, &str); 6] = [
    ("Who mended the sluice at Farrow mill?", "Sluice", "Odo Venn mended the sluice at Farrow mill after the flood."),
    (
        "What do the bakers of Lind put into rye bread?",
        "Rye",
        "The bakers of Lind put caraway and honey into rye bread.",
    ),
    ("How long is the tunnel under Greyhope ridge?", "Tunnel", "The tunnel under Greyhope ridge is two miles long."),
    ("Which bell of Sarn rings at noon?", "Bells", "At noon the smallest bell of Sarn rings twelve times."),
    ("Why do the ferries of Maw stop in June?", "Ferries", "The ferries of Maw stop in June for want of water."),
    ("When is the wool fair of Tamber held?", "Fair", "The wool fair of Tamber is held on the first Monday of May."),
];

fn list(number: usize) -> Value {
    let passage = |shift: usize| {
        let (_, title, text) = FACTS[(number + shift) % FACTS.len()];
        json!({ "id": format!("f{shift}"), "title": title, "text": text, "label": u8::from(shift == 0) })
    };
    let passages: Vec<Value> = [1, 2, 3, 0].map(passage).to_vec();
    json!({ "id": format!("q{number}"), "question": FACTS[number].0, "passages": passages })
}

fn lists(path: &Path) {
    let lines: Vec<String> = (0..FACTS.len()).map(|number| format!("{}\n", list(number))).collect();
    std::fs::write(path, lines.concat()).unwrap();
}

fn parsed(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn request(texts: &[&str], scored: Scored) -> PreferenceRequest {
    let passage =
        |(at, text): (usize, &&str)| Passage { id: at.to_string(), text: (*text).into(), ..Passage::default() };
    PreferenceRequest {
        query: "who sees it?".into(),
        passages: texts.iter().enumerate().map(passage).collect(),
        passage_tokens: None,
        scored,
        seed: 3,
    }
}

/// log P of `tokens` after `history`, by the script.
fn scripted(history: &mut Vec<Token>, tokens: &[Token]) -> f64 {
    let script = overlap_script();
    tokens.iter().fold(0.0, |sum, &token| {
        let score = script(history, token);
        history.push(token);
        sum + score
    })
}

async fn scripted_engine() -> Engine {
    Scripted::default().engine().await.0
}

#[tokio::test]
async fn both_parts_are_the_log_probabilities_of_the_whole_prompt() {
    let engine = scripted_engine().await;
    let frame = engine.preferences.prompt_frame().unwrap();
    let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-9, "{left} {right}");
    for texts in [&["a mill", "he sees a river", "who knows it"][..], &["only one"]] {
        let scores = engine.preferences.score(&common::call(), request(texts, Scored::Orders(4))).await.unwrap();
        // One passage has one order.
        assert_eq!(scores.orders.len(), if texts.len() == 1 { 1 } else { 4 });
        assert_eq!(
            (scores.query_after_order.len(), scores.passages_in_order.len()),
            (scores.orders.len(), scores.orders.len())
        );
        for (at, order) in scores.orders.iter().enumerate() {
            let mut history = frame.prefix.clone();
            let passages: f64 = order.iter().map(|&index| scripted(&mut history, &scores.passages[index])).sum();
            near(scores.passages_in_order[at], passages);
            history.extend(&frame.cue);
            near(scores.query_after_order[at], scripted(&mut history, &scores.query));
        }
        for (index, passage) in scores.passages.iter().enumerate() {
            let mut history = [&frame.prefix[..], passage, &frame.cue].concat();
            near(scores.query_after_passage[index], scripted(&mut history, &scores.query));
        }
        let mut history = [&frame.prefix[..], &frame.cue].concat();
        near(scores.query_alone.unwrap(), scripted(&mut history, &scores.query));
        // The other kinds score less, with equal values.
        let alone = engine.preferences.score(&common::call(), request(texts, Scored::Passages)).await.unwrap();
        assert_eq!((&alone.query_after_passage, alone.query_alone), (&scores.query_after_passage, scores.query_alone));
        assert!(alone.orders.is_empty() && alone.passages_in_order.is_empty());
        let tokens = engine.preferences.score(&common::call(), request(texts, Scored::Tokens)).await.unwrap();
        assert_eq!((&tokens.passages, &tokens.query), (&scores.passages, &scores.query));
        assert!(tokens.query_after_passage.is_empty() && tokens.query_alone.is_none());
    }
}

#[tokio::test]
async fn orders_are_distinct_and_follow_from_the_seed() {
    let engine = scripted_engine().await;
    let texts = ["a", "b", "c", "d"];
    let orders = |count: usize, seed: u64| {
        let engine = engine.clone();
        async move {
            let request = PreferenceRequest { seed, ..request(&texts, Scored::Orders(count)) };
            engine.preferences.score(&common::call(), request).await.unwrap().orders
        }
    };
    let first = orders(10, 1).await;
    assert_eq!(first, orders(10, 1).await);
    assert_ne!(first, orders(10, 2).await);
    let mut sorted = orders(100, 1).await;
    assert_eq!(sorted.len(), 24, "all orders of four passages");
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 24);
}

#[tokio::test]
async fn a_question_that_cannot_be_scored_is_refused_by_field() {
    let engine = scripted_engine().await;
    let refused = |request: PreferenceRequest| {
        let engine = engine.clone();
        async move { engine.preferences.score(&common::call(), request).await.unwrap_err() }
    };
    let field = |error: EngineError| match error {
        EngineError::Invalid { field, .. } | EngineError::TooLong { field, .. } => field,
        other => panic!("{other}"),
    };
    let good = request(&["a", "b"], Scored::Orders(2));
    assert_eq!(field(refused(PreferenceRequest { query: " ".into(), ..good.clone() }).await), "query");
    assert_eq!(field(refused(PreferenceRequest { passages: Vec::new(), ..good.clone() }).await), "passages");
    assert_eq!(field(refused(request(&["a", " "], Scored::Tokens)).await), "passages[1].text");
    for count in [0, 301] {
        assert_eq!(field(refused(request(&["a"], Scored::Orders(count))).await), "permutations");
    }
    let long = "word ".repeat(500);
    let mut twice = good;
    twice.passages[0].text.clone_from(&long);
    twice.passages[1].text = long;
    // Each passage fits the 4,096 cells, both together do not. Without orders each has its own prompt.
    assert_eq!(field(refused(twice.clone()).await), "passages");
    twice.scored = Scored::Passages;
    engine.preferences.score(&common::call(), twice).await.unwrap();
    assert_eq!(field(refused(request(&[&"word ".repeat(1_000)], Scored::Passages)).await), "passages[0].text");
}

#[test]
fn an_export_that_was_killed_ends_as_one_that_was_not() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let data = path("lists.jsonl");
    lists(&data);
    let arguments = |out: &Path, more: &[&str]| -> Vec<String> {
        let fixed = ["distil", "export", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let options = ["--permutations", "12", "--max-passage-tokens", "24"];
        fixed.iter().chain(&options).chain(more).map(|argument| (*argument).to_owned()).collect()
    };
    let asked = |out: &Path, more: &[&str]| {
        let arguments = arguments(out, more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let whole = path("whole.jsonl");
    let said = succeeded(&asked(&whole, &[]));
    assert_eq!((&said["questions"], &said["kind"]), (&json!(6), &json!("orders")));

    // Killed after two questions, in the middle of a line.
    let killed = path("killed.jsonl");
    let owned = arguments(&killed, &[]);
    let mut child = command(&owned.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap();
    let lines = || std::fs::read(&killed).map_or(0, |bytes| memchr::memchr_iter(b'\n', &bytes).count());
    let end = Instant::now() + Duration::from_mins(2);
    while lines() < 3 {
        assert!(Instant::now() < end && child.try_wait().unwrap().is_none(), "the export ended or hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(lines() < 7, "it was killed too late");
    let mut torn = std::fs::read(&killed).unwrap();
    torn.extend_from_slice(b"{\"id\":\"q");
    std::fs::write(&killed, torn).unwrap();
    let resumed = asked(&killed, &[]);
    succeeded(&resumed);
    assert!(error(&resumed).contains("8 bytes of an incomplete line were dropped"), "{}", error(&resumed));
    assert!(std::fs::read(&killed).unwrap() == std::fs::read(&whole).unwrap());

    // Repeats the command in two parts, without a kill.
    let parts = path("parts.jsonl");
    succeeded(&asked(&parts, &["--limit", "2"]));
    assert_eq!(parsed(&parts).len(), 3);
    succeeded(&asked(&parts, &[]));
    assert!(std::fs::read(&parts).unwrap() == std::fs::read(&whole).unwrap());

    // Other options are refused.
    let refused = asked(&whole, &["--seed", "4", "--set", "generator.chat_template=off"]);
    assert_eq!(refused.status.code(), Some(2));
    for part in ["chat (stored true, now false)", "seed (stored 0, now 4)", "opening_tokens (stored ["] {
        assert!(error(&refused).contains(part), "{part}: {}", error(&refused));
    }
    let settings =
        ["--set", "generator.context_tokens=2048", "--set", "generator.batch=64", "--set", "limits.passages=9"];
    let refused = asked(&whole, &settings);
    assert_eq!(refused.status.code(), Some(2));
    for part in
        ["generator.context_tokens (stored ", ", now 2048)", "generator.batch (stored ", "limits.passages (stored "]
    {
        assert!(error(&refused).contains(part), "{part}: {}", error(&refused));
    }
    let fewer = asked(&whole, &["--limit", "2"]);
    assert!(error(&fewer).contains("there are only 2 questions"), "{}", error(&fewer));
    agrees_with_a_ranking(&path("passages.jsonl"), &parsed(&whole));
}

#[test]
fn refused_questions_of_the_whole_file_are_counted_by_every_command() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("lists.jsonl"), folder.path().join("out.jsonl"));
    lists(&data);
    let asked = |questions: &str| {
        let fixed = ["distil", "export", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let options = ["--kind", "passages", "--limit", questions, "--set", "limits.tokens_per_request=1"];
        run(&[&fixed[..], &options].concat())
    };
    // The third command has nothing left to do.
    for (questions, refused) in [("2", 2), ("5", 5), ("5", 5)] {
        let output = asked(questions);
        assert_eq!(output.status.code(), Some(1), "{}", error(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&told["questions"], &told["refused"]), (&json!(refused), &json!(refused)));
        let problem = format!("{refused} of {refused} questions of the file were refused");
        assert!(error(&output).contains(&problem), "{}", error(&output));
    }
    let lines = parsed(&out);
    assert!(lines.len() == 6 && lines[1..].iter().all(|line| line["error"].is_string()), "{lines:?}");
}

/// A file size limit simulates a full disk: writing fails in the middle of a line.
#[test]
fn an_export_that_cannot_write_says_that_the_same_command_continues() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("lists.jsonl"), folder.path().join("out.jsonl"));
    lists(&data);
    let arguments = ["distil", "export", "--kind", "tokens", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_rerankd")]);
    let output = limited.args(arguments).env_remove("RERANKD_CONFIG").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let done = complete_lines(&out);
    let problem = format!("{done} of 6 questions are done, stopped at ");
    assert!(done < 6 && error(&output).contains(&problem), "{}", error(&output));
    succeeded(&run(&arguments));
    assert_eq!(parsed(&out).len(), 7);
}

/// Complete lines without the header.
fn complete_lines(path: &Path) -> usize {
    memchr::memchr_iter(b'\n', &std::fs::read(path).unwrap()).count().saturating_sub(1)
}

/// log P(query | passage) - log P(query) is the utility of `query-generation`.
fn agrees_with_a_ranking(passages: &Path, export: &[Value]) {
    let line = &export[1];
    assert_eq!((line["orders"].as_array().unwrap().len(), &line["id"]), (12, &json!("q0")));
    let texts: Vec<String> = line["passages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}\n", json!({ "id": one["id"], "title": one["title"], "text": one["text"] })))
        .collect();
    std::fs::write(passages, texts.concat()).unwrap();
    let question = line["question"].as_str().unwrap();
    let options = ["--method", "query-generation", "--passage-tokens", "24"];
    let ranked = succeeded(&run(&[
        &["rerank", "--format", "json", "--query", question, passages.to_str().unwrap()],
        &options[..],
    ]
    .concat()));
    let alone = numbers(&line["query_after_passage"]);
    let none = line["query_alone"].as_f64().unwrap();
    let tokens = line["query_tokens"].as_array().unwrap().len() as f64;
    for result in ranked["results"].as_array().unwrap() {
        let index = result["original_index"].as_u64().unwrap_or(0);
        let exported = alone[usize::try_from(index).unwrap()] - none;
        let ranking = result["utility"].as_f64().unwrap();
        assert!((exported - ranking).abs() < 0.05 * tokens, "{exported} {ranking}");
    }
}

#[test]
fn bad_options_are_refused_before_a_model_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, out, bad) = (path("lists.jsonl"), path("out.jsonl"), path("bad.jsonl"));
    lists(Path::new(&data));
    std::fs::write(&bad, "{\"question\": \"Who?\"}\n").unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&[&bad], "bad.jsonl:1: passages: is missing"),
        (&["/nowhere.jsonl"], "/nowhere.jsonl: "),
        (&[&data, "--permutations", "0"], "--permutations <K>': must be a whole number above 0"),
        (&[&data, "--permutations", "5000"], "--permutations: 5000 given, at most 1024 allowed"),
        (&[&data, "--passages", "0"], "--passages <N>': must be a whole number above 0"),
        (&[&data, "--max-passage-tokens", "0"], "--max-passage-tokens <TOKENS>': must be a whole number above 0"),
        (&[&data, "--skip", "6"], "lists.jsonl: no questions are left of 6"),
        (&[&data, "--relevance-threshold", "NaN"], "must be a number above 0"),
    ];
    for (arguments, problem) in cases {
        let output = run(&[&["distil", "export", "--out", &out], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", error(&output));
        assert!(error(&output).contains(problem), "{arguments:?}: {}", error(&output));
        assert!(!Path::new(&out).exists(), "{arguments:?}");
    }
    let help = run(&["distil", "export", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("rerankd distil export lists.jsonl.gz --out teacher.jsonl"));
}
