//! The worker thread's life: build the model, serve, and start again when either fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use tokio::sync::watch;

use super::worker::Worker;
use super::{Job, Lender, Settings, Stats, Status};

/// First pause before a new attempt; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Supervisor {
    pub queue: Receiver<Job>,
    pub report: watch::Sender<Status>,
    pub stats: Arc<Stats>,
    pub settings: Settings,
}

impl Supervisor {
    /// Runs until every handle is gone.
    pub fn run(self, mut lender: Lender) {
        let mut pause = FIRST_PAUSE;
        loop {
            let mut served = false;
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                lender(&mut |generator| {
                    served = true;
                    self.report.send_replace(Status::Ready(generator.capacity()));
                    Worker::new(generator, &self.queue, &self.stats, self.settings).serve();
                })
            }));
            let failure = match outcome {
                // The worker returns only when every handle is gone.
                Ok(Ok(())) => break,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(panic.as_ref()),
            };
            if served {
                pause = FIRST_PAUSE;
            }
            self.report.send_replace(Status::Failed(failure));
            if !self.rest(pause) {
                break;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.report.send_replace(Status::Loading);
        }
        self.report.send_replace(Status::Stopped);
    }

    /// Waits, turning away what is still in the queue (a dropped job answers UNAVAILABLE). False when all handles are gone.
    fn rest(&self, pause: Duration) -> bool {
        self.stats.active.store(0, Ordering::Relaxed);
        self.stats.waiting.store(0, Ordering::Relaxed);
        self.stats.cells.store(0, Ordering::Relaxed);
        self.stats.backlog.store(0, Ordering::Relaxed);
        std::thread::sleep(pause);
        loop {
            match self.queue.try_recv() {
                Ok(job) => drop(job),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the worker panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}
