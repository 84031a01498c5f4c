//! METHOD_YES_NO with the prompts of causal rerankers, over a real channel, on the tiny random models of golden/rerankers, against
//! the numpy forward of golden/rerankers/causal_models.py. Utilities agree within 2e-2: llama.cpp keeps keys and values in 16 bits.

use std::path::Path;
use std::sync::Arc;

use crate::common;
use common::passage_models::{assert_close, folder, info, rerank, utilities};
use common::scripted::Observed;
use common::{Running, fields, wire};
use protocol::v1;
use rerankd::app;
use rerankd::config::Config;
use serde_json::Value;
use tonic::Code;

const TOLERANCE: f64 = 2e-2;

fn config(settings: &[(&str, &str)]) -> Config {
    let own = [
        ("entailment.model", "off"),
        ("embedding.model", "off"),
        ("generator.threads", "1"),
        ("generator.reencode_megabytes", "off"),
    ];
    let flags = own.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Config::load(None, &flags.collect::<Vec<_>>()).unwrap()
}

async fn serve(model: &Path, settings: &[(&str, &str)]) -> Running {
    let config = config(&[&[("generator.model", model.to_str().unwrap())], settings].concat());
    common::serve(app::engine(&config).await.unwrap(), Arc::new(Observed::default()), 8).await
}

fn golden() -> Vec<Value> {
    serde_json::from_str(include_str!("../golden/rerankers/causal.json")).unwrap()
}

/// Requests of the golden cases, one per query and instruction, with the utilities of `prompt`.
fn requests(prompt: &str) -> Vec<(v1::RerankRequest, Vec<f64>)> {
    let cases = golden();
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
    let same = |left: &Value, right: &Value| {
        ["query", "instruction"].into_iter().all(|key| text(left, key) == text(right, key))
    };
    let of_list = |list: &[Value]| {
        let passages: Vec<String> = list.iter().map(|case| text(case, "passage")).collect();
        let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
        let expected = list.iter().map(|case| case[prompt]["utility"].as_f64().unwrap()).collect();
        let instruction = text(&list[0], "instruction");
        let method = v1::Method::YesNo.into();
        (v1::RerankRequest { method, instruction, ..wire(&text(&list[0], "query"), &passages) }, expected)
    };
    cases.chunk_by(same).map(of_list).collect()
}

#[tokio::test]
async fn each_prompt_gives_what_its_models_own_program_would() {
    for prompt in ["qwen3", "bge-gemma", "mxbai-base", "mxbai-large"] {
        let running = serve(&folder("causal.gguf"), &[("generator.yes_no_prompt", prompt)]).await;
        for (request, expected) in requests(prompt) {
            let response = rerank(&running, request.clone()).await.unwrap();
            assert!(response.warnings.is_empty(), "{:?}", response.warnings);
            assert_close(TOLERANCE, &utilities(&response), &expected);
            for result in &response.results {
                let score = 1.0 / (1.0 + (-result.utility).exp());
                assert!((result.score - score).abs() < 1e-9, "{prompt}: utility 0 is a score of 0.5");
            }
            assert_eq!(response.none_helps, None, "{prompt}: no score means that a passage does not help");
            // The cache holds the prompt prefix, but no passage after a query.
            let again = rerank(&running, request).await.unwrap();
            assert_close(TOLERANCE, &utilities(&again), &expected);
        }
        assert_eq!(info(&running).await.generator.unwrap().yes_no_prompt, prompt);
        // The default method scores the likelihood of the query.
        let (request, _) = requests(prompt).remove(0);
        let other = rerank(&running, v1::RerankRequest { method: 0, ..request }).await.unwrap();
        assert!(other.warnings.iter().any(|warning| warning.contains("causal reranker")), "{:?}", other.warnings);
        running.stop().await;
    }
}

/// Ten passages share one prefix and one query.
#[tokio::test]
async fn prefix_and_query_are_read_once() {
    let running =
        serve(&folder("causal.gguf"), &[("generator.yes_no_prompt", "qwen3"), ("passage_cache.memory_bytes", "off")])
            .await;
    let case = &golden()[0];
    let text = |key: &str| case[key].as_str().unwrap();
    let of = |count: usize| {
        let passages: Vec<String> = (0..count).map(|number| format!("{} {number}", text("passage"))).collect();
        let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
        v1::RerankRequest { method: v1::Method::YesNo.into(), ..wire(text("query"), &passages) }
    };
    let tokens = |response: v1::RerankResponse| response.usage.unwrap().tokens;
    let one = tokens(rerank(&running, of(1)).await.unwrap());
    assert_eq!(one, case["qwen3"]["tokens"].as_u64().unwrap() + " 0".len() as u64);
    // Every byte is a token, except "th", which is one token, and two control tokens.
    let passage = " The moon makes the tide. 0".len() - 1;
    let closing = 2 + "\nassistant\n<think>\n\n</think>\n\n".len() - 2;
    assert_eq!(tokens(rerank(&running, of(10)).await.unwrap()), one + 9 * (passage + closing) as u64);
    running.stop().await;
}

