//! Configuration: merged from all sources, validated as a whole, and split by component. Only this module reads the
//! environment.

mod changes;
pub mod generator;
mod http;
mod observe;
mod raw;
pub mod rerankers;
mod security;
mod warm;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use engine;
use engine::models::Role;
use models::store::Store;
use models::{catalog, fetch};
use prefix_scheduler::scheduler::entailment::EntailmentOptions;
use prefix_scheduler::scheduler::generator::SchedulerOptions;
use server::observe::traces::TraceOptions;
use server::transport::AccessFiles;

pub use generator::Generator;
pub use http::Http;
pub use raw::DEFAULTS;
pub use security::{Security, client_token};

/// All faults of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", faults.join("\n"))]
pub struct ConfigError {
    /// One message per fault, each starting with its key or file.
    pub faults: Vec<String>,
    /// The files of certificates and tokens that the configuration names, for a server that lists their faults, too.
    pub files: AccessFiles,
}

impl ConfigError {
    /// A fault beyond which nothing is known.
    fn one(fault: String) -> Self {
        Self { faults: vec![fault], files: AccessFiles::default() }
    }

    /// The same with the faults that were found earlier. A key that was at fault then had its default value since, so what was
    /// found of it later means nothing.
    fn after(mut self, mut earlier: Vec<String>) -> Self {
        self.faults.retain(|fault| !earlier.iter().any(|other| key(other) == key(fault)));
        earlier.append(&mut self.faults);
        Self { faults: earlier, ..self }
    }
}

/// The key or file of a fault.
fn key(fault: &str) -> &str {
    fault.split(": ").next().unwrap_or_default()
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable lines.
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
    /// Time that a stopping server still takes requests, while its health says NOT_SERVING.
    pub lame_duck: Duration,
    /// Whether reflection is served.
    pub reflection: bool,
}

/// The entailment model and its load settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entailment {
    /// Catalogue name, or path of an ONNX file; `None` disables entailment.
    pub model: Option<String>,
    /// Path of ONNX Runtime's shared library; `None` for the library in the store.
    pub library: Option<PathBuf>,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Pairs per step; 0 lets the runtime choose by the network's quantisation.
    pub batch: usize,
    /// Settings of the worker, including its verdict cache.
    pub worker: EntailmentOptions,
}

/// The validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Settings of the gRPC server.
    pub server: Server,
    /// Who may connect.
    pub security: Security,
    /// Where the service manager listens (`NOTIFY_SOCKET` of systemd), and how often it wants a sign of life.
    pub service_manager: Option<(String, Option<Duration>)>,
    /// Settings of HTTP/JSON and of tei.v1.
    pub http: Http,
    /// Limits of a request.
    pub limits: engine::Limits,
    /// Maximum number of calls in the server, waiting and running.
    pub queue_length: usize,
    /// Settings of the generator's scheduler.
    pub scheduler: SchedulerOptions,
    /// Settings of the generator.
    pub generator: Generator,
    /// Settings of the generator that scores passages in its place; `None` where it scores itself.
    pub scorer: Option<Generator>,
    /// Settings of the entailment model.
    pub entailment: Entailment,
    /// Settings of the models that score passages.
    pub rerankers: rerankers::Rerankers,
    /// Whether fits of served requests are added to the learnt position-bias profiles.
    pub learn_position_bias: bool,
    /// Whether learnt profiles may arrange requests without a context order. Other callers' requests influence them.
    pub use_learnt_position_bias: bool,
    /// Whether the generator has the profile that comes with the program.
    pub use_built_in_position_bias: bool,
    /// Folder of model files, with the catalogue.
    pub store: Store,
    /// The catalogue beside the built-in one; `None` for none.
    pub catalog: Option<PathBuf>,
    /// Log levels in the syntax of tracing's `EnvFilter`.
    pub log_filter: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Address of the page of metrics; `None` for no page.
    pub metrics: Option<SocketAddr>,
    /// Where traces go; `None` for no traces.
    pub traces: Option<TraceOptions>,
    effective: Value,
}

/// Variable that names the configuration file.
pub const FILE: &str = "RERANKD_CONFIG";

