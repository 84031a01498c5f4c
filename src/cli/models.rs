//! `rerankd models`

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::output::FormatArgs;
use super::{Failure, SettingsArgs, output};
use crate::app;
use crate::config::{self, Config, Generator};
use models::adopt::Wanted;
use models::catalog::{Catalog, CatalogError, Entry, Role};
use models::llama::reencode::Measured;
use models::store::{Store, StoreError, write_atomically};

/// List, fetch and verify models.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd models pull smollm2-135m-instruct")]
pub(super) struct ModelsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the models of the catalogue, with their state in the store.
    #[command(after_help = "Example:\n  rerankd models list")]
    List(FormatArgs),
    /// Fetch models and prepare them for this machine. Models that are already in the store are not fetched again.
    ///
    /// Without names, the models of the configuration are fetched, except the default entailment model, which states no
    /// licence: the first command that needs it fetches it, and for a server it must be named.
    ///
    /// Files are verified before they appear in the store. Unless generator.reencode_megabytes is "off", the tensor types
    /// of each generator are then measured: the file is re-encoded to BF16, F16 and Q8_0, on an accelerator only to BF16, and
    /// the fastest file is kept. This takes seconds to minutes, once for each file and CPU or accelerator. A running
    /// server uses the choice from its next start.
    #[command(
        after_help = "Examples:\n  rerankd models pull\n  rerankd models pull smollm2-135m-instruct\n  rerankd models pull --set generator.model=/models/x.gguf"
    )]
    Pull {
        /// Names in the catalogue; without any, the models of the configuration.
        names: Vec<String>,
    },
    /// Add a model of the Hugging Face Hub: fetch its files, and write an entry with their sizes and hashes into your
    /// catalogue.
    ///
    /// The entry pins the commit, so that every machine with this catalogue pulls the same bytes.
    #[command(
        after_help = "Examples:\n  rerankd models add Qwen/Qwen2.5-0.5B-Instruct-GGUF qwen2.5-0.5b-instruct-q8_0.gguf --to models.toml\n  \
                      rerankd models add mixedbread-ai/mxbai-rerank-xsmall-v1 onnx/model.onnx tokenizer.json config.json --role reranker --to models.toml\n  \
                      rerankd serve --set models.catalog=models.toml --model qwen2.5-0.5b-instruct-q8_0"
    )]
    Add(AddArgs),
    /// Hash the files in the store and compare them with the catalogue. The next pull fetches damaged files again.
    #[command(after_help = "Example:\n  rerankd models verify")]
    Verify {
        /// Names in the catalogue; without any, all models in the store. In the latter case, only models of the
        /// configuration make the command fail, except the embedding model, without which the default method still ranks.
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The repository, optionally with a commit, tag or branch.
    #[arg(value_name = "OWNER/NAME[@REVISION]")]
    repository: String,
    /// The model's file in the repository, then other files that must be in the same folder, such as tokenizer.json.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Role of the model. Embedding models are not supported, because files in subfolders state their pooling: set
    /// embedding.model to the path of the whole repository instead.
    #[arg(long, default_value = "generator", value_parser = ["generator", "reranker", "entailment", "adapter"])]
    role: String,
    /// Name of the entry [default: the file's name of a GGUF file, otherwise the repository's name].
    #[arg(long)]
    name: Option<String>,
    /// The licence, as an SPDX identifier or in words.
    #[arg(long, default_value = "see the repository")]
    licence: String,
    /// The catalogue to add the entry to; it is created if missing [default: models.catalog, which exists].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl AddArgs {
    fn wanted(&self) -> Wanted {
        let (repository, revision) = self.repository.rsplit_once('@').unwrap_or((&self.repository, "main"));
        let file = self.files[0].rsplit('/').next().unwrap_or_default();
        let own = file.strip_suffix(".gguf").or_else(|| repository.rsplit('/').next()).unwrap_or_default();
        let roles = [Role::Generator, Role::Reranker, Role::Entailment, Role::Adapter];
        let role = roles.into_iter().find(|role| role.to_string() == self.role).unwrap_or(Role::Generator);
        Wanted {
            name: self.name.clone().unwrap_or_else(|| own.to_lowercase()),
            role,
            licence: self.licence.clone(),
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            files: self.files.clone(),
        }
    }
}

