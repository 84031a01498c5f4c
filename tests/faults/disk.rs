//! Commands whose output cannot be written: a full disk, a file in place of a folder. Each names the file and leaves
//! nothing half-written, and the same command continues when there is room.
//!
//! A file size limit simulates the full disk: it needs no rights, and a write beyond it fails in the same way.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::{common, program, serving};
use common::{Running, Scripted};
use engine::fusion::calibration::Calibration;
use engine::fusion::platt::Platt;
use program::error;
use serde_json::json;
use serving::{FULL_DISK, limited};

/// A server with scripted models for the commands.
async fn server() -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

/// Runs a command while the test's server keeps running.
async fn run(settings: &'static str, arguments: Vec<String>) -> Output {
    let run = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        limited(settings, &arguments).output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn texts(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(ToString::to_string).collect()
}

/// Three questions of long ids, so that the results do not fit.
fn questions(path: &Path) {
    let line = |number: usize| {
        let passage =
            |text: &str, label: usize| json!({ "id": format!("{text}-{number}"), "text": text, "label": label });
        let passages = [passage("ab cd", 1), passage("ef gh", 0), passage("ij kl", 0)];
        let id = format!("{number}-{}", "x".repeat(300));
        format!("{}\n", json!({ "id": id, "question": "ab?", "answers": ["ab"], "passages": passages }))
    };
    std::fs::write(path, (0..3).map(line).collect::<String>()).unwrap();
}

/// Names of files that a write leaves when it ends half-way.
fn temporary(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('.') || name.contains("tmp")).collect()
}

