//! rerankd's own fields, headers and warnings, and the choice by a body's `model`, over a real socket.

use std::path::Path;

use crate::{common, http};
use common::Scripted;
use engine::Engine;
use engine::fusion::calibration::Calibration;
use engine::fusion::platt::Platt;
use http::{Answer, Served, alone, serve, serve_engine, serve_with};
use rerankd::app;
use rerankd::config::Config;
use serde_json::{Value, json};

const DOCUMENTS: [&str; 4] = ["zzzz yyyy", "the question is here", "wwww", "question question"];

async fn ok(server: &Served, path: &str, body: &Value) -> Answer {
    let answer = server.post(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer
}

fn ask(method: &str, fields: &Value) -> Value {
    let mut body = json!({ "query": "question", "documents": DOCUMENTS, "rerankd_method": method });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn the_retrievers_scores_reach_the_ranking() {
    let server = serve_with(Scripted::default(), alone()).await;
    let scores = json!({ "rerankd_scores": [1, 4, 2.5, 3] });
    assert_eq!(ok(&server, "/rerank", &ask("retriever", &scores)).await.order(), [1, 3, 2, 0]);
    let tei = json!({ "query": "question", "texts": DOCUMENTS, "rerankd_scores": [1, 4, 2.5, 3], "rerankd_method": "retriever" });
    assert_eq!(ok(&server, "/rerank", &tei).await.order(), [1, 3, 2, 0]);
    let some = ok(&server, "/rerank", &ask("cascade", &json!({ "rerankd_scores": [1, null, 2, 3] }))).await;
    let warnings = some.body["meta"]["warnings"].to_string();
    assert!(warnings.contains("some passages have no rerankd_scores"), "{warnings}");
    server.stop().await;
}

#[tokio::test]
async fn results_are_bounded_by_their_scores() {
    let server = serve_with(Scripted::default(), alone()).await;
    let all = ok(&server, "/rerank", &ask("query-generation", &json!({}))).await;
    let meta = &all.body["meta"];
    assert_eq!((&meta["score_calibrated"], &meta["none_helps"]), (&json!(false), &json!(false)));
    assert_eq!(meta["none_relevant"], Value::Null);
    let middle = all.scores()[1];
    let above = ok(&server, "/rerank", &ask("query-generation", &json!({ "rerankd_score_threshold": middle }))).await;
    assert!(above.order().len() < 4 && above.scores().iter().all(|score| *score >= middle), "{}", above.body);
    let none = ok(&server, "/rerank", &ask("query-generation", &json!({ "rerankd_score_threshold": 1 }))).await;
    assert_eq!(none.body["results"], json!([]));
    let helpful = ok(&server, "/rerank", &ask("query-generation", &json!({ "rerankd_only_helpful": true }))).await;
    assert_eq!(helpful.order(), all.order()[..all.scores().iter().filter(|score| **score > 0.5).count()]);

    let auto = json!({ "rerankd_auto_k": true });
    let refused = server.post("/v2/rerank", &ask("query-generation", &auto)).await;
    assert_eq!(refused.status, 400, "nothing is calibrated: {}", refused.body);
    assert!(refused.body["message"].as_str().unwrap().starts_with("rerankd_auto_k needs"), "{}", refused.body);
    let tei = json!({ "query": "question", "texts": DOCUMENTS, "rerankd_auto_k": true });
    assert_eq!(server.post("/rerank", &tei).await.status, 424);
    let calibration = Calibration {
        method: "query-generation".into(),
        mix: None,
        embedding: None,
        model: None,
        score: Platt { intercept: -1.0, slope: 9.0 },
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: None,
    };
    server.engine.generator().unwrap().calibrations.replace(vec![calibration]);
    let cut = ok(&server, "/rerank", &ask("query-generation", &auto)).await;
    assert_eq!(cut.body["meta"]["score_calibrated"], json!(true));
    assert!(cut.body["meta"]["none_relevant"].is_number(), "{}", cut.body);
    assert!((1..4).contains(&cut.order().len()) && all.order().starts_with(&cut.order()), "{}", cut.body);
    server.stop().await;
}

#[tokio::test]
async fn details_are_returned_on_request() {
    let server = serve_with(Scripted::default(), alone()).await;
    let plain = ok(&server, "/rerank", &ask("cascade", &json!({}))).await;
    assert!(plain.body["results"][0]["utility"].is_null() && plain.body["meta"]["context_order"].is_null());
    let detailed = ok(&server, "/rerank", &ask("cascade", &json!({ "rerankd_details": true }))).await;
    assert_eq!(detailed.order(), plain.order());
    let first = &detailed.body["results"][0];
    assert!(first["utility"].is_number() && first["stage"].as_str().unwrap().starts_with("STAGE_"), "{first}");
    assert!(first["outranks_next"].as_f64().is_some_and(|p| (0.5..=1.0).contains(&p)), "{first}");
    assert!(first["signals"]["model"].is_number() && first["signals"]["source"].is_number(), "{first}");
    assert!(first["signals"]["embedding"].is_null(), "{first}");
    assert_eq!(detailed.body["meta"]["context_order"].as_array().unwrap().len(), 4);
    let fitted = ok(&server, "/rerank", &ask("moi", &json!({ "rerankd_details": true }))).await;
    let bias = fitted.body["meta"]["position_bias"].as_array().unwrap();
    let sum = |weights: &Value| weights.as_array().unwrap().iter().filter_map(Value::as_f64).sum::<f64>();
    assert!(!bias.is_empty() && bias.iter().all(|weights| (sum(weights) - 1.0).abs() < 1e-9), "{bias:?}");
    let unasked = ok(&server, "/rerank", &ask("moi", &json!({}))).await;
    assert!(unasked.body["meta"]["position_bias"].is_null(), "{}", unasked.body);
    let tei = json!({ "query": "question", "texts": DOCUMENTS, "rerankd_details": true });
    assert!(ok(&server, "/rerank", &tei).await.body[0]["utility"].is_number());
    let little = server.post("/rerank", &ask("query-generation", &json!({ "rerankd_token_budget": 3 }))).await;
    assert_eq!(little.status, 422, "{}", little.body);
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_its_warnings() {
    let server = serve_with(Scripted::default(), alone()).await;
    let long = format!("{}question", "zzzz ".repeat(20));
    let fields = json!({ "documents": [&long, "a"], "max_tokens_per_doc": 60 });
    let nested = ok(&server, "/rerank", &ask("query-generation", &fields)).await;
    let warned = "1 passages were cut to fit; rerankd_details says by how much";
    assert_eq!(nested.body["meta"]["warnings"], json!([warned]));
    assert!(nested.body["results"].as_array().unwrap().iter().all(|one| one.get("tokens_cut").is_none()));
    let fields = json!({ "documents": [&long, "a"], "max_tokens_per_doc": 60, "rerankd_details": true });
    let nested = ok(&server, "/rerank", &ask("query-generation", &fields)).await;
    let cut = nested.body["results"].as_array().unwrap().iter().filter(|one| one["tokens_cut"].as_u64() > Some(0));
    assert_eq!(cut.count(), 1, "{}", nested.body);
    let tei = json!({ "query": "question", "texts": [&long], "max_tokens_per_doc": 60 });
    let tei = ok(&server, "/rerank", &tei).await;
    assert!(tei.headers.get_all("x-rerankd-warning").iter().any(|value| value == warned), "{:?}", tei.headers);
    // Cut passages of several lists are counted together.
    let mut pairs = json!({ "text_1": ["question", "which"], "text_2": [&long, &long], "max_tokens_per_doc": 60 });
    let plain = ok(&server, "/score", &pairs).await;
    assert_eq!(plain.header("x-rerankd-warning"), warned.replace('1', "2"));
    assert!(plain.body["data"][1].get("tokens_cut").is_none(), "{}", plain.body);
    pairs["rerankd_details"] = json!(true);
    let detailed = ok(&server, "/score", &pairs).await;
    assert!(detailed.body["data"][1]["tokens_cut"].is_u64(), "{}", detailed.body);
    server.stop().await;
}

#[tokio::test]
async fn an_encoded_body_is_refused_as_such() {
    let server = serve(Scripted::default()).await;
    let body = ask("retriever", &json!({})).to_string();
    let refused = server.send("/rerank", &[("content-encoding", "gzip")], body.clone()).await;
    assert_eq!(refused.status, 415, "{}", refused.body);
    for none in ["identity", "Identity", "", "identity, IDENTITY"] {
        assert_eq!(server.send("/rerank", &[("content-encoding", none)], body.clone()).await.status, 200, "{none}");
    }
    server.stop().await;
}

/// An engine with real files and the scorer file `scorer`.
async fn engine(folder: &Path, scorer: &str, settings: &[(&str, &str)]) -> Engine {
    let golden = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters").join(name);
    let (store, generator, scorer) = (folder.join("store"), golden("base.gguf"), golden(scorer));
    let own = [
        ("models.store", store.to_str().unwrap()),
        ("entailment.model", "off"),
        ("embedding.model", "off"),
        ("generator.threads", "1"),
        ("passage_cache.memory_bytes", "off"),
        ("generator.model", generator.to_str().unwrap()),
        ("scorer.model", scorer.to_str().unwrap()),
    ];
    let flags = own.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    app::engine(&Config::load(None, &flags.collect::<Vec<_>>()).unwrap()).await.unwrap()
}

/// The `model` of a body chooses one of two generators, and the answer names it.
#[tokio::test]
async fn the_model_chooses_the_generator() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_engine(engine(folder.path(), "merged.gguf", &[]).await, 8, alone()).await;
    let models = server.get("/v1/models").await.body;
    let names = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["merged.gguf", "base.gguf"]);
    let (scorer, generator) = ("merged.gguf", "base.gguf");
    let asked = |model: Value| {
        json!({ "query": "question", "documents": DOCUMENTS, "model": model, "raw_scores": true,
        "rerankd_method": "query-generation" })
    };
    let mut scores = Vec::new();
    for (model, ran) in [
        (json!(null), scorer),
        (json!(scorer), scorer),
        (json!("scorer"), scorer),
        (json!(generator), generator),
        (json!("generator"), generator),
    ] {
        let answer = ok(&server, "/rerank", &asked(model.clone())).await;
        assert_eq!(answer.body["model"], json!(ran), "{model}");
        let pairs =
            json!({ "text_1": "question", "text_2": DOCUMENTS, "model": model, "rerankd_method": "query-generation" });
        assert_eq!(ok(&server, "/score", &pairs).await.body["model"], json!(ran), "{model}");
        scores.push(answer.scores());
    }
    assert!(scores[0] == scores[1] && scores[3] == scores[4] && scores[0] != scores[3], "{scores:?}");
    let own_answer =
        json!({ "query": "question", "documents": DOCUMENTS, "model": scorer, "rerankd_method": "answer-likelihood" });
    let refused = server.post("/rerank", &own_answer).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert_eq!(refused.body["error"]["param"], "rerankd_method");
    server.stop().await;

    // If both are one file, with and without an adapter, the file's name means the generator that answers.
    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters/adapter.gguf");
    let adapted = engine(folder.path(), "base.gguf", &[("scorer.adapter", adapter.to_str().unwrap())]).await;
    let server = serve_engine(adapted, 8, alone()).await;
    let mut scores = Vec::new();
    for model in ["base.gguf", "generator", "scorer"] {
        scores.push(ok(&server, "/rerank", &asked(json!(model))).await.scores());
    }
    assert!(scores[0] == scores[1] && scores[0] != scores[2], "{scores:?}");
    server.stop().await;
}
