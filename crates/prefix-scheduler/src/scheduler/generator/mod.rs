//! Plans on a generator: a queue in front of one worker thread that owns the model.
//!
//! [`Scheduler::admit`] decides by estimated tokens if a request is accepted, [`Scheduler::run`] submits a plan and
//! awaits its scores. [`order`](super::order) decides which request begins next, `queue` how active requests share
//! a step. `stepper` is the loop around the generator, `stats` its counters, `active` a running plan, `prefixes`
//! the prompt prefixes that stay in the cache. The store of `warm` holds states of passages.

mod active;
mod prefixes;
pub mod queue;
mod rounds;
mod service;
mod stats;
mod stepper;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc::UnboundedSender, oneshot, watch};

use super::estimate::Estimator;
use super::pace::{FILL, Kind, OPTIMISM, Pace};
use super::worker::Worker;
use super::{Load, SEQUENCES, ScheduleError, Status};
use crate::call::{Call, Lane, Ledger, Priority, Stage, Stopped, Timed, Urgency};
use crate::model::{Capacity, Generator, ModelError};
use crate::plan::{Cost, Finish, NodeId, Plan, Token, Walk};
pub use crate::warm::Kept;
use crate::warm::{Held, Key, Store};
use numeric::real;
pub use rounds::Rounds;
use service::GeneratorService;
pub use service::SchedulerOptions;
pub use stats::Stats;

/// Builds a generator on the worker's thread and passes it to the callback, which returns when the worker ends.
pub type Loader = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Generator)) -> Result<(), ModelError> + Send>;

/// Nodes of a plan whose states can be cached, each with the key of its state, in the plan's order.
pub type Keys = Vec<(NodeId, Key)>;

/// Progress of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Scores of all scored tokens of a node, in their order: log-probabilities in nats, or logits.
    Scored(NodeId, Vec<f64>),
    /// A sample ended.
    Sampled(NodeId, Sample),
    /// A step ended.
    Progress {
        /// Tokens evaluated so far.
        done: usize,
        /// Tokens of the whole plan.
        total: usize,
    },
}

/// A sampled continuation.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its tokens, including the one that ended it.
    pub tokens: Vec<Token>,
    /// Natural log-probability of each at the sampling temperature, among the tokens that were allowed; 0 for a forced one.
    pub log_probabilities: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

/// The scores of a plan and their cost.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// For each node, the scores of its scored tokens: natural log-probabilities, or logits.
    pub scores: Vec<Vec<f64>>,
    /// The samples, by node.
    pub samples: HashMap<NodeId, Sample>,
    /// For samples of [`Plan::keep_distribution`], the natural log-probability of every token of the vocabulary as their first,
    /// at temperature 1.
    pub distributions: HashMap<NodeId, Vec<f32>>,
    /// Time in the queue.
    pub queued: Duration,
    /// Time from admission to the last step.
    pub running: Duration,
    /// Tokens evaluated for this plan.
    pub tokens: usize,
    /// Tokens that were not evaluated, because an earlier request, or an earlier round of this one, had evaluated
    /// them.
    pub cached_tokens: usize,
    /// Steps in which this plan had tokens.
    pub steps: usize,
}

struct Job {
    plan: Arc<Plan>,
    cost: Cost,
    samples: bool,
    /// Keys of the nodes whose states can be cached, by node.
    keys: Keys,
    /// States that its request holds.
    held: Held,
    /// [`Rounds::of`].
    shares: usize,
    /// True if the job runs only to cache states.
    fills: bool,
    /// Tokens to evaluate if the cached states stay until the job runs.
    expected: usize,
    /// [`Rounds::since`].
    since: Instant,
    /// [`Rounds::optional`].
    optional: bool,
    arrival: Instant,
    call: Call,
    /// The time in the queue; `None` once it is over.
    queued: Option<Timed>,
    events: Option<UnboundedSender<Event>>,
    reply: oneshot::Sender<Result<Outcome, ScheduleError>>,
    /// The ledger that counts its tokens.
    ledger: Ledger,
}

impl Job {
    /// The reason to drop this job, of which `left` tokens are not evaluated: its caller left, or it cannot end in
    /// time. Samples may end early, so the second reason never applies to them.
    fn abandoned(&self, left: usize, pace: &Pace) -> Option<ScheduleError> {
        if self.reply.is_closed() {
            return Some(Stopped::Cancelled.into());
        }
        if let Err(stopped) = self.call.check() {
            return Some(stopped.into());
        }
        let time = self.call.deadline()?.saturating_duration_since(Instant::now());
        let share = if self.optional { FILL } else { OPTIMISM };
        (!self.samples && pace.late_by(left, time, share).is_some()).then(|| Stopped::DeadlineExceeded.into())
    }

    /// Its place in the order of the queue.
    fn order(&self) -> (Urgency, Instant) {
        (self.call.urgency(), self.since)
    }
}

