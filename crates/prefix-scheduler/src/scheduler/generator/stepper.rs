//! The generator's main loop: admit requests, share a step among the active ones, decode, reply.

mod reuse;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use super::active::Active;
use super::prefixes::{self, Prefixes};
use super::queue::View;
use super::{Job, ScheduleError, Stats, queue};
use crate::call::Priority;
use crate::model::{Batch, Capacity, Generator, ModelError, Row};
use crate::plan::{NodeId, Source, Step, Walk};
use crate::scheduler::order::Order;
use crate::warm::Store;

/// Cells, in batches, granted to a request in addition to its longest path. More cells only slow attention down,
/// unless they are restored: then few of them have rows in a step, and more cells make fuller steps.
const BREADTH: std::ops::RangeInclusive<usize> = 1..=3;

pub(super) struct Stepper<'a> {
    generator: &'a mut dyn Generator,
    jobs: &'a Receiver<Job>,
    stats: &'a Stats,
    capacity: Capacity,
    waiting: Vec<Job>,
    active: Vec<Active>,
    free_sequences: Vec<usize>,
    prefixes: Prefixes,
    /// States of passages; `None` if nothing is reused.
    store: Option<&'a Store>,
    /// [`Generator::saves_cheaply`].
    saves_cheaply: bool,
    /// True if only one plan at a time may use the cache ([`super::SchedulerOptions::reproducible`]).
    pub one_at_a_time: bool,
    /// True if the cache may hold NaN or infinity.
    dirty: bool,
    /// Unpaid tokens of the followers.
    claim: queue::Claim,
    order: Order,
    /// All handles are dropped. The loop ends when the remaining requests are done.
    closing: bool,
}

/// Owner of a requested score.
struct Target {
    active: usize,
    node: NodeId,
    index: usize,
}

/// A batch to decode, with the owners of its scores and draws in batch order.
struct Prepared {
    batch: Batch,
    targets: Vec<Target>,
    draws: Vec<(usize, NodeId)>,
}

impl<'a> Stepper<'a> {
    /// `first` is queued before the jobs of the channel.
    pub fn new(
        generator: &'a mut dyn Generator,
        first: Option<Job>,
        jobs: &'a Receiver<Job>,
        stats: &'a Stats,
        store: Option<&'a Store>,
    ) -> Self {
        let (capacity, saves_cheaply) = (generator.capacity(), generator.saves_cheaply());
        stats.saves_cheaply.store(saves_cheaply, Ordering::Relaxed);
        Self {
            generator,
            saves_cheaply,
            jobs,
            stats,
            capacity,
            waiting: first.into_iter().collect(),
            active: Vec::new(),
            free_sequences: (0..capacity.sequences).rev().collect(),
            prefixes: Prefixes::new(capacity.cells / prefixes::SHARE),
            store,
            one_at_a_time: false,
            dirty: false,
            claim: queue::Claim::default(),
            order: Order::default(),
            closing: false,
        }
    }

    /// Runs until all handles are dropped and no request is left.
    pub fn serve(mut self) {
        while self.receive() {
            self.drop_abandoned();
            let full = self.admit();
            self.stats.full.store(full.into(), Ordering::Relaxed);
            self.publish();
            if !self.active.is_empty() {
                self.step();
                self.publish();
            }
        }
    }

