//! Verdicts of an entailment model: a queue in front of the worker thread that owns it.
//!
//! The model is loaded when the first pairs come. Requests take turns of 64 pairs, so that a long list does not hold a short
//! one up; a request is dropped before its next turn when its call stops. A pair is judged once however often it stands in a
//! list, and verdicts are kept for pairs that come again. The kept verdicts take a fixed number of bytes each, whatever the
//! length of the texts: the key is their SHA-256.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use lru::LruCache;
use sha2::{Digest, Sha256};
use tokio::sync::{oneshot, watch};

use super::worker::{Service, Worker};
use super::{Load, ScheduleError, Status};
use crate::belief::Verdict;
use crate::call::Call;
use crate::model::ModelError;
use crate::model::entailment::{Entailment, EntailmentInfo, TextPair};

/// Pairs judged before another request has its turn.
const TURN: usize = 64;

/// Builds an entailment model on the worker's thread and passes it to the callback, which returns when the worker ends.
pub type Loader = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Entailment)) -> Result<(), ModelError> + Send>;

/// How the worker is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntailmentOptions {
    /// Verdicts that are kept, about 150 bytes each; 0 for none.
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
    verdicts: HashMap<TextPair, Verdict>,
    pairs: Vec<TextPair>,
    judged: usize,
    call: Call,
    reply: oneshot::Sender<Result<Judged, ScheduleError>>,
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Judge {
    worker: Worker<EntailmentService>,
    judged: Arc<AtomicU64>,
    model: ConfiguredModel,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Judge").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Judge {
    /// Starts the worker's thread. Nothing is loaded yet.
    ///
    /// # Errors
    /// The operating system's error when it gives no thread.
    pub fn start(options: EntailmentOptions, model: ConfiguredModel, loader: Loader) -> std::io::Result<Self> {
        let judged = Arc::new(AtomicU64::new(0));
        let cache = NonZeroUsize::new(options.cache_entries).map(LruCache::new);
        let service =
            EntailmentService { loader, turns: Turns { cache, queue: VecDeque::new(), judged: Arc::clone(&judged) } };
        Ok(Self { worker: Worker::start("entailment", Load::OnDemand, service)?, judged, model })
    }

    /// The model that is configured, loaded or not.
    #[must_use]
    pub const fn model(&self) -> &ConfiguredModel {
        &self.model
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<EntailmentInfo>> {
        self.worker.status()
    }

    /// Judges pairs. Dropping the future, or stopping the call, drops the work before its next turn.
    ///
    /// # Errors
    /// [`ScheduleError`]; [`ModelError::Unusable`] inside it when the model cannot be loaded, which is tried again for the
    /// next list.
    pub async fn judge(&self, pairs: Vec<TextPair>, call: &Call) -> Result<Judged, ScheduleError> {
        let (reply, answer) = oneshot::channel();
        let mut open = pairs.clone();
        open.sort();
        open.dedup();
        self.worker.send(Job { open, verdicts: HashMap::new(), pairs, judged: 0, call: call.clone(), reply })?;
        answer.await.map_err(|_| ScheduleError::Unavailable)?
    }

    /// Pairs that the model judged since the start.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.judged.load(Ordering::Relaxed)
    }
}

struct EntailmentService {
    loader: Loader,
    turns: Turns,
}

/// The lists in progress, and the verdicts that are kept.
struct Turns {
    cache: Option<LruCache<[u8; 32], Verdict>>,
    queue: VecDeque<Job>,
    judged: Arc<AtomicU64>,
}

impl Service for EntailmentService {
    type Job = Job;
    type Info = EntailmentInfo;

    fn run(
        &mut self,
        first: Option<Job>,
        queue: &Receiver<Job>,
        ready: &mut dyn FnMut(EntailmentInfo),
    ) -> Result<(), ModelError> {
        let turns = &mut self.turns;
        turns.queue.extend(first);
        (self.loader)(&mut |model| {
            tracing::info!(model = %model.info().name, "entailment model loaded");
            ready(model.info());
            turns.serve(queue, model);
        })
    }

    fn abandon(&mut self, error: &ScheduleError) {
        for job in self.turns.queue.drain(..) {
            let _ = job.reply.send(Err(error.clone()));
        }
    }
}

impl Turns {
    /// Gives every list a turn of [`TURN`] pairs after the other, until the queue is closed and nothing is left.
    fn serve(&mut self, queue: &Receiver<Job>, model: &mut dyn Entailment) {
        loop {
            if self.queue.is_empty() {
                match queue.recv() {
                    Ok(job) => self.queue.push_back(job),
                    Err(_) => return,
                }
            }
            self.queue.extend(queue.try_iter());
            // Taken out before its turn: a panic drops it with its reply, and the others stay.
            let Some(mut job) = self.queue.pop_front() else { continue };
            if job.reply.is_closed() {
                continue;
            }
            if let Err(stopped) = job.call.check() {
                let _ = job.reply.send(Err(stopped.into()));
                continue;
            }
            match self.turn(&mut job, model) {
                Err(error) => {
                    let _ = job.reply.send(Err(error.into()));
                }
                Ok(()) if job.open.is_empty() => finish(job, model.info()),
                Ok(()) => self.queue.push_back(job),
            }
        }
    }

