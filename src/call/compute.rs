//! A bounded number of threads for blocking work: tokenising, plans, fits, arithmetic.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Who shares threads with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Work of requests that also use a model: one thread a core.
    Request,
    /// Arithmetic on a caller's own numbers: half as many, so that a flood of it leaves the generator its share.
    Arithmetic,
}

/// The threads. Clones share them.
#[derive(Debug, Clone)]
pub struct Compute {
    request: Arc<Semaphore>,
    arithmetic: Arc<Semaphore>,
}

impl Default for Compute {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { request: Arc::new(Semaphore::new(cores)), arithmetic: Arc::new(Semaphore::new(cores.div_ceil(2))) }
    }
}

impl Compute {
    /// Waits for a thread of the lane. `None` cannot happen while the semaphore is open, which it always is.
    pub(super) async fn thread(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let threads = match lane {
            Lane::Request => &self.request,
            Lane::Arithmetic => &self.arithmetic,
        };
        Arc::clone(threads).acquire_owned().await.ok()
    }
}
