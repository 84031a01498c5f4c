//! `rerankd compare` as a program: labelled lists in, tables and a verdict out.

use std::path::Path;

use crate::{labelled, program};
use labelled::{FACTS, figure, figures, list, lists};
use program::{alone, error, run};
use serde_json::{Value, json};

#[test]
fn a_comparison_says_which_method_to_take() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("lists.jsonl"), folder.path().join("out"));
    lists(&data, 9);
    let (file, place) = (data.to_str().unwrap(), out.to_str().unwrap());
    let asked = |more: &[&str]| {
        let fixed =
            ["compare", "--format", "json", file, "--method", "query-generation,retriever", "--resamples", "100"];
        run(&[&fixed[..], more].concat())
    };
    let found = figures(&asked(&["--out", place, "--test-resamples", "2000"]));
    // The relevant passage is last of four: 1 / log2(5) in the list, and less if the retriever missed another one.
    let given = figure(&found, "lists given nDCG@10 in the list");
    assert!((given["value"].as_f64().unwrap() - 1.0 / 5.0_f64.log2()).abs() < 1e-9, "{given}");
    assert_eq!((&given["questions"], &given["unit"]), (&json!(8), &json!("nDCG")));
    // The ninth list has no relevant passage, but the collection has, so it counts 0.
    let near = |name: &str, expected: f64| {
        let value = figure(&found, name)["value"].as_f64().unwrap();
        assert!((value - expected * 8.0 / 9.0).abs() < 1e-9, "{name} is {value}");
    };
    near("lists given nDCG@10 of all judged", 1.0 / 5.0_f64.log2() / (1.0 + 1.0 / 3.0_f64.log2()));
    near("lists given MRR", 0.25);
    assert_eq!(figure(&found, "lists given recall@3")["value"], 0.0);
    // The list holds one of the two relevant passages of the collection.
    near("lists given recall@5", 0.5);
    near("lists bm25 MRR", 1.0);
    let gain = figure(&found, "lists bm25 nDCG@10 over given");
    assert_eq!((&gain["met"], &gain["goal"], &gain["wins"]), (&json!(true), &json!(1.0), &json!(8)));
    assert!(gain["ratio"].as_f64().unwrap() > 2.0 && gain["p_value_holm"].as_f64() >= gain["p_value"].as_f64());
    // The method `retriever` keeps the first-stage order.
    near("lists bm25 MRR over given", 0.75);
    let ratio = figure(&found, "lists bm25 MRR over given")["ratio"].as_f64().unwrap();
    assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
    assert_eq!(figure(&found, "lists bm25 recall@5 over given")["unit"], "share");
    near("lists retriever MRR over bm25", -0.75);
    assert!(found.iter().all(|figure| figure["name"] != "lists bm25 MRR over bm25"));
    let naive = figure(&found, "lists query-generation tokens without sharing, mean")["value"].as_f64().unwrap();
    assert!(naive > figure(&found, "lists query-generation tokens, mean")["value"].as_f64().unwrap());
    let kept = figure(&found, "lists retriever nDCG@10 over given");
    assert_eq!((&kept["value"], &kept["met"], &kept["ties"]), (&json!(0.0), &json!(false), &json!(8)));
    assert_eq!(figure(&found, "lists retriever tokens, mean")["value"], 0.0);
    let tokens = figure(&found, "lists query-generation tokens, median");
    assert!(tokens["value"].as_f64().unwrap() > 40.0);
    assert_eq!(tokens["questions"], 9, "a list without a relevant passage has a cost, too");
    assert_eq!(tokens["model"]["sha256"].as_str().unwrap().len(), 64);
    assert!(figure(&found, "lists query-generation AUC")["value"].as_f64().unwrap() > 0.5);
    assert!(found.iter().all(|figure| !figure["name"].as_str().unwrap().starts_with("lists bm25 AUC")));
    // BM25 ranks every relevant passage first, so no method is better, and none is cheaper.
    let verdict = figure(&found, "lists verdict");
    assert_eq!(verdict["value"], "bm25", "{verdict}");
    let sentence = verdict["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Take bm25: nDCG@10 1.000, 0.569 above the retriever's order"), "{sentence}");
    page_and_markdown(&out, sentence);
    // A repeated command ranks nothing again. Other settings are refused by name, and so are fewer lists.
    let before = std::fs::read(out.join("results.jsonl")).unwrap();
    figures(&asked(&["--out", place]));
    assert_eq!(before, std::fs::read(out.join("results.jsonl")).unwrap());
    let other = asked(&["--out", place, "--max-passage-tokens", "8"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(error(&other).contains("passage_tokens (stored null, now 8)"), "{}", error(&other));
    let other = asked(&["--out", place, "--latency-budget-ms", "500"]);
    assert!(error(&other).contains("latency_budget_ms"), "{}", error(&other));
    let bad = asked(&["--latency-budget-ms", "nan"]);
    assert!(bad.status.code() == Some(2) && error(&bad).contains("must be a number above 0"), "{}", error(&bad));
    let bounded = asked(&["--latency-budget-ms", "500", "--concurrency", "4"]);
    assert!(error(&bounded).contains("cannot be used with"), "{}", error(&bounded));
    // Latencies at another concurrency are not mixed in; the rankings are equal.
    let other = asked(&["--out", place, "--concurrency", "4"]);
    assert!(error(&other).contains("concurrency (stored 1, now 4)"), "{}", error(&other));
    let beside = folder.path().join("beside");
    let at_once =
        figures(&asked(&["--out", beside.to_str().unwrap(), "--concurrency", "4", "--test-resamples", "2000"]));
    for name in ["lists query-generation nDCG@10 in the list", "lists query-generation tokens, mean", "lists verdict"] {
        assert_eq!(figure(&at_once, name)["value"], figure(&found, name)["value"], "{name}");
    }
    let lines = |out: &Path| std::fs::read_to_string(out.join("results.jsonl")).unwrap();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
    assert!(lines(&beside).lines().map(id).eq(lines(&out).lines().map(id)));
    let told = figure(&at_once, "lists verdict");
    assert!(
        told["concurrency"] == 4 && told["sentence"].as_str().unwrap().ends_with("0 tokens per question."),
        "{told}"
    );
    let text = std::fs::read_to_string(beside.join("compare.md")).unwrap();
    assert!(
        text.contains(
            "4 questions were asked at once; seconds are from the request to its answer, and include waiting"
        ),
        "{text}"
    );
    assert!(error(&asked(&["--out", place, "--limit", "3"])).contains("there are only 3 questions"));
    // An interrupted comparison continues where it stopped.
    let text = String::from_utf8(before).unwrap();
    let six = text.split_inclusive('\n').take(6).collect::<String>();
    std::fs::write(out.join("results.jsonl"), &six).unwrap();
    figures(&asked(&["--out", place]));
    let again = std::fs::read_to_string(out.join("results.jsonl")).unwrap();
    assert_eq!(again.lines().count(), 9);
    assert!(again.starts_with(&six));
}

#[test]
fn an_instruction_has_its_row_and_belongs_to_the_results() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, examples, out) = (path("lists.jsonl"), path("examples.jsonl"), path("out"));
    lists(Path::new(&data), 3);
    let example =
        json!({ "passage": "The ferry at Oke runs until dusk.", "query": "When does the ferry at Oke stop?" });
    std::fs::write(&examples, format!("{example}\n")).unwrap();
    let asked = |instruction: &str, methods: &str| {
        let fixed = ["compare", "--format", "json", &data, "--resamples", "0", "--test-resamples", "50", "--out", &out];
        let alone = ["--set", "embedding.model=off"];
        let own = ["--method", methods, "--instruction", instruction, "--examples", &examples];
        run(&[&fixed[..], &alone, &own].concat())
    };
    let found = figures(&asked("Write a question.", "query-generation,cascade,retriever"));
    let tokens = |row: &str| figure(&found, &format!("lists {row} tokens, mean"))["value"].as_f64().unwrap();
    assert!(tokens("query-generation+opening") > tokens("query-generation"));
    assert_eq!(figure(&found, "lists cascade tokens of other models, mean")["value"], 0.0, "none is configured");
    let predicted = figure(&found, "lists cascade outranks_next")["value"].as_f64().unwrap();
    assert!((0.5..1.0).contains(&predicted), "{predicted}");
    assert!(found.iter().all(|figure| figure["name"] != "lists query-generation outranks_next"));
    assert!(found.iter().all(|figure| !figure["name"].as_str().unwrap().contains("retriever+opening")));
    let text = std::fs::read_to_string(Path::new(&out).join("compare.md")).unwrap();
    assert!(text.contains("the instruction \"Write a question.\" (examples: 1) before the passages"), "{text}");
    let other = asked("Write a claim.", "query-generation,cascade,retriever");
    assert_eq!(other.status.code(), Some(2));
    assert!(error(&other).contains("opening (stored [\"Write a question.\""), "{}", error(&other));
}

