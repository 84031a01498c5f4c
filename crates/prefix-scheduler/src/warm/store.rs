//! The states in memory, under the policy, and on disk. No work is done under the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::disk::{Disk, DiskOptions};
use super::policy::{Candidate, Policy};
use super::{Held, Kept, Key};
use crate::plan::{NodeId, Plan};

/// The bytes of a state. Requests that restore it share them.
pub type State = Arc<Vec<u8>>;

/// Bounds of the cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Most bytes of states in memory; 0 for no cache.
    pub memory_bytes: u64,
    /// Disk tier, if any.
    pub disk: Option<DiskOptions>,
}

/// Contents of the store and its counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes of states in memory.
    pub bytes: u64,
    /// Most bytes of states in memory.
    pub limit: u64,
    /// States in memory.
    pub states: u64,
    /// Lookups that found a state.
    pub hits: u64,
    /// Lookups that found no state.
    pub misses: u64,
    /// Evicted states.
    pub evictions: u64,
    /// States that were read from disk.
    pub read: u64,
    /// Bytes that requests hold ([`Held`]), in addition to those in memory.
    pub held: u64,
}

struct Inner {
    policy: Policy,
    states: HashMap<Key, State>,
    /// Bytes and tokens of the states so far: an estimate of a state's size before it is saved.
    size: (u64, u64),
    hits: u64,
    misses: u64,
    evictions: u64,
    read: u64,
}

