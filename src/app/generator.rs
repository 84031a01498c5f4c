//! Starts the worker of a generator. Its thread finds, checks and loads the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{calibrations, position_bias};
use crate::config::{self, Config};
use engine::methods::yes_no_words;
use engine::models::{FileRead, GeneratorModel, Published};
use engine::types::Role;
use models::catalog;
use models::llama::{self, Vocabulary, reencode};
use models::store::{Located, Store, StoreError};
use prefix_scheduler::model::{AdapterInfo, GeneratorInfo, ModelError, Tokenizer, measured_on, weights};
use prefix_scheduler::model::{PromptFormat, YesNoPrompt};
use prefix_scheduler::scheduler::generator::{Loader, Scheduler, SchedulerOptions};

/// The store lacks the file that a key names.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {error}")]
pub struct KeyError {
    /// The key in the configuration, such as `generator.adapter`.
    pub key: String,
    /// The problem of the file.
    pub error: StoreError,
}

impl KeyError {
    pub(super) fn of(section: Role, key: &str) -> impl FnOnce(StoreError) -> Self {
        let key = format!("{}.{key}", section.name());
        move |error| Self { key, error }
    }

    /// Converts to the worker's error.
    fn unusable(self) -> ModelError {
        ModelError::Unusable { path: self.key, problem: self.error.to_string() }
    }
}

/// Checks that the store has the files of a generator, by their names. Reads no content.
pub(super) fn find(section: Role, settings: &config::Generator, store: &Store) -> Result<(), KeyError> {
    for (key, name, role) in named(settings) {
        store.find(name, role).map_err(KeyError::of(section, key))?;
    }
    Ok(())
}

/// Checks the names of a generator's files. Files of a catalogue need not have been fetched.
///
/// # Errors
/// A name is neither a file nor an entry with the role of its key.
pub fn find_names(section: Role, settings: &config::Generator, store: &Store) -> Result<(), KeyError> {
    for (key, name, role) in named(settings) {
        match store.find(name, role) {
            Ok(()) | Err(StoreError::NotPulled { .. }) => {}
            Err(error) => return Err(KeyError::of(section, key)(error)),
        }
    }
    Ok(())
}

/// Size of the cache in cells, and of a step in tokens, for a generator on this machine.
///
/// # Errors
/// [`ModelError::Decode`] when llama.cpp cannot be initialised.
pub fn sizes(settings: &config::Generator) -> Result<(usize, usize), ModelError> {
    settings.settings(PathBuf::new()).sized().map(|sized| (sized.cells, sized.batch))
}

/// The keys of a generator's files, with their names or paths and their roles.
fn named(settings: &config::Generator) -> impl Iterator<Item = (&'static str, &str, catalog::Role)> {
    let adapter = settings.adapter.iter().map(|adapter| ("adapter", &*adapter.file, catalog::Role::Adapter));
    std::iter::once(("model", &*settings.model, catalog::Role::Generator)).chain(adapter)
}

/// The adapter of a generator, with a verified file.
///
/// # Errors
/// The store has no adapter of this name, or its content differs from the pinned one.
pub fn locate_adapter(
    section: Role,
    settings: &config::Generator,
    store: &Store,
) -> Result<Option<(Located, AdapterInfo)>, KeyError> {
    let Some(adapter) = &settings.adapter else { return Ok(None) };
    let located = store.locate(&adapter.file, catalog::Role::Adapter).map_err(KeyError::of(section, "adapter"))?;
    let info = AdapterInfo { name: located.name.clone(), sha256: located.sha256.clone(), scale: adapter.scale };
    Ok(Some((located, info)))
}

/// The verified files of a generator, which is not loaded.
#[derive(Debug)]
pub struct LocatedGenerator {
    /// SHA-256 of the generator's file.
    pub sha256: String,
    /// Its adapter.
    pub adapter: Option<AdapterInfo>,
    /// Its prompt for the method `yes-no`.
    pub yes_no: YesNoPrompt,
}

impl LocatedGenerator {
    /// The identity that its measurements belong to ([`measured_on`]).
    pub fn measured_on(&self, frame: PromptFormat) -> String {
        measured_on(&weights(&self.sha256, self.adapter.as_ref()), frame, self.yes_no)
    }
}

