//! METHOD_CROSS_ENCODER and METHOD_EMBEDDING over a real channel, on the tiny random models of golden/rerankers in ONNX
//! Runtime, against the scores that golden/rerankers/onnx_models.py computed. Scores agree within 1e-5, because runtimes may
//! round differently.

use std::time::Duration;

use crate::common;
use common::fields;
use common::passage_models::{
    assert_close, changed, folder, info, request, rerank, serve, serve_in_steps, serve_model, utilities,
};
use protocol::v1;
use protocol::v1::watch_rerank_response::Event;
use serde_json::Value;
use tonic::Code;

const TOLERANCE: f64 = 1e-5;

fn golden(kind: &str) -> Vec<Value> {
    let cases: Value = serde_json::from_str(include_str!("../golden/rerankers/onnx.json")).unwrap();
    cases[kind].as_array().unwrap().clone()
}

fn logits(case: &Value, model: &str) -> Vec<f64> {
    case[model].as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap()).collect()
}

#[tokio::test]
async fn a_cross_encoder_of_one_label_gives_its_logit() {
    let cases = golden("pairs");
    let passages: Vec<&str> = cases.iter().map(|case| case["passage"].as_str().unwrap()).collect();
    let expected: Vec<f64> = cases.iter().map(|case| logits(case, "one")[0]).collect();
    for batch in [0, 1, 2] {
        let model = folder("one");
        let running = serve_in_steps(&[("reranker.model", model.to_str().unwrap())], batch).await;
        let response = rerank(&running, request(v1::Method::CrossEncoder, &passages)).await.unwrap();
        assert_close(TOLERANCE, &utilities(&response), &expected);
        for result in &response.results {
            // The score is one sigmoid of the utility.
            assert!((result.score - 1.0 / (1.0 + (-result.utility).exp())).abs() < 1e-12);
            let case = &cases[result.original_index as usize];
            assert_eq!(u64::from(result.tokens_cut), case["cut"].as_u64().unwrap());
        }
        assert!(response.results.is_sorted_by(|one, next| one.utility >= next.utility));
        let usage = response.usage.unwrap();
        let tokens: u64 = cases.iter().map(|case| case["tokens"].as_u64().unwrap()).sum();
        assert_eq!((usage.tokens, usage.naive_tokens, usage.pairs), (tokens, tokens, 5));
        assert!(response.warnings.iter().any(|warning| warning.starts_with("1 passages were cut")));
        assert_eq!(response.none_helps, None);
        running.stop().await;
    }
}

#[tokio::test]
async fn two_labels_give_the_difference_and_the_server_says_which() {
    let running = serve_model("reranker", &folder("two")).await;
    let before = info(&running).await.reranker.unwrap();
    assert_eq!((&*before.name, before.sha256.len(), before.loaded, &*before.output), ("two", 64, false, ""));
    let cases = golden("pairs");
    let passages: Vec<&str> = cases.iter().map(|case| case["passage"].as_str().unwrap()).collect();
    let response = rerank(&running, request(v1::Method::CrossEncoder, &passages)).await.unwrap();
    let difference = |case: &Value| logits(case, "two")[0] - logits(case, "two")[1];
    assert_close(TOLERANCE, &utilities(&response), &cases.iter().map(difference).collect::<Vec<_>>());
    let after = info(&running).await;
    assert_eq!(after.embedding, None);
    let after = after.reranker.unwrap();
    assert_eq!((after.loaded, &*after.output), (true, "logit of relevant minus irrelevant"));
    assert_eq!((after.max_tokens, after.scored, &*after.description), (24, 5, "bert, ONNX"));
    running.stop().await;
}

