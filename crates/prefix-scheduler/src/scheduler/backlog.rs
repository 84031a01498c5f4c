//! The lists in front of a model that gives turns, in tokens, and whether one more can end in time behind them.
//!
//! A list enters with an estimate, before anything is tokenised: its bytes times the tokens per byte of earlier lists. Lists are
//! served round-robin, so another list delays it by at most as many turns as it needs itself. An entry is removed when nobody waits
//! for its list any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::ScheduleError;
use super::pace::{Kind, Pace};
use crate::call::Call;
use numeric::{count, real};

/// Tokens per byte before anything is learnt: English text has about four bytes per token.
const PRIOR: f64 = 0.25;

/// Bounds of what one list may teach. Cached results cost nothing, but the next list may have fewer of them.
const TAUGHT: (f64, f64) = (0.025, 2.0);

/// Weight of a new list.
const WEIGHT: f64 = 0.125;

/// How large a list is before the model has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of its texts.
    pub bytes: usize,
    /// Most tokens that it may have.
    pub most: usize,
    /// Turns that its number of texts takes.
    pub turns: usize,
    /// Most tokens of a turn.
    pub turn: usize,
    /// True if it may be refused. Work that has begun is never refused.
    pub refusable: bool,
    /// True if a part of it is an answer: then only what is ahead of it has to end in time.
    pub partial: bool,
}

impl Size {
    /// Of a list whose work is not estimated.
    pub const UNKNOWN: Self = Self { bytes: 0, most: 0, turns: 0, turn: 0, refusable: false, partial: false };
}

/// The lists of a model.
#[derive(Debug)]
pub(super) struct Backlog {
    /// How fast the model is.
    pub pace: Pace,
    /// Longest time until a list without a deadline has its last turn; `None` for no bound.
    longest_wait: Option<Duration>,
    lists: Mutex<Lists>,
}

#[derive(Debug)]
struct Lists {
    open: BTreeMap<u64, Open>,
    next: u64,
    /// Tokens per byte.
    ratio: f64,
}

/// A list that is not answered.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Tokens to evaluate.
    left: usize,
    /// Approximate tokens of each of its turns.
    turn: usize,
}

impl Open {
    fn new(tokens: usize, size: Size) -> Self {
        let turns = size.turns.max(tokens.div_ceil(size.turn.max(1))).max(1);
        Self { left: tokens, turn: tokens.div_ceil(turns) }
    }

    /// Turns that are left of it.
    const fn turns(&self) -> usize {
        if self.turn == 0 { 1 } else { self.left.div_ceil(self.turn) }
    }
}

impl Lists {
    /// A list of this size, and the tokens of others that get done before it ends.
    fn estimate(&self, size: Size) -> (Open, usize) {
        let open = Open::new(count(real(size.bytes) * self.ratio).min(size.most), size);
        let turns = open.turns();
        let ahead = |other: &Open| other.left.min(other.turn.saturating_mul(turns));
        (open, self.open.values().map(ahead).fold(0, usize::saturating_add))
    }
}

impl Backlog {
    pub fn new(longest_wait: Option<Duration>) -> Self {
        let lists = Lists { open: BTreeMap::new(), next: 0, ratio: PRIOR };
        Self { pace: Pace::default(), longest_wait, lists: Mutex::new(lists) }
    }

    /// Enters a list for which its caller waits until `due`, if it can end in time behind those that are there. A list with nothing
    /// in front of it is let in: its estimate may be wrong, and the next estimate is learnt from it. So is that of a call within
    /// the process.
    ///
    /// # Errors
    /// [`ScheduleError::Overloaded`], or that the list could not end in time on an idle model.
    pub fn enter(self: &Arc<Self>, call: &Call, size: Size, due: Option<Instant>) -> Result<Entry, ScheduleError> {
        self.enter_at(call, size, due, Instant::now())
    }