    fn turn(&mut self, job: &mut Job, model: &mut dyn Entailment) -> Result<(), ModelError> {
        let mut missing = Vec::new();
        while missing.len() < TURN
            && let Some(pair) = job.open.pop()
        {
            match self.cache.as_mut().and_then(|cache| cache.get(&key(&pair))) {
                Some(&verdict) => {
                    job.verdicts.insert(pair, verdict);
                }
                None => missing.push(pair),
            }
        }
        let verdicts = if missing.is_empty() { Vec::new() } else { model.judge(&missing)? };
        job.judged += missing.len();
        self.judged.fetch_add(missing.len() as u64, Ordering::Relaxed);
        for (pair, verdict) in missing.into_iter().zip(verdicts) {
            if let Some(cache) = &mut self.cache {
                cache.put(key(&pair), verdict);
            }
            job.verdicts.insert(pair, verdict);
        }
        Ok(())
    }
}

/// The lengths keep two pairs apart that read the same when concatenated.
fn key(pair: &TextPair) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in [&pair.premise, &pair.hypothesis] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().into()
}

fn finish(job: Job, model: EntailmentInfo) {
    let verdicts: Option<Vec<Verdict>> = job.pairs.iter().map(|pair| job.verdicts.get(pair).copied()).collect();
    let missing = || ScheduleError::Model(ModelError::Decode("a pair has no verdict".into()));
    let answer = verdicts.map(|verdicts| Judged { verdicts, judged: job.judged, model }).ok_or_else(missing);
    let _ = job.reply.send(answer);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::call::Stopped;
    use crate::scripted::ScriptedEntailment;

    fn pair(premise: &str, hypothesis: &str) -> TextPair {
        TextPair { premise: premise.into(), hypothesis: hypothesis.into() }
    }

    fn start(options: EntailmentOptions, delay: Duration, mut faults: Vec<&'static str>) -> (Judge, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let loader: Loader = Box::new(move |serve| {
            if faults.first() == Some(&"load") {
                faults.remove(0);
                return Err(ModelError::Unusable { path: "x.onnx".into(), problem: "is damaged".into() });
            }
            let panics = !faults.is_empty();
            faults.clear();
            serve(&mut ScriptedEntailment { delay, judged: Arc::clone(&seen), panics, three_way: true });
            Ok(())
        });
        (Judge::start(options, ConfiguredModel::default(), loader).unwrap(), calls)
    }

    const OPTIONS: EntailmentOptions = EntailmentOptions { cache_entries: 100 };

    #[tokio::test]
    async fn equal_pairs_are_judged_once_and_verdicts_are_kept() {
        let (judge, calls) = start(OPTIONS, Duration::ZERO, vec![]);
        let list = vec![pair("a b", "a"), pair("a", "c"), pair("a b", "a")];
        let first = judge.judge(list.clone(), &Call::local()).await.unwrap();
        assert_eq!((first.judged, calls.load(Ordering::SeqCst)), (2, 2));
        assert_eq!(first.verdicts[0], first.verdicts[2]);
        assert!(first.verdicts[0].entails() && !first.verdicts[1].entails());
        let second = judge.judge(list, &Call::local()).await.unwrap();
        assert_eq!((second.judged, second.verdicts), (0, first.verdicts));
        assert!(judge.judge(vec![], &Call::local()).await.unwrap().verdicts.is_empty());
    }

    #[tokio::test]
    async fn a_short_list_does_not_wait_for_a_long_one() {
        let (judge, _) = start(OPTIONS, Duration::from_millis(1), vec![]);
        let long = (0..400).map(|i| pair(&i.to_string(), "x")).collect();
        let (other, started) = (judge.clone(), Instant::now());
        let long = tokio::spawn(async move { other.judge(long, &Call::local()).await.map(|_| started.elapsed()) });
        tokio::time::sleep(Duration::from_millis(20)).await;
        judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
        let short = started.elapsed();
        assert!(short * 2 < long.await.unwrap().unwrap(), "{short:?}");
    }

    #[tokio::test]
    async fn deadlines_and_departures_stop_the_work() {
        let (judge, calls) = start(OPTIONS, Duration::from_millis(1), vec![]);
        let long: Vec<TextPair> = (0..4_000).map(|i| pair(&i.to_string(), "x")).collect();
        let soon = Some(Instant::now() + Duration::from_millis(50));
        assert_eq!(
            judge.judge(long.clone(), &Call::local_with(soon)).await.unwrap_err(),
            Stopped::DeadlineExceeded.into()
        );
        let gone = Call::local();
        let left = tokio::time::timeout(Duration::from_millis(30), judge.judge(long, &gone)).await;
        assert!(left.is_err());
        judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
        assert!(calls.load(Ordering::SeqCst) < 1_000);
    }

    #[tokio::test]
    async fn a_model_that_cannot_be_loaded_is_tried_again_and_a_panic_is_survived() {
        let (judge, _) = start(OPTIONS, Duration::ZERO, vec!["load", "panic"]);
        let error = judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap_err();
        assert!(error.to_string().contains("x.onnx: is damaged"));
        assert_eq!(judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap_err(), ScheduleError::Unavailable);
        judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
    }

    /// The (q): entries were whole texts, of up to 2 MiB each.
    #[tokio::test]
    async fn kept_verdicts_do_not_hold_the_texts() {
        let (judge, calls) = start(OPTIONS, Duration::ZERO, vec![]);
        let long = "x ".repeat(1 << 20);
        judge.judge(vec![pair(&long, "a")], &Call::local()).await.unwrap();
        assert_eq!(judge.judge(vec![pair(&long, "a")], &Call::local()).await.unwrap().judged, 0);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_ne!(key(&pair("ab", "c")), key(&pair("a", "bc")));
    }
}
