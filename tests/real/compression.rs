//! Compression by the default generator with its weights, and the command line.

use std::sync::Arc;

use crate::{common, program};
use common::scripted::Observed;
use common::{real_engine, serve, wire};
use engine::methods;
use engine::methods::query_prompt::QueryPrompt;
use engine::types::{Compression, CompressionMethod, Passage, RerankRequest};
use prefix_scheduler::plan::{Plan, Segment, Token};
use program::{error, run};
use protocol::v1;
use rerankd::config::Config;
use serde_json::{Value, json};

const QUERY: &str = "Which river drove the looms of Harrowgate?";

/// Made for this test; reference.py has the log-probabilities of its tokens.
const TEXT: &str = "Harrowgate is an old mill town. The looms were driven by water from the River Senn, led over a weir \
                    above the town. A new weaver earned 12 shillings a week. People lived there for many years.";

fn golden() -> (Vec<Token>, Vec<f64>) {
    let path = format!("{}/tests/golden/generator/self_information.json", env!("CARGO_MANIFEST_DIR"));
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let of = |field: &str| golden[field].clone();
    (serde_json::from_value(of("tokens")).unwrap(), serde_json::from_value(of("log_probabilities")).unwrap())
}

fn selective(ratio: f64) -> v1::Compression {
    let method = v1::CompressionMethod::SelectiveContext.into();
    v1::Compression { method, ratio: Some(ratio), ..v1::Compression::default() }
}

fn request(texts: &[&str], compression: v1::Compression) -> v1::RerankRequest {
    let method = v1::Method::Retriever.into();
    v1::RerankRequest { method, compression: Some(compression), ..wire(QUERY, texts) }
}

/// Self-information of each token in a compression against numpy on the same file, and the sentences that numpy's
/// numbers keep against the server's.
#[tokio::test]
async fn self_information_agrees_with_an_independent_program() {
    let engine = real_engine().await;
    let generator = common::generator(&engine);
    let language = &generator.language;
    let opening = QueryPrompt::new(language, &[]).prefix;
    let body = language.text(&format!(" {TEXT}"));
    let passage = [language.text("Document:"), body.clone(), language.text("\n\n")].concat();
    let (tokens, expected) = golden();
    assert_eq!(tokens, [&opening.tokens[..], &passage].concat(), "the prompt that reference.py was given");
    let mut plan = Plan::new();
    let node = plan.add(&[opening.clone(), Segment::scored(passage.clone(), 0)])[1];
    let scores = generator.scheduler.run(Arc::new(plan), &common::call(), None).await.unwrap().scores[node.0].clone();
    // Element i is the log-probability of token i + 1.
    let expected = &expected[opening.tokens.len() - 1..];
    assert_eq!(scores.len(), expected.len());
    let differences: Vec<f64> = scores.iter().zip(expected).map(|(ours, theirs)| ours - theirs).collect();
    let rms = (differences.iter().map(|x| x * x).sum::<f64>() / differences.len() as f64).sqrt();
    let largest = differences.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    println!("{} tokens: largest difference {largest:.3}, root mean square {rms:.3} nats", differences.len());
    // The bounds of tests/real/generator.rs.
    let (one, square) = if generator.info.encoding.ends_with("F16") { (0.25, 0.05) } else { (1.0, 0.2) };
    assert!(largest < one && rms < square);

    let head = language.text("Document:").len();
    let (mut at, mut sentences) = (head, Vec::new());
    for sentence in TEXT.split_inclusive(". ").map(str::trim) {
        let length = language.text(&format!(" {sentence}")).len();
        let mean = -expected[at..at + length].iter().sum::<f64>() / length as f64;
        sentences.push((sentence, length, mean));
        at += length;
    }
    assert_eq!(at, head + body.len());
    let mut by_token: Vec<f64> = sentences.iter().flat_map(|(_, length, mean)| vec![*mean; *length]).collect();
    by_token.sort_by(f64::total_cmp);
    for ratio in [0.3, 0.6, 0.8] {
        let rank = (by_token.len() - 1) as f64 * (1.0 - ratio);
        let (low, high) = (by_token[rank.floor() as usize], by_token[rank.ceil() as usize]);
        let threshold = low + (high - low) * rank.fract();
        let kept: Vec<&str> = sentences.iter().filter(|one| one.2 >= threshold).map(|one| one.0).collect();
        let answer = serve_and_ask(request(&[TEXT], selective(ratio))).await;
        assert_eq!(answer.compression.unwrap().passages[0].compressed_text, kept.join(" "), "{ratio}: {sentences:?}");
    }
}

