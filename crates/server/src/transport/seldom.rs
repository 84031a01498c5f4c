//! Lines of the log that a caller from outside can cause: one in ten seconds, so that nobody fills the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Keeps a flood of connections from becoming a flood of log lines.
pub(super) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Whether a line may be written now: how many were not since the last one.
    pub fn is_due(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, untold) = &mut *state;
        if last.is_some_and(|last| last.elapsed() < BETWEEN_LINES) {
            *untold += 1;
            return None;
        }
        *last = Some(Instant::now());
        Some(std::mem::take(untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_at_once_the_first_is_written() {
        let seldom = Seldom::new();
        assert_eq!([(); 4].map(|()| seldom.is_due()), [Some(0), None, None, None]);
        seldom.0.lock().unwrap().0 = Instant::now().checked_sub(BETWEEN_LINES);
        assert_eq!([(); 2].map(|()| seldom.is_due()), [Some(3), None]);
    }
}
