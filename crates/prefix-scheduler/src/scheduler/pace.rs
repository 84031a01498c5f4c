//! The current speed of a model, and which work can end in time at that speed.
//!
//! Speeds are means over recent work: every [`HALF_LIFE`] seconds inside the model halve the weight of earlier
//! work. If a machine slows down, because of other programs or another kind of work, the speed follows within
//! seconds.
//!
//! A process that was halted for a minute within a step must not appear slow for ever and refuse all work that
//! would show its real speed. So one step counts as at most [`LONGEST`]. After a [`SILENCE`] without full steps no
//! request is refused for its own size, and the next full step replaces the earlier ones if it is faster.

use std::time::{Duration, Instant};

use numeric::real;
use parking_lot::Mutex;

use super::ScheduleError;
use crate::call::Stopped;

/// Seconds inside the model that halve the weight of earlier steps.
const HALF_LIFE: f64 = 2.0;

/// Most seconds that one step counts as, with its share of tokens.
const LONGEST: f64 = 2.0 * HALF_LIFE;

/// Without a full step for this long, the present speed of full steps is unknown.
const SILENCE: Duration = Duration::from_secs(2);

/// Seconds that halve the weight of a speed at which no request could be served.
const FORGET: f64 = 15.0;

/// Share of the time left that admitted work may fill. The rest is for tokenising, fits and errors of the estimate.
pub const FILL: f64 = 0.8;

/// A request is dropped if it could not end even at this multiple of the present speed.
pub const OPTIMISM: f64 = 1.25;

/// Bounds of a suggested delay before a retry, in seconds.
const RETRY: (f64, f64) = (0.05, 60.0);

/// Present speeds of a model.
#[derive(Debug, Default)]
pub struct Pace(Mutex<Speeds>);

#[derive(Debug, Default, Clone, Copy)]
struct Speeds {
    /// All steps: the speed at which the admitted work shrinks.
    all: Mean,
    /// Steps that fill at least a quarter of a batch: the speed of reading prompts.
    full: Mean,
    /// When the last full step ended.
    last: Option<Instant>,
    /// Start of the time in which no request could be served at this speed.
    idle_since: Option<Instant>,
}

impl Speeds {
    /// Speed for refusals; `None` if it is unknown.
    fn fastest(&self, now: Instant) -> Option<f64> {
        let recent = self.last.is_some_and(|last| now.saturating_duration_since(last) <= SILENCE);
        self.full.speed().filter(|_| recent)
    }

    /// Speed of reading prompts: the speed of full steps, or of all steps if that is higher, as after a step in
    /// which the process was halted.
    fn reading(&self) -> Option<f64> {
        self.full.speed().into_iter().chain(self.all.speed()).reduce(f64::max)
    }

    /// Speed that gives the time of a request of this kind.
    fn of(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Reads => self.reading(),
            Kind::Draws => self.all.speed(),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Mean {
    tokens: f64,
    seconds: f64,
}

impl Mean {
    fn record(&mut self, tokens: f64, seconds: f64) {
        let share = (LONGEST / seconds).min(1.0);
        let (tokens, seconds) = (tokens * share, seconds * share);
        let weight = (-seconds / HALF_LIFE).exp2();
        self.tokens = self.tokens * weight + tokens;
        self.seconds = self.seconds * weight + seconds;
    }

    fn speed(self) -> Option<f64> {
        (self.tokens > 0.0 && self.seconds > 0.0).then(|| self.tokens / self.seconds)
    }
}

/// The model's work for a request. It decides at which speed the time of the request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It reads prompts. Samples of other requests grow in the same steps.
    Reads,
    /// It also draws tokens. Each takes a step, which is slow if nothing is read in it.
    Draws,
}

impl Pace {
    /// Records a step of `tokens` tokens. `full`: it filled a quarter of a batch or more.
    pub fn record(&self, tokens: usize, took: Duration, full: bool) {
        let mut speeds = self.0.lock();
        let (tokens, seconds) = (real(tokens), took.as_secs_f64());
        speeds.all.record(tokens, seconds);
        speeds.idle_since = None;
        if full {
            let now = Instant::now();
            // If the step began in silence and is faster than the earlier ones, those do not show the present
            // speed. A slower step may only be the first after a pause.
            let before = speeds.fastest(now.checked_sub(took).unwrap_or(now)).is_none();
            if before && speeds.full.speed().is_none_or(|speed| tokens > speed * seconds) {
                speeds.full = Mean::default();
            }
            speeds.full.record(tokens, seconds);
            speeds.last = Some(now);
        }
    }

