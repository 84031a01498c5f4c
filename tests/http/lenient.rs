//! Needs of clients that cannot be changed: empty documents, settings for fields that they do not send.

use std::time::Duration;

use serde_json::{Value, json};
use server::http::HttpOptions;

use crate::common::Scripted;
use crate::http::{Answer, options, serve, serve_with};
use crate::shapes::{DOCUMENTS, ok};

/// Clients send chunks as they are stored. An empty one must not prevent the ranking of the others.
#[tokio::test]
async fn empty_documents_come_last() {
    let server = serve(Scripted::default()).await;
    let documents =
        json!([DOCUMENTS[0], " ", DOCUMENTS[3], { "title": "", "text": "" }, { "title": DOCUMENTS[1], "text": "" }]);
    let ask = |more: Value| {
        let mut body = json!({ "query": "question", "documents": documents });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let answer = ok(&server, "/v1/rerank", &ask(json!({}))).await;
    let order = answer.order();
    assert_eq!((order[0], &order[3..]), (2, &[1, 3][..]), "{order:?}");
    assert_eq!(answer.scores()[3..], [0.0, 0.0]);
    assert_eq!(answer.body["results"][3]["document"], json!({ "text": " " }));
    let warnings = answer.body["meta"]["warnings"].to_string();
    assert!(warnings.contains("documents[1], documents[3] are empty: "), "{warnings}");
    assert_eq!(ok(&server, "/v1/rerank", &ask(json!({ "top_n": 4 }))).await.order().len(), 4);
    let kept = ok(&server, "/v1/rerank", &ask(json!({ "rerankd_score_threshold": 0.0 }))).await;
    assert_eq!(kept.order().len(), 3);
    let details = ok(&server, "/v1/rerank", &ask(json!({ "rerankd_details": true, "raw_scores": true }))).await;
    let mut arranged: Vec<u64> =
        details.body["meta"]["context_order"].as_array().unwrap().iter().map(|index| index.as_u64().unwrap()).collect();
    arranged.sort_unstable();
    assert_eq!(arranged, [0, 2, 4]);
    assert!(details.scores()[4] <= details.scores()[..3].iter().copied().fold(0.0, f64::min));
    let texts = json!({ "query": "question", "texts": ["", DOCUMENTS[3], DOCUMENTS[0]], "return_text": true });
    let bare = ok(&server, "/rerank", &texts).await;
    assert_eq!((bare.order(), &bare.body[2]["text"]), (vec![1, 2, 0], &json!("")));
    assert_eq!(bare.header("x-rerankd-warning"), "texts[0] is empty: ranked last with the score 0");
    let score = json!({ "text_1": "question", "text_2": ["", DOCUMENTS[3]] });
    let scored = ok(&server, "/score", &score).await;
    let entries = scored.body["data"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["score"], &entries[0]["index"]), (2, &json!(0.0), &json!(0)));
    assert!(entries[1]["score"].as_f64().unwrap() > 0.0 && entries[1]["index"] == 1);
    server.stop().await;
}

/// NVIDIA NIM's clients send passages, and read log-odds.
#[tokio::test]
async fn passages_are_ranked_with_log_odds() {
    let server = serve(Scripted::default()).await;
    let passages: Vec<Value> = DOCUMENTS.iter().map(|text| json!({ "text": text })).collect();
    let mut body = json!({ "query": { "text": "question" }, "passages": passages, "truncate": "END" });
    let scores = ok(&server, "/v1/rerank", &body).await;
    body["passages"].as_array_mut().unwrap().push(json!({ "text": "" }));
    let answer = ok(&server, "/v1/ranking", &body).await;
    let rankings = answer.body["rankings"].as_array().unwrap();
    let found: Vec<(u64, f64)> = rankings
        .iter()
        .map(|ranking| (ranking["index"].as_u64().unwrap(), ranking["logit"].as_f64().unwrap()))
        .collect();
    let order: Vec<u64> = found.iter().map(|(index, _)| *index).collect();
    let plain: Vec<u64> = scores.order().into_iter().chain([4]).collect();
    assert_eq!(order, plain);
    for ((_, logit), score) in found.iter().zip(scores.scores()) {
        assert!((1.0 / (1.0 + (-logit).exp()) - score).abs() < 1e-9);
    }
    assert!(found[4].1 < -20.0 && answer.header("x-rerankd-warning").starts_with("passages[4] is empty"));
    let refused = server.post("/v1/ranking", &json!({ "query": "q", "passages": [[5]] })).await;
    assert_eq!((refused.status, refused.body["error"]["param"].as_str()), (422, Some("passages[0]")));
    server.stop().await;
}