/// Whether [`FILE`] is set to nothing, and so names none.
#[must_use]
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
        let environment = raw::environment(std::env::vars_os())?;
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
        let default: Value = toml::from_str(DEFAULTS).map_err(|error| ConfigError::one(error.to_string()))?;
        let mut value = raw::merge(file, environment, flags)?;
        let mut faults = Vec::new();
        raw::conform(&mut value, &default, "", &mut faults);
        let raw: raw::Raw = match serde_json::from_value(value.clone()) {
            Ok(raw) => raw,
            Err(error) => return Err(ConfigError::one(error.to_string()).after(faults)),
        };
        let variable = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        match validate(raw, value, &variable, &faults) {
            Ok(config) if faults.is_empty() => Ok(config),
            Ok(config) => Err(ConfigError { faults, files: config.security.files }),
            Err(error) => Err(error.after(faults)),
        }
    }

    /// The generator and the scorer, where there is one, each with its section.
    pub fn generators(&self) -> impl Iterator<Item = (Role, &Generator)> {
        let scorer = self.scorer.iter().map(|scorer| (Role::Scorer, scorer));
        std::iter::once((Role::Generator, &self.generator)).chain(scorer)
    }

    /// The merged values as TOML. Access tokens and what stands before the host of an address are masked.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut shown = self.effective.clone();
        if let Some(token) = shown.pointer_mut("/models/hub_token")
            && token.as_str().is_some_and(|token| !token.is_empty())
        {
            *token = Value::from("***");
        }
        if let Some(endpoint) = shown.pointer_mut("/models/hub_endpoint")
            && let Some((scheme, rest)) = endpoint.as_str().and_then(|url| url.split_once("://"))
            && let Some((_, host)) = rest.split('/').next().and_then(|authority| authority.rsplit_once('@'))
        {
            let path = rest.find('/').map_or("", |at| &rest[at..]);
            *endpoint = Value::from(format!("{scheme}://***@{host}{path}"));
        }
        toml::to_string(&shown).unwrap_or_default()
    }
}

/// Checks the values. Those of the keys in `replaced` are defaults.
fn validate(
    raw: raw::Raw,
    effective: Value,
    variable: &dyn Fn(&str) -> Option<String>,
    replaced: &[String],
) -> Result<Config, ConfigError> {
    let mut faults = Vec::new();
    bounded(&raw, &mut faults);
    if raw.generator.section.model.is_empty() {
        faults.push("generator.model: must not be empty".to_owned());
    }
    let listen = raw.server.listen.parse::<SocketAddr>();
    if listen.is_err() {
        faults.push(format!("server.listen: must be an address and port, is {:?}", raw.server.listen));
    }
    let http = raw.http.check(&mut faults);
    let security = security::validate(&raw.tls, &raw.auth, &raw.connections, &mut faults);
    let addresses = [("server.listen", listen.as_ref().ok().copied()), ("http.listen", http.listen)];
    // Where it is not known what protects an address, nothing is said of it.
    let insecure = raw.server.allow_insecure || replaced.iter().any(|fault| security::protects(key(fault)));
    faults.extend(addresses.iter().filter_map(|(key, at)| security::exposed(key, (*at)?, &security, insecure)));
    let log_format = log_format(&raw.log.format, &mut faults);
    if let Err(error) = raw.log.filter.parse::<tracing_subscriber::EnvFilter>() {
        faults.push(format!("log.filter: {error}"));
    }
    let metrics = raw.metrics.validate(&mut faults);
    let traces = raw.traces.validate(&mut faults);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let reencode = raw.generator.reencode.then_some(raw.generator.reencode_megabytes.saturating_mul(1_000_000));
    let generator = raw.generator.section.validate("generator", cores, reencode, &mut faults);
    let threads = generator.threads;
    let scorer = scorer(raw.scorer, &generator, reencode, &mut faults);
    let rerankers = raw.rerankers.validate(threads, &mut faults);
    let warm = raw.warm.options(&mut faults);
    if raw.generator.reproducible && warm.disk.is_some() {
        faults.push("warm.disk: must be empty where generator.reproducible is true, which keeps no states".to_owned());
    }
    let longest_wait = (raw.limits.queue_seconds > 0).then(|| Duration::from_secs(raw.limits.queue_seconds));
    let optional_path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let catalog = optional_path(&raw.models.catalog);
    let catalogue = catalog::Catalog::load(catalog.as_deref());
    if let Err(error) = &catalogue {
        faults.push(format!("models.catalog: {error}"));
    }
    let root = optional_path(&raw.models.store).or_else(user_store);
    if root.is_none() {
        faults.push("models.store: must be set, because this user has no cache folder".to_owned());
    }
    let (Ok(listen), Ok(catalogue), Some(root), true) = (listen, catalogue, root, faults.is_empty()) else {
        return Err(ConfigError { faults, files: security.files });
    };
    // A variable that is set to nothing, as compose files do with one that is missing, is not set; files end with a line's end.
    let given = |name: &str| variable(name).map(|text| text.trim().to_owned());
    let text =
        |text: &str, name: &str| Some(text.to_owned()).into_iter().chain(given(name)).find(|text| !text.is_empty());
    let hub = fetch::Hub {
        endpoint: text(&raw.models.hub_endpoint, "HF_ENDPOINT"),
        token: text(&raw.models.hub_token, "HF_TOKEN"),
    };
    let library = text(&raw.entailment.library, "ORT_DYLIB_PATH").map(PathBuf::from);
    let entailment = entailment(raw.entailment, library, threads);
    Ok(Config {
        server: Server {
            listen,
            message_bytes: raw.server.message_bytes,
            drain: Duration::from_secs(raw.server.drain_seconds),
            lame_duck: Duration::from_secs(raw.server.lame_duck_seconds),
            reflection: raw.server.reflection,
        },
        security,
        service_manager: security::service_manager(variable),
        http,
        limits: engine::Limits {
            passages: raw.limits.passages,
            query_bytes: raw.limits.query_bytes,
            passage_bytes: raw.limits.passage_bytes,
            orders: raw.limits.orders,
            tokens: raw.limits.tokens_per_request,
            pairs: raw.limits.pairs_per_request,
            truncate: raw.limits.truncate,
            permit_wait: longest_wait,
        },
        queue_length: raw.limits.queue_length,
        scheduler: SchedulerOptions {
            warm,
            template: engine::prompt::TEMPLATE_VERSION.to_owned(),
            reproducible: raw.generator.reproducible,
            name: "generator",
            longest_wait,
        },
        generator,
        scorer,
        entailment,
        rerankers,
        learn_position_bias: raw.position_bias.learn,
        use_learnt_position_bias: raw.position_bias.use_learnt,
        use_built_in_position_bias: raw.position_bias.use_built_in,
        store: Store::new(root, catalogue, hub),
        catalog,
        log_filter: raw.log.filter,
        log_format,
        metrics,
        traces,
        effective,
    })
}