#[test]
fn prompt_formats_have_their_rows() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = path("lists.jsonl");
    lists(Path::new(&data), 4);
    let asked = |out: &str, more: &[&str]| {
        let fixed = ["compare", "--format", "json", &data, "--resamples", "0", "--test-resamples", "50", "--out", out];
        let methods = ["--method", "query-generation,retriever", "--set", "embedding.model=off"];
        run(&[&fixed[..], &methods, more].concat())
    };
    let (compared, plain, jinja) = (path("compared"), path("plain"), path("jinja"));
    let found = figures(&asked(&compared, &["--frames", "jinja,plain,jinja"]));
    let tokens = |row: &str| figure(&found, &format!("lists {row} tokens, mean"))["value"].as_f64().unwrap();
    // The file's template writes a system message; llama.cpp's template does not.
    assert!(tokens("query-generation+jinja") > tokens("query-generation"));
    assert!(tokens("query-generation") > tokens("query-generation+plain"));
    assert!(found.iter().all(|figure| figure["ranking"] != "retriever+plain"));
    // A request cannot choose a prompt format, so such a row is not in the methods' verdict or tests.
    let over_given = figure(&found, "lists query-generation+plain nDCG@10 over given");
    assert_eq!((&over_given["met"], &over_given["p_value"]), (&Value::Null, &Value::Null));
    assert_eq!((&over_given["p_value_holm"], &over_given["model"]["frame"]), (&Value::Null, &json!("plain")));
    assert_eq!(figure(&found, "lists query-generation MRR")["model"]["frame"], "chat");
    figure(&found, "lists query-generation+plain nDCG@10 over query-generation");
    let sentence = figure(&found, "lists verdict on prompts")["sentence"].as_str().unwrap().to_owned();
    assert!(sentence.starts_with("Prompts: "), "{sentence}");
    for name in ["compare.md", "compare.html"] {
        assert!(std::fs::read_to_string(Path::new(&compared).join(name)).unwrap().contains(&sentence), "{name}");
    }
    // The rows equal those of a server with that prompt format.
    figures(&asked(&plain, &["--set", "generator.chat_template=off"]));
    figures(&asked(&jinja, &["--set", "generator.chat_template=jinja"]));
    let scores = |out: &str, row: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(Path::new(out).join("results.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .flat_map(|line| line["value"][row]["scores"].as_array().cloned().unwrap_or_default())
            .map(|one| one.as_f64().unwrap())
            .collect()
    };
    for (frame, out) in [("plain", &plain), ("jinja", &jinja)] {
        let (rows, own) = (scores(&compared, &format!("query-generation+{frame}")), scores(out, "query-generation"));
        assert!(rows.len() == 15 && rows.len() == own.len(), "{frame}");
        // Other requests share the cache, so the last bits may differ.
        assert!(rows.iter().zip(&own).all(|(row, own)| (row - own).abs() < 0.01), "{frame}: {rows:?} {own:?}");
        let apart = scores(&compared, "query-generation")
            .iter()
            .zip(&own)
            .map(|(one, own)| (one - own).abs())
            .fold(0.0, f64::max);
        assert!(apart > 0.01, "{frame} changes nothing");
    }
    // Results of another prompt format are not continued, and incomparable settings are refused.
    let other = asked(&plain, &[]);
    assert!(error(&other).contains("chat_template (stored false"), "{}", error(&other));
    let refused = |more: &[&str], part: &str| {
        let output = asked(&path("refused"), more);
        assert!(output.status.code() == Some(2) && error(&output).contains(part), "{}", error(&output));
    };
    refused(&["--frames", "chat"], "chat is the configured frame");
    let store = rerankd::config::Config::load(None, &[]).unwrap().store;
    let own = store.locate("smollm2-135m-instruct", models::catalog::Role::Generator).unwrap().path;
    let other = path("scorer.gguf");
    std::os::unix::fs::symlink(own, &other).unwrap();
    refused(&["--frames", "plain", "--set", &format!("scorer.model={other}")], "compares the frames of one generator");
    refused(&["--frames", "markdown"], "must be one of chat, jinja, plain");
    refused(&["--frames", "plain", "--server", "127.0.0.1:1"], "cannot be used with");
}

