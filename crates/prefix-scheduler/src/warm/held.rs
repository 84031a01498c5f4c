//! The states of one request: read from disk for it, or saved by its earlier rounds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::Key;
use super::store::State;
use crate::plan::NodeId;

/// States that a request holds, within a bound that all requests share. Clones share the states; their bytes count
/// until the last clone is dropped.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<Own>);

#[derive(Debug, Default)]
struct Own {
    states: Mutex<HashMap<Key, State>>,
    /// Keys that were looked up for the request.
    seen: Mutex<HashSet<Key>>,
    /// Bytes of all requests.
    total: Arc<AtomicU64>,
    /// Most bytes of all requests.
    limit: u64,
}

impl Held {
    /// Holds nothing yet. `total` counts the bytes of all requests, which stay within `limit`.
    pub(super) fn new(total: Arc<AtomicU64>, limit: u64) -> Self {
        Self(Arc::new(Own { states: Mutex::default(), seen: Mutex::default(), total, limit }))
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Key, State>> {
        self.0.states.lock()
    }

    /// True if the request did not look up this key before. Its rounds begin with the same passages, so later
    /// rounds are no evidence about other requests.
    pub(super) fn is_first_sight(&self, key: &Key) -> bool {
        self.0.seen.lock().insert(*key)
    }

    /// True if the bound leaves room for this many bytes.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.0.total.load(Ordering::Relaxed).saturating_add(bytes) <= self.0.limit
    }

    /// Holds a state if there is room. Returns true if there was. If nothing else is held, a state of any size is
    /// accepted: otherwise the largest could never be restored.
    pub fn insert(&self, key: Key, state: State) -> bool {
        let fits = |before: u64, total: u64| total <= self.0.limit || (before == 0 && self.0.limit > 0);
        let more = |before: u64| before.checked_add(size(&state)).filter(|total| fits(before, *total));
        if self.0.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return false;
        }
        if let Some(before) = self.states().insert(key, state) {
            self.0.total.fetch_sub(size(&before), Ordering::Relaxed);
        }
        true
    }

    /// Drops the states that a round does not begin with, to make room for the states that it saves.
    pub fn keep_only(&self, keys: &[(NodeId, Key)]) {
        let named: HashSet<&Key> = keys.iter().map(|(_, key)| key).collect();
        self.states().retain(|key, state| {
            let stays = named.contains(key);
            if !stays {
                self.0.total.fetch_sub(size(state), Ordering::Relaxed);
            }
            stays
        });
    }

    /// The state of a key, if it is held.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<State> {
        self.states().get(key).cloned()
    }

    /// Drops a state that could not be restored.
    pub fn remove(&self, key: &Key) {
        if let Some(state) = self.states().remove(key) {
            self.0.total.fetch_sub(size(&state), Ordering::Relaxed);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let states = self.states.get_mut();
        self.total.fetch_sub(states.values().map(size).sum(), Ordering::Relaxed);
    }
}

fn size(state: &State) -> u64 {
    u64::try_from(state.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_all_requests_count_until_they_are_dropped() {
        let total = Arc::new(AtomicU64::new(0));
        let (one, other) = (Held::new(Arc::clone(&total), 100), Held::new(Arc::clone(&total), 100));
        let [a, b] = ["a", "b"].map(Key::of_generator);
        assert!(one.insert(a, Arc::new(vec![1; 30])) && one.insert(a, Arc::new(vec![2; 60])));
        assert!(
            other.has_room(40) && !other.has_room(41),
            "another state of the same key takes the place of the first"
        );
        assert!(!other.insert(b, Arc::new(vec![3; 50])) && other.states().is_empty(), "110 of 100");
        assert!(other.insert(b, Arc::new(vec![3; 40])));
        assert!(other.get(&a).is_none(), "the other's state");
        let clone = one.clone();
        drop(one);
        assert_eq!(clone.get(&a).map(|state| state.len()), Some(60));
        clone.keep_only(&[(NodeId(0), a)]);
        assert!(!clone.has_room(1));
        clone.keep_only(&[(NodeId(0), b)]);
        assert!(clone.states().is_empty() && clone.has_room(60));
        assert!(clone.insert(a, Arc::new(vec![2; 60])));
        drop(clone);
        other.remove(&b);
        other.remove(&b);
        assert_eq!(total.load(Ordering::Relaxed), 0);
        assert!(other.states().is_empty() && other.insert(b, Arc::new(vec![0; 101])), "the only one");
        assert!(!other.has_room(1) && !other.insert(a, Arc::new(vec![0; 1])));
        assert!(!Held::default().has_room(1) && !Held::default().insert(a, Arc::new(vec![0])), "without a store");
    }
}
