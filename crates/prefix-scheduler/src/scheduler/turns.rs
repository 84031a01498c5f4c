//! Lists that share a model in turns, so that a long one does not hold a short one up.
//!
//! `entailment` and `reranker` define the work of a turn. `backlog` refuses a list that cannot end in time behind the others.
//! A list is dropped before its next turn when its call stops or nobody waits for it, or when it can no
//! longer end in time: what is worked on until its deadline ends it is lost, and with it the time of the lists behind. One that
//! panics is dropped with its reply; the others have their turns when the model is there again.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::ScheduleError;
use super::Status;
use super::backlog::{Backlog, Report, Size};
use super::pace::{FILL, OPTIMISM};
use super::worker::{Service, Worker};
use crate::call::{Call, Stopped};
use crate::model::ModelError;
use numeric::{count, real};

/// A model whose lists take turns.
pub(super) trait TakesTurns: Send + 'static {
    /// A list and what was done of it.
    type List: Send + 'static;
    /// The answer to a whole list.
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

    /// How large a list is before its first turn, given what is known of a loaded model.
    fn size(_list: &Self::List, _info: Option<&Self::Info>) -> Size {
        Size::UNKNOWN
    }

    /// When whoever asks for a list stops waiting, where that is before the deadline of its call.
    fn until(_list: &Self::List) -> Option<Instant> {
        None
    }

    /// Tokens that are left of a list; `None` while they are not known.
    fn left(_list: &Self::List) -> Option<usize> {
        None
    }

    /// True if a part of a list is an answer.
    fn is_partial(_list: &Self::List) -> bool {
        false
    }

    /// Leaves out what does not fit into so many tokens, of a list whose size is known and of which a part is an answer.
    fn shorten(_list: &mut Self::List, _tokens: usize) {}

    /// Tokens that the model evaluated for a list so far.
    fn done(_list: &Self::List) -> usize {
        0
    }
}

/// Tokens of a turn that shows the model's speed: fewer are not much more than the cost of a turn.
const FULL: usize = 32;

/// Share of the time that is left which a part of a list may fill: a little less than by what it could be refused before its next
/// turn.
const SURE: f64 = 0.75;

/// The answer to a list; `None` while it needs more turns.
pub(super) type Turn<T> = Result<Option<<T as TakesTurns>::Answer>, <T as TakesTurns>::Error>;

/// Gives turns to all lists until there are no more.
pub(super) type Serve<'a, T> =
    dyn FnMut(<T as TakesTurns>::Info, &mut dyn FnMut(&mut <T as TakesTurns>::List) -> Turn<T>) + 'a;

/// A list in the queue.
pub(super) struct Job<T: TakesTurns> {
    list: T::List,
    call: Call,
    /// Until when it is waited for.
    due: Option<Instant>,
    /// True if a part of it is done.
    begun: bool,
    report: Report,
    reply: oneshot::Sender<Result<T::Answer, T::Error>>,
}

/// A list in the worker's queue, which may load its model for minutes: whoever asked takes it back when it leaves, and with it
/// the permit of its call.
pub(super) struct Handed<T: TakesTurns>(Arc<Mutex<Option<Job<T>>>>);

fn taken<T: TakesTurns>(job: &Mutex<Option<Job<T>>>) -> Option<Job<T>> {
    job.lock().take()
}

/// Takes a list back that the worker has not taken. It holds no list that the worker drops, because its reply says so.
struct TakesBack<T: TakesTurns>(Weak<Mutex<Option<Job<T>>>>);

impl<T: TakesTurns> Drop for TakesBack<T> {
    fn drop(&mut self) {
        drop(self.0.upgrade().and_then(|job| taken(&job)));
    }
}

/// The lists of a model, as the service of a worker.
pub(super) struct Turns<T: TakesTurns> {
    model: T,
    /// The list for which the model is loaded. It waits as it came, so that it can be taken back, too.
    first: Option<Handed<T>>,
    jobs: VecDeque<Job<T>>,
    backlog: Arc<Backlog>,
}

impl<T: TakesTurns> Turns<T> {
    /// `backlog` is what lists enter by [`ask`].
    pub const fn new(model: T, backlog: Arc<Backlog>) -> Self {
        Self { model, first: None, jobs: VecDeque::new(), backlog }
    }
}

impl<T: TakesTurns> Service for Turns<T> {
    type Job = Handed<T>;
    type Info = T::Info;

    fn run(
        &mut self,
        first: Option<Handed<T>>,
        queue: &Receiver<Handed<T>>,
        ready: &mut dyn FnMut(T::Info),
    ) -> Result<(), ModelError> {
        let Self { model, first: kept, jobs, backlog } = self;
        *kept = first.or(kept.take());
        let outcome = model.load(&mut |info, turn| {
            ready(info);
            jobs.extend(kept.take().and_then(|handed| taken(&handed.0)));
            serve(jobs, queue, backlog, turn);
        });
        if outcome.is_err() {
            // The lists that came while it loaded get the same answer at once, not a failed load each.
            jobs.extend(kept.take().into_iter().chain(queue.try_iter()).filter_map(|handed| taken(&handed.0)));
        }
        outcome
    }

    fn abandon(&mut self, error: &ScheduleError) {
        self.jobs.extend(self.first.take().and_then(|handed| taken(&handed.0)));
        for job in self.jobs.drain(..) {
            let _ = job.reply.send(Err(error.clone().into()));
        }
    }

