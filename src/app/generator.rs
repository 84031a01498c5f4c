//! Starts the worker of a generator, whose thread finds, checks and loads the files.

use std::sync::{Arc, PoisonError};

use super::{calibrations, position_bias};
use crate::config::{self, Config};
use crate::engine::models::{FileRead, GeneratorModel, Published, Role};
use crate::model::{AdapterInfo, GeneratorInfo, ModelError, Tokenizer, weights};
use crate::runtime::llama::{self, Vocabulary, reencode};
use crate::scheduler::generator::{Loader, Scheduler, SchedulerOptions};
use crate::storage::catalog;
use crate::storage::store::{Located, Store, StoreError};

/// Whether the store has the files of a generator, by their names. Reads no content.
pub(super) fn find(settings: &config::Generator, store: &Store) -> Result<(), StoreError> {
    store.find(&settings.model, catalog::Role::Generator)?;
    settings.adapter.as_ref().map_or(Ok(()), |adapter| store.find(&adapter.file, catalog::Role::Adapter))
}

/// The adapter of a generator, with a verified file.
///
/// # Errors
/// The store has no adapter of this name, or its content is not the expected one.
pub fn locate_adapter(
    settings: &config::Generator,
    store: &Store,
) -> Result<Option<(Located, AdapterInfo)>, StoreError> {
    let Some(adapter) = &settings.adapter else { return Ok(None) };
    let located = store.locate(&adapter.file, catalog::Role::Adapter)?;
    if let Some(expected) = adapter.sha256.as_ref().filter(|expected| **expected != located.sha256) {
        let (path, expected, actual) = (located.path.display().to_string(), expected.clone(), located.sha256);
        return Err(StoreError::WrongHash { path, expected, actual });
    }
    let info = AdapterInfo { name: located.name.clone(), sha256: located.sha256.clone(), scale: adapter.scale };
    Ok(Some((located, info)))
}

/// Starts the worker of the generator of one section of the configuration, which answers to `name`.
pub(super) fn start(
    settings: &config::Generator,
    (role, name): (Role, String),
    config: &Config,
) -> std::io::Result<GeneratorModel> {
    let published = Published::default();
    let loader: Loader = {
        let (settings, store) = (settings.clone(), config.store.clone());
        let use_learnt = config.use_learnt_position_bias;
        let published = Arc::clone(&published);
        // The files that were read first, with the settings that they run with. Answers name their checksums, so a reload
        // must not serve others.
        let mut read: Option<(String, llama::Settings)> = None;
        Box::new(move |serve| {
            let (located, adapter) = locate(&settings, &store)?;
            let own = weights(&located.sha256, adapter.as_ref().map(|(_, info)| info));
            if let Some((first, runtime)) = &read {
                if *first != own {
                    let problem = "the file changed since the server read it: start the server again".to_owned();
                    return Err(ModelError::Unusable { path: settings.model.clone(), problem });
                }
                return llama::with_model(runtime, serve);
            }
            let vocabulary = Vocabulary::load(&located.path)?;
            let mut runtime = settings.settings(located.path.clone());
            let choice = match settings.reencode {
                Some(_) if !llama::offloads(&runtime)? => reencode::chosen(&runtime, &located.sha256, &store),
                _ => None,
            };
            let compute = llama::computes(&runtime)?;
            let info = GeneratorInfo {
                adapter: adapter.as_ref().map(|(_, info)| info.clone()),
                ..info(&settings, &located, &vocabulary, choice.as_ref(), compute)
            };
            if let Some(choice) = choice {
                runtime.path = choice.path;
            }
            runtime.sha256.clone_from(&info.running_sha256);
            runtime.adapter = adapter.map(|(file, adapter)| llama::Adapter {
                path: file.path,
                sha256: file.sha256,
                scale: adapter.scale,
                base: located.sha256.clone(),
            });
            let position_bias = position_bias(&store, &own);
            position_bias.set_use_learnt(use_learnt);
            let file = FileRead {
                tokenizer: Arc::new(vocabulary),
                calibrations: calibrations(&store, &own),
                info,
                position_bias,
            };
            *published.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            let (_, runtime) = read.insert((own, runtime));
            llama::with_model(runtime, serve)
        })
    };
    let options = SchedulerOptions { name: role.name(), ..config.scheduler.clone() };
    Ok(GeneratorModel::new(name, Scheduler::start(options, loader)?, published))
}

/// The verified files of a generator.
fn locate(
    settings: &config::Generator,
    store: &Store,
) -> Result<(Located, Option<(Located, AdapterInfo)>), ModelError> {
    let unusable =
        |path: &str, error: StoreError| ModelError::Unusable { path: path.to_owned(), problem: error.to_string() };
    let model =
        store.locate(&settings.model, catalog::Role::Generator).map_err(|error| unusable(&settings.model, error))?;
    let name = settings.adapter.as_ref().map_or("", |adapter| &*adapter.file);
    let adapter = locate_adapter(settings, store).map_err(|error| unusable(name, error))?;
    Ok((model, adapter))
}

/// All but the adapter.
fn info(
    settings: &config::Generator,
    located: &Located,
    vocabulary: &Vocabulary,
    choice: Option<&reencode::Choice>,
    compute: String,
) -> GeneratorInfo {
    let metadata = |key: &str| vocabulary.metadata(key);
    let words = ["general.architecture", "general.name", "general.size_label"].map(metadata);
    GeneratorInfo {
        name: located.name.clone(),
        encoding: choice.map_or_else(|| "as shipped".to_owned(), |choice| choice.encoding.clone()),
        running_sha256: choice.map_or_else(|| located.sha256.clone(), |choice| choice.sha256.clone()),
        sha256: located.sha256.clone(),
        description: words.into_iter().flatten().collect::<Vec<_>>().join(" "),
        bytes: located.bytes,
        trained_context: vocabulary.trained_context(),
        chat: settings.chat_template && vocabulary.chat_frame().is_some(),
        compute,
        adapter: None,
    }
}
