//! gRPC handlers of BeliefService: sampling, entailment, clustering and citations.

use tonic::{Request, Response};

use super::edge::{Edge, answer};
use super::events::{Events, with_answer};
use super::{Reply, admit, status};
use engine::types::{BeliefEvent, EngineError};
use prefix_scheduler::model::entailment::TextPair;
use protocol::convert_parts::{narrow, usage, wide};
use protocol::v1::belief_service_server::BeliefService;
use protocol::{convert_belief, convert_citation, convert_task, v1};

pub(super) struct Service {
    pub edge: Edge,
}

fn message(event: BeliefEvent) -> v1::SampleResponse {
    use v1::sample_response::Event;
    let event = match event {
        BeliefEvent::Sampled(_, number, answer) => {
            Event::Sampled(v1::SampledAnswer { number: narrow(number), answer: Some(convert_belief::answer(&answer)) })
        }
        BeliefEvent::Progress(done, total) => {
            Event::Progress(v1::Progress { tokens_done: wide(done), tokens_total: wide(total) })
        }
    };
    v1::SampleResponse { event: Some(event) }
}

#[tonic::async_trait]
impl BeliefService for Service {
    type SampleStream = Events<v1::SampleResponse>;

    async fn sample(&self, request: Request<v1::SampleRequest>) -> Reply<Self::SampleStream> {
        let call = admit::call(&request)?;
        let request = convert_belief::sample_request(request.into_inner()).map_err(status::of)?;
        let engine = self.edge.engine.clone();
        let work = |listener| async move {
            let work = async {
                let sampled = engine.sampler.sample(&call, request, Some(listener)).await?;
                Ok::<_, EngineError>((sampled, engine.generator()?))
            };
            let (sampled, generator) = answer(&call, Box::pin(work)).await?;
            let done = v1::SamplesDone {
                usage: Some(usage(&sampled.usage)),
                model: generator.info.name.clone(),
                model_sha256: generator.info.sha256.clone(),
                adapter: generator.info.adapter.as_ref().map(protocol::convert_models::adapter_to_wire),
                label_probabilities: sampled
                    .labels
                    .first()
                    .map_or_else(Vec::new, |labels| convert_task::probabilities(labels)),
                warnings: sampled.warnings(),
            };
            Ok(v1::SampleResponse { event: Some(v1::sample_response::Event::Done(done)) })
        };
        Ok(Response::new(with_answer(work, message)))
    }

    async fn entail(&self, request: Request<v1::EntailRequest>) -> Reply<v1::EntailResponse> {
        let call = admit::call(&request)?;
        let wire = request.into_inner();
        let pairs = wire.pairs.into_iter().map(|pair| TextPair::new(pair.premise, pair.hypothesis));
        let judged = answer(&call, self.edge.engine.belief.entail(&call, pairs.collect(), &wire.question)).await?;
        Ok(Response::new(v1::EntailResponse {
            verdicts: judged.verdicts.iter().map(convert_belief::verdict).collect(),
            judged_pairs: narrow(judged.judged),
            model: judged.model.name,
            model_sha256: judged.model.sha256,
        }))
    }

    async fn cluster(&self, request: Request<v1::ClusterRequest>) -> Reply<v1::ClusterResponse> {
        let call = admit::call(&request)?;
        let wire = request.into_inner();
        let rule = convert_belief::rule(wire.rule, wire.threshold, "rule").map_err(status::of)?;
        let work = self.edge.engine.belief.cluster(&call, &wire.texts, &wire.question, rule);
        let (clusters, judged) = answer(&call, work).await?;
        Ok(Response::new(v1::ClusterResponse {
            cluster_of: clusters.of.into_iter().map(narrow).collect(),
            founders: clusters.founders.into_iter().map(narrow).collect(),
            judged_pairs: narrow(judged),
        }))
    }

    async fn check_citations(&self, request: Request<v1::CheckCitationsRequest>) -> Reply<v1::CheckCitationsResponse> {
        let call = admit::call(&request)?;
        let request = convert_citation::request(request.into_inner());
        let report = answer(&call, self.edge.engine.citations.check(&call, request)).await?;
        Ok(Response::new(convert_citation::response(report)))
    }
}
