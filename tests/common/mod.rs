//! Starts the real server on a free port, with a scripted or the default generator.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use engine::models::{GeneratorModel, Models, ServedGenerator};
use engine::position_bias::PositionBias;
use engine::types::Limits;
use models::catalog::Role;
use prefix_scheduler::call::{Admission, Call};
use rerankd::config::Config;
pub mod failures;
pub mod passage_models;
pub use prefix_scheduler::scripted;

#[allow(unused_imports, reason = "every test file uses its own part")]
pub use failures::fields;
use prefix_scheduler::model::{Capacity, GeneratorInfo};
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use protocol::v1;
use protocol::v1::rerank_service_client::RerankServiceClient;
use scripted::{ByteTokenizer, Fault, Observed, ScriptedGenerator, overlap_script};
use server::rpc::server;
use tonic::transport::Channel;

pub const LIMITS: Limits = Limits {
    passages: 20,
    query_bytes: 1_000,
    passage_bytes: 3_000_000,
    orders: 300,
    tokens: 200_000,
    pairs: 400,
    truncate: true,
    permit_wait: None,
};

/// Settings of a server with a scripted generator.
pub struct Scripted {
    pub capacity: Capacity,
    pub delay: Duration,
    pub fault: Option<Fault>,
    pub queue_length: usize,
    /// Longest wait of a request without a deadline, and of a request of a stream for its slot.
    pub longest_wait: Option<Duration>,
    pub limits: Limits,
    /// The passage cache.
    pub warm: prefix_scheduler::warm::Options,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            capacity: Capacity { cells: 4_096, sequences: 64, batch: 64 },
            delay: Duration::ZERO,
            fault: None,
            queue_length: 8,
            longest_wait: None,
            limits: LIMITS,
            warm: prefix_scheduler::warm::Options::default(),
        }
    }
}

/// A running server and its clients.
pub struct Running {
    pub address: String,
    pub engine: Engine,
    pub admission: Admission,
    pub observed: Arc<Observed>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<server::Ended>,
}

impl Scripted {
    pub async fn engine(self) -> (Engine, Arc<Observed>, usize) {
        let observed = Arc::new(Observed::default());
        let seen = Arc::clone(&observed);
        let mut fault = self.fault;
        let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
            let mut generator = ScriptedGenerator::new(self.capacity, overlap_script(), Arc::clone(&seen));
            generator.delay = self.delay;
            generator.fault = fault.take();
            serve(&mut generator);
            Ok(())
        });
        let options =
            SchedulerOptions { longest_wait: self.longest_wait, warm: self.warm, ..SchedulerOptions::default() };
        let scheduler = Scheduler::start(options, loader).unwrap();
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
        let limits = Limits { permit_wait: self.longest_wait, ..self.limits };
        let engine = engine_of(scheduler, info, PositionBias::default(), limits);
        (engine, observed, self.queue_length)
    }

    pub async fn serve(self) -> Running {
        let (engine, observed, queue_length) = self.engine().await;
        serve(engine, observed, queue_length).await
    }

    pub async fn serve_with(self, options: server::ServerOptions) -> Running {
        let (engine, observed, queue_length) = self.engine().await;
        serve_with(engine, observed, queue_length, options).await
    }
}

/// An engine with a scripted generator whose scheduler is ready.
pub fn engine_of(scheduler: Scheduler, info: GeneratorInfo, bias: PositionBias, limits: Limits) -> Engine {
    let served = ServedGenerator::new(scheduler, Arc::new(ByteTokenizer::default()), info, bias);
    Engine::new(Models::new(GeneratorModel::ready(served), None), limits)
}

pub async fn serve(engine: Engine, observed: Arc<Observed>, queue_length: usize) -> Running {
    serve_draining(engine, observed, queue_length, Duration::from_secs(10)).await
}

/// Starts a server that waits up to `drain` for calls in flight when it stops.
pub async fn serve_draining(engine: Engine, observed: Arc<Observed>, queue_length: usize, drain: Duration) -> Running {
    let options = server::ServerOptions { drain, ..server::ServerOptions::default() };
    serve_with(engine, observed, queue_length, options).await
}

/// Starts a server with these options.
pub async fn serve_with(
    engine: Engine,
    observed: Arc<Observed>,
    queue_length: usize,
    options: server::ServerOptions,
) -> Running {
    serve_with_admission(engine, observed, Admission::new(queue_length), options).await
}

/// Starts a server with these permits and their observer.
pub async fn serve_with_admission(
    engine: Engine,
    observed: Arc<Observed>,
    admission: Admission,
    options: server::ServerOptions,
) -> Running {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let admitted = admission.clone();
    let inner = engine.clone();
    let server = tokio::spawn(async move {
        let until = async {
            let _ = stopped.await;
        };
        server::serve(inner, admitted, options, listener, until).await.unwrap()
    });
    Running { address, engine, admission, observed, stop: Some(stop), server }
}

impl Running {
    pub async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub async fn client(&self) -> RerankServiceClient<Channel> {
        RerankServiceClient::new(self.channel().await).max_decoding_message_size(16 << 20)
    }

    pub async fn stop(self) {
        self.stop_and_tell().await;
    }

    /// Asks the server to stop, without waiting.
    pub fn begin_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Stops the server, unless it is stopping already, and returns how it ended.
    pub async fn stop_and_tell(mut self) -> server::Ended {
        if self.stop.is_some() {
            self.begin_to_stop();
        }
        self.server.await.unwrap()
    }
}

