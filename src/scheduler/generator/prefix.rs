//! Prefix cache: token prefixes of earlier requests, matched exactly, bounded in cells, evicted least recently used
//! first.
//!
//! The cache stores the first two levels of a prompt: the opening, and the opening with the first passage. Requests
//! share the instruction always and a popular first passage often. An entry is a sequence of the generator that no
//! request owns. A request copies the entry when its walk reaches the node. An entry can be evicted unless it is
//! promised to a request.

use super::active::Active;
use crate::plan::{NodeId, Plan, Step, Token};

/// A prefix to cache: its tokens, and the generator's sequence that currently holds them.
pub(super) struct Keep {
    pub tokens: Vec<Token>,
    pub sequence: usize,
}

struct Entry {
    tokens: Vec<Token>,
    sequence: usize,
    used: u64,
    promised: usize,
}

/// Cached prefixes and their bound.
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    limit: usize,
    clock: u64,
}

/// Maximum number of entries. Each entry uses one of the generator's few sequences.
const MOST_ENTRIES: usize = 64;

impl PrefixCache {
    pub const fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), limit, clock: 0 }
    }

    /// Upper bound of the cells in use: entries are counted as if they shared no cells.
    pub fn cells(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }

    pub const fn sequences(&self) -> usize {
        self.entries.len()
    }

    /// Promises all cached prefixes of its plan to a new request, which protects them from eviction.
    pub fn adopt(&mut self, active: &mut Active) {
        self.clock += 1;
        let plan = std::sync::Arc::clone(&active.job.plan);
        for node in keepable(&plan) {
            let tokens = plan.path(node);
            if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tokens == tokens) {
                entry.used = self.clock;
                entry.promised += 1;
                let adopted = active.walk.promise(node, entry.sequence);
                active.adopt(adopted);
            }
        }
    }

    /// Ends a promise, after the copy or when the request is abandoned.
    pub fn redeem(&mut self, sequence: usize) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.sequence == sequence) {
            entry.promised = entry.promised.saturating_sub(1);
        }
    }

    /// Prefixes that `step` completes and that are not cached yet.
    pub fn candidates(&self, active: &Active, step: &Step) -> Vec<Keep> {
        if self.limit == 0 {
            return Vec::new();
        }
        let plan = &active.job.plan;
        let completed = step.pieces.iter().filter(|piece| piece.tokens.end == plan.length(piece.node));
        completed
            .filter(|piece| plan.depth(piece.node) < 2 && plan.is_context(piece.node))
            .filter_map(|piece| {
                let tokens = plan.path(piece.node);
                let cached = self.entries.iter().any(|entry| entry.tokens == tokens);
                let sequence = active.held.get(&piece.sequence).copied()?;
                (!cached && tokens.len() <= self.limit).then_some(Keep { tokens, sequence })
            })
            .collect()
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

    /// Whether an entry of `tokens` cells fits within the bounds.
    pub fn room_for(&self, tokens: usize) -> bool {
        self.cells() + tokens <= self.limit && self.entries.len() < MOST_ENTRIES
    }

    /// Removes all entries. Returns their sequences, which the caller releases.
    pub fn clear(&mut self) -> Vec<usize> {
        self.entries.drain(..).map(|entry| entry.sequence).collect()
    }
}

fn keepable(plan: &Plan) -> impl Iterator<Item = NodeId> + use<'_> {
    (0..plan.len()).map(NodeId).filter(|&node| plan.depth(node) < 2 && plan.is_context(node))
}
