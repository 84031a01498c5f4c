//! Tokens that were admitted to a model but not evaluated yet.
//!
//! A call enters its estimate at admission ([`Call::reserve`]) and removes tokens as they are evaluated. The rest
//! is removed when the call ends ([`Call::run`]) or its last clone is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Call, Urgency};

/// Tokens in front of one model. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    entries: BTreeMap<u64, (Urgency, usize)>,
    next: u64,
}

impl Open {
    fn sum(&self, counts: impl Fn(&Urgency) -> bool) -> usize {
        let tokens = self.entries.values().filter(|(urgency, _)| counts(urgency)).map(|(_, tokens)| *tokens);
        tokens.fold(0, usize::saturating_add)
    }
}

impl Ledger {
    /// Tokens of all entries.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.lock().sum(|_| true)
    }

    /// Tokens that are evaluated before new work of this urgency.
    #[must_use]
    pub fn ahead(&self, urgency: Urgency) -> usize {
        self.0.lock().sum(|other| *other <= urgency)
    }

    /// Enters `tokens` if `admit` allows it, given the tokens ahead.
    ///
    /// # Errors
    /// The error of `admit`; nothing is entered then.
    pub(crate) fn enter<E>(
        &self,
        urgency: Urgency,
        tokens: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<Entry, E> {
        // One lock for both, so that requests that arrive together do not take the same capacity.
        let mut open = self.0.lock();
        admit(open.sum(|other| *other <= urgency))?;
        let number = open.next;
        open.next += 1;
        open.entries.insert(number, (urgency, tokens));
        Ok(Entry { ledger: self.clone(), number })
    }
}

/// Tokens of one piece of work in a ledger, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    ledger: Ledger,
    number: u64,
}

impl Entry {
    /// The number of remaining tokens.
    fn tokens(&self) -> usize {
        self.ledger.0.lock().entries.get(&self.number).map_or(0, |(_, tokens)| *tokens)
    }

    /// Replaces the number of remaining tokens.
    pub(crate) fn update(&self, left: impl FnOnce(usize) -> usize) {
        if let Some((_, tokens)) = self.ledger.0.lock().entries.get_mut(&self.number) {
            *tokens = left(*tokens);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.0.lock().entries.remove(&self.number);
    }
}

/// The tokens of one call in the ledgers of the models that work for it.
#[derive(Debug, Default)]
pub(super) struct Work {
    entries: Vec<Entry>,
    /// Tokens evaluated so far.
    done: usize,
    /// True once the call ended. It blocks later entries.
    ended: bool,
}

impl Work {
    fn entry(&self, ledger: &Ledger) -> Option<&Entry> {
        self.entries.iter().find(|entry| Arc::ptr_eq(&entry.ledger.0, &ledger.0))
    }

    /// Enters `tokens` if `admit` allows it, given the tokens ahead. A call that has an entry in this ledger keeps it.
    fn reserve<E>(
        &mut self,
        ledger: &Ledger,
        urgency: Urgency,
        tokens: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.ended && self.entry(ledger).is_none() {
            self.entries.push(ledger.enter(urgency, tokens, admit)?);
        }
        Ok(())
    }

    /// Raises the rest to at least `tokens`.
    fn at_least(&mut self, ledger: &Ledger, urgency: Urgency, tokens: usize) {
        let _ = self.reserve::<()>(ledger, urgency, tokens, |_| Ok(()));
        if let Some(entry) = self.entry(ledger) {
            entry.update(|left| left.max(tokens));
        }
    }

    fn take_back(&self, ledger: &Ledger, tokens: usize) {
        if let Some(entry) = self.entry(ledger) {
            entry.update(|left| left.saturating_sub(tokens));
        }
    }

    fn left(&self, ledger: &Ledger) -> usize {
        self.entry(ledger).map_or(0, Entry::tokens)
    }

    /// Removes all entries permanently. A step of the model may still hold clones of the call.
    pub fn end(&mut self) {
        self.ended = true;
        self.entries.clear();
    }
}

impl Call {
    /// Enters the estimated tokens of the call into `ledger`, if `admit` allows it, given the tokens that are ahead. A call that
    /// has an entry in `ledger` keeps it. A call within the process is entered without `admit`.
    ///
    /// # Errors
    /// The error of `admit`; nothing is entered then.
    pub fn reserve<E>(
        &self,
        ledger: &Ledger,
        tokens: usize,
        admit: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let local = self.is_local();
        self.work().reserve(ledger, self.urgency(), tokens, |ahead| if local { Ok(()) } else { admit(ahead) })
    }

    /// Tokens of other calls in `ledger` that are evaluated before those of this call.
    #[must_use]
    pub fn ahead(&self, ledger: &Ledger) -> usize {
        ledger.ahead(self.urgency()).saturating_sub(self.work().left(ledger))
    }

