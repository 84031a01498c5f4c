//! Context of a request from admission to completion.
//!
//! The edge creates a [`Call`] before the message of a request is decoded. All work for the request carries it. It holds
//! the slot (one for the whole request), deadline, cancellation, priority, request id and span. Clones share all of these.
//! The slot is released when the last clone is dropped, so a computation that is still stopping counts as in flight.
//!
//! The deadline is enforced in three places. [`Call::run`] ends the future. [`Call::compute`] does not start late
//! work, and running work polls [`Call::is_stopped`]. The scheduler drops the plan before its next step.

mod admission;
mod aside;
mod compute;
mod ledger;
mod priority;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use admission::HeldSlot;
pub use admission::{Admission, Full, Place};
pub use aside::{LARGE, beside_the_reactor};
pub use compute::{Compute, Lane};
pub(crate) use ledger::Entry;
pub use ledger::Ledger;
use ledger::Work;
pub use priority::{LEVEL as PRIORITY_LEVEL, NAMED as PRIORITY_NAME, Priority, Urgency};
pub use tally::{Observer, Operation, Refusal, Stage, Tally, Timed};

/// Reason why a call ended before its work was complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The caller disconnected or the server shuts down.
    #[error("the call was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// A computation panicked, with this message.
    #[error("a computation panicked: {0}")]
    Panicked(String),
}

/// The latest time to send an answer to a caller that waits for `timeout` from `now`. A little of the time is
/// reserved for the answer, so that the caller gets our deadline error before its own clock or the transport
/// cancels the call.
#[must_use]
pub fn deadline(timeout: Duration, now: Instant) -> Option<Instant> {
    let reserve = (timeout / 20).clamp(Duration::from_millis(1), Duration::from_millis(20));
    now.checked_add(timeout.saturating_sub(reserve))
}

/// Properties of a call that the edge reads from its headers and connection.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Name of the operation in the span, e.g. `Rerank`.
    pub operation: String,
    /// Request id chosen by the caller; `None` to generate one.
    pub id: Option<String>,
    /// Address of the peer; empty for calls within the process.
    pub caller: String,
    /// Name of the caller's token; `None` if the server needs none.
    pub name: Option<String>,
    /// Priority in the queues of the models.
    pub priority: Priority,
    /// Time at which the call stops; `None` for no deadline.
    pub deadline: Option<Instant>,
    /// Counts of the request that the call is part of; `None` for a call outside a request.
    pub request: Option<Arc<Tally>>,
}

/// Longest request id in bytes.
const LONGEST_ID: usize = 128;

impl Terms {
    /// The request id to use. Every log line contains it, so unreadable or confusing characters are removed. `None`
    /// if nothing is left, or the given id is longer than 128 bytes.
    #[must_use]
    pub fn usable_id(given: &str) -> Option<String> {
        let plain = |character: &char| character.is_ascii_alphanumeric() || "-_.:/+=@,~".contains(*character);
        let clean: String =
            if given.len() > LONGEST_ID { String::new() } else { given.chars().filter(plain).collect() };
        Some(clean).filter(|clean| !clean.is_empty())
    }
}

struct Shared {
    terms: Terms,
    id: String,
    span: tracing::Span,
    compute: Compute,
    work: Mutex<Work>,
    tally: Tally,
    observer: Option<Arc<dyn Observer>>,
    /// Released on drop.
    held: Option<Mutex<HeldSlot>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.ended(&self.terms.operation, &self.tally);
        }
    }
}

/// A request in progress. Cheap to clone.
#[derive(Clone)]
pub struct Call {
    shared: Arc<Shared>,
    token: CancellationToken,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Call").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

impl Call {
    fn new(terms: Terms, held: Option<HeldSlot>, token: CancellationToken, compute: Compute) -> Self {
        Self::observed(terms, held, token, compute, None)
    }

    fn observed(
        terms: Terms,
        held: Option<HeldSlot>,
        token: CancellationToken,
        compute: Compute,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let id = terms.id.clone().unwrap_or_else(fresh_id);
        // At error level, so that a filter for errors keeps the id in their lines.
        let (caller, name) = (&terms.caller, terms.name.as_deref());
        let span = tracing::error_span!("call", operation = %terms.operation, id = %id, %caller, name);
        let tally = terms.request.as_ref().map(Tally::part_of).unwrap_or_default();
        let work = Mutex::default();
        let shared = Shared { terms, id, span, compute, work, tally, observer, held: held.map(Mutex::new) };
        Self { shared: Arc::new(shared), token }
    }

    /// A call within the process, without slot and deadline. For the command line and tests.
    #[must_use]
    pub fn local() -> Self {
        Self::local_with(None)
    }

    /// [`Call::local`] with a deadline.
    #[must_use]
    pub fn local_with(deadline: Option<Instant>) -> Self {
        // Many may be in flight at once. They share threads, as the calls of a server do.
        static SHARED: LazyLock<Compute> = LazyLock::new(Compute::default);
        let terms = Terms { operation: "local".to_owned(), deadline, ..Terms::default() };
        Self::new(terms, None, CancellationToken::new(), SHARED.clone())
    }

