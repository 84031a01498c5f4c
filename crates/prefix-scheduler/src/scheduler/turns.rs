//! Lists share a model in turns. Lists without a deadline alternate, so that a long one does not delay a short one.
//!
//! `entailment` and `reranker` define the work of a turn, `order` decides whose turn is next. A list that cannot
//! end in time after the others is refused. A list is dropped before its next turn when its call stops, when its
//! caller left, or when it can no longer end in time, because the lists behind it need that time. A list that
//! panics is dropped with its reply; the others continue when the model is loaded again.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::ScheduleError;
use super::Status;
use super::estimate::{Class, Estimator};
use super::order::Order;
use super::pace::{FILL, Kind, OPTIMISM, Pace};
use super::worker::{Service, Worker};
use crate::call::{Call, Entry, Ledger, Stopped, Urgency};
use crate::model::ModelError;
use numeric::{count, real};

/// All lists of a model share one estimate.
const LISTS: Class = Class { name: "list", options: 0, texts: 0 };

/// The estimated work of a list, before tokenisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Bytes of its texts.
    pub bytes: usize,
    /// Maximum number of tokens.
    pub most: usize,
}

/// The lists of a model: their tokens, the estimates of new ones, and the model's speed.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub ledger: Ledger,
    estimator: Estimator,
    pace: Pace,
    /// Longest time until a list without a deadline begins; `None` for no bound.
    longest_wait: Option<Duration>,
}

impl Backlog {
    pub fn new(longest_wait: Option<Duration>) -> Self {
        Self { longest_wait, ..Self::default() }
    }

    fn estimate(&self, size: Size) -> usize {
        self.estimator.tokens(LISTS, size.bytes).min(size.most)
    }

    /// Enters a list whose caller waits until `due`, if it can end in time after those that go before it. A list
    /// without a size, or of a call within the process, is always entered. If a part of the list suffices, it takes
    /// only as many tokens as there is time for, and only the lists before it must end in time.
    ///
    /// # Errors
    /// As [`Pace::admit`].
    fn enter(
        &self,
        call: &Call,
        due: Option<Instant>,
        size: Option<Size>,
        is_partial: bool,
    ) -> Result<Entry, ScheduleError> {
        let time = due.map(|due| due.saturating_duration_since(Instant::now()));
        let in_time = self.pace.full().zip(time).filter(|_| is_partial);
        let in_time = in_time.map_or(usize::MAX, |(speed, time)| count(speed * time.as_secs_f64()));
        let tokens = size.map_or(0, |size| self.estimate(size).min(in_time));
        let own = if is_partial { 0 } else { tokens };
        self.ledger.enter(Urgency::new(call.priority(), due), tokens, |ahead| {
            if ahead == 0 || size.is_none() || call.is_local() {
                return Ok(());
            }
            self.pace.admit((own, Kind::Reads), ahead, time, self.longest_wait)
        })
    }

    /// Expected time for a list of this size, including the lists that go before it, at the latest speed; `None`
    /// before the first full turn.
    pub fn expected(&self, urgency: Urgency, size: Size) -> Option<Duration> {
        let tokens = self.ledger.ahead(urgency).saturating_add(self.estimate(size));
        Duration::try_from_secs_f64(real(tokens) / self.pace.full()?).ok()
    }
}

/// A model whose lists take turns.
pub(super) trait TakesTurns: Send + 'static {
    /// A list with its progress.
    type List: Send + 'static;
    /// The answer to a whole list.
    type Answer: Send + 'static;
    /// Why a list is not answered.
    type Error: From<ScheduleError> + Send + 'static;
    /// Description of the loaded model.
    type Info: Clone + Send + Sync + 'static;

    /// Loads the model and calls `serve` with the function that does a turn.
    ///
    /// # Errors
    /// The model cannot be loaded.
    fn load(&mut self, serve: &mut Serve<'_, Self>) -> Result<(), ModelError>;

    /// The size of a list before its first turn, with the description of a loaded model; `None` for a list that is
    /// neither estimated nor refused.
    fn size(_list: &Self::List, _info: Option<&Self::Info>) -> Option<Size> {
        None
    }

    /// When the caller of a list stops waiting, if before the deadline of its call.
    fn until(_list: &Self::List) -> Option<Instant> {
        None
    }

    /// Remaining tokens of a list; `None` while unknown.
    fn left(_list: &Self::List) -> Option<usize> {
        None
    }

    /// True if a part of a list suffices.
    fn is_partial(_list: &Self::List) -> bool {
        false
    }

    /// Leaves out passages beyond this many tokens. The size of the list is known, and a part of it suffices.
    fn shorten(_list: &mut Self::List, _tokens: usize) {}

    /// Tokens that the model evaluated for a list so far.
    fn done(_list: &Self::List) -> usize {
        0
    }
}

