//! Conversions that several services share: numbers, passages, truncation and usage.

use super::v1;
use engine::types::{EngineError, Passage, Usage};

/// Converts a count to 32 bits. The limits keep counts far below 2^32; a larger one saturates.
pub fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Converts a count to 64 bits.
pub fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Converts a count or index from a message. A number too large for `usize` saturates and so exceeds every bound.
pub(super) fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Converts an optional count from a message: 0 means absent and selects the server's default.
pub(super) fn given(number: u32) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number > 0)
}

/// Converts an enum value from a message. Refuses a number that the protocol does not define.
pub fn known<T: TryFrom<i32>>(field: &str, value: i32) -> Result<T, EngineError> {
    T::try_from(value).map_err(|_| EngineError::invalid(field, format!("unknown value {value}")))
}

/// Converts passages from a message. A passage without an id gets its index as id.
pub fn passages(wire: Vec<v1::Passage>) -> Vec<Passage> {
    let passage = |(index, passage): (usize, v1::Passage)| Passage {
        id: if passage.id.is_empty() { index.to_string() } else { passage.id },
        title: passage.title,
        text: passage.text,
        retriever_score: passage.retriever_score,
    };
    wire.into_iter().enumerate().map(passage).collect()
}

pub(super) fn passages_to_wire(passages: &[Passage]) -> Vec<v1::Passage> {
    let passage = |passage: &Passage| v1::Passage {
        id: passage.id.clone(),
        text: passage.text.clone(),
        title: passage.title.clone(),
        retriever_score: passage.retriever_score,
    };
    passages.iter().map(passage).collect()
}

/// Converts truncation options to `truncate` and `passage_tokens`; `None` selects the server's default.
pub(super) fn truncation(wire: Option<v1::Truncation>) -> Result<(Option<bool>, Option<usize>), EngineError> {
    let wire = wire.unwrap_or_default();
    let truncate = match known("truncation.mode", wire.mode)? {
        v1::TruncationMode::Unspecified => None,
        v1::TruncationMode::Passages => Some(true),
        v1::TruncationMode::Off => Some(false),
    };
    Ok((truncate, given(wire.max_passage_tokens)))
}

pub(super) fn truncation_to_wire(truncate: Option<bool>, passage_tokens: Option<usize>) -> v1::Truncation {
    let mode = match truncate {
        None => v1::TruncationMode::Unspecified,
        Some(true) => v1::TruncationMode::Passages,
        Some(false) => v1::TruncationMode::Off,
    };
    v1::Truncation { mode: mode.into(), max_passage_tokens: narrow(passage_tokens.unwrap_or(0)) }
}

pub fn usage(usage: &Usage) -> v1::Usage {
    v1::Usage {
        tokens: wide(usage.tokens),
        naive_tokens: wide(usage.naive_tokens),
        cached_tokens: wide(usage.cached_tokens),
        steps: narrow(usage.steps),
        tokenise_ms: usage.tokenise_ms,
        queue_ms: usage.queue_ms,
        score_ms: usage.score_ms,
        fit_ms: usage.fit_ms,
        total_ms: usage.total_ms,
        pairs: narrow(usage.pairs),
        embedding_tokens: wide(usage.embedding_tokens),
    }
}
