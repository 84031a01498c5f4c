//! The composition root: builds workers, engine and server from the configuration, and shuts them down.

pub mod calibration_file;
mod control;
mod follow;
mod generator;
mod notify;
pub mod profile_file;
mod rerankers;
mod sealed;
mod serving;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
pub use follow::{follow_calibration, reload_calibration};
use sha2::{Digest, Sha256};

use crate::app::calibration_file::CalibrationFile;
use crate::app::profile_file::{Origin, ProfileError, ProfileFile, built_in};
use crate::config::{Config, Generator};
use engine::Engine;
use engine::fusion::calibration::Calibration;
use engine::models::Models;
use engine::position_bias::{Keeper, PositionBias};
use engine::prompt::TEMPLATE_VERSION;
use models::catalog::Role;
use models::llama::{self, reencode};
use models::onnx;
use models::store::{Located, Store, StoreError};
use models::tokenizers::TokenizerFolder;
use moi::profile::Profiles;
use prefix_scheduler::model::ModelError;
use prefix_scheduler::scheduler::entailment::{self, ConfiguredModel, Judge};
use prefix_scheduler::scheduler::{Status, worker};

pub use control::{Control, Operator};
pub use generator::{KeyError, LocatedGenerator, find_names, identify, locate_adapter, sizes};
pub use rerankers::with_passage_models;
pub use serving::{Listeners, serve};

/// The exit code of a process, for `main`. If a model is still computing, the process ends here instead: the destructors
/// of its libraries would free memory that its threads use.
pub fn end(code: u8) -> ExitCode {
    if worker::any_left() {
        llama::end_process(code);
    }
    ExitCode::from(code)
}

/// Ends the process at once, even if a model is computing.
pub fn end_at_once(code: u8) {
    llama::end_process(code);
}

/// Starts the workers of the models and returns immediately. The models load in the background.
///
/// # Errors
/// The store has no model or adapter of the configured name, other users can write to the folder `passage_cache.disk`, or
/// no thread could be started.
pub fn start(config: &Config) -> anyhow::Result<Engine> {
    // Fail early on an unknown model name.
    for (section, settings) in config.generators() {
        generator::find(section, settings, &config.store)?;
    }
    if let Some(disk) = &config.scheduler.warm.disk {
        disk.check().map_err(|problem| anyhow::anyhow!("passage_cache.disk: {}: {problem}", disk.folder.display()))?;
    }
    let name = config.generator.model.clone();
    let generator = generator::start(&config.generator, (engine::types::Role::Generator, name), config);
    let generator = generator.context("cannot start a thread for the generator")?;
    let mut models = Models::new(generator, judge(config)?);
    if let Some(scorer) = &config.scorer {
        // Two models with the same name could not be told apart, for instance in metrics, which name a file without its
        // folder.
        let file = |model: &str| Path::new(model).file_name().map(ToOwned::to_owned);
        let same = file(&scorer.model) == file(&config.generator.model);
        let name = if same { engine::types::Role::Scorer.name().to_owned() } else { scorer.model.clone() };
        let started = generator::start(scorer, (engine::types::Role::Scorer, name), config);
        models = models.with_scoring_generator(started.context("cannot start a thread for the scorer")?);
    }
    let tokenizers = TokenizerFolder::new(config.store.root().join("tokenizers"));
    let models = with_passage_models(models, config)?.with_tokenizers(Arc::new(move |name| Ok(tokenizers.find(name)?)));
    let engine = Engine::new(models, config.limits);
    // Without cached states, equal requests must get byte-equal responses. Cached responses would change which requests
    // share a step, so none are used.
    let forgetful = config.scheduler.reproducible || config.scheduler.warm.memory_bytes == 0;
    Ok(if forgetful { engine.without_cached_answers() } else { engine })
}

