//! The way to the generator: a bounded queue in front of one worker thread that owns the model.
//!
//! [`Scheduler::run`] hands a plan over and awaits its scores. Dropping the future cancels the work: the worker notices
//! before its next step and frees the cells. `queue` holds the policy, `worker` the loop, `supervisor` the thread's life.

mod active;
pub mod entailment;
mod prefix;
pub mod queue;
mod supervisor;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc::UnboundedSender, oneshot, watch};

use crate::model::{Capacity, Generator, ModelError};
use crate::numeric::real;
use crate::plan::{Cost, Finish, NodeId, Plan, Token, Walk};

/// Builds a generator on the worker's thread and lends it to the callback until that returns.
pub type Lender = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Generator)) -> Result<(), ModelError> + Send>;

/// How the scheduler is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Requests in the system at once, waiting and active.
    pub queue_length: usize,
    /// Cells kept for prefixes of earlier requests; 0 switches the reuse off.
    pub prefix_cells: usize,
}

/// Why a plan was not carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The queue is full; trying again makes sense after about this long.
    #[error("the queue is full")]
    QueueFull {
        /// Estimated time until a place is free.
        retry_after: Duration,
    },
    /// The deadline passed, or would surely pass before the work ends.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// No model: it is loading, its worker died, or the server is draining.
    #[error("the generator is not available")]
    Unavailable,
    /// The plan needs more of the cache than there is.
    #[error("needs {needed} {what}, available are {available}")]
    TooLarge {
        /// Cells or sequences.
        what: &'static str,
        /// Least number needed.
        needed: usize,
        /// Number there are.
        available: usize,
    },
    /// The model failed on this work.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// State of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The model is being loaded.
    Loading,
    /// Ready, with this capacity.
    Ready(Capacity),
    /// The worker ended on this error; it will be started again.
    Failed(String),
    /// Ended for good.
    Stopped,
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
    /// Natural log-probability of each at the sampling temperature.
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
    /// Requests given up because their caller left or their deadline passed.
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

    fn retry_after(&self) -> Duration {
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
    deadline: Option<Instant>,
    events: Option<UnboundedSender<Event>>,
    reply: oneshot::Sender<Result<Outcome, ScheduleError>>,
    /// Held for its drop: a place in the system.
    _place: OwnedSemaphorePermit,
}

impl Job {
    fn given_up(&self, now: Instant) -> Option<ScheduleError> {
        if self.reply.is_closed() {
            // Nobody reads this: the caller left.
            return Some(ScheduleError::Unavailable);
        }
        self.deadline.is_some_and(|deadline| now >= deadline).then_some(ScheduleError::DeadlineExceeded)
    }
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Scheduler {
    jobs: mpsc::Sender<Job>,
    places: Arc<Semaphore>,
    status: watch::Receiver<Status>,
    stats: Arc<Stats>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scheduler").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts the worker's thread.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(settings: Settings, lender: Lender) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let (report, status) = watch::channel(Status::Loading);
        let stats = Arc::new(Stats::default());
        let places = Arc::new(Semaphore::new(settings.queue_length));
        let supervisor = supervisor::Supervisor { queue, report, stats: Arc::clone(&stats), settings };
        std::thread::Builder::new().name("generator".into()).spawn(move || supervisor.run(lender))?;
        Ok(Self { jobs, places, status, stats })
    }

    /// Carries out `plan`. Scores of nodes and progress go to `events` while it runs.
    ///
    /// # Errors
    /// [`ScheduleError`]; nothing of the plan is left in the cache then.
    pub async fn run(
        &self,
        plan: Arc<Plan>,
        deadline: Option<Instant>,
        events: Option<UnboundedSender<Event>>,
    ) -> Result<Outcome, ScheduleError> {
        let capacity = self.capacity().ok_or(ScheduleError::Unavailable)?;
        let cost = plan.cost();
        let (cells, sequences) = Walk::least(&plan);
        for (what, needed, available) in
            [("cells", cells, capacity.cells), ("sequences", sequences, capacity.sequences)]
        {
            if needed > available {
                return Err(ScheduleError::TooLarge { what, needed, available });
            }
        }
        let arrival = Instant::now();
        if deadline.is_some_and(|deadline| arrival + self.stats.surely_takes(cost.tokens) >= deadline) {
            return Err(ScheduleError::DeadlineExceeded);
        }
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| ScheduleError::QueueFull { retry_after: self.stats.retry_after() })?;
        let (reply, answer) = oneshot::channel();
        let job = Job { plan, cost, arrival, deadline, events, reply, _place: place };
        self.stats.backlog.fetch_add(cost.tokens, Ordering::Relaxed);
        self.jobs.send(job).map_err(|_| ScheduleError::Unavailable)?;
        answer.await.map_err(|_| ScheduleError::Unavailable)?
    }

    /// What the generator can hold, once it is ready.
    #[must_use]
    pub fn capacity(&self) -> Option<Capacity> {
        match &*self.status.borrow() {
            Status::Ready(capacity) => Some(*capacity),
            _ => None,
        }
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// The worker's counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

#[cfg(test)]
mod tests;
