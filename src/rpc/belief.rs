//! BeliefService.

use std::pin::Pin;
use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::convert::{narrow, usage, wide};
use super::deadline::within;
use super::v1::belief_service_server::BeliefService;
use super::{convert_belief, deadline, status, v1};
use crate::engine::belief::BeliefEvent;
use crate::engine::{Engine, EngineError};
use crate::model::entailment::TextPair;

pub(super) struct Service {
    pub engine: Engine,
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn refused(error: EngineError) -> Status {
    status::of(&error)
}

#[tonic::async_trait]
impl BeliefService for Service {
    type SampleStream = Pin<Box<dyn Stream<Item = Result<v1::SampleResponse, Status>> + Send>>;

    async fn sample(&self, call: Request<v1::SampleRequest>) -> Result<Response<Self::SampleStream>, Status> {
        use v1::sample_response::Event;
        let until = deadline::of(call.metadata(), Instant::now());
        let request = convert_belief::sample_request(call.into_inner()).map_err(refused)?;
        let (sender, events) = unbounded_channel();
        let engine = self.engine.clone();
        let told = tokio_stream::wrappers::UnboundedReceiverStream::new(events).map(|event| {
            let event = match event {
                BeliefEvent::Sampled(_, number, answer) => Event::Sampled(v1::SampledAnswer {
                    number: narrow(number),
                    answer: Some(convert_belief::answer(&answer)),
                }),
                BeliefEvent::Progress(done, total) => {
                    Event::Progress(v1::Progress { tokens_done: wide(done), tokens_total: wide(total) })
                }
            };
            Ok(v1::SampleResponse { event: Some(event) })
        });
        let (last, answered) = tokio::sync::oneshot::channel();
        let answer = tokio_stream::once(answered)
            .then(|answered| async { answered.await.unwrap_or_else(|_| Err(Status::internal("no answer"))) });
        // The work lives in the stream, beside its events: a caller that leaves drops both.
        let work = async move {
            let outcome = within(until, engine.sample(request, until, Some(sender))).await;
            let done = outcome.map_err(refused).map(|sampled| v1::SampleResponse {
                event: Some(Event::Done(v1::SamplesDone {
                    usage: Some(usage(&sampled.usage)),
                    model: engine.info().name.clone(),
                    model_sha256: engine.info().sha256.clone(),
                })),
            });
            let _ = last.send(done);
        };
        let silent = tokio_stream::once(work).then(|work| work).filter_map(|()| None);
        Ok(Response::new(Box::pin(told.chain(answer).merge(silent))))
    }

    async fn entail(&self, call: Request<v1::EntailRequest>) -> Result<Response<v1::EntailResponse>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        let asked = call.into_inner();
        let pairs = asked.pairs.into_iter().map(|pair| TextPair { premise: pair.premise, hypothesis: pair.hypothesis });
        let work = self.engine.entail(pairs.collect(), &asked.question, until);
        let judged = within(until, work).await.map_err(refused)?;
        Ok(Response::new(v1::EntailResponse {
            verdicts: judged.verdicts.iter().map(convert_belief::verdict).collect(),
            judged_pairs: narrow(judged.judged),
            model: judged.model.name,
            model_sha256: judged.model.sha256,
        }))
    }

    async fn cluster(&self, call: Request<v1::ClusterRequest>) -> Result<Response<v1::ClusterResponse>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        let asked = call.into_inner();
        let rule = convert_belief::rule(asked.rule, asked.threshold, "rule").map_err(refused)?;
        let work = self.engine.cluster(&asked.texts, &asked.question, rule, until);
        let (clusters, judged) = within(until, work).await.map_err(refused)?;
        Ok(Response::new(v1::ClusterResponse {
            cluster_of: clusters.of.into_iter().map(narrow).collect(),
            founders: clusters.founders.into_iter().map(narrow).collect(),
            judged_pairs: narrow(judged),
        }))
    }
}