fn page_and_markdown(out: &Path, sentence: &str) {
    let page = std::fs::read_to_string(out.join("compare.html")).unwrap();
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} in {page}"));
    let order = ["Take bm25: nDCG@10", "<svg", "over bm25", "How it was measured"].map(place);
    assert!(order.is_sorted(), "{order:?}");
    for outside in ["https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    let text = std::fs::read_to_string(out.join("compare.md")).unwrap();
    assert!(text.starts_with(&format!("# Ranking methods compared\n\n{sentence}\n\n## lists\n")), "{text}");
    assert!(text.contains("| given | 0.431 [0.431, 0.431] |") && text.contains("1 of them have no relevant"), "{text}");
}

#[test]
fn several_files_are_measured_together_and_separately() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two) = (path("one.jsonl.gz"), path("two.jsonl"));
    lists(Path::new(&one), 5);
    lists(Path::new(&two), 4);
    let fixed = ["compare", "--format", "json", &one, &two, "--method", "retriever", "--resamples", "0"];
    let asked = |more: &[&str]| figures(&run(&[&fixed[..], more].concat()));
    let found = asked(&["--test-resamples", "100"]);
    for (name, questions) in [("all 2 files", 9), ("one", 5), ("two", 4)] {
        assert_eq!(figure(&found, &format!("{name} bm25 MRR"))["questions"], questions);
    }
    assert_eq!(figure(&found, "one bm25 MRR")["low"], Value::Null);
    // The second and the third question of each file.
    let found = asked(&["--skip", "1", "--limit", "2", "--test-resamples", "100"]);
    assert_eq!(figure(&found, "all 2 files given tokens, mean")["questions"], 4);
    let few = asked(&["--skip", "3", "--test-resamples", "100"]);
    assert_eq!(figure(&few, "two verdict")["value"], Value::Null);
    let sentence = "No verdict: 0 of 1 questions have a relevant passage in their list, and at least 2 are needed.";
    assert_eq!(figure(&few, "two verdict")["sentence"], sentence);
}