/// The default method fuses cosines with the first-stage scores and reports it. Without an embedding model it fuses
/// none.
#[tokio::test]
async fn the_default_mixes_in_an_embedding_model() {
    let cases = golden("texts");
    let passages: Vec<&str> = cases.iter().map(|case| case["passage"].as_str().unwrap()).collect();
    let asked = |mode: v1::FusionMode| v1::RerankRequest {
        fusion: Some(v1::Fusion { mode: mode.into(), ..v1::Fusion::default() }),
        // Every place counts as decided, so nothing is fitted.
        moi: Some(v1::MoiOptions { settle_probability: Some(0.5), ..v1::MoiOptions::default() }),
        ..request(v1::Method::Cascade, &passages)
    };
    let order =
        |response: &v1::RerankResponse| response.results.iter().map(|one| one.original_index).collect::<Vec<_>>();
    let without = serve(&[]).await;
    let alone = rerank(&without, asked(v1::FusionMode::Unspecified)).await.unwrap();
    assert_eq!(alone.fusion.as_ref().unwrap().embedding_weight, None);
    without.stop().await;

    let running = serve_model("embedding", &folder("embedding")).await;
    let mixed = rerank(&running, asked(v1::FusionMode::Unspecified)).await.unwrap();
    let fusion = mixed.fusion.unwrap();
    assert_eq!((fusion.source(), fusion.scaling()), (v1::FusionSource::Bm25, v1::FusionScaling::Standard));
    assert!(fusion.embedding_weight.unwrap() > 0.0 && fusion.weight < alone.fusion.unwrap().weight);
    let usage = mixed.usage.unwrap();
    let tokens: u64 = cases.iter().map(|case| case["tokens"].as_u64().unwrap_or(0)).sum();
    assert!(usage.embedding_tokens >= tokens.max(1), "{} {tokens}", usage.embedding_tokens);
    assert_eq!(usage.tokens, alone.usage.unwrap().tokens, "cosines do not change the generator's tokens");
    assert_eq!(utilities(&mixed), utilities(&alone), "utilities are the generator's");
    // The fusion by hand: standardised cosines and BM25, then the generator's utilities, standardised.
    let cosines: Vec<f64> = cases.iter().map(|case| case["mean"].as_f64().unwrap()).collect();
    let texts: Vec<String> = passages.iter().map(|text| format!(" {text}")).collect();
    let background = engine::fusion::bm25::scores(&request(v1::Method::Cascade, &[]).query, &texts, None);
    let share = fusion.embedding_weight.unwrap();
    let other: Vec<f64> =
        standard(&cosines).iter().zip(standard(&background)).map(|(c, b)| share * c + (1.0 - share) * b).collect();
    let utility = standard(&utilities(&mixed));
    let value: Vec<f64> =
        utility.iter().zip(standard(&other)).map(|(u, o)| fusion.weight * u + (1.0 - fusion.weight) * o).collect();
    let expected = numeric::descending(&value);
    assert_eq!(order(&mixed).iter().map(|index| *index as usize).collect::<Vec<_>>(), expected);

    for mode in [v1::FusionMode::On, v1::FusionMode::Off] {
        let response = rerank(&running, asked(mode)).await.unwrap();
        assert_eq!(response.fusion.and_then(|fusion| fusion.embedding_weight), None, "{mode:?}");
        assert_eq!(response.usage.unwrap().embedding_tokens, 0);
    }
    let budget = v1::RerankRequest {
        token_budget: usage.tokens,
        moi: Some(v1::MoiOptions { settle_probability: Some(0.5), ..v1::MoiOptions::default() }),
        ..asked(v1::FusionMode::Unspecified)
    };
    assert_eq!(
        order(&rerank(&running, budget).await.unwrap()),
        order(&mixed),
        "cosines do not count against the budget"
    );
    running.stop().await;

    // If the model cannot be loaded, the list is ranked without it.
    let copy = changed("embedding", "modules.json", |text| text.replace("Pooling", "Dense"));
    let broken = serve_model("embedding", copy.path()).await;
    let response = rerank(&broken, asked(v1::FusionMode::Unspecified)).await.unwrap();
    assert_eq!(order(&response), order(&alone));
    assert!(
        response.warnings.iter().any(|one| one.starts_with("ranked without the embedding model: ")),
        "{:?}",
        response.warnings
    );
    // The server does not try it again for every request.
    let again = rerank(&broken, asked(v1::FusionMode::Unspecified)).await.unwrap();
    assert!(again.warnings.iter().any(|one| one.ends_with("is left alone for a while")), "{:?}", again.warnings);
    broken.stop().await;

    // A list of one passage needs no cosines.
    let running = serve_model("embedding", &folder("embedding")).await;
    let one = rerank(&running, request(v1::Method::Cascade, &passages[..1])).await.unwrap();
    assert_eq!(one.usage.unwrap().embedding_tokens, 0);
    // A budget that suffices for both models cuts neither.
    let hurried = v1::RerankRequest { latency_budget_ms: Some(5_000.0), ..asked(v1::FusionMode::Unspecified) };
    let read = |one: &v1::RankedPassage| one.stage() != v1::Stage::Retriever;
    assert!(rerank(&running, hurried).await.unwrap().results.iter().all(read));
    running.stop().await;
}

