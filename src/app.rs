//! The composition root: builds workers, engine and server from the configuration, and shuts them down.

mod control;
mod follow;
mod notify;
mod rerankers;
mod serving;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Context;
pub use follow::{follow_calibration, follow_ranking};

use crate::config::{self, Config};
use crate::engine::Engine;
use crate::engine::models::{FileRead, GeneratorModel, Models, Published};
use crate::engine::position_bias::{Keeper, PositionBias};
use crate::engine::prompt::TEMPLATE_VERSION;
use crate::fit::profile::Profiles;
use crate::fusion::calibration::Calibration;
use crate::model::{GeneratorInfo, ModelError, Tokenizer};
use crate::runtime::llama::{self, Vocabulary, reencode};
use crate::runtime::onnx;
use crate::scheduler::Status;
use crate::scheduler::entailment::{self, ConfiguredModel, Judge};
use crate::scheduler::generator::{Loader, Scheduler};
use crate::storage::calibrations::CalibrationFile;
use crate::storage::catalog::Role;
use crate::storage::profiles::{Origin, ProfileFile};
use crate::storage::store::{Located, Store, StoreError};

pub use control::{Control, Operator};
pub use rerankers::with_passage_models;
pub use serving::{Listeners, serve};

/// Starts the workers of the models and returns immediately. The models load in the background.
///
/// # Errors
/// The store has no model of the configured name, others could have written to the folder `warm.disk`, or no thread could be started.
pub fn start(config: &Config) -> anyhow::Result<Engine> {
    // Fail early on an unknown model name.
    config.store.find(&config.generator.model, Role::Generator)?;
    if let Some(disk) = &config.scheduler.warm.disk {
        disk.check().map_err(|problem| anyhow::anyhow!("warm.disk: {}: {problem}", disk.folder.display()))?;
    }
    let generator = generator(config).context("cannot start a thread for the generator")?;
    let models = with_passage_models(Models::new(generator, judge(config)?), config)?;
    Ok(Engine::new(models, config.limits))
}

/// Calls [`start`] and waits until the generator is ready.
///
/// # Errors
/// The model is not in the store, its checksum differs, or it cannot be loaded.
pub async fn engine(config: &Config) -> anyhow::Result<Engine> {
    let engine = start(config)?;
    first_load(&engine).await?;
    Ok(engine)
}

/// Waits until the first load of the generator succeeds or fails. The worker handles later failures by itself.
async fn first_load(engine: &Engine) -> anyhow::Result<()> {
    let mut status = engine.models().generator(None)?.scheduler().status();
    let settled = status.wait_for(|status| *status != Status::Loading).await?;
    match &*settled {
        Status::Ready(_) => Ok(()),
        Status::Failed(problem) => anyhow::bail!("the generator cannot be loaded: {problem}"),
        Status::Idle | Status::Loading | Status::Stopped => anyhow::bail!("the generator's thread ended"),
    }
}

/// Starts the generator's worker. The worker's thread locates and loads the model file.
fn generator(config: &Config) -> std::io::Result<GeneratorModel> {
    let published = Published::default();
    let name = config.generator.model.clone();
    let loader: Loader = {
        let (settings, store) = (config.generator.clone(), config.store.clone());
        let use_learnt = config.use_learnt_position_bias;
        let published = Arc::clone(&published);
        // The file that was read first, with the settings that it runs with. Answers name its checksum, so a reload
        // must not serve another file.
        let mut read: Option<(String, llama::Settings)> = None;
        Box::new(move |serve| {
            let model = settings.model.clone();
            let unusable = |error: StoreError| ModelError::Unusable { path: model.clone(), problem: error.to_string() };
            let located = store.locate(&settings.model, Role::Generator).map_err(unusable)?;
            if let Some((sha256, runtime)) = &read {
                if *sha256 != located.sha256 {
                    let problem = "the file changed since the server read it: start the server again".to_owned();
                    return Err(ModelError::Unusable { path: model, problem });
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
            let info = info(&settings, &located, &vocabulary, choice.as_ref(), compute);
            if let Some(choice) = choice {
                runtime.path = choice.path;
            }
            runtime.sha256.clone_from(&info.running_sha256);
            let position_bias = position_bias(&store, &info.sha256);
            position_bias.set_use_learnt(use_learnt);
            let file = FileRead {
                tokenizer: Arc::new(vocabulary),
                calibrations: calibrations(&store, &info.sha256),
                info,
                position_bias,
            };
            *published.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            let (_, runtime) = read.insert((located.sha256, runtime));
            llama::with_model(runtime, serve)
        })
    };
    Ok(GeneratorModel::new(name, Scheduler::start(config.scheduler.clone(), loader)?, published))
}

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
    }
}