async fn serve_and_ask(request: v1::RerankRequest) -> v1::RerankResponse {
    let server = serve(real_engine().await, Arc::new(Observed::default()), 64).await;
    let answer = server.client().await.rerank(request).await.unwrap().into_inner();
    server.stop().await;
    answer
}

/// Two fifths of the first passage stay, with the subject of the query and without the wage and the years.
#[tokio::test]
async fn words_about_the_query_stay() {
    let compression = v1::Compression { ratio: Some(0.2), ..v1::Compression::default() };
    // Best first, although the default generator reads another order best.
    let context_order = v1::ContextOrder::Descending.into();
    let asked = v1::RerankRequest { context_order, ..request(&[TEXT, TEXT], compression) };
    let report = serve_and_ask(asked).await.compression.unwrap();
    let text = &report.passages[0].compressed_text;
    assert!(["looms", "driven", "River Senn"].iter().all(|word| text.contains(word)), "{text}");
    assert!(["shillings", "years"].iter().all(|word| !text.contains(word)), "{text}");
    assert!(report.tokens_after < report.tokens_before / 2);
}

#[tokio::test]
async fn names_and_numbers_are_whole_at_every_ratio() {
    for ratio in [0.2, 0.4, 0.6, 0.8, 1.0] {
        let report =
            serve_and_ask(request(&[TEXT, TEXT], v1::Compression { ratio: Some(ratio), ..v1::Compression::default() }));
        let report = report.await.compression.unwrap();
        println!("{ratio}: {:?}", report.passages[0].compressed_text);
        for passage in &report.passages {
            let text = &passage.compressed_text;
            assert_eq!(text.contains("River"), text.contains("River Senn"));
            let mut words = TEXT.split_whitespace();
            let trimmed = |word: &str| word.trim_matches(['.', ',']).to_owned();
            let of_the_text = text
                .split_whitespace()
                .filter(|word| !trimmed(word).is_empty())
                .all(|word| words.any(|other| trimmed(other) == trimmed(word)));
            assert!(of_the_text, "{text}");
        }
        let whole = ratio < 1.0 || report.passages.iter().all(|passage| passage.compressed_text == TEXT);
        assert!(whole && (report.tokens_after as f64) < ratio * report.tokens_before as f64 + 20.0);
    }
}

/// The states that Bayes saliency caches cover the pass without the query.
#[tokio::test]
async fn cached_states_leave_one_token_per_passage() {
    let settings = [("passage_cache.memory_bytes".to_owned(), "536870912".to_owned())];
    let engine = rerankd::app::engine(&Config::load(None, &settings).unwrap()).await.unwrap();
    let texts = [TEXT, "Rye flour absorbs more water than wheat. A long rest keeps the crust from tearing."];
    let request = |method: &str, compression| RerankRequest {
        query: QUERY.into(),
        passages: texts.iter().enumerate().map(|(index, text)| Passage::untitled(index, (*text).into())).collect(),
        method: methods::find(method),
        compression,
        ..RerankRequest::default()
    };
    let ask = |request| async { engine.reranker.rerank(&common::call(), request, None).await.unwrap() };
    let shorten = Some(Compression { ratio: Some(0.5), ..Compression::by(CompressionMethod::SelectiveContext) });
    ask(request("bayes-saliency", None)).await;
    let after = ask(request("retriever", shorten)).await.compression.unwrap();
    assert_eq!(after.tokens_evaluated, texts.len());
    let again = ask(request("retriever", shorten)).await.compression.unwrap();
    assert_eq!(again.passages, after.passages);
}

