//! Scores of passages by a reranker or an embedding model: a queue in front of the worker thread that owns the model.
//!
//! The model is loaded when the first list comes. Lists take `turns`. Scores depend on the list alone, where a model that keeps
//! vectors reads each text by itself or keeps none; so equal requests get equal scores, else equal to rounding. A score that is
//! not a finite number fails its own request.

mod error;
mod states;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::backlog::{Backlog, Size};
use super::entailment::ConfiguredModel;
use super::turns::{Serve, TakesTurns, Turns, ask};
use super::worker::Worker;
use super::{Load, ScheduleError, Status};
use crate::call::Call;
use crate::model::ModelError;
use crate::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TokenStates};
pub use error::ScoreError;

/// Passages scored before another request has its turn.
const TURN: usize = 64;
/// Tokens after which a turn ends early: 64 long pairs take many seconds.
const TURN_TOKENS: usize = 4_096;
/// Bytes counted for a token of a passage that is cut.
const BYTES_PER_TOKEN: usize = 4;
/// Bytes of text that are tokenised before another request has its turn.
const TURN_BYTES: usize = 256 << 10;

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

/// Scores and what they took.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// One score a passage, in the order of the list.
    pub scores: Vec<f64>,
    /// Tokens dropped from each passage.
    pub cut: Vec<usize>,
    /// Tokens evaluated.
    pub tokens: usize,
    /// Tokens of passages whose vectors were kept.
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

/// What was done of a list.
struct Work {
    started: Instant,
    query: Encoded,
    passages: Vec<Encoded>,
    /// Whether all passages are tokenised and their cost was checked.
    planned: bool,
    /// Tokens of passages that the model knew.
    known: usize,
    /// Passages without a score, the next one last. Filled when all passages are tokenised.
    open: Vec<usize>,
    /// Tokens to evaluate of each passage.
    costs: Vec<usize>,
    /// Those of the open ones.
    left: usize,
    scores: Vec<f64>,
    progress: Progress,
    steps: usize,
}

/// What is asked of the model.
enum Wanted {
    Scores(Box<Asked>),
    States(states::Texts),
}

