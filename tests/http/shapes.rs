//! HTTP/JSON in the shapes that clients of other rerankers send and read, over a real socket.

use crate::{common, http};
use common::Scripted;
use http::{Answer, Served, alone, serve, serve_with};
use serde_json::{Value, json};

pub const DOCUMENTS: [&str; 4] = ["zzzz yyyy", "the question is here", "wwww", "question question"];

pub async fn ok(server: &Served, path: &str, body: &Value) -> Answer {
    let answer = server.post(path, body).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    assert_eq!(answer.header("content-type"), "application/json");
    answer
}

pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn one_envelope_serves_cohere_jina_vllm_and_llama_server() {
    let server = serve(Scripted::default()).await;
    let body = json!({ "model": "rerank-v3.5", "query": "question", "documents": DOCUMENTS });
    // Path, documents returned by default, version of Cohere's API, and `object` of the answer.
    let paths = [
        ("/v1/rerank", true, "1", "list"),
        ("/v2/rerank", false, "2", "list"),
        ("/rerank", true, "1", "rerank"),
        ("/reranking", false, "1", "list"),
        ("/v1/reranking", false, "1", "list"),
        ("/invocations", true, "1", "list"),
    ];
    for (path, echo, version, object) in paths {
        let answer = ok(&server, path, &body).await;
        assert_eq!(keys(&answer.body), ["created", "id", "meta", "model", "object", "results", "usage"], "{path}");
        assert_eq!((&answer.body["object"], &answer.body["model"]), (&json!(object), &json!("scripted")));
        answer.header("x-inference-time").parse::<u64>().unwrap();
        assert_eq!(answer.body["id"], answer.header("x-request-id"));
        let meta = &answer.body["meta"];
        let named = "api_version billed_units cached_tokens none_helps none_relevant score_calibrated tokens warnings";
        assert_eq!(keys(meta).join(" "), named);
        assert_eq!(
            (&meta["api_version"]["version"], &meta["billed_units"]["search_units"]),
            (&json!(version), &json!(1))
        );
        let tokens = answer.body["usage"]["total_tokens"].as_u64().unwrap();
        assert!(
            tokens > 0 && meta["tokens"]["input_tokens"] == tokens && answer.body["usage"]["prompt_tokens"] == tokens
        );
        let order = answer.order();
        assert_eq!((order.len(), order[0]), (4, 3));
        let scores = answer.scores();
        assert!(
            scores.windows(2).all(|pair| pair[0] >= pair[1]) && scores.iter().all(|score| *score > 0.0 && *score < 1.0)
        );
        for result in answer.body["results"].as_array().unwrap() {
            let index = usize::try_from(result["index"].as_u64().unwrap()).unwrap();
            // Absent, never null.
            let document = json!({ "text": DOCUMENTS[index] });
            assert_eq!(result.get("document"), echo.then_some(&document), "{path}");
        }
        for (asked, field) in [(true, Some(())), (false, None)] {
            let mut body = body.clone();
            body["return_documents"] = asked.into();
            let answer = ok(&server, path, &body).await;
            assert_eq!(answer.body["results"][0].get("document").map(|_| ()), field, "{path}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn top_n_is_a_count_and_zero_is_all() {
    let server = serve(Scripted::default()).await;
    let rows = [
        ("top_n", json!(2), 2),
        ("top_n", json!(0), 4),
        ("top_n", json!(9), 4),
        ("top_n", json!(null), 4),
        ("top_k", json!(1), 1),
    ];
    for (field, count, results) in rows {
        let mut body = json!({ "query": "question", "documents": DOCUMENTS });
        body[field] = count.clone();
        assert_eq!(ok(&server, "/v1/rerank", &body).await.order().len(), results, "{field} {count}");
    }
    server.stop().await;
}

#[tokio::test]
async fn object_documents_of_every_peer_are_read() {
    let server = serve_with(Scripted::default(), alone()).await;
    let plain = ok(&server, "/v1/rerank", &json!({ "query": "question", "documents": DOCUMENTS })).await;
    let of = |document: fn(&str) -> Value| DOCUMENTS.iter().map(|text| document(text)).collect::<Value>();
    let parts = of(|text| json!({ "content": [{ "type": "text", "text": text }] }));
    for documents in [of(|text| json!({ "text": text, "id": 5 })), of(|text| json!({ "content": text })), parts] {
        let body = json!({ "query": { "text": "question" }, "documents": documents });
        let answer = ok(&server, "/v1/rerank", &body).await;
        assert_eq!(answer.body["results"], plain.body["results"]);
    }
    // A single document is a list of one.
    let single = ok(&server, "/rerank", &json!({ "query": "question", "documents": "question" })).await;
    assert_eq!(single.order(), [0]);
    // Only the named fields are read.
    let body = json!({ "query": "question", "rank_fields": ["body"],
        "documents": [{ "body": "zzzz", "text": "question question" }, { "body": "question question", "text": "zzzz" }] });
    let fields = ok(&server, "/v1/rerank", &body).await;
    assert_eq!(fields.order(), [1, 0]);
    assert_eq!(fields.body["results"][0]["document"], json!({ "text": "question question" }));
    // A title stands before the text in the prompt, so it moves the score.
    let titled =
        json!({ "query": "question", "documents": [{ "title": "question", "text": "zzzz yyyy" }, "zzzz yyyy"] });
    assert_eq!(ok(&server, "/v1/rerank", &titled).await.order(), [0, 1]);
    server.stop().await;
}

#[tokio::test]
async fn raw_scores_are_utilities() {
    let server = serve_with(Scripted::default(), alone()).await;
    let ask = |field: &str, value: bool| {
        let mut body = json!({ "query": "question", "documents": DOCUMENTS });
        body[field] = value.into();
        body
    };
    let scores = ok(&server, "/rerank", &ask("raw_scores", false)).await.scores();
    let raw = ok(&server, "/rerank", &ask("raw_scores", true)).await.scores();
    let inactive = ok(&server, "/rerank", &ask("use_activation", false)).await.scores();
    assert!(raw == inactive && raw != scores);
    // The method's score is the sigmoid of the utility over the number of query tokens: " question" has 9 bytes.
    for (raw, score) in raw.iter().zip(&scores) {
        assert!((1.0 / (1.0 + (-raw / 9.0).exp()) - score).abs() < 1e-12, "{raw} {score}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_method_is_the_configured_one_or_the_one_of_the_body() {
    let server = serve_with(Scripted::default(), alone()).await;
    let ask = |method: Value| json!({ "query": "question", "documents": DOCUMENTS, "rerankd_method": method });
    assert_eq!(ok(&server, "/rerank", &ask(json!("retriever"))).await.order(), [0, 1, 2, 3]);
    let configured = ok(&server, "/rerank", &ask(Value::Null)).await;
    let named = ok(&server, "/rerank", &ask(json!("query-generation"))).await;
    assert_eq!(configured.body["results"], named.body["results"]);
    server.stop().await;
}

#[tokio::test]
async fn caps_cut_documents_and_answers_say_so() {
    let server = serve_with(Scripted::default(), alone()).await;
    let long = format!("{}question", "zzzz ".repeat(20));
    let ask = |fields: Value| {
        let mut body = json!({ "query": "question", "documents": [&long], "raw_scores": true, "rerankd_method": "query-generation" });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let whole = ok(&server, "/v2/rerank", &ask(json!({}))).await;
    assert_eq!(whole.body["meta"]["warnings"], json!([]));
    let cut = ok(&server, "/v2/rerank", &ask(json!({ "max_tokens_per_doc": 60 }))).await;
    assert_ne!(cut.scores(), whole.scores());
    assert_eq!(cut.body["meta"]["warnings"], json!(["1 passages were cut to fit; rerankd_details says by how much"]));
    // The query has 9 tokens: both together may have 69.
    let pair = ok(&server, "/v2/rerank", &ask(json!({ "truncate_prompt_tokens": 69 }))).await;
    assert_eq!(pair.body["results"], cut.body["results"]);
    let kept = ok(&server, "/v2/rerank", &ask(json!({ "max_doc_length": 60, "truncation_side": "left" }))).await;
    assert!(kept.scores()[0] > cut.scores()[0]);
    let chunks = ok(&server, "/v1/rerank", &ask(json!({ "max_chunks_per_doc": 3 }))).await;
    assert!(chunks.body["meta"]["warnings"][0].as_str().unwrap().starts_with("max_chunks_per_doc has no effect"));
    server.stop().await;
}

#[tokio::test]
async fn a_body_with_texts_is_answered_as_text_embeddings_inference_does() {
    let server = serve(Scripted::default()).await;
    for path in ["/rerank", "/v1/rerank", "/reranking"] {
        let body = json!({ "query": "question", "texts": DOCUMENTS, "return_text": true, "truncate": true });
        let answer = ok(&server, path, &body).await;
        let ranks = answer.body.as_array().unwrap();
        assert_eq!((ranks.len(), answer.order()[0]), (4, 3));
        for rank in ranks {
            let index = usize::try_from(rank["index"].as_u64().unwrap()).unwrap();
            assert_eq!((keys(rank), &rank["text"]), (vec!["index", "score", "text"], &json!(DOCUMENTS[index])));
        }
        assert_eq!(answer.header("x-compute-type"), "cpu");
        let characters: usize = DOCUMENTS.iter().map(|text| "question".len() + text.len()).sum();
        assert_eq!(answer.header("x-compute-characters"), characters.to_string());
        for name in [
            "x-compute-time",
            "x-compute-tokens",
            "x-total-time",
            "x-tokenization-time",
            "x-queue-time",
            "x-inference-time",
        ] {
            answer.header(name).parse::<u64>().unwrap();
        }
    }
    let plain = json!({ "query": "question", "texts": ["same", "same", "same"], "rerankd_method": "query-generation" });
    let plain = ok(&server, "/rerank", &plain).await;
    assert_eq!((plain.order(), keys(&plain.body[0])), (vec![0, 1, 2], vec!["index", "score"]));
    server.stop().await;
}

#[tokio::test]
async fn pairs_are_scored_in_their_order() {
    let server = serve_with(Scripted::default(), alone()).await;
    let mut many = Vec::new();
    for (path, first, second) in [
        ("/score", "text_1", "text_2"),
        ("/v1/score", "data_1", "data_2"),
        ("/score", "queries", "documents"),
        ("/score", "queries", "items"),
    ] {
        let mut body = json!({ "model": "scripted" });
        body[first] = "question".into();
        body[second] = DOCUMENTS.iter().copied().collect();
        let answer = ok(&server, path, &body).await;
        assert_eq!(keys(&answer.body), ["created", "data", "id", "model", "object", "usage"]);
        let data = answer.body["data"].as_array().unwrap();
        for (index, entry) in data.iter().enumerate() {
            assert_eq!((&entry["index"], &entry["object"]), (&json!(index), &json!("score")));
        }
        many.push(data.iter().map(|entry| entry["score"].as_f64().unwrap()).collect::<Vec<_>>());
    }
    assert!(many.iter().all(|scores| scores == &many[0]) && many[0][3] > many[0][2], "{many:?}");
    // Equal counts make pairs, each with its own query.
    let body = json!({ "text_1": ["question", "zzzz", "question", "question"], "text_2": DOCUMENTS });
    let each = ok(&server, "/score", &body).await;
    let scores: Vec<f64> =
        each.body["data"].as_array().unwrap().iter().map(|entry| entry["score"].as_f64().unwrap()).collect();
    assert_eq!((scores[0], scores[2], scores[3]), (many[0][0], many[0][2], many[0][3]));
    assert_ne!(scores[1], many[0][1]);
    let raw = ok(&server, "/score", &json!({ "text_1": "question", "text_2": "zzzz", "use_activation": false })).await;
    let raw = raw.body["data"][0]["score"].as_f64().unwrap();
    assert!(
        (1.0 / (1.0 + (-raw / 9.0).exp())
            - ok(&server, "/score", &json!({ "text_1": "question", "text_2": "zzzz" })).await.body["data"][0]["score"]
                .as_f64()
                .unwrap())
        .abs()
            < 1e-12
    );
    server.stop().await;
}

#[tokio::test]
async fn health_and_models_are_served() {
    let server = serve(Scripted::default()).await;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.body), (200, json!({ "status": "ok" })));
    assert_eq!(server.get("/ping").await.status, 200);
    let models = server.get("/v1/models").await;
    assert_eq!((models.status, &models.body["object"]), (200, &json!("list")));
    let data = models.body["data"].as_array().unwrap();
    let ids: Vec<&str> = data.iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["scripted"]);
    assert!(data.iter().all(|model| model["root"] == "scripted" && model["object"] == "model"));
    // Every name is accepted.
    for name in ["rerank-v3.5", "org/other"] {
        let one = server.get(&format!("/v1/models/{name}")).await;
        assert_eq!((one.status, &one.body["id"], &one.body["model_type"]), (200, &json!(name), &json!("rerank")));
        assert_eq!(one.body["root"], "scripted", "{name}");
    }
    server.stop().await;
}

/// Clients of text-embeddings-inference ask this before they send texts.
#[tokio::test]
async fn info_states_the_model_and_its_bounds() {
    let server = serve(Scripted::default()).await;
    let info = server.get("/info").await;
    let (status, body) = (info.status, info.body);
    assert_eq!((status, &body["model_id"], &body["model_sha"]), (200, &json!("scripted"), &json!("0".repeat(64))));
    assert_eq!((&body["max_client_batch_size"], &body["max_input_length"]), (&json!(20), &json!(4_096)));
    assert_eq!((&body["auto_truncate"], &body["max_batch_tokens"]), (&json!(true), &json!(64)));
    assert_eq!(body["model_type"]["reranker"]["id2label"], json!({ "0": "LABEL_0" }));
    let texts = json!({ "query": "question", "texts": DOCUMENTS });
    assert_eq!(ok(&server, "/", &texts).await.body, ok(&server, "/rerank", &texts).await.body);
    server.stop().await;
}

/// The port's method uses the reranker.
#[tokio::test]
async fn info_states_the_reranker() {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let engine = common::with_scripted_reranker(&engine, "bge-small");
    let options = server::http::HttpOptions { method: engine::methods::find("cross-encoder"), ..http::options() };
    let server = http::serve_engine(engine, queue_length, options).await;
    let body = server.get("/info").await.body;
    assert_eq!((&body["model_id"], &body["model_dtype"]), (&json!("bge-small"), &json!("")));
    server.stop().await;
    // A method without a model has the name that its answers have.
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let options = server::http::HttpOptions { method: engine::methods::find("retriever"), ..http::options() };
    let server = http::serve_engine(engine, queue_length, options).await;
    let body = server.get("/info").await.body;
    assert_eq!((&body["model_id"], &body["model_sha"]), (&json!("retriever"), &serde_json::Value::Null));
    server.stop().await;
}

#[tokio::test]
async fn answers_name_the_model_that_ran() {
    let (engine, _, queue_length) = Scripted::default().engine().await;
    let engine = common::with_scripted_reranker(&engine, "bge-small");
    let server = http::serve_engine(engine, queue_length, http::options()).await;
    let rows = [
        (json!({}), "scripted"),
        (json!({ "rerankd_method": "cross-encoder" }), "bge-small"),
        (json!({ "model": "bge-small" }), "bge-small"),
        (json!({ "model": "rerank-v3.5", "rerankd_method": "query-generation" }), "scripted"),
        (json!({ "rerankd_method": "retriever" }), "retriever"),
    ];
    for (fields, model) in rows {
        let mut body =
            json!({ "query": "question", "documents": DOCUMENTS, "text_1": "question", "text_2": DOCUMENTS });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        for path in ["/rerank", "/score"] {
            assert_eq!(ok(&server, path, &body).await.body["model"], model, "{path} {fields}");
        }
    }
    let other = json!({ "query": "q", "documents": DOCUMENTS, "model": "bge-small", "rerankd_method": "moi" });
    assert_eq!(server.post("/rerank", &other).await.status, 422);
    let models = server.get("/v1/models").await.body;
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["scripted", "bge-small"]);
    server.stop().await;
}

/// Every reference of the document resolves, and every path is served.
#[tokio::test]
async fn the_openapi_document_names_every_path() {
    let server = serve(Scripted::default()).await;
    let document = server.get("/openapi.json").await.body;
    assert_eq!(
        (&document["openapi"], &document["info"]["version"]),
        (&json!("3.1.0"), &json!(env!("CARGO_PKG_VERSION")))
    );
    let named = keys(&document["paths"]);
    let mut served = vec![
        "/",
        "/health",
        "/info",
        "/invocations",
        "/openapi.json",
        "/models",
        "/ping",
        "/rerank",
        "/reranking",
        "/score",
        "/v1/context",
        "/v1/health/live",
        "/v1/health/ready",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/ranking",
        "/v1/rerank",
        "/v1/reranking",
        "/v1/score",
        "/v2/rerank",
    ];
    served.sort_unstable();
    assert_eq!(named, served);
    for path in named {
        if path == "/" {
            continue; // page.rs tests the page, which is not JSON.
        }
        let get = document["paths"][path].get("get").is_some();
        let answer = if get {
            server.get(&path.replace("{name}", "scripted")).await
        } else {
            server.post(path, &json!({})).await
        };
        assert_eq!(answer.status, if get { 200 } else { 422 }, "{path}: {}", answer.body);
    }
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    server.stop().await;
}
