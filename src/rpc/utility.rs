//! gRPC handlers of UtilityService.

use tonic::{Request, Response, Status, Streaming};

use super::edge::{Edge, answer};
use super::questions::{Answers, answer_each};
use super::v1::utility_service_server::UtilityService;
use super::{admit, convert_belief, convert_evaluate, status, v1};
use crate::call::{Call, Place};
use crate::engine::EngineError;

#[derive(Clone)]
pub(super) struct Service {
    pub edge: Edge,
}

impl Service {
    async fn measure(
        &self,
        call: &Call,
        wire: v1::MeasureUtilityRequest,
    ) -> Result<v1::MeasureUtilityResponse, Status> {
        let whole = wire.return_answers;
        let request = convert_belief::utility_request(wire).map_err(|error| status::of(&error))?;
        let engine = &self.edge.engine;
        let work = async { Ok::<_, EngineError>((engine.utility(call, request, None).await?, engine.generator()?)) };
        let (report, generator) = answer(call, Box::pin(work)).await?;
        tracing::debug!(
            contexts = report.utilities.len(),
            tokens = report.usage.tokens,
            judged_pairs = report.judged_pairs,
            milliseconds = report.usage.total_ms,
            "utility measured"
        );
        Ok(convert_belief::utility_response(&report, whole, &generator.info))
    }

    async fn evaluate(
        &self,
        call: &Call,
        wire: v1::EvaluateRetrievalRequest,
    ) -> Result<v1::EvaluateRetrievalResponse, Status> {
        let whole = wire.return_answers;
        let request = convert_evaluate::request(wire).map_err(|error| status::of(&error))?;
        let (metrics, threshold) = (request.metrics.clone(), request.threshold);
        let engine = &self.edge.engine;
        let work = async { Ok::<_, EngineError>((engine.evaluate(call, request).await?, engine.generator()?)) };
        let (report, generator) = answer(call, Box::pin(work)).await?;
        tracing::debug!(
            annotators = report.labels.len(),
            rankings = report.rankings.len(),
            tokens = report.usage.tokens,
            judged_pairs = report.judged_pairs,
            milliseconds = report.usage.total_ms,
            "retrieval evaluated"
        );
        Ok(convert_evaluate::response(&report, &metrics, threshold, whole, &generator.info))
    }
}

/// The error of a question.
fn failed((code, message): (i32, String)) -> v1::QuestionError {
    v1::QuestionError { code, message }
}

#[tonic::async_trait]
impl UtilityService for Service {
    async fn measure_utility(
        &self,
        request: Request<v1::MeasureUtilityRequest>,
    ) -> Result<Response<v1::MeasureUtilityResponse>, Status> {
        let call = admit::call(&request)?;
        Ok(Response::new(self.measure(&call, request.into_inner()).await?))
    }

    type MeasureUtilityStreamStream = Answers<v1::MeasureUtilityStreamResponse>;

    async fn measure_utility_stream(
        &self,
        request: Request<Streaming<v1::MeasureUtilityStreamRequest>>,
    ) -> Result<Response<Self::MeasureUtilityStreamStream>, Status> {
        use v1::measure_utility_stream_response::Outcome;
        let terms = admit::terms(&request)?;
        let service = self.clone();
        let answers = answer_each(request, move |question: v1::MeasureUtilityStreamRequest| {
            let (service, terms) = (service.clone(), terms.clone());
            async move {
                let outcome = match question.request {
                    Some(request) => match service.edge.admit_question(terms, &question.id, Place::Generator).await {
                        Ok(call) => service.measure(&call, request).await,
                        Err(status) => Err(status),
                    },
                    None => Err(status::unset("request")),
                };
                let outcome = service.edge.question_answer(outcome).map_err(failed);
                let outcome = outcome.map_or_else(Outcome::Error, Outcome::Response);
                v1::MeasureUtilityStreamResponse { id: question.id, outcome: Some(outcome) }
            }
        });
        Ok(Response::new(answers))
    }

    async fn evaluate_retrieval(
        &self,
        request: Request<v1::EvaluateRetrievalRequest>,
    ) -> Result<Response<v1::EvaluateRetrievalResponse>, Status> {
        let call = admit::call(&request)?;
        Ok(Response::new(self.evaluate(&call, request.into_inner()).await?))
    }

    type EvaluateRetrievalStreamStream = Answers<v1::EvaluateRetrievalStreamResponse>;

    async fn evaluate_retrieval_stream(
        &self,
        request: Request<Streaming<v1::EvaluateRetrievalStreamRequest>>,
    ) -> Result<Response<Self::EvaluateRetrievalStreamStream>, Status> {
        use v1::evaluate_retrieval_stream_response::Outcome;
        let terms = admit::terms(&request)?;
        let service = self.clone();
        let answers = answer_each(request, move |question: v1::EvaluateRetrievalStreamRequest| {
            let (service, terms) = (service.clone(), terms.clone());
            async move {
                let outcome = match question.request {
                    Some(request) => match service.edge.admit_question(terms, &question.id, Place::Generator).await {
                        Ok(call) => service.evaluate(&call, request).await,
                        Err(status) => Err(status),
                    },
                    None => Err(status::unset("request")),
                };
                let outcome = service.edge.question_answer(outcome).map_err(failed);
                let outcome = outcome.map_or_else(Outcome::Error, Outcome::Response);
                v1::EvaluateRetrievalStreamResponse { id: question.id, outcome: Some(outcome) }
            }
        });
        Ok(Response::new(answers))
    }
}
