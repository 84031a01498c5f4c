//! Bounds on the lists of one request together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Work that the lists of one request have taken together. Clones share it, one for each list.
#[derive(Clone, Default)]
pub(super) struct Quota {
    /// Lists that may still ask the generator, less one.
    others: Arc<AtomicUsize>,
    /// True if this list was the last one to ask it; `None` while it asks.
    last: Option<bool>,
    tokens: Arc<AtomicUsize>,
    pairs: Arc<AtomicUsize>,
}

impl Quota {
    /// Of so many lists.
    pub fn of(lists: usize) -> Self {
        Self { others: Arc::new(AtomicUsize::new(lists.saturating_sub(1))), ..Self::default() }
    }

    /// Says that this list asks no more of the generator. Whether it was the last one. However often it says so, it counts once.
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

    /// Pairs of texts that the entailment model was asked about so far.
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

    /// The first list that was judged, and then the first one with several rounds of verdicts, gave back what all of them had reserved:
    /// others were admitted as if nothing were ahead of them.
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
