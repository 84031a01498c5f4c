//! MetricsService: arithmetic beside the reactor.

use tonic::{Request, Response, Status};

use super::v1::metrics_service_server::MetricsService;
use super::{convert_metrics as convert, status, v1};
use crate::engine::{EngineError, metrics};

#[derive(Clone, Copy)]
pub(super) struct Service;

/// Runs arithmetic that may take long on a thread of its own.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<Response<T>, Status> {
    let outcome = tokio::task::spawn_blocking(work).await;
    let outcome = outcome.unwrap_or_else(|error| Err(EngineError::Internal(error.to_string())));
    outcome.map(Response::new).map_err(|error| status::of(&error))
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
        beside(work).await
    }

    async fn correlate(&self, call: Request<v1::CorrelateRequest>) -> Result<Response<v1::CorrelateResponse>, Status> {
        beside(|| {
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
        beside(|| {
            let (samples, family, correlation) = convert::alpha_task(call.into_inner())?;
            Ok(convert::alpha_response(&metrics::choose_alpha(&samples, family, correlation)?))
        })
        .await
    }

    async fn fit_moi(&self, call: Request<v1::FitMoiRequest>) -> Result<Response<v1::FitMoiResponse>, Status> {
        beside(|| {
            let task = convert::fit_task(call.into_inner())?;
            let fitted = metrics::fit_moi(&task).map_err(convert::fit_error)?;
            Ok(convert::fit_response(fitted))
        })
        .await
    }
}
