//! Answers. One envelope has the fields that clients of Cohere, Jina, vLLM and llama-server read; text-embeddings-inference's
//! is a bare list.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::own;
use super::request::Asked;
use super::score::AskedScores;
use crate::engine::rerank::{PairScores, Ranked, Reranked, Usage};
use crate::peers::{ComputeCost, characters};

/// A warning beside a bare list; one header for each.
const WARNING: HeaderName = HeaderName::from_static("x-rerankd-warning");

/// What an answer says of itself.
pub(super) struct About<'a> {
    /// The request's id.
    pub id: &'a str,
    /// The model that ran.
    pub model: &'a str,
    /// The version of Cohere's API.
    pub version: &'a str,
}

/// A response with a JSON body.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Seconds since 1970.
pub(super) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The answer to a ranking.
pub(super) fn reranked(asked: &Asked, ranked: &Reranked, about: &About<'_>, compute: &str) -> Response {
    if asked.tei {
        return tei(asked, ranked, compute);
    }
    let results: Vec<Value> = ranked.passages.iter().map(|passage| item(asked, passage, "relevance_score")).collect();
    let warnings = warnings(asked, ranked);
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
    }
    let body = json!({
        "id": about.id,
        "object": "list",
        "model": about.model,
        "usage": usage(&ranked.usage),
        "meta": meta,
        "results": results,
    });
    json_response(StatusCode::OK, &body)
}

fn warnings(asked: &Asked, ranked: &Reranked) -> Vec<String> {
    asked.warnings.iter().cloned().chain(ranked.warnings.iter().map(|warning| own::said(warning))).collect()
}

/// The answer in text-embeddings-inference's shape, with its headers.
fn tei(asked: &Asked, ranked: &Reranked, compute: &str) -> Response {
    let results: Vec<Value> = ranked.passages.iter().map(|passage| item(asked, passage, "score")).collect();
    let mut response = json_response(StatusCode::OK, &Value::from(results));
    let request = &asked.request;
    let count = characters(&request.query, request.passages.iter().map(|passage| passage.text.as_str()));
    for (name, value) in ComputeCost::new(count, &ranked.usage).headers(compute) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    // A bare list has no other place for them.
    for warning in warnings(asked, ranked) {
        let line: String = warning.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        if let Ok(value) = HeaderValue::from_str(&line) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

fn item(asked: &Asked, passage: &Ranked, score: &str) -> Value {
    let mut item = Map::new();
    item.insert("index".into(), passage.index.into());
    item.insert(score.into(), (if asked.raw_scores { passage.utility } else { passage.score }).into());
    if passage.tokens_cut > 0 {
        item.insert("tokens_cut".into(), passage.tokens_cut.into());
    }
    if asked.details {
        own::add_details(&mut item, passage);
    }
    if let Some(document) = asked.request.passages.get(passage.index).filter(|_| asked.echo) {
        let (key, value) = if asked.tei {
            ("text", Value::from(document.text.as_str()))
        } else {
            ("document", json!({ "text": document.text }))
        };
        item.insert(key.into(), value);
    }
    item.into()
}

/// The answer with the scores of pairs, in the order of the pairs.
pub(super) fn scored(asked: &AskedScores, scored: &PairScores, id: &str, model: &str) -> Response {
    let each = scored.scores.iter().enumerate();
    let data: Vec<Value> = each
        .map(|(index, pair)| {
            let score = if asked.raw_scores { pair.utility } else { pair.score };
            let mut entry = json!({ "index": index, "object": "score", "score": score });
            if pair.tokens_cut > 0 {
                entry["tokens_cut"] = pair.tokens_cut.into();
            }
            entry
        })
        .collect();
    let body = json!({
        "id": id,
        "object": "list",
        "created": seconds(),
        "model": model,
        "data": data,
        "usage": usage(&scored.usage),
        "warnings": asked.warning.iter().cloned().chain(scored.warnings.iter().map(|one| own::said(one))).collect::<Vec<_>>(),
    });
    json_response(StatusCode::OK, &body)
}

/// Tokens evaluated or reused.
fn tokens(usage: &Usage) -> usize {
    usage.tokens + usage.cached_tokens
}

fn usage(usage: &Usage) -> Value {
    json!({ "prompt_tokens": tokens(usage), "total_tokens": tokens(usage), "completion_tokens": 0 })
}
