//! The lists in front of a model that gives turns, in tokens, and whether one more can end in time behind them.
//!
//! A list enters with an estimate, before anything is tokenised: its bytes times tokens a byte, which are learnt from the lists
//! that were. Of another list as much is in front of it as that gets done in the turns that this one takes. An entry is gone when
//! its list is answered or dropped, however that comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ScheduleError;
use super::pace::Pace;
use crate::call::Call;
use crate::numeric::{count, real};

/// Tokens a byte before anything is learnt: English text has about four bytes a token.
const PRIOR: f64 = 0.25;

/// Weight of a new list.
const WEIGHT: f64 = 0.125;

/// How large a list is before the model has read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of its texts; 0 where its work is not estimated.
    pub bytes: usize,
    /// Turns that its number of texts takes.
    pub turns: usize,
    /// Most tokens of a turn.
    pub turn: usize,
}

/// The lists of a model.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// How fast the model is.
    pub pace: Pace,
    /// Longest time until a list without a deadline has its last turn; `None` for no bound.
    longest_wait: Option<Duration>,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    open: BTreeMap<u64, Open>,
    next: u64,
    /// Tokens a byte; `None` before anything is learnt.
    ratio: Option<f64>,
}

/// A list that is not answered.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Tokens to evaluate.
    left: usize,
    /// Those of each of its turns, about.
    turn: usize,
}

impl Open {
    fn new(tokens: usize, size: Size) -> Self {
        let turns = size.turns.max(tokens.div_ceil(size.turn.max(1))).max(1);
        Self { left: tokens, turn: tokens.div_ceil(turns) }
    }

    /// Turns that are left of it.
    const fn turns(&self) -> usize {
        if self.turn == 0 { 0 } else { self.left.div_ceil(self.turn) }
    }
}

impl Backlog {
    pub fn new(longest_wait: Option<Duration>) -> Self {
        Self { longest_wait, ..Self::default() }
    }

    /// Enters a list, if it can end in time behind those that are there. A call within the process is always let in.
    ///
    /// # Errors
    /// [`ScheduleError::Overloaded`], or that its deadline could not be met by an idle model.
    pub fn enter(self: &Arc<Self>, call: &Call, size: Size) -> Result<Entry, ScheduleError> {
        let mut lists = self.lists();
        let open = Open::new(count(real(size.bytes) * lists.ratio.unwrap_or(PRIOR)), size);
        if size.bytes > 0 && !call.is_local() {
            let turns = open.turns();
            let ahead = lists
                .open
                .values()
                .fold(0, |sum: usize, other| sum.saturating_add(other.left.min(other.turn.saturating_mul(turns))));
            let time = call.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.pace.admit(open.left, ahead, time, self.longest_wait)?;
        }
        let number = lists.next;
        lists.next += 1;
        lists.open.insert(number, open);
        Ok(Entry { backlog: Arc::clone(self), number, size, known: false })
    }

    /// Tokens of all lists.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.lists().open.values().map(|open| open.left).sum()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A list in the backlog, until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    backlog: Arc<Backlog>,
    number: u64,
    size: Size,
    /// Whether the list was tokenised.
    known: bool,
}