/// Handle to the generator's worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Scheduler {
    worker: Worker<GeneratorService>,
    stats: Arc<Stats>,
    ledger: Ledger,
    estimator: Estimator,
    longest_wait: Option<Duration>,
    store: Option<Arc<Store>>,
    one_at_a_time: bool,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scheduler").field("status", &*self.worker.status().borrow()).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts the worker's thread, which loads the generator at once.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(options: SchedulerOptions, loader: Loader) -> std::io::Result<Self> {
        let stats = Arc::new(Stats::default());
        let SchedulerOptions { warm, template, longest_wait, reproducible, name } = options;
        let name = if name.is_empty() { "generator" } else { name };
        let store = if reproducible { None } else { Store::new(&warm).map(Arc::new) };
        let (shared, cache) = (Arc::clone(&stats), store.clone());
        let service = GeneratorService { loader, stats: shared, store: cache, template, one_at_a_time: reproducible };
        let worker = Worker::start(name, Load::AtStart, service)?;
        let (ledger, estimator) = (Ledger::default(), Estimator::default());
        Ok(Self { worker, stats, ledger, estimator, longest_wait, store, one_at_a_time: reproducible })
    }

    /// Admits a call with this many estimated tokens of this kind, if it can end in time after the work that is
    /// already admitted. Its tokens count as admitted until they are evaluated or the call ends. A call within the
    /// process is always admitted.
    ///
    /// # Errors
    /// [`ScheduleError::Overloaded`], or [`Stopped::DeadlineExceeded`] if it could not end in time even on an idle
    /// machine.
    pub fn admit(&self, call: &Call, tokens: usize, kind: Kind) -> Result<(), ScheduleError> {
        call.reserve(&self.ledger, tokens, |ahead| self.fits(call, (tokens, kind), ahead))
    }

    /// Decides about a call of unknown work before its message is decoded, as [`Scheduler::admit`] does for a
    /// single read token. Nothing is reserved.
    ///
    /// # Errors
    /// [`ScheduleError::Overloaded`].
    pub fn admit_unread(&self, call: &Call) -> Result<(), ScheduleError> {
        self.fits(call, (1, Kind::Reads), self.ledger.ahead(call.urgency()))
    }

    /// Removes the rest of the call's estimate from the ledger, because the call continues without the generator. A
    /// later plan enters its tokens again.
    pub fn release_estimate(&self, call: &Call) {
        call.take_back(&self.ledger, usize::MAX);
    }

    /// Lane of work that looks for states of passages. With a disk, that work waits for a volume, which may be
    /// slow.
    #[must_use]
    pub fn lane(&self) -> Lane {
        if self.store.as_deref().is_some_and(Store::writes) { Lane::Disk } else { Lane::Request }
    }

    fn fits(&self, call: &Call, (own, kind): (usize, Kind), ahead: usize) -> Result<(), ScheduleError> {
        // With one plan at a time, each waits until earlier samples end.
        let kind = if self.one_at_a_time { Kind::Draws } else { kind };
        let time = call.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.stats.pace.admit((own, kind), ahead, time, self.longest_wait)
    }

    /// True if this many tokens of an admitted call end before its deadline, after all admitted work of other calls that
    /// is as urgent. Some of it may go later. Without a deadline, or at an unknown speed, they do.
    #[must_use]
    pub fn is_in_time(&self, call: &Call, tokens: usize) -> bool {
        let Some(deadline) = call.deadline() else { return true };
        let time = deadline.saturating_duration_since(Instant::now());
        self.stats.pace.late_by(call.ahead(&self.ledger) + tokens, time, FILL).is_none()
    }

    /// Runs `plan`. Meanwhile scores of nodes and progress go to `events`. Dropping the future, or stopping the
    /// call, ends the work before its next step.
    ///
    /// # Errors
    /// [`ScheduleError`]; the cache then holds nothing of the plan.
    pub async fn run(
        &self,
        plan: Arc<Plan>,
        call: &Call,
        events: Option<UnboundedSender<Event>>,
    ) -> Result<Outcome, ScheduleError> {
        self.run_round(plan, call, events, self.rounds()).await
    }

    /// Shared state of the rounds of a request; empty at first.
    #[must_use]
    pub fn rounds(&self) -> Rounds {
        let held = self.store.as_deref().map_or_else(Held::default, Store::hold);
        Rounds { held, since: Instant::now(), shares: 0, optional: false }
    }

    /// Rounds that hold nothing of the earlier ones, and keep their place in the order.
    #[must_use]
    pub fn rounds_after(&self, earlier: &Rounds) -> Rounds {
        Rounds { since: earlier.since, ..self.rounds() }
    }

    /// The states that a next round would find; `None` if nothing is cached, or restoring takes as long as evaluating.
    #[must_use]
    pub fn kept(&self, rounds: Option<&Rounds>) -> Option<Kept> {
        let store = self.store.as_deref().filter(|_| self.stats.saves_cheaply.load(Ordering::Relaxed))?;
        store.kept(rounds.map_or_else(Held::default, |rounds| rounds.held.clone()))
    }

    /// Runs one round of a request, as [`Scheduler::run`] does.
    ///
    /// # Errors
    /// As [`Scheduler::run`].
    pub async fn run_round(
        &self,
        plan: Arc<Plan>,
        call: &Call,
        events: Option<UnboundedSender<Event>>,
        rounds: Rounds,
    ) -> Result<Outcome, ScheduleError> {
        self.submit(plan, call, events, (rounds, None)).await
    }

    /// Runs a plan to cache its states, which have these keys ([`Store::keys`]). They are written to disk, if there
    /// is one, even if memory has no room for them.
    ///
    /// # Errors
    /// As [`Scheduler::run`].
    pub async fn fill(&self, plan: Arc<Plan>, keys: Keys, call: &Call) -> Result<Outcome, ScheduleError> {
        self.submit(plan, call, None, (self.rounds(), Some(keys))).await
    }

    async fn submit(
        &self,
        plan: Arc<Plan>,
        call: &Call,
        events: Option<UnboundedSender<Event>>,
        (rounds, filled): (Rounds, Option<Keys>),
    ) -> Result<Outcome, ScheduleError> {
        let capacity = self.capacity().ok_or(ScheduleError::Unavailable)?;
        let Rounds { held, since, shares, optional } = rounds;
        // Idle work must not evict states that requests may need again.
        let store = self.store.clone().filter(|_| call.priority() != Priority::IDLE);
        let (costed, fills) = (Arc::clone(&plan), filled.is_some());
        let walk = move |call: &Call| {
            let Some(store) = store.as_deref() else {
                return Ok((costed.cost(), Walk::least(&costed), (vec![], held), 0));
            };
            let keys = filled.unwrap_or_else(|| store.keys(&costed));
            let new = keys.iter().filter(|(node, key)| costed.depth(*node) <= shares && held.get(key).is_none());
            if !held.has_room(store.bytes_of(new.map(|(node, _)| costed.length(*node)).sum())) {
                held.keep_only(&keys);
            }
            store.fetch(&keys, &held, || call.is_stopped());
            let known = store.known(&costed, &keys, &held);
            Ok::<_, ScheduleError>((costed.cost(), Walk::least(&costed), (keys, held), known))
        };
        let (cost, (cells, sequences), (keys, held), known) = call.compute_in(self.lane(), walk).await?;
        let expected = cost.tokens.saturating_sub(known);
        for (what, needed, available) in [("cells", cells, capacity.cells), (SEQUENCES, sequences, capacity.sequences)]
        {
            if needed > available {
                return Err(ScheduleError::TooLarge { what, needed, available });
            }
        }
        let arrival = Instant::now();
        // Samples may end with their first token.
        let least = expected.saturating_sub(plan.drawn_at_most());
        if call.deadline().is_some_and(|deadline| arrival + self.stats.surely_takes(least) >= deadline) {
            return Err(Stopped::DeadlineExceeded.into());
        }
        let (reply, answer) = oneshot::channel();
        call.expect(&self.ledger, expected);
        let samples = plan.has_samples();
        let (queued, naive) = (Some(call.stage(Stage::Queue)), cost.naive_tokens);
        self.worker.send(Job {
            plan,
            cost,
            samples,
            keys,
            held,
            shares,
            fills,
            expected,
            since,
            optional,
            arrival,
            call: call.clone(),
            queued,
            events,
            reply,
            ledger: self.ledger.clone(),
        })?;
        let outcome = answer.await.map_err(|_| ScheduleError::Unavailable)??;
        self.stats.naive_tokens.fetch_add(u64::try_from(naive).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(outcome)
    }

    /// Capacity of the generator, once it is ready.
    #[must_use]
    pub fn capacity(&self) -> Option<Capacity> {
        match &*self.worker.status().borrow() {
            Status::Ready(capacity) => Some(*capacity),
            _ => None,
        }
    }

    /// Most tokens of a prompt prefix that stays in the cache for later requests, once the generator is ready; `None` if neither
    /// states nor prompt prefixes are cached.
    #[must_use]
    pub fn largest_prefix(&self) -> Option<usize> {
        let capacity = self.capacity().filter(|_| self.store.is_some())?;
        Some(capacity.cells / prefixes::SHARE)
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<Capacity>> {
        self.worker.status()
    }

    /// How often the model failed since the start. It is loaded again after each failure.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.worker.restarts()
    }

    /// States of passages; `None` if none are cached.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.as_deref()
    }

    /// The worker's counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The tokens that are admitted but not evaluated.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Estimates the tokens of requests to this generator.
    #[must_use]
    pub const fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// When a request that found no slot should try again: the time that the admitted work will take, 0.1 to 60 seconds.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        let speed = self.stats.pace.speed().unwrap_or(500.0);
        Duration::from_secs_f64((real(self.ledger.total()) / speed).clamp(0.1, 60.0))
    }
}

#[cfg(test)]
mod tests;
