//! gRPC handlers of UtilityService.

use tonic::{Request, Response, Status, Streaming};

use super::edge::{Edge, answer};
use super::questions::{Answers, StreamBounds, answer_each, when_free};
use super::{Reply, admit, status};
use engine::types::{EngineError, EvaluateRequest, UtilityRequest};
use prefix_scheduler::call::{Call, Place, Terms};
use protocol::v1::utility_service_server::UtilityService;
use protocol::{convert_belief, convert_evaluate, v1};

#[derive(Clone)]
pub(super) struct Service {
    pub edge: Edge,
}

/// A request to measure; true if the answers are returned.
type ToMeasure = (UtilityRequest, bool);

/// A request to evaluate; true if the answers are returned.
type ToEvaluate = (EvaluateRequest, bool);

fn to_measure(wire: v1::MeasureUtilityRequest) -> Result<ToMeasure, Status> {
    let whole = wire.return_answers;
    Ok((convert_belief::utility_request(wire).map_err(status::of)?, whole))
}

fn to_evaluate(wire: v1::EvaluateRetrievalRequest) -> Result<ToEvaluate, Status> {
    let whole = wire.return_answers;
    Ok((convert_evaluate::request(wire).map_err(status::of)?, whole))
}

impl Service {
    async fn measure(&self, call: &Call, (request, whole): ToMeasure) -> Result<v1::MeasureUtilityResponse, Status> {
        let engine = &self.edge.engine;
        let work =
            async { Ok::<_, EngineError>((engine.utility.measure(call, request, None).await?, engine.generator()?)) };
        let (report, generator) = answer(call, Box::pin(work)).await?;
        call.in_span(|| {
            tracing::debug!(
                contexts = report.utilities.len(),
                tokens = report.usage.tokens,
                judged_pairs = report.judged_pairs,
                milliseconds = report.usage.total_ms,
                "utility measured"
            );
        });
        Ok(convert_belief::utility_response(&report, whole, &generator.info))
    }

    /// A question of a stream. Checked before it waits for a slot and holds its memory.
    async fn measure_question(
        &self,
        terms: Terms,
        id: &str,
        wire: Option<v1::MeasureUtilityRequest>,
    ) -> Result<v1::MeasureUtilityResponse, Status> {
        let asked = to_measure(wire.ok_or_else(|| status::unset("request"))?)?;
        self.edge.engine.utility.check(&asked.0).map_err(status::of)?;
        when_free(terms.deadline, async || {
            let call = self.edge.admit_question(terms.clone(), id, Place::Generator).await?;
            self.measure(&call, asked.clone()).await
        })
        .await
    }

    async fn evaluate(
        &self,
        call: &Call,
        (request, whole): ToEvaluate,
    ) -> Result<v1::EvaluateRetrievalResponse, Status> {
        let (metrics, threshold) = (request.metrics.clone(), request.threshold);
        let engine = &self.edge.engine;
        let work =
            async { Ok::<_, EngineError>((engine.evaluator.evaluate(call, request).await?, engine.generator()?)) };
        let (report, generator) = answer(call, Box::pin(work)).await?;
        call.in_span(|| {
            tracing::debug!(
                annotators = report.labels.len(),
                rankings = report.rankings.len(),
                tokens = report.usage.tokens,
                judged_pairs = report.judged_pairs,
                milliseconds = report.usage.total_ms,
                "retrieval evaluated"
            );
        });
        Ok(convert_evaluate::response(&report, &metrics, threshold, whole, &generator.info))
    }

    /// Like [`Service::measure_question`].
    async fn evaluate_question(
        &self,
        terms: Terms,
        id: &str,
        wire: Option<v1::EvaluateRetrievalRequest>,
    ) -> Result<v1::EvaluateRetrievalResponse, Status> {
        let asked = to_evaluate(wire.ok_or_else(|| status::unset("request"))?)?;
        self.edge.engine.evaluator.check(&asked.0).map_err(status::of)?;
        when_free(terms.deadline, async || {
            let call = self.edge.admit_question(terms.clone(), id, Place::Generator).await?;
            self.evaluate(&call, asked.clone()).await
        })
        .await
    }
}

/// The error of a question.
fn failed((code, message): (i32, String)) -> v1::QuestionError {
    v1::QuestionError { code, message }
}

#[tonic::async_trait]
impl UtilityService for Service {
    async fn measure_utility(&self, request: Request<v1::MeasureUtilityRequest>) -> Reply<v1::MeasureUtilityResponse> {
        let call = admit::call(&request)?;
        Ok(Response::new(self.measure(&call, to_measure(request.into_inner())?).await?))
    }

    type MeasureUtilityStreamStream = Answers<v1::MeasureUtilityStreamResponse>;

    async fn measure_utility_stream(
        &self,
        request: Request<Streaming<v1::MeasureUtilityStreamRequest>>,
    ) -> Reply<Self::MeasureUtilityStreamStream> {
        use v1::measure_utility_stream_response::Outcome;
        let (service, bounds) = (self.clone(), StreamBounds::of(&self.edge));
        let ask = move |terms, wire: v1::MeasureUtilityStreamRequest| {
            let (service, id) = (service.clone(), wire.id.clone());
            (wire.id, async move { service.measure_question(terms, &id, wire.request).await })
        };
        Ok(Response::new(answer_each(request, bounds, ask, |id, outcome| {
            let outcome = Some(outcome.map_err(failed).map_or_else(Outcome::Error, Outcome::Response));
            v1::MeasureUtilityStreamResponse { id, outcome }
        })?))
    }

    async fn evaluate_retrieval(
        &self,
        request: Request<v1::EvaluateRetrievalRequest>,
    ) -> Reply<v1::EvaluateRetrievalResponse> {
        let call = admit::call(&request)?;
        Ok(Response::new(self.evaluate(&call, to_evaluate(request.into_inner())?).await?))
    }

    type EvaluateRetrievalStreamStream = Answers<v1::EvaluateRetrievalStreamResponse>;

    async fn evaluate_retrieval_stream(
        &self,
        request: Request<Streaming<v1::EvaluateRetrievalStreamRequest>>,
    ) -> Reply<Self::EvaluateRetrievalStreamStream> {
        use v1::evaluate_retrieval_stream_response::Outcome;
        let (service, bounds) = (self.clone(), StreamBounds::of(&self.edge));
        let ask = move |terms, wire: v1::EvaluateRetrievalStreamRequest| {
            let (service, id) = (service.clone(), wire.id.clone());
            (wire.id, async move { service.evaluate_question(terms, &id, wire.request).await })
        };
        Ok(Response::new(answer_each(request, bounds, ask, |id, outcome| {
            let outcome = Some(outcome.map_err(failed).map_or_else(Outcome::Error, Outcome::Response));
            v1::EvaluateRetrievalStreamResponse { id, outcome }
        })?))
    }
}
