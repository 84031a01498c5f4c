//! Prefixes of earlier requests, kept in the cache: an exact, bounded, least-recently-used store.
//!
//! Kept are the first two levels of a prompt (the opening, and the opening with its first passage), because requests share
//! those: the instruction always, a popular passage often. An entry is a sequence of the generator that no request owns. A
//! request takes a copy when it comes to the node, so an entry may go at any time it is not promised to a request.

use super::active::Active;
use crate::plan::{NodeId, Plan, Step, Token};

/// A prefix to be kept: its tokens, and the generator's sequence that holds them now.
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

/// The store.
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    limit: usize,
    clock: u64,
}

/// Most entries: each is a sequence, and sequences are scarce.
const MOST_ENTRIES: usize = 64;

impl PrefixCache {
    pub const fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), limit, clock: 0 }
    }

    /// Cells held, counted as if entries shared none: an upper bound.
    pub fn cells(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }

    pub const fn sequences(&self) -> usize {
        self.entries.len()
    }

    /// Promises to a new request every prefix of its plan that is here.
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

    /// A promise was kept or is no longer wanted.
    pub fn redeem(&mut self, sequence: usize) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.sequence == sequence) {
            entry.promised = entry.promised.saturating_sub(1);
        }
    }

    /// Prefixes that `step` completes and that are not here yet.
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
                let known = self.entries.iter().any(|entry| entry.tokens == tokens);
                let sequence = active.held.get(&piece.sequence).copied()?;
                (!known && tokens.len() <= self.limit).then_some(Keep { tokens, sequence })
            })
            .collect()
    }

    pub fn insert(&mut self, tokens: Vec<Token>, sequence: usize) {
        self.clock += 1;
        self.entries.push(Entry { tokens, sequence, used: self.clock, promised: 0 });
    }

    /// Takes out the oldest entry that is not promised; its sequence is to be released.
    pub fn evict(&mut self) -> Option<usize> {
        let free = |entry: &&Entry| entry.promised == 0;
        let oldest = self.entries.iter().filter(free).min_by_key(|entry| entry.used)?.sequence;
        self.entries.retain(|entry| entry.sequence != oldest);
        Some(oldest)
    }

    /// Whether `tokens` more cells are within the bound.
    pub fn room_for(&self, tokens: usize) -> bool {
        self.cells() + tokens <= self.limit && self.entries.len() < MOST_ENTRIES
    }

    /// Forgets everything; the sequences are to be released.
    pub fn clear(&mut self) -> Vec<usize> {
        self.entries.drain(..).map(|entry| entry.sequence).collect()
    }
}

fn keepable(plan: &Plan) -> impl Iterator<Item = NodeId> + use<'_> {
    (0..plan.len()).map(NodeId).filter(|&node| plan.depth(node) < 2 && plan.is_context(node))
}
