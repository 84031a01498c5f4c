//! Scores of passages by a reranker or an embedding model: a queue in front of the worker thread that owns the model.
//!
//! The model is loaded when the first list arrives. Lists take `turns`. Equal requests get equal scores if the
//! model reads each text separately or caches no vectors; otherwise the scores are equal up to rounding. A score
//! that is not a finite number fails only its own request.

mod error;
mod size;
mod states;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::entailment::ConfiguredModel;
use super::turns::{Backlog, Serve, Size, TakesTurns, Turns, submit};
use super::worker::Worker;
use super::{Load, ScheduleError, Status};
use crate::call::{Call, Urgency};
use crate::model::ModelError;
use crate::model::reranker::{Reranker, RerankerInfo, Shortening, TokenStates};
pub use error::ScoreError;
use work::{Work, turn};

/// Builds a model on the worker's thread and passes it to the callback, which returns when the worker ends.
pub type Loader = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Reranker)) -> Result<(), ModelError> + Send>;

/// A query and the passages to score.
#[derive(Debug, Clone)]
pub struct List {
    /// The query.
    pub query: Arc<str>,
    /// The passages.
    pub passages: Arc<[String]>,
    /// How passages are shortened.
    pub shortening: Shortening,
    /// Maximum number of tokens of the whole list.
    pub tokens: usize,
    /// When its caller stops waiting, if before the deadline of the call.
    pub until: Option<Instant>,
    /// The passages, most important first, if scores of a part suffice: the last passages are left out if the time
    /// is too short. Empty if all scores are needed.
    pub preferred: Vec<usize>,
}

/// Progress of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Tokens evaluated so far; 0 when the list was tokenised.
    pub done: usize,
    /// Total number of tokens.
    pub total: usize,
    /// Tokens of the longest pair.
    pub longest: usize,
}

/// Texts of a list that the model cannot read: the tokenizer does not know most of their words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// True if the query is unreadable.
    pub query: bool,
    /// For each passage, true if it is unreadable.
    pub passages: Vec<bool>,
}

impl Unreadable {
    /// Number of passages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.passages.iter().filter(|unreadable| **unreadable).count()
    }
}

/// Scores and their cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// One score per passage, in the order of the list; NaN for a passage that was left out.
    pub scores: Vec<f64>,
    /// Tokens dropped from each passage.
    pub cut: Vec<usize>,
    /// Tokens dropped from the query.
    pub query_cut: usize,
    /// The texts that the model cannot read.
    pub unreadable: Unreadable,
    /// Tokens evaluated.
    pub tokens: usize,
    /// Tokens of passages whose vectors were cached.
    pub known: usize,
    /// Turns with the model.
    pub steps: usize,
    /// Time before the first turn.
    pub queued: Duration,
    /// Time from the first turn to the last score.
    pub running: Duration,
}

/// A list, the listener to its progress, and its state.
struct ScoreJob {
    list: List,
    listener: Option<UnboundedSender<Progress>>,
    submitted: Instant,
    /// `None` before its first turn.
    work: Option<Work>,
}

/// After a failed load, callers that can rank without the model do not ask for it for this long.
const REST: Duration = Duration::from_secs(30);

/// Longest wait for the load by callers that can rank without the model, once the server is ready.
const WHILE_LOADING: Duration = Duration::from_secs(1);

/// A request to the model.
enum Request {
    Scores(Box<ScoreJob>),
    States(states::Texts),
}

/// An answer of the model.
enum Answer {
    Scores(Scored),
    States(Vec<TokenStates>),
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct PassageScorer {
    worker: Worker<Turns<Scoring>>,
    backlog: Arc<Backlog>,
    scored: Arc<AtomicU64>,
    /// Time of the last failed load.
    failed: Arc<Mutex<Option<Instant>>>,
    /// True if callers that can do without the model wait for its file only [`WHILE_LOADING`].
    dispensable: Arc<AtomicBool>,
    model: ConfiguredModel,
    /// Settings that its scores depend on besides its file; empty for the defaults.
    settings: Arc<str>,
}

impl std::fmt::Debug for PassageScorer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PassageScorer").field("model", &self.model).finish_non_exhaustive()
    }
}

