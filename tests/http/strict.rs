//! Clients that refuse unknown fields. The rules come from the parsers of Elasticsearch's inference services:
//! CohereRankedResponseEntity, HuggingFaceRerankResponseEntity and JinaAIRerankResponseEntity.

use serde_json::{Value, json};

use crate::common::Scripted;
use crate::http::{Served, alone, serve_with};

/// A field and the check of its value.
type Field<'a> = (&'a str, fn(&Value) -> bool);

/// Checks that an object has only these fields, each of its type.
fn only(value: &Value, fields: &[Field<'_>], required: &[&str]) {
    let object = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    for (name, value) in object {
        let is = fields.iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("unknown field {name}"));
        assert!(is.1(value), "{name}: {value}");
    }
    assert!(required.iter().all(|name| object.contains_key(*name)), "{value}");
}

fn count(value: &Value) -> bool {
    value.is_u64()
}

/// A float that is finite in 32 bits.
fn score(value: &Value) -> bool {
    value.as_f64().is_some_and(|score| score.abs() < f64::from(f32::MAX))
}

/// The parser reads to the end of the object, so it may hold no other object.
fn document(value: &Value) -> bool {
    value.as_object().is_some_and(|document| document.len() == 1 && document["text"].is_string())
}

/// Skips to the first field `results`, at whatever depth; then unknown fields of a result throw.
fn cohere(body: &Value) {
    let before: Vec<&String> = body.as_object().unwrap().keys().take_while(|name| *name != "results").collect();
    let nested = |name: &&String| body[name.as_str()].to_string().contains("\"results\"");
    assert!(!before.iter().any(nested), "{body}");
    for result in body["results"].as_array().unwrap() {
        let fields: [Field<'_>; 3] = [("index", count), ("relevance_score", score), ("document", document)];
        only(result, &fields, &["index", "relevance_score"]);
    }
}

/// A bare list. Unknown fields throw.
fn hugging_face(body: &Value) {
    for result in body.as_array().unwrap() {
        let fields: [Field<'_>; 5] = [
            ("index", count),
            ("score", score),
            ("relevance_score", score),
            ("text", Value::is_string),
            ("document", document),
        ];
        only(result, &fields, &["index", "score"]);
    }
}

/// Ignores unknown fields. A document is an object with a text, or a string.
fn jina(body: &Value) {
    for result in body["results"].as_array().unwrap() {
        assert!(count(&result["index"]) && score(&result["relevance_score"]), "{result}");
        let read = result.get("document");
        assert!(read.is_none_or(|read| read.is_string() || read["text"].is_string()), "{result}");
    }
}

/// NVIDIA NIM's fields.
fn rankings(body: &Value) {
    only(body, &[("rankings", Value::is_array), ("usage", Value::is_object)], &["rankings"]);
    for result in body["rankings"].as_array().unwrap() {
        only(result, &[("index", count), ("logit", score)], &["index", "logit"]);
    }
}

fn scores(body: &Value) {
    let is_text: fn(&Value) -> bool = Value::is_string;
    let fields: [Field<'_>; 6] = [
        ("id", is_text),
        ("object", is_text),
        ("created", count),
        ("model", is_text),
        ("data", Value::is_array),
        ("usage", Value::is_object),
    ];
    only(body, &fields, &["data"]);
    for result in body["data"].as_array().unwrap() {
        only(result, &[("index", count), ("object", is_text), ("score", score)], &["index", "score"]);
    }
}

type Check = fn(&Value);

/// Parsers of each path, and its names of query and list.
const READERS: [(&str, (&str, &str), &[Check]); 9] = [
    ("/v1/rerank", ("query", "documents"), &[cohere, jina]),
    ("/v2/rerank", ("query", "documents"), &[cohere, jina]),
    ("/rerank", ("query", "documents"), &[cohere, jina]),
    ("/v1/reranking", ("query", "documents"), &[cohere, jina]),
    ("/invocations", ("query", "documents"), &[cohere, jina]),
    ("/rerank", ("query", "texts"), &[hugging_face]),
    ("/", ("query", "texts"), &[hugging_face]),
    ("/v1/ranking", ("query", "passages"), &[rankings]),
    ("/score", ("text_1", "text_2"), &[scores]),
];

async fn server() -> Served {
    serve_with(Scripted::default(), alone()).await
}

#[tokio::test]
async fn answers_have_only_the_fields_of_their_protocol() {
    let server = server().await;
    let long = "the keeper walked along the pier ".repeat(200);
    let lists = [
        json!(["a question", "b"]),
        json!([long, "a question"]),
        json!(["a question", null, { "text": "" }, "cut \u{fffd}"]),
        json!([{ "title": "T", "text": "a" }, { "title": "only" }]),
        json!(["", null]),
    ];
    for (path, (query, list), checks) in READERS {
        for documents in &lists {
            for more in [
                json!({}),
                json!({ "return_documents": true, "return_text": true }),
                json!({ "return_documents": false, "max_tokens_per_doc": 30, "max_chunks_per_doc": 3 }),
                json!({ "raw_scores": true, "top_n": 1 }),
                json!({ "rerankd_details": false, "rerankd_method": "retriever", "rerankd_scores": null }),
            ] {
                let mut body = json!({ query: "question", list: documents });
                body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                let answer = server.post(path, &body).await;
                assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
                for check in checks {
                    check(&answer.body);
                }
            }
        }
    }
    server.stop().await;
}

/// A cut document adds no field to its result.
#[tokio::test]
async fn a_cut_document_is_reported_outside_the_results() {
    let server = server().await;
    for (path, (query, list), _) in READERS {
        let body = json!({ query: "question", list: ["word ".repeat(50), "a"], "max_tokens_per_doc": 60 });
        let answer = server.post(path, &body).await;
        let headers = answer.headers.get_all("x-rerankd-warning").iter().map(|value| value.to_str().unwrap());
        let meta = answer.body.get("meta").map(|meta| meta["warnings"].to_string());
        let told = headers.map(str::to_owned).chain(meta).collect::<Vec<_>>().join("\n");
        assert!(told.contains("1 passages were cut to fit"), "{path} {list}: {told}");
    }
    server.stop().await;
}

/// Cohere's client reads `message`, Jina's `detail`, Hugging Face's `error`: each a text.
#[tokio::test]
async fn errors_have_the_texts_that_the_parsers_read() {
    let server = server().await;
    for (path, list, field) in [
        ("/v1/rerank", "documents", "message"),
        ("/v1/rerank", "documents", "detail"),
        ("/v2/rerank", "documents", "message"),
        ("/rerank", "texts", "error"),
    ] {
        let answer = server.post(path, &json!({ "query": "", list: ["a"] })).await;
        assert!(answer.status == 422 && answer.body[field].is_string(), "{path}: {}", answer.body);
    }
    let tei = server.post("/rerank", &json!({ "query": "", "texts": ["a"] })).await;
    only(&tei.body, &[("error", Value::is_string), ("error_type", Value::is_string)], &["error", "error_type"]);
    let flat = server.post("/v2/rerank", &json!({ "query": "", "documents": ["a"] })).await;
    only(&flat.body, &[("message", Value::is_string), ("id", Value::is_string)], &["message", "id"]);
    server.stop().await;
}
