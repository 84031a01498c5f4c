//! Changed adapters, wrong adapters and failing workers, on the tiny random generator of golden/adapters; and the
//! answers that name an adapter.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{common, gguf, page};
use common::passage_models::info;
use common::scripted::Observed;
use common::{Running, wire};
use models::catalog::Role;
use models::llama::{self, Adapter};
use models::store::hash;
use prefix_scheduler::call::Call;
use prefix_scheduler::model::{Batch, Capacity, Decoded, Generator, ModelError};
use prefix_scheduler::plan::{Plan, Segment};
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use rerankd::app;
use rerankd::config::Config;
use tokio_stream::StreamExt;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters").join(name)
}

/// An adapter for the tiny generator whose numbers are of this size.
fn trained(size: f32) -> Vec<u8> {
    gguf::bytes(&gguf::adapter_values("llama", 4.0), &gguf::factors("blk.0.attn_q.weight", 32, 32, 2, size))
}

/// The tiny generator with this adapter, and a store in `folder`.
fn config(folder: &Path, adapter: &Path, settings: &[(&str, &str)]) -> Config {
    let (store, model) = (folder.join("store").display().to_string(), golden("base.gguf").display().to_string());
    let adapter = adapter.display().to_string();
    let own = [
        ("models.store", &*store),
        ("generator.model", &*model),
        ("generator.adapter", &*adapter),
        ("generator.threads", "1"),
    ];
    let flags = own.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Config::load(None, &flags.collect::<Vec<_>>()).unwrap()
}

const ALONE: (&str, &str) = ("entailment.model", "off");

async fn served(config: &Config) -> Running {
    common::serve(app::engine(config).await.unwrap(), Arc::new(Observed::default()), 8).await
}

/// A retrained adapter may keep its size and, through `cp -p` or an image, its modification time.
#[tokio::test]
async fn an_adapter_of_the_same_size_and_time_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let mut hashes = Vec::new();
    let mut time = None;
    for size in [0.1, 0.2] {
        std::fs::write(&path, trained(size)).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let time = *time.get_or_insert_with(|| file.metadata().unwrap().modified().unwrap());
        file.set_modified(time).unwrap();
        drop(file);
        let config = config(folder.path(), &path, &[ALONE]);
        let running = served(&config).await;
        let named = info(&running).await.generator.unwrap().adapter.unwrap();
        running.stop().await;
        assert_eq!(named.sha256, hash(&path).unwrap());
        assert_eq!(config.store.locate(path.to_str().unwrap(), Role::Adapter).unwrap().sha256, named.sha256);
        hashes.push(named.sha256);
    }
    assert_ne!(hashes[0], hashes[1]);
}

#[tokio::test]
async fn a_wrong_adapter_is_found_before_anything_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.gguf");
    let other = gguf::factors("blk.0.attn_q.weight", 16, 16, 2, 0.1);
    std::fs::write(&path, gguf::bytes(&gguf::adapter_values("llama", 4.0), &other)).unwrap();
    let engine = app::start(&config(folder.path(), &path, &[ALONE])).unwrap();
    let model = &engine.models().generators()[0];
    let mut status = model.scheduler().status();
    let failed = status.wait_for(|status| matches!(status, Status::Failed(_))).await.unwrap();
    assert!(matches!(&*failed, Status::Failed(problem) if problem.contains("wrong.gguf: ")), "{failed:?}");
    assert!(model.get().is_err(), "its adapter was published");
}

#[tokio::test]
async fn faults_of_the_files_name_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    std::fs::write(&path, trained(0.1)).unwrap();
    let absent = app::start(&config(folder.path(), Path::new("/nowhere/adapter.gguf"), &[ALONE])).unwrap_err();
    let expected = "generator.adapter: \"/nowhere/adapter.gguf\", for adapter, is neither a file nor in the catalogue";
    assert!(absent.to_string().starts_with(expected), "{absent}");
    let config = config(folder.path(), &path, &[ALONE, ("scorer.model", "nobody")]);
    let problem = app::engine(&config).await.unwrap_err().to_string();
    assert!(problem.contains("scorer.model: \"nobody\", for generator, is neither"), "{problem}");
}

/// Forwards to `inner`, and panics at the next step if `breaks` is set.
struct Breaking<'g> {
    inner: &'g mut dyn Generator,
    breaks: &'g AtomicBool,
}

impl Generator for Breaking<'_> {
    fn capacity(&self) -> Capacity {
        self.inner.capacity()
    }

    fn fork(&mut self, from: usize, to: usize, length: usize) -> Result<(), ModelError> {
        self.inner.fork(from, to, length)
    }

    fn state_identity(&self) -> Option<String> {
        self.inner.state_identity()
    }

    fn save(&mut self, sequence: usize, positions: Range<usize>) -> Result<Vec<u8>, ModelError> {
        self.inner.save(sequence, positions)
    }

    fn restore(&mut self, state: &[u8], to: usize, positions: Range<usize>) -> Result<(), ModelError> {
        self.inner.restore(state, to, positions)
    }

    fn release(&mut self, sequence: usize) -> Result<(), ModelError> {
        self.inner.release(sequence)
    }

    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError> {
        assert!(!self.breaks.swap(false, Ordering::SeqCst), "injected");
        self.inner.decode(batch)
    }
}