    fn panicked(&mut self) {}

    fn waiting(&self) -> bool {
        self.first.is_some() || !self.jobs.is_empty()
    }
}

/// Gives every list a turn after the other, until the queue is closed and nothing is left.
fn serve<T: TakesTurns>(
    jobs: &mut VecDeque<Job<T>>,
    queue: &Receiver<Handed<T>>,
    backlog: &Backlog,
    turn: &mut dyn FnMut(&mut T::List) -> Turn<T>,
) {
    // The first step includes allocations of the model, so its time is not measured.
    let mut is_warm = false;
    loop {
        if jobs.is_empty() {
            match queue.recv() {
                Ok(handed) => jobs.extend(taken(&handed.0)),
                Err(_) => return,
            }
        }
        jobs.extend(queue.try_iter().filter_map(|handed| taken(&handed.0)));
        // Lists that nobody waits for hold permits, and would look like others that wait.
        jobs.retain(|job| !job.reply.is_closed());
        // Taken out before its turn: a panic drops it with its reply, and the others stay.
        let Some(mut job) = jobs.pop_front() else { continue };
        if let Some(left) = T::left(&job.list)
            && let Some(most) = most_in_time(backlog, &job, left, jobs.len())
        {
            T::shorten(&mut job.list, most);
            job.report.set(backlog, T::left(&job.list).unwrap_or(left));
        }
        let left = T::left(&job.list);
        let droppable = left.filter(|_| job.report.is_refusable());
        // One that others wait behind is begun only if it is sure to end: the speed is not exact, and the time of a list that fails
        // is theirs. One that nobody waits behind is begun, and its first turn says more of the speed; unless whoever asks can do
        // without it, and by the speed of a moment ago it would be in vain.
        let late = if !job.begun && !jobs.is_empty() {
            let late = droppable.and_then(|left| late_by(backlog, left, job.due, FILL));
            late.map(|retry_after| ScheduleError::Overloaded { retry_after })
        } else if job.begun || T::until(&job.list).is_some() {
            let late = droppable.and_then(|left| late_by(backlog, left, job.due, OPTIMISM));
            late.map(|_| ScheduleError::from(Stopped::DeadlineExceeded))
        } else {
            None
        };
        let outcome = match (job.call.check(), late) {
            (Err(stopped), _) => Err(ScheduleError::from(stopped).into()),
            (Ok(()), Some(late)) => Err(late.into()),
            (Ok(()), None) => {
                let (began, before) = (Instant::now(), T::done(&job.list));
                // Before it ends: the deadline of its call may pass in it.
                job.call.tally().add_turn();
                let outcome = turn(&mut job.list);
                let done = T::done(&job.list).saturating_sub(before);
                if done > 0 {
                    if std::mem::replace(&mut is_warm, true) {
                        backlog.pace.record(done, began.elapsed(), done >= FULL);
                    }
                    job.begun = true;
                }
                if let Some(now) = T::left(&job.list) {
                    job.report.set(backlog, now);
                }
                outcome
            }
        };
        match outcome.transpose() {
            // Its size is known now: it has its turn, which took no time of the model.
            None if left.is_none() && T::left(&job.list).is_some() => jobs.push_front(job),
            // Its results would be lost behind the turns of the others, so it ends first.
            None if T::is_partial(&job.list)
                && T::left(&job.list).is_some_and(|left| most_in_time(backlog, &job, left, jobs.len()) == Some(0)) =>
            {
                jobs.push_front(job);
            }
            None => jobs.push_back(job),
            Some(answer) => drop(job.reply.send(answer)),
        }
    }
}

/// To how many tokens a list has to be cut of which a part is an answer and `left` are left, where so many `others` have their
/// turns between its own; `None` where it fits, and for no end of its time, or no speed. 0 where it has to end with what is done.
fn most_in_time<T: TakesTurns>(backlog: &Backlog, job: &Job<T>, left: usize, others: usize) -> Option<usize> {
    let (due, speed) = job.due.zip(backlog.pace.full())?;
    let tokens = speed * due.saturating_duration_since(Instant::now()).as_secs_f64();
    let sure = tokens * SURE;
    match (others, job.begun) {
        // One that just fits is begun whole.
        (0, _) => (real(left) > tokens).then(|| count(sure).max(FULL)),
        (_, false) => (real(left) > sure).then(|| count(sure).max(FULL)),
        (_, true) => (real(left) > sure / real(others + 1)).then_some(0),
    }
}

/// How much longer than `share` of the time that is left so many tokens take.
fn late_by(backlog: &Backlog, left: usize, due: Option<Instant>, share: f64) -> Option<Duration> {
    due.and_then(|due| backlog.pace.late_by(left, due.saturating_duration_since(Instant::now()), share))
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
    let size = match &*worker.status().borrow() {
        Status::Ready(info) => T::size(&list, Some(info)),
        _ => T::size(&list, None),
    };
    let due = call.deadline().into_iter().chain(T::until(&list)).min();
    // Held here, so that a list for which nobody waits any more is in nobody's way.
    let entry = backlog.enter(call, size, due)?;
    let (reply, answer) = oneshot::channel();
    let job = Job { list, call: call.clone(), due, begun: false, report: entry.report(), reply };
    let job = Arc::new(Mutex::new(Some(job)));
    let _held = TakesBack(Arc::downgrade(&job));
    worker.send(Handed(job))?;
    answer.await.map_err(|_| ScheduleError::Unavailable)?
}
