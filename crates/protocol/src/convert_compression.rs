//! Conversions between messages and engine types: compression.

use super::convert_parts::{given, known, narrow, wide};
use super::v1;
use engine::types::{
    CompressedPassage, Compression, CompressionMethod, CompressionReport, CompressionUnit, EngineError,
};

pub(super) fn options(wire: Option<v1::Compression>) -> Result<Option<Compression>, EngineError> {
    let Some(wire) = wire else { return Ok(None) };
    let method = match known("compression.method", wire.method)? {
        v1::CompressionMethod::SelectiveContext => CompressionMethod::SelectiveContext,
        v1::CompressionMethod::Unspecified | v1::CompressionMethod::LongLlmLingua => CompressionMethod::LongLlmLingua,
    };
    let unit = match known("compression.unit", wire.unit)? {
        v1::CompressionUnit::Unspecified => None,
        v1::CompressionUnit::Sentence => Some(CompressionUnit::Sentence),
        v1::CompressionUnit::Phrase => Some(CompressionUnit::Phrase),
        v1::CompressionUnit::Token => Some(CompressionUnit::Token),
    };
    let (ratio, target_tokens, ratio_spread) = (wire.ratio, given(wire.target_tokens), wire.ratio_spread);
    Ok(Some(Compression { method, unit, ratio, target_tokens, ratio_spread }))
}

pub(super) fn options_to_wire(options: &Compression) -> v1::Compression {
    v1::Compression {
        method: method_to_wire(options.method).into(),
        unit: options.unit.map_or(v1::CompressionUnit::Unspecified, unit_to_wire).into(),
        ratio: options.ratio,
        target_tokens: narrow(options.target_tokens.unwrap_or(0)),
        ratio_spread: options.ratio_spread,
    }
}

pub(super) fn report(report: CompressionReport) -> v1::CompressionReport {
    let passage = |passage: CompressedPassage| v1::CompressedPassage {
        original_index: narrow(passage.index),
        dropped: passage.is_dropped(),
        compressed_text: passage.text,
        tokens_before: narrow(passage.tokens_before),
        tokens_after: narrow(passage.tokens_after),
    };
    v1::CompressionReport {
        method: method_to_wire(report.method).into(),
        unit: unit_to_wire(report.unit).into(),
        tokens_before: wide(report.passages.iter().map(|passage| passage.tokens_before).sum()),
        tokens_after: wide(report.passages.iter().map(|passage| passage.tokens_after).sum()),
        tokens_evaluated: wide(report.tokens_evaluated),
        passages: report.passages.into_iter().map(passage).collect(),
    }
}

const fn method_to_wire(method: CompressionMethod) -> v1::CompressionMethod {
    match method {
        CompressionMethod::SelectiveContext => v1::CompressionMethod::SelectiveContext,
        CompressionMethod::LongLlmLingua => v1::CompressionMethod::LongLlmLingua,
    }
}

const fn unit_to_wire(unit: CompressionUnit) -> v1::CompressionUnit {
    match unit {
        CompressionUnit::Sentence => v1::CompressionUnit::Sentence,
        CompressionUnit::Phrase => v1::CompressionUnit::Phrase,
        CompressionUnit::Token => v1::CompressionUnit::Token,
    }
}
