//! Conversions between messages and engine types: contexts and near-duplicates.

use super::convert_parts::{given, known, narrow, usage, wide};
use super::{convert, v1};
use engine::types::{
    BuiltContext, CONTEXT_TOKENS, ContextPassage, ContextRequest, ContextSize, Dedup, DedupMode, EngineError, LeftOut,
};

pub(super) fn dedup(wire: Option<v1::Dedup>) -> Result<Option<Dedup>, EngineError> {
    let Some(wire) = wire else { return Ok(None) };
    let mode = match known("dedup.mode", wire.mode)? {
        v1::DedupMode::Unspecified | v1::DedupMode::OnePlace => DedupMode::OnePlace,
        v1::DedupMode::PushDown => DedupMode::PushDown,
        v1::DedupMode::Off => DedupMode::Off,
    };
    let similarity = wire.similarity.unwrap_or(Dedup::default().similarity);
    Ok(Some(Dedup { mode, similarity }))
}

pub(super) fn dedup_to_wire(dedup: Dedup) -> v1::Dedup {
    let mode = match dedup.mode {
        DedupMode::OnePlace => v1::DedupMode::OnePlace,
        DedupMode::PushDown => v1::DedupMode::PushDown,
        DedupMode::Off => v1::DedupMode::Off,
    };
    v1::Dedup { mode: mode.into(), similarity: Some(dedup.similarity) }
}

/// Converts a request. `request` must be set.
///
/// # Errors
/// [`EngineError::Invalid`] with the field at fault.
pub fn request(wire: v1::BuildContextRequest) -> Result<ContextRequest, EngineError> {
    let unset = || EngineError::invalid("request", "must be set");
    let ranking = convert::request(wire.request.ok_or_else(unset)?).map_err(|error| error.under("request"))?;
    let size = match (given(wire.max_tokens), given(wire.max_characters)) {
        (Some(_), Some(_)) => {
            return Err(EngineError::invalid("max_characters", "must not be given together with max_tokens"));
        }
        (None, Some(characters)) => ContextSize::Characters(characters),
        (tokens, None) => ContextSize::Tokens(tokens.unwrap_or(CONTEXT_TOKENS)),
    };
    let most_per_source = given(wire.max_per_source);
    let v1::BuildContextRequest { template, separator, tokenizer, .. } = wire;
    Ok(ContextRequest { ranking, size, template, separator, most_per_source, tokenizer })
}

/// Converts a request to a message, for clients.
pub(super) fn request_to_wire(request: &ContextRequest) -> v1::BuildContextRequest {
    let (max_tokens, max_characters) = match request.size {
        ContextSize::Tokens(tokens) => (narrow(tokens), 0),
        ContextSize::Characters(characters) => (0, narrow(characters)),
    };
    v1::BuildContextRequest {
        request: Some(convert::request_to_wire(&request.ranking)),
        max_tokens,
        max_characters,
        template: request.template.clone(),
        separator: request.separator.clone(),
        max_per_source: narrow(request.most_per_source.unwrap_or(0)),
        tokenizer: request.tokenizer.clone(),
    }
}

/// The message of a reason, and the passage that is repeated.
pub fn reason(reason: LeftOut) -> (v1::LeftOutReason, Option<usize>) {
    match reason {
        LeftOut::Budget => (v1::LeftOutReason::Budget, None),
        LeftOut::Duplicate(of) => (v1::LeftOutReason::Duplicate, Some(of)),
        LeftOut::Source => (v1::LeftOutReason::Source, None),
        LeftOut::Ranking => (v1::LeftOutReason::Ranking, None),
        LeftOut::Empty => (v1::LeftOutReason::Empty, None),
    }
}

/// Converts a context of passages with these ids.
pub fn response(built: BuiltContext, ids: &[String]) -> v1::BuildContextResponse {
    let passage = |passage: ContextPassage| v1::ContextPassage {
        id: ids[passage.index].clone(),
        original_index: narrow(passage.index),
        start: wide(passage.span.start),
        end: wide(passage.span.end),
        score: passage.score,
        utility: passage.utility,
        duplicates: passage.duplicates.into_iter().map(narrow).collect(),
        cut: passage.cut,
        compressed: passage.compressed,
    };
    let left_out = |(index, why): (usize, LeftOut)| {
        let (reason, duplicate_of) = reason(why);
        v1::LeftOutPassage {
            id: ids[index].clone(),
            original_index: narrow(index),
            reason: reason.into(),
            duplicate_of: duplicate_of.map(narrow),
        }
    };
    v1::BuildContextResponse {
        text: built.text,
        tokens: wide(built.tokens),
        characters: wide(built.characters),
        passages: built.passages.into_iter().map(passage).collect(),
        left_out: built.left_out.into_iter().map(left_out).collect(),
        context_order: Some(convert::arrangement(&built.arrangement)),
        usage: Some(usage(&built.usage)),
        warnings: built.warnings,
        model: built.model.name,
        reader: built.reader,
    }
}
