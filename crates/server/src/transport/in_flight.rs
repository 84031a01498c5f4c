//! Counts what is in progress, on a connection or in the whole server.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// A counter. Clones share it.
#[derive(Clone, Debug)]
pub struct InFlight(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the count falls to 0.
    none: Notify,
}

#[derive(Debug)]
struct State {
    count: usize,
    /// When the count last fell to 0, or the counter was made.
    since: Instant,
}

/// Counts as one until it is dropped.
#[derive(Debug)]
pub struct Counted(InFlight);

impl Default for InFlight {
    fn default() -> Self {
        let state = Mutex::new(State { count: 0, since: Instant::now() });
        Self(Arc::new(Shared { state, none: Notify::new() }))
    }
}

impl InFlight {
    /// Counts one more.
    #[must_use]
    pub fn begin(&self) -> Counted {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        Counted(self.clone())
    }

    /// The count.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Since when the count is 0; `None` where it is not.
    #[must_use]
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.count == 0).then_some(state.since)
    }

    /// Resolves as soon as the count is 0.
    pub async fn none(&self) {
        loop {
            // Made before the count is read, so that a fall in between is not missed.
            let fell = self.0.none.notified();
            if self.count() == 0 {
                return;
            }
            fell.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count -= 1;
        if state.count == 0 {
            state.since = Instant::now();
            shared.none.notify_waiters();
        }
    }
}
