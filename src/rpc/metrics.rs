//! MetricsService: arithmetic beside the reactor.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::v1::metrics_service_server::MetricsService;
use super::{convert_metrics as convert, status, v1};
use crate::engine::EngineError;
use crate::fit::task::fit_moi;
use crate::metrics::input as metrics;

#[derive(Clone)]
pub(super) struct Service {
    /// Calls that are worked on at once: one a core, so that a flood of them leaves the generator its share.
    places: Arc<Semaphore>,
}

impl Default for Service {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { places: Arc::new(Semaphore::new(cores)) }
    }
}

impl Service {
    /// Runs arithmetic that may take long on a thread of its own. A call whose caller leaves while it waits is never begun.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let outcome = tokio::task::spawn_blocking(move || {
            let _held = place;
            work()
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
        let work = || {
            let task = convert::ranking_task(call.into_inner())?;
            let (grading, ties) = (task.grading, task.ties);
            let table = metrics::evaluate_rankings(&task.lists, &task.metrics, grading, ties, task.resampling)?;
            Ok(convert::ranking_response(&task, &table))
        };
        self.beside(work).await
    }

    async fn correlate(&self, call: Request<v1::CorrelateRequest>) -> Result<Response<v1::CorrelateResponse>, Status> {
        self.beside(|| {
            let task = convert::correlation_task(call.into_inner())?;
            let found = metrics::correlate(&task.target, &task.series, &task.kinds, task.resampling)?;
            Ok(convert::correlation_response(&task, &found))
        })
        .await
    }

    async fn choose_alpha(
        &self,
        call: Request<v1::ChooseAlphaRequest>,
    ) -> Result<Response<v1::ChooseAlphaResponse>, Status> {
        self.beside(|| {
            let (samples, family, correlation) = convert::alpha_task(call.into_inner())?;
            Ok(convert::alpha_response(&metrics::choose_alpha(&samples, family, correlation)?))
        })
        .await
    }

    async fn fit_moi(&self, call: Request<v1::FitMoiRequest>) -> Result<Response<v1::FitMoiResponse>, Status> {
        self.beside(|| {
            let task = convert::fit_task(call.into_inner())?;
            let fitted = fit_moi(&task, &|| false).map_err(convert::fit_error)?;
            Ok(convert::fit_response(fitted))
        })
        .await
    }
}
