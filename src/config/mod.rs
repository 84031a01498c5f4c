//! Configuration: merged from all sources, validated as a whole, and split by component. Only this module reads the
//! environment.

mod changes;
mod cores;
pub mod generator;
mod http;
mod keys;
mod observe;
pub mod rerankers;
mod security;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use engine;
use engine::live::LiveOptions;
use engine::types::Role;
use models::store::Store;
use models::{catalog, fetch};
use prefix_scheduler::scheduler::entailment::EntailmentOptions;
use prefix_scheduler::scheduler::generator::SchedulerOptions;
use prefix_scheduler::warm::{self, DiskOptions};
use server::observe::traces::TraceOptions;
use server::transport::AccessFiles;

pub use generator::Generator;
pub use http::Http;
pub use keys::DEFAULTS;
pub use security::{Security, client_token};

use keys::Keys;

/// Addresses, as errors describe them.
const ADDRESS: &str = "an address and port";

/// Longest accepted duration, a year: longer ones overflow a clock.
const MOST_SECONDS: u64 = 365 * 86_400;

/// Maximum number of passage orders in a design, and of contexts in a request.
const ORDERS: usize = 1024;

/// Maximum number of cached verdicts of the entailment model, about 150 bytes each.
const VERDICTS: usize = 65_536;

/// All faults of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", faults.join("\n"))]
pub struct ConfigError {
    /// One message per fault, each starting with its key or file.
    pub faults: Vec<String>,
    /// Certificate and token files of the configuration; a server also reports their faults.
    pub files: AccessFiles,
}

impl ConfigError {
    /// A fault that prevents reading the rest.
    fn one(fault: String) -> Self {
        Self { faults: vec![fault], files: AccessFiles::default() }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of the gRPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Maximum size of a message in bytes.
    pub message_bytes: usize,
    /// Time that a stopping server waits for requests in flight.
    pub drain: Duration,
    /// Time in which a stopping server still accepts requests while its health says NOT_SERVING.
    pub lame_duck: Duration,
    /// True to serve reflection.
    pub reflection: bool,
}

/// The entailment model and its load settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entailment {
    /// Catalogue name, or path of an ONNX file; `None` disables entailment.
    pub model: Option<String>,
    /// Path of ONNX Runtime's shared library: `ORT_DYLIB_PATH`, or the file in the program's folder. `None` for the library in
    /// the store.
    pub library: Option<PathBuf>,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Pairs per step; 0 lets the runtime choose. Only tests and benchmarks set it.
    pub batch: usize,
    /// Settings of the worker, including its verdict cache.
    pub worker: EntailmentOptions,
}

/// Position-bias profiles that may arrange contexts. Each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Profiles {
    Calibrated,
    #[default]
    BuiltIn,
    Learnt,
}

impl Profiles {
    const ALL: [(&str, Self); 3] =
        [("calibrated", Self::Calibrated), ("built-in", Self::BuiltIn), ("learnt", Self::Learnt)];
}

/// The validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings of the gRPC server.
    pub server: Server,
    /// Access control and bounds on connections.
    pub security: Security,
    /// Settings of HTTP/JSON and of tei.v1.
    pub http: Http,
    /// Limits of a request.
    pub limits: engine::types::Limits,
    /// Maximum number of calls in the server, waiting and running.
    pub queue_length: usize,
    /// Settings of the generator's scheduler.
    pub scheduler: SchedulerOptions,
    /// Settings of the generator.
    pub generator: Generator,
    /// Settings of the scorer; `None` if the generator scores.
    pub scorer: Option<Generator>,
    /// Settings of the entailment model.
    pub entailment: Entailment,
    /// Settings of the reranker and the embedding model.
    pub rerankers: rerankers::Rerankers,
    /// True to add fits of served requests to the learnt position-bias profiles.
    pub learn_position_bias: bool,
    /// True if learnt profiles may arrange requests without a context order. Other callers' requests influence them.
    pub use_learnt_position_bias: bool,
    /// True if the generator may use the profile that comes with the program.
    pub use_built_in_position_bias: bool,
    /// Folder of model files, with the catalogue.
    pub store: Store,
    /// The additional catalogue; `None` for none.
    pub catalog: Option<PathBuf>,
    /// Log levels in the syntax of tracing's `EnvFilter`.
    pub log_filter: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Address of the page of metrics; `None` for no page.
    pub metrics: Option<SocketAddr>,
    /// Exporter of traces; `None` for no traces.
    pub traces: Option<TraceOptions>,
    /// Measurement of live traffic; `None` for none.
    pub live: Option<LiveOptions>,
    effective: Value,
}

