//! The table of docs/reference/input.md over HTTP: every row at every path. Bad input affects one document, not the list.

use serde_json::{Value, json};

use crate::common::Scripted;
use crate::http::{Answer, Served, alone, serve_with};

/// Paths that accept a list, and their names of the list.
const ENTRANCES: [(&str, &str); 5] = [
    ("/v1/rerank", "documents"),
    ("/v2/rerank", "documents"),
    ("/rerank", "texts"),
    ("/v1/ranking", "passages"),
    ("/score", "text_2"),
];

/// Sends a list of raw JSON values after a good document, and returns the answer.
async fn ask(server: &Served, (path, list): (&str, &str), values: &str) -> Answer {
    let query = if path == "/score" { "text_1" } else { "query" };
    let body = format!(r#"{{"{query}": "question", "{list}": ["a question", {values}]}}"#);
    server.send(path, &[], body).await
}

/// Index and score of each result, by index, and the warnings.
fn told(answer: &Answer) -> (Vec<(u64, f64)>, String) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let lists = ["results", "rankings", "data"].into_iter().find_map(|name| answer.body.get(name));
    let results = lists.unwrap_or(&answer.body).as_array().unwrap();
    let score = |one: &Value| {
        let logit = one["logit"].as_f64().map(|logit| 1.0 / (1.0 + (-logit).exp()));
        ["relevance_score", "score"].into_iter().find_map(|name| one[name].as_f64()).or(logit).unwrap()
    };
    let scores = results.iter().map(|one| (one["index"].as_u64().unwrap(), score(one))).collect();
    let headers = answer.headers.get_all("x-rerankd-warning").iter().map(|value| value.to_str().unwrap().to_owned());
    let meta = answer.body.get("meta").map(|meta| meta["warnings"].to_string());
    (scores, headers.chain(meta).collect::<Vec<_>>().join("\n"))
}

#[tokio::test]
async fn a_document_without_text_comes_last_with_a_warning() {
    let server = serve_with(Scripted::default(), alone()).await;
    let blank = [
        "null",
        r#""""#,
        r#"" \n""#,
        r#""\ufeff""#,
        r#"{"text": null}"#,
        r#"{"text": ""}"#,
        r#"{"content": null}"#,
        r#"{"content": []}"#,
        r#"{"title": null, "text": null}"#,
        "{}",
        r#"{"id": 7}"#,
        r#"{"image": "http://x"}"#,
    ];
    for value in blank {
        for entrance in ENTRANCES {
            let (scores, warnings) = told(&ask(&server, entrance, value).await);
            assert_eq!(scores.last().unwrap().0, 1, "{entrance:?} {value}");
            assert!(scores[0].1 > 1e-6 && scores[1].1 < 1e-8, "{entrance:?} {value}: {scores:?}");
            let named = format!("{}[1] is empty", entrance.1);
            assert!(warnings.contains(&named), "{entrance:?} {value}: {warnings}");
        }
    }
    server.stop().await;
}

/// A list of only empty documents is answered, too, because a retriever may return chunks without text.
#[tokio::test]
async fn a_list_of_empty_documents_has_the_score_0() {
    let server = serve_with(Scripted::default(), alone()).await;
    for (path, list) in ENTRANCES {
        let query = if path == "/score" { "text_1" } else { "query" };
        let answer = server.post(path, &json!({ query: "question", list: ["", null, " "] })).await;
        let (scores, warnings) = told(&answer);
        let order: Vec<u64> = scores.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [0, 1, 2], "{path}");
        assert!(scores.iter().all(|(_, score)| *score < 1e-8), "{path}: {scores:?}");
        assert!(warnings.contains(&format!("{list}[0], {list}[1], {list}[2] are empty")), "{path}: {warnings}");
        let chosen = json!({ query: "question", list: ["", null], "rerankd_score_threshold": 0.5 });
        if path != "/score" {
            let (scores, warnings) = told(&server.post(path, &chosen).await);
            assert!(scores.is_empty() && warnings.contains("are empty: left out"), "{path}: {warnings}");
        }
    }
    server.stop().await;
}