/// Rank pooling uses these weights with a head: the logit of P(yes) is the log-odds.
#[tokio::test]
async fn a_head_and_no_head_give_the_same() {
    let headed = folder("causal-headed.gguf");
    let settings = [
        ("generator.yes_no_prompt", "qwen3"),
        ("reranker.model", headed.to_str().unwrap()),
        ("reranker.max_tokens", "1024"),
    ];
    let running = serve(&folder("causal.gguf"), &settings).await;
    // The file with a head also works as a generator.
    let generator = serve(&headed, &settings[..1]).await;
    for (request, expected) in requests("qwen3").into_iter().filter(|(request, _)| request.instruction.is_empty()) {
        let asked = utilities(&rerank(&running, request.clone()).await.unwrap());
        assert_close(TOLERANCE, &utilities(&rerank(&generator, request.clone()).await.unwrap()), &expected);
        let pooled = v1::RerankRequest { method: v1::Method::CrossEncoder.into(), ..request };
        assert_close(TOLERANCE, &asked, &utilities(&rerank(&running, pooled).await.unwrap()));
    }
    generator.stop().await;
    running.stop().await;
}

/// A scorer has a separate prompt, which follows from the name of its file.
#[tokio::test]
async fn the_names_of_a_file_tell_its_prompt() {
    let folder_of_copy = tempfile::tempdir().unwrap();
    let named = folder_of_copy.path().join("Qwen3-Reranker-tiny.gguf");
    std::fs::copy(folder("causal.gguf"), &named).unwrap();
    let running = serve(&folder("causal.gguf"), &[("scorer.model", named.to_str().unwrap())]).await;
    let told = info(&running).await;
    assert_eq!(told.generator.unwrap().yes_no_prompt, "generic");
    assert_eq!(told.scorer.unwrap().model.unwrap().yes_no_prompt, "qwen3");
    // With an instruction, which the generic prompt would refuse.
    let (instructed, expected) = requests("qwen3").remove(1);
    assert_close(TOLERANCE, &utilities(&rerank(&running, instructed).await.unwrap()), &expected);
    let (request, expected) = requests("qwen3").remove(0);
    assert_close(TOLERANCE, &utilities(&rerank(&running, request.clone()).await.unwrap()), &expected);
    // A title is the beginning of the passage.
    let mut titled = request.clone();
    for passage in &mut titled.passages {
        if let Some((title, text)) = passage.text.clone().split_once(' ') {
            (passage.title, passage.text) = (title.to_owned(), text.to_owned());
        }
    }
    assert_close(TOLERANCE, &utilities(&rerank(&running, titled).await.unwrap()), &expected);
    let by_generator = v1::RerankRequest { scorer: "generator".into(), ..request };
    let generic = utilities(&rerank(&running, by_generator).await.unwrap());
    assert!(
        generic.iter().zip(&expected).any(|(generic, own)| (generic - own).abs() > 10.0 * TOLERANCE),
        "{generic:?}"
    );
    running.stop().await;
    // The name promises tokens that the vocabulary lacks.
    let other = folder_of_copy.path().join("qwen3_reranker.gguf");
    std::fs::copy(folder("qwen3-headless.gguf"), &other).unwrap();
    let running = serve(&other, &[]).await;
    assert_eq!(info(&running).await.generator.unwrap().yes_no_prompt, "generic");
    running.stop().await;
}

#[tokio::test]
async fn unusable_prompts_are_refused_by_name() {
    let model = folder("qwen3-headless.gguf");
    let settings = [("generator.model", model.to_str().unwrap()), ("generator.yes_no_prompt", "qwen3")];
    let refused = format!("{:#}", app::engine(&config(&settings)).await.unwrap_err());
    let problem =
        "generator.yes_no_prompt: the prompt qwen3 is answered by \"yes\", which is not one token of this model";
    assert!(refused.contains(problem) && refused.contains("qwen3-headless.gguf"), "{refused}");
    // The file would predict words with a matrix that was not trained for them.
    let model = folder("causal-untied.gguf");
    for prompt in ["qwen3", "auto"] {
        let settings = [("generator.model", model.to_str().unwrap()), ("generator.yes_no_prompt", prompt)];
        let refused = format!("{:#}", app::engine(&config(&settings)).await.unwrap_err());
        assert!(
            refused.contains("converted without its output matrix") && refused.contains("reranker.model"),
            "{refused}"
        );
    }
    let running = serve(&folder("causal.gguf"), &[("generator.yes_no_prompt", "qwen3")]).await;
    let (request, _) = requests("qwen3").remove(1);
    let example = v1::Example { passage_title: String::new(), passage: "p".into(), query: "q".into() };
    let examples = v1::RerankRequest { examples: vec![example], ..request.clone() };
    let refused = rerank(&running, examples).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["examples".to_owned()]));
    let long = v1::RerankRequest { instruction: "far ".repeat(900), ..request };
    let refused = rerank(&running, long).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["instruction".to_owned()]));
    running.stop().await;
    // The generic prompt takes no instruction.
    let running = serve(&folder("causal.gguf"), &[]).await;
    let refused = rerank(&running, requests("qwen3").remove(1).0).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["instruction".to_owned()]));
    assert!(refused.message().contains("yes-no does not take it"), "{}", refused.message());
    running.stop().await;
}
