//! Follows calibrations that change while the server runs: it uses the output of `rerankd calibrate` without a restart.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::sealed::{Measured, SealedFile};
use crate::app::calibration_file::{CalibrationFile, Calibrations};
use crate::app::profile_file::{Content, ProfileError, ProfileFile};
use engine::fusion::calibration::Calibration;
use engine::models::ServedGenerator;
use moi::profile::Profiles;

/// The result of an attempt to read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Its content is used, or there is no file.
    Taken,
    /// Its content cannot be used. The file was set aside if possible.
    Refused,
    /// The system could not read it.
    Unread,
}

/// The state of a file: its stamp, `None` if there is no file, and the number of files of its name that were set aside.
type Look = (Option<(SystemTime, u64)>, usize);

/// Calls `reload` whenever the stamp of a file changes, and repeatedly while it cannot be read, until the task is
/// aborted. Arguments: true if the last call was for the same file, and the number of files set aside before.
async fn follow(
    interval: Duration,
    look: impl Fn() -> Look + Send + Sync + 'static,
    reload: impl Fn(bool, usize) -> Read + Send + Sync + 'static,
) {
    let (look, reload) = (Arc::new(look), Arc::new(reload));
    // The file may have changed since the engine loaded it, so the first check always reloads it.
    let (mut seen, mut unread, mut aside, mut first) = (None, false, None, true);
    loop {
        tokio::time::sleep(interval).await;
        // Off the reactor: a volume that stops responding would block its thread.
        let looking = Arc::clone(&look);
        let Ok((now, count)) = tokio::task::spawn_blocking(move || looking()).await else { continue };
        // A file that this or another server set aside was not removed by the operator, so its loaded content stays in
        // use.
        let grown = aside.replace(count).is_some_and(|before| before < count);
        let moved = now.is_none() && grown;
        // The removal of a file counts as a change; a file that never existed is not reloaded.
        if moved || (now == seen && !unread && !first) {
            (seen, unread) = (now, unread && !moved);
            continue;
        }
        first = false;
        // A file that could not be read may become readable without a change.
        let (again, reload, looking) = (unread && now == seen, Arc::clone(&reload), Arc::clone(&look));
        let read = tokio::task::spawn_blocking(move || {
            let read = reload(again, count);
            (read, read == Read::Refused && looking().0.is_none())
        });
        let (read, moved) = read.await.unwrap_or((Read::Unread, false));
        (seen, unread) = (now.filter(|_| !moved), read == Read::Unread);
    }
}

/// Reloads the calibration files of a generator at the operator's request. A missing file is left to the following tasks,
/// which know if it was removed, or set aside with its content still in use.
pub fn reload_calibration(generator: &ServedGenerator, (profiles, ranking): &(ProfileFile, CalibrationFile)) {
    reload(generator, profiles);
    reload(generator, ranking);
}

fn reload<M: Followed>(generator: &ServedGenerator, file: &SealedFile<M>) {
    // Counted before the file is read: a file that another server sets aside after this was not removed by the operator.
    let aside = file.set_aside_so_far();
    if file.stamp().is_some() {
        load(generator, file, false, aside);
    }
}

/// Measurements that a server reloads.
pub trait Followed: Measured + 'static {
    /// Their name in the log.
    const NAME: &'static str;
    /// Their name in the log after they were reloaded.
    const RELOADED: &'static str = Self::NAME;

    /// Replaces the loaded measurements. True if they differ.
    fn replace(generator: &ServedGenerator, measured: Self::Value) -> bool;

    /// Tells callers why a file is not used. `unread` if the system could not read it.
    fn report(_: &ServedGenerator, _problem: String, _unread: bool) {}
}

impl Followed for Content {
    const NAME: &'static str = "position-bias profiles";
    const RELOADED: &'static str = "calibrated position-bias profiles";

    fn replace(generator: &ServedGenerator, profiles: Profiles) -> bool {
        generator.position_bias.recalibrate(profiles)
    }

    fn report(generator: &ServedGenerator, problem: String, unread: bool) {
        let bias = &generator.position_bias;
        // The loaded profiles stay in use while the file cannot be read.
        if unread { bias.report_unread(problem) } else { bias.report(problem) }
    }
}

impl Followed for Calibrations {
    const NAME: &'static str = "calibrations of ranking methods";

    fn replace(generator: &ServedGenerator, calibrations: Vec<Calibration>) -> bool {
        generator.calibrations.replace(calibrations)
    }
}

/// Reloads the measurements whenever `file` changes, until the task is aborted.
pub async fn follow_calibration<M: Followed>(generator: Arc<ServedGenerator>, file: SealedFile<M>, interval: Duration) {
    let file = Arc::new(file);
    let stamped = Arc::clone(&file);
    let look = move || {
        // Counted first, so that a file set aside by another server after that is told apart from a removed one.
        let aside = stamped.set_aside_so_far();
        (stamped.stamp(), aside)
    };
    follow(interval, look, move |again, aside| load(&generator, &file, again, aside)).await;
}

/// Replaces the loaded measurements by those in `file`; `aside` is the number of files set aside before it was read. A
/// repeated failure is not logged.
fn load<M: Followed>(generator: &ServedGenerator, file: &SealedFile<M>, again: bool, aside: usize) -> Read {
    match file.find() {
        // Another server has set it aside meanwhile: the loaded measurements stay.
        Ok(None) if file.set_aside_so_far() > aside => Read::Refused,
        Ok(measured) => {
            if M::replace(generator, measured.unwrap_or_default()) {
                tracing::info!(path = %file.path().display(), "{} reloaded", M::RELOADED);
            }
            Read::Taken
        }
        Err(problem) => {
            let unread = matches!(problem, ProfileError::File { .. });
            if !(unread && again) {
                tracing::error!(%problem, "{} not used", M::NAME);
                M::report(generator, problem.to_string(), unread);
            }
            if unread { Read::Unread } else { Read::Refused }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Otherwise a removed calibration would stay in force until a restart, and replicas would differ.
    #[tokio::test]
    async fn a_file_that_is_gone_is_a_change() {
        let there = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (calls, seen) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&there));
        let counted = Arc::clone(&calls);
        let stamp = move || (seen.load(Ordering::Relaxed).then_some((SystemTime::UNIX_EPOCH, 1)), 1);
        let reload = move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Read::Taken
        };
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

    /// Otherwise the check after a damaged file was set aside would drop the loaded calibration.
    #[tokio::test]
    async fn a_file_that_is_set_aside_is_no_change() {
        let there = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (calls, moved) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&there));
        let counted = Arc::clone(&calls);
        let stamp = move || {
            let is_there = there.load(Ordering::Relaxed);
            (is_there.then_some((SystemTime::UNIX_EPOCH, 1)), usize::from(!is_there))
        };
        let reload = move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            moved.store(false, Ordering::Relaxed);
            Read::Refused
        };
        let following = tokio::spawn(follow(Duration::from_millis(1), stamp, reload));
        tokio::time::sleep(Duration::from_millis(200)).await;
        following.abort();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    /// Not only after it changes.
    #[tokio::test]
    async fn a_file_that_could_not_be_read_is_read_again() {
        let (calls, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, noted) = (Arc::clone(&calls), Arc::clone(&again));
        let stamp = || (Some((SystemTime::UNIX_EPOCH, 1)), 0);
        let reload = move |again, _| {
            noted.lock().unwrap().push(again);
            if counted.fetch_add(1, Ordering::Relaxed) == 2 { Read::Taken } else { Read::Unread }
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
