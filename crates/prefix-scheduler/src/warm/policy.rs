//! Decides which states stay in memory: bounded in bytes, by use and by tokens saved per byte. It handles keys and
//! sizes but no content, so a simulation of a long trace runs the same code.
//!
//! **Order of eviction.** An entry's priority is `frequency * tokens / bytes`, set when it is used: the evaluation
//! that it saves, divided by its size (GreedyDual-Size-Frequency; Cherkasova, 1998). The entry with the lowest
//! priority is evicted first. Frequencies and priorities are halved after `SAMPLE` sights per entry, so that
//! entries used often, but long ago, fall behind entries in use. On a Zipf trace this has more hits than a clock
//! that advances with every eviction, and as many if the popular passages change.
//!
//! **Admission** (TinyLFU). While there is room, every state is cached. A full store only caches a state at the
//! second sight of its key, and only if its priority is above that of all entries that would be evicted. Passages
//! that are seen once therefore evict nothing. Frequencies are estimates of a sketch, which also counts keys that
//! are not cached.

use std::collections::{BTreeSet, HashMap};

use super::Key;
use super::sketch::Sketch;

/// A state that a request could restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub key: Key,
    /// Tokens that a restore saves.
    pub tokens: usize,
    /// Size in bytes.
    pub bytes: u64,
    /// True if it is cached at first sight while there is room.
    pub at_once: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    tokens: usize,
    bytes: u64,
    priority: u64,
}

/// The states in memory, and the bound.
pub struct Policy {
    limit: u64,
    bytes: u64,
    entries: HashMap<Key, Entry>,
    order: BTreeSet<(u64, Key)>,
    sketch: Sketch,
}

/// Sights per entry after which frequencies are halved.
const SAMPLE: usize = 24;
/// Bounds of the sights after which frequencies are halved.
const SAMPLES: std::ops::RangeInclusive<usize> = 4_096..=262_144;

