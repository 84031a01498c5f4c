//! A thread that owns a model of any kind: it loads the model, serves a queue of jobs, and restarts after a failure
//! of either.
//!
//! A [`Service`] defines the work of the model: `generator`, `entailment` or `reranker`. A failure is logged with its reason and
//! affects nothing else. When the last handle is dropped, the thread is joined for at most
//! `LAST_STEP`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::ScheduleError;
use crate::call::text_of_panic;
use crate::model::ModelError;

/// First pause before the model is loaded again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Longest wait for the thread when the last handle is dropped.
pub(crate) const LAST_STEP: Duration = Duration::from_secs(2);

/// Threads of this process that own a model, or are about to load one.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// True if a worker's thread still runs, because its last step takes longer than two seconds or a handle is held.
#[must_use]
pub fn any_left() -> bool {
    THREADS.load(Ordering::SeqCst) > 0
}

/// When the model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// At once, and again after a pause if that fails. Jobs that arrive during the pause get an error.
    AtStart,
    /// The first job loads it. If that fails, the job gets the error, and the next job tries again.
    OnDemand,
}

/// The work of a worker with its model.
pub trait Service: Send + 'static {
    /// One piece of work, with the channel for its answer. A dropped job answers UNAVAILABLE.
    type Job: Send + 'static;
    /// Description of the loaded model.
    type Info: Clone + Send + Sync + 'static;

    /// Loads the model, calls `ready`, and serves `first` and then `queue` until the queue is closed.
    ///
    /// # Errors
    /// The model cannot be loaded.
    fn run(
        &mut self,
        first: Option<Self::Job>,
        queue: &Receiver<Self::Job>,
        ready: &mut dyn FnMut(Self::Info),
    ) -> Result<(), ModelError>;

    /// Answers the jobs it still holds after [`Service::run`] failed.
    fn abandon(&mut self, error: &ScheduleError);

    /// A job panicked while the model was loaded. A service that keeps the other jobs reports it with
    /// [`Service::waiting`].
    fn panicked(&mut self) {
        self.abandon(&ScheduleError::Unavailable);
    }

    /// True if jobs are waiting, so that the model is loaded again at once.
    fn waiting(&self) -> bool {
        false
    }
}

/// State of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status<I> {
    /// Not loaded; the first job loads it ([`Load::OnDemand`]).
    Idle,
    /// The model is being loaded.
    Loading,
    /// Ready for jobs.
    Ready(I),
    /// The model failed for this reason; it will be loaded again.
    Failed(String),
    /// Ended permanently.
    Stopped,
}

impl<I> Status<I> {
    /// True if a job would be served: a model that loads on demand counts.
    #[must_use]
    pub const fn serves(&self) -> bool {
        matches!(self, Self::Idle | Self::Ready(_))
    }
}

/// Handle to a worker. Cheap to clone.
pub struct Worker<S: Service>(Arc<Handle<S>>);

impl<S: Service> Clone for Worker<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Handle<S: Service> {
    /// `None` only while the handle is dropped.
    jobs: Option<Sender<S::Job>>,
    status: watch::Receiver<Status<S::Info>>,
    restarts: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<S: Service> Drop for Handle<S> {
    fn drop(&mut self) {
        // Closing the queue ends the thread after its current step.
        self.jobs.take();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let end = Instant::now() + LAST_STEP;
            while !thread.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Reading a file, or a step on a very large model, cannot be interrupted.
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                tracing::warn!(worker = thread.thread().name(), "the thread is still busy and is left behind");
            }
        }
    }
}

impl<S: Service> Worker<S> {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(name: &'static str, load: Load, service: S) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let initial = if load == Load::AtStart { Status::Loading } else { Status::Idle };
        let (report, status) = watch::channel(initial);
        let restarts = Arc::<AtomicU64>::default();
        let supervisor = Supervisor { name, load, service, queue, report, restarts: Arc::clone(&restarts) };
        let counted = Counted::new();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            supervisor.run();
            drop(counted);
        })?;
        Ok(Self(Arc::new(Handle { jobs: Some(jobs), status, restarts, thread: Some(thread) })))
    }

    /// Submits a job.
    ///
    /// # Errors
    /// [`ScheduleError::Unavailable`] when the worker has ended.
    pub fn send(&self, job: S::Job) -> Result<(), ScheduleError> {
        let jobs = self.0.jobs.as_ref().ok_or(ScheduleError::Unavailable)?;
        jobs.send(job).map_err(|_| ScheduleError::Unavailable)
    }

    /// The state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<S::Info>> {
        self.0.status.clone()
    }

    /// How often the model failed since the start. It is loaded again after each failure.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.0.restarts.load(Ordering::Relaxed)
    }
}

/// Counts a thread for as long as it lives.
struct Counted;

impl Counted {
    fn new() -> Self {
        THREADS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Supervisor<S: Service> {
    name: &'static str,
    load: Load,
    service: S,
    queue: Receiver<S::Job>,
    report: watch::Sender<Status<S::Info>>,
    restarts: Arc<AtomicU64>,
}

impl<S: Service> Supervisor<S> {
    /// Runs until every handle is dropped.
    fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let first = match self.load {
                Load::AtStart => None,
                Load::OnDemand if self.service.waiting() => None,
                Load::OnDemand => match self.queue.recv() {
                    Ok(job) => Some(job),
                    Err(_) => break,
                },
            };
            self.report.send_replace(Status::Loading);
            let (report, mut served) = (&self.report, false);
            let (service, queue) = (&mut self.service, &self.queue);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                service.run(first, queue, &mut |info| {
                    served = true;
                    report.send_replace(Status::Ready(info));
                })
            }));
            let problem = match outcome {
                // The service returns only when every handle is dropped.
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    self.service.abandon(&ScheduleError::Model(error.clone()));
                    error.to_string()
                }
                Err(panic) => {
                    if served {
                        self.service.panicked();
                    } else {
                        self.service.abandon(&ScheduleError::Unavailable);
                    }
                    format!("the worker panicked: {}", text_of_panic(panic.as_ref()))
                }
            };
            if served {
                pause = FIRST_PAUSE;
            }
            let again = match self.load {
                Load::AtStart => format!("in {} ms", pause.as_millis()),
                Load::OnDemand => "when a request needs it".to_owned(),
            };
            tracing::error!(worker = self.name, %problem, again, "model failed; it will be loaded again");
            self.restarts.fetch_add(1, Ordering::Relaxed);
            self.report.send_replace(Status::Failed(problem));
            if self.load == Load::AtStart {
                if !self.pause(pause) {
                    break;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        self.report.send_replace(Status::Stopped);
    }

    /// Waits, and drops jobs that arrive during the pause, which answers UNAVAILABLE. False when all handles are
    /// dropped.
    fn pause(&mut self, pause: Duration) -> bool {
        let end = Instant::now() + pause;
        loop {
            match self.queue.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(job) => drop(job),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