/// Waits until `done`, for 20 s at most. `what` is the message of a failure.
pub async fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The default configuration: the default models in the user's store. The passage cache is off, so equal requests
/// without other load have byte-equal scores; tests/real/warm.rs turns it on.
pub fn real_config() -> Config {
    Config::load(None, &[("passage_cache.memory_bytes".to_owned(), "off".to_owned())]).unwrap()
}

/// The default generator, shared by all tests of a program. It runs on its own thread, independent of the tests'
/// runtimes.
pub async fn real_engine() -> Engine {
    static ENGINE: tokio::sync::OnceCell<Engine> = tokio::sync::OnceCell::const_new();
    let load = || async {
        rerankd::app::engine(&real_config()).await.expect("the default generator; `make setup` fetches it")
    };
    ENGINE.get_or_init(load).await.clone()
}

/// Settings of the default generator with 16-bit weights, for bounds that block types exceed, because they also round the
/// activations. The file is written once, into the store.
pub fn settings_of_16_bits() -> Vec<(String, String)> {
    static PATH: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let store = real_config().store;
        let path = store.root().join(".encodings/tests-F16.gguf");
        if !path.exists() {
            let shipped = store.locate(&real_config().generator.model, Role::Generator).unwrap().path;
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            models::llama::reencode::encode(&shipped, &path, "F16", 2).unwrap();
        }
        path.display().to_string()
    });
    [("generator.model", PATH.as_str()), ("generator.reencode_megabytes", "off")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The default generator with 16-bit weights, shared like [`real_engine`].
pub async fn engine_of_16_bits() -> Engine {
    static ENGINE: tokio::sync::OnceCell<Engine> = tokio::sync::OnceCell::const_new();
    let load = || async {
        let off = ("passage_cache.memory_bytes".to_owned(), "off".to_owned());
        let flags = [settings_of_16_bits(), vec![off]].concat();
        rerankd::app::engine(&Config::load(None, &flags).unwrap()).await.unwrap()
    };
    ENGINE.get_or_init(load).await.clone()
}

/// Held by a test of a server over [`real_engine`], because queued work of another test may cause refusals.
pub async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

pub fn wire(query: &str, passages: &[&str]) -> v1::RerankRequest {
    let passage = |(index, text): (usize, &&str)| v1::Passage {
        id: format!("p{index}"),
        text: (*text).to_owned(),
        ..v1::Passage::default()
    };
    v1::RerankRequest {
        query: query.to_owned(),
        passages: passages.iter().enumerate().map(passage).collect(),
        ..v1::RerankRequest::default()
    }
}

/// The ready generator of an engine.
pub fn generator(engine: &Engine) -> Arc<ServedGenerator> {
    engine.generator().unwrap()
}

/// A local call, for tests that do not test calls.
pub fn call() -> Call {
    Call::local()
}

/// The default entailment model, with its own verdict cache. `batch` is the number of pairs per step.
pub fn real_judge(batch: usize) -> prefix_scheduler::scheduler::entailment::Judge {
    let mut config = real_config();
    config.entailment.batch = batch;
    rerankd::app::judge(&config).unwrap().unwrap()
}

/// A copy of the engine that uses this entailment model.
pub fn with_judge(engine: &Engine, judge: prefix_scheduler::scheduler::entailment::Judge) -> Engine {
    let generator = engine.models().generator(None).unwrap().clone();
    Engine::new(Models::new(generator, Some(judge)), *engine.limits())
}

/// A copy of the engine that uses these position-bias profiles.
pub fn with_position_bias(engine: &Engine, bias: PositionBias) -> Engine {
    let served = engine.generator().unwrap();
    engine_of(served.scheduler.clone(), served.info.clone(), bias, *engine.limits())
}

/// A copy of the engine with a scripted cross-encoder of this name.
pub fn with_scripted_reranker(engine: &Engine, name: &str) -> Engine {
    with_slow_reranker(engine, name, Duration::ZERO)
}

/// [`with_scripted_reranker`] with this delay per passage.
pub fn with_slow_reranker(engine: &Engine, name: &str, delay: Duration) -> Engine {
    with_slow_scorer(engine, engine::types::Role::Reranker, name, delay)
}

/// [`with_slow_reranker`] for a model of this role.
pub fn with_slow_scorer(engine: &Engine, role: engine::types::Role, name: &str, delay: Duration) -> Engine {
    use prefix_scheduler::scheduler::entailment::ConfiguredModel;
    use prefix_scheduler::scheduler::reranker::PassageScorer;
    let scored = Arc::default();
    let mut model = scripted::ScriptedReranker { delay, scored, panics_at: Some(5), most: 100 };
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::reranker::Reranker)| {
        serve(&mut model);
        Ok(())
    });
    let configured = ConfiguredModel { name: name.to_owned(), sha256: "2".repeat(64) };
    let scorer = PassageScorer::start("reranker", configured, None, loader).unwrap();
    Engine::new(engine.models().clone().with_scorer(role, scorer), *engine.limits())
}

/// A copy of the engine with scripted entailment, and the counter of judged pairs.
pub fn with_scripted_judge(engine: &Engine, delay: Duration) -> (Engine, Arc<std::sync::atomic::AtomicUsize>) {
    use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
    use scripted::ScriptedEntailment;
    let judged = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&judged);
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::entailment::Entailment)| {
        serve(&mut ScriptedEntailment { delay, judged: Arc::clone(&seen), panics: false, three_way: true });
        Ok(())
    });
    let options = EntailmentOptions { cache_entries: 1_000 };
    let judge = Judge::start(options, ConfiguredModel::default(), loader).unwrap();
    (with_judge(engine, judge), judged)
}
