//! Who may come in: the edge admits calls, and cancels them all when the server ends.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Call, Compute, Stopped, Terms};

/// Every place in the server is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// The places of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Admission {
    places: Arc<Semaphore>,
    limit: usize,
    root: CancellationToken,
    compute: Compute,
}

impl Admission {
    /// Admits up to `limit` calls at once.
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

    /// Takes a place for a call, which it keeps to its end.
    ///
    /// # Errors
    /// [`Full`]
    pub fn admit(&self, terms: Terms) -> Result<Call, Full> {
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Full)?;
        Ok(Call::new(terms, Some(permit), self.root.child_token(), self.compute.clone()))
    }

    /// [`Admission::admit`], waiting for a place until the deadline: for the questions of a stream, whose flow control holds
    /// the next ones back meanwhile.
    ///
    /// # Errors
    /// [`Stopped`]
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

    /// Calls in the server now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.limit.saturating_sub(self.places.available_permits())
    }

    /// Calls at most.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Cancels every call: the drain is over.
    pub fn cancel_all(&self) {
        self.root.cancel();
    }
}
