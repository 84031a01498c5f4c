//! What bounds the lists of one request together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the lists of one request have taken together. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Quota {
    tokens: Arc<AtomicUsize>,
    pairs: Arc<AtomicUsize>,
}

impl Quota {
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