    /// Receives new jobs; blocks if no other work is left. Returns false when the loop must end.
    fn receive(&mut self) -> bool {
        if self.active.is_empty() && self.waiting.is_empty() {
            if self.closing {
                return false;
            }
            match self.jobs.recv() {
                Ok(job) => self.waiting.push(job),
                Err(_) => return false,
            }
        }
        loop {
            match self.jobs.try_recv() {
                Ok(job) => self.waiting.push(job),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    self.closing = true;
                    return true;
                }
            }
        }
    }

    /// Drops requests that are cancelled or cannot meet their deadline. They are counted after their cells are
    /// released.
    fn drop_abandoned(&mut self) {
        let mut dropped = 0;
        for index in (0..self.waiting.len()).rev() {
            if let Some(reason) = self.waiting[index].abandoned(self.waiting[index].expected, &self.stats.pace) {
                let job = self.waiting.swap_remove(index);
                let _ = job.reply.send(Err(reason));
                dropped += 1;
            }
        }
        for index in (0..self.active.len()).rev() {
            let active = &self.active[index];
            if let Some(reason) = active.job.abandoned(active.walk.remaining(), &self.stats.pace) {
                self.abandon(index, reason);
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.publish();
            self.stats.abandoned.fetch_add(dropped, Ordering::SeqCst);
        }
    }

    /// Index of the waiting request that begins next, and true if it is a later round of its call. Later rounds go
    /// first, because a call that does not end loses its work. Requests that gain nothing by being active are
    /// skipped, except on the turn of the longest wait. `None` if no request gains.
    fn next(&self) -> Option<(usize, bool)> {
        // A call with several plans does not count: otherwise a call that scores a hundred lists at once would go
        // before all others.
        let is_single = |job: &Job| {
            let of_call = |other: &Job| other.call.is_same(&job.call);
            !self.active.iter().any(|active| of_call(&active.job))
                && self.waiting.iter().filter(|one| of_call(one)).count() == 1
        };
        // No caller waits for the next part of a job that fills the store.
        let is_later = |job: &Job| job.call.spent() > 0 && !job.fills && is_single(job);
        let later = (0..self.waiting.len()).filter(|&index| is_later(&self.waiting[index]));
        let later = later.min_by_key(|&index| self.waiting[index].order()).map(|index| (index, true));
        later.or_else(|| {
            let views = self.views();
            let gains = |job: &Job| {
                let own = (job.call.priority(), job.expected, job.since);
                job.samples || self.order.is_by_wait() || !queue::may_wait(own, self.capacity.batch, &views)
            };
            let candidates: Vec<usize> = (0..self.waiting.len()).filter(|&index| gains(&self.waiting[index])).collect();
            let next = self.order.next(candidates.iter().map(|&index| self.waiting[index].order()))?;
            Some((candidates[next], false))
        })
    }

    /// Admits waiting requests until the next one does not fit, or none gains by being active. Returns true if one
    /// did not fit: the requests behind it wait, so small requests do not starve a large one.
    fn admit(&mut self) -> bool {
        while self.active.is_empty() || !(self.one_at_a_time || self.dirty) {
            self.cleanse();
            let Some((first, is_later)) = self.next() else { return false };
            let (least_cells, least_sequences) = Walk::least(&self.waiting[first].plan);
            self.make_room(least_cells, least_sequences);
            let (free_cells, free_sequences) = self.free();
            if least_cells > free_cells || least_sequences > free_sequences {
                return true;
            }
            if !is_later {
                self.order.began();
            }
            let job = self.waiting.swap_remove(first);
            // Each sample grows by one token per step, so more parallel samples make fuller steps.
            let breadth = if job.plan.has_samples() {
                self.capacity.cells
            } else {
                let spared = job.cost.tokens / job.expected.max(1);
                spared.clamp(*BREADTH.start(), *BREADTH.end()) * self.capacity.batch
            };
            let useful = job.cost.total_cells.min(job.cost.path_cells + breadth);
            let cells = useful.min(least_cells.max(free_cells / 2));
            let sequences = least_sequences.max(free_sequences / 2);
            let walk = Walk::new(Arc::clone(&job.plan), cells, sequences);
            let job_tokens = job.cost.tokens;
            let mut admitted = Active::new(job, walk, cells, sequences);
            self.reuse(&mut admitted);
            self.stats.cached_tokens.fetch_add(wide(job_tokens - admitted.walk.remaining()), Ordering::Relaxed);
            self.active.push(admitted);
        }
        false
    }

    fn views(&self) -> Vec<View<Instant>> {
        self.active.iter().map(Active::view).collect()
    }

    fn step(&mut self) {
        self.share();
        let Prepared { batch, targets, draws } = match self.prepare() {
            Ok(prepared) => prepared,
            Err(error) => return self.fail_all(&error),
        };
        let mut drawn = Vec::new();
        if !batch.rows.is_empty() {
            let started = Instant::now();
            let decoded = match self.generator.decode(&batch) {
                Ok(decoded) => decoded,
                Err(error) => return self.fail_all(&error),
            };
            self.stats.measure(batch.rows.len(), started.elapsed(), self.capacity.batch, self.is_idle());
            for (target, score) in targets.into_iter().zip(decoded.scores) {
                self.active[target.active].score(target.node, target.index, score);
            }
            drawn = decoded.drawn;
        }
        self.advance();
        let mut broken = std::collections::BTreeSet::new();
        for ((index, node), drawn) in draws.into_iter().zip(drawn) {
            let Some(drawn) = drawn else {
                broken.insert(index);
                continue;
            };
            let before = self.active[index].walk.remaining();
            let ended = self.active[index].drawn(node, drawn);
            let spared = before - self.active[index].walk.remaining();
            let job = &self.active[index].job;
            job.call.take_back(&job.ledger, spared);
            self.release(ended.as_slice());
        }
        // A failed draw fails only its own request. Descending order, because `swap_remove` moves the last one.
        for index in broken.into_iter().rev() {
            let problem = "the logits of a sample are not finite, so no token can be drawn".to_owned();
            self.drop_states(index);
            self.abandon(index, ScheduleError::Model(ModelError::Decode(problem)));
        }
        self.finish();
    }

    /// True if no request has a part of the step, except for idle work.
    fn is_idle(&self) -> bool {
        let mut taking = self.active.iter().filter(|active| active.step.tokens() > 0);
        taking.all(|active| active.job.call.priority() == Priority::IDLE)
    }

    /// Gives every active request its share of the step.
    fn share(&mut self) {
        for active in &mut self.active {
            active.step = Step::default();
        }
        let views = self.views();
        self.claim.share(self.capacity.batch, &views, |index, limit| {
            let active = &mut self.active[index];
            active.step = active.walk.take(limit);
            active.step.tokens()
        });
    }

    /// Makes the forks and collects the rows of all requests in one batch.
    fn prepare(&mut self) -> Result<Prepared, ModelError> {
        let mut batch = Batch::default();
        let mut targets = Vec::new();
        let mut draws = Vec::new();
        let mut sampled = Vec::new();
        for index in 0..self.active.len() {
            let step = std::mem::take(&mut self.active[index].step);
            for fork in &step.forks {
                let active = &mut self.active[index];
                let to = active.hold(fork.to, &mut self.free_sequences)?;
                match fork.from {
                    Source::Own(slot) => {
                        let from = active.held.get(&slot);
                        let from = *from.ok_or_else(|| lost("a fork from a sequence that is not held"))?;
                        self.generator.fork(from, to, fork.length)?;
                    }
                    Source::Prefix(sequence) => {
                        self.generator.fork(sequence, to, fork.length)?;
                        self.prefixes.redeem(sequence);
                    }
                    Source::Saved(node) => self.restore(index, node, to)?,
                }
            }
            let active = &mut self.active[index];
            for piece in &step.pieces {
                let sequence = active.hold(piece.sequence, &mut self.free_sequences)?;
                let mut wanted = active.walk.targets(piece).peekable();
                let begin = batch.rows.len();
                sampled
                    .extend(active.walk.draws(piece).map(|(offset, node)| (begin + offset - piece.tokens.start, node)));
                for offset in piece.tokens.clone() {
                    let (token, position) = active.walk.token(piece.node, offset);
                    let first = batch.targets.len();
                    while let Some((_, wanted)) = wanted.next_if(|next| next.0 == offset) {
                        batch.targets.push((wanted.token, wanted.reads));
                        targets.push(Target { active: index, node: wanted.node, index: wanted.index });
                    }
                    let row = Row { token, position, sequence, targets: first..batch.targets.len(), draws: 0..0 };
                    batch.rows.push(row);
                }
            }
            active.step = step;
            for (row, node) in sampled.drain(..) {
                let Some(draw) = active.draw(node) else { continue };
                let row = &mut batch.rows[row];
                let first = if row.draws.is_empty() { batch.draws.len() } else { row.draws.start };
                batch.draws.push(draw);
                row.draws = first..batch.draws.len();
                draws.push((index, node));
            }
        }
        Ok(Prepared { batch, targets, draws })
    }

    fn advance(&mut self) {
        for index in (0..self.active.len()).rev() {
            let step = std::mem::take(&mut self.active[index].step);
            let job = &self.active[index].job;
            job.call.spend(&job.ledger, step.tokens());
            self.save(index, &step);
            let active = &mut self.active[index];
            let ended = active.walk.advance(&step);
            active.step = step;
            let sequences: Vec<usize> = ended.iter().filter_map(|slot| active.held.remove(slot)).collect();
            self.release(&sequences);
        }
    }

    /// Replies to the requests whose walk is finished.
    fn finish(&mut self) {
        let now = Instant::now();
        for index in (0..self.active.len()).rev() {
            self.active[index].stepped();
            if self.active[index].walk.finished() {
                self.distrust(index);
                self.active.swap_remove(index).finish(now);
            }
        }
    }

    fn release(&mut self, sequences: &[usize]) {
        for &sequence in sequences {
            match self.generator.release(sequence) {
                Ok(()) => self.free_sequences.push(sequence),
                // Its cells may still exist: another request must not use them as its own.
                Err(error) => tracing::error!(%error, sequence, "sequence not released; it is not used again"),
            }
        }
    }

    fn abandon(&mut self, index: usize, reason: ScheduleError) {
        self.distrust(index);
        let mut active = self.active.swap_remove(index);
        for sequence in active.walk.adopted() {
            self.prefixes.redeem(sequence);
        }
        let sequences: Vec<usize> = active.held.drain().map(|(_, sequence)| sequence).collect();
        self.release(&sequences);
        active.fail(reason);
    }

    /// Fails all active requests, because a failed step leaves their sequences undefined.
    fn fail_all(&mut self, error: &ModelError) {
        tracing::error!(%error, requests = self.active.len(), "step failed");
        for index in (0..self.active.len()).rev() {
            self.abandon(index, ScheduleError::Model(error.clone()));
        }
        let sequences = self.prefixes.clear();
        self.release(&sequences);
    }

    fn publish(&self) {
        self.stats.active.store(self.active.len(), Ordering::Relaxed);
        self.stats.waiting.store(self.waiting.len(), Ordering::Relaxed);
        self.stats.cells.store(self.capacity.cells - self.free().0, Ordering::Relaxed);
    }
}

/// Error for a broken invariant of the walk. Continuing could mix the contexts of two callers.
pub(super) fn lost(what: &str) -> ModelError {
    ModelError::Decode(format!("internal: {what}"))
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
