//! Adapters and scorers of the binary, on the tiny generators of golden/adapters.

use std::path::Path;

use crate::{gguf, program};
use program::{error, run, succeeded};
use serde_json::{Value, json};

fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters").join(name).display().to_string()
}

/// `--set` for these keys and the test's store.
fn settings(store: &Path, more: &[(&str, &str)]) -> Vec<String> {
    let (base, store) = (golden("base.gguf"), store.display().to_string());
    let own = [("generator.model", &*base), ("models.store", &*store), ("entailment.model", "off")];
    own.iter().chain(more).flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]).collect()
}

fn command(first: &[&str], settings: &[String]) -> std::process::Output {
    let settings = settings.iter().map(String::as_str);
    run(&first.iter().copied().chain(settings).collect::<Vec<_>>())
}

/// The embedding model is the strongest rival of the default method, so a comparison always includes it.
#[cfg(unix)]
#[test]
fn a_comparison_has_a_row_of_the_embedding_model_if_it_is_available() {
    let folder = tempfile::tempdir().unwrap();
    let (data, library) = (folder.path().join("lists.jsonl"), folder.path().join("onnxruntime"));
    crate::labelled::lists(&data, 2);
    let own = rerankd::config::Config::load(None, &[]).unwrap().store;
    std::os::unix::fs::symlink(own.root().join("onnxruntime"), &library).unwrap();
    let embedding = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rerankers/embedding");
    let settings = settings(folder.path(), &[("embedding.model", embedding)]);
    let compared = |more: &[&str]| {
        let output = command(&[&["compare", "--format", "json", data.to_str().unwrap()], more].concat(), &settings);
        assert!(output.status.success(), "{}", error(&output));
        let figures = crate::labelled::figures(&output);
        let row = |method: &str| figures.iter().any(|figure| figure["name"] == format!("lists {method} MRR"));
        ["cascade", "yes-no", "embedding", "cross-encoder", "setwise"].map(row)
    };
    assert_eq!(compared(&[]), [true, true, true, false, false]);
    assert_eq!(compared(&["--method", "cascade"]), [true, false, false, false, false]);
    // The model is of no use without ONNX Runtime.
    std::fs::remove_file(library).unwrap();
    assert_eq!(compared(&[]), [true, true, false, false, false]);
}

#[test]
fn rerank_scores_with_the_scorer_or_with_the_named_model() {
    let folder = tempfile::tempdir().unwrap();
    let passages = folder.path().join("passages.jsonl");
    std::fs::write(&passages, "{\"text\": \"the weir of the mill\"}\n{\"text\": \"bread\"}\n").unwrap();
    let (passages, merged, adapter) = (passages.display().to_string(), golden("merged.gguf"), golden("adapter.gguf"));
    let first = ["rerank", "--format", "json", "--query", "which weir", "--method", "query-generation", &passages];
    let both = settings(folder.path(), &[("scorer.model", &merged)]);
    let scored = succeeded(&command(&first, &both));
    let named = succeeded(&command(&[&first[..], &["--scorer", "generator"]].concat(), &both));
    assert_eq!((&scored["model"], &named["model"]), (&json!("merged.gguf"), &json!("base.gguf")));
    assert_ne!(scored["model_sha256"], named["model_sha256"]);
    let unknown = command(&[&first[..], &["--scorer", "nobody"]].concat(), &both);
    assert!(!unknown.status.success() && error(&unknown).contains("scorer: is \"nobody\""), "{}", error(&unknown));
    let adapted = settings(folder.path(), &[("generator.adapter", &adapter), ("generator.adapter_scale", "0.5")]);
    let adapted = succeeded(&command(&first, &adapted));
    assert_eq!((&adapted["adapter"]["name"], &adapted["adapter"]["scale"]), (&json!("adapter.gguf"), &json!(0.5)));
    assert_eq!(named["adapter"], Value::Null);
}

