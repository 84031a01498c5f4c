//! `POST /v1/context`: the body of a ranking with the form of the context, and its answer.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{About, usage, warnings, with_cost};
use super::json::Object;
use super::problem::{Problem, json_response, seconds};
use super::request::{Asked, Reader};
use engine::types::{
    BuiltContext, CONTEXT_TOKENS, Compression, CompressionMethod, CompressionUnit, ContextPassage, ContextRequest,
    ContextSize, EngineError, LeftOut,
};
use protocol::convert_context::reason;
use rag_metrics::brief;

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
/// How documents are shortened if they do not all fit.
const COMPRESSION: &str = "compression";

/// Fields that a body has in addition to those of a ranking.
pub(super) const FIELDS: [&str; 7] =
    [MAX_TOKENS, MAX_CHARACTERS, TEMPLATE, SEPARATOR, MAX_PER_SOURCE, TOKENIZER, COMPRESSION];

impl Reader {
    /// Reads a body. Blocking, as [`Reader::rerank`].
    pub fn context(&self, body: &[u8]) -> Result<(Asked, ContextRequest), Problem> {
        let object = Self::body(body, &FIELDS)?;
        let mut asked = self.ranking(&object, object.has("texts"), false)?;
        asked.request.compression = compression(&object)?;
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

/// [`Compression`] in a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compressed {
    #[serde(default)]
    method: Method,
    unit: Option<Unit>,
    ratio: Option<f64>,
    target_tokens: Option<usize>,
    ratio_spread: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum Method {
    #[default]
    LongLlmLingua,
    SelectiveContext,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    Sentence,
    Phrase,
    Token,
}

fn compression(object: &Object<'_, '_>) -> Result<Option<Compression>, EngineError> {
    let Some(value) = object.raw(COMPRESSION) else { return Ok(None) };
    let read = serde_json::from_str::<Compressed>(value.get());
    let Compressed { method, unit, ratio, target_tokens, ratio_spread } = read.map_err(|error| {
        let text = error.to_string();
        let problem = text.rsplit_once(" at line ").map_or(text.as_str(), |(problem, _)| problem);
        EngineError::invalid(COMPRESSION, brief(problem).into_owned())
    })?;
    let method = match method {
        Method::LongLlmLingua => CompressionMethod::LongLlmLingua,
        Method::SelectiveContext => CompressionMethod::SelectiveContext,
    };
    let unit = unit.map(|unit| match unit {
        Unit::Sentence => CompressionUnit::Sentence,
        Unit::Phrase => CompressionUnit::Phrase,
        Unit::Token => CompressionUnit::Token,
    });
    Ok(Some(Compression { method, unit, ratio, target_tokens, ratio_spread }))
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
            "cut": passage.cut, "compressed": passage.compressed,
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
