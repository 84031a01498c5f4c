//! Reuse of earlier evaluations: prompt prefixes in the generator's cache, and saved states.

use super::super::active::{Active, Restorable};
use super::{Stepper, lost};
use crate::model::{Batch, ModelError, Row};
use crate::plan::{NodeId, Step};
use crate::warm::scores;

/// Up to this length, the segment after a passage (the cue before the query) is saved at first sight, like the
/// passage.
const SHORT: usize = 32;

impl Stepper<'_> {
    /// Gives a new request the cached prompt prefixes and states.
    pub(super) fn reuse(&mut self, active: &mut Active) {
        let Some(store) = self.store else { return };
        let keys: Vec<_> = active.job.keys.iter().map(|(_, key)| *key).collect();
        for (index, state) in store.find(&keys, &active.job.held).into_iter().enumerate() {
            let (node, key) = active.job.keys[index];
            // From disk, or from an earlier round if the store did not admit it.
            let own = || {
                let state = active.job.held.get(&key)?;
                store.keep(key, active.job.plan.length(node), &state, true, false);
                Some(state)
            };
            if let Some(state) = state.or_else(own) {
                let behind = if key.scored { active.job.plan.length(node) } else { 0 };
                let Some((cells, scores)) = scores::split(&state, behind) else {
                    store.drop_state(&key);
                    active.job.held.remove(&key);
                    continue;
                };
                let tokens = active.walk.restore(node);
                if tokens == 0 {
                    continue;
                }
                active.reused(tokens);
                if active.job.plan.scored_tokens(node) > 0 {
                    active.record(node, &scores);
                }
                let cells = cells.len();
                active.states.insert(node, Restorable { key, state, cells });
            }
        }
        let adopted = self.prefixes.adopt(active);
        active.reused(adopted);
    }

    /// Appends the state of a node to a sequence of the generator. If it cannot be restored, it is dropped and its
    /// tokens are evaluated at once; its known log-probabilities stay.
    pub(super) fn restore(&mut self, index: usize, node: NodeId, sequence: usize) -> Result<(), ModelError> {
        let active = &mut self.active[index];
        let held = active.states.remove(&node).ok_or_else(|| lost("a state that the request does not hold"))?;
        let Restorable { key, state, cells } = held;
        let positions = active.job.plan.positions(node);
        let Err(error) = self.generator.restore(&state[..cells], sequence, positions.clone()) else { return Ok(()) };
        tracing::warn!(%error, "a passage's state cannot be restored; the passage is read again");
        if let Some(store) = self.store {
            store.drop_state(&key);
        }
        active.job.held.remove(&key);
        let tokens = active.job.plan.tokens(node).to_vec();
        active.read_again(tokens.len());
        // The server's count of cached tokens still includes these few, because a decreasing counter looks like a
        // restart.
        let rows: Vec<Row> = tokens
            .into_iter()
            .zip(positions)
            .map(|(token, position)| Row { token, position, sequence, targets: 0..0, draws: 0..0 })
            .collect();
        for rows in rows.chunks(self.capacity.batch) {
            let started = std::time::Instant::now();
            self.generator.decode(&Batch { rows: rows.to_vec(), ..Batch::default() })?;
            // Idle work restores no states.
            self.stats.measure(rows.len(), started.elapsed(), self.capacity.batch, false);
        }
        Ok(())
    }

    /// Drops the states of a request whose scores are not numbers.
    pub(super) fn distrust(&mut self, index: usize) {
        if self.active[index].is_broken() {
            self.drop_states(index);
        }
    }

    /// Drops the states that a request made or restored. One of them may have caused a score that is not a number,
    /// and the next request with that passage would fail, too.
    pub(super) fn drop_states(&mut self, index: usize) {
        self.dirty = true;
        let active = &self.active[index];
        if let Some(store) = self.store {
            // With both keys: a state may be cached without the scores in its key.
            let both = active.job.keys.iter().flat_map(|(_, key)| [key.with_scores(), key.without_scores()]);
            both.for_each(|key| store.drop_state(&key));
        }
    }

    /// Empties the cache if no request is active. Used after a request whose scores are NaN, because its prompt
    /// prefixes and free cells would spoil the next request, and before each plan that needs the cells of a new
    /// cache.
    pub(super) fn cleanse(&mut self) {
        if !self.active.is_empty() || !(self.dirty || self.one_at_a_time) {
            return;
        }
        if self.dirty {
            let sequences = self.prefixes.clear();
            self.release(&sequences);
        }
        if self.prefixes.sequences() == 0 {
            self.generator.clear(self.dirty);
        }
        self.dirty = false;
    }

    /// Cells and sequences not granted to any request or prompt prefix.
    pub(super) fn free(&self) -> (usize, usize) {
        let cells: usize = self.active.iter().map(|active| active.cells).sum();
        let sequences: usize = self.active.iter().map(|active| active.sequences).sum();
        (
            self.capacity.cells.saturating_sub(cells + self.prefixes.cells()),
            self.capacity.sequences.saturating_sub(sequences + self.prefixes.sequences()),
        )
    }

    /// Caches the prompt prefixes and the states of passages that the step completed.
    pub(super) fn save(&mut self, index: usize, step: &Step) {
        let Some(store) = self.store else { return };
        for piece in &step.pieces {
            let active = &self.active[index];
            let (plan, node) = (&active.job.plan, piece.node);
            let Some(&sequence) = active.held.get(&piece.sequence) else { continue };
            if piece.tokens.end != plan.length(node) {
                continue;
            }
            if self.prefixes.wants(plan, node) {
                let tokens = plan.tokens(node).to_vec();
                self.cache_prefix(tokens, sequence);
                continue;
            }
            let Some(key) = active.key(node) else { continue };
            // The key may name a state with scores that was not found. This state has none.
            let key = if plan.scored_tokens(node) == 0 { key.without_scores() } else { key };
            let (tokens, depth) = (plan.length(node), plan.depth(node));
            let (to_disk, own) = (active.job.fills, &active.job.held);
            // If moving states takes longer than evaluating tokens, only requested states are saved.
            if !(self.saves_cheaply || to_disk) {
                continue;
            }
            let at_once = depth == 1 || (depth == 2 && tokens <= SHORT);
            let holds = depth <= active.job.shares && own.has_room(store.bytes_of(tokens));
            let wanted = store.wants(&key, tokens, at_once) || (to_disk && store.writes());
            if !wanted && !holds {
                continue;
            }
            match self.generator.save(sequence, plan.positions(node)) {
                Ok(mut state) => {
                    scores::append(&mut state, active.scores(node));
                    let state = std::sync::Arc::new(state);
                    if !store.keep(key, tokens, &state, at_once, to_disk) && holds {
                        own.insert(key, state);
                    }
                }
                Err(error) => tracing::warn!(%error, "a passage's state cannot be saved"),
            }
        }
    }

    fn cache_prefix(&mut self, tokens: Vec<crate::plan::Token>, sequence: usize) {
        while !self.prefixes.room_for(tokens.len()) {
            let Some(oldest) = self.prefixes.evict() else { return };
            self.release(&[oldest]);
        }
        let (cells, sequences) = self.free();
        if cells < tokens.len() || sequences == 0 {
            return;
        }
        let Some(to) = self.free_sequences.pop() else { return };
        if let Err(error) = self.generator.fork(sequence, to, tokens.len()) {
            tracing::error!(%error, "prompt prefix not cached");
            // A partial copy may exist.
            self.release(&[to]);
            return;
        }
        self.prefixes.insert(tokens, to);
    }

    /// Evicts prompt prefixes, oldest first, until the given cells and sequences are free.
    pub(super) fn make_room(&mut self, cells: usize, sequences: usize) {
        loop {
            let free = self.free();
            if cells <= free.0 && sequences <= free.1 {
                return;
            }
            let Some(sequence) = self.prefixes.evict() else { return };
            self.release(&[sequence]);
        }
    }
}