    fn speeds(&self) -> Speeds {
        *self.0.lock()
    }

    /// Tokens per second over all latest steps; `None` before the first step.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        self.speeds().all.speed()
    }

    /// Tokens per second of the latest full steps, however long ago; `None` before the first.
    #[must_use]
    pub fn full(&self) -> Option<f64> {
        self.speeds().full.speed()
    }

    /// Reports that no request could be served at the present speed, so that no step will measure a better one.
    pub fn mark_idle(&self) {
        let mut speeds = self.0.lock();
        speeds.idle_since.get_or_insert_with(Instant::now);
    }

    /// Speed of reading prompts in tokens per second; `None` before the first step.
    ///
    /// If the model is [idle](Self::mark_idle), it rises towards the `best` observed speed until the next step, so
    /// that a too low measurement is eventually repeated.
    #[must_use]
    pub fn reading(&self, best: f64) -> Option<f64> {
        self.reading_at(best, Instant::now())
    }

    fn reading_at(&self, best: f64, now: Instant) -> Option<f64> {
        let speeds = self.speeds();
        let speed = speeds.reading()?;
        let idle = speeds.idle_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let believed = (-idle.as_secs_f64() / FORGET).exp2();
        Some(speed + (best - speed).max(0.0) * (1.0 - believed))
    }

    /// By how much `left` tokens exceed `share` of `time`; `None` if they fit, or the speed is unknown.
    #[must_use]
    pub fn late_by(&self, left: usize, time: Duration, share: f64) -> Option<Duration> {
        self.late_at(left, time, share, Instant::now())
    }

    fn late_at(&self, left: usize, time: Duration, share: f64, now: Instant) -> Option<Duration> {
        let late = real(left) / self.speeds().fastest(now)? - share * time.as_secs_f64();
        (late > 0.0).then(|| delay(late))
    }

    /// Decides if `own` tokens of this kind may be admitted behind `ahead` tokens of any kind.
    ///
    /// With a deadline, `time` is left of it, and both must fit. Without one, `wait` bounds the time until the work
    /// begins. Before the first step the speed is unknown, and everything is admitted. Also admitted is a request
    /// with nothing ahead that takes less than twice its time, because the next estimate is learnt from it.
    ///
    /// # Errors
    /// [`ScheduleError::Overloaded`], or [`Stopped::DeadlineExceeded`] if the work could not end in time even on an
    /// idle machine.
    pub fn admit(
        &self,
        (own, kind): (usize, Kind),
        ahead: usize,
        time: Option<Duration>,
        wait: Option<Duration>,
    ) -> Result<(), ScheduleError> {
        self.admit_at((own, kind), ahead, time, wait, Instant::now())
    }

    fn admit_at(
        &self,
        (own, kind): (usize, Kind),
        ahead: usize,
        time: Option<Duration>,
        wait: Option<Duration>,
        now: Instant,
    ) -> Result<(), ScheduleError> {
        let speeds = self.speeds();
        let Some(speed) = speeds.of(kind) else { return Ok(()) };
        let (own, ahead) = (real(own) / speed, real(ahead) / speed);
        let (needed, allowed) = match (time, wait) {
            (Some(time), _) => {
                // The estimate may be wrong, so a request is refused for its own size only if it is far too large.
                if speeds.fastest(now).is_some_and(|fastest| own * speed > 2.0 * fastest * time.as_secs_f64()) {
                    return Err(Stopped::DeadlineExceeded.into());
                }
                (ahead + own, time.as_secs_f64() * FILL)
            }
            (None, Some(wait)) => (ahead, wait.as_secs_f64()),
            (None, None) => return Ok(()),
        };
        if ahead > 0.0 && needed > allowed {
            return Err(ScheduleError::Overloaded { retry_after: delay(needed - allowed) });
        }
        Ok(())
    }
}

