//! Prompt prefixes that stay in the generator's cache: the first segment of a prompt, which every request of a method shares.
//!
//! A prompt prefix is a sequence of the generator that no request owns, matched by its tokens. A request shares its
//! cells when its walk reaches the root. The least recently used prefix is evicted if it is not promised to a
//! request; a request that needs the cells also evicts it.

use super::active::Active;
use crate::plan::{NodeId, Plan, Token};

struct Entry {
    tokens: Vec<Token>,
    sequence: usize,
    used: u64,
    promised: usize,
}

/// The resident prompt prefixes and their bound.
pub(super) struct Prefixes {
    entries: Vec<Entry>,
    /// Most cells.
    limit: usize,
    clock: u64,
}

/// One in this many cells may hold prompt prefixes.
pub(super) const SHARE: usize = 8;

/// Most entries. Every method has one or two prompt prefixes.
const MOST_ENTRIES: usize = 16;

impl Prefixes {
    pub const fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), limit, clock: 0 }
    }

    pub fn cells(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }

    pub const fn sequences(&self) -> usize {
        self.entries.len()
    }

    fn find(&mut self, tokens: &[Token]) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.tokens == tokens)
    }

    /// Promises the prompt prefixes of its plan to a new request, which protects them from eviction. Returns the
    /// saved tokens. Call it after other cached states are registered, because they decide if the logits of a
    /// prefix are needed.
    pub fn adopt(&mut self, active: &mut Active) -> usize {
        self.clock += 1;
        let (clock, mut saved) = (self.clock, 0);
        let plan = std::sync::Arc::clone(&active.job.plan);
        for node in (0..plan.len()).map(NodeId).filter(|&node| is_prefix(&plan, node)) {
            if let Some(entry) = self.find(plan.tokens(node)) {
                let tokens = active.walk.adopt(node, entry.sequence);
                // A prefix whose last logits every request needs is useless, and ages.
                if tokens > 0 {
                    entry.used = clock;
                    entry.promised += 1;
                }
                saved += tokens;
            }
        }
        saved
    }

    /// Ends a promise, after the copy or when the request is abandoned.
    pub fn redeem(&mut self, sequence: usize) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.sequence == sequence) {
            entry.promised = entry.promised.saturating_sub(1);
        }
    }

    /// True if a root is a prompt prefix that is not cached yet and fits.
    pub fn wants(&mut self, plan: &Plan, node: NodeId) -> bool {
        let tokens = plan.tokens(node);
        is_prefix(plan, node) && tokens.len() <= self.limit && self.find(tokens).is_none()
    }

    pub fn insert(&mut self, tokens: Vec<Token>, sequence: usize) {
        self.clock += 1;
        self.entries.push(Entry { tokens, sequence, used: self.clock, promised: 0 });
    }

    /// Removes the least recently used entry that is not promised. Returns its sequence, which the caller releases.
    pub fn evict(&mut self) -> Option<usize> {
        let free = |entry: &&Entry| entry.promised == 0;
        let oldest = self.entries.iter().filter(free).min_by_key(|entry| entry.used)?.sequence;
        self.entries.retain(|entry| entry.sequence != oldest);
        Some(oldest)
    }

    /// True if an entry of `tokens` cells fits within the bounds.
    pub fn room_for(&self, tokens: usize) -> bool {
        self.cells() + tokens <= self.limit && self.entries.len() < MOST_ENTRIES
    }

    /// Removes all entries. Returns their sequences, which the caller releases.
    pub fn clear(&mut self) -> Vec<usize> {
        self.entries.drain(..).map(|entry| entry.sequence).collect()
    }
}

fn is_prefix(plan: &Plan, node: NodeId) -> bool {
    plan.parent(node).is_none() && !plan.is_leaf(node) && plan.scored_tokens(node) == 0
}
