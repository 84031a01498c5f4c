//! Calibrations that change while the server runs: what `rerankd calibrate` writes is used without a restart.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::models::ServedGenerator;
use crate::storage::calibrations::CalibrationFile;
use crate::storage::profiles::ProfileFile;

/// Calls `reload` whenever the stamp of a file changes, until the task is aborted.
async fn follow(interval: Duration, stamp: impl Fn() -> Option<(SystemTime, u64)>, reload: impl Fn()) {
    // The file may have changed since the engine loaded it, so the first check always reloads it.
    let mut seen = None;
    loop {
        tokio::time::sleep(interval).await;
        let now = stamp();
        if now == seen || now.is_none() {
            continue;
        }
        reload();
        seen = now;
    }
}

/// Reloads calibrated profiles whenever `file` changes, until the task is aborted.
pub async fn follow_calibration(generator: Arc<ServedGenerator>, file: ProfileFile, interval: Duration) {
    follow(interval, || file.stamp(), || load_profiles(&generator, &file)).await;
}

/// Replaces the calibrated profiles by those of `file`.
pub(super) fn load_profiles(generator: &ServedGenerator, file: &ProfileFile) {
    let bias = &generator.position_bias;
    match file.load() {
        Ok(profiles) => {
            if bias.recalibrate(profiles) {
                tracing::info!(path = %file.path().display(), "calibrated position-bias profiles reloaded");
            }
        }
        Err(problem) => {
            tracing::error!(%problem, "position-bias profiles not used");
            bias.report(problem.to_string());
        }
    }
}

/// Reloads the calibrations of ranking methods whenever `file` changes, until the task is aborted.
pub async fn follow_ranking(generator: Arc<ServedGenerator>, file: CalibrationFile, interval: Duration) {
    follow(interval, || file.stamp(), || load_ranking(&generator, &file)).await;
}

/// Replaces the calibrations of ranking methods by those of `file`.
pub(super) fn load_ranking(generator: &ServedGenerator, file: &CalibrationFile) {
    match file.load() {
        Ok(calibrations) => {
            if generator.calibrations.replace(calibrations) {
                tracing::info!(path = %file.path().display(), "calibrations of ranking methods reloaded");
            }
        }
        Err(problem) => tracing::error!(%problem, "calibrations of ranking methods not used"),
    }
}