/// Variable that names the configuration file.
pub const FILE: &str = "RERANKD_CONFIG";

/// True if [`FILE`] is set but empty, so it names no file.
pub fn names_no_file() -> bool {
    std::env::var_os(FILE).is_some_and(|name| name.is_empty())
}

impl Config {
    /// Reads the defaults, `file`, the process's environment and `flags` (pairs of `section.key` and value). Later
    /// sources take precedence.
    ///
    /// # Errors
    /// [`ConfigError`] with all faults.
    pub fn load(file: Option<&Path>, flags: &[(String, String)]) -> Result<Self, ConfigError> {
        let environment = keys::environment(std::env::vars_os())?;
        Self::from_parts(file, &environment, flags)
    }

    /// [`Config::load`] with an explicit environment, so that tests need not change the process's.
    ///
    /// # Errors
    /// [`ConfigError`] with all faults.
    pub fn from_parts(
        file: Option<&Path>,
        environment: &[(String, String)],
        flags: &[(String, String)],
    ) -> Result<Self, ConfigError> {
        let variable = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        validate(Keys::merge(file, environment, flags)?, &variable)
    }

    /// The generator and, if configured, the scorer, each with its section.
    pub fn generators(&self) -> impl Iterator<Item = (Role, &Generator)> {
        let scorer = self.scorer.iter().map(|scorer| (Role::Scorer, scorer));
        std::iter::once((Role::Generator, &self.generator)).chain(scorer)
    }

    /// The merged values as TOML.
    pub fn effective(&self) -> String {
        toml::to_string(&self.effective).unwrap_or_default()
    }
}

