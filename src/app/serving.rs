//! The life cycle of a server: loading, warm-up, serving, reloading, stopping.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::follow::{follow_calibration, reload_calibration};
use super::{CALIBRATION_INTERVAL, Control, calibration_file, first_load, notify, profile_file};
use crate::app::calibration_file::CalibrationFile;
use crate::app::profile_file::{Origin, ProfileFile};
use crate::config::Config;
use engine::live::LiveOptions;
use engine::models::ServedGenerator;
use engine::types::{Limits, Passage, RerankRequest, Role};
use engine::{Engine, methods};
use prefix_scheduler::call::{Admission, Call};
use prefix_scheduler::model::reranker::Shortening;
use prefix_scheduler::scheduler::reranker::{List, ScoreError};
use server::observe::{self, Metrics};
use server::rpc::server::{Ended, ServerOptions};
use server::transport::{Access, Protocol, WATCH_INTERVAL, listener};

/// Longest wait at the end for the last write of learnt profiles.
const LAST_SAVE: Duration = Duration::from_secs(3);

/// First pause before the generator is tried again; it doubles up to [`LONGEST_PAUSE`], like the pause before a reload.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Serves on `listener` until `control` stops it. Health reports NOT_SERVING until generator and scorer have loaded and
/// scored a passage each.
///
/// # Errors
/// The first load of the generator or the scorer fails, or the transport fails.
pub async fn serve(
    config: &Config,
    engine: Engine,
    access: Access,
    listeners: impl Into<Listeners>,
    control: Control,
) -> anyhow::Result<Ended> {
    let Listeners { grpc, http } = listeners.into();
    let (heat, warm) = watch::channel(false);
    let (readiness, ready) = watch::channel(false);
    let _readiness = AbortOnDropHandle::new(tokio::spawn(follow_readiness(warm.clone(), control.clone(), readiness)));
    let options = ServerOptions {
        message_bytes: config.server.message_bytes,
        drain: config.server.drain,
        lame_duck: config.server.lame_duck,
        reflection: config.server.reflection,
        bounds: config.security.bounds,
        access: access.clone(),
        warm,
        tei: config.http.options.method,
    };
    let metrics = Arc::new(Metrics::new(engine.clone()).context("the metrics cannot be set up")?);
    let page = page(config, &metrics, ready.clone()).await?;
    let admission = Admission::new(config.queue_length).observed_by(metrics);
    check_store(config);
    let stop = async {
        control.stopped(1).await;
        notify::stopping();
    };
    let over_grpc = server::rpc::server::serve(engine.clone(), admission.clone(), options, grpc, stop);
    let over_http = over_http(config, &engine, &admission, &access, http, &control, ready);
    let mut serving = std::pin::pin!(async { tokio::join!(over_grpc, over_http).0 });
    let measuring = measure_live(engine.clone(), config.live, admission.clone());
    let measuring = AbortOnDropHandle::new(tokio::spawn(measuring));
    let beside = AbortOnDropHandle::new(tokio::spawn(beside(
        engine.clone(),
        config.clone(),
        access.clone(),
        control.clone(),
        heat,
    )));
    let ended = tokio::select! {
        // Either protocol may have cancelled the calls of both.
        ended = &mut serving => ended.map(|_| Ended::of(&admission)),
        // A failed first load is a fault of the configuration and ends the server. Later failures lead to a reload.
        failed = first_failure(&engine) => Err(failed),
        () = control.stopped(2) => {
            admission.cancel_all();
            Ok(Ended::of(&admission))
        }
    };
    drop((measuring, beside, page));
    let generators: Vec<_> = engine.models().generators().iter().filter_map(|model| model.get().ok()).collect();
    let saved = tokio::task::spawn_blocking(move || generators.iter().for_each(|one| one.position_bias.save()));
    // A hanging disk must not keep the process alive.
    if tokio::time::timeout(LAST_SAVE, saved).await.is_err() {
        tracing::error!("learnt position-bias profiles not saved: the disk takes too long");
    }
    ended
}

/// The sockets of a server.
#[derive(Debug)]
pub struct Listeners {
    /// For gRPC.
    pub grpc: TcpListener,
    /// For HTTP/JSON; `None` if it is off.
    pub http: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(grpc: TcpListener) -> Self {
        Self { grpc, http: None }
    }
}

