//! MetricsService: arithmetic beside the reactor.

use tonic::{Request, Response, Status};

use super::edge::{Edge, answer};
use super::v1::metrics_service_server::MetricsService;
use super::{convert_metrics as convert, v1};
use crate::call::{Call, Lane};
use crate::engine::EngineError;
use crate::fit::task::fit_moi;
use crate::metrics::input as metrics;

#[derive(Clone)]
pub(super) struct Service {
    pub edge: Edge,
}

impl Service {
    /// Runs arithmetic on its own few threads. A call whose caller leaves while it waits is never begun.
    async fn compute<Q: Send + 'static, T: Send + 'static>(
        &self,
        operation: &'static str,
        request: Request<Q>,
        work: impl FnOnce(Q, &Call) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let call = self.edge.admit(operation, &request)?;
        let wire = request.into_inner();
        let work = call.compute_in(Lane::Arithmetic, move |call| work(wire, call));
        Ok(Response::new(answer(&call, work).await?))
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn evaluate_ranking(
        &self,
        request: Request<v1::EvaluateRankingRequest>,
    ) -> Result<Response<v1::EvaluateRankingResponse>, Status> {
        let work = |wire, _: &Call| {
            let task = convert::ranking_task(wire)?;
            let (grading, ties) = (task.grading, task.ties);
            let table = metrics::evaluate_rankings(&task.lists, &task.metrics, grading, ties, task.resampling)?;
            Ok(convert::ranking_response(&task, &table))
        };
        self.compute("EvaluateRanking", request, work).await
    }

    async fn correlate(
        &self,
        request: Request<v1::CorrelateRequest>,
    ) -> Result<Response<v1::CorrelateResponse>, Status> {
        let work = |wire, _: &Call| {
            let task = convert::correlation_task(wire)?;
            let correlations = metrics::correlate(&task.target, &task.series, &task.kinds, task.resampling)?;
            Ok(convert::correlation_response(&task, &correlations))
        };
        self.compute("Correlate", request, work).await
    }

    async fn choose_alpha(
        &self,
        request: Request<v1::ChooseAlphaRequest>,
    ) -> Result<Response<v1::ChooseAlphaResponse>, Status> {
        let work = |wire, _: &Call| {
            let (samples, family, correlation) = convert::alpha_task(wire)?;
            Ok(convert::alpha_response(&metrics::choose_alpha(&samples, family, correlation)?))
        };
        self.compute("ChooseAlpha", request, work).await
    }

    async fn fit_moi(&self, request: Request<v1::FitMoiRequest>) -> Result<Response<v1::FitMoiResponse>, Status> {
        let work = |wire, _: &Call| {
            let task = convert::fit_task(wire)?;
            let fitted = fit_moi(&task).map_err(convert::fit_error)?;
            Ok(convert::fit_response(fitted))
        };
        self.compute("FitMoi", request, work).await
    }
}