/// The cache of states. Shared by the generator's worker and the requests in its queue.
pub struct Store {
    generator: OnceLock<Key>,
    inner: Mutex<Inner>,
    disk: Option<Disk>,
    /// Bytes of all [`Held`].
    held: Arc<AtomicU64>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store; `None` if nothing is cached.
    #[must_use]
    pub fn new(options: &Options) -> Option<Self> {
        let policy = (options.memory_bytes > 0).then(|| Policy::new(options.memory_bytes))?;
        let inner = Inner { policy, states: HashMap::new(), size: (0, 0), hits: 0, misses: 0, evictions: 0, read: 0 };
        let disk = options.disk.as_ref().and_then(Disk::open);
        Some(Self { generator: OnceLock::new(), inner: Mutex::new(inner), disk, held: Arc::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Between any two statements under the lock the entries are usable, although the counts may be incomplete.
        self.inner.lock()
    }

    /// Sets the generator whose states are cached. Returns false if it differs from an earlier one: states of two generators must not be
    /// mixed.
    pub fn serves(&self, identity: &str) -> bool {
        let key = Key::of_generator(identity);
        *self.generator.get_or_init(|| key) == key
    }

    /// The cached states of `keys`. The policy counts the first lookup by the request that `held` belongs to.
    #[must_use]
    pub fn find(&self, keys: &[Key], held: &Held) -> Vec<Option<State>> {
        let mut inner = self.lock();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            if held.is_first_sight(key) {
                inner.policy.see(key);
            }
            let state = inner.states.get(key).cloned();
            *(if state.is_some() { &mut inner.hits } else { &mut inner.misses }) += 1;
            found.push(state);
        }
        drop(inner);
        if let Some(disk) = &self.disk {
            for (key, _) in keys.iter().zip(&found).filter(|(_, state)| state.is_some()) {
                disk.used(key);
            }
        }
        found
    }

    /// The nodes of a plan whose states can be cached, each with its key; none until the generator is loaded. If
    /// the state of a context exists only with its scores, that key is used: the cells are the same. Looks for
    /// files.
    #[must_use]
    pub fn keys(&self, plan: &Plan) -> Vec<(NodeId, Key)> {
        let Some(generator) = self.generator.get() else { return Vec::new() };
        let mut keys = super::keys(plan, generator);
        // Only passages right after the prompt prefix are scored; looking for others would only waste file
        // accesses.
        let passage = |node: &NodeId| plan.parent(*node).is_some_and(|parent| plan.parent(parent).is_none());
        for (_, key) in keys.iter_mut().filter(|(node, key)| !key.scored && passage(node)) {
            if self.prefers_scored(key) {
                *key = key.with_scores();
            }
        }
        keys
    }

    /// True if the state of a context is faster to get with its scores: memory before disk.
    fn prefers_scored(&self, key: &Key) -> bool {
        let scored = key.with_scores();
        let inner = self.lock();
        let in_memory = [key, &scored].map(|key| inner.states.contains_key(key));
        drop(inner);
        match (in_memory, &self.disk) {
            ([true, _], _) => false,
            ([false, true], _) => true,
            (_, Some(disk)) => !disk.holds(key) && disk.holds(&scored),
            (_, None) => false,
        }
    }

    /// States that a request holds; empty at first. All requests together hold at most a quarter of the bound.
    #[must_use]
    pub fn hold(&self) -> Held {
        Held::new(Arc::clone(&self.held), self.lock().policy.limit() / 4)
    }

    /// Tokens of the nodes whose states are in memory now or held by the request. The policy does not count it.
    #[must_use]
    pub fn known(&self, plan: &Plan, keys: &[(NodeId, Key)], held: &Held) -> usize {
        let inner = self.lock();
        let there = |key: &Key| inner.states.contains_key(key) || held.get(key).is_some();
        keys.iter().filter(|(_, key)| there(key)).map(|(node, _)| plan.length(*node)).sum()
    }

    /// States in memory, and those that a request holds; `None` until the generator is loaded.
    #[must_use]
    pub fn kept(&self, held: Held) -> Option<Kept> {
        let generator = *self.generator.get()?;
        Some(Kept { generator, there: self.lock().states.keys().copied().collect(), held })
    }

    /// Reads the states of `keys` that are on disk and not in memory into `held`, while there is room and until `ended`. Not for the
    /// generator's thread, because it reads files.
    pub fn fetch(&self, keys: &[(NodeId, Key)], held: &Held, ended: impl Fn() -> bool) {
        let Some(disk) = &self.disk else { return };
        let mut read = 0;
        for (_, key) in keys {
            if !held.has_room(1) || ended() {
                break;
            }
            if held.get(key).is_none()
                && !self.lock().states.contains_key(key)
                && let Some(state) = disk.read(key)
            {
                if !held.insert(*key, Arc::new(state)) {
                    break;
                }
                read += 1;
            }
        }
        self.lock().read += read;
    }

    /// True if one of the states still waits to be written to disk.
    #[must_use]
    pub fn is_writing(&self, keys: &[Key]) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_writing(keys))
    }

    /// True if nothing waits to be written to disk.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.disk.as_ref().is_none_or(Disk::is_settled)
    }

    /// True if the state of a key exists, in memory or on disk.
    #[must_use]
    pub fn holds(&self, key: &Key) -> bool {
        let in_memory = self.lock().states.contains_key(key);
        in_memory || self.disk.as_ref().is_some_and(|disk| disk.holds(key))
    }

    /// True if a state of this many tokens would be cached, before it is saved. `at_once`: at the first sight of
    /// its key.
    #[must_use]
    pub fn wants(&self, key: &Key, tokens: usize, at_once: bool) -> bool {
        let inner = self.lock();
        let bytes = inner.bytes_of(tokens);
        let candidate = Candidate { key: *key, tokens, bytes, at_once };
        inner.price(&candidate).is_some()
    }

    /// Bytes of a state of this many tokens, by the mean of earlier states.
    #[must_use]
    pub fn bytes_of(&self, tokens: usize) -> u64 {
        self.lock().bytes_of(tokens)
    }

    /// True if states are written to disk.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.disk.is_some()
    }

    /// Caches a new state in memory if the policy allows it. The state is also written to disk, if there is one, if it was cached or
    /// `to_disk` is set. Returns true if it is in memory.
    pub fn keep(&self, key: Key, tokens: usize, state: &State, at_once: bool, to_disk: bool) -> bool {
        let cached = self.admit(key, tokens, state, at_once, to_disk);
        if let (true, Some(disk)) = (cached || to_disk, &self.disk) {
            disk.write(key, Arc::clone(state), to_disk);
        }
        cached
    }

    /// Caches a state in memory if the policy allows it, and returns true if so. Evicted states are written to disk
    /// if their file is gone; a state with `fills` causes no deletion of files.
    fn admit(&self, key: Key, tokens: usize, state: &State, at_once: bool, fills: bool) -> bool {
        let bytes = wide(state.len());
        let mut inner = self.lock();
        inner.size = (inner.size.0.saturating_add(bytes), inner.size.1.saturating_add(wide(tokens)));
        let candidate = Candidate { key, tokens, bytes, at_once };
        let Some(evicted) = inner.price(&candidate) else { return false };
        inner.policy.admit(&candidate, &evicted);
        inner.evictions += wide(evicted.len());
        let gone: Vec<_> = evicted.iter().filter_map(|gone| Some((*gone, inner.states.remove(gone)?))).collect();
        inner.states.insert(key, Arc::clone(state));
        drop(inner);
        // The file may have been deleted while memory had the state. If it exists, nothing is written.
        if let Some(disk) = &self.disk {
            for (key, state) in gone {
                disk.write(key, state, fills);
            }
        }
        true
    }

    /// Drops a state that could not be restored.
    pub fn drop_state(&self, key: &Key) {
        let mut inner = self.lock();
        inner.policy.remove(key);
        inner.states.remove(key);
        drop(inner);
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
    }

    /// Contents and counters.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let inner = self.lock();
        Figures {
            bytes: inner.policy.bytes(),
            limit: inner.policy.limit(),
            states: wide(inner.policy.len()),
            hits: inner.hits,
            misses: inner.misses,
            evictions: inner.evictions,
            read: inner.read,
            held: self.held.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    fn bytes_of(&self, tokens: usize) -> u64 {
        let (bytes, of_tokens) = self.size;
        bytes.checked_div(of_tokens).unwrap_or(1).saturating_mul(wide(tokens))
    }

    /// The policy's price without states in use: those would occupy memory even after eviction.
    fn price(&self, candidate: &Candidate) -> Option<Vec<Key>> {
        let in_use = |key: &Key| self.states.get(key).is_some_and(|state| Arc::strong_count(state) > 1);
        self.policy.price(candidate, in_use)
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        Key::of_generator(&number.to_string())
    }

    #[test]
    fn states_in_use_are_not_counted_away() {
        let store = Store::new(&Options { memory_bytes: 100, disk: None }).unwrap();
        assert!(store.keep(key(0), 10, &Arc::new(vec![7; 100]), true, false));
        let held = store.find(&[key(0)], &Held::default())[0].clone();
        (0..9).for_each(|_| assert_eq!(store.find(&[key(1)], &Held::default()), vec![None]));
        assert!(!store.wants(&key(1), 10, true), "the only state is in use");
        drop(held);
        assert!(store.wants(&key(1), 10, true) && store.keep(key(1), 10, &Arc::new(vec![8; 100]), true, false));
        let cached: Vec<bool> = store.find(&[key(0), key(1)], &Held::default()).iter().map(Option::is_some).collect();
        assert_eq!(cached, vec![false, true]);
        let figures = store.figures();
        assert_eq!((figures.bytes, figures.states, figures.evictions), (100, 1, 1));
        assert_eq!((figures.hits, figures.misses), (2, 10));
        store.drop_state(&key(1));
        assert_eq!(store.figures().bytes, 0);
    }

    #[test]
    fn nothing_is_cached_without_memory_or_for_a_second_generator() {
        assert!(Store::new(&Options::default()).is_none());
        let store = Store::new(&Options { memory_bytes: 1, disk: None }).unwrap();
        assert!(store.serves("a") && store.serves("a") && !store.serves("b"));
    }

    #[test]
    fn states_on_disk_of_another_generator_are_not_read() {
        let scratch = tempfile::tempdir().unwrap();
        let disk = Some(DiskOptions { folder: scratch.path().join("warm"), bytes: 1 << 20 });
        let store = |generator: &str| {
            let store = Store::new(&Options { memory_bytes: 1_000, disk: disk.clone() }).unwrap();
            assert!(store.serves(generator));
            store
        };
        let mut plan = Plan::new();
        let segments = [crate::plan::Segment::context([1, 2]), crate::plan::Segment::context([3, 4])];
        plan.add(&[&segments[..], &[crate::plan::Segment::scored([5, 6], 1)]].concat());
        let first = store("a");
        let keys = first.keys(&plan);
        first.keep(keys[0].1, 2, &Arc::new(vec![7; 100]), true, true);
        drop(first);
        let found = |store: &Store| {
            let held = store.hold();
            store.fetch(&store.keys(&plan), &held, || false);
            store.keys(&plan).iter().filter(|(_, key)| held.get(key).is_some()).count()
        };
        assert_eq!([found(&store("b")), found(&store("a"))], [0, 1]);
    }
}
