//! Slots: a bounded number of calls at once, all of which can be cancelled at shutdown.
//!
//! Calls that wait for the generator and all other calls have separate slots, so that a full queue of the generator
//! never refuses a call that does not need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::tally::NoObserver;
use super::{Call, Compute, Observer, Priority, Stopped, Terms};

/// The questions of streams hold at most this share of the slots. They wait for a slot and take it as soon as it is
/// released, so a call that does not wait would otherwise never find one.
const STREAMS: (usize, usize) = (3, 4);

/// All slots are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// The resource that a call works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The generator.
    Generator,
    /// No generator: another model, or only the processor.
    Beside,
}

/// Slots of one place.
#[derive(Debug)]
struct Pool {
    slots: Arc<Semaphore>,
    /// Slots that questions of streams may take.
    streams: Arc<Semaphore>,
}

impl Pool {
    fn new(limit: usize) -> Self {
        let slots = |number| Arc::new(Semaphore::new(number));
        Self { slots: slots(limit), streams: slots((limit * STREAMS.0 / STREAMS.1).max(1)) }
    }
}

/// The slots of a server, by place.
#[derive(Debug)]
struct Pools {
    generator: Pool,
    beside: Pool,
    /// Cancels the call of [`Admission::while_idle`].
    idle: Mutex<Option<CancellationToken>>,
}

impl Pools {
    const fn of(&self, place: Place) -> &Pool {
        match place {
            Place::Generator => &self.generator,
            Place::Beside => &self.beside,
        }
    }

    /// A slot that is free now.
    fn take(self: &Arc<Self>, place: Place) -> Result<HeldSlot, Full> {
        let slot = Arc::clone(&self.of(place).slots).try_acquire_owned().map_err(|_| Full)?;
        Ok(self.held(place, slot, None))
    }

    /// A slot that is taken. It ends the idle work.
    fn held(
        self: &Arc<Self>,
        place: Place,
        slot: OwnedSemaphorePermit,
        stream: Option<OwnedSemaphorePermit>,
    ) -> HeldSlot {
        if let Some(idle) = self.idle.lock().take() {
            idle.cancel();
        }
        HeldSlot { pools: Arc::clone(self), place, _slot: slot, _stream: stream }
    }

    /// Waits for a slot for a question of a stream, in order of arrival.
    async fn wait(self: &Arc<Self>, place: Place) -> Result<HeldSlot, Full> {
        let pool = self.of(place);
        let stream = Arc::clone(&pool.streams).acquire_owned().await.map_err(|_| Full)?;
        let slot = Arc::clone(&pool.slots).acquire_owned().await.map_err(|_| Full)?;
        Ok(self.held(place, slot, Some(stream)))
    }
}

/// The slot that a call holds until its last clone is dropped.
#[derive(Debug)]
pub(super) struct HeldSlot {
    pools: Arc<Pools>,
    place: Place,
    _slot: OwnedSemaphorePermit,
    _stream: Option<OwnedSemaphorePermit>,
}

impl Call {
    /// Exchanges the slot of the call for one of `place`, once its message is decoded. If none is free, the call
    /// keeps its slot until it is refused. A call within the process needs no slot.
    ///
    /// # Errors
    /// [`Full`] if no slot of that place is free.
    pub fn move_to(&self, place: Place) -> Result<(), Full> {
        let Some(held) = &self.shared.held else { return Ok(()) };
        let mut held = held.lock();
        if held.place != place {
            *held = held.pools.take(place)?;
        }
        Ok(())
    }
}

/// Slots of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Admission {
    pools: Arc<Pools>,
    limit: usize,
    root: CancellationToken,
    /// Slots in use when all calls were cancelled.
    cut: Arc<AtomicUsize>,
    compute: Compute,
    observer: Arc<dyn Observer>,
}

impl Admission {
    /// Creates `limit` slots for the generator, and as many for other calls.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            pools: Arc::new(Pools { generator: Pool::new(limit), beside: Pool::new(limit), idle: Mutex::default() }),
            limit,
            root: CancellationToken::new(),
            cut: Arc::default(),
            compute: Compute::default(),
            observer: Arc::new(NoObserver),
        }
    }

    /// Adds an `observer` of requests and calls to these slots.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The observer of requests and calls.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.observer)
    }

    /// Takes a slot without waiting and creates a call that holds it until its last clone is dropped.
    ///
    /// # Errors
    /// [`Full`] if no slot is free.
    pub fn admit(&self, terms: Terms, place: Place) -> Result<Call, Full> {
        Ok(self.call(terms, self.pools.take(place)?))
    }

    /// [`Admission::admit`] for a call whose message is not decoded yet. It takes a slot of the generator, or of
    /// the other pool if the generator has none. [`Call::move_to`] moves it to the right one.
    ///
    /// # Errors
    /// [`Full`] if neither has a free slot.
    pub fn admit_unread(&self, terms: Terms) -> Result<Call, Full> {
        let slot = self.pools.take(Place::Generator).or_else(|_| self.pools.take(Place::Beside))?;
        Ok(self.call(terms, slot))
    }

    fn call(&self, terms: Terms, slot: HeldSlot) -> Call {
        Call::observed(terms, Some(slot), self.root.child_token(), self.compute.clone(), Some(self.observer()))
    }

    /// [`Admission::admit`], but waits for a slot until the deadline. For the questions of a stream: meanwhile flow
    /// control holds back the next ones.
    ///
    /// # Errors
    /// [`Stopped`] if the deadline passes or the server shuts down first.
    pub async fn admit_when_free(&self, terms: Terms, place: Place) -> Result<Call, Stopped> {
        // Only for its deadline and cancellation: the observer sees the later call.
        let waiting = Call::new(terms.clone(), None, self.root.child_token(), self.compute.clone());
        tokio::select! {
            biased;
            Ok(slot) = self.pools.wait(place) => Ok(self.call(terms, slot)),
            reason = waiting.stopped() => Err(reason),
        }
    }

    /// A call for work that nobody waits for. It has [`Priority::IDLE`] and no slot. The next call that takes a slot
    /// cancels it, and so does the next idle call. `None` while a slot is in use.
    #[must_use]
    pub fn while_idle(&self, operation: &str) -> Option<Call> {
        let mut idle = self.pools.idle.lock();
        // Under the lock: a call that takes its slot later finds the token.
        if self.in_flight() > 0 {
            return None;
        }
        let token = self.root.child_token();
        if let Some(earlier) = idle.replace(token.clone()) {
            earlier.cancel();
        }
        let terms = Terms { operation: operation.to_owned(), priority: Priority::IDLE, ..Terms::default() };
        Some(Call::new(terms, None, token, self.compute.clone()))
    }

    /// Number of slots in use.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let used = |pool: &Pool| self.limit.saturating_sub(pool.slots.available_permits());
        used(&self.pools.generator) + used(&self.pools.beside)
    }

    /// Number of slots of each place.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Cancels all calls, current and future. Each protocol calls it when the drain time of the shutdown is over.
    pub fn cancel_all(&self) {
        // Counted first: cancelled calls end at once.
        let calls = self.in_flight();
        if calls > self.cut.fetch_max(calls, Ordering::SeqCst) {
            tracing::warn!(calls, "calls were still in flight: cancelled");
        }
        self.root.cancel();
    }

    /// Number of calls in flight that [`Admission::cancel_all`] cancelled.
    #[must_use]
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }
}