    fn enter_at(
        self: &Arc<Self>,
        call: &Call,
        size: Size,
        due: Option<Instant>,
        now: Instant,
    ) -> Result<Entry, ScheduleError> {
        let mut lists = self.lists();
        let time = due.map(|due| due.saturating_duration_since(now));
        let size = match self.pace.full().zip(time).filter(|_| size.partial) {
            // It takes what there is time for, in one turn if others wait.
            Some((speed, time)) => Size { most: size.most.min(count(speed * time.as_secs_f64())), turns: 1, ..size },
            None => size,
        };
        let (open, ahead) = lists.estimate(size);
        if size.refusable && ahead > 0 && !call.is_local() {
            let own = if size.partial { 0 } else { open.left };
            self.pace.admit((own, Kind::Reads), ahead, time, self.longest_wait)?;
        }
        let number = lists.next;
        lists.next += 1;
        lists.open.insert(number, open);
        Ok(Entry { backlog: Arc::clone(self), number, size })
    }

    /// How long a list of this size takes behind those that are there, at the latest speed; `None` before the first full turn.
    pub fn expected(&self, size: Size) -> Option<Duration> {
        let (open, ahead) = self.lists().estimate(size);
        let tokens = real(ahead.saturating_add(open.left));
        Duration::try_from_secs_f64(tokens / self.pace.full()?).ok()
    }

    /// Tokens of all lists.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.lists().open.values().map(|open| open.left).sum()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock()
    }
}

/// A list in the backlog, for as long as somebody waits for it.
#[derive(Debug)]
pub(super) struct Entry {
    backlog: Arc<Backlog>,
    number: u64,
    size: Size,
}

impl Entry {
    /// The receiver of the worker's reports on the list's progress.
    pub const fn report(&self) -> Report {
        Report { number: self.number, size: self.size, is_known: false }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.backlog.lists().open.remove(&self.number);
    }
}

/// Receives the progress of a list.
#[derive(Debug)]
pub(super) struct Report {
    number: u64,
    size: Size,
    /// True if its exact size was reported.
    is_known: bool,
}

impl Report {
    /// True if the list may be refused, and so dropped.
    pub const fn is_refusable(&self) -> bool {
        self.size.refusable
    }

