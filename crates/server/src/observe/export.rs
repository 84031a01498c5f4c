//! Exports spans to the collector: a bounded queue and a task that sends batches.
//!
//! A request never waits for it. A span is dropped if the queue is full, and a batch if the collector does not accept
//! it. Both are counted; the SDK's batch processor counts neither.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

/// Longest queue; later spans are dropped.
const QUEUE: usize = 2048;

/// Most spans of a batch.
const BATCH: usize = 512;

/// Longest wait of a span for its batch.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest export of a batch, retries included.
const EXPORT: Duration = Duration::from_secs(10);

/// Longest wait for the last batches at the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

/// Spans that did not reach the collector. Global, like the subscriber that makes spans.
pub(super) static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Puts finished spans into the queue.
#[derive(Debug)]
pub(super) struct Queue {
    spans: Sender<SpanData>,
}

/// The running export.
#[derive(Debug)]
#[must_use = "queued spans are lost unless they are flushed"]
pub struct Export {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// Starts the task that exports.
pub(super) fn start(exporter: impl SpanExporter + 'static) -> (Queue, Export) {
    let (spans, waiting) = channel(QUEUE);
    let stop = CancellationToken::new();
    let task = tokio::spawn(run(exporter, waiting, stop.clone()));
    (Queue { spans }, Export { stop, task })
}

impl Export {
    /// Sends the queued spans, for at most three seconds, and ends the export.
    pub async fn flush(self) {
        self.stop.cancel();
        let abort = self.task.abort_handle();
        if tokio::time::timeout(FLUSH, self.task).await.is_err() {
            tracing::warn!("the collector did not accept the last spans in time");
            abort.abort();
        }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

async fn run(exporter: impl SpanExporter, mut waiting: Receiver<SpanData>, stop: CancellationToken) {
    let mut failing = false;
    loop {
        let mut batch = Vec::new();
        let open = tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = gather(&mut waiting, &mut batch) => true,
        };
        while batch.len() < BATCH
            && let Ok(span) = waiting.try_recv()
        {
            batch.push(span);
        }
        if !batch.is_empty() {
            failing = send(&exporter, batch, failing).await;
        } else if !open || waiting.is_closed() {
            return;
        }
    }
}

/// Waits for the first span, then until its batch is full or the interval is over.
async fn gather(waiting: &mut Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    let Some(first) = waiting.recv().await else { return };
    batch.push(first);
    let more = async {
        while batch.len() < BATCH
            && let Some(span) = waiting.recv().await
        {
            batch.push(span);
        }
    };
    let _ = tokio::time::timeout(INTERVAL, more).await;
}

/// Exports a batch. Returns true if it failed. Logs only the first of consecutive failures.
async fn send(exporter: &impl SpanExporter, batch: Vec<SpanData>, failing: bool) -> bool {
    let spans = batch.len();
    let problem = match tokio::time::timeout(EXPORT, exporter.export(batch)).await {
        Ok(Ok(())) => {
            if failing {
                tracing::info!("the collector accepts spans again");
            }
            return false;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", EXPORT.as_secs()),
    };
    DROPPED.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
    if !failing {
        tracing::warn!(%problem, spans, "the collector does not accept spans; they are dropped");
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
    use opentelemetry_sdk::error::OTelSdkError;

    use super::*;

    /// A collector that accepts spans, refuses them, or does not answer.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Manner {
        Takes,
        Refuses,
        Stalls,
    }

    #[derive(Debug)]
    struct Scripted(Manner, Arc<AtomicU64>);

    impl SpanExporter for Scripted {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            match self.0 {
                Manner::Takes => self.1.fetch_add(batch.len() as u64, Ordering::SeqCst),
                Manner::Refuses => return Err(OTelSdkError::InternalFailure("refused".to_owned())),
                Manner::Stalls => std::future::pending().await,
            };
            assert!(batch.len() <= BATCH);
            Ok(())
        }
    }

    fn span(flags: TraceFlags) -> SpanData {
        let (trace, id) = (TraceId::from(1_u128), SpanId::from(1_u64));
        SpanData {
            span_context: SpanContext::new(trace, id, flags, false, TraceState::default()),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "score".into(),
            start_time: std::time::UNIX_EPOCH,
            end_time: std::time::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: opentelemetry_sdk::trace::SpanEvents::default(),
            links: opentelemetry_sdk::trace::SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: opentelemetry::InstrumentationScope::default(),
        }
    }

    /// One test, because the counter is global.
    #[tokio::test]
    async fn every_span_is_exported_or_counted() {
        let dropped = || DROPPED.load(Ordering::Relaxed);
        let taken = Arc::new(AtomicU64::new(0));
        let begin = |manner| start(Scripted(manner, Arc::clone(&taken)));

        let (queue, export) = begin(Manner::Takes);
        for _ in 0..1_000 {
            queue.on_end(span(TraceFlags::SAMPLED));
        }
        queue.on_end(span(TraceFlags::NOT_SAMPLED));
        export.flush().await;
        assert_eq!((taken.load(Ordering::SeqCst), dropped()), (1_000, 0));

        let (queue, export) = begin(Manner::Refuses);
        for _ in 0..3 {
            queue.on_end(span(TraceFlags::SAMPLED));
        }
        export.flush().await;
        assert_eq!(dropped(), 3);

        // Nothing leaves the queue while this test does not yield.
        let (queue, export) = begin(Manner::Stalls);
        for _ in 0..QUEUE + 600 {
            queue.on_end(span(TraceFlags::SAMPLED));
        }
        assert_eq!(dropped(), 603);
        let flushing = std::time::Instant::now();
        export.flush().await;
        assert!(flushing.elapsed() < FLUSH + Duration::from_secs(1));
    }
}