fn stdout(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_command_compresses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let lines =
        format!("{}\n{}\n", json!({ "id": "a", "text": TEXT }), json!("Rye flour absorbs more water than wheat."));
    let passages = folder.path().join("passages.jsonl");
    std::fs::write(&passages, lines).unwrap();
    let passages = passages.to_str().unwrap();
    let output = run(&["compress", "--format", "json", "--query", QUERY, "--ratio", "0.4", passages]);
    assert!(output.status.success(), "{}", error(&output));
    let short = stdout(&output);
    let answer: Value = serde_json::from_str(&short).unwrap();
    let report = &answer["compression"];
    assert_eq!(report["method"], "COMPRESSION_METHOD_LONG_LLM_LINGUA");
    assert!(report["tokens_after"].as_u64().unwrap() < report["tokens_before"].as_u64().unwrap());
    let table = run(&["compress", "--query", QUERY, "--method", "selective-context", "--format", "table", passages]);
    assert!(table.status.success() && stdout(&table).contains("before"), "{}", error(&table));
    let within = [
        "rerank",
        "--format",
        "json",
        "--query",
        QUERY,
        "--compress",
        "long-llm-lingua",
        "--target-tokens",
        "20",
        passages,
    ];
    let ranked: Value = serde_json::from_str(&stdout(&run(&within))).unwrap();
    assert!(ranked["compression"]["passages"].as_array().is_some_and(|passages| passages.len() == 2));

    let file = folder.path().join("short.json");
    let made = json!({ "compression": { "passages": [{ "original_index": 0, "compressed_text": "looms driven River Senn" }] } });
    std::fs::write(&file, made.to_string()).unwrap();
    let recover = |response: &str| {
        let file = file.to_str().unwrap();
        run(&["compress", "--format", "json", "--compressed", file, "--recover", response, passages])
    };
    assert_eq!(stdout(&recover("They say: looms driven.")), "They say: looms were driven.\n");
    std::fs::write(&file, short).unwrap();
    assert!(recover("The River Senn.").status.success());
    for (content, problem) in [
        ("{", "short.json: "),
        ("{}", "compression.passages: must be a list"),
        (r#"{"compression":{"passages":[{"original_index":7,"compressed_text":""}]}}"#, "passages[0].original_index"),
        (r#"{"compression":{"passages":[{"original_index":0}]}}"#, "passages[0].compressed_text"),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = recover("x");
        assert_eq!((output.status.code(), error(&output).contains(problem)), (Some(2), true), "{}", error(&output));
    }
}

#[test]
fn bad_options_of_the_command_are_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "\"a\"\n").unwrap();
    for (arguments, problem) in [
        (&["compress", "--format", "json", "--query", "q", "--ratio", "0"][..], "compression.ratio"),
        (&["compress", "--format", "json", "--query", "q", "--ratio", "NaN"], "compression.ratio"),
        (
            &["compress", "--format", "json", "--query", "q", "--ratio", "0.5", "--target-tokens", "3"],
            "--target-tokens",
        ),
        (&["compress", "--format", "json", "--query", "q", "--target-tokens", "0"], "--target-tokens"),
        (&["compress", "--format", "json", "--query", "q", "--method", "none"], "--method"),
        (&["compress", "--format", "json", "--ratio", "0.5"], "--query"),
        (&["compress", "--format", "json", "--query", "q", "--recover", "x"], "--compressed"),
        (&["rerank", "--format", "json", "--query", "q", "--ratio", "0.5"], "--compress"),
    ] {
        let output = run(&[arguments, &[file.path().to_str().unwrap()]].concat());
        assert_eq!((output.status.code(), error(&output).contains(problem)), (Some(2), true), "{}", error(&output));
    }
}