    /// States that at least this many tokens remain to be evaluated for the call.
    pub fn expect(&self, ledger: &Ledger, tokens: usize) {
        self.work().at_least(ledger, self.urgency(), tokens);
    }

    /// Removes tokens from `ledger` that will not be evaluated for the call, such as those of a sample that ended
    /// early.
    pub fn take_back(&self, ledger: &Ledger, tokens: usize) {
        self.work().take_back(ledger, tokens);
    }

    /// Counts tokens that the model of `ledger` evaluated for the call.
    pub fn spend(&self, ledger: &Ledger, tokens: usize) {
        let mut work = self.work();
        work.done = work.done.saturating_add(tokens);
        work.take_back(ledger, tokens);
    }

    /// Tokens evaluated for the call so far.
    #[must_use]
    pub fn spent(&self) -> usize {
        self.work().done
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::super::Priority;
    use super::*;

    fn enter(ledger: &Ledger, urgency: Urgency, tokens: usize) -> Entry {
        ledger.enter::<()>(urgency, tokens, |_| Ok(())).unwrap()
    }

    /// Worked by hand.
    #[test]
    fn more_urgent_work_and_earlier_deadlines_are_ahead() {
        let (ledger, now) = (Ledger::default(), Instant::now());
        let of = |level, due: Option<u64>| {
            Urgency::new(Priority::new(level).unwrap(), due.map(|due| now + Duration::from_secs(due)))
        };
        let _held = [(5, Some(9), 1_000), (5, None, 100), (2, None, 50), (8, Some(1), 70)]
            .map(|(level, due, tokens)| enter(&ledger, of(level, due), tokens));
        assert_eq!(ledger.total(), 1_220);
        assert_eq!(ledger.ahead(of(5, Some(8))), 50, "the earlier deadline");
        assert_eq!(ledger.ahead(of(5, Some(9))), 1_050, "equal deadlines: by arrival");
        assert_eq!(ledger.ahead(of(5, None)), 1_150, "no deadline: behind those with one, by arrival");
        assert_eq!(ledger.ahead(of(1, None)), 0);
        assert_eq!(ledger.ahead(of(9, Some(0))), 1_220);
        let refused = ledger.enter(of(9, None), 9, Err).unwrap_err();
        assert_eq!((refused, ledger.total()), (1_220, 1_220));
    }

    #[test]
    fn tokens_are_taken_off_as_they_are_evaluated_and_when_their_call_ends() {
        let (ledger, call) = (Ledger::default(), Call::local());
        call.reserve(&ledger, 100, Err::<(), _>).unwrap();
        call.reserve(&ledger, 9, Err::<(), _>).unwrap();
        call.spend(&ledger, 30);
        assert_eq!((ledger.total(), call.spent()), (70, 30));
        call.expect(&ledger, 50);
        assert_eq!(ledger.total(), 70, "the estimate had more");
        call.expect(&ledger, 200);
        assert_eq!(ledger.total(), 200);
        call.spend(&ledger, 500);
        assert_eq!((ledger.total(), call.spent()), (0, 530), "more than was expected");
        call.expect(&ledger, 8);
        drop(call);
        assert_eq!(ledger.total(), 0);
        let ended = Call::local();
        ended.expect(&ledger, 100);
        ended.work().end();
        ended.expect(&ledger, 8);
        assert_eq!(ledger.total(), 0, "a clone that lives on enters nothing");
    }

    #[test]
    fn a_call_has_an_entry_for_each_model_that_works_for_it() {
        let (scorer, generator, call) = (Ledger::default(), Ledger::default(), Call::local());
        call.expect(&scorer, 100);
        call.expect(&generator, 40);
        call.spend(&scorer, 30);
        assert_eq!((scorer.total(), generator.total(), call.spent()), (70, 40, 30));
        call.take_back(&generator, usize::MAX);
        assert_eq!((scorer.total(), generator.total()), (70, 0));
        drop(call);
        assert_eq!(scorer.total(), 0);
    }

    proptest! {
        /// After any entries, raises and spending, the ledger is empty and nothing overflows.
        #[test]
        fn nothing_leaks(calls in proptest::collection::vec(proptest::collection::vec(any::<(bool, usize)>(), 0..6), 0..12)) {
            let ledger = Ledger::default();
            let mut held = Vec::new();
            for changes in calls {
                let call = Call::local();
                for (raise, amount) in changes {
                    if raise { call.expect(&ledger, amount) } else { call.spend(&ledger, amount) }
                }
                prop_assert!(ledger.ahead(call.urgency()) <= ledger.total());
                held.push(call);
            }
            drop(held);
            prop_assert!(ledger.0.lock().entries.is_empty());
        }
    }
}
