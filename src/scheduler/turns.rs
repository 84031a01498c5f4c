//! Lists that share a model in turns, so that a long one does not hold a short one up.
//!
//! What a turn does is the business of `entailment` and `reranker`. A list is dropped before its next turn when its call stops or
//! nobody waits for it, or when it can no longer end in time: what is worked on until its deadline ends it is lost, and with it the time
//! of the lists behind. What cannot end in time behind the others is refused before it comes in (`backlog`). One that panics is dropped with its reply; the others have their turns when the model is there again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::oneshot;

use super::ScheduleError;
use super::backlog::{Backlog, Entry, Size};
use super::pace::{FILL, OPTIMISM};
use super::worker::{Service, Worker};
use crate::call::{Call, Stopped};
use crate::model::ModelError;

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

    /// How large a list is before its first turn. Nothing is refused by the default.
    fn size(_list: &Self::List) -> Size {
        Size::default()
    }

    /// Tokens that are left of a list; `None` while they are not known.
    fn left(_list: &Self::List) -> Option<usize> {
        None
    }
}

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
    /// Its place in front of the model.
    entry: Entry,
    reply: oneshot::Sender<Result<T::Answer, T::Error>>,
}

/// The lists of a model, as the service of a worker.
pub(super) struct Turns<T: TakesTurns> {
    model: T,
    jobs: VecDeque<Job<T>>,
    backlog: Arc<Backlog>,
}

impl<T: TakesTurns> Turns<T> {
    /// `backlog` is what lists enter by [`ask`].
    pub const fn new(model: T, backlog: Arc<Backlog>) -> Self {
        Self { model, jobs: VecDeque::new(), backlog }
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
        let Self { model, jobs, backlog } = self;
        jobs.extend(first);
        let outcome = model.load(&mut |info, turn| {
            ready(info);
            serve(jobs, queue, backlog, turn);
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
    backlog: &Backlog,
    turn: &mut dyn FnMut(&mut T::List) -> Turn<T>,
) {
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
        // One that others wait behind is begun only if it is sure to end: the speed is not exact, and the time of a list that fails is
        // theirs.
        let share = if job.begun || jobs.is_empty() { OPTIMISM } else { FILL };
        let outcome = match job.call.check() {
            Err(stopped) => Err(ScheduleError::from(stopped).into()),
            Ok(()) if left.is_some_and(|left| is_too_late(backlog, left, &job.call, share)) => {
                Err(ScheduleError::from(Stopped::DeadlineExceeded).into())
            }
            Ok(()) => {
                let began = Instant::now();
                let outcome = turn(&mut job.list);
                let now = T::left(&job.list);
                let done = left.map_or(0, |left| left.saturating_sub(now.unwrap_or(0)));
                if done > 0 {
                    backlog.pace.record(done, began.elapsed(), true);
                    job.begun = true;
                }
                if let Some(now) = now {
                    job.entry.set(now);
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

/// Whether so many tokens take more than `share` of the time until the deadline.
fn is_too_late(backlog: &Backlog, left: usize, call: &Call, share: f64) -> bool {
    let time = call.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    time.is_some_and(|time| backlog.pace.exceeds(left, time, share))
}

/// Hands a list over and waits for its answer. Dropping the future, or stopping the call, drops the list before its next turn.
///
/// # Errors
/// That of the list, that there is no model, or that the list cannot end in time behind the others.
pub(super) async fn ask<T: TakesTurns>(
    worker: &Worker<Turns<T>>,
    backlog: &Arc<Backlog>,
    list: T::List,
    call: &Call,
) -> Result<T::Answer, T::Error> {
    let entry = backlog.enter(call, T::size(&list))?;
    let (reply, answer) = oneshot::channel();
    worker.send(Job { list, call: call.clone(), begun: false, entry, reply })?;
    answer.await.map_err(|_| ScheduleError::Unavailable)?
}