/// [`start`] for a server, off the reactor: it reads files and hashes unknown ones, which a slow volume delays. `None` if
/// the operator stops the server meanwhile.
///
/// # Errors
/// As [`start`].
pub async fn start_unless_stopped(config: &Config, control: &Control) -> anyhow::Result<Option<Engine>> {
    let config = config.clone();
    let starting = tokio::task::spawn_blocking(move || start(&config));
    tokio::select! {
        engine = starting => engine?.map(Some),
        () = control.stopped(1) => Ok(None),
    }
}

/// Calls [`start`] and waits until the generator and the scorer are ready.
///
/// # Errors
/// The model is not in the store, its checksum differs, or it cannot be loaded.
pub async fn engine(config: &Config) -> anyhow::Result<Engine> {
    let engine = start(config)?;
    first_load(&engine).await?;
    Ok(engine)
}

/// Waits until the first loads of the generator and the scorer succeed, or one fails. The workers handle later failures.
async fn first_load(engine: &Engine) -> anyhow::Result<()> {
    for model in engine.models().generators() {
        let (mut status, role) = (model.scheduler().status(), model.role().name());
        let settled = status.wait_for(|status| *status != Status::Loading).await?;
        match &*settled {
            Status::Ready(_) => {}
            Status::Failed(problem) => anyhow::bail!("the {role} cannot be loaded: {problem}"),
            Status::Idle | Status::Loading | Status::Stopped => anyhow::bail!("the thread of the {role} ended"),
        }
    }
    Ok(())
}

/// Measures which tensor type of a generator runs fastest on this machine, for `rerankd models pull`. A server never
/// measures; it uses the stored choice. `report` is called before every long step. `None` if
/// `generator.reencode_megabytes` is off.
///
/// # Errors
/// The model is not in the store or cannot be loaded, or the store is not writable.
pub async fn measure_tensor_types(
    config: &Config,
    generator: &Generator,
    report: impl Fn(&str) + Send + 'static,
) -> anyhow::Result<Option<reencode::Choice>> {
    let Some(most_bytes) = config.generator.reencode else { return Ok(None) };
    let (store, generator) = (config.store.clone(), generator.clone());
    tokio::task::spawn_blocking(move || {
        let located = store.locate(&generator.model, Role::Generator)?;
        let settings = generator.settings(located.path);
        Ok(Some(reencode::measure(&settings, &located.sha256, &store, most_bytes, &report)?))
    })
    .await?
}

/// A model with the checksum of its file. A missing or damaged model is reported at its first use.
fn configured(located: Result<Located, StoreError>, model: &str) -> ConfiguredModel {
    match located {
        Ok(Located { name, sha256, .. }) => ConfiguredModel { name, sha256 },
        Err(_) => ConfiguredModel { name: model.to_owned(), sha256: String::new() },
    }
}

/// The library of ONNX Runtime: the given one, or the one in the store.
pub(crate) fn onnx_library(given: Option<PathBuf>, store: &Store) -> Result<PathBuf, StoreError> {
    given.map_or_else(|| Ok(store.locate("onnxruntime", Role::Library)?.path), Ok)
}

