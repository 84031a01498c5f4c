//! Counters of the generator's worker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::scheduler::pace::Pace;
use numeric::real;

/// Counters of the worker, readable at any time.
#[derive(Debug, Default)]
pub struct Stats {
    /// Tokens evaluated.
    pub tokens: AtomicU64,
    /// Tokens not evaluated, because an earlier request, or an earlier round of the request, had evaluated them.
    pub cached_tokens: AtomicU64,
    /// Microseconds inside the model.
    pub busy_micros: AtomicU64,
    /// Steps.
    pub steps: AtomicU64,
    /// Steps by size: entry `i` counts those of more than 2^(i-1) and at most 2^i tokens, the last one all larger ones.
    pub step_sizes: [AtomicU64; 16],
    /// Tokens of the finished plans if every prompt were evaluated from its beginning.
    pub naive_tokens: AtomicU64,
    /// Cells of active requests and of prompt prefixes.
    pub cells: AtomicUsize,
    /// 1 while the next request waits only for cells or sequences; 0 otherwise.
    pub full: AtomicUsize,
    /// Waiting requests.
    pub waiting: AtomicUsize,
    /// Running requests.
    pub active: AtomicUsize,
    /// Requests abandoned because their caller left or their deadline passed.
    pub abandoned: AtomicU64,
    /// Best speed of any large step so far, in tokens per second.
    best_speed: AtomicU64,
    /// Present speed.
    pub(super) pace: Pace,
    /// [`crate::model::Generator::saves_cheaply`], once it is loaded.
    pub(super) saves_cheaply: AtomicBool,
}

impl Stats {
    /// Counts a step of this many tokens.
    fn count_step(&self, tokens: usize) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let size = tokens.next_power_of_two().trailing_zeros() as usize;
        self.step_sizes[size.min(self.step_sizes.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Mean speed so far in tokens per second; `None` before the first step.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let micros = self.busy_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| count(self.tokens.load(Ordering::Relaxed)) * 1e6 / count(micros))
    }

    /// Current speed of reading prompts, in tokens per second; `None` before the first step.
    #[must_use]
    pub fn reading_speed(&self) -> Option<f64> {
        self.pace.reading(count(self.best_speed.load(Ordering::Relaxed)))
    }

    /// Records that a request had no time to read anything at the present speed.
    pub fn mark_idle(&self) {
        self.pace.mark_idle();
    }

    /// Least time for this many tokens, by twice the best speed seen: a bound for refusals, not an estimate.
    pub(super) fn surely_takes(&self, tokens: usize) -> Duration {
        match self.best_speed.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            speed => Duration::from_secs_f64(real(tokens) / (2.0 * count(speed))),
        }
    }

    /// Counts a step of `tokens` tokens on a generator with the given batch size. The speed of a step with only `idle`
    /// work is not recorded: such steps are short by design, and do not show how fast a request is served.
    pub(super) fn measure(&self, tokens: usize, took: Duration, batch: usize, idle: bool) {
        // Steps below a quarter of the batch do not represent the machine's speed.
        let full = tokens * 4 >= batch;
        if !idle {
            self.pace.record(tokens, took, full);
        }
        self.count_step(tokens);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        self.busy_micros.fetch_add(micros, Ordering::Relaxed);
        if full && !idle {
            self.best_speed.fetch_max(tokens.saturating_mul(1_000_000) / micros, Ordering::Relaxed);
        }
    }

    /// Resets the gauges, because the counted work is lost with the worker.
    pub(super) fn reset_gauges(&self) {
        for gauge in [&self.active, &self.waiting, &self.full, &self.cells] {
            gauge.store(0, Ordering::Relaxed);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
const fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_work_is_counted_without_its_speed() {
        let (stats, second) = (Stats::default(), Duration::from_secs(1));
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.measure(32, second, 64, true);
        assert_eq!([&stats.tokens, &stats.busy_micros, &stats.steps].map(counted), [32, 1_000_000, 1]);
        assert!(stats.pace.speed().is_none() && stats.reading_speed().is_none());
        assert_eq!(stats.surely_takes(1), Duration::ZERO);
        stats.measure(64, second, 64, false);
        let speed = stats.reading_speed();
        assert!(speed.is_some() && stats.surely_takes(64) > Duration::ZERO);
        stats.measure(32, 10 * second, 64, true);
        assert_eq!(stats.reading_speed(), speed);
        assert_eq!([&stats.tokens, &stats.steps].map(counted), [128, 3]);
    }
}