/// Each row is read as the text of the second column.
#[tokio::test]
async fn other_forms_of_a_text_are_read() {
    let server = serve_with(Scripted::default(), alone()).await;
    let rows = [
        (r#""the question""#, r#""\ufeffthe question""#, false),
        (r#""the question""#, r#"{"title": "the question"}"#, false),
        (r#""the question""#, r#"{"title": "the question", "text": null}"#, false),
        (r#""the question""#, r#"{"page_content": "the question", "metadata": {"a": 1}}"#, false),
        (r#""the question""#, r#"{"content": ["the question"]}"#, false),
        (r#""1871""#, "1871", false),
        (r#""true""#, r#"{"text": true}"#, false),
        ("\"cut \u{fffd}\"", r#""cut \ud83d""#, true),
        ("\"cut \u{fffd}\"", r#"{"text": "cut \udc00"}"#, true),
    ];
    for (plain, other, repaired) in rows {
        for entrance in ENTRANCES {
            let (expected, _) = told(&ask(&server, entrance, plain).await);
            let (found, warnings) = told(&ask(&server, entrance, other).await);
            assert_eq!(found, expected, "{entrance:?} {other}");
            let named = format!("{}[1]: half a surrogate pair", entrance.1);
            assert_eq!(warnings.contains(&named), repaired, "{entrance:?} {other}: {warnings}");
        }
    }
    server.stop().await;
}

/// A list or an object instead of a text is another program's format, so every document might be misread.
#[tokio::test]
async fn a_list_in_the_place_of_a_text_is_refused_by_name() {
    let server = serve_with(Scripted::default(), alone()).await;
    for (value, field) in [("[\"a\"]", ""), (r#"{"text": ["a"]}"#, ".text"), (r#"{"text": {"a": "b"}}"#, ".text")] {
        for entrance in ENTRANCES {
            let answer = ask(&server, entrance, value).await;
            let named = format!("{}[1]{field}: must be", entrance.1);
            assert!(answer.status == 422 && answer.body.to_string().contains(&named), "{}", answer.body);
        }
    }
    for (path, list) in ENTRANCES {
        let query = if path == "/score" { "text_1" } else { "query" };
        let answer =
            server.post(path, &json!({ query: "question", list: [{ "body": "a" }, { "body": "b" }, null] })).await;
        assert!(answer.status == 422 && answer.body.to_string().contains(&format!("{list}[0].text: must be set")));
        let (_, warnings) = told(&ask(&server, (path, list), r#"{"body": "b"}"#).await);
        assert!(warnings.contains(&format!("{list}[1]: no text field was found")), "{path}: {warnings}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_query_and_the_body_follow_the_same_rules() {
    let server = serve_with(Scripted::default(), alone()).await;
    let ask = async |body: &str| server.send("/v1/rerank", &[], body.to_owned()).await;
    let plain = ask(r#"{"query": "which question", "documents": ["a question", "b"]}"#).await;
    for body in [
        "\u{feff}{\"query\": \"which question\", \"documents\": [\"a question\", \"b\"]}",
        r#"{"query": "\ufeffwhich question", "documents": ["a question", "b"]}"#,
        r#"{"query": {"content": [{"type": "TEXT", "text": "which question"}]}, "documents": ["a question", "b"]}"#,
        r#"{"\ud83d": 1, "query": "which question", "documents": ["a question", "b"]}"#,
    ] {
        assert_eq!(ask(body).await.body["results"], plain.body["results"], "{body}");
    }
    let half = ask(r#"{"query": "which \ud83d", "documents": ["a question", "b"]}"#).await;
    assert!(half.body["meta"]["warnings"][0].as_str().unwrap().starts_with("query: half a surrogate pair"));
    for (priority, status) in [("LOW", 200), ("High", 200), ("urgent", 400)] {
        let body = r#"{"query": "q", "documents": ["a"]}"#.to_owned();
        assert_eq!(server.send("/v1/rerank", &[("rerankd-priority", priority)], body).await.status, status);
    }
    server.stop().await;
}
