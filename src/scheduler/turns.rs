//! Lists that share a model in turns, so that a long one does not hold a short one up.
//!
//! What a turn does is the business of `entailment` and `reranker`. A list is dropped before its next turn when its call stops or
//! nobody waits for it, or when it can no longer end in time: what is worked on until its deadline ends it is lost, and with it the time
//! of the lists behind. One that panics is dropped with its reply; the others have their turns when the model is there again.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::ScheduleError;
use super::worker::{Service, Worker};
use crate::call::{Call, Stopped};
use crate::model::ModelError;
use crate::numeric::real;

/// A model whose lists take turns.
pub(super) trait TakesTurns: Send + 'static {
    /// A list and what was done of it.
    type List: Send + 'static;
    /// What a whole list is answered.
    type Answer: Send + 'static;
    /// Why a list is not answered.
    type Error: From<ScheduleError> + Send + 'static;
    /// What is known of the model once it is loaded.
    type Info: Clone + Send + Sync + 'static;

    /// Loads the model and calls `serve` with it, as what it does in a turn.
    ///
    /// # Errors
    /// The model cannot be loaded.
    fn load(&mut self, serve: &mut Serve<'_, Self>) -> Result<(), ModelError>;

    /// What is left of a list, in a unit that takes the model about the same time, such as tokens; `None` while that is not known.
    fn left(_list: &Self::List) -> Option<usize> {
        None
    }
}

/// What the last turns did in their time.
#[derive(Debug, Default)]
struct Speed {
    units: f64,
    seconds: f64,
}

/// How much of the sums a further turn leaves.
const KEPT: f64 = 0.8;

impl Speed {
    fn learn(&mut self, units: usize, time: Duration) {
        self.units = self.units * KEPT + real(units);
        self.seconds = self.seconds * KEPT + time.as_secs_f64();
    }

    /// Whether so much work takes longer than `share` of the time until the deadline.
    fn is_too_late(&self, left: Option<usize>, call: &Call, share: f64) -> bool {
        let (Some(left), Some(deadline)) = (left, call.deadline()) else { return false };
        let time = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        self.units > 0.0 && real(left) * self.seconds / self.units > share * time
    }
}

/// A list that has begun, or for which nobody waits, is dropped where it would end this much after its deadline at the last speed.
const HOPELESS: f64 = 1.25;

/// One that others wait behind is begun only if it takes at most this share of its time: the speed is not exact, and the time of a list
/// that fails is theirs.
const SAFE: f64 = 0.8;

/// The answer to a list; `None` while it needs more turns.
pub(super) type Turn<T> = Result<Option<<T as TakesTurns>::Answer>, <T as TakesTurns>::Error>;

/// Gives turns to all lists until there are no more.
pub(super) type Serve<'a, T> =
    dyn FnMut(<T as TakesTurns>::Info, &mut dyn FnMut(&mut <T as TakesTurns>::List) -> Turn<T>) + 'a;

/// A list in the queue.
pub(super) struct Job<T: TakesTurns> {
    list: T::List,
    call: Call,
    /// Whether a part of it is done.
    begun: bool,
    reply: oneshot::Sender<Result<T::Answer, T::Error>>,
}

/// The lists of a model, as the service of a worker.
pub(super) struct Turns<T: TakesTurns> {
    model: T,
    jobs: VecDeque<Job<T>>,
}

impl<T: TakesTurns> Turns<T> {
    pub const fn new(model: T) -> Self {
        Self { model, jobs: VecDeque::new() }
    }
}

impl<T: TakesTurns> Service for Turns<T> {
    type Job = Job<T>;
    type Info = T::Info;

    fn run(
        &mut self,
        first: Option<Job<T>>,
        queue: &Receiver<Job<T>>,
        ready: &mut dyn FnMut(T::Info),
    ) -> Result<(), ModelError> {
        let Self { model, jobs } = self;
        jobs.extend(first);
        let outcome = model.load(&mut |info, turn| {
            ready(info);
            serve(jobs, queue, turn);
        });
        if outcome.is_err() {
            // The lists that came while it loaded get the same answer at once, not a failed load each.
            jobs.extend(queue.try_iter());
        }
        outcome
    }

    fn abandon(&mut self, error: &ScheduleError) {
        for job in self.jobs.drain(..) {
            let _ = job.reply.send(Err(error.clone().into()));
        }
    }

    fn panicked(&mut self) {}

    fn waiting(&self) -> bool {
        !self.jobs.is_empty()
    }
}

/// Gives every list a turn after the other, until the queue is closed and nothing is left.
fn serve<T: TakesTurns>(
    jobs: &mut VecDeque<Job<T>>,
    queue: &Receiver<Job<T>>,
    turn: &mut dyn FnMut(&mut T::List) -> Turn<T>,
) {
    let mut speed = Speed::default();
    loop {
        if jobs.is_empty() {
            match queue.recv() {
                Ok(job) => jobs.push_back(job),
                Err(_) => return,
            }
        }
        jobs.extend(queue.try_iter());
        // Taken out before its turn: a panic drops it with its reply, and the others stay.
        let Some(mut job) = jobs.pop_front() else { continue };
        if job.reply.is_closed() {
            continue;
        }
        let left = T::left(&job.list);
        let share = if job.begun || jobs.is_empty() { HOPELESS } else { SAFE };
        let outcome = match job.call.check() {
            Err(stopped) => Err(ScheduleError::from(stopped).into()),
            Ok(()) if speed.is_too_late(left, &job.call, share) => {
                Err(ScheduleError::from(Stopped::DeadlineExceeded).into())
            }
            Ok(()) => {
                let began = Instant::now();
                let outcome = turn(&mut job.list);
                let done = left.map_or(0, |left| left.saturating_sub(T::left(&job.list).unwrap_or(0)));
                if done > 0 {
                    speed.learn(done, began.elapsed());
                    job.begun = true;
                }
                outcome
            }
        };
        match outcome.transpose() {
            None => jobs.push_back(job),
            Some(answer) => drop(job.reply.send(answer)),
        }
    }
}

/// Hands a list over and waits for its answer. Dropping the future, or stopping the call, drops the list before its next turn.
///
/// # Errors
/// That of the list, or that there is no model.
pub(super) async fn ask<T: TakesTurns>(
    worker: &Worker<Turns<T>>,
    list: T::List,
    call: &Call,
) -> Result<T::Answer, T::Error> {
    let (reply, answer) = oneshot::channel();
    worker.send(Job { list, call: call.clone(), begun: false, reply })?;
    answer.await.map_err(|_| ScheduleError::Unavailable)?
}
