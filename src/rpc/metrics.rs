//! MetricsService: arithmetic on blocking threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::v1::metrics_service_server::MetricsService;
use super::{convert_metrics as convert, status, v1};
use crate::engine::EngineError;
use crate::fit::task::fit_moi;
use crate::metrics::input;
use crate::numeric::Interrupt;

#[derive(Clone)]
pub(super) struct Service {
    /// Calls computed at once: one a core. More of them wait here and take nothing from the generator.
    permits: Arc<Semaphore>,
    /// Largest response (`server.message_bytes`).
    message_bytes: usize,
}

/// Set when the call ends, so that its computation ends as well: the caller left, the deadline passed, or the server's
/// drain is over.
#[derive(Default)]
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Service {
    pub fn new(message_bytes: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { permits: Arc::new(Semaphore::new(cores)), message_bytes }
    }

    /// Computes on a blocking thread. A call that ends while it waits for a permit is never computed; one that ends during
    /// the computation interrupts it.
    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(Interrupt<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let ended = Ended::default();
        let interrupt = Arc::clone(&ended.0);
        let outcome = tokio::task::spawn_blocking(move || {
            let _held = permit;
            work(&|| interrupt.load(Ordering::Relaxed))
        });
        let outcome = outcome.await.unwrap_or_else(|error| Err(EngineError::Internal(error.to_string())));
        outcome.map(Response::new).map_err(|error| status::of(&error))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn evaluate_ranking(
        &self,
        call: Request<v1::EvaluateRankingRequest>,
    ) -> Result<Response<v1::EvaluateRankingResponse>, Status> {
        let message_bytes = self.message_bytes;
        self.compute(move |interrupt| {
            let task = convert::ranking_task(call.into_inner(), message_bytes)?;
            let reading = (task.grading, task.ties);
            let table = input::evaluate_rankings(&task.lists, &task.metrics, reading, task.resampling, interrupt);
            Ok(convert::ranking_response(&task, &table.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn correlate(&self, call: Request<v1::CorrelateRequest>) -> Result<Response<v1::CorrelateResponse>, Status> {
        let message_bytes = self.message_bytes;
        self.compute(move |interrupt| {
            let task = convert::correlation_task(call.into_inner(), message_bytes)?;
            let rows = input::correlate(&task.target, &task.series, &task.kinds, task.resampling, interrupt);
            Ok(convert::correlation_response(&task, &rows.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn choose_alpha(
        &self,
        call: Request<v1::ChooseAlphaRequest>,
    ) -> Result<Response<v1::ChooseAlphaResponse>, Status> {
        self.compute(|interrupt| {
            let (samples, family, correlation) = convert::alpha_task(call.into_inner())?;
            let chosen = input::choose_alpha(&samples, family, correlation, interrupt);
            Ok(convert::alpha_response(&chosen.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn fit_moi(&self, call: Request<v1::FitMoiRequest>) -> Result<Response<v1::FitMoiResponse>, Status> {
        self.compute(|_| {
            let task = convert::fit_task(call.into_inner())?;
            let fitted = fit_moi(&task).map_err(convert::fit_error)?;
            Ok(convert::fit_response(fitted))
        })
        .await
    }
}
