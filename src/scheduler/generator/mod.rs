//! Plans on a generator: a queue in front of one worker thread that owns the model.
//!
//! [`Scheduler::run`] hands a plan over and awaits its scores. `queue` holds the policy, `stepper` the loop around the generator, `active` a plan
//! while it runs, `prefix` the prefixes kept for later requests.

mod active;
mod prefix;
pub mod queue;
mod service;
mod stepper;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc::UnboundedSender, oneshot, watch};

use super::worker::Worker;
use super::{Load, ScheduleError, Status};
use crate::call::{Call, Stopped};
use crate::model::{Capacity, Generator, ModelError};
use crate::numeric::real;
use crate::plan::{Cost, Finish, NodeId, Plan, Token, Walk};
use service::GeneratorService;

/// Builds a generator on the worker's thread and passes it to the callback, which returns when the worker ends.
pub type Loader = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Generator)) -> Result<(), ModelError> + Send>;

/// How the scheduler is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerOptions {
    /// Cells kept for prefixes of earlier requests; 0 switches the reuse off.
    pub prefix_cells: usize,
}

/// Something that happened to a plan on its way.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// All log-probabilities of a node, in nats, in the order of its tokens.
    Scored(NodeId, Vec<f64>),
    /// A sample is at its end.
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
    /// Its tokens, with the one that ended it.
    pub tokens: Vec<Token>,
    /// Natural log-probability of each at the sampling temperature, among the tokens that were allowed; 0 for a forced one.
    pub log_probabilities: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

/// The scores of a plan and what they took.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// For each node, the natural log-probabilities of its scored tokens.
    pub scores: Vec<Vec<f64>>,
    /// The samples, by node.
    pub samples: HashMap<NodeId, Sample>,
    /// Time in the queue.
    pub queued: Duration,
    /// Time from admission to the last step.
    pub running: Duration,
    /// Tokens evaluated for this plan.
    pub tokens: usize,
    /// Tokens taken from the prefixes of earlier requests.
    pub cached_tokens: usize,
    /// Steps in which this plan had tokens.
    pub steps: usize,
}

/// Counters of the worker, readable at any time.
#[derive(Debug, Default)]
pub struct Stats {
    /// Tokens evaluated.
    pub tokens: AtomicU64,
    /// Tokens not evaluated because an earlier request's prefix was there.
    pub cached_tokens: AtomicU64,
    /// Microseconds inside the model.
    pub busy_micros: AtomicU64,
    /// Steps.
    pub steps: AtomicU64,
    /// Cells held by active requests.
    pub cells: AtomicUsize,
    /// Requests that wait.
    pub waiting: AtomicUsize,
    /// Requests that run.
    pub active: AtomicUsize,
    /// Tokens of waiting and active requests not yet evaluated.
    pub backlog: AtomicUsize,
    /// Requests abandoned because their caller left or their deadline passed.
    pub abandoned: AtomicU64,
    /// Best speed of any large step so far, in tokens a second.
    best_speed: AtomicU64,
}

impl Stats {
    /// Mean speed so far in tokens a second; `None` before the first step.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let micros = self.busy_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| count(self.tokens.load(Ordering::Relaxed)) * 1e6 / count(micros))
    }

    /// Least time that many tokens can take, by twice the best speed seen: a bound to refuse by, not an estimate.
    fn surely_takes(&self, tokens: usize) -> Duration {
        match self.best_speed.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            speed => Duration::from_secs_f64(real(tokens) / (2.0 * count(speed))),
        }
    }

    /// When a request that found no place should try again: the time that the backlog will take, 0.1 to 60 seconds.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        let seconds = real(self.backlog.load(Ordering::Relaxed)) / self.speed().unwrap_or(500.0);
        Duration::from_secs_f64(seconds.clamp(0.1, 60.0))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
const fn count(value: u64) -> f64 {
    value as f64
}

struct Job {
    plan: Arc<Plan>,
    cost: Cost,
    arrival: Instant,
    call: Call,
    events: Option<UnboundedSender<Event>>,
    reply: oneshot::Sender<Result<Outcome, ScheduleError>>,
}

impl Job {
    /// Why nobody waits for this job any more.
    fn abandoned(&self) -> Option<ScheduleError> {
        if self.reply.is_closed() {
            return Some(Stopped::Cancelled.into());
        }
        self.call.check().err().map(ScheduleError::Stopped)
    }
}

/// Handle to the generator's worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Scheduler {
    worker: Worker<GeneratorService>,
    stats: Arc<Stats>,
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
        let service = GeneratorService { loader, stats: Arc::clone(&stats), options };
        Ok(Self { worker: Worker::start("generator", Load::AtStart, service)?, stats })
    }

    /// Carries out `plan`. Scores of nodes and progress go to `events` while it runs. Dropping the future, or stopping the
    /// call, ends the work before its next step.
    ///
    /// # Errors
    /// [`ScheduleError`]; nothing of the plan is left in the cache then.
    pub async fn run(
        &self,
        plan: Arc<Plan>,
        call: &Call,
        events: Option<UnboundedSender<Event>>,
    ) -> Result<Outcome, ScheduleError> {
        let capacity = self.capacity().ok_or(ScheduleError::Unavailable)?;
        let costed = Arc::clone(&plan);
        let walk = move |_: &Call| Ok::<_, ScheduleError>((costed.cost(), Walk::least(&costed)));
        let (cost, (cells, sequences)) = call.compute(walk).await?;
        for (what, needed, available) in
            [("cells", cells, capacity.cells), ("sequences", sequences, capacity.sequences)]
        {
            if needed > available {
                return Err(ScheduleError::TooLarge { what, needed, available });
            }
        }
        let arrival = Instant::now();
        if call.deadline().is_some_and(|deadline| arrival + self.stats.surely_takes(cost.tokens) >= deadline) {
            return Err(Stopped::DeadlineExceeded.into());
        }
        let (reply, answer) = oneshot::channel();
        self.stats.backlog.fetch_add(cost.tokens, Ordering::Relaxed);
        self.worker.send(Job { plan, cost, arrival, call: call.clone(), events, reply })?;
        answer.await.map_err(|_| ScheduleError::Unavailable)?
    }

    /// What the generator can hold, once it is ready.
    #[must_use]
    pub fn capacity(&self) -> Option<Capacity> {
        match &*self.worker.status().borrow() {
            Status::Ready(capacity) => Some(*capacity),
            _ => None,
        }
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<Capacity>> {
        self.worker.status()
    }

    /// The worker's counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

#[cfg(test)]
mod tests;
