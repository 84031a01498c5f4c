//! Admission control: a bounded number of calls at once, all of which can be cancelled at shutdown.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Call, Compute, Stopped, Terms};

/// All permits are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// Permits of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    limit: usize,
    root: CancellationToken,
    compute: Compute,
}

impl Admission {
    /// Creates `limit` permits.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(limit)),
            limit,
            root: CancellationToken::new(),
            compute: Compute::default(),
        }
    }

    /// Acquires a permit without waiting and creates a call that holds it until its last clone is dropped.
    ///
    /// # Errors
    /// [`Full`] if no permit is free.
    pub fn admit(&self, terms: Terms) -> Result<Call, Full> {
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Full)?;
        Ok(Call::new(terms, Some(permit), self.root.child_token(), self.compute.clone()))
    }

    /// [`Admission::admit`], but waits for a permit until the deadline. For the questions of a stream: flow control
    /// delays the next ones during the wait.
    ///
    /// # Errors
    /// [`Stopped`] if the deadline passes or the server shuts down first.
    pub async fn admit_when_free(&self, terms: Terms) -> Result<Call, Stopped> {
        let waiting = Call::new(terms.clone(), None, self.root.child_token(), self.compute.clone());
        tokio::select! {
            biased;
            permit = Arc::clone(&self.places).acquire_owned() => {
                Ok(Call::new(terms, permit.ok(), self.root.child_token(), self.compute.clone()))
            }
            reason = waiting.stopped() => Err(reason),
        }
    }

    /// Number of permits in use.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.limit.saturating_sub(self.places.available_permits())
    }

    /// Total number of permits.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Cancels all calls, current and future. Called when the shutdown's drain time is over.
    pub fn cancel_all(&self) {
        self.root.cancel();
    }
}