/// Starts the worker of the entailment model, which loads at its first use; `None` if no such model is configured.
///
/// # Errors
/// No thread could be started.
pub fn judge(config: &Config) -> anyhow::Result<Option<Judge>> {
    let Some(model) = config.entailment.model.clone() else { return Ok(None) };
    let (store, settings) = (config.store.clone(), config.entailment.clone());
    let configured = configured(locate_entailment(&store, &model), &model);
    let loader: entailment::Loader = Box::new(move |serve| {
        let unusable = |error: StoreError| ModelError::Unusable { path: model.clone(), problem: error.to_string() };
        let located = locate_entailment(&store, &model).map_err(unusable)?;
        let library = onnx_library(settings.library.clone(), &store).map_err(unusable)?;
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
    // The last digits of a verdict depend on the other pairs of its batch, so cached ones may differ.
    let cache_entries = if config.scheduler.reproducible { 0 } else { config.entailment.worker.cache_entries };
    let judge = Judge::start(entailment::EntailmentOptions { cache_entries }, configured, loader);
    Ok(Some(judge.context("cannot start a thread for the entailment model")?))
}

/// Finds the entailment model. If its weights are in separate files, its hash covers all of them.
fn locate_entailment(store: &Store, model: &str) -> Result<Located, StoreError> {
    let located = store.locate(model, Role::Entailment)?;
    let mut all = located.sha256.clone();
    for (_, weights) in rerankers::weights_beside(&located.path) {
        all.push_str(&store.identify(&weights)?);
    }
    let sha256 = if all == located.sha256 { all } else { hex::encode(Sha256::digest(all)) };
    Ok(Located { sha256, ..located })
}

/// The file with the position-bias profiles of a generator, identified by
/// [what it was measured on](prefix_scheduler::model::measured_on).
pub fn profile_file(store: &Store, generator: &str, origin: Origin) -> ProfileFile {
    ProfileFile::new(store, generator, TEMPLATE_VERSION, origin)
}

/// Loads the profiles of a generator. Unusable files are reported in the log and by `GetPositionBias`.
fn position_bias(store: &Store, generator: &str, use_built_in: bool) -> PositionBias {
    let (mut problems, mut unread_calibration) = (Vec::new(), None);
    let mut load = |origin| {
        let unusable = |problem: ProfileError| {
            tracing::error!(%problem, "position-bias profiles not used");
            // A calibrated file that cannot be read is tried again.
            if origin == Origin::Calibrated && matches!(problem, ProfileError::File { .. }) {
                unread_calibration = Some(problem.to_string());
            } else {
                problems.push(problem.to_string());
            }
            (Profiles::default(), matches!(problem, ProfileError::File { .. } | ProfileError::Unmoved { .. }))
        };
        profile_file(store, generator, origin).load().map_or_else(unusable, |profiles| (profiles, false))
    };
    let calibrated = load(Origin::Calibrated).0;
    let (learnt, unread) = load(Origin::Learnt);
    let file = profile_file(store, generator, Origin::Learnt);
    // The unreadable file may be intact. It is set aside before learnt profiles are written.
    let unread = AtomicBool::new(unread);
    let keeper: Keeper = Box::new(move |profiles| {
        if unread.load(Ordering::Relaxed) {
            file.keep_aside().map_err(|error| error.to_string())?;
            unread.store(false, Ordering::Relaxed);
        }
        file.save(profiles).map_err(|error| error.to_string())
    });
    let position_bias = PositionBias::new(calibrated, learnt, keeper, problems);
    if let Some(problem) = unread_calibration {
        position_bias.report_unread(problem);
    }
    if use_built_in { position_bias.with_built_in(built_in(generator, TEMPLATE_VERSION)) } else { position_bias }
}

/// The file with the calibrations of a generator's ranking methods, identified by
/// [what it was measured on](prefix_scheduler::model::measured_on).
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

/// Interval at which a running server checks for a new calibration.
const CALIBRATION_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use models::catalog::Catalog;
    use models::fetch::Hub;

    /// Once the file was read, `GetPositionBias` must not report the problem any longer.
    #[test]
    fn a_calibrated_file_that_can_be_read_later_is_no_problem_then() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned(), Catalog::load(None).unwrap(), Hub::default());
        for (origin, later) in [(Origin::Calibrated, 0), (Origin::Learnt, 1)] {
            let path = profile_file(&store, "ab", origin).path().to_owned();
            std::fs::create_dir_all(&path).unwrap();
            let bias = position_bias(&store, "ab", false);
            assert_eq!(bias.problems().len(), 1, "{}", path.display());
            std::fs::remove_dir(path).unwrap();
            bias.recalibrate(Profiles::default());
            assert_eq!(bias.problems().len(), later, "{origin:?}");
        }
    }
}
