//! Spans of requests for a collector, over OTLP.
//!
//! Spans for traces have their own target, [`TARGET`]: log lines do not show them, and spans of logs do not go to the
//! collector. They hold names, counts and statuses, and no text of a request. Without a collector they are disabled and
//! cost one comparison.

use std::sync::atomic::Ordering;

use axum::http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanExporter};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::export;
pub use super::export::Export;
use prefix_scheduler::call::{Operation, Tally};

/// Target of the spans that go to the collector.
pub const TARGET: &str = "rerankd::trace";

/// Export of traces.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceOptions {
    /// URL of a collector for OTLP over gRPC.
    pub endpoint: String,
    /// Share of the requests without a `traceparent` that are traced, in [0, 1].
    pub sample_ratio: f64,
}

/// Starts the export to a collector, which may be offline. The tracer makes the spans.
///
/// # Errors
/// The endpoint is not a URL.
pub fn start(options: &TraceOptions) -> Result<(SdkTracer, Export), opentelemetry_otlp::ExporterBuildError> {
    let resource = Resource::builder()
        .with_service_name("rerankd")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let mut exporter =
        opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(&options.endpoint).build()?;
    exporter.set_resource(&resource);
    let (queue, export) = export::start(exporter);
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.sample_ratio))))
        .with_span_processor(queue)
        .build();
    Ok((provider.tracer("rerankd"), export))
}

/// Spans of this process that did not reach the collector.
pub fn dropped() -> u64 {
    export::DROPPED.load(Ordering::Relaxed)
}

/// The span of a request. Its parent is the span that the caller's `traceparent` names, if any.
pub fn request(operation: &Operation, id: &str, headers: &HeaderMap) -> Span {
    let known = operation.service != "unknown";
    let method = if known { format!("{}/{}", operation.service, operation.method) } else { "_OTHER".to_owned() };
    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "request",
        otel.name = method,
        otel.kind = "server",
        otel.status_code = Empty,
        rpc.system.name = "grpc",
        rpc.method = method,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        rerankd.request_id = id,
        rerankd.passages = Empty,
        rerankd.tokens = Empty,
        rerankd.cached_tokens = Empty,
    );
    below_caller(span, headers)
}

/// The span of a request over HTTP, like [`request`]. `route` is the path pattern of the server.
pub fn over_http(method: &str, route: &str, id: &str, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "request",
        otel.name = format_args!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        url.path = route,
        http.response.status_code = Empty,
        "error.type" = Empty,
        rerankd.request_id = id,
        rerankd.passages = Empty,
        rerankd.tokens = Empty,
        rerankd.cached_tokens = Empty,
    );
    below_caller(span, headers)
}

/// Sets the parent of a span to the one that `traceparent` names, if any.
fn below_caller(span: Span, headers: &HeaderMap) -> Span {
    if !span.is_disabled() {
        let context = TraceContextPropagator::new().extract(&Headers(headers));
        if context.span().span_context().is_valid() {
            // The span has no children yet, so the parent can still be set.
            let _ = span.set_parent(context);
        }
    }
    span
}

/// Records how a request ended: the name of its gRPC status, and if the server is at fault.
pub fn answered(tally: &Tally, code: &str, server_fault: bool) {
    let span = tally.trace();
    if span.is_disabled() {
        return;
    }
    let code = screaming(code);
    counted(tally);
    span.record("rpc.response.status_code", &code);
    if server_fault {
        span.record("otel.status_code", "ERROR").record("error.type", &code);
    }
}

/// Records how a request over HTTP ended. A status of 500 and above is the server's fault.
pub fn answered_over_http(tally: &Tally, status: u16) {
    let span = tally.trace();
    if span.is_disabled() {
        return;
    }
    counted(tally);
    span.record("http.response.status_code", i64::from(status));
    if status >= 500 {
        span.record("otel.status_code", "ERROR").record("error.type", status.to_string());
    }
}

/// Records the work for a request.
fn counted(tally: &Tally) {
    // The collector stores signed numbers as numbers, and unsigned ones as text.
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    tally
        .trace()
        .record("rerankd.passages", signed(tally.passages()))
        .record("rerankd.tokens", signed(tally.tokens()))
        .record("rerankd.cached_tokens", signed(tally.cached_tokens()));
}

/// `DeadlineExceeded` as `DEADLINE_EXCEEDED`, as in the semantic conventions.
fn screaming(code: &str) -> String {
    match code {
        "OK" => code.to_owned(),
        "Canceled" => "CANCELLED".to_owned(),
        other => super::snake_case(other).to_ascii_uppercase(),
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_the_conventions_do() {
        let written = ["OK", "Canceled", "InvalidArgument", "DeadlineExceeded"].map(screaming);
        assert_eq!(written, ["OK", "CANCELLED", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"]);
    }
}