    /// The same call with a child cancellation token. It stops when this call stops, and can be cancelled separately.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), token: self.token.child_token() }
    }

    /// True if both are handles of one call.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Request id, from the caller or generated. Every log line of the call contains it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Counts of the call. All work for the call adds to them.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Begins a stage of the call's work. It ends when the returned value is dropped.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Timed {
        Timed::begin(self.clone(), stage)
    }

    /// Runs `work` in the span of the call, so that its log lines have the request id.
    pub fn in_span<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.span.in_scope(work)
    }

    /// Priority in the queues of the models.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.shared.terms.priority
    }

    /// Order in the queues of the models.
    #[must_use]
    pub fn urgency(&self) -> Urgency {
        Urgency::new(self.priority(), self.deadline())
    }

    /// Time at which the call stops; `None` for no deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.terms.deadline
    }

    /// True if it is a call within the process, which needs no slot and is never refused because of other work.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.shared.held.is_none()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.shared.work.lock()
    }

    /// Cancels the call and its children. Running work stops at its next check.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// True if the deadline passed or the call was cancelled. Long computations poll this.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.check().is_err()
    }

    /// Returns an error if the deadline passed or the call was cancelled.
    ///
    /// # Errors
    /// [`Stopped::Cancelled`] or [`Stopped::DeadlineExceeded`].
    pub fn check(&self) -> Result<(), Stopped> {
        if self.token.is_cancelled() {
            return Err(Stopped::Cancelled);
        }
        match self.deadline() {
            Some(deadline) if Instant::now() >= deadline => Err(Stopped::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// Resolves with the reason when the call stops. Never resolves if nothing stops the call.
    pub async fn stopped(&self) -> Stopped {
        let passed = async {
            match self.deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        // If both apply, the reason is the one that `check` gives.
        tokio::select! {
            biased;
            () = self.token.cancelled() => Stopped::Cancelled,
            () = passed => Stopped::DeadlineExceeded,
        }
    }

    /// Runs the work of the call in its span until the work ends, the deadline passes or the call is cancelled. The
    /// call is cancelled when the returned future completes or is dropped; a drop means that the caller disconnected.
    ///
    /// # Errors
    /// The error of the work, or the reason why the call stopped.
    pub async fn run<T, E: From<Stopped>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let _ends_on_drop = Ends(self);
        let bounded = async {
            tokio::select! {
                biased;
                outcome = work => outcome,
                reason = self.stopped() => Err(reason.into()),
            }
        };
        bounded.instrument(self.shared.span.clone()).await
    }

    /// Runs blocking work outside the reactor, on one of a bounded number of threads. Waiting for a thread ends when
    /// the call stops. Long work must poll [`Call::is_stopped`].
    ///
    /// # Errors
    /// The error of the work, the reason why it did not start, or [`Stopped::Panicked`].
    pub async fn compute<T, E>(&self, work: impl FnOnce(&Self) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Stopped> + Send + 'static,
    {
        self.compute_in(Lane::Request, work).await
    }

    /// [`Call::compute`] on the threads of `lane`.
    ///
    /// # Errors
    /// As [`Call::compute`].
    pub async fn compute_in<T, E>(
        &self,
        lane: Lane,
        work: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Stopped> + Send + 'static,
    {
        let thread = tokio::select! {
            biased;
            reason = self.stopped() => return Err(reason.into()),
            thread = self.shared.compute.thread(lane) => thread,
        };
        let call = self.clone();
        let outcome = tokio::task::spawn_blocking(move || {
            let _held = thread;
            let _span = call.shared.span.enter();
            call.check()?;
            if lane == Lane::Arithmetic {
                call.tally().add_turn();
            }
            // Work that checks its call ends with a general error; the reason is known here.
            work(&call).or_else(|error| call.check().map_err(E::from).and(Err(error)))
        });
        outcome.await.unwrap_or_else(|error| Err(Stopped::Panicked(panic_text(error)).into()))
    }
}

fn panic_text(error: tokio::task::JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => crate::call::text_of_panic(panic.as_ref()),
        Err(error) => error.to_string(),
    }
}

/// Message of a panic; `no message` if the payload is not text.
pub(crate) fn text_of_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Generates a request id: unique within the process, and unlikely to repeat in another one.
#[must_use]
pub fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static PROCESS: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.subsec_nanos().rotate_left(16) ^ std::process::id()
    });
    format!("{:08x}-{}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Cancels the call when its work ends or is dropped. Its unevaluated tokens then no longer delay other calls,
/// although the model may hold a clone until the end of its step.
struct Ends<'a>(&'a Call);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.token.cancel();
        self.0.work().end();
    }
}

#[cfg(test)]
mod tests;
