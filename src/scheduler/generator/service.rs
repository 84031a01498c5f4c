//! The generator as a service of a worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use super::stepper::Stepper;
use super::{Job, Loader, ScheduleError, SchedulerOptions, Stats};
use crate::model::{Capacity, ModelError};
use crate::scheduler::worker::Service;

/// A generator behind its loader, and what its loop needs.
pub(super) struct GeneratorService {
    pub loader: Loader,
    pub stats: Arc<Stats>,
    pub options: SchedulerOptions,
}

impl Service for GeneratorService {
    type Job = Job;
    type Info = Capacity;

    fn run(
        &mut self,
        first: Option<Job>,
        queue: &Receiver<Job>,
        ready: &mut dyn FnMut(Capacity),
    ) -> Result<(), ModelError> {
        let (stats, options) = (&self.stats, self.options);
        let mut first = first;
        (self.loader)(&mut |generator| {
            ready(generator.capacity());
            Stepper::new(generator, first.take(), queue, stats, options).serve();
        })
    }

    /// Its jobs were dropped with the loop, which answers UNAVAILABLE; what is left is to set the gauges back.
    fn abandon(&mut self, _: &ScheduleError) {
        for gauge in [&self.stats.active, &self.stats.waiting, &self.stats.cells, &self.stats.backlog] {
            gauge.store(0, Ordering::Relaxed);
        }
    }
}