#[test]
fn a_comparison_of_another_scorer_or_adapter_is_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("lists.jsonl"), folder.path().join("out"));
    let line = |number: usize| {
        let passages = json!([
            { "id": "a", "text": "The weir of the mill is old.", "score": 2.0, "label": 0 },
            { "id": "b", "text": "Bread needs salt.", "score": 1.0, "label": 1 },
        ]);
        json!({ "id": format!("q{number}"), "question": "what needs salt", "answers": [], "passages": passages })
    };
    let lines: Vec<String> = (0..3).map(|number| format!("{}\n", line(number))).collect();
    std::fs::write(&data, lines.concat()).unwrap();
    let (data, out) = (data.display().to_string(), out.display().to_string());
    let first = ["compare", "--format", "json", &data, "--method", "query-generation", "--out", &out];
    let (merged, adapter) = (golden("merged.gguf"), golden("adapter.gguf"));
    let with = |more: &[(&str, &str)]| command(&first, &settings(folder.path(), more));
    let scored = with(&[("scorer.model", &merged)]);
    assert!(scored.status.success(), "{}", error(&scored));
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(Path::new(&out).join("manifest.json")).unwrap()).unwrap();
    let scorer = manifest["scorer"].as_str().unwrap();
    assert!(scorer.split_once(" as ").is_some_and(|(file, _)| file.len() == 64), "{scorer}");
    assert!(with(&[("scorer.model", &merged)]).status.success(), "the same settings continue");
    let scorer = ("scorer.model", &*merged);
    for other in [
        &[][..],
        &[scorer, ("scorer.adapter", &*adapter)],
        &[("generator.adapter", &*adapter)],
        // Settings of passage cuts, cache types and limits.
        &[scorer, ("scorer.context_tokens", "512")],
        &[scorer, ("scorer.cache_type", "bf16")],
        &[scorer, ("generator.cache_type", "bf16")],
        &[scorer, ("limits.passage_bytes", "100")],
    ] {
        let refused = with(other);
        assert!(!refused.status.success(), "{other:?}");
        assert!(error(&refused).contains("the results were made with other settings: "), "{}", error(&refused));
    }
}