/// Compares one method on the lists of `file`, with results in `place`.
fn comparison<'a>(file: &'a str, place: &'a str) -> [&'a str; 8] {
    ["compare", "--format", "json", file, "--out", place, "--method", "query-generation"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_on_a_full_disk_are_an_error_and_continue_when_there_is_room() {
    let server = server().await;
    for command in ["compare", "evaluate"] {
        let folder = tempfile::tempdir().unwrap();
        let (data, out) = (folder.path().join("lists.jsonl"), folder.path().join("out"));
        questions(&data);
        let (file, place) = (data.to_str().unwrap(), out.to_str().unwrap());
        let arguments = match command {
            "compare" => texts(&[&comparison(file, place)[..], &["--resamples", "0"]].concat()),
            _ => {
                texts(&["evaluate", "--format", "json", file, "--out", place, "--resamples", "0", "--max-tokens", "4"])
            }
        };
        let arguments = [arguments, texts(&["--test-resamples", "10", "--server", &server.address])].concat();
        let full = run(FULL_DISK, arguments.clone()).await;
        let said = error(&full);
        assert_eq!(full.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("File too large") && said.contains(place), "{command}: {said}");
        assert_eq!(temporary(&out), Vec::<String>::new(), "{command}");
        let room = run("", arguments).await;
        assert!(room.status.success(), "{command}: {}", error(&room));
        let results = std::fs::read_to_string(out.join("results.jsonl")).unwrap();
        assert_eq!(results.lines().count(), 3, "{command}");
        assert!(results.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{command}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_cannot_be_made_is_named() {
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let (data, taken) = (folder.path().join("lists.jsonl"), folder.path().join("taken"));
    questions(&data);
    std::fs::write(&taken, "a file").unwrap();
    let (file, inside) = (data.to_str().unwrap(), taken.join("out"));
    let place = inside.to_str().unwrap();
    let store = format!("models.store={place}");
    for arguments in [
        [&comparison(file, place)[..], &["--server", &server.address]].concat(),
        vec!["evaluate", "--format", "json", file, "--out", place, "--server", &server.address],
        vec!["models", "pull", "smollm2-135m-instruct", "--set", &store],
        vec!["man", "--out", place],
        vec!["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--address-file", place],
    ] {
        let refused = run("", texts(&arguments)).await;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", error(&refused));
        assert!(error(&refused).contains(place), "{arguments:?}: {}", error(&refused));
    }
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "a file");
    server.stop().await;
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    for arguments in
        [&["token", "new", "search"][..], &["check-config"], &["completions", "bash"], &["man"], &["models", "list"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = program::command(arguments).stdout(Stdio::from(full)).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = error(&output);
        assert!(said.contains("standard output: No space left"), "{arguments:?}: {said}");
    }
}

/// The memory of the command ends with it, so only states on disk count.
#[test]
fn prefetching_without_a_server_counts_states_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (data, disk) = (folder.path().join("passages.jsonl"), folder.path().join("states"));
    let line = |number: usize| format!("{}\n", json!({ "text": format!("passage {number} of three short ones") }));
    std::fs::write(&data, (0..3).map(line).collect::<String>()).unwrap();
    let model = concat!("generator.model=", env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/base.gguf");
    let read = |bytes: usize| {
        let keys = [
            model.to_owned(),
            "entailment.model=off".into(),
            "embedding.model=off".into(),
            format!("models.store={}", folder.path().join("store").display()),
            format!("passage_cache.disk={}", disk.display()),
            format!("passage_cache.disk_bytes={bytes}"),
        ];
        let mut arguments = vec!["warm", data.to_str().unwrap()];
        arguments.extend(keys.iter().flat_map(|key| ["--set", key.as_str()]));
        let output = program::run(&arguments);
        let told = error(&output);
        let counts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{told}"));
        // The exit code tells a job that some passages are not cached.
        let all = counts["done"] == counts["given"];
        assert_eq!(output.status.code(), Some(i32::from(!all)), "{told}");
        (["done", "present", "kept"].map(|key| counts[key].as_u64().unwrap()), told)
    };
    let files =
        || std::fs::read_dir(&disk).unwrap().filter_map(|entry| entry.ok()?.path().extension().map(drop)).count();
    let (counts, told) = read(1_000);
    assert_eq!((counts, files()), ([0, 0, 0], 0), "{told}");
    assert!(told.contains("raise passage_cache.disk_bytes"), "{told}");
    let (counts, told) = read(10_000_000);
    assert_eq!((counts[0], counts[2]), (3, 3), "{told}");
    assert!(files() >= 3);
    assert_eq!(read(10_000_000).0, [3, 3, 0]);
}

#[test]
fn measurements_on_a_full_disk_leave_the_former_ones() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [("models.store".to_owned(), folder.path().display().to_string())];
    let store = rerankd::config::Config::load(None, &flags).unwrap().store;
    let file = rerankd::app::calibration_file(&store, "scripted");
    let calibration = |method: &str| Calibration {
        embedding: None,
        model: None,
        method: method.into(),
        mix: None,
        score: Platt { intercept: -2.0, slope: 3.0 },
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: None,
    };
    file.save(&[calibration("cascade")]).unwrap();
    // A file in place of the folder fails like a missing permission.
    let place = file.path().parent().unwrap().to_owned();
    let aside = folder.path().join("aside");
    std::fs::rename(&place, &aside).unwrap();
    std::fs::write(&place, "a file").unwrap();
    let refused = file.save(&[calibration("yes-no")]).unwrap_err().to_string();
    assert!(refused.contains(&file.path().display().to_string()), "{refused}");
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&aside, &place).unwrap();
    assert_eq!(file.load().unwrap(), [calibration("cascade")]);
}

/// `rerankd calibrate` on the default generator: the profiles do not fit on the disk.
#[test]
fn a_calibration_on_a_full_disk_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rerankd.toml");
    std::fs::write(&config, serving::own_store(folder.path())).unwrap();
    let data = folder.path().join("labelled.jsonl");
    let passage = |text: &str, supporting: bool| json!({ "text": text, "supporting": supporting });
    let texts = [
        "The looms were driven by the Senn.",
        "Rye flour absorbs water.",
        "The library opens at nine.",
        "Bees swarm in May.",
    ];
    let passages: Vec<_> = texts.iter().enumerate().map(|(at, text)| passage(text, at == 0)).collect();
    let question = json!({ "question": "Which river drove the looms?", "answers": ["the Senn"], "passages": passages });
    std::fs::write(&data, format!("{question}\n")).unwrap();
    let arguments = ["calibrate", data.to_str().unwrap(), "--config", config.to_str().unwrap(), "--subject", "answer"];
    let full = limited(FULL_DISK, &arguments).output().unwrap();
    assert_eq!(full.status.code(), Some(1), "{}", error(&full));
    assert!(error(&full).contains("File too large") && error(&full).contains("calibrated.json"), "{}", error(&full));
    let kept = std::fs::read_dir(folder.path().join("store/.profiles")).map_or(0, Iterator::count);
    assert_eq!(kept, 0, "nothing half written stays");
}