/// A request without a timeout has the configured one.
#[tokio::test]
async fn the_configuration_has_a_timeout() {
    let options = HttpOptions { timeout: Some(Duration::from_millis(1)), ..options() };
    let slow = Scripted { delay: Duration::from_millis(2), ..Scripted::default() };
    let server = serve_with(slow, options).await;
    let body = json!({ "query": "question", "documents": DOCUMENTS });
    assert_eq!(server.post("/v1/rerank", &body).await.status, 504);
    let patient = server.send("/v1/rerank", &[("x-request-timeout-ms", "60000")], body.to_string()).await;
    assert_eq!(patient.status, 200, "{}", patient.body);
    let named =
        json!({ "query": "question", "documents": DOCUMENTS, "model": "retriever", "rerankd_scores": [1, 2, 3, 4] });
    let named = server.send("/v1/rerank", &[("x-request-timeout-ms", "60000")], named.to_string()).await;
    assert_eq!((named.order(), &named.body["model"]), (vec![3, 2, 1, 0], &json!("retriever")));
    server.stop().await;
}

/// Base URLs may end in a slash or a version, and clients append a path with another version.
#[tokio::test]
async fn a_path_may_have_other_spellings() {
    let server = serve(Scripted::default()).await;
    let body = json!({ "query": "question", "documents": DOCUMENTS });
    let plain = ok(&server, "/v1/rerank", &body).await;
    for path in ["/v1/rerank/", "//v1/rerank", "/v1//rerank", "/v1/v1/rerank", "/v1/rerank/?a=b"] {
        assert_eq!(ok(&server, path, &body).await.order(), plain.order(), "{path}");
    }
    // The last version in the path decides.
    let second = ok(&server, "/v1/v2/rerank", &body).await;
    assert_eq!(second.body["meta"]["api_version"]["version"], "2");
    assert_eq!(server.get("/v1/models/scripted/").await.body["id"], "scripted");
    for path in ["/v1/models/", "/v1/v1/models"] {
        assert_eq!(server.get(path).await.body["data"][0]["owned_by"], "rerankd", "{path}");
    }
    // infinity's client accepts only this owner and needs `stats`.
    let first = &server.get("/models").await.body["data"][0];
    assert_eq!(
        (&first["id"], &first["owned_by"], &first["stats"]),
        (&json!("scripted"), &json!("infinity"), &json!({}))
    );
    assert_eq!(server.get("/models/scripted").await.body["id"], "scripted");
    for (path, status) in [("/v1/health/ready", "ready"), ("/v1/health/live", "live"), ("/health/", "ok")] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, &answer.body["status"]), (200, &json!(status)), "{path}");
    }
    server.stop().await;
}

/// The hosted API of NVIDIA NIM has the model in the path.
#[tokio::test]
async fn a_model_may_stand_in_the_path() {
    let server = serve(Scripted::default()).await;
    let mut body = json!({ "query": { "text": "question" }, "passages": DOCUMENTS, "rerankd_scores": [1, 2, 3, 4] });
    let named = ok(&server, "/v1/v1/retrieval/retriever/reranking/", &body).await;
    assert_eq!(named.body["rankings"][0]["index"], 3, "the first-stage order");
    for path in ["/v1/retrieval/org/other/reranking", "/v1/v1/retrieval/org%2Fother/reranking/"] {
        let unknown = ok(&server, path, &body).await;
        assert!(unknown.header("x-rerankd-warning").starts_with("model: \"org/other\" is not"), "{path}");
    }
    // The body overrides the path.
    body["model"] = "scripted".into();
    let answer = ok(&server, "/v1/retrieval/org/other/reranking", &body).await;
    assert_eq!(answer.body, ok(&server, "/v1/ranking", &body).await.body);
    server.stop().await;
}