/// Reads all keys. Faulty keys have their default values.
fn validate(mut keys: Keys, variable: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let listen = keys.read("server.listen", ADDRESS, |value| value.as_str()?.parse().ok().map(Some));
    let server = Server {
        listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))),
        message_bytes: keys.number("server.message_bytes", 1024..=1 << 31),
        drain: Duration::from_secs(keys.number("server.drain_seconds", 0..=MOST_SECONDS)),
        lame_duck: Duration::from_secs(keys.number("server.lame_duck_seconds", 0..=MOST_SECONDS)),
        reflection: keys.flag("server.reflection"),
    };
    let http = http::read(server.message_bytes, &mut keys);
    let security = security::read(&mut keys);
    security.refuse_exposed([("server.listen", Some(server.listen)), ("http.listen", http.listen)], &mut keys);
    let log_filter = keys.text("log.filter");
    if let Err(error) = log_filter.parse::<tracing_subscriber::EnvFilter>() {
        keys.fault("log.filter", error);
    }
    let generator = Generator::read(&mut keys);
    let scorer = Generator::read_scorer(&generator, &mut keys);
    let longest_wait = keys.number_or("limits.queue_seconds", "unlimited", 1..=MOST_SECONDS).map(Duration::from_secs);
    let scheduler = SchedulerOptions {
        warm: passage_cache(&mut keys),
        template: engine::prompt::TEMPLATE_VERSION.to_owned(),
        reproducible: keys.flag("generator.reproducible"),
        name: "generator",
        longest_wait,
    };
    if scheduler.reproducible && scheduler.warm.disk.is_some() {
        keys.fault("passage_cache.disk", "must be \"off\" if generator.reproducible is true, which keeps no KV cache");
    }
    let profiles = keys.choice("position_bias.profiles", &Profiles::ALL);
    let catalog = keys.text_or("models.catalog", "off").map(PathBuf::from);
    let catalogue = catalog::Catalog::load(catalog.as_deref());
    if let Err(error) = &catalogue {
        keys.fault("models.catalog", error);
    }
    let root = keys.text_or("models.store", "auto").map(PathBuf::from).or_else(user_store);
    if root.is_none() {
        keys.fault("models.store", "must be set, because this user has no cache folder");
    }
    // Compose files set a missing variable to nothing, and a token read from a file ends with a newline.
    let given = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let hub = fetch::Hub { endpoint: given("HF_ENDPOINT"), token: given("HF_TOKEN") };
    let entailment = Entailment {
        model: keys.text_or("entailment.model", "off"),
        library: given("ORT_DYLIB_PATH").map(PathBuf::from).or_else(packed_library),
        threads: generator.threads,
        batch: 0,
        worker: EntailmentOptions { cache_entries: VERDICTS },
    };
    let limits = limits(longest_wait, &mut keys);
    let queue_length = keys.number("limits.queue_length", 1..=1_000_000);
    let rerankers = rerankers::read(generator.threads, &mut keys);
    let learn_position_bias = keys.flag("position_bias.learn");
    let log_format = keys.choice("log.format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]);
    let (metrics, traces) = observe::read(&mut keys);
    let live = observe::read_live(&entailment, &mut keys);
    let faults = std::mem::take(&mut keys.faults);
    let (Ok(catalogue), Some(root), true) = (catalogue, root, faults.is_empty()) else {
        return Err(ConfigError { faults, files: security.files });
    };
    Ok(Config {
        server,
        security,
        http,
        limits,
        queue_length,
        scheduler,
        generator,
        scorer,
        entailment,
        rerankers,
        learn_position_bias,
        use_learnt_position_bias: profiles == Profiles::Learnt,
        use_built_in_position_bias: profiles != Profiles::Calibrated,
        store: Store::new(root, catalogue, hub),
        catalog,
        log_filter,
        log_format,
        metrics,
        traces,
        live,
        effective: keys.into_values(),
    })
}

/// Limits of a request.
fn limits(permit_wait: Option<Duration>, keys: &mut Keys) -> engine::types::Limits {
    engine::types::Limits {
        passages: keys.number("limits.passages", 1..=10_000),
        query_bytes: keys.number("limits.query_bytes", 1..=1 << 30),
        passage_bytes: keys.number("limits.passage_bytes", 1..=1 << 30),
        orders: ORDERS,
        tokens: keys.number("limits.tokens_per_request", 1..=usize::MAX),
        pairs: keys.number("limits.pairs_per_request", 1..=usize::MAX),
        truncate: true,
        permit_wait,
    }
}

/// Cache settings of passages.
fn passage_cache(keys: &mut Keys) -> warm::Options {
    let memory_bytes = keys.number_or("passage_cache.memory_bytes", "off", 1..=1 << 50);
    let bytes = keys.number("passage_cache.disk_bytes", 1..=1 << 50);
    let disk = keys.text_or("passage_cache.disk", "off");
    if memory_bytes.is_none() && disk.is_some() {
        keys.fault("passage_cache.disk", "must be \"off\" if passage_cache.memory_bytes is \"off\"");
    }
    let disk = disk.map(|folder| DiskOptions { folder: PathBuf::from(folder), bytes });
    warm::Options { memory_bytes: memory_bytes.unwrap_or(0), disk }
}

/// The library of ONNX Runtime in the program's folder. Archives, wheels and images have one.
fn packed_library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.with_file_name(format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}"))).filter(|path| path.is_file())
}

fn user_store() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "rerankd").map(|folders| folders.cache_dir().join("models"))
}

#[cfg(test)]
mod tests;
