//! A server with scripted models and small limits, without sockets.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::models::{GeneratorModel, Models, ServedGenerator};
use engine::position_bias::PositionBias;
use engine::types::Limits;
use prefix_scheduler::call::Admission;
use prefix_scheduler::model::{Capacity, Generator, GeneratorInfo, entailment::Entailment};
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use tokio::runtime::Runtime;

use prefix_scheduler::scripted;

use scripted::{ByteTokenizer, ScriptedEntailment, ScriptedGenerator, overlap_script};

/// Longest time of a request, and the tolerance beyond it on a busy machine.
pub const DEADLINE_MILLISECONDS: u64 = 400;
const PATIENCE: Duration = Duration::from_secs(20);

/// Small enough that a request is answered in milliseconds.
const LIMITS: Limits = Limits {
    passages: 8,
    query_bytes: 200,
    passage_bytes: 400,
    orders: 60,
    tokens: 20_000,
    pairs: 60,
    truncate: true,
    permit_wait: None,
};

/// One edge of the server, and the runtime that its requests run on.
pub struct Server<E> {
    pub edge: E,
    pub runtime: Runtime,
    admission: Admission,
}

impl<E> Server<E> {
    /// Starts the models and puts an edge before them.
    pub fn new(edge: impl FnOnce(Engine, Admission) -> E) -> Mutex<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (engine, admission) = (runtime.block_on(engine()), Admission::new(8));
        Mutex::new(Self { edge: edge(engine, admission.clone()), runtime, admission })
    }

    /// Waits until no request has a permit.
    pub fn settle(&self) {
        let end = Instant::now() + PATIENCE;
        while self.admission.in_flight() > 0 {
            assert!(Instant::now() < end, "{} permits are still taken", self.admission.in_flight());
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_micros(50)).await });
        }
    }

    /// Runs a request to its end.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let ended = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await });
        ended.expect("the request does not end")
    }
}

/// Locks the server for one input, also after a failed one.
pub fn lock<E>(server: &Mutex<Server<E>>) -> MutexGuard<'_, Server<E>> {
    server.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn engine() -> Engine {
    let load = Box::new(|serve: &mut dyn FnMut(&mut dyn Generator)| {
        let capacity = Capacity { cells: 4_096, sequences: 64, batch: 64 };
        serve(&mut ScriptedGenerator::new(capacity, overlap_script(), Arc::default()));
        Ok(())
    });
    let scheduler = Scheduler::start(SchedulerOptions::default(), load).unwrap();
    scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await.unwrap();
    let info = GeneratorInfo {
        name: "scripted".into(),
        sha256: "0".repeat(64),
        encoding: "as shipped".into(),
        running_sha256: "0".repeat(64),
        description: String::new(),
        bytes: 0,
        trained_context: 4_096,
        chat: false,
        frame: prefix_scheduler::model::PromptFormat::Chat,
        yes_no: prefix_scheduler::model::YesNoPrompt::Generic,
        compute: "cpu".into(),
        adapter: None,
        cell_bytes: None,
        cell_type: "f16",
    };
    let load = Box::new(|serve: &mut dyn FnMut(&mut dyn Entailment)| {
        serve(&mut ScriptedEntailment {
            delay: Duration::ZERO,
            judged: Arc::default(),
            panics: false,
            three_way: true,
        });
        Ok(())
    });
    let judge = Judge::start(EntailmentOptions { cache_entries: 100 }, ConfiguredModel::default(), load).unwrap();
    let tokenizer = Arc::new(ByteTokenizer::default());
    let served = ServedGenerator::new(scheduler, tokenizer, info, PositionBias::default());
    Engine::new(Models::new(GeneratorModel::ready(served), Some(judge)), LIMITS)
}