/// Tokens of a turn that shows the model's speed: with fewer, the fixed cost of a turn dominates.
const FULL: usize = 32;

/// Share of the remaining time that a part of a list may fill: a little less than [`FILL`], which decides its
/// refusal before the next turn.
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
    /// When its caller stops waiting.
    due: Option<Instant>,
    /// Start of its wait for a turn.
    since: Instant,
    /// True if a part of it is done.
    begun: bool,
    size: Option<Size>,
    /// True if its tokens were counted, so that the estimates learn from it.
    is_known: bool,
    /// Its tokens in the ledger, while its caller waits.
    entry: Weak<Entry>,
    reply: oneshot::Sender<Result<T::Answer, T::Error>>,
}

impl<T: TakesTurns> Job<T> {
    fn urgency(&self) -> Urgency {
        Urgency::new(self.call.priority(), self.due)
    }

    /// Reports the remaining tokens of the list, once known.
    fn report(&mut self, backlog: &Backlog) {
        let Some(left) = T::left(&self.list) else { return };
        if !std::mem::replace(&mut self.is_known, true)
            && let Some(size) = self.size
        {
            backlog.estimator.learn(LISTS, size.bytes, left);
        }
        if let Some(entry) = self.entry.upgrade() {
            entry.update(|_| left);
        }
    }
}

/// A list in the worker's queue, which may be loading its model for minutes. A caller that leaves takes it back,
/// together with the slot of its call.
pub(super) struct Handed<T: TakesTurns>(Arc<Mutex<Option<Job<T>>>>);

fn taken<T: TakesTurns>(job: &Mutex<Option<Job<T>>>) -> Option<Job<T>> {
    job.lock().take()
}

/// Takes back a list that the worker has not taken. It does not keep a list alive that the worker drops.
struct TakesBack<T: TakesTurns>(Weak<Mutex<Option<Job<T>>>>);

impl<T: TakesTurns> Drop for TakesBack<T> {
    fn drop(&mut self) {
        drop(self.0.upgrade().and_then(|job| taken(&job)));
    }
}

/// The lists of a model, as the service of a worker.
pub(super) struct Turns<T: TakesTurns> {
    model: T,
    /// The list that triggered the load. Its caller can take it back while it waits here.
    first: Option<Handed<T>>,
    jobs: VecDeque<Job<T>>,
    backlog: Arc<Backlog>,
}