/// What it answers.
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
    model: ConfiguredModel,
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
        Ok(Self { worker, backlog, scored, failed: Arc::default(), model })
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

    /// Whether it could not be loaded less than half a minute ago. A caller that can do without the model need not have it tried
    /// again.
    #[must_use]
    pub fn failed_just_now(&self) -> bool {
        let failed = *self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        // The worker tells its state after it has answered, so what counts is that it is not ready again.
        let ready = matches!(&*self.worker.status().borrow(), Status::Ready(_));
        !ready && failed.is_some_and(|at| at.elapsed() < REST)
    }

    /// What is known of the model; `None` until it is loaded.
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

    /// How often the model failed since the start, to be loaded again.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.worker.restarts()
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
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
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

    fn size(list: &Wanted) -> Size {
        let Wanted::Scores(asked) = list else { return Size::default() };
        let (List { query, passages, shortening, .. }, turn) = (&asked.list, TURN_TOKENS);
        // What is cut is not evaluated. The query stands beside each passage, or is short beside them.
        let most = shortening.passage_tokens.map_or(usize::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
        let bytes = passages.iter().fold(0, |sum: usize, text| sum.saturating_add(text.len().min(most) + query.len()));
        Size { bytes, turns: passages.len().div_ceil(TURN), turn }
    }

    /// Tokens of the passages that have no score, and whose vectors were not kept when the list was tokenised.
    fn left(list: &Wanted) -> Option<usize> {
        let Wanted::Scores(asked) = list else { return None };
        asked.work.as_ref().filter(|work| work.planned).map(|work| work.left)
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

/// Tokenises or scores a part of the list. Returns the scores of the whole list once they are there.
fn turn(asked: &mut Asked, model: &mut dyn Reranker, scored: &AtomicU64) -> Result<Option<Scored>, ScoreError> {
    let list = &asked.list;
    let work = match &mut asked.work {
        Some(work) => work,
        empty => {
            let query = model.query(&list.query).map_err(|error| ScoreError::of_text(None, error))?;
            empty.insert(Work {
                started: Instant::now(),
                query,
                passages: Vec::with_capacity(list.passages.len()),
                planned: false,
                known: 0,
                open: Vec::new(),
                costs: Vec::new(),
                left: 0,
                scores: vec![f64::NAN; list.passages.len()],
                progress: Progress { done: 0, total: 0, longest: 0 },
                steps: 0,
            })
        }
    };
    if work.planned {
        scored.fetch_add(work.step(model)? as u64, Ordering::Relaxed);
    } else {
        work.tokenise(list, model)?;
        if work.passages.len() < list.passages.len() {
            return Ok(None);
        }
        work.plan(list, model)?;
    }
    if let Some(listener) = &asked.listener {
        // A listener that left is the caller's business; the work goes on until its call stops.
        let _ = listener.send(work.progress);
    }
    if !work.open.is_empty() {
        return Ok(None);
    }
    Ok(Some(Scored {
        scores: std::mem::take(&mut work.scores),
        cut: work.passages.iter().map(|passage| passage.cut).collect(),
        tokens: work.progress.total - work.known,
        known: work.known,
        steps: work.steps,
        queued: work.started.duration_since(asked.submitted),
        running: work.started.elapsed(),
    }))
}

impl Work {
    /// Tokenises passages until the turn is over.
    fn tokenise(&mut self, list: &List, model: &dyn Reranker) -> Result<(), ScoreError> {
        let mut bytes = 0;
        while bytes < TURN_BYTES
            && let Some(text) = list.passages.get(self.passages.len())
        {
            let index = self.passages.len();
            let passage = model.passage(&self.query, text, list.shortening);
            self.passages.push(passage.map_err(|error| ScoreError::of_text(Some(index), error))?);
            bytes += text.len();
        }
        Ok(())
    }

    /// Checks the cost of the list and puts its passages in order: those of similar length are scored together. What the model
    /// knows counts, so that a budget does not depend on the requests before.
    fn plan(&mut self, list: &List, model: &dyn Reranker) -> Result<(), ScoreError> {
        let lengths = || self.passages.iter().map(|passage| passage.ids.len());
        let total = lengths().sum::<usize>() + model.query_cost(&self.query);
        if total > list.tokens {
            return Err(ScoreError::Budget { needed: total, allowed: list.tokens });
        }
        self.planned = true;
        self.progress = Progress { done: 0, total, longest: lengths().max().unwrap_or(0) };
        self.costs = self.passages.iter().map(|one| if model.is_known(one) { 0 } else { one.ids.len() }).collect();
        self.left = self.costs.iter().sum();
        self.open = (0..self.passages.len()).collect();
        // Stable: passages of one length keep their order.
        self.open.sort_by_key(|&index| self.passages[index].ids.len());
        Ok(())
    }

    /// Scores the next passages. Returns how many.
    fn step(&mut self, model: &mut dyn Reranker) -> Result<usize, ScoreError> {
        let (mut chosen, mut tokens) = (Vec::new(), 0);
        while chosen.len() < TURN
            && let Some(&index) = self.open.last()
        {
            let length = self.passages[index].ids.len();
            if !chosen.is_empty() && tokens + length > TURN_TOKENS {
                break;
            }
            self.open.pop();
            chosen.push(index);
            tokens += length;
            self.left = self.left.saturating_sub(self.costs[index]);
        }
        let passages: Vec<&Encoded> = chosen.iter().map(|&index| &self.passages[index]).collect();
        self.known += passages.iter().filter(|one| model.is_known(one)).map(|one| one.ids.len()).sum::<usize>();
        let scores = model.score(&self.query, &passages)?;
        if scores.len() != chosen.len() {
            return Err(ModelError::Decode(format!("{} scores for {} passages", scores.len(), chosen.len())).into());
        }
        for (&index, &score) in chosen.iter().zip(&scores) {
            if !score.is_finite() {
                return Err(ModelError::Decode(format!("the score of passages[{index}] is {score}")).into());
            }
            self.scores[index] = score;
        }
        self.steps += 1;
        // The last step includes the query, where it is evaluated apart.
        self.progress.done = if self.open.is_empty() { self.progress.total } else { self.progress.done + tokens };
        Ok(chosen.len())
    }
}

#[cfg(test)]
mod tests;