fn standard(values: &[f64]) -> Vec<f64> {
    let (centre, spread) = (numeric::mean(values), numeric::standard_deviation(values));
    values.iter().map(|value| if spread > 0.0 { (value - centre) / spread } else { 0.0 }).collect()
}

#[tokio::test]
async fn an_embedding_model_gives_the_cosine() {
    let cases = golden("texts");
    let passages: Vec<&str> = cases.iter().map(|case| case["passage"].as_str().unwrap()).collect();
    let expected = |key: &str| cases.iter().map(|case| case[key].as_f64().unwrap()).collect::<Vec<_>>();
    let model = folder("embedding");
    let model = ("embedding.model", model.to_str().unwrap());
    let plain = serve(&[model]).await;
    let response = rerank(&plain, request(v1::Method::Embedding, &passages)).await.unwrap();
    assert_close(TOLERANCE, &utilities(&response), &expected("mean"));
    assert_eq!(info(&plain).await.embedding.unwrap().output, "cosine, mean pooling");
    // Passage vectors are cached: cosines are equal to the last bit and cost only the tokens of the query.
    let again = rerank(&plain, request(v1::Method::Embedding, &passages)).await.unwrap();
    assert_eq!(utilities(&again), utilities(&response));
    let (first, second) = (response.usage.unwrap(), again.usage.unwrap());
    assert_eq!((first.cached_tokens, second.cached_tokens), (0, first.tokens - second.tokens));
    assert!(second.tokens > 0 && second.tokens < first.tokens / 2, "{first:?} {second:?}");
    assert_eq!(first.naive_tokens, second.naive_tokens);
    plain.stop().await;
    let forgetful = serve(&[model, ("embedding.cache_entries", "off")]).await;
    for _ in 0..2 {
        let one = rerank(&forgetful, request(v1::Method::Embedding, &passages)).await.unwrap();
        assert_eq!((utilities(&one), one.usage.unwrap().tokens), (utilities(&response), first.tokens));
    }
    forgetful.stop().await;
    let prefixed = serve(&[model, ("embedding.query_prefix", "who "), ("embedding.passage_prefix", "far ")]).await;
    let response = rerank(&prefixed, request(v1::Method::Embedding, &passages)).await.unwrap();
    assert_close(TOLERANCE, &utilities(&response), &expected("prefixed"));
    prefixed.stop().await;
    // The configuration key overrides the file.
    let keyed = serve(&[model, ("embedding.pooling", "cls")]).await;
    let response = rerank(&keyed, request(v1::Method::Embedding, &passages)).await.unwrap();
    assert_close(TOLERANCE, &utilities(&response), &expected("first"));
    keyed.stop().await;
    // A copy of the network whose folder asks for the first token, with its files above the folder `onnx`.
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(copy.path().join("1_Pooling")).unwrap();
    std::fs::create_dir_all(copy.path().join("onnx")).unwrap();
    for file in ["config.json", "tokenizer.json"] {
        std::fs::copy(folder("embedding").join(file), copy.path().join(file)).unwrap();
    }
    std::fs::copy(folder("embedding").join("model.onnx"), copy.path().join("onnx/model.onnx")).unwrap();
    std::fs::write(copy.path().join("1_Pooling/config.json"), r#"{"pooling_mode_cls_token": true}"#).unwrap();
    let first = serve_model("embedding", copy.path()).await;
    let response = rerank(&first, request(v1::Method::Embedding, &passages)).await.unwrap();
    assert_close(TOLERANCE, &utilities(&response), &expected("first"));
    first.stop().await;
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_named() {
    let running = serve(&[]).await;
    for (method, key) in [(v1::Method::CrossEncoder, "reranker.model"), (v1::Method::Embedding, "embedding.model")] {
        let refused = rerank(&running, request(method, &["moon"])).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains(key), "{}", refused.message());
    }
    running.stop().await;
}

#[tokio::test]
async fn a_network_of_three_labels_is_refused_and_nothing_else() {
    let running = serve_model("reranker", &folder("three")).await;
    let refused = rerank(&running, request(v1::Method::CrossEncoder, &["moon"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("three/model.onnx: 3 outputs"), "{}", refused.message());
    // The answer may arrive before the status of the worker.
    let told = async {
        while !info(&running).await.reranker.unwrap().problem.contains("3 outputs") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), told).await.unwrap();
    assert!(rerank(&running, request(v1::Method::QueryGeneration, &["moon"])).await.is_ok());
    running.stop().await;
}

#[tokio::test]
async fn a_model_that_appears_later_is_loaded_then() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("model");
    let running = serve_model("reranker", &path).await;
    let refused = rerank(&running, request(v1::Method::CrossEncoder, &["moon"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    std::fs::create_dir(&path).unwrap();
    for file in ["config.json", "tokenizer.json", "model.onnx"] {
        std::fs::copy(folder("one").join(file), path.join(file)).unwrap();
    }
    rerank(&running, request(v1::Method::CrossEncoder, &["moon"])).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_score_that_is_not_a_number_fails_its_own_request() {
    let running = serve_model("reranker", &folder("one")).await;
    let broken = rerank(&running, request(v1::Method::CrossEncoder, &["moon", "broken"])).await.unwrap_err();
    assert_eq!(broken.code(), Code::Internal);
    assert!(rerank(&running, request(v1::Method::CrossEncoder, &["moon"])).await.is_ok());
    running.stop().await;
}

#[tokio::test]
async fn texts_that_do_not_fit_are_refused_with_their_field() {
    let running = serve_model("reranker", &folder("one")).await;
    // 24 positions minus three special tokens: a query may have 15 of 21.
    let asked = |words: usize| v1::RerankRequest {
        query: "tide ".repeat(words),
        ..request(v1::Method::CrossEncoder, &["moon", "the moon the moon the moon the moon"])
    };
    assert!(rerank(&running, asked(15)).await.is_ok());
    // The end of a long query is cut, because agents send whole messages.
    let (long, fitting) = (rerank(&running, asked(16)).await.unwrap(), rerank(&running, asked(15)).await.unwrap());
    assert_eq!(long.results, fitting.results);
    let told = |answer: &v1::RerankResponse| {
        answer.warnings.iter().any(|warning| warning.contains("the query was cut by 1 token"))
    };
    assert!(told(&long) && !told(&fitting), "{:?}", long.warnings);
    let whole = v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 0 };
    let refused = rerank(&running, v1::RerankRequest { truncation: Some(whole), ..asked(16) }).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["query".to_owned()]));
    let refused = rerank(&running, v1::RerankRequest { truncation: Some(whole), ..asked(15) }).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["passages[1].text".to_owned()]));
    assert!(refused.message().contains("needs 8 tokens, 6 available"), "{}", refused.message());
    let short = v1::Truncation { mode: v1::TruncationMode::Off.into(), max_passage_tokens: 5 };
    let cut = rerank(&running, v1::RerankRequest { truncation: Some(short), ..asked(15) }).await.unwrap();
    assert_eq!(cut.results.iter().map(|result| result.tokens_cut).max(), Some(3));
    let refused = rerank(&running, v1::RerankRequest { token_budget: 18, ..asked(2) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    running.stop().await;
}

#[tokio::test]
async fn fusion_threshold_and_events_are_those_of_other_methods() {
    let running = serve_model("reranker", &folder("one")).await;
    let passages = ["the moon makes the tide", "bread with salt", "moon"];
    let plain = rerank(&running, request(v1::Method::CrossEncoder, &passages)).await.unwrap();
    let mut mixed = request(v1::Method::CrossEncoder, &passages);
    for (passage, score) in mixed.passages.iter_mut().zip([0.0, 0.0, 1e3]) {
        passage.retriever_score = Some(score);
    }
    let fusion = v1::Fusion { mode: v1::FusionMode::On.into(), ..v1::Fusion::default() };
    mixed.fusion = Some(fusion);
    let fused = rerank(&running, mixed).await.unwrap();
    assert_eq!(utilities(&fused), utilities(&plain));
    assert_eq!(fused.fusion.unwrap().scaling(), v1::FusionScaling::Standard);
    let best = plain.results[0].clone();
    let above =
        v1::RerankRequest { score_threshold: Some(best.score - 1e-9), ..request(v1::Method::CrossEncoder, &passages) };
    let above = rerank(&running, above).await.unwrap();
    assert_eq!(above.results, vec![v1::RankedPassage { outranks_next: None, ..best }]);
    let watched = v1::WatchRerankRequest { request: Some(request(v1::Method::CrossEncoder, &passages)) };
    let mut stream = running.client().await.watch_rerank(watched).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        seen.push(match message.event.unwrap() {
            Event::Planned(planned) => format!("planned {} {}", planned.tokens, planned.path_cells),
            Event::Progress(progress) => format!("{} of {}", progress.tokens_done, progress.tokens_total),
            Event::Interim(_) => "interim".to_owned(),
            Event::Final(response) => format!("final {}", response.results.len()),
        });
    }
    assert_eq!(seen, ["planned 30 12", "30 of 30", "final 3"]);
    running.stop().await;
}

/// A text that the tokenizer cannot read must not count as empty.
#[tokio::test]
async fn a_tokenizer_that_fails_names_the_passage() {
    for (kind, model) in [("reranker", "one"), ("embedding", "embedding")] {
        let method = if kind == "reranker" { v1::Method::CrossEncoder } else { v1::Method::Embedding };
        let copy = changed(model, "tokenizer.json", |text| {
            text.replace(r#""unk_token": "[UNK]""#, r#""unk_token": "[NONE]""#)
        });
        let running = serve_model(kind, copy.path()).await;
        let refused = rerank(&running, request(method, &["the moon", "the quux"])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
        assert!(refused.message().starts_with("passages[1].text: cannot be tokenised"), "{}", refused.message());
        let query = v1::RerankRequest { query: "quux".into(), ..request(method, &["the moon"]) };
        let refused = rerank(&running, query).await.unwrap_err();
        assert!(refused.message().starts_with("query: cannot be tokenised"), "{}", refused.message());
        assert!(rerank(&running, request(method, &["the moon"])).await.is_ok());
        running.stop().await;
    }
}

#[tokio::test]
async fn a_latency_budget_is_refused_by_methods_without_the_generator() {
    let running = serve_model("reranker", &folder("one")).await;
    let budget = v1::RerankRequest { latency_budget_ms: Some(100.0), ..request(v1::Method::CrossEncoder, &["moon"]) };
    let refused = rerank(&running, budget).await.unwrap_err();
    assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec!["latency_budget_ms".to_owned()]));
    running.stop().await;
}

/// Clients of text-embeddings-inference may say that a text is cut on its left.
#[tokio::test]
async fn the_side_that_the_caller_names_is_cut() {
    use engine::types::{CutSide, Passage, RerankRequest};
    for (kind, model, method) in [("reranker", "one", "cross-encoder"), ("embedding", "embedding", "embedding")] {
        let running = serve_model(kind, &folder(model)).await;
        let utility = async |text: &str, cut_side| {
            let request = RerankRequest {
                query: "what makes the tide".into(),
                passages: vec![Passage::untitled(0, text.to_owned())],
                method: engine::methods::find(method),
                truncate: Some(true),
                passage_tokens: Some(2),
                cut_side,
                ..RerankRequest::default()
            };
            let ranked = running.engine.reranker.rerank(&common::call(), request, None).await.unwrap();
            (ranked.passages[0].utility, ranked.passages[0].tokens_cut)
        };
        let (left, cut) = utility("bread salt moon tide", CutSide::Beginning).await;
        assert_eq!(cut, 2);
        assert_eq!(left, utility("moon tide", CutSide::End).await.0, "{method}");
        assert_eq!(
            utility("bread salt moon tide", CutSide::End).await,
            (utility("bread salt", CutSide::End).await.0, 2)
        );
        running.stop().await;
    }
}

#[tokio::test]
async fn a_dense_module_is_refused_with_its_file() {
    let modules = r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}]"#;
    let copy = changed("embedding", "modules.json", |_| modules.to_owned());
    let running = serve_model("embedding", copy.path()).await;
    let refused = rerank(&running, request(v1::Method::Embedding, &["moon"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("modules.json: the module \"Dense\""), "{}", refused.message());
    running.stop().await;
}

/// Thai words; the vocabulary of the tiny models lacks their script.
const THAI: &str = "ดวงจันทร์ทำให้เกิดน้ำขึ้นน้ำลง";

fn order(response: &v1::RerankResponse) -> Vec<u32> {
    response.results.iter().map(|result| result.original_index).collect()
}

fn asked_about(query: &str, method: v1::Method, passages: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { query: query.into(), ..request(method, passages) }
}

/// All unknown words are one token, so cosines of such texts tell only the number of words.
#[tokio::test]
async fn texts_that_the_model_cannot_read_do_not_decide_the_order_of_a_method_of_one_model() {
    let (embedding, reranker) = (folder("embedding"), folder("one"));
    let models = [("embedding.model", embedding.to_str().unwrap()), ("reranker.model", reranker.to_str().unwrap())];
    let running = serve(&models).await;
    let english = ["bread with salt", "the moon makes the tide", "the yeast rises far"];
    for (method, name) in [(v1::Method::Embedding, "embedding"), (v1::Method::CrossEncoder, "reranker")] {
        // Twice: with computed and with cached vectors.
        for _ in 0..2 {
            let response = rerank(&running, asked_about("🔧💡?", method, &english)).await.unwrap();
            assert_eq!((order(&response), utilities(&response)), (vec![0, 1, 2], vec![0.0; 3]));
            let told = response.warnings.iter().find(|one| one.contains("cannot read the query")).unwrap();
            assert!(told.starts_with(&format!("the {name} model")) && told.contains("given order"), "{told}");
            let all = rerank(&running, asked_about("what makes the tide", method, &[THAI, "ខ្មែរ ខ្មែរ"])).await.unwrap();
            assert_eq!((order(&all), utilities(&all)), (vec![0, 1], vec![0.0; 2]));
            assert!(all.warnings.iter().any(|one| one.contains("cannot read 2 of 2 passages")), "{:?}", all.warnings);
            let some = rerank(&running, request(method, &[THAI, english[0], english[1], english[2]])).await.unwrap();
            let plain = rerank(&running, request(method, &english)).await.unwrap();
            assert_eq!(utilities(&some)[1..], utilities(&plain));
            assert_eq!(order(&some).last(), Some(&0));
            assert!(some.results.windows(2).all(|pair| pair[0].score >= pair[1].score));
            assert!(some.warnings.iter().any(|one| one.contains("cannot read 1 of 4 passages")), "{:?}", some.warnings);
            assert!(plain.warnings.iter().all(|one| !one.contains("cannot read")), "{:?}", plain.warnings);
        }
    }
    let threshold = v1::RerankRequest {
        score_threshold: Some(0.9),
        ..asked_about("ห้องสมุด", v1::Method::Embedding, &english)
    };
    let response = rerank(&running, threshold).await.unwrap();
    assert_eq!(response.results.len(), 3, "without scores no passage is left out");
    running.stop().await;
}

#[tokio::test]
async fn the_default_leaves_out_cosines_of_texts_that_the_model_cannot_read() {
    let (with, without) = (serve_model("embedding", &folder("embedding")).await, serve(&[]).await);
    let english = ["bread with salt", "the moon makes the tide", "the yeast rises far", "salt"];
    let thai: Vec<String> = (1..5).map(|words| vec![THAI; words].join(" ")).collect();
    let thai: Vec<&str> = thai.iter().map(String::as_str).collect();
    let mixed = [english[0], english[1], thai[0], thai[1], thai[2]];
    let cases: [(&str, &[&str], &str); 4] = [
        (THAI, &thai, "cannot read the query and 4 of 4 passages"),
        (THAI, &english, "cannot read the query"),
        ("what makes the tide", &mixed, "cannot read 3 of 5 passages"),
        ("what makes the tide", &[english[0], THAI], "cannot read 1 of 2 passages"),
    ];
    for (query, passages, told) in cases {
        // Twice: with computed and with cached vectors.
        for _ in 0..2 {
            let found = rerank(&with, asked_about(query, v1::Method::Cascade, passages)).await.unwrap();
            let expected = rerank(&without, asked_about(query, v1::Method::Cascade, passages)).await.unwrap();
            assert_eq!((&found.results, &found.fusion), (&expected.results, &expected.fusion), "{query} {passages:?}");
            let told = format!("ranked without the embedding model: it {told}");
            assert!(found.warnings.iter().any(|one| one.starts_with(&told)), "{:?}", found.warnings);
        }
    }
    // A few symbols do not count as another script.
    let marked: Vec<String> = english.iter().map(|text| format!("{text} 🌊")).collect();
    let marked: Vec<&str> = marked.iter().map(String::as_str).collect();
    for (passages, count) in [(&marked[..], 0), (&[english[0], english[1], english[2], THAI][..], 1)] {
        let found = rerank(&with, request(v1::Method::Cascade, passages)).await.unwrap();
        assert!(found.fusion.unwrap().embedding_weight.is_some());
        let told = |one: &String| one.starts_with("the embedding model cannot read 1 of 4 passages");
        assert_eq!(found.warnings.iter().filter(|one| told(one)).count(), count, "{:?}", found.warnings);
    }
    with.stop().await;
    without.stop().await;
}
