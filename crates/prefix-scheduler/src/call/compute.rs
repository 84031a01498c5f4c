//! Bounded pool for blocking work: tokenising, planning, fits, arithmetic.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Class of blocking work. Each has its own bound on threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Work of requests that also use a model. One thread per core.
    Request,
    /// Fits, which take the longest: they must not delay the tokenisation of other requests. One thread per core.
    Fit,
    /// Looking for cached states on disk. These threads mostly wait for a volume, which may be slow. They must not
    /// delay the tokenisation of requests that need no states.
    Disk,
    /// Arithmetic on the caller's data. One thread per two cores, so that many such calls leave cores to the
    /// generator.
    Arithmetic,
}

/// Permits for threads, by [`Lane`]. Clones share them.
#[derive(Debug, Clone)]
pub struct Compute {
    request: Arc<Semaphore>,
    fit: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    arithmetic: Arc<Semaphore>,
}

/// Threads that wait for a disk at once.
const DISK: usize = 8;

impl Default for Compute {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = |number: usize| Arc::new(Semaphore::new(number));
        Self {
            request: threads(cores),
            fit: threads(cores),
            disk: threads(DISK),
            arithmetic: threads(cores.div_ceil(2)),
        }
    }
}

impl Compute {
    /// Waits for a permit of the lane. `None` would mean that the semaphore is closed, which never happens.
    pub(super) async fn thread(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let threads = match lane {
            Lane::Request => &self.request,
            Lane::Fit => &self.fit,
            Lane::Disk => &self.disk,
            Lane::Arithmetic => &self.arithmetic,
        };
        Arc::clone(threads).acquire_owned().await.ok()
    }
}