impl Entry {
    /// Says how many tokens are left of the list. The first time this is its exact size, and teaches the next estimates.
    pub fn set(&mut self, left: usize) {
        let mut lists = self.backlog.lists();
        if !std::mem::replace(&mut self.known, true) {
            lists.open.insert(self.number, Open::new(left, self.size));
            if self.size.bytes > 0 {
                let ratio = real(left) / real(self.size.bytes);
                let mean = lists.ratio.get_or_insert(ratio);
                *mean += WEIGHT * (ratio - *mean);
            }
        } else if let Some(open) = lists.open.get_mut(&self.number) {
            open.left = left;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.backlog.lists().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Admission, Place, Stopped, Terms};

    fn size(bytes: usize) -> Size {
        Size { bytes, turns: 1, turn: 1_000 }
    }

    /// A call of a server that has so many milliseconds.
    fn within(milliseconds: u64) -> Call {
        let deadline = Some(Instant::now() + Duration::from_millis(milliseconds));
        Admission::new(1).admit(Terms { deadline, ..Terms::default() }, Place::Beside).unwrap()
    }

    /// A model of 1,000 tokens a second, of which .8 of the time may be filled.
    fn thousand(longest_wait: Option<Duration>) -> Arc<Backlog> {
        let backlog = Arc::new(Backlog::new(longest_wait));
        backlog.pace.record(1_000, Duration::from_secs(1), true);
        backlog
    }

    /// Worked by hand. 8,000 bytes are 2,000 tokens, two turns; 1,200 bytes are 300 tokens, one turn.
    #[test]
    fn a_list_waits_for_as_many_turns_of_each_other_as_it_takes_itself() {
        let backlog = thousand(None);
        let long = backlog.enter(&within(10_000), size(8_000)).unwrap();
        assert_eq!(backlog.total(), 2_000);
        // One turn of 1,000 tokens and 300 of its own: 1.3 seconds.
        let refused = backlog.enter(&within(1_500), size(1_200)).unwrap_err();
        let ScheduleError::Overloaded { retry_after } = refused else { panic!("{refused}") };
        assert!((80..=110).contains(&retry_after.as_millis()), "1.3 of 1.2 seconds: {retry_after:?}");
        let short = backlog.enter(&within(1_700), size(1_200)).unwrap();
        assert_eq!(backlog.total(), 2_300);
        drop((long, short));
        assert_eq!(backlog.total(), 0);
        assert!(backlog.enter(&within(1_500), size(4_000)).is_ok(), "nothing is ahead");
        let never = backlog.enter(&within(100), size(4_000)).unwrap_err();
        assert_eq!(never, Stopped::DeadlineExceeded.into());
    }

    #[test]
    fn lists_of_many_short_texts_take_as_many_turns_as_their_texts() {
        let backlog = thousand(None);
        // 500 tokens in ten turns of 50.
        let _held = backlog.enter(&within(10_000), Size { turns: 10, ..size(2_000) }).unwrap();
        assert!(
            backlog.enter(&within(200), size(400)).is_ok(),
            "50 of the other and 100 of its own: .15 of .16 seconds"
        );
        assert!(backlog.enter(&within(180), size(400)).is_err());
    }

    #[test]
    fn without_a_deadline_the_work_ahead_is_bounded() {
        let backlog = thousand(Some(Duration::from_secs(2)));
        let patient = || Admission::new(1).admit(Terms::default(), Place::Beside).unwrap();
        let _held = [(); 3].map(|()| backlog.enter(&patient(), size(4_000)).unwrap());
        let refused = backlog.enter(&patient(), size(4_000)).unwrap_err();
        assert_eq!(refused, ScheduleError::Overloaded { retry_after: Duration::from_secs(1) });
        assert!(backlog.enter(&Call::local(), size(4_000)).is_ok(), "a call within the process is not asked");
    }

    #[test]
    fn what_a_list_took_teaches_the_next_estimate() {
        let backlog = thousand(None);
        let mut entry = backlog.enter(&Call::local(), size(4_000)).unwrap();
        assert_eq!(backlog.total(), 1_000, "a quarter of the bytes");
        entry.set(2_000);
        entry.set(500);
        assert_eq!(backlog.total(), 500);
        let next = backlog.enter(&Call::local(), size(4_000)).unwrap();
        assert_eq!(backlog.total(), 2_500, "the first size teaches, the rest of a list does not");
        drop((entry, next));
        // Nothing to do, because all was known.
        backlog.enter(&Call::local(), size(4_000)).unwrap().set(0);
        let _held = backlog.enter(&Call::local(), size(4_000)).unwrap();
        assert_eq!(backlog.total(), 1_750);
    }

    #[test]
    fn lists_without_an_estimate_are_in_nobodys_way() {
        let backlog = thousand(None);
        let _held = backlog.enter(&within(1), Size::default()).unwrap();
        assert_eq!(backlog.total(), 0);
        assert!(backlog.enter(&within(1_000), size(3_000)).is_ok());
    }
}
