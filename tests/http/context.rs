//! `POST /v1/context`, and near-duplicates in rankings over HTTP.

use serde_json::{Value, json};

use crate::common::Scripted;
use crate::http::{Answer, Served, alone, serve_with};

const DOCUMENTS: [&str; 4] = ["zzzz yyyy", "the {question} is here", "The question is here.", "question question"];

fn ask(fields: &Value) -> Value {
    let mut body = json!({ "query": "question", "documents": DOCUMENTS, "rerankd_method": "query-generation" });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn ok(server: &Served, path: &str, fields: &Value) -> Answer {
    let answer = server.post(path, &ask(fields)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer
}

#[tokio::test]
async fn a_context_has_its_text_and_the_places_of_documents() {
    let server = serve_with(Scripted::default(), alone()).await;
    let answer = ok(&server, "/v1/context", &json!({ "template": "<{n}|{id}> {text}", "separator": "\n" })).await;
    let body = &answer.body;
    assert_eq!((&body["object"], &body["model"]), (&json!("context"), &json!("scripted")));
    assert_eq!((&body["meta"]["reader"], &body["meta"]["warnings"]), (&json!("scripted"), &json!([])));
    let text = body["text"].as_str().unwrap();
    assert!(text.starts_with("<1|3> question question\n<2|"), "{text}");
    assert_eq!(body["tokens"], text.len());
    let passages = body["passages"].as_array().unwrap();
    for passage in passages {
        let place = |name: &str| usize::try_from(passage[name].as_u64().unwrap()).unwrap();
        assert_eq!(&text[place("start")..place("end")], DOCUMENTS[place("index")]);
    }
    assert_eq!(passages.len(), 3);
    let left_out = &body["left_out"][0];
    assert_eq!(left_out["reason"], "LEFT_OUT_REASON_DUPLICATE");
    let of = passages.iter().find(|passage| passage["index"] == left_out["duplicate_of"]).unwrap();
    assert_eq!(of["duplicates"], json!([left_out["index"]]));
    assert!(answer.header("x-compute-tokens").parse::<u64>().unwrap() > 0);
    let small = ok(&server, "/v1/context", &json!({ "max_tokens": 25, "truncate": false })).await;
    assert_eq!(
        (&small.body["text"], &small.body["left_out"][0]["reason"]),
        (&json!("[1] question question"), &json!("LEFT_OUT_REASON_BUDGET"))
    );
    let texts = json!({ "query": "question", "texts": DOCUMENTS, "max_characters": 3 });
    let empty = server.post("/v1/context", &texts).await;
    assert_eq!((empty.status, &empty.body["text"]), (200, &json!("")));
    assert!(empty.body["meta"]["warnings"].to_string().contains("the context is empty"), "{}", empty.body);
    server.stop().await;
}

#[tokio::test]
async fn documents_are_compressed_if_they_do_not_fit() {
    let server = serve_with(Scripted::default(), alone()).await;
    let compression = json!({ "unit": "token" });
    let compressed = async |most: usize| {
        let town = "question question of the 東京 town";
        let documents = ["zzzz {n} yyyy\r\nxxxx", "the question is here", "wwww", town];
        let fields = json!({ "max_tokens": most, "compression": compression, "documents": documents });
        let body = ok(&server, "/v1/context", &fields).await.body;
        let passages = body["passages"].as_array().unwrap().clone();
        (body["tokens"].as_u64().unwrap(), passages.iter().any(|passage| passage["compressed"] == true))
    };
    assert!(!compressed(1_000).await.1, "all fit");
    let (tokens, short) = compressed(60).await;
    assert!(short && tokens <= 60, "{tokens} {short}");
    server.stop().await;
}

#[tokio::test]
async fn faults_name_the_field_of_the_body() {
    let server = serve_with(Scripted::default(), alone()).await;
    let rows = [
        (json!({ "template": "{body}" }), "template"),
        (json!({ "template": 1 }), "template"),
        (json!({ "template": "x".repeat(20_000) }), "template"),
        (json!({ "separator": "x".repeat(20_000) }), "separator"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": 9, "max_characters": 9 }), "max_characters"),
        (json!({ "max_per_source": -1 }), "max_per_source"),
        (json!({ "compression": 1 }), "compression"),
        (json!({ "compression": { "method": "gzip" } }), "compression"),
        (json!({ "compression": { "rato": 0.5 } }), "compression"),
        (json!({ "compression": { "ratio": 2 } }), "compression.ratio"),
        (json!({ "query": " " }), "query"),
        (json!({ "documents": [] }), "documents"),
        (json!({ "rerankd_dedup": "push-down" }), "rerankd_dedup"),
        (json!({ "rerankd_dedup_similarity": 2 }), "rerankd_dedup_similarity"),
    ];
    for (fields, named) in rows {
        let answer = server.post("/v1/context", &ask(&fields)).await;
        assert_eq!((answer.status, &answer.body["error"]["param"]), (422, &json!(named)), "{}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().starts_with(named), "{}", answer.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn near_duplicates_share_a_place_or_come_last() {
    let server = serve_with(Scripted::default(), alone()).await;
    let shared = ok(&server, "/v1/rerank", &json!({ "rerankd_dedup": "one-place" })).await;
    assert_eq!(shared.order().len(), 3);
    let of = shared.body["results"].as_array().unwrap().iter().find(|one| !one["duplicates"].is_null()).unwrap();
    let duplicate = of["duplicates"][0].as_u64().unwrap();
    let pushed = ok(&server, "/rerank", &json!({ "rerankd_dedup": "push-down" })).await;
    assert_eq!(pushed.order(), [shared.order(), vec![duplicate]].concat());
    let off = ok(&server, "/rerank", &json!({})).await;
    assert!(off.order().len() == 4 && !off.body.to_string().contains("duplicates"), "{}", off.body);
    let copies = ok(&server, "/rerank", &json!({ "rerankd_dedup_similarity": 1 })).await;
    assert_eq!(copies.order().len(), 3, "braces and case do not count");
    server.stop().await;
}