/// Measures which tensor type of a generator runs fastest on this CPU, for `rerankd models pull`. A server never
/// measures; it uses the stored choice. `report` is called before every long step. `None` if there is nothing to
/// measure, because `generator.reencode` is false or layers run on an accelerator.
///
/// # Errors
/// The model is not in the store or cannot be loaded, or the store is not writable.
pub async fn measure_tensor_types(
    config: &Config,
    model: &str,
    report: impl Fn(&str) + Send + 'static,
) -> anyhow::Result<Option<reencode::Choice>> {
    let Some(most_bytes) = config.generator.reencode else { return Ok(None) };
    let (store, generator, model) = (config.store.clone(), config.generator.clone(), model.to_owned());
    tokio::task::spawn_blocking(move || {
        let located = store.locate(&model, Role::Generator)?;
        let settings = generator.settings(located.path);
        if llama::offloads(&settings)? {
            return Ok(None);
        }
        Ok(Some(reencode::measure(&settings, &located.sha256, &store, most_bytes, &report)?))
    })
    .await?
}

/// Starts the worker of the entailment model, which loads at its first use; `None` if no such model is configured.
///
/// # Errors
/// No thread could be started.
pub fn judge(config: &Config) -> anyhow::Result<Option<Judge>> {
    let Some(model) = config.entailment.model.clone() else { return Ok(None) };
    let (store, settings) = (config.store.clone(), config.entailment.clone());
    let configured = match store.locate(&model, Role::Entailment) {
        Ok(located) => ConfiguredModel { name: located.name, sha256: located.sha256 },
        // A missing or damaged model is reported at its first use.
        Err(_) => ConfiguredModel { name: model.clone(), sha256: String::new() },
    };
    let loader: entailment::Loader = Box::new(move |serve| {
        let unusable = |error: StoreError| ModelError::Unusable { path: model.clone(), problem: error.to_string() };
        let located = store.locate(&model, Role::Entailment).map_err(unusable)?;
        let library = match &settings.library {
            Some(path) => path.clone(),
            None => store.locate("onnxruntime", Role::Library).map_err(unusable)?.path,
        };
        let runtime = onnx::Settings {
            network: located.path,
            name: located.name,
            sha256: located.sha256,
            library,
            threads: settings.threads,
            batch: settings.batch,
        };
        onnx::with_model(&runtime, serve)
    });
    let judge = Judge::start(config.entailment.worker, configured, loader);
    Ok(Some(judge.context("cannot start a thread for the entailment model")?))
}

/// The file with the position-bias profiles of a generator, identified by the SHA-256 of its model file.
#[must_use]
pub fn profile_file(store: &Store, generator: &str, origin: Origin) -> ProfileFile {
    ProfileFile::new(store, generator, TEMPLATE_VERSION, origin)
}

/// Loads the profiles of a generator. Unusable files are reported in the log and by `GetPositionBias`.
fn position_bias(store: &Store, generator: &str) -> PositionBias {
    let mut problems = Vec::new();
    let mut load = |origin| {
        profile_file(store, generator, origin).load().unwrap_or_else(|problem| {
            tracing::error!(%problem, "position-bias profiles not used");
            problems.push(problem.to_string());
            Profiles::default()
        })
    };
    let (calibrated, learnt) = (load(Origin::Calibrated), load(Origin::Learnt));
    let file = profile_file(store, generator, Origin::Learnt);
    let keeper: Keeper = Box::new(move |profiles| file.save(profiles).map_err(|error| error.to_string()));
    PositionBias::new(calibrated, learnt, keeper, problems)
}

/// The file with the calibrations of a generator's ranking methods, identified by the SHA-256 of its model file.
#[must_use]
pub fn calibration_file(store: &Store, generator: &str) -> CalibrationFile {
    CalibrationFile::new(store, generator, TEMPLATE_VERSION)
}

/// Loads the calibrations of a generator. An unusable file is reported in the log.
fn calibrations(store: &Store, generator: &str) -> Vec<Calibration> {
    calibration_file(store, generator).load().unwrap_or_else(|problem| {
        tracing::error!(%problem, "calibrations of ranking methods not used");
        Vec::new()
    })
}

/// How often a running server checks for a new calibration.
const CALIBRATION_INTERVAL: Duration = Duration::from_secs(5);
