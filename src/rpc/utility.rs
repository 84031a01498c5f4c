//! UtilityService.

use std::time::Instant;

use tonic::{Request, Response, Status, Streaming};

use super::deadline::within;
use super::questions::{Answers, answer_each};
use super::v1::utility_service_server::UtilityService;
use super::{convert_belief, convert_evaluate, deadline, status, v1};
use crate::engine::{Engine, EngineError};

#[derive(Clone)]
pub(super) struct Service {
    pub engine: Engine,
}

impl Service {
    async fn measure(
        &self,
        wire: v1::MeasureUtilityRequest,
        until: Option<Instant>,
    ) -> Result<v1::MeasureUtilityResponse, Status> {
        let whole = wire.return_answers;
        let request = convert_belief::utility_request(wire).map_err(|error| status::of(&error))?;
        let report = within(until, self.engine.utility(request, until, None)).await;
        let report = report.map_err(|error| status::of(&error))?;
        tracing::info!(
            contexts = report.utilities.len(),
            tokens = report.usage.tokens,
            judged_pairs = report.judged_pairs,
            milliseconds = report.usage.total_ms,
            "utility measured"
        );
        Ok(convert_belief::utility_response(&report, whole, self.engine.info()))
    }

    async fn evaluate(
        &self,
        wire: v1::EvaluateRetrievalRequest,
        until: Option<Instant>,
    ) -> Result<v1::EvaluateRetrievalResponse, Status> {
        let whole = wire.return_answers;
        let request = convert_evaluate::request(wire).map_err(|error| status::of(&error))?;
        let (metrics, threshold) = (request.metrics.clone(), request.threshold);
        let report = within(until, self.engine.evaluate(request, until)).await;
        let report = report.map_err(|error| status::of(&error))?;
        tracing::info!(
            annotators = report.labels.len(),
            rankings = report.rankings.len(),
            tokens = report.usage.tokens,
            judged_pairs = report.judged_pairs,
            milliseconds = report.usage.total_ms,
            "retrieval evaluated"
        );
        Ok(convert_evaluate::response(&report, &metrics, threshold, whole, self.engine.info()))
    }
}

/// The outcome of a question on a stream, or why there is none.
fn or_error<T>(outcome: Result<T, Status>) -> Result<T, v1::QuestionError> {
    outcome.map_err(|status| v1::QuestionError { code: status.code() as i32, message: status.message().to_owned() })
}

fn missing() -> Status {
    status::of(&EngineError::invalid("request", "must be set"))
}

#[tonic::async_trait]
impl UtilityService for Service {
    async fn measure_utility(
        &self,
        call: Request<v1::MeasureUtilityRequest>,
    ) -> Result<Response<v1::MeasureUtilityResponse>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        Ok(Response::new(self.measure(call.into_inner(), until).await?))
    }

    type MeasureUtilityStreamStream = Answers<v1::MeasureUtilityStreamResponse>;

    async fn measure_utility_stream(
        &self,
        call: Request<Streaming<v1::MeasureUtilityStreamRequest>>,
    ) -> Result<Response<Self::MeasureUtilityStreamStream>, Status> {
        use v1::measure_utility_stream_response::Outcome;
        let until = deadline::of(call.metadata(), Instant::now());
        let service = self.clone();
        let answers = answer_each(call.into_inner(), move |asked: v1::MeasureUtilityStreamRequest| {
            let service = service.clone();
            async move {
                let outcome = match asked.request {
                    Some(request) => service.measure(request, until).await,
                    None => Err(missing()),
                };
                let outcome = or_error(outcome).map_or_else(Outcome::Error, Outcome::Response);
                v1::MeasureUtilityStreamResponse { id: asked.id, outcome: Some(outcome) }
            }
        });
        Ok(Response::new(answers))
    }

    async fn evaluate_retrieval(
        &self,
        call: Request<v1::EvaluateRetrievalRequest>,
    ) -> Result<Response<v1::EvaluateRetrievalResponse>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        Ok(Response::new(self.evaluate(call.into_inner(), until).await?))
    }

    type EvaluateRetrievalStreamStream = Answers<v1::EvaluateRetrievalStreamResponse>;

    async fn evaluate_retrieval_stream(
        &self,
        call: Request<Streaming<v1::EvaluateRetrievalStreamRequest>>,
    ) -> Result<Response<Self::EvaluateRetrievalStreamStream>, Status> {
        use v1::evaluate_retrieval_stream_response::Outcome;
        let until = deadline::of(call.metadata(), Instant::now());
        let service = self.clone();
        let answers = answer_each(call.into_inner(), move |asked: v1::EvaluateRetrievalStreamRequest| {
            let service = service.clone();
            async move {
                let outcome = match asked.request {
                    Some(request) => service.evaluate(request, until).await,
                    None => Err(missing()),
                };
                let outcome = or_error(outcome).map_or_else(Outcome::Error, Outcome::Response);
                v1::EvaluateRetrievalStreamResponse { id: asked.id, outcome: Some(outcome) }
            }
        });
        Ok(Response::new(answers))
    }
}
