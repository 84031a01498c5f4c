//! Structured logs on standard error, as text lines or as JSON, and spans for a collector.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::config::{Config, LogFormat};
use server::observe::traces::{self, Export};

/// Replaces the filter of the installed subscriber.
static REFILTER: OnceLock<Box<dyn Fn(EnvFilter) -> bool + Send + Sync>> = OnceLock::new();

/// Replaces the log filter of a running process by that of `config`. False where there is nothing to replace.
pub fn refilter(config: &Config) -> bool {
    let Ok(filter) = EnvFilter::try_new(&config.log_filter) else { return false };
    REFILTER.get().is_some_and(|replace| replace(filter))
}

/// Installs the process's log subscriber. `quiet` limits logs to warnings, for commands that show progress on standard
/// error. Further calls have no effect.
pub fn install(config: &Config, quiet: bool) {
    let filter = if quiet { "warn,llama-cpp-2=error" } else { &config.log_filter };
    let ansi = std::io::stderr().is_terminal();
    let _ = Registry::default().with(logs(filter, config.log_format, ansi, std::io::stderr)).try_init();
}

/// Installs the log subscriber of a server and starts the export of its traces; `None` where no collector is configured.
/// Must be called within a runtime.
///
/// # Errors
/// The endpoint of the collector is not a URL.
pub fn install_for_server(config: &Config) -> anyhow::Result<Option<Export>> {
    let ansi = std::io::stderr().is_terminal();
    let (subscriber, export) = subscriber(config, ansi, std::io::stderr)?;
    let _ = subscriber.try_init();
    Ok(export)
}

/// The subscriber of a server that writes its log to `writer`.
///
/// # Errors
/// As [`install_for_server`].
pub fn subscriber<W>(
    config: &Config,
    ansi: bool,
    writer: W,
) -> anyhow::Result<(impl Subscriber + Send + Sync, Option<Export>)>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (spans, export) = match &config.traces {
        Some(options) => {
            let (tracer, export) = traces::start(options)?;
            let layer = tracing_opentelemetry::layer()
                .with_tracer(tracer)
                .with_location(false)
                .with_threads(false)
                .with_target(false)
                .with_level(false)
                .with_tracked_inactivity(false)
                .with_context_activation(false)
                .with_filter(
                    filter_fn(|metadata| metadata.is_span() && traced(metadata)).with_max_level_hint(LevelFilter::INFO),
                );
            (Some(layer), Some(export))
        }
        None => (None, None),
    };
    let logs = logs(&config.log_filter, config.log_format, ansi, writer);
    Ok((Registry::default().with(spans).with(logs), export))
}

fn logs<S, W>(filter: &str, format: LogFormat, ansi: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + 'static,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    // The first subscriber of the process is the one that is installed.
    let _ = REFILTER.set(Box::new(move |filter| handle.reload(filter).is_ok()));
    let filter = AlsoAtEvents(filter.and(filter_fn(|metadata| !traced(metadata))));
    let layer = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(writer);
    match format {
        LogFormat::Json => layer.json().with_filter(filter).boxed(),
        LogFormat::Text => layer.with_target(false).with_filter(filter).boxed(),
    }
}

/// A filter that is asked again when an event arrives. The binding of llama.cpp asks once whether a line is wanted and then sends
/// two where one was held back; without this the second of them passes every filter.
struct AlsoAtEvents<F>(F);

impl<S, F: Filter<S>> Filter<S> for AlsoAtEvents<F> {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        self.0.enabled(metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.0.callsite_enabled(metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        self.0.enabled(event.metadata(), context) && self.0.event_enabled(event, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0.max_level_hint()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.0.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.0.on_record(id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.0.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.0.on_close(id, context);
    }
}

/// Whether a span is for the collector and not for the log.
fn traced(metadata: &Metadata<'_>) -> bool {
    metadata.target() == traces::TARGET
}