impl Policy {
    /// A policy that keeps at most `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let (entries, order) = (HashMap::new(), BTreeSet::new());
        Self { limit, bytes: 0, entries, order, sketch: Sketch::new() }
    }

    /// Counts the sight of a key. Returns true if its state is cached.
    pub fn see(&mut self, key: &Key) -> bool {
        let sample = (SAMPLE * self.entries.len()).clamp(*SAMPLES.start(), *SAMPLES.end());
        if self.sketch.add(key, sample) {
            self.age();
        }
        let Some(entry) = self.entries.get(key).copied() else { return false };
        let priority = self.priority(key, entry.tokens, entry.bytes);
        self.order.remove(&(entry.priority, *key));
        self.order.insert((priority, *key));
        self.entries.insert(*key, Entry { priority, ..entry });
        true
    }

    fn age(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.priority /= 2);
        self.order = self.entries.iter().map(|(key, entry)| (entry.priority, *key)).collect();
    }

    /// The keys to evict for a candidate, lowest priority first; `None` if it is not admitted. Keys that are `in_use` stay.
    #[must_use]
    pub fn price(&self, candidate: &Candidate, in_use: impl Fn(&Key) -> bool) -> Option<Vec<Key>> {
        let Candidate { key, tokens, bytes, at_once } = *candidate;
        let seen_again = self.sketch.estimate(&key) >= 2;
        if self.entries.contains_key(&key) || bytes > self.limit || !(at_once || seen_again) {
            return None;
        }
        let mut missing = (self.bytes + bytes).saturating_sub(self.limit);
        if missing > 0 && !seen_again {
            return None;
        }
        let priority = self.priority(&key, tokens, bytes);
        let mut evicted = Vec::new();
        for (theirs, other) in &self.order {
            if missing == 0 {
                break;
            }
            if *theirs >= priority {
                return None;
            }
            if !in_use(other) {
                evicted.push(*other);
                missing = missing.saturating_sub(self.entries.get(other).map_or(0, |entry| entry.bytes));
            }
        }
        (missing == 0).then_some(evicted)
    }

    /// Admits a candidate, and evicts the keys that [`Policy::price`] returned for it.
    pub fn admit(&mut self, candidate: &Candidate, evicted: &[Key]) {
        for key in evicted {
            self.remove(key);
        }
        let Candidate { key, tokens, bytes, .. } = *candidate;
        let priority = self.priority(&key, tokens, bytes);
        self.remove(&key);
        self.bytes += bytes;
        self.order.insert((priority, key));
        self.entries.insert(key, Entry { tokens, bytes, priority });
    }

    /// Removes a key whose state is gone.
    pub fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&(entry.priority, *key));
            self.bytes -= entry.bytes;
        }
    }

    /// Tokens per byte are far below 1: the scale keeps 32 bits of them.
    fn priority(&self, key: &Key, tokens: usize, bytes: u64) -> u64 {
        let frequency = u64::from(self.sketch.estimate(key).max(1));
        let tokens = u64::try_from(tokens).unwrap_or(u64::MAX).min(1 << 24);
        let worth = (u128::from(frequency * tokens) << 32) / u128::from(bytes.max(1));
        u64::try_from(worth).unwrap_or(u64::MAX)
    }

    /// Bytes of all entries.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Most bytes.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: usize) -> Key {
        Key::of_generator(&number.to_string())
    }

    fn candidate(number: usize, tokens: usize, bytes: u64) -> Candidate {
        Candidate { key: key(number), tokens, bytes, at_once: true }
    }

    /// Counts a key and admits its state if the policy allows it. Returns true if it was cached already.
    fn ask(policy: &mut Policy, candidate: &Candidate) -> bool {
        let cached = policy.see(&candidate.key);
        if let (false, Some(evicted)) = (cached, policy.price(candidate, |_| false)) {
            policy.admit(candidate, &evicted);
        }
        cached
    }

    #[test]
    fn a_full_store_keeps_what_is_seen_again_and_no_more_than_its_bound() {
        let mut policy = Policy::new(300);
        (0..3).for_each(|number| assert!(!ask(&mut policy, &candidate(number, 10, 100))));
        assert_eq!((policy.len(), policy.bytes()), (3, 300));
        assert!(ask(&mut policy, &candidate(0, 10, 100)) && ask(&mut policy, &candidate(1, 10, 100)));
        for number in 10..50 {
            assert!(!ask(&mut policy, &candidate(number, 10, 100)));
        }
        assert!(policy.see(&key(2)), "passages seen once evict nothing");
        // Seen twice, 2 has frequency 2, like 0 and 1. A newcomer's third sight has a higher priority than any of
        // them.
        (0..2).for_each(|_| assert!(!ask(&mut policy, &candidate(60, 10, 100))));
        assert!(!policy.entries.contains_key(&key(60)), "two sights are not above two sights");
        assert!(!ask(&mut policy, &candidate(60, 10, 100)));
        assert!(ask(&mut policy, &candidate(60, 10, 100)));
        assert_eq!(policy.bytes(), 300);
    }

    #[test]
    fn the_state_that_saves_fewer_tokens_per_byte_is_evicted_first() {
        let mut policy = Policy::new(300);
        let (dense, sparse) = (candidate(0, 30, 100), candidate(1, 10, 200));
        (0..3).for_each(|_| {
            ask(&mut policy, &dense);
            ask(&mut policy, &sparse);
        });
        let newcomer = candidate(2, 30, 150);
        (0..2).for_each(|_| assert!(!ask(&mut policy, &newcomer)));
        assert!(policy.entries.contains_key(&dense.key) && !policy.entries.contains_key(&sparse.key));
    }

    #[test]
    fn formerly_popular_states_are_evicted() {
        let mut policy = Policy::new(1_000);
        for number in (0..10).flat_map(|number| [number; 40]) {
            ask(&mut policy, &candidate(number, 10, 100));
        }
        let all =
            |policy: &mut Policy| (100..110).filter(|number| ask(policy, &candidate(*number, 10, 100))).count() == 10;
        let rounds = (1..60).find(|_| all(&mut policy));
        assert!(rounds.is_some_and(|rounds| (40..45).contains(&rounds)), "after more sights than theirs: {rounds:?}");
        for number in (0..10).flat_map(|number| [number; 1_000]) {
            ask(&mut policy, &candidate(number, 10, 100));
        }
        // Counters end at 255; without the halving, 255 rounds would be needed.
        let rounds = (1..1_000).find(|_| all(&mut policy));
        assert!(rounds.is_some_and(|rounds| rounds < 240), "{rounds:?}");
    }

    #[test]
    fn a_state_in_use_stays_and_a_state_above_the_bound_is_refused() {
        let mut policy = Policy::new(100);
        ask(&mut policy, &candidate(0, 10, 100));
        (0..5).for_each(|_| {
            policy.see(&key(1));
        });
        assert_eq!(policy.price(&candidate(1, 10, 100), |_| true), None);
        assert_eq!(policy.price(&candidate(1, 10, 100), |_| false), Some(vec![key(0)]));
        assert_eq!(policy.price(&candidate(1, 10, 101), |_| false), None);
        let later = Candidate { at_once: false, ..candidate(2, 1, 1) };
        policy.see(&later.key);
        assert_eq!(Policy::new(100).price(&later, |_| false), None, "a deep prefix waits for its second sight");
    }

    proptest! {
        /// For any trace, the bound holds, the total is the sum of the entries, and equal traces have equal
        /// results.
        #[test]
        fn the_bound_holds(trace in proptest::collection::vec((0_usize..40, 1_usize..50, 1_u64..400), 1..300)) {
            let play = || {
                let mut policy = Policy::new(1_000);
                for &(number, tokens, bytes) in &trace {
                    ask(&mut policy, &candidate(number, tokens, bytes));
                    assert!(policy.bytes() <= policy.limit());
                    assert_eq!(policy.bytes(), policy.entries.values().map(|entry| entry.bytes).sum::<u64>());
                    assert_eq!(policy.order.len(), policy.len());
                }
                policy.order
            };
            prop_assert_eq!(play(), play());
        }
    }
}
