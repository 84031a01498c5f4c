//! Work that was admitted and is not done, in tokens, by priority and caller.
//!
//! A call enters its estimated tokens when it is admitted ([`Call::reserve`](super::Call::reserve)) and takes them off as they are
//! evaluated. The rest is taken off when it ends ([`Call::run`](super::Call::run)) or its last clone is dropped, so nothing
//! stays behind however a call ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Call, Priority};

type Key = (Priority, Arc<str>);
type Entries = BTreeMap<Key, usize>;

/// Tokens in front of one model. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

impl Ledger {
    /// Tokens of all calls.
    #[must_use]
    pub fn total(&self) -> usize {
        self.with(|entries| entries.values().fold(0, |sum: usize, tokens| sum.saturating_add(*tokens)))
    }

    /// Tokens that are evaluated before `own` new tokens of `caller` have been, if callers of equal priority have equal
    /// shares and more urgent ones come first: all that is more urgent, all of the caller's own, and of every other caller of
    /// the same priority as much as this caller gets meanwhile.
    #[must_use]
    pub fn ahead(&self, priority: Priority, caller: &str, own: usize) -> usize {
        self.with(|entries| ahead(entries, priority, caller, own))
    }

    /// True if it is the ledger of the same model.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn with<T>(&self, read: impl FnOnce(&mut Entries) -> T) -> T {
        read(&mut self.0.lock())
    }
}

fn ahead(entries: &Entries, priority: Priority, caller: &str, own: usize) -> usize {
    let of_caller: usize = entries.get(&(priority, Arc::from(caller))).copied().unwrap_or(0);
    let share = of_caller.saturating_add(own);
    entries.iter().fold(0, |sum: usize, ((level, other), tokens)| match level.cmp(&priority) {
        std::cmp::Ordering::Less => sum.saturating_add(*tokens),
        std::cmp::Ordering::Equal if **other == *caller => sum.saturating_add(*tokens),
        std::cmp::Ordering::Equal => sum.saturating_add((*tokens).min(share)),
        std::cmp::Ordering::Greater => sum,
    })
}

fn enter(entries: &mut Entries, key: &Key, tokens: usize) {
    if tokens > 0 {
        let sum = entries.entry(key.clone()).or_default();
        *sum = sum.saturating_add(tokens);
    }
}

/// The tokens of one call in one ledger.
#[derive(Debug)]
struct Entry {
    ledger: Ledger,
    key: Key,
    /// Tokens in the ledger.
    left: usize,
}

impl Entry {
    fn take_off(&mut self, tokens: usize) {
        let less = tokens.min(self.left);
        self.left -= less;
        if less > 0 {
            self.ledger.with(|entries| {
                if let Some(sum) = entries.get_mut(&self.key) {
                    *sum = sum.saturating_sub(less);
                    if *sum == 0 {
                        entries.remove(&self.key);
                    }
                }
            });
        }
    }
}

/// The tokens of one call in the ledgers of the models that work for it.
#[derive(Debug, Default)]
pub(super) struct Work {
    entries: Vec<Entry>,
    /// Tokens evaluated so far.
    done: usize,
    /// The call ended: nothing is entered any more.
    ended: bool,
}

impl Work {
    /// Enters `tokens` if `admit` allows it, given the tokens ahead. A call that has an entry in this ledger keeps it, and
    /// is not asked again.
    pub fn reserve<E>(
        &mut self,
        ledger: &Ledger,
        key: Key,
        tokens: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.ended || self.entries.iter().any(|entry| entry.ledger.is(ledger)) {
            return Ok(());
        }
        // Under one lock, so that requests that arrive together do not both take the same capacity.
        ledger.with(|entries| -> Result<(), E> {
            admit(ahead(entries, key.0, &key.1, tokens))?;
            enter(entries, &key, tokens);
            Ok(())
        })?;
        self.entries.push(Entry { ledger: ledger.clone(), key, left: tokens });
        Ok(())
    }

    /// Raises what is left to at least `tokens`, which is known now.
    pub fn at_least(&mut self, ledger: &Ledger, key: Key, tokens: usize) {
        if self.ended {
            return;
        }
        let known = self.entries.iter().position(|entry| entry.ledger.is(ledger));
        let index = known.unwrap_or_else(|| {
            self.entries.push(Entry { ledger: ledger.clone(), key, left: 0 });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[index];
        if let Some(more) = tokens.checked_sub(entry.left).filter(|more| *more > 0) {
            entry.ledger.with(|entries| enter(entries, &entry.key, more));
            entry.left = tokens;
        }
    }

    /// Takes off tokens that will not be evaluated after all.
    pub fn take_back(&mut self, ledger: &Ledger, tokens: usize) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.ledger.is(ledger)) {
            entry.take_off(tokens);
        }
    }

    /// Counts tokens that the model of `ledger` evaluated.
    pub fn spend(&mut self, ledger: &Ledger, tokens: usize) {
        self.done = self.done.saturating_add(tokens);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.ledger.is(ledger)) {
            entry.take_off(tokens);
        }
    }

    /// Takes off what is left, for good. Clones of the call may live on for a step of the model.
    pub fn end(&mut self) {
        self.ended = true;
        self.take_off_all();
    }

    /// Tokens evaluated so far.
    pub const fn done(&self) -> usize {
        self.done
    }

    fn take_off_all(&mut self) {
        for entry in &mut self.entries {
            entry.take_off(entry.left);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.take_off_all();
    }
}