    /// Says how many tokens are left of the list. The first time this is its exact size, and teaches the next estimates.
    pub fn set(&mut self, backlog: &Backlog, left: usize) {
        let mut lists = backlog.lists();
        let is_known = std::mem::replace(&mut self.is_known, true);
        if !is_known && self.size.bytes > 0 {
            let ratio = (real(left) / real(self.size.bytes)).clamp(TAUGHT.0, TAUGHT.1);
            lists.ratio += WEIGHT * (ratio - lists.ratio);
        }
        if let Some(open) = lists.open.get_mut(&self.number) {
            *open = if is_known { Open { left, ..*open } } else { Open::new(left, self.size) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Admission, Place, Terms};

    const SIZE: Size = Size { bytes: 0, most: usize::MAX, turns: 1, turn: 1_000, refusable: true, partial: false };

    fn size(bytes: usize) -> Size {
        Size { bytes, ..SIZE }
    }

    /// A model of 1,000 tokens per second, of which 0.8 of the time may be filled, and a call of its server.
    struct Bench {
        backlog: Arc<Backlog>,
        call: Call,
        now: Instant,
    }

    impl Bench {
        fn new(longest_wait: Option<Duration>) -> Self {
            let backlog = Arc::new(Backlog::new(longest_wait));
            backlog.pace.record(1_000, Duration::from_secs(1), true);
            let call = Admission::new(1).admit(Terms::default(), Place::Beside).unwrap();
            Self { backlog, call, now: Instant::now() }
        }

        fn enter(&self, size: Size, milliseconds: u64) -> Result<Entry, ScheduleError> {
            let due = self.now + Duration::from_millis(milliseconds);
            self.backlog.enter_at(&self.call, size, Some(due), self.now)
        }
    }

    fn later(milliseconds: u64) -> ScheduleError {
        ScheduleError::Overloaded { retry_after: Duration::from_millis(milliseconds) }
    }

    /// Worked by hand. 8,000 bytes are 2,000 tokens, two turns; 1,200 bytes are 300 tokens, one turn.
    #[test]
    fn a_list_waits_for_as_many_turns_of_each_other_as_it_takes_itself() {
        let bench = Bench::new(None);
        let long = bench.enter(size(8_000), 10_000).unwrap();
        assert_eq!(bench.backlog.total(), 2_000);
        // One turn of 1,000 tokens of the other list and 300 of this one: 1.3 seconds.
        assert_eq!(bench.enter(size(1_200), 1_500).unwrap_err(), later(100), "1.3 of 1.2 seconds");
        assert_eq!(bench.backlog.expected(size(1_200)), Some(Duration::from_millis(1_300)));
        assert_eq!(Backlog::new(None).expected(size(1_200)), None, "nothing was measured");
        let short = bench.enter(size(1_200), 1_700).unwrap();
        assert_eq!(bench.backlog.total(), 2_300);
        drop((long, short));
        assert_eq!(bench.backlog.total(), 0);
        assert!(bench.enter(size(40_000), 100).is_ok(), "nothing is ahead, and the estimate may be wrong");
    }

    #[test]
    fn lists_of_many_short_texts_take_as_many_turns_as_their_texts() {
        let bench = Bench::new(None);
        // 500 tokens in ten turns of 50.
        let _held = bench.enter(Size { turns: 10, ..size(2_000) }, 10_000).unwrap();
        assert!(bench.enter(size(400), 200).is_ok(), "50 of the other and 100 of its own: .15 of .16 seconds");
        assert!(bench.enter(size(400), 180).is_err());
    }

    #[test]
    fn without_a_deadline_the_work_ahead_is_bounded() {
        let bench = Bench::new(Some(Duration::from_secs(2)));
        let patient = |call: &Call| bench.backlog.enter(call, size(4_000), None);
        let _held = [(); 3].map(|()| patient(&bench.call).unwrap());
        assert_eq!(patient(&bench.call).unwrap_err(), later(1_000));
        assert!(patient(&Call::local()).is_ok(), "a call within the process is not asked");
        let begun = Size { refusable: false, ..size(4_000) };
        assert!(bench.backlog.enter(&bench.call, begun, None).is_ok(), "nor is work that was begun");
    }

    #[test]
    fn what_a_list_took_teaches_the_next_estimate() {
        let bench = Bench::new(None);
        let entry = bench.enter(size(4_000), 60_000).unwrap();
        assert_eq!(bench.backlog.total(), 1_000, "a quarter of the bytes");
        let mut report = entry.report();
        report.set(&bench.backlog, 5_000);
        report.set(&bench.backlog, 500);
        assert_eq!(bench.backlog.total(), 500);
        drop(entry);
        // An eighth of the way from 0.25 to 1.25.
        let next = bench.enter(size(4_000), 60_000).unwrap();
        assert_eq!(bench.backlog.total(), 1_500, "the first size teaches, the rest of a list does not");
        drop(next);
        report.set(&bench.backlog, 100);
        assert_eq!(bench.backlog.total(), 0, "nobody waits for it any more");
        let _bounded = bench.enter(Size { most: 70, ..size(4_000) }, 60_000).unwrap();
        assert_eq!(bench.backlog.total(), 70);
    }

    /// Lists whose vectors were all cached, and lists of texts that are only the prompt format.
    #[test]
    fn strange_lists_teach_little() {
        let bench = Bench::new(None);
        for tokens in [0, usize::MAX] {
            for _ in 0..100 {
                let entry = bench.enter(size(4_000), 60_000).unwrap();
                entry.report().set(&bench.backlog, tokens);
            }
            let _held = bench.enter(size(4_000), 60_000).unwrap();
            assert!((100..=8_000).contains(&bench.backlog.total()), "{}", bench.backlog.total());
        }
    }

    #[test]
    fn lists_without_an_estimate_are_in_nobodys_way() {
        let bench = Bench::new(None);
        let held = bench.enter(Size::UNKNOWN, 1).unwrap();
        assert_eq!(bench.backlog.total(), 0);
        held.report().set(&bench.backlog, 300);
        assert_eq!(bench.backlog.total(), 300, "until it has a size");
    }
}