/// Serves HTTP/JSON until the server stops, with the admission, certificates and tokens of gRPC.
async fn over_http(
    config: &Config,
    engine: &Engine,
    admission: &Admission,
    access: &Access,
    listener: Option<TcpListener>,
    control: &Control,
    ready: watch::Receiver<bool>,
) {
    let Some(listener) = listener else { return };
    let options = config.http.options.clone();
    let router = server::http::router(engine.clone(), admission.clone(), options, Arc::clone(&access.tokens));
    let router = server::http::with_readiness(router, ready);
    let stop = async {
        control.stopped(1).await;
        // Load balancers need time to notice before connections are refused.
        tokio::time::sleep(config.server.lame_duck).await;
    };
    let plain = listener::Options::new(Protocol::Http1, config.security.bounds);
    let options = listener::Options { tls: access.tls.clone(), ..plain };
    // Calls over gRPC, whose drain ends at the same time, are cancelled with the HTTP calls.
    listener::serve_until(listener, router, options, stop, config.server.drain, || admission.cancel_all()).await;
}

/// Sets `ready` to true once the generator was tried, until the server stops.
async fn follow_readiness(mut warm: watch::Receiver<bool>, control: Control, ready: watch::Sender<bool>) {
    let mut stopped = std::pin::pin!(control.stopped(1));
    loop {
        ready.send_replace(*warm.borrow_and_update());
        tokio::select! {
            () = &mut stopped => break,
            changed = warm.changed() => if changed.is_err() { break },
        }
    }
    ready.send_replace(false);
}

/// Measures rankings while the server is idle, if it is configured.
async fn measure_live(engine: Engine, options: Option<LiveOptions>, admission: Admission) {
    if let Some(options) = options {
        engine.live.run(options, &admission).await;
    }
}

/// Serves the metrics page on a separate port until the handle is dropped; `None` if no port is configured.
async fn page(
    config: &Config,
    metrics: &Arc<Metrics>,
    ready: watch::Receiver<bool>,
) -> anyhow::Result<Option<AbortOnDropHandle<()>>> {
    let Some(address) = config.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("metrics.listen: cannot listen on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "metrics are served");
    let router = observe::page::router(Arc::clone(metrics), ready);
    let options = listener::Options::new(Protocol::Http1, config.security.bounds);
    let serving = listener::serve(listener, router, options, CancellationToken::new());
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(serving))))
}

/// Resolves if the first load fails, otherwise never.
async fn first_failure(engine: &Engine) -> anyhow::Error {
    match first_load(engine).await {
        Err(problem) => problem,
        Ok(()) => std::future::pending().await,
    }
}

/// Runs the server's background tasks until it ends.
async fn beside(engine: Engine, config: Config, access: Access, control: Control, heat: watch::Sender<bool>) {
    let (loaded, store, warm) = (engine.clone(), config.store.clone(), heat.subscribe());
    tokio::join!(
        notify::keep_alive(),
        access.follow(WATCH_INTERVAL),
        when_ready(engine, config, heat),
        reload(control, &warm, &access, || {
            let loaded = loaded.models().generators().iter().filter_map(|model| model.get().ok());
            let with_files = loaded.map(|generator| {
                let measured = generator.info.measured_on();
                let files = (profile_file(&store, &measured, Origin::Calibrated), calibration_file(&store, &measured));
                (generator, files)
            });
            with_files.collect()
        }),
    );
}

/// Reloads certificates, tokens and calibration whenever the operator asks.
async fn reload(
    mut control: Control,
    warm: &watch::Receiver<bool>,
    access: &Access,
    calibration: impl Fn() -> Vec<(Arc<ServedGenerator>, (ProfileFile, CalibrationFile))>,
) {
    loop {
        control.reload().await;
        // A server that is still loading has not sent READY, and must not send it here.
        let ready = *warm.borrow();
        if ready {
            notify::reloading();
        }
        let (own, calibration) = (access.clone(), calibration());
        let work = move || {
            let faults = own.reload(true);
            for (generator, files) in calibration {
                reload_calibration(&generator, &files);
            }
            faults.len()
        };
        let faults = tokio::task::spawn_blocking(work).await.unwrap_or_default();
        tracing::info!(faults, "certificates, tokens and calibration reloaded");
        if ready {
            notify::ready();
        }
    }
}