/// Fetches the files, writes the entry, and measures a generator.
async fn add(config: &Config, args: &AddArgs) -> Result<(), Failure> {
    let missing = "--to: must name the catalogue for the entry, because models.catalog is not set";
    let to = args.to.clone().or_else(|| config.catalog.clone()).ok_or_else(|| Failure::Input(missing.to_owned()))?;
    let at = |error: std::io::Error| Failure::Input(format!("{}: {error}", to.display()));
    let read = || match std::fs::read_to_string(&to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(at),
    };
    let text = read()?;
    let wanted = args.wanted();
    if wanted.repository.split('/').filter(|part| !part.is_empty() && !part.contains('@')).count() != 2 {
        return Err(Failure::Input(format!("{:?}: must be OWNER/NAME, or OWNER/NAME@REVISION", args.repository)));
    }
    // An invalid catalogue is reported before anything is fetched.
    let own = if text.is_empty() { None } else { Some(to.as_path()) };
    let catalog = Catalog::load(own).map_err(|error| Failure::Input(error.to_string()))?;
    if catalog.find(&wanted.name).is_some() {
        return Err(Failure::Input(format!("--name: {:?} is in this catalogue or in the built-in one", wanted.name)));
    }
    let with = |text: &str, entry| Catalog::with(text, &to.display().to_string(), entry);
    let unusable = |error: CatalogError| Failure::Input(error.to_string());
    with(&text, Entry::stand_in(&wanted.name, wanted.role)).map_err(unusable)?;
    let entry = config.store.adopt(&wanted, output::progress_wanted()).await.map_err(failed)?;
    let (name, path) = (entry.name.clone(), config.store.path_of(&entry));
    // Another command, or an editor, may have changed it meanwhile.
    let whole = with(&read()?, entry).map_err(unusable)?;
    write_atomically(&to, whole.as_bytes()).map_err(at)?;
    output::print(&format!("{name}  {}\n", path.display()))?;
    say(&format!("{name} is in {}; use it with --set models.catalog={}", to.display(), to.display()));
    if wanted.role == Role::Generator {
        // By its path, because this process has loaded the catalogue without the entry.
        measure(config, &Generator { model: path.display().to_string(), ..config.generator.clone() }).await?;
    }
    Ok(())
}

pub(super) async fn run(args: ModelsArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    match args.action {
        Action::List(format) => list(&config.store, format),
        Action::Pull { names } => pull(&config, &names).await,
        Action::Add(args) => add(&config, &args).await,
        Action::Verify { names } => verify(&config, &names),
    }
}

