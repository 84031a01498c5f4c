//! Answers. One envelope has the fields that clients of Cohere, Jina, vLLM and llama-server read;
//! text-embeddings-inference sends a bare list.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::own;
use super::problem::{json_response, seconds};
use super::request::Asked;
use super::score::AskedScores;
use crate::peers::{self, characters, cost_headers, in_a_header, tokens};
use engine::types::{PairScores, Ranked, Reranked, Usage};

/// The JSON around the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope {
    /// For Cohere, Jina, vLLM and llama-server.
    List,
    /// As `List`, with the object name that infinity's client wants.
    Rerank,
    /// For NVIDIA NIM, with log-odds.
    Rankings,
}

/// Scores are clamped to `LEAST..=1 - LEAST` for log-odds: an empty document has score 0, which has no finite log-odds.
const LEAST: f64 = 1e-9;

/// Properties of an answer.
pub(super) struct About<'a> {
    /// The request's id.
    pub id: &'a str,
    /// The model that ran.
    pub model: &'a str,
    /// The version of Cohere's API.
    pub version: &'a str,
    /// The JSON around the results.
    pub envelope: Envelope,
}

/// The answer to a ranking.
pub(super) fn reranked(asked: &Asked, ranked: &Reranked, about: &About<'_>, compute: &str) -> Response {
    if asked.tei {
        return tei(asked, ranked, compute);
    }
    if about.envelope == Envelope::Rankings {
        return rankings(asked, ranked, compute);
    }
    let results = items(asked, ranked, "relevance_score");
    let warnings = warnings(asked, &ranked.warnings);
    let mut meta = json!({
        "api_version": { "version": about.version },
        "billed_units": { "search_units": 1 },
        "tokens": { "input_tokens": tokens(&ranked.usage), "output_tokens": 0 },
        "cached_tokens": ranked.usage.cached_tokens,
        "score_calibrated": ranked.score_calibrated,
        "none_helps": ranked.none_helps,
        "none_relevant": ranked.none_relevant,
        "warnings": warnings,
    });
    if asked.details {
        meta["context_order"] = json!(ranked.arrangement.order);
        if let Some(fit) = &ranked.fit {
            meta["position_bias"] = json!(fit.bias);
        }
    }
    let body = json!({
        "id": about.id,
        "object": if about.envelope == Envelope::Rerank { "rerank" } else { "list" },
        "created": seconds(),
        "model": about.model,
        "usage": usage(&ranked.usage),
        "meta": meta,
        "results": results,
    });
    with_cost(json_response(StatusCode::OK, &body), asked, &ranked.usage, compute)
}

/// The answer in NVIDIA NIM's shape.
fn rankings(asked: &Asked, ranked: &Reranked, compute: &str) -> Response {
    let mut items: Vec<Value> =
        ranked.passages.iter().map(|passage| own_item(asked, passage, "logit").into()).collect();
    for item in items.iter_mut().filter(|_| !asked.raw_scores) {
        let score = item["logit"].as_f64().unwrap_or_default().clamp(LEAST, 1.0 - LEAST);
        item["logit"] = (score / (1.0 - score)).ln().into();
    }
    let body = json!({ "rankings": items, "usage": usage(&ranked.usage) });
    let response = with_cost(json_response(StatusCode::OK, &body), asked, &ranked.usage, compute);
    warned(response, warnings(asked, &ranked.warnings))
}

/// Adds the cost headers of text-embeddings-inference.
pub(super) fn with_cost(mut response: Response, asked: &Asked, usage: &Usage, compute: &str) -> Response {
    let request = &asked.request;
    let count = characters(&request.query, request.passages.iter().map(|passage| passage.text.as_str()));
    for (name, value) in cost_headers(count, usage, compute) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

pub(super) fn warnings(asked: &Asked, of_engine: &[String]) -> Vec<String> {
    asked.warnings.iter().cloned().chain(of_engine.iter().map(|warning| asked.said(warning))).collect()
}

/// The answer in text-embeddings-inference's shape, with its headers.
fn tei(asked: &Asked, ranked: &Reranked, compute: &str) -> Response {
    let response = json_response(StatusCode::OK, &Value::from(items(asked, ranked, "score")));
    warned(with_cost(response, asked, &ranked.usage, compute), warnings(asked, &ranked.warnings))
}

/// Adds warnings as headers, for a protocol whose body has no field for them.
fn warned(mut response: Response, warnings: Vec<String>) -> Response {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&in_a_header(&warning)) {
            response.headers_mut().append(HeaderName::from_static(peers::WARNING), value);
        }
    }
    response
}

fn items(asked: &Asked, ranked: &Reranked, score: &str) -> Vec<Value> {
    ranked.passages.iter().map(|passage| item(asked, passage, score)).collect()
}

fn insert_text(item: &mut Map<String, Value>, asked: &Asked, text: &str) {
    let (key, value) = if asked.tei { ("text", Value::from(text)) } else { ("document", json!({ "text": text })) };
    item.insert(key.into(), value);
}

fn item(asked: &Asked, passage: &Ranked, score: &str) -> Value {
    let mut item = own_item(asked, passage, score);
    if let Some(document) = asked.request.passages.get(passage.index).filter(|_| asked.echo) {
        insert_text(&mut item, asked, &document.text);
    }
    item.into()
}

/// An item without the text of its passage.
fn own_item(asked: &Asked, passage: &Ranked, score: &str) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("index".into(), passage.index.into());
    item.insert(score.into(), (if asked.raw_scores { passage.utility } else { passage.score }).into());
    if !passage.duplicates.is_empty() {
        item.insert("duplicates".into(), passage.duplicates.clone().into());
    }
    if asked.details {
        own::add_details(&mut item, passage);
    }
    item
}

/// The answer with the scores of pairs, in the order of the pairs.
pub(super) fn scored(asked: &AskedScores, scored: &PairScores, id: &str, model: &str) -> Response {
    let each = scored.scores.iter().enumerate().map(|(index, pair)| {
        let score = if asked.raw_scores { pair.utility } else { pair.score };
        let mut entry = json!({ "index": index, "object": "score", "score": score });
        if asked.details {
            entry["utility"] = pair.utility.into();
            entry["tokens_cut"] = pair.tokens_cut.into();
        }
        entry
    });
    let body = json!({
        "id": id,
        "object": "list",
        "created": seconds(),
        "model": model,
        "data": each.collect::<Vec<Value>>(),
        "usage": usage(&scored.usage),
    });
    let engine = scored.warnings.iter().map(|warning| asked.said(warning));
    warned(json_response(StatusCode::OK, &body), asked.warnings.iter().cloned().chain(engine).collect())
}

pub(super) fn usage(usage: &Usage) -> Value {
    json!({ "prompt_tokens": tokens(usage), "total_tokens": tokens(usage), "completion_tokens": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator's answer or a folder's name in a warning may have such letters.
    #[test]
    fn a_warning_with_letters_beyond_ascii_stays_in_its_header() {
        let value = in_a_header("gave \"Zürich\"\r\nX: 1");
        assert_eq!(value, "gave \"Z\\u{fc}rich\"  X: 1");
        assert!(HeaderValue::from_str(&value).is_ok());
    }
}
