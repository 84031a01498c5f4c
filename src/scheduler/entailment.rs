//! The way to the entailment model: a bounded queue in front of a thread of its own.
//!
//! The model is loaded when the first pairs come. Requests take turns of 64 pairs, so that a long list does not hold a
//! short one up; a request whose caller left or whose deadline passed is dropped before its next turn. A pair is judged once
//! however often it stands in a list, and verdicts are kept for pairs that come again.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::ScheduleError;
use super::supervisor::panic_text;
use crate::belief::Verdict;
use crate::model::ModelError;
use crate::model::entailment::{Entailment, EntailmentInfo, TextPair};

/// Pairs judged before another request has its turn.
const TURN: usize = 64;

/// Builds an entailment model on the worker's thread and lends it to the callback until that returns.
pub type Lender = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Entailment)) -> Result<(), ModelError> + Send>;

/// How the worker is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Lists in the system at once.
    pub queue_length: usize,
    /// Verdicts that are kept.
    pub cache_entries: usize,
}

/// The model that is loaded when it is needed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredModel {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the network's file; empty where it was not in the store when the worker was set up.
    pub sha256: String,
}

/// Verdicts and what they took.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// One a pair, in the order of the list.
    pub verdicts: Vec<Verdict>,
    /// Pairs that the model judged for this list.
    pub judged: usize,
    /// The model.
    pub model: EntailmentInfo,
}

struct Job {
    /// Distinct pairs that have no verdict yet; taken from the end.
    open: Vec<TextPair>,
    known: HashMap<TextPair, Verdict>,
    pairs: Vec<TextPair>,
    judged: usize,
    deadline: Option<Instant>,
    reply: oneshot::Sender<Result<Judged, ScheduleError>>,
    /// Held for its drop: a place in the system.
    _place: OwnedSemaphorePermit,
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Judge {
    jobs: Sender<Job>,
    places: Arc<Semaphore>,
    judged: Arc<AtomicU64>,
    model: ConfiguredModel,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl Judge {
    /// Starts the worker's thread. Nothing is loaded yet.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(settings: Settings, lender: Lender) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let judged = Arc::new(AtomicU64::new(0));
        let entries = NonZeroUsize::new(settings.cache_entries);
        let worker =
            Worker { queue, cache: entries.map(LruCache::new), turns: VecDeque::new(), judged: Arc::clone(&judged) };
        std::thread::Builder::new().name("entailment".into()).spawn(move || worker.run(lender))?;
        let places = Arc::new(Semaphore::new(settings.queue_length));
        Ok(Self { jobs, places, judged, model: ConfiguredModel::default() })
    }

    /// The same, and it can tell what will be loaded.
    #[must_use]
    pub fn with_model(mut self, model: ConfiguredModel) -> Self {
        self.model = model;
        self
    }

    /// The model that is configured, loaded or not.
    #[must_use]
    pub const fn model(&self) -> &ConfiguredModel {
        &self.model
    }

    /// Judges pairs. Dropping the future drops the work before its next turn.
    ///
    /// # Errors
    /// [`ScheduleError`]; [`ModelError::Unusable`] inside it when the model cannot be loaded, which is tried again for the
    /// next list.
    pub async fn judge(&self, pairs: Vec<TextPair>, deadline: Option<Instant>) -> Result<Judged, ScheduleError> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| ScheduleError::QueueFull { retry_after: Duration::from_secs(1) })?;
        let (reply, answer) = oneshot::channel();
        let mut open = pairs.clone();
        open.sort();
        open.dedup();
        let job = Job { open, known: HashMap::new(), pairs, judged: 0, deadline, reply, _place: place };
        self.jobs.send(job).map_err(|_| ScheduleError::Unavailable)?;
        answer.await.map_err(|_| ScheduleError::Unavailable)?
    }

    /// Pairs that the model judged since the start.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.judged.load(Ordering::Relaxed)
    }
}

struct Worker {
    queue: Receiver<Job>,
    cache: Option<LruCache<TextPair, Verdict>>,
    turns: VecDeque<Job>,
    judged: Arc<AtomicU64>,
}

impl Worker {
    /// Runs until every handle is gone. The model is built anew after it failed.
    fn run(mut self, mut lender: Lender) {
        while self.wait() {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                lender(&mut |model| {
                    tracing::info!(model = %model.info().name, "entailment model loaded");
                    self.serve(model);
                })
            }));
            let error = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(error)) => ScheduleError::Model(error),
                Err(panic) => {
                    tracing::error!(problem = panic_text(panic.as_ref()), "entailment worker failed");
                    ScheduleError::Unavailable
                }
            };
            tracing::error!(%error, "entailment model not available");
            for job in self.turns.drain(..) {
                let _ = job.reply.send(Err(error.clone()));
            }
        }
    }

    /// Blocks until there is something to do; false at the end.
    fn wait(&mut self) -> bool {
        if self.turns.is_empty() {
            match self.queue.recv() {
                Ok(job) => self.turns.push_back(job),
                Err(_) => return false,
            }
        }
        true
    }

    fn serve(&mut self, model: &mut dyn Entailment) {
        while self.wait() {
            while let Ok(job) = self.queue.try_recv() {
                self.turns.push_back(job);
            }
            // Taken out before its turn: a panic drops it with its reply, and the others stay.
            let Some(mut job) = self.turns.pop_front() else { continue };
            if job.reply.is_closed() {
                continue;
            }
            if job.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let _ = job.reply.send(Err(ScheduleError::DeadlineExceeded));
                continue;
            }
            match self.turn(&mut job, model) {
                Err(error) => {
                    let _ = job.reply.send(Err(error.into()));
                }
                Ok(()) if job.open.is_empty() => finish(job, model.info()),
                Ok(()) => self.turns.push_back(job),
            }
        }
    }

    fn turn(&mut self, job: &mut Job, model: &mut dyn Entailment) -> Result<(), ModelError> {
        let mut wanted = Vec::new();
        while wanted.len() < TURN
            && let Some(pair) = job.open.pop()
        {
            match self.cache.as_mut().and_then(|cache| cache.get(&pair)) {
                Some(&verdict) => {
                    job.known.insert(pair, verdict);
                }
                None => wanted.push(pair),
            }
        }
        let verdicts = if wanted.is_empty() { Vec::new() } else { model.judge(&wanted)? };
        job.judged += wanted.len();
        self.judged.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        for (pair, verdict) in wanted.into_iter().zip(verdicts) {
            if let Some(cache) = &mut self.cache {
                cache.put(pair.clone(), verdict);
            }
            job.known.insert(pair, verdict);
        }
        Ok(())
    }
}