fn delay(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(RETRY.0, RETRY.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A generator that reads 1,000 tokens per second.
    fn thousand() -> Pace {
        let pace = Pace::default();
        pace.record(1_000, SECOND, true);
        pace
    }

    fn hopeless(pace: &Pace, left: usize, time: Duration) -> bool {
        pace.late_by(left, time, OPTIMISM).is_some()
    }

    fn later(retry_after: Duration) -> Result<(), ScheduleError> {
        Err(ScheduleError::Overloaded { retry_after })
    }

    #[test]
    fn before_the_first_step_everything_is_admitted() {
        let pace = Pace::default();
        assert_eq!(pace.admit((usize::MAX, Kind::Reads), usize::MAX, Some(SECOND), None), Ok(()));
        assert!(!hopeless(&pace, usize::MAX, SECOND));
    }

    /// Worked by hand: samples alone take 20 tokens per second, prompts are read at 1,000.
    #[test]
    fn prompts_are_counted_at_the_speed_at_which_they_are_read() {
        let (pace, three) = (thousand(), Some(3 * SECOND));
        for _ in 0..2_000 {
            pace.record(1, SECOND / 20, false);
        }
        assert_eq!(pace.admit((400, Kind::Reads), 2_000, three, None), Ok(()), "2.4 of 2.4 seconds");
        assert!(pace.admit((400, Kind::Draws), 2_000, three, None).is_err(), "120 seconds");
        assert_eq!(pace.admit((1, Kind::Reads), 10_000, None, Some(10 * SECOND)), Ok(()));
        assert!(pace.admit((1, Kind::Draws), 10_000, None, Some(10 * SECOND)).is_err());
    }

    /// Worked by hand at 1,000 tokens per second, of which 0.8 of the time left may be filled.
    #[test]
    fn a_deadline_bounds_what_is_ahead_and_the_work_itself() {
        let pace = thousand();
        let three = Some(3 * SECOND);
        assert_eq!(pace.admit((400, Kind::Reads), 2_000, three, None), Ok(()), "2.4 of 2.4 seconds");
        let refused = pace.admit((400, Kind::Reads), 2_500, three, None);
        assert_eq!(refused, later(Duration::from_millis(500)), "2.9 of 2.4 seconds");
        assert_eq!(pace.admit((2_900, Kind::Reads), 0, three, None), Ok(()), "nothing is ahead");
        assert_eq!(pace.admit((6_001, Kind::Reads), 0, three, None), Err(Stopped::DeadlineExceeded.into()));
    }

    #[test]
    fn without_a_deadline_the_wait_is_bounded() {
        let pace = thousand();
        assert_eq!(pace.admit((90_000, Kind::Reads), 9_000, None, Some(10 * SECOND)), Ok(()));
        let refused = pace.admit((1, Kind::Reads), 12_000, None, Some(10 * SECOND));
        assert_eq!(refused, later(2 * SECOND));
        assert_eq!(pace.admit((1, Kind::Reads), usize::MAX, None, None), Ok(()), "no bound is set");
    }

    #[test]
    fn what_cannot_end_even_at_a_better_speed_is_hopeless() {
        let pace = thousand();
        assert!(!hopeless(&pace, 1_250, SECOND));
        assert!(hopeless(&pace, 1_251, SECOND));
        assert!(hopeless(&pace, 1, Duration::ZERO));
        assert!(!hopeless(&pace, 0, Duration::ZERO));
    }

    #[test]
    fn a_machine_that_slows_down_is_known_within_seconds() {
        let pace = thousand();
        for _ in 0..30 {
            pace.record(20, SECOND / 5, true);
        }
        let speed = pace.speed().unwrap();
        assert!((100.0..200.0).contains(&speed), "{speed} after six seconds at 100");
        // Samples grow slowly; prompts are still read fast.
        let pace = thousand();
        for _ in 0..200 {
            pace.record(2, SECOND / 20, false);
        }
        assert!(pace.speed().unwrap() < 100.0);
        assert!(!hopeless(&pace, 1_000, SECOND));
    }

    /// A latency budget is spent on prompts. Neither an hour of sampling nor a halted process may shrink it to one
    /// passage.
    #[test]
    fn prompts_are_read_at_the_speed_of_full_steps() {
        assert_eq!(Pace::default().reading(1_000.0), None);
        let pace = thousand();
        for _ in 0..2_000 {
            pace.record(2, SECOND / 20, false);
        }
        assert!(pace.speed().unwrap() < 50.0);
        assert!((pace.reading(0.0).unwrap() - 1_000.0).abs() < 1.0, "{:?}", pace.reading(0.0));
        let halted = thousand();
        halted.record(512, Duration::from_hours(1), true);
        assert!(halted.reading(1_000.0).unwrap() < 200.0);
        // If later requests have too little time to read anything, nothing is measured; the old speeds lose half
        // their weight in 15 seconds.
        let later = Instant::now() + Duration::from_secs_f64(FORGET);
        assert!(halted.reading_at(1_000.0, later).unwrap() < 200.0, "a pause alone says nothing");
        halted.mark_idle();
        let (before, after) = (halted.reading(1_000.0).unwrap(), halted.reading_at(1_000.0, later).unwrap());
        assert!((after - f64::midpoint(before, 1_000.0)).abs() < 1.0, "{before} {after}");
        assert_eq!(halted.reading_at(50.0, later), halted.reading(0.0), "never below what was measured");
        for _ in 0..40 {
            halted.record(100, SECOND / 10, false);
        }
        assert!(halted.reading(0.0).unwrap() > 600.0, "{:?}", halted.reading(0.0));
    }

    /// A process that was halted within a step refused every later request with a deadline, and so never measured
    /// its speed again.
    #[test]
    fn a_halt_in_the_middle_of_a_step_is_forgotten() {
        let pace = thousand();
        pace.record(512, Duration::from_mins(1), true);
        let (three, now) = (3 * SECOND, Instant::now());
        assert!(pace.speed().unwrap() > 50.0, "one step counts as four seconds");
        assert_eq!(
            pace.admit_at((2_000, Kind::Reads), 0, Some(three), None, now),
            Err(Stopped::DeadlineExceeded.into()),
            "as far as is known"
        );
        assert!(pace.late_at(2_000, three, OPTIMISM, now).is_some());
        let later = now + SILENCE + SECOND;
        assert_eq!(pace.admit_at((2_000, Kind::Reads), 0, Some(three), None, later), Ok(()));
        assert!(pace.late_at(2_000, three, OPTIMISM, later).is_none(), "it is tried");
        // Small steps are not evidence about full ones.
        pace.record(3, SECOND / 100, false);
        assert!(pace.late_at(2_000, three, OPTIMISM, later).is_none());
        // The first full step after the silence counts: the request is not dropped because of earlier steps.
        pace.0.lock().last = now.checked_sub(SILENCE + SECOND);
        pace.record(512, SECOND / 2, true);
        assert!(
            pace.late_at(1_488, three, OPTIMISM, now).is_none() && pace.late_at(4_000, three, OPTIMISM, now).is_some()
        );
    }

    proptest! {
        /// Any numbers give a delay within its bounds.
        #[test]
        fn retries_are_bounded(own in any::<usize>(), ahead in any::<usize>(), time in any::<u32>(), steps in proptest::collection::vec((0_usize..10_000, 0_u64..10_000_000), 0..8)) {
            let pace = Pace::default();
            for (tokens, micros) in steps {
                pace.record(tokens, Duration::from_micros(micros), true);
            }
            let time = Duration::from_millis(u64::from(time));
            for (time, wait) in [(Some(time), None), (None, Some(time))] {
                if let Err(ScheduleError::Overloaded { retry_after: delay }) = pace.admit((own, Kind::Reads), ahead, time, wait) {
                    prop_assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_mins(1));
                }
            }
        }
    }
}
