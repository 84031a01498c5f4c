//! Verdicts of an entailment model: a queue in front of the worker thread that owns it.
//!
//! The model is loaded when the first pairs arrive. Lists take `turns` of at most 64 pairs. Equal pairs of a list
//! are judged once, and verdicts are cached for later lists. A cached verdict has a fixed size: its key is the
//! SHA-256 of the texts.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::turns::{Backlog, Serve, TakesTurns, Turns, submit};
use super::worker::Worker;
use super::{Load, ScheduleError, Status};
use crate::call::{Call, Priority};
use crate::model::ModelError;
use crate::model::entailment::{Entailment, EntailmentInfo, EntailmentProbabilities, TextPair};

/// Pairs judged before another request's turn.
const TURN: usize = 64;
/// Pairs of a turn of idle work. A request that arrives waits for such a turn.
const IDLE_TURN: usize = 8;
/// Bytes of text after which a turn ends early: 64 long pairs take many seconds.
const TURN_BYTES: usize = 16 << 10;

/// Builds an entailment model on the worker's thread and passes it to the callback, which returns when the worker ends.
pub type Loader = Box<dyn FnMut(&mut dyn FnMut(&mut dyn Entailment)) -> Result<(), ModelError> + Send>;

/// Configuration of the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntailmentOptions {
    /// Verdicts that are cached, about 150 bytes each; 0 for none.
    pub cache_entries: usize,
}

/// The model to load on demand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfiguredModel {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the network's file; empty if it was not in the store when the worker was set up.
    pub sha256: String,
}

/// Verdicts and their cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// One per pair, in the order of the list.
    pub verdicts: Vec<EntailmentProbabilities>,
    /// Pairs that the model judged for this list.
    pub judged: usize,
    /// True if some pairs probably exceed the model's limit.
    pub long: bool,
    /// The model.
    pub model: EntailmentInfo,
    /// From the request to its first turn, including loading of the model.
    pub queued: Duration,
    /// From the first turn to the last verdict.
    pub running: Duration,
}

/// Pairs to judge.
struct List {
    pairs: Vec<TextPair>,
    submitted: Instant,
    /// Its unfinished pairs; `None` before its first turn.
    progress: Option<Progress>,
    judged: usize,
    /// Most pairs of a turn.
    turn: usize,
}

/// The distinct pairs of a list.
struct Progress {
    started: Instant,
    /// Index of the first of each, in the order of their texts; those without a verdict are taken from the end.
    open: Vec<usize>,
    /// For every pair, the first equal one.
    first: Vec<usize>,
    verdicts: HashMap<usize, EntailmentProbabilities>,
}

impl Progress {
    fn new(pairs: &[TextPair]) -> Self {
        let mut open: Vec<usize> = (0..pairs.len()).collect();
        // Stable: among equal pairs the first one comes first.
        open.sort_by(|&left, &right| pairs[left].cmp(&pairs[right]));
        let mut first: Vec<usize> = (0..pairs.len()).collect();
        open.dedup_by(|later, kept| {
            let equal = pairs[*later] == pairs[*kept];
            if equal {
                first[*later] = *kept;
            }
            equal
        });
        Self { started: Instant::now(), open, first, verdicts: HashMap::new() }
    }

    /// One verdict per pair; `None` while one is missing.
    fn finished(&self) -> Option<Vec<EntailmentProbabilities>> {
        self.first.iter().map(|first| self.verdicts.get(first).copied()).collect()
    }
}