async fn pull(config: &Config, names: &[String]) -> Result<(), Failure> {
    let store = &config.store;
    if names.is_empty() {
        // A wrong path is reported before anything is fetched.
        for (section, generator) in config.generators() {
            app::find_names(section, generator, store).map_err(anyhow::Error::from)?;
        }
    }
    let entries = if names.is_empty() { configured(config, true) } else { named(store, names)? };
    let dispensable = |role: Role| is_dispensable(config, role);
    for entry in &entries {
        match store.pull(entry, output::progress_wanted()).await {
            Ok(path) => output::print(&format!("{}  {}\n", entry.name, path.display()))?,
            // The server works without it, and a mirror may lack it.
            Err(error) if names.is_empty() && dispensable(entry.role) => {
                say(&format!("{error}; the default method ranks without {}", entry.name));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    if names.is_empty() {
        if let Some(entry) = entailment(config).filter(|entry| !states_licence(entry) && !store.holds(entry)) {
            let name = &entry.name;
            say(&format!(
                "{name} was not fetched: it states no licence, and no ranking needs it (`rerankd models pull {name}`)"
            ));
        }
        for (section, generator) in config.generators() {
            app::locate_adapter(section, generator, store).map_err(anyhow::Error::from)?;
        }
        // A choice belongs to a file and to the CPU or accelerator.
        let runs = |generator: &Generator| (generator.model.clone(), generator.gpu_layers);
        let scorer = config.scorer.iter().filter(|scorer| runs(scorer) != runs(&config.generator));
        for generator in std::iter::once(&config.generator).chain(scorer) {
            measure(config, generator).await?;
        }
        return Ok(());
    }
    for entry in entries.iter().filter(|entry| entry.role == Role::Generator) {
        // With the settings of the configured generator or scorer; otherwise with those of the generator.
        let (generator, scorer) = (Some(&config.generator), config.scorer.as_ref());
        let mut own: Vec<&Generator> =
            generator.into_iter().chain(scorer).filter(|section| section.model == entry.name).collect();
        own.dedup_by_key(|section| section.gpu_layers);
        if own.is_empty() {
            own.push(&config.generator);
        }
        for settings in own {
            measure(config, &Generator { model: entry.name.clone(), ..settings.clone() }).await?;
        }
    }
    Ok(())
}

/// True if a server ranks by the default method without the models of a role: the embedding model, and ONNX Runtime if
/// no reranker needs it.
fn is_dispensable(config: &Config, role: Role) -> bool {
    role == Role::Embedding
        || (role == Role::Library && fetched_judge(config).is_none() && config.rerankers.reranker.is_none())
}

/// False for a model that must not be fetched unasked.
fn states_licence(entry: &Entry) -> bool {
    !entry.licence.starts_with("none stated")
}

/// The configured entailment model, unless the catalogue says that it states no licence.
fn fetched_judge(config: &Config) -> Option<&str> {
    let model = config.entailment.model.as_deref();
    model.filter(|_| entailment(config).is_none_or(states_licence))
}

/// The catalogue's entry of the entailment model; `None` if it is given by path or off.
fn entailment(config: &Config) -> Option<&Entry> {
    let entry = config.store.catalog().find(config.entailment.model.as_deref()?);
    entry.filter(|entry| entry.role == Role::Entailment)
}

/// Fetches the entailment model and ONNX Runtime if the store lacks them, for a command that measures answers: `models
/// pull` leaves out a model without a licence.
pub(super) async fn fetch_entailment(config: &Config) -> Result<(), Failure> {
    let Some(model) = entailment(config) else { return Ok(()) };
    let library = if config.entailment.library.is_none() { config.store.catalog().find(ONNX_RUNTIME) } else { None };
    for entry in [Some(model), library].into_iter().flatten().filter(|entry| !config.store.holds(entry)) {
        say(&format!("fetching {} (licence: {})", entry.name, entry.licence));
        config.store.pull(entry, output::progress_wanted()).await.map_err(failed)?;
    }
    Ok(())
}

/// Measures the tensor types of a generator. Steps and result go to standard error.
async fn measure(config: &Config, generator: &Generator) -> Result<(), Failure> {
    let bar = output::spinner("checking the tensor type");
    let model = &generator.model;
    let (shown, name) = (bar.clone(), model.to_owned());
    let report = move |step: &str| {
        if output::progress_wanted() {
            shown.set_message(format!("{name}: {step}"));
        } else {
            say(&format!("{name}: {step}"));
        }
    };
    let choice = app::measure_tensor_types(config, generator, report).await;
    bar.finish_and_clear();
    if let Some(choice) = choice? {
        let speed = |one: &Measured| format!("{} {:.0}/{:.0}", one.encoding, one.prefill, one.generation);
        let speeds: Vec<String> = choice.measured.iter().map(speed).collect();
        let measured = if speeds.is_empty() {
            "other types not measured".to_owned()
        } else {
            format!("tokens per second read/generated: {}", speeds.join(", "))
        };
        say(&format!("{model}: runs {} ({measured})", choice.encoding));
    }
    Ok(())
}

/// Writes a line to standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The entry of the library that runs ONNX models.
const ONNX_RUNTIME: &str = "onnxruntime";

/// The catalogue entries of the configured models, except an entailment model without a licence. Models given by path need
/// no fetching. If `says` is set, a missing ONNX Runtime is reported.
fn configured(config: &Config, says: bool) -> Vec<&Entry> {
    let scorers = [&config.rerankers.reranker, &config.rerankers.embedding];
    let scorers = scorers.into_iter().flatten().map(|scorer| scorer.model.as_str());
    let networks: Vec<&str> = fetched_judge(config).into_iter().chain(scorers).collect();
    let library = !networks.is_empty() && config.entailment.library.is_none();
    if says && library && config.store.catalog().find(ONNX_RUNTIME).is_none() {
        say(
            "the catalogue has no ONNX Runtime for this machine: the variable ORT_DYLIB_PATH must name its library, or the default method ranks \
             without the embedding model, and nothing is judged",
        );
    }
    let names = config.generators().flat_map(|(_, generator)| files(generator)).chain(networks);
    let names = names.chain(library.then_some(ONNX_RUNTIME));
    names.filter_map(|name| config.store.catalog().find(name)).collect()
}

/// Names of a generator's files.
fn files(generator: &config::Generator) -> impl Iterator<Item = &str> {
    std::iter::once(generator.model.as_str()).chain(generator.adapter.as_ref().map(|adapter| adapter.file.as_str()))
}

fn failed(error: StoreError) -> Failure {
    Failure::Other(error.into())
}

fn named<'a>(store: &'a Store, names: &[String]) -> Result<Vec<&'a Entry>, Failure> {
    let find = |name: &String| {
        let all: Vec<&str> = store.catalog().models.iter().map(|entry| entry.name.as_str()).collect();
        let unknown = || Failure::Input(format!("no model {name:?} in the catalogue ({})", all.join(", ")));
        store.catalog().find(name).ok_or_else(unknown)
    };
    names.iter().map(find).collect()
}

fn list(store: &Store, format: FormatArgs) -> Result<(), Failure> {
    if format.is_json() {
        let rows: Vec<serde_json::Value> = store
            .catalog()
            .models
            .iter()
            .map(|entry| {
                serde_json::json!({
                    "name": entry.name, "role": entry.role.to_string(), "bytes": entry.bytes, "sha256": entry.sha256,
                    "licence": entry.licence, "stored": store.holds(entry),
                    // JSON cannot hold a path that is not UTF-8.
                    "path": store.path_of(entry).display().to_string(),
                })
            })
            .collect();
        return output::json(&serde_json::Value::from(rows));
    }
    let shown = |entry: &Entry| {
        let Entry { name, role, licence, notes, bytes, .. } = entry;
        let stored = if store.holds(entry) { "stored" } else { "not stored" };
        let facts = format!("{role}, {} MB, {stored}; licence: {licence}", bytes / 1_000_000);
        format!("{name}\n{}{}", output::indented(&facts), output::indented(notes))
    };
    output::print(&store.catalog().models.iter().map(shown).collect::<Vec<_>>().join("\n"))
}

fn verify(config: &Config, names: &[String]) -> Result<(), Failure> {
    let store = &config.store;
    let needed = configured(config, false).into_iter().chain(entailment(config));
    let needed: Vec<&str> = needed.map(|entry| entry.name.as_str()).collect();
    let entries: Vec<&Entry> = if names.is_empty() {
        store.catalog().models.iter().filter(|entry| store.path_of(entry).exists()).collect()
    } else {
        named(store, names)?
    };
    let mut damaged = Vec::new();
    for entry in entries {
        match store.verify(entry) {
            Ok(()) => output::print(&format!("{}: good\n", entry.name))?,
            // A file that is not configured must not prevent a server's start.
            Err(error)
                if names.is_empty()
                    && (is_dispensable(config, entry.role) || !needed.contains(&entry.name.as_str())) =>
            {
                output::complain(&format!("{error}; the configuration does without {}", entry.name));
            }
            Err(error) => {
                damaged.push(entry.name.as_str());
                output::complain(&error.to_string());
            }
        }
    }
    if !damaged.is_empty() {
        let (number, names) = (damaged.len(), damaged.join(" "));
        let problem = format!("{number} models are missing or damaged: `rerankd models pull {names}` fetches them");
        return Err(Failure::Other(anyhow::anyhow!(problem)));
    }
    Ok(())
}
