//! Conversions between messages and engine types: fusion, and the stages of a ranking.

use std::sync::Arc;

use super::convert_parts::known;
use super::v1;
use engine::types::{
    Background, EngineError, FusionMode, FusionOptions, FusionReport, RankingStage, Scaling, ScoreParts, Source,
};

pub(super) fn options(wire: Option<v1::Fusion>) -> Result<FusionOptions, EngineError> {
    let Some(wire) = wire else { return Ok(FusionOptions::default()) };
    let mode = match known("fusion.mode", wire.mode)? {
        v1::FusionMode::Unspecified => FusionMode::ByMethod,
        v1::FusionMode::Off => FusionMode::Off,
        v1::FusionMode::On => FusionMode::On,
        v1::FusionMode::Bm25 => FusionMode::Bm25,
    };
    let scaling = match known("fusion.scaling", wire.scaling)? {
        v1::FusionScaling::Unspecified => None,
        v1::FusionScaling::Floor => Some(Scaling::Floor),
        v1::FusionScaling::MinMax => Some(Scaling::MinMax),
        v1::FusionScaling::Standard => Some(Scaling::Standard),
        v1::FusionScaling::ReciprocalRank => Some(Scaling::ReciprocalRank),
    };
    let background = wire
        .background
        .map(|background| Background { documents: background.documents, frequencies: background.frequencies })
        .map(Arc::new);
    let (weight, embedding) = (wire.weight, wire.embedding_weight);
    Ok(FusionOptions { mode, weight, embedding, scaling, background, ..FusionOptions::default() })
}

pub(super) fn options_to_wire(options: &FusionOptions) -> v1::Fusion {
    let mode = match options.mode {
        FusionMode::ByMethod => v1::FusionMode::Unspecified,
        FusionMode::Off => v1::FusionMode::Off,
        FusionMode::On => v1::FusionMode::On,
        FusionMode::Bm25 => v1::FusionMode::Bm25,
    };
    v1::Fusion {
        mode: mode.into(),
        weight: options.weight,
        embedding_weight: options.embedding,
        scaling: options.scaling.map_or(v1::FusionScaling::Unspecified, scaling_to_wire).into(),
        background: options.background.as_ref().map(|background| v1::Background {
            documents: background.documents,
            frequencies: background.frequencies.clone(),
        }),
    }
}

const fn scaling_to_wire(scaling: Scaling) -> v1::FusionScaling {
    match scaling {
        Scaling::Floor => v1::FusionScaling::Floor,
        Scaling::MinMax => v1::FusionScaling::MinMax,
        Scaling::Standard => v1::FusionScaling::Standard,
        Scaling::ReciprocalRank => v1::FusionScaling::ReciprocalRank,
    }
}

pub(super) fn report(report: FusionReport) -> v1::FusionReport {
    let source = match report.source {
        Source::Retriever => v1::FusionSource::Retriever,
        Source::Bm25 => v1::FusionSource::Bm25,
    };
    v1::FusionReport {
        source: source.into(),
        scaling: scaling_to_wire(report.scaling).into(),
        weight: report.weight,
        embedding_weight: report.embedding,
    }
}

pub(super) const fn signals(signals: ScoreParts) -> v1::Signals {
    let ScoreParts { model, embedding, source } = signals;
    v1::Signals { model, embedding, source }
}

pub(super) const fn stage(stage: RankingStage) -> v1::Stage {
    match stage {
        RankingStage::Retriever => v1::Stage::Retriever,
        RankingStage::Alone => v1::Stage::Alone,
        RankingStage::Together => v1::Stage::Together,
    }
}
