//! Conversions of models, profiles, calibrations and cached passages to messages.

use engine::fusion::calibration::Calibration;
use engine::prefill::PrefillProgress;
use moi::profile::{Origin, Profile, Profiles, Subject};
use prefix_scheduler::model::AdapterInfo;

use crate::convert_parts::{narrow, wide};
use crate::v1;

/// Converts progress.
pub fn warm_progress(model: &str, progress: &PrefillProgress) -> v1::WarmPassagesResponse {
    v1::WarmPassagesResponse {
        passages: narrow(progress.done),
        present: narrow(progress.present),
        kept: narrow(progress.kept),
        tokens: wide(progress.tokens),
        model: model.to_owned(),
    }
}

pub fn adapter_to_wire(adapter: &AdapterInfo) -> v1::AdapterInfo {
    v1::AdapterInfo { name: adapter.name.clone(), sha256: adapter.sha256.clone(), scale: adapter.scale }
}

/// Converts a calibration.
pub fn calibration_to_wire(calibration: &Calibration) -> v1::RankingCalibration {
    v1::RankingCalibration {
        method: calibration.method.clone(),
        fused_with: calibration.mix.map(|mix| mix.source.name().to_owned()).unwrap_or_default(),
        fusion_weight: calibration.mix.map(|mix| mix.weight),
        embedding_weight: calibration.mix.and_then(|mix| mix.embedding),
        intercept: calibration.score.intercept,
        slope: calibration.score.slope,
        lists: narrow(calibration.lists),
        passages: narrow(calibration.passages),
        calibration_error: calibration.calibration_error,
        embedding_sha256: calibration.embedding.clone().unwrap_or_default(),
        outranks_per_nat: calibration.outranks_per_nat,
        model_sha256: calibration.model.clone().unwrap_or_default(),
    }
}

#[must_use]
pub const fn subject_to_wire(subject: Subject) -> v1::ProfileSubject {
    match subject {
        Subject::Answer => v1::ProfileSubject::Answer,
        Subject::Question => v1::ProfileSubject::Question,
    }
}

#[must_use]
pub const fn origin_to_wire(origin: Origin) -> v1::ProfileOrigin {
    match origin {
        Origin::Calibrated => v1::ProfileOrigin::Calibrated,
        Origin::BuiltIn => v1::ProfileOrigin::BuiltIn,
        Origin::Learnt => v1::ProfileOrigin::Learnt,
    }
}

/// Converts profiles to messages. The command line prints local profiles from the same messages.
pub fn profiles_to_wire(profiles: &[(Origin, Profiles)]) -> Vec<v1::PositionProfile> {
    let entry = |origin: Origin, (subject, passages, profile): (Subject, usize, &Profile)| v1::PositionProfile {
        subject: subject_to_wire(subject).into(),
        passages: narrow(passages),
        observations: profile.count(),
        means: profile.means().to_vec(),
        standard_errors: profile.standard_errors().unwrap_or_default(),
        origin: origin_to_wire(origin).into(),
    };
    profiles.iter().flat_map(|(origin, profiles)| profiles.iter().map(move |each| entry(*origin, each))).collect()
}