/// Most clients send some default model name.
#[tokio::test]
async fn any_model_name_is_accepted_with_a_warning() {
    let server = serve(Scripted::default()).await;
    let warnings = |answer: &Answer| {
        let headers = answer.headers.get_all("x-rerankd-warning").iter().map(|value| value.to_str().unwrap());
        let meta = answer.body.get("meta").and_then(|meta| meta["warnings"].as_array()).into_iter().flatten();
        let all = headers.chain(meta.map(|text| text.as_str().unwrap()));
        all.filter(|text| text.starts_with("model: ")).map(str::to_owned).collect::<Vec<String>>()
    };
    let mut body = json!({ "query": "question", "documents": DOCUMENTS, "model": "rerank-v3.5" });
    for path in ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/ranking"] {
        let told = warnings(&ok(&server, path, &body).await);
        assert!(told.len() == 1 && told[0].contains("rerank-v3.5") && told[0].contains("scripted ranked"), "{told:?}");
    }
    let pair = json!({ "text_1": "question", "text_2": "a", "model": "rerank-v3.5" });
    assert_eq!(warnings(&ok(&server, "/score", &pair).await).len(), 1);
    let bare = json!({ "query": "question", "texts": DOCUMENTS, "model": "rerank-v3.5" });
    let bare = ok(&server, "/rerank", &bare).await;
    assert!(bare.header("x-rerankd-warning").contains("rerank-v3.5"));
    body["model"] = "n".repeat(1_000).into();
    let told = warnings(&ok(&server, "/v1/rerank", &body).await);
    assert!(told[0].len() < 300, "{told:?}");
    // The server's own names, its methods and an empty name need no warning.
    for (model, ran) in
        [("scripted", "scripted"), ("query-generation", "scripted"), ("retriever", "retriever"), ("", "scripted")]
    {
        body["model"] = model.into();
        let answer = ok(&server, "/v1/rerank", &body).await;
        assert_eq!((warnings(&answer), &answer.body["model"]), (vec![], &json!(ran)), "{model}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_misspelt_field_is_named_with_the_nearest_one() {
    let server = serve(Scripted::default()).await;
    let body = json!({ "query": "question", "documents": DOCUMENTS, "retrun_documents": false, "priority": 1 });
    let warnings = ok(&server, "/v2/rerank", &body).await.body["meta"]["warnings"].clone();
    assert_eq!(warnings, json!(["retrun_documents has no effect; did you mean return_documents?"]));
    server.stop().await;
}

/// A client that sends its documents in batches sorts all scores together.
#[tokio::test]
async fn a_method_by_its_name_gives_scores_that_batches_share() {
    let server = serve(Scripted::default()).await;
    let body = |documents: &[&str]| json!({ "query": "question", "documents": documents, "model": "query-generation" });
    let scores = async |documents: &[&str]| {
        let answer = ok(&server, "/v1/rerank", &body(documents)).await;
        let mut scores: Vec<_> = answer.order().into_iter().zip(answer.scores()).collect();
        scores.sort_by_key(|(index, _)| *index);
        scores.into_iter().map(|(_, score)| score).collect::<Vec<f64>>()
    };
    let (first, second) = DOCUMENTS.split_at(2);
    let batched = [scores(first).await, scores(second).await].concat();
    for (whole, part) in scores(&DOCUMENTS).await.into_iter().zip(batched) {
        assert!((whole - part).abs() < 1e-6, "{whole} {part}");
    }
    assert_eq!(server.get("/v1/models/query-generation").await.body["root"], "scripted");
    server.stop().await;
}
