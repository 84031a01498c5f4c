//! Scores of passages by a reranker or an embedding model: a queue in front of the worker thread that owns the model.
//!
//! The model is loaded when the first list comes. Lists take `turns`. Scores depend on the list alone, where a model that keeps
//! vectors reads each text by itself or keeps none; so equal requests get equal scores, else equal to rounding. A score that is
//! not a finite number fails its own request.

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
use super::turns::{Backlog, Serve, Size, TakesTurns, Turns, ask};
use super::worker::Worker;
use super::{Load, ScheduleError, Status};
use crate::call::Call;
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
    /// Until when its scores are waited for, where that is before the deadline of the call.
    pub until: Option<Instant>,
    /// The passages, the one whose score matters most first, where the scores of a part are an answer: what does not fit into the
    /// time is left out from the end. Empty where only all scores are.
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

/// Texts of a list that the model cannot read: most of each stands in words that its tokenizer does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// If the query is one.
    pub query: bool,
    /// If each passage is one.
    pub passages: Vec<bool>,
}

impl Unreadable {
    /// Number of passages.
    #[must_use]
    pub fn count(&self) -> usize {
        self.passages.iter().filter(|unreadable| **unreadable).count()
    }
}

/// Scores and what they took.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// One score per passage, in the order of the list; not a number for one that was left out.
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

/// A list, who hears of it, and what was done of it.
struct Asked {
    list: List,
    listener: Option<UnboundedSender<Progress>>,
    submitted: Instant,
    /// `None` before its first turn.
    work: Option<Work>,
}

/// How long a model that could not be loaded is left alone by those who can do without it.
const REST: Duration = Duration::from_secs(30);

/// How long who can do without the model waits for a server that already serves to load it.
const WHILE_LOADING: Duration = Duration::from_secs(1);

/// A request to the model.
enum Wanted {
    Scores(Box<Asked>),
    States(states::Texts),
}

/// An answer of the model.
enum Given {
    Scores(Scored),
    States(Vec<TokenStates>),
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct PassageScorer {
    worker: Worker<Turns<Scoring>>,
    backlog: Arc<Backlog>,
    scored: Arc<AtomicU64>,
    /// When it could not be loaded last.
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

    /// The model that is configured, loaded or not.
    #[must_use]
    pub const fn model(&self) -> &ConfiguredModel {
        &self.model
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<RerankerInfo>> {
        self.worker.status()
    }

    /// True if it could not be loaded less than half a minute ago. A caller that can do without the model need not have it tried
    /// again.
    #[must_use]
    pub fn failed_just_now(&self) -> bool {
        let failed = *self.failed.lock();
        // The worker tells its state after it has answered, so the test waits until it is not ready.
        let ready = matches!(&*self.worker.status().borrow(), Status::Ready(_));
        !ready && failed.is_some_and(|at| at.elapsed() < REST)
    }

    /// From now on [`time_to_load`](Self::time_to_load) is bounded: the server is ready and ranks without this model.
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

    /// SHA-256 of the model's file, as loaded or as configured; empty where it is not there.
    #[must_use]
    pub fn sha256(&self) -> String {
        self.info().map_or_else(|| self.model.sha256.clone(), |info| info.sha256)
    }

    /// SHA-256 to which calibrations and comparisons belong: that of its file, or, where settings differ from the defaults, of that
    /// hash and these settings. Empty where the file is not there.
    #[must_use]
    pub fn scores_sha256(&self) -> String {
        let file = self.sha256();
        if file.is_empty() || self.settings.is_empty() {
            return file;
        }
        let hash = Sha256::digest(format!("{file} {}", self.settings));
        hash.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// How often the model failed since the start, to be loaded again.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.worker.restarts()
    }

    /// How long a list of this call will take, behind those that go before it; `None` before the model has worked.
    #[must_use]
    pub fn expected(&self, list: &List, call: &Call) -> Option<Duration> {
        match &*self.worker.status().borrow() {
            Status::Ready(info) => self.backlog.expected(call.urgency(), list.size(info.most_tokens)),
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
    /// [`ScoreError`]; [`ModelError::Unusable`] inside it when the model cannot be loaded, which is tried again for the next
    /// list, and [`ScheduleError::Overloaded`] at once when the list cannot end in time behind the others.
    pub async fn score(
        &self,
        list: List,
        call: &Call,
        listener: Option<UnboundedSender<Progress>>,
    ) -> Result<Scored, ScoreError> {
        let wanted = Wanted::Scores(Box::new(Asked { list, listener, submitted: Instant::now(), work: None }));
        let outcome = ask(&self.worker, &self.backlog, wanted, call).await;
        if let Err(ScoreError::Schedule(ScheduleError::Model(_))) = &outcome {
            *self.failed.lock() = Some(Instant::now());
        }
        match outcome? {
            Given::Scores(scored) => Ok(scored),
            Given::States(_) => Err(ModelError::Decode("states for scores".into()).into()),
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
    type List = Wanted;
    type Answer = Given;
    type Error = ScoreError;
    type Info = RerankerInfo;

    fn size(list: &Wanted, info: Option<&RerankerInfo>) -> Option<Size> {
        match list {
            Wanted::Scores(asked) => Some(asked.list.size(info.map_or(usize::MAX, |info| info.most_tokens))),
            Wanted::States(_) => None,
        }
    }

    fn until(list: &Wanted) -> Option<Instant> {
        if let Wanted::Scores(asked) = list { asked.list.until } else { None }
    }

    fn left(list: &Wanted) -> Option<usize> {
        match list {
            Wanted::Scores(asked) => asked.work.as_ref().filter(|work| work.planned).map(|work| work.left),
            Wanted::States(_) => None,
        }
    }

    fn is_partial(list: &Wanted) -> bool {
        matches!(list, Wanted::Scores(asked) if !asked.list.preferred.is_empty())
    }

    fn shorten(list: &mut Wanted, tokens: usize) {
        if let Wanted::Scores(asked) = list
            && let Some(work) = asked.work.as_mut().filter(|work| work.planned)
        {
            work.shorten(&asked.list.preferred, tokens);
        }
    }

    fn done(list: &Wanted) -> usize {
        match list {
            Wanted::Scores(asked) => asked.work.as_ref().map_or(0, |work| work.evaluated),
            Wanted::States(_) => 0,
        }
    }

    fn load(&mut self, serve: &mut Serve<'_, Self>) -> Result<(), ModelError> {
        let Self { name, loader, scored } = self;
        loader(&mut |model| {
            let info = model.info();
            tracing::info!(role = *name, model = %info.name, output = %info.output, "model loaded");
            serve(info, &mut |wanted| match wanted {
                Wanted::Scores(asked) => Ok(turn(asked, model, scored)?.map(Given::Scores)),
                Wanted::States(texts) => Ok(texts.turn(model)?.map(Given::States)),
            });
        })
    }
}

#[cfg(test)]
mod tests;