fn finish(job: Job, model: EntailmentInfo) {
    let verdicts: Option<Vec<Verdict>> = job.pairs.iter().map(|pair| job.known.get(pair).copied()).collect();
    let missing = || ScheduleError::Model(ModelError::Decode("a pair has no verdict".into()));
    let answer = verdicts.map(|verdicts| Judged { verdicts, judged: job.judged, model }).ok_or_else(missing);
    let _ = job.reply.send(answer);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::scripted::ScriptedEntailment;

    fn pair(premise: &str, hypothesis: &str) -> TextPair {
        TextPair { premise: premise.into(), hypothesis: hypothesis.into() }
    }

    fn start(settings: Settings, delay: Duration, mut faults: Vec<&'static str>) -> (Judge, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let lender: Lender = Box::new(move |lend| {
            if faults.first() == Some(&"load") {
                faults.remove(0);
                return Err(ModelError::Unusable { path: "x.onnx".into(), problem: "is damaged".into() });
            }
            let panics = !faults.is_empty();
            faults.clear();
            lend(&mut ScriptedEntailment { delay, judged: Arc::clone(&seen), panics, three_way: true });
            Ok(())
        });
        (Judge::start(settings, lender).unwrap(), calls)
    }

    const SETTINGS: Settings = Settings { queue_length: 8, cache_entries: 100 };

    #[tokio::test]
    async fn equal_pairs_are_judged_once_and_verdicts_are_kept() {
        let (judge, calls) = start(SETTINGS, Duration::ZERO, vec![]);
        let list = vec![pair("a b", "a"), pair("a", "c"), pair("a b", "a")];
        let first = judge.judge(list.clone(), None).await.unwrap();
        assert_eq!((first.judged, calls.load(Ordering::SeqCst)), (2, 2));
        assert_eq!(first.verdicts[0], first.verdicts[2]);
        assert!(first.verdicts[0].entails() && !first.verdicts[1].entails());
        let second = judge.judge(list, None).await.unwrap();
        assert_eq!((second.judged, second.verdicts), (0, first.verdicts));
        assert!(judge.judge(vec![], None).await.unwrap().verdicts.is_empty());
    }

    #[tokio::test]
    async fn a_short_list_does_not_wait_for_a_long_one() {
        let (judge, _) = start(SETTINGS, Duration::from_millis(1), vec![]);
        let long = (0..400).map(|i| pair(&i.to_string(), "x")).collect();
        let (other, started) = (judge.clone(), Instant::now());
        let long = tokio::spawn(async move { other.judge(long, None).await.map(|_| started.elapsed()) });
        tokio::time::sleep(Duration::from_millis(20)).await;
        judge.judge(vec![pair("a", "b")], None).await.unwrap();
        let short = started.elapsed();
        assert!(short * 2 < long.await.unwrap().unwrap(), "{short:?}");
    }

    #[tokio::test]
    async fn deadlines_and_departures_stop_the_work() {
        let (judge, calls) = start(SETTINGS, Duration::from_millis(1), vec![]);
        let long: Vec<TextPair> = (0..4_000).map(|i| pair(&i.to_string(), "x")).collect();
        let soon = Some(Instant::now() + Duration::from_millis(50));
        assert_eq!(judge.judge(long.clone(), soon).await.unwrap_err(), ScheduleError::DeadlineExceeded);
        let left = tokio::time::timeout(Duration::from_millis(30), judge.judge(long, None)).await;
        assert!(left.is_err());
        judge.judge(vec![pair("a", "b")], None).await.unwrap();
        assert!(calls.load(Ordering::SeqCst) < 1_000);
    }

    #[tokio::test]
    async fn a_model_that_cannot_be_loaded_is_tried_again_and_a_panic_is_survived() {
        let (judge, _) = start(SETTINGS, Duration::ZERO, vec!["load", "panic"]);
        let error = judge.judge(vec![pair("a", "b")], None).await.unwrap_err();
        assert!(error.to_string().contains("x.onnx: is damaged"));
        assert_eq!(judge.judge(vec![pair("a", "b")], None).await.unwrap_err(), ScheduleError::Unavailable);
        judge.judge(vec![pair("a", "b")], None).await.unwrap();
    }

    #[tokio::test]
    async fn a_full_queue_refuses() {
        let (judge, _) = start(Settings { queue_length: 1, ..SETTINGS }, Duration::from_millis(5), vec![]);
        let other = judge.clone();
        let running =
            tokio::spawn(async move { other.judge((0..50).map(|i| pair(&i.to_string(), "x")).collect(), None).await });
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(matches!(judge.judge(vec![pair("a", "b")], None).await, Err(ScheduleError::QueueFull { .. })));
        running.await.unwrap().unwrap();
    }
}
