//! UtilityService.

use std::pin::Pin;
use std::time::Instant;

use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::deadline::within;
use super::v1::measure_utility_stream_response::Outcome;
use super::v1::utility_service_server::UtilityService;
use super::{convert_belief, deadline, status, v1};
use crate::engine::{Engine, EngineError};

/// Questions of one stream that are worked on at once; more wait in the transport.
const AT_ONCE: usize = 4;

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

    async fn answer(
        &self,
        asked: v1::MeasureUtilityStreamRequest,
        until: Option<Instant>,
    ) -> v1::MeasureUtilityStreamResponse {
        let outcome = match asked.request {
            Some(request) => self.measure(request, until).await,
            None => Err(status::of(&EngineError::invalid("request", "must be set"))),
        };
        let outcome = match outcome {
            Ok(response) => Outcome::Response(response),
            Err(status) => {
                Outcome::Error(v1::QuestionError { code: status.code() as i32, message: status.message().to_owned() })
            }
        };
        v1::MeasureUtilityStreamResponse { id: asked.id, outcome: Some(outcome) }
    }
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

    type MeasureUtilityStreamStream =
        Pin<Box<dyn Stream<Item = Result<v1::MeasureUtilityStreamResponse, Status>> + Send>>;

    async fn measure_utility_stream(
        &self,
        call: Request<Streaming<v1::MeasureUtilityStreamRequest>>,
    ) -> Result<Response<Self::MeasureUtilityStreamStream>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        let mut asked = call.into_inner();
        let (sender, answers) = tokio::sync::mpsc::channel(AT_ONCE);
        let service = self.clone();
        tokio::spawn(async move {
            let places = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
            // Questions in flight end with this set, and it ends when the caller leaves.
            let mut work = tokio::task::JoinSet::new();
            loop {
                let place = std::sync::Arc::clone(&places).acquire_owned();
                let next = tokio::select! {
                    () = sender.closed() => return,
                    next = async { place.await.ok().zip(Some(asked.next().await)) } => next,
                };
                match next {
                    Some((place, Some(Ok(question)))) => {
                        let (service, sender) = (service.clone(), sender.clone());
                        work.spawn(async move {
                            let answer = service.answer(question, until).await;
                            let _ = sender.send(Ok(answer)).await;
                            drop(place);
                        });
                    }
                    Some((_, Some(Err(status)))) => {
                        let _ = sender.send(Err(status)).await;
                        break;
                    }
                    Some((_, None)) | None => break,
                }
                while work.try_join_next().is_some() {}
            }
            tokio::select! {
                () = sender.closed() => {}
                () = async { while work.join_next().await.is_some() {} } => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}
