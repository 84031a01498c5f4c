//! Admission control: a bounded number of calls at once, all of which can be cancelled at shutdown.
//!
//! Calls that wait for the generator and all other calls have separate permits, so that a full queue of the generator refuses
//! nobody who does not need it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::tally::Nobody;
use super::{Call, Compute, Observer, Stopped, Terms};

/// One permit of so many is reserved for callers that hold none, so that one caller cannot shut out the others.
const NEWCOMERS: usize = 16;

/// Of the permits that are not reserved, the questions of streams hold at most this share. They wait for a permit and take it as
/// soon as it comes back, so that a caller who does not wait would find none.
const STREAMS: (usize, usize) = (3, 4);

/// All permits are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// The resource that a call works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The generator.
    Generator,
    /// Anything but the generator: another model, or the processor alone.
    Beside,
}

/// Permits of one place.
#[derive(Debug)]
struct Pool {
    /// Permits for everybody.
    common: Semaphore,
    /// How many more of them the questions of streams may take.
    streams: Semaphore,
    /// Permits for callers that hold none.
    kept: usize,
    state: Mutex<State>,
    /// Notified whenever a permit is returned.
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Permits in use, by caller.
    held: HashMap<Arc<str>, usize>,
    /// Free ones of the reserved permits.
    kept: usize,
}

