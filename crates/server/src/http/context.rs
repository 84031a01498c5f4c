//! `POST /v1/context`: the body of a ranking with the form of the context, and its answer.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::answer::{About, usage, warnings, with_cost};
use super::json::Object;
use super::problem::{Problem, json_response, seconds};
use super::request::{Asked, Reader};
use engine::types::{BuiltContext, CONTEXT_TOKENS, ContextPassage, ContextRequest, ContextSize, EngineError, LeftOut};
use protocol::convert_context::reason;

/// Most tokens of the text.
const MAX_TOKENS: &str = "max_tokens";
/// Most characters of the text.
const MAX_CHARACTERS: &str = "max_characters";
/// How a passage is written.
const TEMPLATE: &str = "template";
/// Written between passages.
const SEPARATOR: &str = "separator";
/// Most passages with the same title.
const MAX_PER_SOURCE: &str = "max_per_source";
/// Name of the tokenizer that counts tokens.
const TOKENIZER: &str = "tokenizer";

/// Fields that a body has in addition to those of a ranking.
pub(super) const FIELDS: [&str; 6] = [MAX_TOKENS, MAX_CHARACTERS, TEMPLATE, SEPARATOR, MAX_PER_SOURCE, TOKENIZER];

impl Reader {
    /// Reads a body. Blocking, as [`Reader::rerank`].
    pub fn context(&self, body: &[u8]) -> Result<(Asked, ContextRequest), Problem> {
        let object = Self::body(body, &FIELDS)?;
        let asked = self.ranking(&object, object.has("texts"), false)?;
        let request = ContextRequest {
            ranking: asked.request.clone(),
            size: size(&object)?,
            template: object.string(TEMPLATE)?.unwrap_or_default(),
            separator: object.string(SEPARATOR)?,
            most_per_source: object.count(MAX_PER_SOURCE, 0)?.filter(|most| *most > 0),
            tokenizer: object.string(TOKENIZER)?.unwrap_or_default(),
        };
        Ok((asked, request))
    }
}

fn size(object: &Object<'_, '_>) -> Result<ContextSize, EngineError> {
    match (object.count(MAX_TOKENS, 1)?, object.count(MAX_CHARACTERS, 1)?) {
        (Some(_), Some(_)) => Err(EngineError::invalid(MAX_CHARACTERS, "must not be given together with max_tokens")),
        (None, Some(characters)) => Ok(ContextSize::Characters(characters)),
        (tokens, None) => Ok(ContextSize::Tokens(tokens.unwrap_or(CONTEXT_TOKENS))),
    }
}

/// The error with the body's name for its field.
pub(super) fn named(asked: &Asked, mut error: EngineError) -> EngineError {
    if let EngineError::Invalid { field, .. } | EngineError::TooLong { field, .. } = &mut error
        && let Some(of_ranking) = field.strip_prefix("request.")
    {
        *field = of_ranking.to_owned();
    }
    asked.named(error)
}

/// The answer.
pub(super) fn answer(asked: &Asked, built: &BuiltContext, about: &About<'_>, compute: &str) -> Response {
    let passage = |passage: &ContextPassage| {
        json!({
            "index": passage.index, "start": passage.span.start, "end": passage.span.end,
            "relevance_score": passage.score, "utility": passage.utility, "duplicates": passage.duplicates,
            "cut": passage.cut,
        })
    };
    let left_out = |(index, why): &(usize, LeftOut)| {
        let (reason, duplicate_of) = reason(*why);
        let mut item = Map::from_iter([
            ("index".to_owned(), Value::from(*index)),
            ("reason".to_owned(), reason.as_str_name().into()),
        ]);
        item.extend(duplicate_of.map(|of| ("duplicate_of".to_owned(), of.into())));
        Value::from(item)
    };
    let body = json!({
        "id": about.id,
        "object": "context",
        "created": seconds(),
        "model": about.model,
        "text": built.text,
        "tokens": built.tokens,
        "characters": built.characters,
        "passages": built.passages.iter().map(passage).collect::<Vec<_>>(),
        "left_out": built.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "usage": usage(&built.usage),
        "meta": { "reader": built.reader, "warnings": warnings(asked, &built.warnings) },
    });
    with_cost(json_response(StatusCode::OK, &body), asked, &built.usage, compute)
}
