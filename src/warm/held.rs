//! The states of one request: those read from disk for it, and those that its earlier rounds left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Key;
use super::store::State;

/// States that a request holds for itself, within a bound that all requests share. Clones share the states; their bytes count
/// until the last clone is dropped.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<Own>);

#[derive(Debug, Default)]
struct Own {
    states: Mutex<HashMap<Key, State>>,
    /// Bytes of all requests.
    total: Arc<AtomicU64>,
    /// Most bytes of all requests.
    limit: u64,
}

impl Held {
    /// Holds nothing yet. `total` counts the bytes of all requests, which stay within `limit`.
    pub(super) fn new(total: Arc<AtomicU64>, limit: u64) -> Self {
        Self(Arc::new(Own { states: Mutex::default(), total, limit }))
    }

    fn states(&self) -> MutexGuard<'_, HashMap<Key, State>> {
        self.0.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the bound leaves room for another state. Its size is not known before it is there, so the last one may exceed
    /// the bound.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.total.load(Ordering::Relaxed) < self.0.limit
    }

    /// Holds a state.
    pub fn insert(&self, key: Key, state: State) {
        let bytes = size(&state);
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
        if let Some(before) = self.states().insert(key, state) {
            self.0.total.fetch_sub(size(&before), Ordering::Relaxed);
        }
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

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states().is_empty()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let states = self.states.get_mut().unwrap_or_else(PoisonError::into_inner);
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
        one.insert(a, Arc::new(vec![1; 60]));
        one.insert(a, Arc::new(vec![2; 70]));
        assert!(other.has_room() && total.load(Ordering::Relaxed) == 70);
        other.insert(b, Arc::new(vec![3; 50]));
        assert!(!one.has_room() && !other.has_room(), "120 of 100");
        assert!(other.get(&a).is_none(), "the other's state");
        let clone = one.clone();
        drop(one);
        assert_eq!(clone.get(&a).map(|state| state.len()), Some(70));
        drop(clone);
        other.remove(&b);
        other.remove(&b);
        assert_eq!(total.load(Ordering::Relaxed), 0);
        assert!(other.is_empty() && other.has_room());
        assert!(!Held::default().has_room(), "without a store nothing is held");
    }
}
