//! Faults of the command itself are reported once, before a file or a model is read.

use std::process::Output;

use crate::{common, program};
use program::{command, error, run};

const LISTS: &str = "{\"question\": \"Which river?\", \"answers\": [\"x\"], \"passages\": [{\"id\": \"a\", \"text\": \"one\"}]}\n\
                     {\"question\": \"Who?\", \"answers\": [\"y\"], \"passages\": [{\"id\": \"b\", \"text\": \"two\"}]}\n";

/// A server reads 0 as a field that is not set, so 0 would mean all results.
#[test]
fn a_count_of_zero_is_refused() {
    for arguments in [
        &["rerank", "--format", "json", "--query", "q", "--top-n", "0"][..],
        &["rerank", "--format", "json", "--query", "q", "--orders", "0"],
        &["rerank", "--format", "json", "--query", "q", "--token-budget", "0"],
        &["utility", "--format", "json", "-n", "0"],
        &["compare", "--format", "json", "x", "--passage-tokens", "0"],
        &["evaluate", "--format", "json", "x", "--out", "y", "--depth", "0"],
        &["analyse", "--format", "json", "stability", "x", "--limit", "0"],
        &["calibrate", "--format", "json", "x", "--passage-tokens", "0"],
    ] {
        let refused = run(arguments);
        let said = error(&refused);
        assert!(refused.status.code() == Some(2) && said.contains("must be a whole number above 0"), "{said}");
    }
}

fn once(refused: &Output, expected: &str, file: &str) {
    let said = error(refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(expected) && !said.contains(file), "{said}");
}

#[test]
fn a_wrong_option_is_not_blamed_on_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.jsonl").display().to_string();
    std::fs::write(&file, LISTS).unwrap();
    for (arguments, expected) in [
        (&["utility", "--format", "json", &*file, "--task", "classification"][..], "labels: "),
        (&["utility", "--format", "json", &file, "-n", "2000"], "samples: "),
        (&["rerank", "--lists", &file, "--score-threshold", "2"], "score_threshold: must lie between 0 and 1"),
        (&["rerank", "--lists", &file, "--latency-budget-ms=-1"], "latency_budget_ms: "),
        (&["rerank", "--lists", &file, "--method", "first", "--instruction", "Find."], "instruction: first does not"),
        (&["rerank", "--lists", &file, "--compress", "selective-context", "--ratio", "2"], "ratio: "),
        (&["rerank", "--lists", &file, "--method", "cascade", "--orders", "5"], "moi: only seed"),
        (&["rerank", "--lists", &file, "--reference", " "], "utility.references[0]: must not be empty"),
    ] {
        let absent = ["--set", "generator.model=absent"];
        once(&run(&[arguments, &absent].concat()), expected, "lists.jsonl");
    }
}

/// A secret from a file often ends with a newline.
#[test]
fn a_token_of_the_environment_is_trimmed_and_a_wrong_one_is_named_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(common::Scripted::default().serve());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lists.jsonl").display().to_string();
    std::fs::write(&file, LISTS).unwrap();
    let asked = |token: &str| {
        let arguments = ["rerank", "--lists", &file, "--method", "retriever", "--server", &server.address];
        command(&arguments).env("RERANKD_TOKEN", token).output().unwrap()
    };
    let answered = asked("abc\n");
    assert!(answered.status.success(), "{}", error(&answered));
    assert_eq!(String::from_utf8_lossy(&answered.stdout).lines().count(), 2);
    once(&asked("a\u{1}b"), "RERANKD_TOKEN, must be printable ASCII", "lists.jsonl");
    runtime.block_on(server.stop());
}

/// A unit's environment file may set `RERANKD_CONFIG=`.
#[test]
fn an_empty_configuration_name_is_ignored() {
    let checked = command(&["check-config"]).env("RERANKD_CONFIG", "").output().unwrap();
    assert!(checked.status.success(), "{}", error(&checked));
    let flag = run(&["check-config", "--config", ""]);
    assert_eq!(flag.status.code(), Some(2), "{}", error(&flag));
    let missing = command(&["check-config"]).env("RERANKD_CONFIG", "/nowhere.toml").output().unwrap();
    assert!(!missing.status.success() && error(&missing).contains("/nowhere.toml"), "{}", error(&missing));
}

/// clap skips `requires` if the required option conflicts with a given one.
#[test]
fn options_of_ranking_conflict_with_those_of_profiles() {
    for options in [&["--relevance-threshold", "2"][..], &["--method", "cascade"], &["--mixes"]] {
        for profiles in [&["--add"][..], &["--subject", "answer"]] {
            let refused = run(&[&["calibrate", "--format", "json", "x"], options, profiles].concat());
            assert_eq!(refused.status.code(), Some(2));
            assert!(error(&refused).contains("cannot be used with"), "{options:?}: {}", error(&refused));
        }
    }
    assert!(error(&run(&["calibrate", "--format", "json", "/nowhere", "--add"])).contains("/nowhere"));
}