/// Handle to the worker. Cheap to clone; the worker ends when the last handle is gone.
#[derive(Clone)]
pub struct Judge {
    worker: Worker<Turns<Judging>>,
    backlog: Arc<Backlog>,
    judged: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
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
        let (judged, kept) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let cache = NonZeroUsize::new(options.cache_entries).map(LruCache::new);
        let verdicts = Verdicts { cache, judged: Arc::clone(&judged), kept: Arc::clone(&kept) };
        // The request of a list of pairs was admitted with its work for the generator, or with its slot.
        let backlog = Arc::new(Backlog::default());
        let service = Turns::new(Judging { loader, verdicts }, Arc::clone(&backlog));
        Ok(Self { worker: Worker::start("entailment", Load::OnDemand, service)?, backlog, judged, kept, model })
    }

    /// The configured model, loaded or not.
    #[must_use]
    pub const fn model(&self) -> &ConfiguredModel {
        &self.model
    }

    /// SHA-256 of the loaded model's file, otherwise of the file at the start; empty if there is neither.
    #[must_use]
    pub fn sha256(&self) -> String {
        match &*self.worker.status().borrow() {
            Status::Ready(info) => info.sha256.clone(),
            _ => self.model.sha256.clone(),
        }
    }

    /// The worker's state, to be watched.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status<EntailmentInfo>> {
        self.worker.status()
    }

    /// Judges pairs. Dropping the future, or stopping the call, drops the work before its next turn.
    ///
    /// # Errors
    /// [`ScheduleError`]; with [`ModelError::Unusable`] if the model cannot be loaded; the next list tries again.
    pub async fn judge(&self, pairs: Vec<TextPair>, call: &Call) -> Result<Judged, ScheduleError> {
        let turn = if call.priority() == Priority::IDLE { IDLE_TURN } else { TURN };
        let list = List { pairs, submitted: Instant::now(), progress: None, judged: 0, turn };
        submit(&self.worker, &self.backlog, list, call).await
    }

    /// Loads the model if necessary, for a request that does other work first. Returns the description of the
    /// model.
    ///
    /// # Errors
    /// As [`Judge::judge`].
    pub async fn load(&self, call: &Call) -> Result<EntailmentInfo, ScheduleError> {
        if let Status::Ready(info) = &*self.worker.status().borrow() {
            return Ok(info.clone());
        }
        Ok(self.judge(Vec::new(), call).await?.model)
    }

    /// Pairs that the model judged since the start.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.judged.load(Ordering::Relaxed)
    }

    /// Pairs whose verdict was cached from an earlier list, since the start.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// How often the model failed since the start. It is loaded again after each failure.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.worker.restarts()
    }
}

/// A model behind its loader.
struct Judging {
    loader: Loader,
    verdicts: Verdicts,
}

impl TakesTurns for Judging {
    type List = List;
    type Answer = Judged;
    type Error = ScheduleError;
    type Info = EntailmentInfo;

    fn load(&mut self, serve: &mut Serve<'_, Self>) -> Result<(), ModelError> {
        let Self { loader, verdicts } = self;
        loader(&mut |model| {
            let info = model.info();
            tracing::info!(model = %info.name, "entailment model loaded");
            serve(info, &mut |list| Ok(verdicts.turn(list, model)?));
        })
    }
}

/// The cached verdicts.
struct Verdicts {
    cache: Option<LruCache<[u8; 32], EntailmentProbabilities>>,
    judged: Arc<AtomicU64>,
    kept: Arc<AtomicU64>,
}

impl Verdicts {
    /// Returns the verdicts of the whole list once all are known.
    fn turn(&mut self, list: &mut List, model: &mut dyn Entailment) -> Result<Option<Judged>, ModelError> {
        let progress = list.progress.get_or_insert_with(|| Progress::new(&list.pairs));
        let model_sha256 = model.info().sha256;
        let (mut missing, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
        while missing.len() < list.turn
            && bytes < TURN_BYTES
            && let Some(index) = progress.open.pop()
        {
            let pair = &list.pairs[index];
            // Cached verdicts count, too, because hashing takes time.
            bytes += pair.premise.len() + pair.hypothesis.len();
            let key = key(&model_sha256, pair);
            match self.cache.as_mut().and_then(|cache| cache.get(&key)) {
                Some(&verdict) => {
                    self.kept.fetch_add(1, Ordering::Relaxed);
                    progress.verdicts.insert(index, verdict);
                }
                None => {
                    missing.push(index);
                    keys.push(key);
                }
            }
        }
        let pairs: Vec<TextPair> = missing.iter().map(|&index| list.pairs[index].clone()).collect();
        let verdicts = if pairs.is_empty() { Vec::new() } else { model.judge(&pairs)? };
        if verdicts.len() != pairs.len() {
            return Err(ModelError::Decode(format!("{} verdicts for {} pairs", verdicts.len(), pairs.len())));
        }
        list.judged += pairs.len();
        self.judged.fetch_add(pairs.len() as u64, Ordering::Relaxed);
        for ((index, key), verdict) in missing.into_iter().zip(keys).zip(verdicts) {
            if let Some(cache) = &mut self.cache {
                cache.put(key, verdict);
            }
            progress.verdicts.insert(index, verdict);
        }
        let verdicts = if progress.open.is_empty() { progress.finished() } else { None };
        let (queued, running) = (progress.started.duration_since(list.submitted), progress.started.elapsed());
        let model = model.info();
        let long = list.pairs.iter().any(|pair| model.may_cut(pair.premise.len() + pair.hypothesis.len()));
        Ok(verdicts.map(|verdicts| Judged { verdicts, judged: list.judged, long, model, queued, running }))
    }
}

/// The lengths distinguish pairs that are equal when concatenated. The question decides which part of a long pair
/// is read. A worker that loads its model again may find another file.
fn key(model_sha256: &str, pair: &TextPair) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((pair.question as u64).to_le_bytes());
    for text in [model_sha256, &pair.premise, &pair.hypothesis] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