/// Waits for generator and scorer, logs their properties and tries them, loads the embedding model, starts learning, and
/// follows the calibration files.
async fn when_ready(engine: Engine, config: Config, heat: watch::Sender<bool>) {
    if first_load(&engine).await.is_err() {
        return;
    }
    let mut loaded = Vec::new();
    for model in engine.models().generators() {
        let Ok(generator) = model.get() else { return };
        let (info, role) = (&generator.info, model.role().name());
        if let Some(adapter) = &info.adapter {
            tracing::info!(adapter = %adapter.name, sha256 = %adapter.sha256, scale = adapter.scale, "adapter applied");
        }
        tracing::info!(model = %info.name, sha256 = %info.sha256, encoding = %info.encoding, running_sha256 = %info.running_sha256, prompt_format = info.frame_in_use().name(), compute = %info.compute, "{role} ready");
        loaded.push(generator);
    }
    let generators = async {
        for model in engine.models().generators() {
            warm_up(&engine, model.role()).await;
        }
    };
    let judge = async {
        if config.live.is_some() {
            load_judge(&engine).await;
        }
    };
    tokio::join!(generators, load_embedding(&engine), judge);
    heat.send_replace(true);
    notify::ready();
    let mut following = JoinSet::new();
    for generator in loaded {
        generator.position_bias.set_learning(config.learn_position_bias);
        let measured = generator.info.measured_on();
        let calibrated = profile_file(&config.store, &measured, Origin::Calibrated);
        let ranking = calibration_file(&config.store, &measured);
        following.spawn(follow_calibration(Arc::clone(&generator), calibrated, CALIBRATION_INTERVAL));
        following.spawn(follow_calibration(generator, ranking, CALIBRATION_INTERVAL));
    }
    // The tasks run until the server ends and aborts them.
    while following.join_next().await.is_some() {}
}

/// Scores two short passages, repeatedly until that succeeds. The first step of a model allocates memory and, on an
/// accelerator, compiles; no caller should wait for that. A model may load but fail to score, for instance because the
/// accelerator's memory is full. Health then reports NOT_SERVING.
async fn warm_up(engine: &Engine, role: Role) {
    // The operator's limits are for callers. They must not refuse this request.
    let limits = Limits { passages: 2, query_bytes: 1_000, passage_bytes: 1_000, tokens: 1 << 20, ..*engine.limits() };
    let own = Engine::new(engine.models().clone(), limits);
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        match own.reranker.rerank(&Call::local(), trial(role), None).await {
            Ok(_) => return tracing::info!(milliseconds = began.elapsed().as_millis(), "{} tried", role.name()),
            Err(error) => {
                let again = format!("in {} ms", pause.as_millis());
                tracing::error!(%error, again, "the {} does not score; it will be tried again", role.name());
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Loads the embedding model of the default method, so that no caller waits for it. The server also serves without it:
/// the default method then ranks worse, and its responses have a warning.
async fn load_embedding(engine: &Engine) {
    let Some(embedding) = engine.models().scorer_if_any(Role::Embedding) else { return };
    let trial = trial(Role::Embedding);
    let list = |text: &str| List {
        query: trial.query.as_str().into(),
        // Long enough to measure the speed for latency budgets; the first turn is not counted.
        passages: [format!("{text} ").repeat(8)].into(),
        shortening: Shortening { passage_tokens: None, truncate: true, from_start: false },
        tokens: usize::MAX,
        until: None,
        preferred: Vec::new(),
    };
    let score = async {
        for passage in &trial.passages {
            embedding.score(list(&passage.text), &Call::local(), None).await?;
        }
        Ok::<_, ScoreError>(())
    };
    let outcome = tokio::time::timeout(LONGEST_PAUSE, score).await;
    embedding.serve_without();
    let problem = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not loaded after {} s", LONGEST_PAUSE.as_secs()),
    };
    let advice = "`rerankd models pull` fetches the model of the configuration; embedding.model=off turns it off";
    tracing::warn!(model = %embedding.model().name, problem, advice, "the default method ranks without the embedding model");
}

/// Loads the entailment model for the measurement of live traffic: loading it later would slow down a request that
/// arrives meanwhile. The server also serves without it.
async fn load_judge(engine: &Engine) {
    let Some(judge) = engine.models().judge_if_any() else { return };
    if let Err(problem) = judge.load(&Call::local()).await {
        let model = &judge.model().name;
        let advice = format!("`rerankd models pull {model}` fetches it; live.sample_ratio=0 turns the measurement off");
        tracing::warn!(%model, %problem, advice, "live traffic is not measured without the entailment model");
    }
}

fn trial(role: Role) -> RerankRequest {
    let passage = |id: &str, text: &str| Passage { id: id.to_owned(), text: text.to_owned(), ..Passage::default() };
    RerankRequest {
        query: "Which river drove the looms?".to_owned(),
        passages: vec![passage("0", "The library opens at nine."), passage("1", "The looms were driven by the Senn.")],
        method: methods::find("query-generation"),
        scorer: role.name().to_owned(),
        truncate: Some(true),
        ..RerankRequest::default()
    }
}

/// Warns if the store cannot be written: learnt profiles and file hashes are then not stored.
fn check_store(config: &Config) {
    let root: &Path = config.store.root();
    let Err(error) = std::fs::create_dir_all(root).and_then(|()| tempfile::tempfile_in(root)) else { return };
    let lost = if config.learn_position_bias { "; learnt position-bias profiles are lost at the end" } else { "" };
    tracing::warn!(path = %root.display(), %error, "models.store cannot be written: models are hashed at every start{lost}");
}