impl PassageScorer {
    /// Starts the worker under this name; the model is loaded at the first list. `longest_wait` bounds the work in front of a
    /// list without a deadline.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(
        name: &'static str,
        model: ConfiguredModel,
        longest_wait: Option<Duration>,
        loader: Loader,
    ) -> std::io::Result<Self> {
        let (scored, backlog) = (Arc::new(AtomicU64::new(0)), Arc::new(Backlog::new(longest_wait)));
        let service = Turns::new(Scoring { name, loader, scored: Arc::clone(&scored) }, Arc::clone(&backlog));
        let worker = Worker::start(name, Load::OnDemand, service)?;
        Ok(Self {
            worker,
            backlog,
            scored,
            failed: Arc::default(),
            dispensable: Arc::default(),
            model,
            settings: "".into(),
        })
    }

    /// Names the settings that its scores depend on besides its file; empty for the defaults.
    #[must_use]
    pub fn with_settings(self, settings: &str) -> Self {
        Self { settings: settings.into(), ..self }
    }

    /// The configured model, loaded or not.
    #[must_use]
    pub const fn model(&self) -> &ConfiguredModel {
        &self.model
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<RerankerInfo>> {
        self.worker.status()
    }

    /// True if a load failed less than half a minute ago. A caller that can do without the model need not try again.
    #[must_use]
    pub fn failed_just_now(&self) -> bool {
        let failed = *self.failed.lock();
        // The worker reports its status after its answer, so it may still be ready.
        let ready = matches!(&*self.worker.status().borrow(), Status::Ready(_));
        !ready && failed.is_some_and(|at| at.elapsed() < REST)
    }

    /// Bounds [`time_to_load`](Self::time_to_load) from this call on: the server is ready and ranks without this
    /// model.
    pub fn serve_without(&self) {
        self.dispensable.store(true, Ordering::Relaxed);
    }

    /// How long a caller that can do without the model should wait for it to be loaded; `None` for no bound.
    #[must_use]
    pub fn time_to_load(&self) -> Option<Duration> {
        (self.info().is_none() && self.dispensable.load(Ordering::Relaxed)).then_some(WHILE_LOADING)
    }

    /// Description of the model; `None` until it is loaded.
    #[must_use]
    pub fn info(&self) -> Option<RerankerInfo> {
        match &*self.worker.status().borrow() {
            Status::Ready(info) => Some(info.clone()),
            _ => None,
        }
    }

    /// SHA-256 of the model's file, as loaded or as configured; empty if there is no file.
    #[must_use]
    pub fn sha256(&self) -> String {
        self.info().map_or_else(|| self.model.sha256.clone(), |info| info.sha256)
    }

    /// SHA-256 that calibrations and comparisons refer to: of its file, or, if settings differ from the defaults,
    /// of the file's hash and these settings. Empty if there is no file.
    #[must_use]
    pub fn scores_sha256(&self) -> String {
        let file = self.sha256();
        if file.is_empty() || self.settings.is_empty() {
            return file;
        }
        let hash = Sha256::digest(format!("{file} {}", self.settings));
        hash.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// How often the model failed since the start. It is loaded again after each failure.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.worker.restarts()
    }

    /// Expected time for a list, including the lists ahead of it; `None` before the model has worked.
    #[must_use]
    pub fn expected(&self, list: &List, urgency: Urgency) -> Option<Duration> {
        match &*self.worker.status().borrow() {
            Status::Ready(info) => self.backlog.expected(urgency, list.size(info.most_tokens)),
            _ => None,
        }
    }

    /// Passages that the model scored since the start.
    #[must_use]
    pub fn scored(&self) -> u64 {
        self.scored.load(Ordering::Relaxed)
    }

    /// Scores the passages of a list. Dropping the future, or stopping the call, drops the work before its next turn.
    ///
    /// # Errors
    /// [`ScoreError`]; with [`ModelError::Unusable`] if the model cannot be loaded; the next list tries again.
    /// [`ScheduleError::Overloaded`] at once if the list cannot end in time after the others.
    pub async fn score(
        &self,
        list: List,
        call: &Call,
        listener: Option<UnboundedSender<Progress>>,
    ) -> Result<Scored, ScoreError> {
        let job = ScoreJob { list, listener, submitted: Instant::now(), work: None };
        let outcome = submit(&self.worker, &self.backlog, Request::Scores(Box::new(job)), call).await;
        if let Err(ScoreError::Schedule(ScheduleError::Model(_))) = &outcome {
            *self.failed.lock() = Some(Instant::now());
        }
        match outcome? {
            Answer::Scores(scored) => Ok(scored),
            Answer::States(_) => Err(ModelError::Decode("states for scores".into()).into()),
        }
    }
}

/// A model behind its loader.
struct Scoring {
    name: &'static str,
    loader: Loader,
    scored: Arc<AtomicU64>,
}

impl TakesTurns for Scoring {
    type List = Request;
    type Answer = Answer;
    type Error = ScoreError;
    type Info = RerankerInfo;

    fn size(list: &Request, info: Option<&RerankerInfo>) -> Option<Size> {
        match list {
            Request::Scores(job) => Some(job.list.size(info.map_or(usize::MAX, |info| info.most_tokens))),
            Request::States(_) => None,
        }
    }

    fn until(list: &Request) -> Option<Instant> {
        if let Request::Scores(job) = list { job.list.until } else { None }
    }

    fn left(list: &Request) -> Option<usize> {
        match list {
            Request::Scores(job) => job.work.as_ref().filter(|work| work.planned).map(|work| work.left),
            Request::States(_) => None,
        }
    }

    fn is_partial(list: &Request) -> bool {
        matches!(list, Request::Scores(job) if !job.list.preferred.is_empty())
    }

    fn shorten(list: &mut Request, tokens: usize) {
        if let Request::Scores(job) = list
            && let Some(work) = job.work.as_mut().filter(|work| work.planned)
        {
            work.shorten(&job.list.preferred, tokens);
        }
    }

    fn done(list: &Request) -> usize {
        match list {
            Request::Scores(job) => job.work.as_ref().map_or(0, |work| work.evaluated),
            Request::States(_) => 0,
        }
    }

    fn load(&mut self, serve: &mut Serve<'_, Self>) -> Result<(), ModelError> {
        let Self { name, loader, scored } = self;
        loader(&mut |model| {
            let info = model.info();
            tracing::info!(role = *name, model = %info.name, output = %info.output, "model loaded");
            serve(info, &mut |request| match request {
                Request::Scores(job) => Ok(turn(job, model, scored)?.map(Answer::Scores)),
                Request::States(texts) => Ok(texts.turn(model)?.map(Answer::States)),
            });
        })
    }
}

#[cfg(test)]
mod tests;