/// Appends a fault for each number that is out of its bounds.
fn bounded(raw: &raw::Raw, faults: &mut Vec<String>) {
    let positive = [
        ("limits.passages", raw.limits.passages, 1, 10_000),
        ("limits.query_bytes", raw.limits.query_bytes, 1, 1 << 30),
        ("limits.passage_bytes", raw.limits.passage_bytes, 1, 1 << 30),
        ("limits.orders", raw.limits.orders, 1, 1_000_000),
        ("limits.tokens_per_request", raw.limits.tokens_per_request, 1, usize::MAX),
        ("limits.pairs_per_request", raw.limits.pairs_per_request, 1, usize::MAX),
        ("limits.queue_length", raw.limits.queue_length, 1, 1_000_000),
        ("server.message_bytes", raw.server.message_bytes, 1024, 1 << 31),
        ("entailment.threads", raw.entailment.threads, 0, 1024),
        ("entailment.batch", raw.entailment.batch, 0, 1024),
        ("entailment.cache_entries", raw.entailment.cache_entries, 0, 100_000_000),
    ];
    for (key, value, least, most) in positive {
        if value < least || value > most {
            faults.push(format!("{key}: must be between {least} and {most}, is {value}"));
        }
    }
}

/// The scorer, where one is configured.
fn scorer(
    raw: generator::Section,
    beside: &Generator,
    reencode: Option<u64>,
    faults: &mut Vec<String>,
) -> Option<Generator> {
    let scorer = raw.validate("scorer", beside.threads, reencode, faults);
    if scorer.model.is_empty() && scorer.adapter.is_some() {
        faults.push("scorer.adapter: must be empty where scorer.model is empty".to_owned());
    }
    let scorer = Some(scorer).filter(|scorer| !scorer.model.is_empty())?;
    if scorer.model == beside.model && scorer.adapter == beside.adapter {
        // Both would keep what they learn in the same files.
        faults.push("scorer.model: is the generator itself: leave it empty, or give it another adapter".to_owned());
    }
    Some(scorer)
}

fn log_format(text: &str, faults: &mut Vec<String>) -> LogFormat {
    match text {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        other => {
            faults.push(format!("log.format: must be text or json, is {other:?}"));
            LogFormat::Text
        }
    }
}

fn entailment(raw: raw::Entailment, library: Option<PathBuf>, threads: usize) -> Entailment {
    Entailment {
        model: Some(raw.model).filter(|model| !model.is_empty()),
        library,
        threads: if raw.threads == 0 { threads } else { raw.threads },
        batch: raw.batch,
        worker: EntailmentOptions { cache_entries: raw.cache_entries },
    }
}

fn user_store() -> Option<PathBuf> {
    directories::ProjectDirs::from("", "", "rerankd").map(|folders| folders.cache_dir().join("models"))
}

#[cfg(test)]
mod tests;
