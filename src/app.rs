//! The composition root: configuration to workers to engine to server, and an orderly end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::engine::Engine;
use crate::engine::position_bias::{Keeper, PositionBias};
use crate::engine::prompt::TEMPLATE_VERSION;
use crate::fit::profile::Profiles;
use crate::model::{GeneratorInfo, ModelError, Tokenizer};
use crate::rpc::server;
use crate::runtime::llama::{self, Vocabulary, reencode};
use crate::runtime::onnx;
use crate::scheduler::entailment::{self, ConfiguredModel, Judge};
use crate::scheduler::{Lender, Scheduler, Status};
use crate::storage::catalog::Role;
use crate::storage::profiles::{Origin, ProfileFile};
use crate::storage::store::{Store, StoreError};

/// Loads the generator and waits until it is ready.
///
/// # Errors
/// The model is not in the store, not what it should be, or cannot be loaded.
pub async fn engine(config: &Config) -> anyhow::Result<Engine> {
    let store = config.store.clone();
    let name = config.generator.model.clone();
    let generator = config.generator.clone();
    let (located, vocabulary, choice) = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        let located = store.locate(&name, Role::Generator)?;
        let vocabulary = Vocabulary::load(&located.path)?;
        let settings = generator.settings(located.path.clone());
        let choice = match generator.reencode {
            Some(most) if !llama::offloads(&settings)? => {
                Some(reencode::choose(&settings, &located.sha256, &store, most)?)
            }
            _ => None,
        };
        Ok((located, vocabulary, choice))
    })
    .await??;
    let running = choice.as_ref().map_or(&located.path, |choice| &choice.path).clone();
    let chat = config.generator.chat_template && vocabulary.chat_frame().is_some();
    let metadata = |key: &str| vocabulary.metadata(key);
    let words = ["general.architecture", "general.name", "general.size_label"].map(metadata);
    let info = GeneratorInfo {
        name: located.name,
        encoding: choice.as_ref().map_or_else(|| "as shipped".to_owned(), |choice| choice.encoding.clone()),
        running_sha256: choice.map_or_else(|| located.sha256.clone(), |choice| choice.sha256),
        sha256: located.sha256,
        description: words.into_iter().flatten().collect::<Vec<_>>().join(" "),
        bytes: located.bytes,
        trained_context: vocabulary.trained_context(),
        chat,
    };
    let settings = config.generator.settings(running);
    let lender: Lender = Box::new(move |lend| llama::lend(&settings, lend));
    let scheduler = Scheduler::start(config.scheduler, lender).context("no thread for the generator")?;
    ready(&scheduler).await?;
    let profiles = position_bias(&config.store, &info.sha256);
    profiles.set_use_learnt(config.use_learnt_position_bias);
    let engine = Engine::new(scheduler, Arc::new(vocabulary), info, config.limits).with_position_bias(profiles);
    Ok(match judge(config)? {
        Some(judge) => engine.with_judge(judge),
        None => engine,
    })
}

/// The way to the entailment model, which is loaded when it is first needed; `None` where none is configured.
///
/// # Errors
/// The operating system gives no thread.
pub fn judge(config: &Config) -> anyhow::Result<Option<Judge>> {
    let Some(model) = config.entailment.model.clone() else { return Ok(None) };
    let (store, entailment) = (config.store.clone(), config.entailment.clone());
    let known = match store.locate(&model, Role::Entailment) {
        Ok(located) => ConfiguredModel { name: located.name, sha256: located.sha256 },
        // A model that is not there yet, or damaged, is told of when it is needed.
        Err(_) => ConfiguredModel { name: model.clone(), sha256: String::new() },
    };
    let lender: entailment::Lender = Box::new(move |lend| {
        let unusable = |error: StoreError| ModelError::Unusable { path: model.clone(), problem: error.to_string() };
        let located = store.locate(&model, Role::Entailment).map_err(unusable)?;
        let library = match &entailment.library {
            Some(path) => path.clone(),
            None => store.locate("onnxruntime", Role::Library).map_err(unusable)?.path,
        };
        let settings = onnx::Settings {
            network: located.path,
            name: located.name,
            sha256: located.sha256,
            library,
            threads: entailment.threads,
            batch: entailment.batch,
        };
        onnx::lend(&settings, lend)
    });
    let judge = Judge::start(config.entailment.worker, lender).context("no thread for the entailment model")?;
    Ok(Some(judge.with_model(known)))
}

/// The file of position-bias profiles of a generator.
#[must_use]
pub fn profile_file(store: &Store, generator: &str, origin: Origin) -> ProfileFile {
    ProfileFile::new(store, generator, TEMPLATE_VERSION, origin)
}

/// Reads the profiles of a generator. What cannot be used is told in the log and in `GetPositionBias`.
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

/// How often a running server looks whether the generator was calibrated.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// Takes calibrated profiles up when `file` changes, for ever: a server need not be started again after `rerankd calibrate`.
pub async fn follow(engine: Engine, file: ProfileFile, pause: Duration) {
    // What was there at the start is read once more: it may have changed since the engine was put together.
    let mut seen = None;
    loop {
        tokio::time::sleep(pause).await;
        let now = file.stamp();
        if now == seen || now.is_none() {
            continue;
        }
        let known = engine.position_bias();
        match file.load() {
            Ok(profiles) => {
                if known.recalibrate(profiles) {
                    tracing::info!(path = %file.path().display(), "calibrated position-bias profiles taken up");
                }
            }
            Err(problem) => {
                tracing::error!(%problem, "position-bias profiles not used");
                known.report(problem.to_string());
            }
        }
        seen = now;
    }
}

/// Waits for the first outcome of loading.
async fn ready(scheduler: &Scheduler) -> anyhow::Result<()> {
    let mut status = scheduler.status();
    let settled = status.wait_for(|status| *status != Status::Loading).await?;
    match &*settled {
        Status::Ready(_) => Ok(()),
        Status::Failed(problem) => anyhow::bail!("the generator cannot be loaded: {problem}"),
        Status::Loading | Status::Stopped => anyhow::bail!("the generator's thread ended"),
    }
}

/// Serves on `listener` until `stop` resolves.
///
/// # Errors
/// The model cannot be loaded, or the transport fails.
pub async fn serve(
    config: &Config,
    engine: Engine,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let settings = server::Settings {
        message_bytes: config.server.message_bytes,
        queue_length: config.scheduler.queue_length,
        drain: config.server.drain,
    };
    engine.position_bias().set_learning(config.learn_position_bias);
    let calibrated = profile_file(&config.store, &engine.info().sha256, Origin::Calibrated);
    let following = tokio::spawn(follow(engine.clone(), calibrated, BETWEEN_LOOKS));
    let ended = server::serve(engine.clone(), settings, listener, stop).await;
    following.abort();
    engine.position_bias().save();
    ended
}