/// Otherwise a ready server would refuse every request for that method. Other commands ignore the setting.
#[test]
fn a_method_of_the_http_port_needs_its_model() {
    let refused = run(&["check-config", "--set", "http.method=cross-encoder"]);
    assert_eq!(refused.status.code(), Some(78), "{}", error(&refused));
    assert!(error(&refused).contains("http.method: cross-encoder needs reranker.model, which is \"off\""));
    assert!(run(&["check-config", "--set", "http.method=embedding"]).status.success(), "it is configured by default");
    let without = run(&["check-config", "--set", "embedding.model=off", "--set", "http.method=embedding"]);
    assert!(error(&without).contains("http.method: embedding needs embedding.model"), "{}", error(&without));
    assert!(run(&["models", "list", "--set", "http.method=cross-encoder"]).status.success());
}

#[test]
fn compression_without_a_ranking_keeps_the_input_order() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(common::Scripted::default().serve());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passages.jsonl").display().to_string();
    let lines = ["a question", "b", "c d e"].map(|text| format!("{{\"text\": \"{text}\", \"score\": 1}}\n"));
    std::fs::write(&file, lines.concat()).unwrap();
    let ask = [
        "compress",
        "--format",
        "json",
        "--query",
        "question",
        "--method",
        "selective-context",
        "--server",
        &server.address,
        &file,
    ];
    let answered = run(&ask);
    assert!(answered.status.success(), "{}", error(&answered));
    let answer: serde_json::Value = serde_json::from_slice(&answered.stdout).unwrap();
    let passages = answer["compression"]["passages"].as_array().unwrap();
    let order: Vec<u64> = passages.iter().map(|one| one["original_index"].as_u64().unwrap()).collect();
    assert_eq!((order, answer["warnings"].to_string()), (vec![0, 1, 2], "[]".to_owned()));
    runtime.block_on(server.stop());
}

#[test]
fn a_line_without_passages_is_an_error_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, out) = (path("lists.jsonl"), path("out"));
    let absent = ["--set", "generator.model=absent"];
    for (line, expected) in [
        (
            r#"{"question": "Who?", "answer": "x", "ctx": [{"text": "y"}]}"#,
            r#"passages: is missing; the line has the fields "answer", "ctx", "question""#,
        ),
        (r#"{"question": "Who?", "answer": "x", "passages": []}"#, "passages: must not be empty"),
        (r#"{"question": "Who?", "answer": "x", "contexts": []}"#, "contexts: must not be empty"),
        (
            r#"{"question": "Who?", "answer": "x", "ctxs": [{"txt": "y"}, null]}"#,
            r#"passages: none has a text; passages[0] has the fields "txt""#,
        ),
    ] {
        std::fs::write(&file, format!("# a comment\n{line}\n")).unwrap();
        for arguments in [
            &["utility", "--format", "json", &*file][..],
            &["rerank", "--lists", &file],
            &["evaluate", "--format", "json", &file, "--out", &out],
            &["compare", "--format", "json", &file],
            &["calibrate", "--format", "json", &file],
            &["calibrate", "--format", "json", "--ranking", &file],
            &["analyse", "--format", "json", "stability", &file],
            &["distil", "export", &file, "--out", &out],
            &["citations", &file],
        ] {
            let refused = run(&[arguments, &absent].concat());
            let said = error(&refused);
            assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(said.contains(&format!("lists.jsonl:2: {expected}")), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn judgements_and_a_run_are_joined_by_ids_with_spaces() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(path(name), text).unwrap();
        path(name)
    };
    let judged = write("test.tsv", "query-id\tcorpus-id\tscore\nq 1\tannual report.pdf\t1\nq 1\tsummary.pdf\t0\n");
    let ranked = write("run.json", r#"{"q 1": {"annual report.pdf": 2.0, "summary.pdf": 1.0}}"#);
    let queries = write("queries.tsv", "q 1\tWhen?\n");
    let corpus = write(
        "corpus.jsonl",
        "{\"_id\": \"zz\", \"text\": \"cut \\ud83d\"}\n{\"_id\": \"annual report.pdf\", \"id\": 5, \"contents\": \"In 1911.\"}\n\
         broken\n{\"_id\": \"summary.pdf\", \"title\": \"A summary.\"}\n{\"_id\": \"summary.pdf\", \"text\": \"Another.\"}\n",
    );
    let measured = run(&["metrics", &judged, &ranked, "-m", "nDCG@10", "--resamples", "0", "--format", "trec"]);
    assert!(String::from_utf8_lossy(&measured.stdout).trim_end().ends_with("1.0000"), "{measured:?}");
    let listed = run(&["lists", "--run", &ranked, "--queries", &queries, "--corpus", &corpus, "--qrels", &judged]);
    assert!(listed.status.success(), "{}", error(&listed));
    let list: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let passages = list["passages"].as_array().unwrap();
    let shown: Vec<String> = passages.iter().map(|one| format!("{}:{}", one["text"], one["label"])).collect();
    assert_eq!(shown, ["\"In 1911.\":1.0", "\"A summary.\":0.0"]);
    for warning in ["corpus.jsonl:1: holds half", "corpus.jsonl:3: is not valid JSON", "corpus.jsonl:5: document"] {
        assert!(error(&listed).contains(warning), "{}", error(&listed));
    }
}