#[test]
fn refused_questions_are_listed_and_their_method_is_not_recommended() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("lists.jsonl");
    // One passage more than the configuration allows.
    let mut second = list(1, false);
    second["passages"].as_array_mut().unwrap().push(json!({ "id": "more", "text": "More.", "score": 0.5, "label": 0 }));
    std::fs::write(&data, format!("{}\n{second}\n{}\n", list(0, false), list(2, false))).unwrap();
    let fixed =
        ["compare", "--format", "json", data.to_str().unwrap(), "--set", "limits.passages=4", "--test-resamples", "50"];
    let output = run(&[&fixed[..], &["--method", "retriever"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let said = error(&output);
    assert!(
        said.contains("question \"q1\": retriever: passages: 5 given") && said.contains("1 requests were refused"),
        "{said}"
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(figure(&found, "lists retriever MRR")["questions"], 2);
    assert_eq!(figure(&found, "lists given MRR")["questions"], 3);
    assert_eq!(figure(&found, "lists bm25 MRR")["questions"], 3);
}

#[test]
fn bad_input_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (good, bad) = (path("good.jsonl"), path("bad.jsonl"));
    std::fs::write(&good, format!("{}\n", list(0, false))).unwrap();
    std::fs::write(&bad, "{\"question\": \"Who?\", \"passages\": [{\"text\": \"x\"}]}\n\n{\"passages\": []}\n")
        .unwrap();
    let (many, blank) = (path("many.jsonl"), path("blank.jsonl"));
    std::fs::write(&many, "{\"passage\": \"p\", \"query\": \"q\"}\n".repeat(17)).unwrap();
    std::fs::write(&blank, "{\"passage\": \" \", \"query\": \"q\"}\n").unwrap();
    let long = "i".repeat(4_001);
    let cases: [(&[&str], &str); 13] = [
        (&[&good, "--instruction", " "], "--instruction: must not be empty"),
        (&[&good, "--instruction", &long], "--instruction: 4001 characters given, at most 4000 allowed"),
        (&[&good, "--examples", &many], "--examples: 17 given, at most 16 allowed"),
        (&[&good, "--examples", &blank], "blank.jsonl:1: passage: must not be empty"),
        (&[&bad, &good], "bad.jsonl:1: passages[0].label: is missing"),
        (&[&good, &bad], "bad.jsonl:3: question: is missing"),
        (&[&good, "--method", "moi,mio"], "--method: \"mio\" is not a ranking method; methods are cascade, moi, "),
        (&[&good, "--skip", "1"], "good.jsonl: no questions are left of it"),
        (&[&good, "--relevance-threshold", "0"], "must be a number above 0"),
        (&["/nowhere.jsonl"], "/nowhere.jsonl: "),
        (
            &[&good, "--method", "yes-no", "--instruction", "Judge."],
            "--instruction, --examples: none of the methods takes them",
        ),
        (&[&good, "--examples", &good], "good.jsonl:1: passage: is missing; the line has the fields"),
        (&[&good, "--examples", "/nowhere.jsonl"], "/nowhere.jsonl: "),
    ];
    for (arguments, problem) in cases {
        let output = run(&[&["compare"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(error(&output).contains(problem), "{arguments:?}: {}", error(&output));
    }
    let output = run(&["calibrate", "--format", "json", "--ranking", &good, "--method", "semantic-utility"]);
    assert_eq!(output.status.code(), Some(2));
    let problem = "--method: semantic-utility is not calibrated: its scores depend on the entailment model";
    assert!(error(&output).contains(problem), "{}", error(&output));
    let help = run(&["compare", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("rerankd compare labelled.jsonl --out comparison"));
    let unreachable = run(&["compare", "--format", "json", &good, "--server", "127.0.0.1:9"]);
    assert_eq!(unreachable.status.code(), Some(69));
}

/// The generator ranks these lists well, so calibration succeeds. The next command with this store uses the
/// calibration.
#[cfg(unix)]
#[test]
fn methods_are_calibrated_on_labelled_lists() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let name = "smollm2-135m-instruct";
    let own = rerankd::config::Config::load(None, &[]).unwrap().store;
    for model in [name, "all-minilm-l6-v2", "onnxruntime"] {
        std::os::unix::fs::symlink(own.root().join(model), folder.path().join(model)).unwrap();
    }
    let store = format!("models.store={}", folder.path().display());
    let data = folder.path().join("lists.jsonl");
    lists(&data, 12);
    let data = data.to_str().unwrap();
    // The prefix is part of the key under which the server looks up a calibration.
    let own = ["--set", &store, "--set", "generator.reencode_megabytes=off", "--set", "embedding.query_prefix=query: "];
    let methods = "cascade,query-generation,embedding";
    let calibrate =
        [&["calibrate", "--format", "json", "--ranking", "--mixes", data, "--method", methods], &own[..]].concat();
    let output = run(&calibrate);
    assert!(output.status.success(), "{}", error(&output));
    let lines = figures(&output);
    let all = |key: &str| lines.iter().map(|line| line[key].as_str()).collect::<Vec<_>>();
    assert_eq!(all("method"), [Some("cascade"), Some("cascade"), Some("query-generation"), Some("embedding")]);
    assert_eq!(all("fused_with"), [Some("retriever"), Some("retriever"), None, None]);
    // The default method fuses embedding scores, so its first calibration belongs to the embedding model. The second is
    // for servers without that model.
    let sha256 = |key: &str| lines.iter().map(|line| line[key].as_str().map(str::len)).collect::<Vec<_>>();
    assert_eq!(sha256("embedding_sha256"), [Some(64), None, None, None]);
    // A calibration of the method `embedding` belongs to the embedding model.
    assert_eq!(sha256("model_sha256"), [None, None, None, Some(64)]);
    let mixes = |line: &Value| (line["embedding_weight"].is_f64(), line["mixes"].as_array().unwrap().len());
    assert_eq!(lines.iter().map(mixes).collect::<Vec<_>>(), [(true, 232), (false, 22), (false, 0), (false, 0)]);
    for line in &lines {
        assert_eq!((line["lists"].as_u64(), line["passages"].as_u64()), (Some(12), Some(47)));
        assert!(line["slope"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["unseen"]["outranks_next"]["pairs"].is_u64(), line["method"] == "cascade", "{line}");
        let error = |key: &str| line["unseen"]["calibration_error"][key].as_f64().unwrap();
        assert!(error("after") < error("before"), "{line}");
        let auto = |key: &str| line["unseen"]["auto_k"][key].as_f64().unwrap();
        assert!(auto("f1") > 0.0 && auto("results") >= 1.0 && auto("f1_of_one_number") <= 1.0, "{line}");
    }
    let passages = folder.path().join("passages.jsonl");
    let lines: Vec<String> =
        list(0, false)["passages"].as_array().unwrap().iter().map(|one| format!("{one}\n")).collect();
    std::fs::write(&passages, lines.concat()).unwrap();
    let rerank =
        [&["rerank", "--format", "json", "--query", FACTS[0].0, passages.to_str().unwrap()], &own[..]].concat();
    let ranked = run(&rerank);
    assert!(ranked.status.success(), "{}", error(&ranked));
    let ranked: Value = serde_json::from_slice(&ranked.stdout).unwrap();
    assert_eq!(ranked["score_calibrated"], json!(true), "{ranked}");
    let cut = run(&[&rerank[..], &["--auto-k"]].concat());
    let cut: Value = serde_json::from_slice(&cut.stdout).unwrap();
    let count = |answer: &Value| answer["results"].as_array().unwrap().len();
    assert!((1..count(&ranked)).contains(&count(&cut)), "{cut}");
    let calibrated = |settings: &[&str]| {
        let ranked = run(&[&rerank[..], settings].concat());
        assert!(ranked.status.success(), "{}", error(&ranked));
        serde_json::from_slice::<Value>(&ranked.stdout).unwrap()
    };
    assert_eq!(calibrated(&["--method", "embedding"])["score_calibrated"], json!(true));
    std::fs::remove_file(folder.path().join("all-minilm-l6-v2")).unwrap();
    let without = calibrated(&[]);
    assert_eq!(without["score_calibrated"], json!(true), "{without}");
    let warnings = without["warnings"].to_string();
    assert!(warnings.contains("ranked without the embedding model") && warnings.contains("models pull"), "{warnings}");
    let stored = |arguments: &[&str]| {
        run(&[&["calibrate", "--format", "json", "--ranking", "--set", &store], arguments].concat())
    };
    let methods = || -> Vec<String> {
        figures(&stored(&["--show"])).iter().map(|line| line["method"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(methods(), ["cascade", "cascade", "query-generation", "embedding"]);
    let unknown = stored(&["--remove", "moi"]);
    assert!(error(&unknown).contains("no calibration of \"moi\" is stored"), "{}", error(&unknown));
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stored(&["--remove", "cascade"]).status.success());
    assert_eq!(
        (methods(), calibrated(&[])["score_calibrated"].clone()),
        (vec!["query-generation".into(), "embedding".into()], json!(false))
    );
    assert!(stored(&["--remove", "all"]).status.success());
    assert!(methods().is_empty());
    let few = run(&[&calibrate[..], &["--limit", "9"]].concat());
    assert_eq!(few.status.code(), Some(2));
    assert!(error(&few).contains("cascade: 9 lists, at least 10 are needed"), "{}", error(&few));
}
