//! A request from the edge to its end.
//!
//! The edge makes a [`Call`] before it reads what a request asks for, and everything that works for the request carries it:
//! the permit (one place in the server for the whole request), the deadline, cancellation, priority, the caller, the request
//! id and the span. Clones share all of this. The permit returns when the last clone is gone, so a computation that is still
//! on its way out keeps its place.
//!
//! The deadline is enforced in three places: [`Call::run`] ends the future, [`Call::compute`] refuses to start and its work
//! asks [`Call::is_stopped`], and the scheduler drops the plan before its next step.

mod admission;
mod compute;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use admission::{Admission, Full};
pub use compute::{Compute, Lane};

/// Why a call ended before its work did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The caller left, or the server shuts down.
    #[error("the call was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// A computation panicked; the text is the panic's.
    #[error("a computation panicked: {0}")]
    Panicked(String),
}

/// How urgent a call is. It shifts the place of the call in the scheduler's queue by a bounded time
/// (`scheduler::generator::queue`), so no priority waits for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// Batch work.
    Low,
    /// The default.
    #[default]
    Normal,
    /// A person waits.
    High,
}

/// What the edge learns of a call from its headers and its connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// What is called, for the span (`Rerank`).
    pub operation: &'static str,
    /// The caller's id for the request; one is made where it is absent.
    pub id: Option<String>,
    /// Who calls: the peer's address. Empty in process.
    pub caller: String,
    /// How urgent it is.
    pub priority: Priority,
    /// When the answer must be on its way.
    pub deadline: Option<Instant>,
}

struct Shared {
    terms: Terms,
    id: String,
    span: tracing::Span,
    compute: Compute,
    /// Held for its drop.
    _permit: Option<OwnedSemaphorePermit>,
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
    fn new(terms: Terms, permit: Option<OwnedSemaphorePermit>, token: CancellationToken, compute: Compute) -> Self {
        let id = terms.id.clone().unwrap_or_else(fresh_id);
        let span = tracing::info_span!("call", operation = terms.operation, id = %id, caller = %terms.caller);
        Self { shared: Arc::new(Shared { terms, id, span, compute, _permit: permit }), token }
    }

    /// A call of this process, without a permit or a deadline: for the command line and for tests.
    #[must_use]
    pub fn local() -> Self {
        Self::local_with(None)
    }

    /// [`Call::local`] with a deadline.
    #[must_use]
    pub fn local_with(deadline: Option<Instant>) -> Self {
        let terms = Terms { operation: "local", deadline, ..Terms::default() };
        Self::new(terms, None, CancellationToken::new(), Compute::default())
    }

    /// The same call with a cancellation of its own: it stops when this one does, and may be cancelled alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), token: self.token.child_token() }
    }

    /// The request id, the caller's or our own; it stands in every log line of the call.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// How urgent it is.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.shared.terms.priority
    }

    /// When the answer must be on its way.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.shared.terms.deadline
    }

    /// Ends everything that works for this call at its next chance.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Whether the work should end now: the deadline passed or the call was cancelled.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.check().is_err()
    }

    /// Why the work should end now, if it should.
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

    /// Resolves when the call stops, with the reason. Never resolves for a call that nothing stops.
    pub async fn stopped(&self) -> Stopped {
        let passed = async {
            match self.deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.token.cancelled() => Stopped::Cancelled,
            () = passed => Stopped::DeadlineExceeded,
        }
    }

    /// Runs the work of the call in its span until it ends, the deadline passes or the call is cancelled. Dropping the
    /// returned future cancels the call, because its caller has left; so does the end of the work.
    ///
    /// # Errors
    /// The work's own, or why the call stopped.
    pub async fn run<T, E: From<Stopped>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let _cancels_on_drop = self.token.clone().drop_guard();
        let bounded = async {
            tokio::select! {
                biased;
                outcome = work => outcome,
                reason = self.stopped() => Err(reason.into()),
            }
        };
        bounded.instrument(self.shared.span.clone()).await
    }

    /// Runs blocking work of the request off the reactor, on one of a bounded number of threads. Waits for a thread; the wait
    /// ends when the call stops. Long work asks [`Call::is_stopped`] as it goes.
    ///
    /// # Errors
    /// The work's own, or why it never ran to its end.
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
            work(&call)
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

/// The message of a panic.
pub(crate) fn text_of_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Unique in this process, and different in the next one.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    static PROCESS: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.subsec_nanos().rotate_left(16) ^ std::process::id()
    });
    format!("{:08x}-{}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests;
