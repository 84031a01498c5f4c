//! Calibrations that change while the server runs: what `rerankd calibrate` writes is used without a restart.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::models::ServedGenerator;
use crate::storage::calibrations::CalibrationFile;
use crate::storage::profiles::{ProfileError, ProfileFile};

/// Calls `reload` whenever the stamp of a file changes, and again while it returns false, until the task is aborted. Its argument is
/// whether it was just called for the same file.
async fn follow(
    interval: Duration,
    stamp: impl Fn() -> Option<(SystemTime, u64)> + Send + Sync + 'static,
    reload: impl Fn(bool) -> bool + Send + Sync + 'static,
) {
    let (stamp, reload) = (Arc::new(stamp), Arc::new(reload));
    // The file may have changed since the engine loaded it, so the first check always reloads it.
    let (mut seen, mut unread) = (None, false);
    loop {
        tokio::time::sleep(interval).await;
        // Off the reactor: a volume that stops answering would hold its thread.
        let stamp = Arc::clone(&stamp);
        let Ok(now) = tokio::task::spawn_blocking(move || stamp()).await else { continue };
        // What was there and is gone counts as a change; what never was is not looked for.
        if now == seen && !unread {
            continue;
        }
        // A file that could not be read may be read later without a change of it.
        let (again, reload) = (unread && now == seen, Arc::clone(&reload));
        unread = !tokio::task::spawn_blocking(move || reload(again)).await.unwrap_or(false);
        seen = now;
    }
}

/// Reloads calibrated profiles whenever `file` changes, until the task is aborted.
pub async fn follow_calibration(generator: Arc<ServedGenerator>, file: ProfileFile, interval: Duration) {
    let file = Arc::new(file);
    let stamped = Arc::clone(&file);
    follow(interval, move || stamped.stamp(), move |again| load_profiles(&generator, &file, again)).await;
}

/// Replaces the calibrated profiles by those of `file`. False where the system did not let us read it.
/// Of an attempt that fails again there is no line in the log.
pub(super) fn load_profiles(generator: &ServedGenerator, file: &ProfileFile, again: bool) -> bool {
    let bias = &generator.position_bias;
    match file.load() {
        Ok(profiles) => {
            if bias.recalibrate(profiles) {
                tracing::info!(path = %file.path().display(), "calibrated position-bias profiles reloaded");
            }
            true
        }
        Err(problem) => {
            let unread = matches!(problem, ProfileError::File { .. });
            if !(unread && again) {
                tracing::error!(%problem, "position-bias profiles not used");
                // What could not be read is in use as before, and is read again.
                if !unread {
                    bias.report(problem.to_string());
                }
            }
            !unread
        }
    }
}

/// Reloads the calibrations of ranking methods whenever `file` changes, until the task is aborted.
pub async fn follow_ranking(generator: Arc<ServedGenerator>, file: CalibrationFile, interval: Duration) {
    let file = Arc::new(file);
    let stamped = Arc::clone(&file);
    follow(interval, move || stamped.stamp(), move |again| load_ranking(&generator, &file, again)).await;
}

/// Replaces the calibrations of ranking methods by those of `file`. False where the system did not let us read it.
/// Of an attempt that fails again there is no line in the log.
pub(super) fn load_ranking(generator: &ServedGenerator, file: &CalibrationFile, again: bool) -> bool {
    match file.load() {
        Ok(calibrations) => {
            if generator.calibrations.replace(calibrations) {
                tracing::info!(path = %file.path().display(), "calibrations of ranking methods reloaded");
            }
            true
        }
        Err(problem) => {
            let unread = matches!(problem, ProfileError::File { .. });
            if !(unread && again) {
                tracing::error!(%problem, "calibrations of ranking methods not used");
            }
            !unread
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// It stayed in force until a restart, and replicas differed.
    #[tokio::test]
    async fn a_file_that_is_gone_is_a_change() {
        let there = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (calls, seen) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&there));
        let counted = Arc::clone(&calls);
        let stamp = move || seen.load(Ordering::Relaxed).then_some((SystemTime::UNIX_EPOCH, 1));
        let reload = move |_| counted.fetch_add(1, Ordering::Relaxed) < 9;
        let following = tokio::spawn(follow(Duration::from_millis(1), stamp, reload));
        let reached = |calls: Arc<AtomicUsize>, count| async move {
            while calls.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ten = Duration::from_secs(10);
        tokio::time::timeout(ten, reached(Arc::clone(&calls), 1)).await.expect("it is read at first");
        there.store(false, Ordering::Relaxed);
        tokio::time::timeout(ten, reached(Arc::clone(&calls), 2)).await.expect("its end is no change");
        tokio::time::sleep(Duration::from_millis(30)).await;
        following.abort();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    /// A file that could not be read once was not read again until it changed.
    #[tokio::test]
    async fn a_file_that_could_not_be_read_is_read_again() {
        let (calls, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, noted) = (Arc::clone(&calls), Arc::clone(&again));
        let stamp = || Some((SystemTime::UNIX_EPOCH, 1));
        let reload = move |again| {
            noted.lock().unwrap().push(again);
            counted.fetch_add(1, Ordering::Relaxed) == 2
        };
        let following = tokio::spawn(follow(Duration::from_millis(1), stamp, reload));
        let third = async {
            while calls.load(Ordering::Relaxed) < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), third).await.expect("it is not read again");
        tokio::time::sleep(Duration::from_millis(30)).await;
        following.abort();
        assert_eq!(*again.lock().unwrap(), [false, true, true], "it was read at the third attempt");
    }
}