impl Call {
    /// Enters the tokens that the call is expected to take into `ledger`, if `admit` allows it, given the tokens that
    /// are ahead. A call that has an entry in it keeps that. A call within the process is entered without being asked.
    ///
    /// # Errors
    /// The error of `admit`; nothing is entered then.
    pub fn reserve<E>(
        &self,
        ledger: &Ledger,
        tokens: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let asked = !self.is_local();
        self.work().reserve(ledger, self.key(), tokens, |ahead| if asked { admit(ahead) } else { Ok(()) })
    }

    /// States that at least this many tokens are left to evaluate for the call.
    pub fn expect(&self, ledger: &Ledger, tokens: usize) {
        self.work().at_least(ledger, self.key(), tokens);
    }

    /// Takes tokens off `ledger` that will not be evaluated for the call, such as those of a sample that ended early.
    pub fn take_back(&self, ledger: &Ledger, tokens: usize) {
        self.work().take_back(ledger, tokens);
    }

    /// Counts tokens that the model of `ledger` evaluated for the call.
    pub fn spend(&self, ledger: &Ledger, tokens: usize) {
        self.work().spend(ledger, tokens);
    }

    /// Tokens evaluated for the call so far.
    #[must_use]
    pub fn spent(&self) -> usize {
        self.work().done()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(level: u8, caller: &str) -> Key {
        (Priority::new(level).unwrap(), caller.into())
    }

    fn entered(ledger: &Ledger, level: u8, caller: &str, tokens: usize) -> Work {
        let mut work = Work::default();
        work.reserve::<()>(ledger, key(level, caller), tokens, |_| Ok(())).unwrap();
        work
    }

    /// Worked by hand: `a` has 1,000 tokens and `b` 100 at level 5, `c` has 50 at level 2, and `d` has 70 at level 8.
    #[test]
    fn what_is_ahead_of_a_caller_is_its_fair_share() {
        let ledger = Ledger::default();
        let _held = [(5, "a", 1_000), (5, "b", 100), (2, "c", 50), (8, "d", 70)]
            .map(|(level, caller, tokens)| entered(&ledger, level, caller, tokens));
        let ahead = |level, caller, own| ledger.ahead(Priority::new(level).unwrap(), caller, own);
        assert_eq!(ledger.total(), 1_220);
        assert_eq!(ahead(5, "a", 10), 50 + 1_000 + 100, "its own, all of b, what is more urgent");
        assert_eq!(ahead(5, "b", 10), 50 + 100 + 110, "as much of a as b gets itself");
        assert_eq!(ahead(5, "e", 10), 50 + 10 + 10, "a newcomer waits for nobody's backlog");
        assert_eq!(ahead(2, "e", 10), 10);
        assert_eq!(ahead(9, "e", 10), 1_220);
    }

    #[test]
    fn an_entry_is_taken_off_as_it_is_spent_and_when_its_call_ends() {
        let ledger = Ledger::default();
        let mut work = entered(&ledger, 5, "a", 100);
        work.spend(&ledger, 30);
        assert_eq!((ledger.total(), work.done()), (70, 30));
        work.at_least(&ledger, key(5, "a"), 50);
        assert_eq!(ledger.total(), 70, "the estimate had more");
        work.at_least(&ledger, key(5, "a"), 200);
        assert_eq!(ledger.total(), 200);
        work.spend(&ledger, 500);
        assert_eq!((ledger.total(), work.done()), (0, 530), "more than was expected");
        work.at_least(&ledger, key(5, "a"), 8);
        drop(work);
        assert_eq!(ledger.total(), 0);
        let mut ended = entered(&ledger, 5, "a", 100);
        ended.end();
        ended.at_least(&ledger, key(5, "a"), 8);
        assert_eq!(ledger.total(), 0, "a clone that lives on enters nothing");
        let refused = Work::default().reserve(&ledger, key(5, "a"), 9, Err);
        assert_eq!((refused, ledger.total()), (Err(0), 0));
    }

    #[test]
    fn a_call_has_an_entry_for_each_model_that_works_for_it() {
        let (scorer, generator) = (Ledger::default(), Ledger::default());
        let mut work = entered(&scorer, 5, "a", 100);
        work.reserve::<()>(&generator, key(5, "a"), 40, |ahead| {
            assert_eq!(ahead, 0);
            Ok(())
        })
        .unwrap();
        work.reserve(&scorer, key(5, "a"), 9, Err).unwrap();
        work.spend(&scorer, 30);
        assert_eq!((scorer.total(), generator.total(), work.done()), (70, 40, 30));
        work.at_least(&generator, key(5, "a"), 50);
        work.spend(&generator, 500);
        assert_eq!((scorer.total(), generator.total(), work.done()), (70, 0, 530));
        work.at_least(&generator, key(5, "a"), 8);
        work.end();
        assert_eq!((scorer.total(), generator.total()), (0, 0));
    }

    proptest! {
        /// Whatever is entered, raised and spent, nothing is left, and nothing overflows.
        #[test]
        fn nothing_leaks(
            calls in proptest::collection::vec((0_u8..10, "[a-c]", any::<usize>(), proptest::collection::vec(any::<(bool, usize)>(), 0..6)), 0..12),
        ) {
            let ledger = Ledger::default();
            let mut held = Vec::new();
            for (level, caller, tokens, changes) in calls {
                let mut work = entered(&ledger, level, &caller, tokens >> 8);
                for (raise, amount) in changes {
                    if raise {
                        work.at_least(&ledger, key(level, &caller), amount >> 8);
                    } else {
                        work.spend(&ledger, amount);
                    }
                }
                let own = ledger.ahead(Priority::new(level).unwrap(), &caller, usize::MAX);
                prop_assert!(own <= ledger.total());
                held.push(work);
            }
            drop(held);
            prop_assert!(ledger.0.lock().is_empty());
        }
    }
}
