//! `rerankd models`

use clap::{Args, Subcommand};

use super::{Failure, SettingsArgs, output};
use crate::config::Config;
use crate::storage::catalog::Entry;
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
    /// List the catalogue and what of it is in the store.
    #[command(after_help = "Example:\n  rerankd models list")]
    List,
    /// Fetch models of the catalogue, verify them and put them into the store; those already there are left alone.
    #[command(after_help = "Example:\n  rerankd models pull smollm2-135m-instruct")]
    Pull {
        /// Names of the catalogue; the configured models where none is given.
        names: Vec<String>,
    },
    /// Hash the files in the store and compare with the catalogue.
    #[command(after_help = "Example:\n  rerankd models verify")]
    Verify {
        /// Names of the catalogue; all that are in the store where none is given.
        names: Vec<String>,
    },
}

pub(super) async fn run(args: ModelsArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    let store = &config.store;
    match args.action {
        Action::List => list(store),
        Action::Pull { names } => {
            let names = if names.is_empty() { configured(&config) } else { names };
            for entry in entries(store, &names)? {
                let path = store.pull(entry, output::progress_wanted()).await.map_err(failed)?;
                output::print(&format!("{}  {}\n", entry.name, path.display()))?;
            }
            Ok(())
        }
        Action::Verify { names } => verify(store, &names),
    }
}

/// What the configuration needs of the catalogue; what it names by path needs no fetching.
fn configured(config: &Config) -> Vec<String> {
    let entailment = config.entailment.model.clone();
    let library = entailment.is_some() && config.entailment.library.is_none();
    let library = library.then(|| "onnxruntime".to_owned());
    let names = [Some(config.generator.model.clone()), entailment, library].into_iter().flatten();
    names.filter(|name| config.store.catalog().find(name).is_some()).collect()
}

fn failed(error: StoreError) -> Failure {
    Failure::Other(error.into())
}

fn entries<'a>(store: &'a Store, names: &[String]) -> Result<Vec<&'a Entry>, Failure> {
    let find = |name: &String| {
        let known: Vec<&str> = store.catalog().models.iter().map(|entry| entry.name.as_str()).collect();
        let unknown = || Failure::Input(format!("no model {name:?} in the catalogue (known: {})", known.join(", ")));
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
                    "licence": entry.licence, "stored": store.holds(entry), "path": store.place(entry),
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

fn verify(store: &Store, names: &[String]) -> Result<(), Failure> {
    let chosen = if names.is_empty() {
        store.catalog().models.iter().filter(|entry| store.place(entry).exists()).collect()
    } else {
        entries(store, names)?
    };
    let mut wrong = 0;
    for entry in chosen {
        match store.verify(entry) {
            Ok(()) => output::print(&format!("{}: good\n", entry.name))?,
            Err(error) => {
                wrong += 1;
                output::complain(&error.to_string());
            }
        }
    }
    if wrong > 0 { Err(Failure::Other(anyhow::anyhow!("{wrong} models are not as they should be"))) } else { Ok(()) }
}