/// Both models score the same lists. Each row equals a run with its model only.
#[test]
fn a_comparison_shows_the_gain_of_the_scorer_over_the_generator() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("lists.jsonl");
    let line = |number: usize| {
        let passages = json!([
            { "id": "a", "text": format!("The weir of mill {number} is old."), "label": 0 },
            { "id": "b", "text": "Bread needs salt.", "label": 1 },
        ]);
        json!({ "id": format!("q{number}"), "question": "what needs salt", "passages": passages })
    };
    let lines: Vec<String> = (0..3).map(|number| format!("{}\n", line(number))).collect();
    std::fs::write(&data, lines.concat()).unwrap();
    let (data, merged) = (data.display().to_string(), golden("merged.gguf"));
    let compared = |name: &str, more: &[&str], keys: &[(&str, &str)]| {
        let out = folder.path().join(name).display().to_string();
        let first =
            ["compare", "--format", "json", &data, "--method", "query-generation,retriever", "--passage-tokens", "4"];
        let output = command(&[&first[..], &["--out", &out], more].concat(), &settings(folder.path(), keys));
        (output, folder.path().join(name))
    };
    let rows = |folder: &Path| -> Vec<Value> {
        let text = std::fs::read_to_string(folder.join("results.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["value"].clone()).collect()
    };
    let (output, both) = compared("both", &["--by-generator"], &[("scorer.model", &merged)]);
    assert!(output.status.success(), "{}", error(&output));
    let (generator, scorer) =
        (compared("generator", &[], &[]).1, compared("scorer", &[], &[("generator.model", &merged)]).1);
    for ((both, generator), scorer) in rows(&both).iter().zip(rows(&generator)).zip(rows(&scorer)) {
        let scores = |row: &Value| row["scores"].clone();
        assert_eq!(scores(&both["query-generation+generator"]), scores(&generator["query-generation"]));
        assert_eq!(scores(&both["query-generation"]), scores(&scorer["query-generation"]));
        assert_ne!(scores(&both["query-generation"]), scores(&generator["query-generation"]));
        assert!(both.get("retriever+generator").is_none(), "it uses no scorer");
    }
    let figures: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let figure = |name: &str| figures.iter().find(|figure| figure["name"] == name).unwrap();
    let sentence = figure("lists verdict on the scorer")["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Scorer: "), "{sentence}");
    assert!(figure("lists query-generation+generator nDCG@10 over query-generation")["p_value"].is_number());
    let scored_by = |row: &str| figure(&format!("lists {row} nDCG@10 in the list"))["model"].get("scorer").is_some();
    assert!(scored_by("query-generation") && !scored_by("query-generation+generator"));
    // Every passage is longer than four tokens, so every ranking has a warning.
    let warned = figure("lists query-generation+generator warning 1");
    assert_eq!((&warned["value"], warned["sentence"].as_str().unwrap().contains("cut")), (&json!(3), true), "{warned}");
    let page = std::fs::read_to_string(both.join("compare.md")).unwrap();
    assert!(
        page.contains(sentence)
            && page.contains("are scored by the generator, the rows of the same methods without it by the scorer"),
        "{page}"
    );
    assert!(page.contains("| query-generation | 3 | "), "{page}");
    assert!(
        sentence.contains("query-generation (nDCG@10") && sentence.contains("query-generation+generator"),
        "{sentence}"
    );
    // A repeated command continues. Without `--by-generator` it is another comparison.
    let again = compared("both", &["--by-generator"], &[("scorer.model", &merged)]).0;
    assert!(again.status.success() && again.stdout == output.stdout, "{}", error(&again));
    let other = compared("both", &[], &[("scorer.model", &merged)]).0;
    assert!(!other.status.success() && error(&other).contains("by_generator"), "{}", error(&other));
    // Both models' speeds are measured before the first budget applies, whatever method comes first.
    let bounded =
        ["compare", "--format", "json", &data, "--method", "leave-one-out,query-generation", "--by-generator"];
    let bounded = [&bounded[..], &["--latency-budget-ms", "60000"]].concat();
    let output = command(&bounded, &settings(folder.path(), &[("scorer.model", &merged)]));
    assert!(
        output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("had no effect"),
        "{}",
        error(&output)
    );
    let (output, _) = compared("none", &["--by-generator"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(error(&output).contains("--by-generator: no scorer is configured"), "{}", error(&output));
}

#[test]
fn results_of_another_adapter_or_scale_are_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("lists.jsonl");
    let passages = json!([{ "id": "a", "text": "The mill is old.", "supporting": false },
        { "id": "b", "text": "Bread needs salt.", "supporting": true }]);
    let line = json!({ "id": "q", "question": "what needs salt", "answers": ["bread"], "passages": passages });
    std::fs::write(&data, format!("{line}\n")).unwrap();
    let (adapter, other) = (golden("adapter.gguf"), folder.path().join("other.gguf").display().to_string());
    let factors = gguf::factors("blk.0.attn_q.weight", 32, 32, 2, 0.1);
    std::fs::write(&other, gguf::bytes(&gguf::adapter_values("llama", 4.0), &factors)).unwrap();
    let data = data.display().to_string();
    for name in ["compare", "evaluate"] {
        let out = folder.path().join(name).display().to_string();
        let first = if name == "compare" {
            vec![name, "--format", "json", &data, "--method", "query-generation", "--out", &out]
        } else {
            [program::arguments(&data, &out), vec!["--method", "query-generation"]].concat()
        };
        let with = |more: &[(&str, &str)]| command(&first, &settings(folder.path(), more));
        let made = with(&[("generator.adapter", &adapter), ("generator.adapter_scale", "0.5")]);
        assert!(made.status.success(), "{}", error(&made));
        for settings in [
            &[][..],
            &[("generator.adapter", &*adapter)],
            &[("generator.adapter", &*other), ("generator.adapter_scale", "0.5")],
        ] {
            let refused = with(settings);
            assert!(!refused.status.success(), "{name} {settings:?}");
            assert!(error(&refused).contains("adapter"), "{}", error(&refused));
        }
        assert!(with(&[("generator.adapter", &adapter), ("generator.adapter_scale", "0.50")]).status.success());
    }
}

/// A missing path, a catalogue entry of another role, an unknown name.
#[test]
fn a_pull_names_the_key_of_a_wrong_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[(&str, &str)], &str); 3] = [
        (
            &[("generator.adapter", "/nowhere/a.gguf")],
            "generator.adapter: \"/nowhere/a.gguf\", for adapter, is neither",
        ),
        (&[("generator.adapter", "smollm2-135m-instruct")], "is for generator, not for adapter"),
        (&[("scorer.model", "nobody")], "scorer.model: \"nobody\""),
    ];
    for (wrong, expected) in cases {
        let pulled = command(&["models", "pull"], &settings(folder.path(), wrong));
        assert!(!pulled.status.success() && error(&pulled).contains(expected), "{}", error(&pulled));
    }
}

#[test]
fn a_server_with_a_wrong_adapter_ends_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (merged, cut) = (golden("merged.gguf"), folder.path().join("cut.gguf"));
    let whole = std::fs::read(golden("adapter.gguf")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    for (adapter, reason) in
        [(merged.as_str(), "it has no general.type"), (cut.to_str().unwrap(), "the end of the file")]
    {
        let served = command(
            &["serve", "--listen", "127.0.0.1:0", "--http-listen", "off"],
            &settings(folder.path(), &[("generator.adapter", adapter)]),
        );
        let problem = error(&served);
        assert_eq!(served.status.code(), Some(1), "{problem}");
        assert!(problem.contains(adapter) && problem.contains(reason), "{problem}");
    }
    let scale = settings(folder.path(), &[("generator.adapter", &merged), ("generator.adapter_scale", "much")]);
    let checked = command(&["check-config"], &scale);
    assert_eq!(checked.status.code(), Some(78), "{}", error(&checked));
    assert!(error(&checked).contains("generator.adapter_scale: must be between -100 and 100"));
}