async fn scored(scheduler: &Scheduler) -> Option<Vec<f64>> {
    scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await.unwrap();
    let mut plan = Plan::new();
    let tokens: Vec<i32> = (20..40).collect();
    let nodes = plan.add(&[Segment::context(vec![1, 2, 3]), Segment::scored(tokens, 0)]);
    let outcome = scheduler.run(Arc::new(plan), &Call::local(), None).await.ok()?;
    Some(outcome.scores[nodes[1].0].clone())
}

/// A step panics. The reloaded model has the adapter again.
#[tokio::test]
async fn a_generator_that_is_loaded_again_has_its_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let breaks = Arc::new(AtomicBool::new(false));
    let start = |adapter: Option<Adapter>| {
        let config = config(folder.path(), &golden("adapter.gguf"), &[ALONE, ("generator.context_tokens", "512")]);
        let settings = llama::Settings { adapter, ..config.generator.settings(golden("base.gguf")) };
        let breaks = Arc::clone(&breaks);
        let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn Generator)| {
            llama::with_model(&settings, &mut |inner| serve(&mut Breaking { inner, breaks: &breaks }))
        });
        Scheduler::start(SchedulerOptions::default(), loader).unwrap()
    };
    let path = golden("adapter.gguf");
    let adapter = Adapter { sha256: hash(&path).unwrap(), path, scale: 1.0, base: hash(&golden("base.gguf")).unwrap() };
    let base = scored(&start(None)).await.unwrap();
    let expected = scored(&start(Some(adapter.clone()))).await.unwrap();
    let apart = |left: &[f64], right: &[f64]| {
        assert_eq!(left.len(), right.len());
        left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
    };
    assert!(apart(&base, &expected) > 0.01, "the adapter changes nothing");
    let breaking = start(Some(adapter));
    assert_eq!(scored(&breaking).await.as_ref(), Some(&expected));
    breaks.store(true, Ordering::SeqCst);
    assert_eq!(scored(&breaking).await, None, "the step fails");
    let mut again = None;
    while again.is_none() {
        again = scored(&breaking).await;
    }
    assert_eq!((again, breaking.restarts()), (Some(expected), 1));
}

#[tokio::test]
async fn all_answers_of_a_generator_name_its_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let path = golden("adapter.gguf");
    let hash = hash(&path).unwrap();
    let expected = Some(v1::AdapterInfo { name: "adapter.gguf".into(), sha256: hash.clone(), scale: 0.5 });
    // The user's store has the entailment model.
    let settings = [("generator.adapter_scale", "0.5"), ("models.store", "auto")];
    let engine = app::engine(&config(folder.path(), &path, &settings)).await.unwrap();
    let observable = page::observable(engine, Arc::new(Observed::default()), 8).await;
    let running = &observable.server;
    let passages = wire("", &["the looms ran on the river", "rye bread needs salt"]).passages;
    let sampling = Some(v1::SamplingOptions { samples: 2, max_tokens: 3, ..v1::SamplingOptions::default() });
    let request = v1::SampleRequest {
        question: "which river".into(),
        sampling: sampling.clone(),
        ..v1::SampleRequest::default()
    };
    let mut events = BeliefServiceClient::new(running.channel().await).sample(request).await.unwrap().into_inner();
    let mut done = None;
    while let Some(event) = events.next().await {
        if let Some(v1::sample_response::Event::Done(last)) = event.unwrap().event {
            done = Some(last);
        }
    }
    assert_eq!(done.unwrap().adapter, expected);
    let mut client = v1::utility_service_client::UtilityServiceClient::new(running.channel().await);
    let request = v1::MeasureUtilityRequest {
        question: "which river".into(),
        passages: passages.clone(),
        sampling: sampling.clone(),
        ..v1::MeasureUtilityRequest::default()
    };
    assert_eq!(client.measure_utility(request).await.unwrap().into_inner().adapter, expected);
    let request = v1::EvaluateRetrievalRequest {
        question: "which river".into(),
        passages,
        references: vec!["the Senn".into()],
        annotators: vec![v1::Annotator::ContainsAnswer.into()],
        ..v1::EvaluateRetrievalRequest::default()
    };
    assert_eq!(client.evaluate_retrieval(request).await.unwrap().into_inner().adapter, expected);
    let page = observable.scrape().await;
    let label = format!("{hash}x0.5");
    assert_eq!(page.sum("rerankd_model_info", &[("role", "generator"), ("adapter", &label)]), 1.0);
    let mut client = protocol::tei_v1::info_client::InfoClient::new(running.channel().await);
    let told = client.info(protocol::tei_v1::InfoRequest {}).await.unwrap().into_inner();
    let base = models::store::hash(&golden("base.gguf")).unwrap();
    assert_eq!(told.model_sha, Some(format!("{base}+{hash}x0.5")));
}
