//! The order in which waiting work begins: by priority, then by deadline. One of [`LONGEST_WAIT`] turns goes to the
//! work that has waited longest, so that urgent work starves nothing.

use std::time::Instant;

use crate::call::Urgency;

/// One in this many turns goes to the work that has waited longest.
const LONGEST_WAIT: u32 = 8;

/// Chooses the work that begins next.
#[derive(Debug, Default)]
pub(super) struct Order {
    begun: u32,
}

impl Order {
    /// Index of the next of `waiting`, each with the start of its wait; `None` if nothing waits. The choice stays
    /// the same until [`Order::began`].
    pub fn next(&self, waiting: impl Iterator<Item = (Urgency, Instant)>) -> Option<usize> {
        let key = |(urgency, since): (Urgency, Instant)| ((!self.is_by_wait()).then_some(urgency), since);
        waiting.enumerate().min_by_key(|(_, work)| key(*work)).map(|(index, _)| index)
    }

    /// True if the next work to begin is the one that has waited longest.
    pub const fn is_by_wait(&self) -> bool {
        (self.begun + 1).is_multiple_of(LONGEST_WAIT)
    }

    /// Counts work that began.
    pub const fn began(&mut self) {
        self.begun = (self.begun + 1) % LONGEST_WAIT;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::call::Priority;

    /// Work of a level, due after `due` seconds and waiting since `since`.
    fn work(now: Instant, level: u8, due: Option<u64>, since: u64) -> (Urgency, Instant) {
        let after = |seconds| now + Duration::from_secs(seconds);
        (Urgency::new(Priority::new(level).unwrap(), due.map(after)), after(since))
    }

    /// Begins the work in turn; returns the numbers in that order.
    fn play(mut waiting: Vec<(Urgency, Instant)>) -> Vec<usize> {
        let (mut order, mut began) = (Order::default(), Vec::new());
        let mut numbers: Vec<usize> = (0..waiting.len()).collect();
        while let Some(index) = order.next(waiting.iter().copied()) {
            order.began();
            waiting.remove(index);
            began.push(numbers.remove(index));
        }
        began
    }

    #[test]
    fn priority_goes_first_then_the_deadline_then_arrival() {
        let now = Instant::now();
        let of = |(level, due, since)| work(now, level, due, since);
        let waiting =
            [(5, None, 1), (5, None, 0), (5, Some(9), 2), (5, Some(3), 3), (2, None, 4), (8, Some(1), 0)].map(of);
        assert_eq!(play(waiting.to_vec()), [4, 3, 2, 1, 0, 5]);
    }

    proptest! {
        /// For any amount of urgent work, the least urgent begins after a bounded number of others: those that
        /// waited before it, and seven more for each of them.
        #[test]
        fn nothing_starves(ahead in 0_u32..20, began in 0_u32..20) {
            let (mut order, now) = (Order::default(), Instant::now());
            (0..began).for_each(|_| order.began());
            let batch = work(now, 9, None, u64::from(ahead));
            let mut waiting: Vec<_> = (0..ahead).map(|since| work(now, 0, Some(1), u64::from(since))).collect();
            waiting.push(batch);
            let begun = (1..=10_000_u32).find(|begun| {
                let index = order.next(waiting.iter().copied()).unwrap();
                let found = waiting[index] == batch;
                order.began();
                waiting[index] = work(now, 0, Some(1), 100 + u64::from(*begun));
                found
            });
            prop_assert!(begun.is_some_and(|begun| begun <= LONGEST_WAIT * (ahead + 1)), "{begun:?}");
        }
    }
}
