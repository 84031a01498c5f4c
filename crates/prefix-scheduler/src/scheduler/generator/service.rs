//! The generator as a service of a worker.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::stepper::Stepper;
use super::{Job, Loader, ScheduleError, Stats};
use crate::model::{Capacity, ModelError};
use crate::scheduler::worker::Service;
use crate::warm::{self, Store};

/// Configuration of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulerOptions {
    /// Cache of passages' states for later requests. Without it, prompt prefixes are not cached either.
    pub warm: warm::Options,
    /// Version of the prompts. Cached states are valid for one version.
    pub template: String,
    /// Longest wait of a request without a deadline; `None` for no bound.
    pub longest_wait: Option<Duration>,
    /// One plan at a time in an empty cache, without saved states. Scores then depend on neither the load nor
    /// earlier requests: the order of additions in kernels follows the rows of a step and the places of cells.
    pub reproducible: bool,
    /// The generator's name in the log and of its thread; `generator` if empty.
    pub name: &'static str,
}

/// A generator behind its loader, and the parts that its loop needs.
pub(super) struct GeneratorService {
    pub loader: Loader,
    pub stats: Arc<Stats>,
    pub store: Option<Arc<Store>>,
    /// Version of the prompts, which the keys of states contain.
    pub template: String,
    pub one_at_a_time: bool,
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
        let one_at_a_time = self.one_at_a_time;
        let (stats, store, template) = (&self.stats, self.store.as_deref(), &self.template);
        let mut first = first;
        (self.loader)(&mut |generator| {
            let serves = |store: &&Store| {
                generator
                    .state_identity()
                    .is_some_and(|identity| store.serves(&format!("{identity}, prompts {template}")))
            };
            let store = store.filter(serves);
            ready(generator.capacity());
            let mut stepper = Stepper::new(generator, first.take(), queue, stats, store);
            stepper.one_at_a_time = one_at_a_time;
            stepper.serve();
        })
    }

    /// Its jobs were dropped with the loop, which answers UNAVAILABLE.
    fn abandon(&mut self, _: &ScheduleError) {
        self.stats.reset_gauges();
    }
}