impl<T: TakesTurns> Turns<T> {
    /// Lists enter `backlog` by [`submit`].
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
        let Self { model, first: waiting, jobs, backlog } = self;
        *waiting = first.or(waiting.take());
        let outcome = model.load(&mut |info, turn| {
            ready(info);
            jobs.extend(waiting.take().and_then(|handed| taken(&handed.0)));
            serve(jobs, queue, backlog, turn);
        });
        if outcome.is_err() {
            // Lists that arrived during the load get the same answer at once, not a failed load each.
            jobs.extend(waiting.take().into_iter().chain(queue.try_iter()).filter_map(|handed| taken(&handed.0)));
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

/// Gives turns to the lists until the queue is closed and empty.
fn serve<T: TakesTurns>(
    jobs: &mut VecDeque<Job<T>>,
    queue: &Receiver<Handed<T>>,
    backlog: &Backlog,
    turn: &mut dyn FnMut(&mut T::List) -> Turn<T>,
) {
    // The first step includes allocations of the model, so its time is not measured.
    let mut is_measured = false;
    let mut order = Order::default();
    // True if the first job also has the next turn.
    let mut goes_on = false;
    loop {
        if jobs.is_empty() {
            match queue.recv() {
                Ok(handed) => jobs.extend(taken(&handed.0)),
                Err(_) => return,
            }
        }
        jobs.extend(queue.try_iter().filter_map(|handed| taken(&handed.0)));
        // Lists whose callers left hold slots, and would count as waiting lists.
        let first = jobs.front().is_some_and(|job| job.reply.is_closed());
        goes_on &= !first;
        jobs.retain(|job| !job.reply.is_closed());
        let next = if goes_on { Some(0) } else { order.next(jobs.iter().map(|job| (job.urgency(), job.since))) };
        // Removed before its turn: a panic drops it with its reply, and the others stay.
        let Some(mut job) = next.and_then(|next| jobs.remove(next)) else { continue };
        if !std::mem::take(&mut goes_on) {
            order.began();
        }
        if let Some(left) = T::left(&job.list)
            && let Some(most) = most_in_time(backlog, &job, left, jobs)
        {
            T::shorten(&mut job.list, most);
            job.report(backlog);
        }
        let left = T::left(&job.list);
        let droppable = left.filter(|_| job.size.is_some());
        // A list with others behind it begins only if it is sure to end: the speed is inexact, and a failing list
        // takes their time. A single list begins, and its first turn shows the speed, unless its caller can do
        // without it and the latest speed does not suffice.
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
                // Counted before the turn ends, because the deadline of its call may pass during it.
                job.call.tally().add_turn();
                let outcome = turn(&mut job.list);
                let done = T::done(&job.list).saturating_sub(before);
                if done > 0 {
                    if std::mem::replace(&mut is_measured, true) {
                        backlog.pace.record(done, began.elapsed(), done >= FULL);
                    }
                    job.begun = true;
                }
                job.report(backlog);
                job.since = Instant::now();
                outcome
            }
        };
        match outcome.transpose() {
            None => {
                let now = T::left(&job.list);
                // Its size is now known, at no cost to the model; or its results would be lost behind the turns of
                // the others.
                goes_on = left.is_none() && now.is_some()
                    || T::is_partial(&job.list)
                        && now.is_some_and(|left| most_in_time(backlog, &job, left, jobs) == Some(0));
                if goes_on { jobs.push_front(job) } else { jobs.push_back(job) }
            }
            Some(answer) => drop(job.reply.send(answer)),
        }
    }
}

/// The number of tokens to which a list is cut if a part suffices and `left` are left; `None` if it fits, has no
/// deadline, or the speed is unknown. 0 if it must end with its present scores, because the turns of more urgent
/// lists take its time.
fn most_in_time<T: TakesTurns>(
    backlog: &Backlog,
    job: &Job<T>,
    left: usize,
    others: &VecDeque<Job<T>>,
) -> Option<usize> {
    let (due, speed) = job.due.zip(backlog.pace.full())?;
    let tokens = speed * due.saturating_duration_since(Instant::now()).as_secs_f64();
    let sure = tokens * SURE;
    // If no list waits behind it, a list that just fits begins whole.
    let fits = if others.is_empty() { tokens } else { sure };
    let before = others.iter().filter(|other| other.urgency() < job.urgency());
    let before: usize = before.filter_map(|other| T::left(&other.list)).sum();
    if job.begun && before > 0 {
        return (real(left.saturating_add(before)) > sure).then_some(0);
    }
    (real(left) > fits).then(|| count(sure).max(FULL))
}

/// By how much this many tokens exceed `share` of the remaining time.
fn late_by(backlog: &Backlog, left: usize, due: Option<Instant>, share: f64) -> Option<Duration> {
    due.and_then(|due| backlog.pace.late_by(left, due.saturating_duration_since(Instant::now()), share))
}

/// Submits a list and waits for its answer. Dropping the future, or stopping the call, drops the list before its
/// next turn.
///
/// # Errors
/// The list's error, no model, or a list that cannot end in time after the others.
pub(super) async fn submit<T: TakesTurns>(
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
    // Held here, so that the tokens of an abandoned list delay no other.
    let held = Arc::new(backlog.enter(call, due, size, T::is_partial(&list))?);
    let (reply, answer) = oneshot::channel();
    let (since, entry, call) = (Instant::now(), Arc::downgrade(&held), call.clone());
    let job = Job { list, call, due, since, begun: false, size, is_known: false, entry, reply };
    let job = Arc::new(Mutex::new(Some(job)));
    let _held = TakesBack(Arc::downgrade(&job));
    worker.send(Handed(job))?;
    answer.await.map_err(|_| ScheduleError::Unavailable)?
}
