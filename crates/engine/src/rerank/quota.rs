//! Bounds that the lists of one request share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Total work of the lists of one request. Clones share it, one for each list.
#[derive(Clone, Default)]
pub(super) struct Quota {
    /// Lists that may still ask the generator, minus one.
    others: Arc<AtomicUsize>,
    /// True if this list was the last one to ask it; `None` while it asks.
    last: Option<bool>,
    tokens: Arc<AtomicUsize>,
    pairs: Arc<AtomicUsize>,
}

impl Quota {
    /// For this many lists.
    pub fn of(lists: usize) -> Self {
        Self { others: Arc::new(AtomicUsize::new(lists.saturating_sub(1))), ..Self::default() }
    }

    /// Reports that this list needs the generator no more. Returns true if it was the last one. Repeated reports
    /// count once.
    pub fn asks_no_more(&mut self) -> bool {
        let others = &self.others;
        let left = || others.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        *self.last.get_or_insert_with(|| left().is_err())
    }

    /// Tokens planned so far.
    pub fn planned(&self) -> usize {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Adds tokens. Returns the sum.
    pub fn add(&self, tokens: usize) -> usize {
        self.tokens.fetch_add(tokens, Ordering::Relaxed).saturating_add(tokens)
    }

    /// Pairs of texts that the entailment model was asked so far.
    pub fn pairs(&self) -> usize {
        self.pairs.load(Ordering::Relaxed)
    }

    /// Adds pairs of texts. Returns the sum.
    pub fn add_pairs(&self, pairs: usize) -> usize {
        self.pairs.fetch_add(pairs, Ordering::Relaxed).saturating_add(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first judged list, and then the first one with several rounds of verdicts, released the reservation of
    /// all lists: other requests were admitted as if the queue were empty.
    #[test]
    fn the_last_list_that_asks_no_more_is_told() {
        assert!(Quota::default().asks_no_more(), "a request of one list");
        let all = Quota::of(3);
        let [mut first, mut second, mut third] = [all.clone(), all.clone(), all];
        assert!(!first.asks_no_more() && !first.asks_no_more() && !first.asks_no_more());
        assert!(!second.asks_no_more() && third.asks_no_more());
        assert!(third.asks_no_more() && !first.asks_no_more());
    }
}
