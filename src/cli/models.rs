//! `rerankd models`

use std::io::Write;

use clap::{Args, Subcommand};

use super::{Failure, SettingsArgs, output};
use crate::app;
use crate::config::{self, Config};
use crate::storage::catalog::{Entry, Role};
use crate::storage::store::{Store, StoreError};

/// List, fetch and verify models.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd models pull smollm2-135m-instruct")]
pub(super) struct ModelsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the catalogue and which of its models are in the store.
    #[command(after_help = "Example:\n  rerankd models list")]
    List,
    /// Fetch models and prepare them for this machine. Models that are already in the store are not fetched again.
    ///
    /// Files are verified before they appear in the store. Unless generator.reencode is false, the tensor types of each generator
    /// are then measured: the file is re-encoded to BF16 and F16, on an accelerator to BF16 alone, and the fastest file is kept. This
    /// takes seconds to minutes, once for each file and CPU or accelerator. A running server uses the choice from its next start.
    #[command(
        after_help = "Examples:\n  rerankd models pull\n  rerankd models pull smollm2-135m-instruct\n  rerankd models pull --set generator.model=/models/x.gguf"
    )]
    Pull {
        /// Names in the catalogue; without any, the models of the configuration.
        names: Vec<String>,
    },
    /// Hash the files in the store and compare them with the catalogue. What is damaged is fetched again by the next pull.
    #[command(after_help = "Example:\n  rerankd models verify")]
    Verify {
        /// Names in the catalogue; without any, all models in the store. Of these, only a model of the configuration makes the command
        /// fail; the default method ranks without the embedding model.
        names: Vec<String>,
    },
}

pub(super) async fn run(args: ModelsArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    match args.action {
        Action::List => list(&config.store),
        Action::Pull { names } => pull(&config, &names).await,
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
            // The server does without it; a mirror may not have it.
            Err(error) if names.is_empty() && dispensable(entry.role) => {
                say(&format!("{error}; the default method ranks without {}", entry.name));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    if names.is_empty() {
        for (section, generator) in config.generators() {
            app::locate_adapter(section, generator, store).map_err(anyhow::Error::from)?;
        }
        let scorer = config.scorer.iter().filter(|scorer| scorer.model != config.generator.model);
        for generator in std::iter::once(&config.generator).chain(scorer) {
            measure(config, &generator.model).await?;
        }
        return Ok(());
    }
    for entry in entries.iter().filter(|entry| entry.role == Role::Generator) {
        measure(config, &entry.name).await?;
    }
    Ok(())
}

/// Whether a server of this configuration serves without the models of a role: the embedding model, and the library where it alone
/// needs it.
fn is_dispensable(config: &Config, role: Role) -> bool {
    role == Role::Embedding
        || (role == Role::Library && config.entailment.model.is_none() && config.rerankers.reranker.is_none())
}

/// Measures the tensor types of a generator. Steps and result go to standard error.
async fn measure(config: &Config, model: &str) -> Result<(), Failure> {
    let bar = output::spinner("checking the tensor type");
    let (shown, name) = (bar.clone(), model.to_owned());
    let report = move |step: &str| {
        if output::progress_wanted() {
            shown.set_message(format!("{name}: {step}"));
        } else {
            say(&format!("{name}: {step}"));
        }
    };
    let choice = app::measure_tensor_types(config, model, report).await;
    bar.finish_and_clear();
    if let Some(choice) = choice? {
        let speed = |(encoding, rate): &(String, f64)| format!("{encoding} {rate:.0}");
        let speeds: Vec<String> = choice.tokens_per_second.iter().map(speed).collect();
        let measured = if speeds.is_empty() {
            "other types not measured".to_owned()
        } else {
            format!("tokens per second: {}", speeds.join(", "))
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

/// The entries of the catalogue that the configuration names. Models given by path need no fetching.
/// `says` whether to tell that the catalogue lacks ONNX Runtime.
fn configured(config: &Config, says: bool) -> Vec<&Entry> {
    let scorers = [&config.rerankers.reranker, &config.rerankers.embedding];
    let scorers = scorers.into_iter().flatten().map(|scorer| scorer.model.as_str());
    let networks: Vec<&str> = config.entailment.model.as_deref().into_iter().chain(scorers).collect();
    let library = !networks.is_empty() && config.entailment.library.is_none();
    if says && library && config.store.catalog().find(ONNX_RUNTIME).is_none() {
        say(
            "the catalogue has no ONNX Runtime for this machine: entailment.library must name its library, or the default method ranks \
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

fn list(store: &Store) -> Result<(), Failure> {
    if !output::on_terminal() {
        let rows: Vec<serde_json::Value> = store
            .catalog()
            .models
            .iter()
            .map(|entry| {
                serde_json::json!({
                    "name": entry.name, "role": entry.role.to_string(), "bytes": entry.bytes, "sha256": entry.sha256,
                    "licence": entry.licence, "stored": store.holds(entry), "path": store.path_of(entry),
                })
            })
            .collect();
        return output::json(&serde_json::Value::from(rows));
    }
    let mut table = output::table(&["name", "role", "MB", "licence", "stored", "notes"]);
    for entry in &store.catalog().models {
        let stored = if store.holds(entry) { "yes" } else { "no" };
        let megabytes = (entry.bytes / 1_000_000).to_string();
        table.add_row([&entry.name, &entry.role.to_string(), &megabytes, &entry.licence, stored, &entry.notes]);
    }
    output::print(&format!("{table}\n"))
}

fn verify(config: &Config, names: &[String]) -> Result<(), Failure> {
    let store = &config.store;
    let needed: Vec<&str> = configured(config, false).into_iter().map(|entry| entry.name.as_str()).collect();
    let entries: Vec<&Entry> = if names.is_empty() {
        store.catalog().models.iter().filter(|entry| store.path_of(entry).exists()).collect()
    } else {
        named(store, names)?
    };
    let mut damaged = 0;
    for entry in entries {
        match store.verify(entry) {
            Ok(()) => output::print(&format!("{}: good\n", entry.name))?,
            // A file that nobody asks for must keep no server from its start.
            Err(error)
                if names.is_empty()
                    && (is_dispensable(config, entry.role) || !needed.contains(&entry.name.as_str())) =>
            {
                output::complain(&format!("{error}; the configuration does without {}", entry.name));
            }
            Err(error) => {
                damaged += 1;
                output::complain(&error.to_string());
            }
        }
    }
    if damaged > 0 {
        let problem = format!("{damaged} models are missing or damaged: `rerankd models pull` fetches them");
        return Err(Failure::Other(anyhow::anyhow!(problem)));
    }
    Ok(())
}