/// Identifies the generator of a section of the configuration by its verified files. Loads no weights.
///
/// # Errors
/// The store has no such file, its content differs from the pinned one, or it is not a generator.
pub fn identify(section: Role, settings: &config::Generator, store: &Store) -> Result<LocatedGenerator, ModelError> {
    let (located, adapter) = locate(section, settings, store).map_err(KeyError::unusable)?;
    let yes_no = yes_no_prompt(section, settings, &Vocabulary::load(&located.path)?, &located)?;
    Ok(LocatedGenerator { sha256: located.sha256, adapter: adapter.map(|(_, info)| info), yes_no })
}

/// Starts the worker of the generator in a section of the configuration, which callers know as `name`.
pub(super) fn start(
    settings: &config::Generator,
    (role, name): (Role, String),
    config: &Config,
) -> std::io::Result<GeneratorModel> {
    let published = Published::default();
    let loader: Loader = {
        let (settings, store) = (settings.clone(), config.store.clone());
        let (use_learnt, use_built_in) = (config.use_learnt_position_bias, config.use_built_in_position_bias);
        let published = Arc::clone(&published);
        // The files that were read first, with their settings. Responses report their checksums, so a reload must not
        // load others.
        let mut read: Option<([String; 2], llama::Settings)> = None;
        Box::new(move |serve| {
            let (located, adapter) = locate(role, &settings, &store).map_err(KeyError::unusable)?;
            let adapters_hash = adapter.as_ref().map_or_else(String::new, |(_, info)| info.sha256.clone());
            let found = [located.sha256.clone(), adapters_hash];
            if let Some((first, runtime)) = &read {
                if *first != found {
                    let changed = adapter.filter(|_| first[0] == found[0]).map_or(located, |(file, _)| file);
                    let path = changed.path.display().to_string();
                    let problem = "the file changed since the server read it: start the server again".to_owned();
                    return Err(ModelError::Unusable { path, problem });
                }
                return llama::with_model(runtime, serve);
            }
            let own = weights(&located.sha256, adapter.as_ref().map(|(_, info)| info));
            let vocabulary = Vocabulary::load(&located.path)?;
            let yes_no = yes_no_prompt(role, &settings, &vocabulary, &located)?;
            if yes_no != YesNoPrompt::Generic {
                let (section, prompt) = (role.name(), yes_no.name());
                tracing::info!(
                    section,
                    prompt,
                    "a causal reranker: METHOD_YES_NO asks it as it was trained, other methods do not"
                );
            }
            let own = measured_on(&own, settings.frame, yes_no);
            let chat = has_template(role, settings.frame, &vocabulary, &located.path)?;
            let mut runtime = settings.settings(located.path.clone());
            let choice = settings.reencode.and_then(|_| reencode::chosen(&runtime, &located.sha256, &store));
            let compute = llama::computes(&runtime)?;
            let info = GeneratorInfo {
                adapter: adapter.as_ref().map(|(_, info)| info.clone()),
                chat,
                yes_no,
                ..info_without_adapter(&settings, &located, &vocabulary, choice.as_ref(), compute)
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
            // Set before the file is reported and the model loads, which may take minutes.
            if let Some(adapter) = &runtime.adapter {
                llama::verify_adapter(adapter, &runtime.path)?;
            }
            let position_bias = position_bias(&store, &own, use_built_in);
            position_bias.set_use_learnt(use_learnt);
            let file = FileRead {
                tokenizer: Arc::new(vocabulary),
                calibrations: calibrations(&store, &own),
                info,
                position_bias,
            };
            *published.lock() = Some(file);
            let (_, runtime) = read.insert((found, runtime));
            llama::with_model(runtime, serve)
        })
    };
    let options = SchedulerOptions { name: role.name(), ..config.scheduler.clone() };
    Ok(GeneratorModel::new(name, Scheduler::start(options, loader)?, published))
}

/// The verified files of a generator.
fn locate(
    section: Role,
    settings: &config::Generator,
    store: &Store,
) -> Result<(Located, Option<(Located, AdapterInfo)>), KeyError> {
    let model = store.locate(&settings.model, catalog::Role::Generator).map_err(KeyError::of(section, "model"))?;
    Ok((model, locate_adapter(section, settings, store)?))
}

/// True if prompts get a chat template. If llama.cpp does not know a template, prompts are plain text. A template that is
/// configured to be evaluated and is missing or invalid stops the start.
fn has_template(section: Role, frame: PromptFormat, vocabulary: &Vocabulary, path: &Path) -> Result<bool, ModelError> {
    let (path, section) = (path.display().to_string(), section.name());
    match vocabulary.chat_frame(frame) {
        Ok(None) if frame == PromptFormat::Jinja => {
            let problem = format!("the file has no chat template to evaluate: set {section}.chat_template=auto");
            Err(ModelError::Unusable { path, problem })
        }
        Ok(found) => Ok(found.is_some()),
        Err(problem) if frame == PromptFormat::Jinja => {
            let problem = format!(
                "the chat template cannot be evaluated: {problem}. {section}.chat_template=auto leaves it to llama.cpp"
            );
            Err(ModelError::Unusable { path, problem })
        }
        Err(problem) => {
            let evaluates = matches!(vocabulary.chat_frame(PromptFormat::Jinja), Ok(Some(_)));
            let advice =
                if evaluates { format!("; {section}.chat_template=jinja evaluates it") } else { String::new() };
            let problem = format!("{problem}: prompts are plain text{advice}");
            tracing::warn!(path, "the chat template is not used: {problem}");
            Ok(false)
        }
    }
}

/// The prompt for the method `yes-no`: the configured one, or one that fits the file's names. If its words are not tokens
/// of the model, a configured prompt stops the start, and a prompt by name is not used. A reranker's file that cannot
/// predict its words stops the start, too.
fn yes_no_prompt(
    section: Role,
    settings: &config::Generator,
    vocabulary: &Vocabulary,
    located: &Located,
) -> Result<YesNoPrompt, ModelError> {
    let metadata = ["general.architecture", "general.name", "general.basename"].map(|key| vocabulary.metadata(key));
    let [architecture, name, basename] = metadata.each_ref().map(|value| value.as_deref().unwrap_or_default());
    let path = located.path.display().to_string();
    let file = located.path.file_name().unwrap_or_default().to_string_lossy();
    let by_name = || YesNoPrompt::of_model(architecture, [name, basename, &located.name, &file]);
    let prompt = settings.yes_no_prompt.unwrap_or_else(by_name);
    match yes_no_words(prompt, vocabulary) {
        Ok(words) => {
            // A file with another name may also be a conversion of a reranker.
            let known = if words.is_empty() { yes_no_words(YesNoPrompt::Qwen3, vocabulary).ok() } else { Some(words) };
            let unusable = |problem| ModelError::Unusable { path, problem };
            llama::check_output(&located.path, &known.unwrap_or_default()).map_err(unusable)?;
            Ok(prompt)
        }
        Err(problem) if settings.yes_no_prompt.is_some() => {
            let problem = format!("{}.yes_no_prompt: {problem}", section.name());
            Err(ModelError::Unusable { path, problem })
        }
        Err(problem) => {
            tracing::warn!(path, "METHOD_YES_NO uses the generic prompt, not the one for the file's name: {problem}");
            Ok(YesNoPrompt::Generic)
        }
    }
}

/// Properties of a generator for responses: its file, how it runs, and its training. The caller adds the adapter, the
/// chat template, and the prompt of a reranker.
fn info_without_adapter(
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
        chat: false,
        frame: settings.frame,
        yes_no: YesNoPrompt::Generic,
        compute,
        adapter: None,
        cell_bytes: vocabulary.cell_numbers().map(|numbers| settings.cache_type.bytes(numbers)),
        cell_type: settings.cache_type.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_cannot_be_evaluated_stops_the_start() {
        let has = |name: &str, frame| {
            let path = format!("{}/tests/golden/vocabulary/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
            has_template(Role::Scorer, frame, &Vocabulary::load(Path::new(&path)).unwrap(), Path::new(&path))
        };
        assert_eq!(PromptFormat::ALL.map(|frame| has("byte_level", frame)), [Ok(false), Ok(true), Ok(false)]);
        let refused = has("sentence_piece", PromptFormat::Jinja).unwrap_err().to_string();
        for part in [
            "sentence_piece.gguf: the chat template cannot be evaluated",
            "only with documents",
            "scorer.chat_template=auto",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(
            has("sentence_piece", PromptFormat::Chat),
            Ok(false),
            "llama.cpp does not know it: prompts are plain"
        );
    }
}
