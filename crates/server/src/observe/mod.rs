//! Observability: counts and times for Prometheus ([`Metrics`], [`page`]), spans for a collector ([`traces`]).
//!
//! Requests report to [`Metrics`] through [`Observer`]. Workers have counters, which `models` reads for each page.
//! docs/reference/observability.md lists every metric.

mod export;
mod models;
pub mod page;
pub mod record;
pub mod traces;

use std::time::Duration;

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, TextEncoder,
};

use engine::Engine;
use prefix_scheduler::call::{Observer, Operation, Refusal, Stage, Tally};

/// Upper bounds of buckets in seconds: OpenTelemetry's for calls, and three more for long rankings.
const SECONDS: [f64; 17] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

/// Upper bounds of buckets of passages.
const PASSAGES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Every status of a fit (`moi::uncertainty::Diagnostics::status`).
const FITS: [&str; 3] = ["converged", "not_identifiable", "not_converged"];

/// The metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    engine: Engine,
    started: IntCounterVec,
    handled: IntCounterVec,
    handling: HistogramVec,
    questions: IntCounterVec,
    refused: IntCounterVec,
    stages: [HistogramVec; 4],
    passages: Histogram,
    cut: IntCounter,
    fits: IntCounterVec,
}

impl Metrics {
    /// Metrics of a server with this engine, all at zero.
    ///
    /// # Errors
    /// Two metrics have the same name, which never happens in practice.
    pub fn new(engine: Engine) -> prometheus::Result<Self> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let operation = ["grpc_type", "grpc_service", "grpc_method"];
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let seconds = |name: &str, help: &str, labels: &[&str]| {
            let metric = HistogramVec::new(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let stage = |stage: Stage| {
            let help = match stage {
                Stage::Tokenise => "Time of a call in tokenising and planning.",
                Stage::Queue => "Time of a call in the generator's queue.",
                Stage::Score => "Time of a call from its first step of the generator to its last score.",
                Stage::Fit => "Time of a call in fits.",
            };
            seconds(&format!("rerankd_request_{}_seconds", stage.name()), help, &["method", "model"])
        };
        let [tokenise, queue, score, fit] = Stage::ALL.map(stage);
        let passages = HistogramOpts::new("rerankd_request_passages", "Passages of a rerank request.");
        let passages = Histogram::with_opts(passages.buckets(PASSAGES.to_vec()))?;
        registry.register(Box::new(passages.clone()))?;
        let cut = IntCounter::new("rerankd_passages_cut_total", "Passages of rerank requests that were cut to fit.")?;
        registry.register(Box::new(cut.clone()))?;
        let metrics = Self {
            started: counter("grpc_server_started_total", "Requests received.", &operation)?,
            handled: counter(
                "grpc_server_handled_total",
                "Requests answered, by status.",
                &["grpc_type", "grpc_service", "grpc_method", "grpc_code"],
            )?,
            handling: seconds(
                "grpc_server_handling_seconds",
                "Time from the headers of a request to the end of its answer.",
                &operation,
            )?,
            questions: counter(
                "rerankd_stream_questions_total",
                "Questions of streams answered, by status.",
                &["grpc_method", "grpc_code"],
            )?,
            refused: counter(
                "rerankd_requests_refused_total",
                "Requests and questions refused before any work.",
                &["reason"],
            )?,
            stages: [tokenise?, queue?, score?, fit?],
            passages,
            cut,
            fits: counter("rerankd_fits_total", "Fits of rankings, by status.", &["status"])?,
            engine,
            registry: registry.clone(),
        };
        // A rate needs an initial zero.
        for reason in Refusal::ALL {
            metrics.refused.with_label_values(&[reason.name()]);
        }
        for status in FITS {
            metrics.fits.with_label_values(&[status]);
        }
        Ok(metrics)
    }

    /// The page in Prometheus's text format, version 0.0.4.
    ///
    /// # Errors
    /// A metric could not be written, which never happens in practice.
    pub fn page(&self) -> prometheus::Result<Vec<u8>> {
        let mut families = self.registry.gather();
        families.extend(models::families(&self.engine));
        families.push(models::counter(
            "rerankd_spans_dropped_total",
            "Spans that did not reach the collector: the queue was full, or the export failed.",
            traces::dropped(),
        ));
        families.sort_by(|left, right| left.name().cmp(right.name()));
        let mut page = Vec::new();
        TextEncoder::new().encode(&families, &mut page)?;
        Ok(page)
    }

    /// True if every generator would serve a request.
    pub fn is_ready(&self) -> bool {
        self.engine.models().serve()
    }
}

/// Label values of an operation.
fn labels(operation: &Operation) -> [&str; 3] {
    [operation.kind, &operation.service, &operation.method]
}

impl Observer for Metrics {
    fn offered(&self, operation: &Operation) {
        let [kind, service, method] = labels(operation);
        self.started.with_label_values(&[kind, service, method]);
        // Rates and shares of errors need an initial zero.
        for code in ["OK", "Internal", "Unavailable", "Unknown"] {
            self.handled.with_label_values(&[kind, service, method, code]);
            if kind == "bidi_stream" {
                self.questions.with_label_values(&[method, code]);
            }
        }
        self.handling.with_label_values(&[kind, service, method]);
    }

    fn started(&self, operation: &Operation) {
        self.started.with_label_values(&labels(operation)).inc();
    }

    fn handled(&self, operation: &Operation, code: &'static str, elapsed: Duration) {
        let [kind, service, method] = labels(operation);
        self.handled.with_label_values(&[kind, service, method, code]).inc();
        self.handling.with_label_values(&[kind, service, method]).observe(elapsed.as_secs_f64());
    }

    fn question_handled(&self, operation: &str, code: &'static str) {
        self.questions.with_label_values(&[operation, code]).inc();
    }

    fn refused(&self, reason: Refusal) {
        self.refused.with_label_values(&[reason.name()]).inc();
    }

    fn ended(&self, operation: &str, tally: &Tally) {
        let generators = self.engine.models().generators();
        let default = generators.first().map_or("", |generator| models::label(generator.name()));
        let (method, model) = tally.subject().map_or_else(
            || (snake_case(operation), default),
            // Methods are named as in the protocol.
            |(method, model)| (method.replace('-', "_"), model),
        );
        for (stage, histogram) in Stage::ALL.iter().zip(&self.stages) {
            if let Some(time) = tally.time(*stage) {
                histogram.with_label_values(&[method.as_str(), model]).observe(time.as_secs_f64());
            }
        }
        self.cut.inc_by(tally.cut());
        if tally.passages() > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a number of passages")]
            self.passages.observe(tally.passages() as f64);
        }
        if let Some(status) = tally.fit() {
            self.fits.with_label_values(&[status]).inc();
        }
    }
}

/// `MeasureUtility` as `measure_utility`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (index, character) in name.char_indices() {
        if character.is_ascii_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}
