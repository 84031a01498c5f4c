//! The binary: exit codes, messages and formats.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn rerankd(arguments: &[&str], input: &str) -> Output {
    rerankd_with(&[], arguments, input)
}

fn rerankd_with(variables: &[(&str, &str)], arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rerankd"))
        .args(arguments)
        .env_remove("RERANKD_CONFIG")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early closes its standard input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_has_help_with_an_example() {
    let commands: [&[&str]; 21] = [
        &["compress"],
        &["context"],
        &["evaluate"],
        &["metrics"],
        &["utility"],
        &["measure"],
        &["serve"],
        &["rerank"],
        &["fit"],
        &["lists"],
        &["calibrate"],
        &["position-bias"],
        &["models"],
        &["models", "list"],
        &["models", "pull"],
        &["models", "add"],
        &["models", "verify"],
        &["health"],
        &["token"],
        &["token", "new"],
        &["check-config"],
    ];
    for command in commands {
        let output = rerankd(&[command, &["--help"]].concat(), "");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"), "{command:?}");
    }
}

#[test]
fn the_version_describes_build_and_machine() {
    let printed = |variables: &[(&str, &str)], arguments: &[&str]| {
        let output = rerankd_with(variables, arguments, "");
        assert!(output.status.success(), "{}", error(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let long = printed(&[("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so")], &["--version"]);
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(format!("{}\n", lines[0]), printed(&[], &["-V"]));
    for (label, value) in [
        ("commit ", ""),
        ("build ", std::env::consts::ARCH),
        ("features ", "lab"),
        ("instructions ", ""),
        ("AMX ", ""),
        ("devices ", "CPU: "),
        ("ONNX Runtime ", "/nowhere/libonnxruntime.so: no such file"),
    ] {
        let of_label = |line: &&&str| line.starts_with(label) && line.contains(value);
        assert!(lines.iter().any(|line| of_label(&line)), "{label}{value}: {long}");
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{long}");
    // A file that is not ONNX Runtime.
    let other = printed(&[("ORT_DYLIB_PATH", env!("CARGO_BIN_EXE_rerankd"))], &["rerank", "--version"]);
    assert!(other.contains("of unknown version"), "{other}");
    let broken = printed(&[("RERANKD__LIMITS__PASSAGES", "none")], &["--version"]);
    assert!(broken.contains("limits.passages"), "{broken}");
}

#[test]
fn fit_reads_standard_input_and_writes_json() {
    let problem = r#"{"n":2,"permutations":[[0,1],[1,0],[0,1],[1,0]],"scores":[1.0,0.2,1.2,0.1],"lam":0.05,"rho":2.0,
        "a0":[0.8888888888888888,0.1111111111111111]}"#;
    let output = rerankd(&["fit", "-"], problem);
    assert!(output.status.success(), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((answer["objective"].as_f64().unwrap() - 0.059_119_588_381).abs() < 1e-9);
    assert_eq!(answer["ranking"], serde_json::json!([0, 1]));
    let output = rerankd(&["fit", "-"], r#"{"n":2,"permutations":[[0,1]],"scores":["x"]}"#);
    assert_eq!(output.status.code(), Some(2));
    let output = rerankd(&["fit", "/nowhere.json"], "");
    assert_eq!((output.status.code(), error(&output).contains("/nowhere.json")), (Some(2), true));
}

#[test]
fn exit_codes_distinguish_the_kinds_of_failure() {
    let unreachable = rerankd(&["rerank", "--format", "json", "--query", "q", "--server", "127.0.0.1:9"], "\"a\"\n");
    assert_eq!(unreachable.status.code(), Some(69), "{}", error(&unreachable));
    assert_eq!(rerankd(&["health", "--server", "127.0.0.1:9"], "").status.code(), Some(69));
    assert_eq!(rerankd(&["rerank"], "").status.code(), Some(2), "the query is missing");
    let faulty = rerankd(&["check-config", "--set", "limits.passages=none", "--set", "limits.unheard=1"], "");
    assert_eq!(faulty.status.code(), Some(78));
    assert!(error(&faulty).contains("limits.passages") && error(&faulty).contains("limits.unheard"));
    let good = rerankd(&["check-config", "--set", "limits.passages=7"], "");
    assert!(good.status.success() && String::from_utf8_lossy(&good.stdout).contains("passages = 7"));
    let unknown = rerankd(&["models", "pull", "nobody"], "");
    assert_eq!((unknown.status.code(), error(&unknown).contains("nobody")), (Some(2), true));
    let unknown = rerankd(&["models", "pull", "--set", "generator.model=/nowhere/x.gguf"], "");
    assert_eq!((unknown.status.code(), error(&unknown).contains("/nowhere/x.gguf")), (Some(1), true));
    let missing =
        rerankd(&["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--model", "/nowhere/x.gguf"], "");
    assert_eq!((missing.status.code(), error(&missing).contains("/nowhere/x.gguf")), (Some(1), true));
}

#[test]
fn bad_passages_name_their_line() {
    for (line, expected) in [
        ("{\"text\":[5]}", "standard input:2: text: must be a text"),
        ("[7]", "standard input:2: is a list: write one object per line"),
        ("{nonsense", "standard input:2: is not valid JSON: key must be a string (column 2)"),
        ("{\"text\":\"x\",\"score\":\"high\"}", "standard input:2: score: must be a number"),
    ] {
        let output = rerankd(
            &["rerank", "--format", "json", "--query", "q", "--server", "127.0.0.1:9"],
            &format!("\"fine\"\n{line}\n"),
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains(expected), "{}", error(&output));
    }
}

#[test]
fn a_file_of_lists_becomes_lines_of_json_or_a_run() {
    let _alone = crate::program::alone();
    let lists = "{\"id\": \"q1\", \"question\": \"Which river?\", \"passages\": [{\"id\": \"a\", \"text\": \"one\", \"score\": 1}, \
                 {\"id\": \"b\", \"text\": \"two\", \"score\": 3}, {\"id\": \"c\", \"text\": \"three\", \"score\": 3}]}\n\
                 {\"id\": \"q2\", \"query\": \"\", \"passages\": [{\"id\": \"a\", \"text\": \"one\"}]}\n\
                 {\"query\": \"Who?\", \"passages\": [{\"id\": \"d\", \"text\": \"four\", \"score\": 2}]}\n";
    let arguments = ["rerank", "--lists", "-", "--method", "retriever"];
    let run = rerankd(&[&arguments[..], &["--format", "trec", "--tag", "mine"]].concat(), lists);
    let at_once =
        rerankd(&[&arguments[..], &["--format", "trec", "--tag", "mine", "--concurrency", "5"]].concat(), lists);
    assert_eq!(at_once.stdout, run.stdout, "the order is that of the file: {}", error(&at_once));
    // The second list is refused; the others are ranked.
    assert_eq!(run.status.code(), Some(1), "{}", error(&run));
    assert!(error(&run).contains("standard input:2: query: must not be empty"), "{}", error(&run));
    assert!(error(&run).contains("1 of 3 lists were not reranked"), "{}", error(&run));
    let expected = "q1 Q0 b 1 3 mine\nq1 Q0 c 2 2 mine\nq1 Q0 a 3 1 mine\n3 Q0 d 1 1 mine\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), expected);
    let good: String = lists.split_inclusive('\n').filter(|line| !line.contains("q2")).collect();
    let lines = rerankd(&[&arguments[..], &["--texts"]].concat(), &good);
    assert!(lines.status.success(), "{}", error(&lines));
    let lines = String::from_utf8(lines.stdout).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let best = &first["results"][0];
    assert_eq!((&first["query_id"], &best["id"], &best["text"]), (&"q1".into(), &"b".into(), &"two".into()));
    // An empty file means that retrieval failed. The command reports it without calling the server.
    let empty = rerankd(&["rerank", "--lists", "-", "--server", "127.0.0.1:9"], "\n");
    assert!(
        empty.status.code() == Some(2) && error(&empty).contains("standard input: has no questions"),
        "{}",
        error(&empty)
    );
    let both = rerankd(&["rerank", "--lists", "-", "--query", "q"], "");
    assert_eq!(both.status.code(), Some(2), "{}", error(&both));
    let neither = rerankd(&["rerank", "--query", "q", "--format", "trec"], "\"a\"\n");
    assert!(neither.status.code() == Some(2) && error(&neither).contains("needs --lists"), "{}", error(&neither));
    // Options without effect are refused.
    for only in [["--concurrency", "2"], ["--tag", "mine"]] {
        let one = rerankd(&[&["rerank", "--format", "json", "--query", "q"][..], &only].concat(), "\"a\"\n");
        assert!(one.status.code() == Some(2) && error(&one).contains("cannot be used with"), "{}", error(&one));
    }
}

#[test]
fn a_rerank_in_process_prints_json_in_a_pipe() {
    let _alone = crate::program::alone();
    let input = "{\"id\":\"a\",\"text\":\"Rye flour absorbs more water than wheat.\"}\n\
                 {\"id\":\"b\",\"text\":\"The looms were driven by the River Senn.\"}\n";
    let arguments =
        ["rerank", "--format", "json", "--query", "Which river drove the looms?", "--method", "query-generation"];
    let output = rerankd(&arguments, input);
    assert!(output.status.success(), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["results"][0]["id"], "b");
    assert!(answer["usage"]["tokens"].as_u64().unwrap() > 20);
    // An instruction and an example change the utilities and cost their own tokens.
    let folder = tempfile::tempdir().unwrap();
    let examples = folder.path().join("examples.jsonl");
    std::fs::write(
        &examples,
        "{\"passage\": \"The ferry runs until dusk.\", \"query\": \"When does the ferry stop?\"}\n",
    )
    .unwrap();
    let own = ["--instruction", "Write the question.", "--examples", examples.to_str().unwrap()];
    let output = rerankd(&[&arguments[..], &own].concat(), input);
    assert!(output.status.success(), "{}", error(&output));
    let opened: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(opened["results"][0]["utility"], answer["results"][0]["utility"]);
    assert!(opened["usage"]["tokens"].as_u64() > answer["usage"]["tokens"].as_u64());
    let refused = rerankd(
        &["rerank", "--format", "json", "--query", "q", "--method", "yes-no", "--instruction", "Judge."],
        input,
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(error(&refused).contains("instruction: yes-no does not take it"), "{}", error(&refused));
}

/// The store links to this machine's models, so the machine's own profiles stay unchanged.
#[cfg(unix)]
#[test]
fn a_calibration_is_kept_shown_and_used_and_a_damaged_one_is_set_aside() {
    let _alone = crate::program::alone();
    let own = rerankd::config::Config::load(None, &[]).unwrap().store;
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(own.root()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != ".profiles" {
            std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let store = format!("models.store={}", folder.path().display());
    let line = serde_json::json!({
        "question": "Which river drove the looms?", "answers": ["Senn"], "passages": [
            {"text": "Rye flour absorbs more water than wheat."},
            {"text": "The looms were driven by the River Senn.", "supporting": true},
            {"text": "The library opens at nine."},
        ],
    });
    let unmarked = r#"{"question":"What?","answers":["x"],"passages":[{"text":"a"},{"text":"b"}]}"#;
    let output = rerankd(&["calibrate", "--format", "json", "-", "--set", &store], &format!("{line}\n\n{unmarked}\n"));
    assert!(output.status.success(), "{}", error(&output));
    assert!(error(&output).contains("standard input:3: passages: none is marked"), "{}", error(&output));
    assert!(error(&output).contains("calibrated.json, from 2 questions of which 1 failed"), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["profiles"][0]["subject"], "PROFILE_SUBJECT_ANSWER");
    assert_eq!(answer["profiles"][0]["means"].as_array().unwrap().len(), 3);
    assert_eq!(answer["profiles"][0]["origin"], "PROFILE_ORIGIN_CALIBRATED");
    assert_eq!(answer["profiles"][0]["observations"], 1, "{answer}");
    // The fit of one question may be unusable. It is then counted, not stored.
    let fitted = answer["profiles"][1]["subject"] == "PROFILE_SUBJECT_QUESTION";
    assert!(fitted || error(&output).contains("1 of 2 fits not used"), "{}", error(&output));
    let shown = rerankd(&["position-bias", "--format", "json", "--set", &store], "");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let built_in = |answer: &Value| -> Vec<Value> {
        let all = answer["profiles"].as_array().unwrap().iter();
        all.filter(|profile| profile["origin"] == "PROFILE_ORIGIN_BUILT_IN").cloned().collect()
    };
    let all = [answer["profiles"].as_array().unwrap().clone(), built_in(&shown)].concat();
    assert_eq!(shown["profiles"].as_array().unwrap(), &all);
    // A new version of the prompts needs new built-in profiles: models/README.md.
    assert!(!built_in(&shown).is_empty());
    let off = ["position-bias", "--format", "json", "--set", &store, "--set", "position_bias.profiles=calibrated"];
    assert_eq!(rerankd(&off, "").stdout, output.stdout);
    let file = std::fs::read_dir(folder.path().join(".profiles")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    // A calibration without a usable question leaves the stored file unchanged.
    let unusable =
        rerankd(&["calibrate", "--format", "json", "-", "--set", &store], &format!("{unmarked}\n").repeat(11));
    assert!(
        unusable.status.code() == Some(2) && error(&unusable).contains("none of 11 questions"),
        "{}",
        error(&unusable)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    std::fs::write(&file, &text[..text.len() - 40]).unwrap();
    let shown = rerankd(&["position-bias", "--format", "json", "--set", &store], "");
    assert!(error(&shown).contains("set aside as"), "{}", error(&shown));
    let answer: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(answer["profiles"].as_array().unwrap(), &built_in(&answer));
    assert!(!file.exists());
    let nothing = rerankd(&["calibrate", "--format", "json", "-", "--set", &store], "{\"question\":1}\n");
    assert_eq!((nothing.status.code(), error(&nothing).contains("standard input:1: ")), (Some(2), true));
}

/// The bound is below the size of any re-encoding, so no model is loaded.
#[cfg(unix)]
#[test]
fn pull_refuses_a_re_encoded_file_that_is_too_large_before_writing_it() {
    let name = "smollm2-135m-instruct";
    let own = rerankd::config::Config::load(None, &[]).unwrap().store;
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(own.root().join(name), folder.path().join(name)).unwrap();
    let store = format!("models.store={}", folder.path().display());
    let bound = "generator.reencode_megabytes=1";
    let output = rerankd(&["models", "pull", name, "--set", &store, "--set", bound], "");
    assert!(output.status.success(), "{}", error(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&format!("{name}  ")));
    for expected in ["MB, generator.reencode_megabytes is 1", "runs as shipped (other types not measured)"] {
        assert!(error(&output).contains(expected), "{}", error(&output));
    }
    let written: Vec<_> = std::fs::read_dir(folder.path().join(".encodings")).unwrap().collect();
    assert!(written.len() == 1 && written[0].as_ref().unwrap().path().extension().is_some_and(|end| end == "json"));
    let off = ["models", "pull", name, "--set", &store, "--set", "generator.reencode_megabytes=off"];
    assert!(!error(&rerankd(&off, "")).contains("runs"));
}

/// The store has the other models, so nothing is fetched.
#[cfg(unix)]
#[test]
fn pull_leaves_out_a_model_without_a_licence() {
    let own = rerankd::config::Config::load(None, &[]).unwrap().store;
    let folder = tempfile::tempdir().unwrap();
    let unlicensed = "deberta-v3-xsmall-nli";
    for entry in std::fs::read_dir(own.root()).unwrap().map(Result::unwrap) {
        if entry.file_name() != unlicensed {
            std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    let store = format!("models.store={}", folder.path().display());
    let pull = ["models", "pull", "--set", &store, "--set", "generator.reencode_megabytes=off"];
    let output = rerankd(&pull, "");
    assert!(output.status.success(), "{}", error(&output));
    assert!(error(&output).contains("`rerankd models pull deberta-v3-xsmall-nli`"), "{}", error(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains(unlicensed));
    assert!(!folder.path().join(unlicensed).exists());
}

/// The vocabulary has only 260 tokens, and llama.cpp's lines per tensor must not be printed.
#[test]
fn pull_measures_a_small_model_and_prints_a_line_per_step() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("models.store={}", folder.path().display());
    let model = concat!("generator.model=", env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/base.gguf");
    let others = ["--set", "embedding.model=off", "--set", "entailment.model=off"];
    let pull = [&["models", "pull", "--set", &store, "--set", model][..], &others].concat();
    let output = rerankd(&pull, "");
    assert!(output.status.success(), "{}", error(&output));
    let told = error(&output);
    assert!(
        told.contains("measuring F16") && told.contains("(tokens per second read/generated: as shipped "),
        "{told}"
    );
    assert!(told.lines().count() < 10, "{told}");
}

/// With the real models: the passage that contains the answer has the higher utility.
#[test]
fn utility_and_measure_print_json_and_name_what_is_wrong() {
    let _alone = crate::program::alone();
    let question = r#"{"question":"Which river drove the looms?","references":["the River Senn"],"passages":[
        {"id":"a","text":"Rye flour absorbs more water than wheat."},
        {"id":"b","text":"The looms of the mill were driven by the River Senn."}]}"#
        .replace('\n', " ");
    let bad = r#"{"question":"","passages":[{"text":"x"}]}"#;
    let output = rerankd(
        &["utility", "--format", "json", "--each", "--samples", "-n", "4", "--max-tokens", "12"],
        &format!("{question}\n{bad}\n"),
    );
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    assert!(error(&output).contains("standard input:2: question: must not be empty"), "{}", error(&output));
    let lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert_eq!(lines.len(), 1);
    let answer: Value = serde_json::from_str(lines[0]).unwrap();
    let delta = |which: usize| answer["utilities"][which]["delta_seper_soft"]["value"].as_f64().unwrap();
    assert_eq!(answer["utilities"][2]["kind"], "CONTEXT_KIND_PASSAGE");
    assert!(delta(2) > delta(1), "{} {}", delta(2), delta(1));
    assert_eq!(answer["utilities"][0]["belief"]["answers"].as_array().unwrap().len(), 4);
    assert!(answer["utilities"][0]["belief"]["perplexity"]["value"].as_f64().unwrap() >= 1.0);
    assert!(answer["utilities"][0]["lexical_similarity_increase"]["value"].is_number());

    let document = r#"{"question":"which river","references":["Senn"],
        "with":[{"text":" Senn","log_likelihood":-1.0,"tokens":2},{"text":"Senn","token_log_probabilities":[-0.5,-0.5]}],
        "without":[{"text":"Senn","log_likelihood":-1.0,"tokens":2},{"text":"Rhine","log_likelihood":-1.0,"tokens":2}],
        "verdicts":[{"premise":" Senn","hypothesis":"Senn","entailment":1.0,"neutral":0.0,"contradiction":0.0},
            {"premise":"Rhine","hypothesis":"Senn","entailment":0.0,"neutral":0.0,"contradiction":1.0},
            {"premise":"Senn","hypothesis":"Rhine","entailment":0.0,"neutral":0.0,"contradiction":1.0}]}"#;
    let output = rerankd(&["measure", "--set", "entailment.model=off"], document);
    assert!(output.status.success(), "{}", error(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((answer["delta_seper_soft"]["value"].as_f64().unwrap() - 0.5).abs() < 1e-12);
    assert!((answer["delta_seper_hard"]["value"].as_f64().unwrap() - 0.5).abs() < 1e-12);
    assert!((answer["semantic_entropy_reduction"]["value"].as_f64().unwrap() - 2.0_f64.ln()).abs() < 1e-12);
    assert!((answer["with"]["perplexity"]["value"].as_f64().unwrap() - 0.5_f64.exp()).abs() < 1e-12);
    assert!((answer["lexical_similarity_increase"]["value"].as_f64().unwrap() - 1.0).abs() < 1e-12, "{answer}");
    let needs_model = r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":1}],"references":["y"]}"#;
    for (setting, expected) in [
        ("ORT_DYLIB_PATH=/nowhere/libonnxruntime.so", "/nowhere/libonnxruntime.so: no such file"),
        ("ORT_DYLIB_PATH=/bin/true", "/bin/true: "),
        ("RERANKD__ENTAILMENT__MODEL=/nowhere/net.onnx", "/nowhere/net.onnx"),
        ("RERANKD__ENTAILMENT__MODEL=smollm2-135m-instruct", "is for generator, not for entailment"),
    ] {
        let variable = setting.split_once('=').unwrap();
        let output = rerankd_with(&[variable], &["measure"], needs_model);
        assert_eq!((output.status.code(), error(&output).contains(expected)), (Some(2), true), "{}", error(&output));
    }
    for (document, expected) in [
        ("{", "standard input: "),
        (r#"{"with":[{"text":"x"}]}"#, "with[0]: needs either"),
        (r#"{"with":[],"references":["x"]}"#, "with: must hold"),
        (r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":1}],"references":["y"]}"#, "entailment.model"),
        (r#"{"unheard":1,"with":[]}"#, "unheard"),
        // Probabilities instead of logarithms.
        (
            r#"{"with":[{"text":"x","token_log_probabilities":[-0.1,0.8]}]}"#,
            "with[0].token_log_probabilities[1]: is 0.8, but a log-probability is at most 0",
        ),
        (
            r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":1}],"without":[{"text":"x","log_likelihood":0.5,"tokens":2}]}"#,
            "without[0].log_likelihood: is 0.5",
        ),
        (r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":0}]}"#, "with[0].tokens: must be at least 1"),
        (r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":-1}]}"#, "invalid value"),
        (
            r#"{"with":[{"text":"x","log_likelihood":-1,"tokens":1}],
                "verdicts":[{"premise":"x","hypothesis":"y","entailment":1.2,"neutral":-0.2,"contradiction":0}]}"#,
            "verdicts[0]: must be three probabilities",
        ),
    ] {
        let output = rerankd(&["measure", "--set", "entailment.model=off"], document);
        assert_eq!((output.status.code(), error(&output).contains(expected)), (Some(2), true), "{}", error(&output));
    }
}

/// The peer accepts connections but never answers, like a stopped process or a dead machine behind a load balancer.
#[test]
fn a_silent_server_does_not_outlast_the_wait() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let began = std::time::Instant::now();
    let silent = rerankd(&["health", "--server", &address, "--wait", "1"], "");
    assert_eq!(silent.status.code(), Some(69), "{}", error(&silent));
    assert!(error(&silent).contains("does not answer"), "{}", error(&silent));
    // The bound is five seconds; a hang would never end.
    assert!(began.elapsed() < std::time::Duration::from_mins(1));
}

/// The kernel drops a signal to the first process of a container unless the process handles it.
#[cfg(target_os = "linux")]
#[test]
fn the_first_process_of_a_container_ends_at_a_signal() {
    let contained = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !contained(&["true"]).status().is_ok_and(|status| status.success()) {
        println!("process namespaces are not allowed here: not checked");
        return;
    }
    // The command waits for a server that is not there. A shell that ended first would leave it without a parent.
    let wait = ["health", "--server", "127.0.0.1:9", "--wait", "600"];
    let mut outer = contained(&[&[env!("CARGO_BIN_EXE_rerankd")], &wait[..]].concat()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", outer.id());
    let code = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let first = std::fs::read_to_string(&children).unwrap_or_default();
        // The first signal may arrive before its handler is installed.
        Command::new("kill").args(["-TERM", first.trim()]).stderr(Stdio::null()).status().unwrap();
        outer.try_wait().unwrap()
    });
    let _ = outer.kill();
    assert_eq!(code.and_then(|status| status.code()), Some(143));
}