impl Pool {
    fn new(limit: usize) -> Arc<Self> {
        let kept = limit / NEWCOMERS;
        let (common, state) = (limit - kept, Mutex::new(State { held: HashMap::new(), kept }));
        let streams = Semaphore::new((common * STREAMS.0 / STREAMS.1).max(1));
        Arc::new(Self { common: Semaphore::new(common), streams, kept, state, returned: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn free(&self) -> usize {
        self.common.available_permits() + self.state().kept
    }

    /// A permit that is free now.
    fn take(self: &Arc<Self>, caller: &Arc<str>) -> Result<Permit, Full> {
        match self.common.try_acquire() {
            Ok(place) => {
                place.forget();
                Ok(self.permit(&mut self.state(), caller, false))
            }
            Err(_) => self.take_kept(caller),
        }
    }

    /// A reserved permit, for a caller that holds none.
    fn take_kept(self: &Arc<Self>, caller: &Arc<str>) -> Result<Permit, Full> {
        let mut state = self.state();
        if state.kept == 0 || state.held.contains_key(caller) {
            return Err(Full);
        }
        state.kept -= 1;
        Ok(self.permit(&mut state, caller, false))
    }

    /// Waits for a permit for a question of a stream. Waiters for a common permit are served first come, first served.
    async fn wait(self: &Arc<Self>, caller: &Arc<str>) -> Result<Permit, Full> {
        let mut common = std::pin::pin!(async {
            let share = self.streams.acquire().await.map_err(|_| Full)?;
            self.common.acquire().await.map_err(|_| Full)?.forget();
            share.forget();
            Ok(self.permit(&mut self.state(), caller, true))
        });
        loop {
            let mut returned = std::pin::pin!(self.returned.notified());
            // Registered before the look, so that a permit that is returned in between is not missed.
            returned.as_mut().enable();
            tokio::select! {
                biased;
                permit = &mut common => return permit,
                Ok(permit) = async { self.take_kept(caller) } => return Ok(permit),
                () = returned => {}
            }
        }
    }

    fn permit(self: &Arc<Self>, state: &mut State, caller: &Arc<str>, streamed: bool) -> Permit {
        *state.held.entry(Arc::clone(caller)).or_default() += 1;
        Permit { pool: Arc::clone(self), caller: Arc::clone(caller), streamed }
    }
}

/// The permit of a call.
#[derive(Debug)]
struct Permit {
    pool: Arc<Pool>,
    caller: Arc<str>,
    /// True if it counts in the share of streams.
    streamed: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.streamed {
            self.pool.streams.add_permits(1);
        }
        let mut state = self.pool.state();
        if let Some(number) = state.held.get_mut(&self.caller) {
            *number -= 1;
            if *number == 0 {
                state.held.remove(&self.caller);
            }
        }
        // The reserved ones come first, so that a newcomer finds one again.
        if state.kept < self.pool.kept {
            state.kept += 1;
        } else {
            self.pool.common.add_permits(1);
        }
        drop(state);
        self.pool.returned.notify_waiters();
    }
}

/// The pools of a server, by place.
#[derive(Debug)]
struct Pools {
    generator: Arc<Pool>,
    beside: Arc<Pool>,
}

impl Pools {
    fn of(&self, place: Place) -> &Arc<Pool> {
        match place {
            Place::Generator => &self.generator,
            Place::Beside => &self.beside,
        }
    }
}

/// The permits that a call holds until its last clone is dropped.
#[derive(Debug)]
pub(super) struct HeldPermit {
    pools: Arc<Pools>,
    permit: Permit,
}

impl HeldPermit {
    /// Moves to a place. A call that finds none there keeps what it has until it is refused: with a generator's permit, calls
    /// without the generator would stand in the way of those that need it.
    pub fn settle(&mut self, place: Place) -> Result<(), Full> {
        let pool = self.pools.of(place);
        if Arc::ptr_eq(&self.permit.pool, pool) {
            return Ok(());
        }
        self.permit = pool.take(&self.permit.caller)?;
        Ok(())
    }
}

impl Call {
    /// Says what the call works with, which was not known when it was admitted. A call within the process needs no permit.
    ///
    /// # Errors
    /// [`Full`] if no permit of that place is free.
    pub fn settle(&self, place: Place) -> Result<(), Full> {
        let Some(held) = &self.shared.held else { return Ok(()) };
        held.lock().settle(place)
    }
}

/// Permits of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Admission {
    pools: Arc<Pools>,
    limit: usize,
    root: CancellationToken,
    /// Permits in use when all calls were cancelled.
    cut: Arc<AtomicUsize>,
    compute: Compute,
    observer: Arc<dyn Observer>,
}

impl Admission {
    /// Creates `limit` permits for the generator, and as many for other calls.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            pools: Arc::new(Pools { generator: Pool::new(limit), beside: Pool::new(limit) }),
            limit,
            root: CancellationToken::new(),
            cut: Arc::default(),
            compute: Compute::default(),
            observer: Arc::new(Nobody),
        }
    }

    /// The same permits, with `observer` for requests and calls.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The observer of requests and calls.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer)
    }

    /// Acquires a permit without waiting and creates a call that holds it until its last clone is dropped. One permit of
    /// sixteen is reserved for callers that hold none.
    ///
    /// # Errors
    /// [`Full`] if no permit is free.
    pub fn admit(&self, terms: Terms, place: Place) -> Result<Call, Full> {
        let permit = self.pools.of(place).take(&terms.counted_as())?;
        Ok(self.call(terms, Some(permit)))
    }

    /// [`Admission::admit`] for a call whose message says what it works with: at the generator, or, where that is full,
    /// from the other pool. [`Call::settle`] moves it to the right one.
    ///
    /// # Errors
    /// [`Full`] if no permit is free at either.
    pub fn admit_unread(&self, terms: Terms) -> Result<Call, Full> {
        let caller = terms.counted_as();
        let permit = self.pools.generator.take(&caller).or_else(|_| self.pools.beside.take(&caller))?;
        Ok(self.call(terms, Some(permit)))
    }

    fn call(&self, terms: Terms, permit: Option<Permit>) -> Call {
        let held = permit.map(|permit| HeldPermit { pools: Arc::clone(&self.pools), permit });
        Call::observed(terms, held, self.root.child_token(), self.compute.clone(), Some(self.observer()))
    }

    /// [`Admission::admit`], but waits for a permit until the deadline. For the questions of a stream: flow control
    /// delays the next ones during the wait. A reserved permit is taken only by a caller that holds none, and a part of the others
    /// is left to calls that do not wait.
    ///
    /// # Errors
    /// [`Stopped`] if the deadline passes or the server shuts down first.
    pub async fn admit_when_free(&self, terms: Terms, place: Place) -> Result<Call, Stopped> {
        // Only for its deadline and cancellation: the observer sees the call that follows.
        let waiting = Call::new(terms.clone(), None, self.root.child_token(), self.compute.clone());
        let (pool, caller) = (self.pools.of(place), terms.counted_as());
        tokio::select! {
            biased;
            permit = pool.wait(&caller) => Ok(self.call(terms, permit.ok())),
            reason = waiting.stopped() => Err(reason),
        }
    }

    /// Number of permits in use.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let used = |pool: &Pool| self.limit.saturating_sub(pool.free());
        used(&self.pools.generator) + used(&self.pools.beside)
    }

    /// Number of permits of each place.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Cancels all calls, current and future. Called when the shutdown's drain time is over, by each protocol for itself.
    pub fn cancel_all(&self) {
        // Counted first: cancelled calls end at once.
        let calls = self.in_flight();
        if calls > self.cut.fetch_max(calls, Ordering::SeqCst) {
            tracing::warn!(calls, "calls were still in flight: cancelled");
        }
        self.root.cancel();
    }

    /// How many calls [`Admission::cancel_all`] found in flight.
    #[must_use]
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }

    /// Callers that hold a permit.
    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        self.pools.generator.state().held.len() + self.pools.beside.state().held.len()
    }
}
