//! gRPC handlers of RerankService.

use tonic::{Request, Response, Status, Streaming};

use super::edge::{Edge, answer};
use super::events::{Events, with_answer};
use super::questions::{Answers, StreamBounds, answer_each, when_free};
use super::{Reply, admit, status};
use engine::types::{EngineError, RerankRequest, Reranked};
use prefix_scheduler::call::{Call, Terms};
use protocol::v1::rerank_service_server::RerankService;
use protocol::{convert, convert_context, convert_parts, v1};

#[derive(Clone)]
pub(super) struct Service {
    pub edge: Edge,
}

impl Service {
    async fn ranked(&self, call: &Call, wire: v1::RerankRequest) -> Result<v1::RerankResponse, Status> {
        let (request, sent) = read(wire)?;
        self.answered(call, request, &sent).await
    }

    async fn answered(
        &self,
        call: &Call,
        request: RerankRequest,
        sent: &convert::Sent,
    ) -> Result<v1::RerankResponse, Status> {
        let work =
            async { Ok::<_, EngineError>(respond(self.edge.engine.reranker.rerank(call, request, None).await?, sent)) };
        answer(call, Box::pin(work)).await
    }

    /// A question of a stream. The call's slot is free before the answer is sent.
    async fn question(
        &self,
        terms: Terms,
        id: &str,
        wire: Option<v1::RerankRequest>,
    ) -> Result<v1::RerankResponse, Status> {
        let (request, sent) = read(wire.ok_or_else(|| status::unset("request"))?)?;
        // Checked before it waits for a slot and holds its memory.
        self.edge.engine.reranker.check(&request).map_err(status::of)?;
        let place = self.edge.engine.reranker.place_of(&request);
        when_free(terms.deadline, async || {
            let call = self.edge.admit_question(terms.clone(), id, place).await?;
            self.answered(&call, request.clone(), &sent).await
        })
        .await
    }
}

fn read(wire: v1::RerankRequest) -> Result<(RerankRequest, convert::Sent), Status> {
    let whole = wire.return_passages;
    let request = convert::request(wire).map_err(status::of)?;
    let passages = request.passages.iter().map(|passage| v1::Passage {
        id: passage.id.clone(),
        // The text is copied only if the response includes it (`return_passages`).
        text: if whole { passage.text.clone() } else { String::new() },
        title: if whole { passage.title.clone() } else { String::new() },
        retriever_score: passage.retriever_score,
    });
    let passages = passages.collect();
    Ok((request, convert::Sent { passages, whole }))
}

fn respond(reranked: Reranked, sent: &convert::Sent) -> v1::RerankResponse {
    tracing::debug!(
        passages = sent.passages.len(),
        tokens = reranked.usage.tokens,
        naive_tokens = reranked.usage.naive_tokens,
        milliseconds = reranked.usage.total_ms,
        "reranked"
    );
    convert::response(reranked, sent)
}

#[tonic::async_trait]
impl RerankService for Service {
    async fn rerank(&self, request: Request<v1::RerankRequest>) -> Reply<v1::RerankResponse> {
        let call = admit::call(&request)?;
        Ok(Response::new(self.ranked(&call, request.into_inner()).await?))
    }

    type WatchRerankStream = Events<v1::WatchRerankResponse>;

    async fn watch_rerank(&self, request: Request<v1::WatchRerankRequest>) -> Reply<Self::WatchRerankStream> {
        let call = admit::call(&request)?;
        let Some(wire) = request.into_inner().request else {
            return Err(status::unset("request"));
        };
        let (request, sent) = read(wire).map_err(|status| status::under("request", status))?;
        let edge = self.edge.clone();
        let work = |listener| async move {
            let work = async {
                Ok::<_, EngineError>(respond(edge.engine.reranker.rerank(&call, request, Some(listener)).await?, &sent))
            };
            let answer = answer(&call, Box::pin(work)).await.map_err(|status| status::under("request", status))?;
            Ok(v1::WatchRerankResponse { event: Some(v1::watch_rerank_response::Event::Final(answer)) })
        };
        let message = |event| v1::WatchRerankResponse { event: Some(convert::event(event)) };
        Ok(Response::new(with_answer(work, message)))
    }

    type RerankStreamStream = Answers<v1::RerankStreamResponse>;

    async fn rerank_stream(
        &self,
        request: Request<Streaming<v1::RerankStreamRequest>>,
    ) -> Reply<Self::RerankStreamStream> {
        use v1::rerank_stream_response::Outcome;
        let (service, bounds) = (self.clone(), StreamBounds::of(&self.edge));
        let ask = move |terms, wire: v1::RerankStreamRequest| {
            let (service, id) = (service.clone(), wire.request_id.clone());
            (wire.request_id, async move { service.question(terms, &id, wire.request).await })
        };
        Ok(Response::new(answer_each(request, bounds, ask, |request_id, outcome| {
            let failed = |(code, message)| Outcome::Error(v1::RerankStreamError { code, message });
            let outcome = Some(outcome.map_or_else(failed, Outcome::Response));
            v1::RerankStreamResponse { request_id, outcome }
        })?))
    }

    async fn build_context(&self, request: Request<v1::BuildContextRequest>) -> Reply<v1::BuildContextResponse> {
        let call = admit::call(&request)?;
        let request = convert_context::request(request.into_inner()).map_err(status::of)?;
        let ids: Vec<String> = request.ranking.passages.iter().map(|passage| passage.id.clone()).collect();
        let built = answer(&call, Box::pin(self.edge.engine.context_builder.build(&call, request))).await?;
        call.in_span(|| {
            tracing::debug!(
                passages = built.passages.len(),
                tokens = built.usage.tokens,
                context_tokens = built.tokens,
                milliseconds = built.usage.total_ms,
                "context built"
            );
        });
        Ok(Response::new(convert_context::response(built, &ids)))
    }

    type WarmPassagesStream = Events<v1::WarmPassagesResponse>;

    async fn warm_passages(&self, request: Request<v1::WarmPassagesRequest>) -> Reply<Self::WarmPassagesStream> {
        let call = admit::call(&request)?;
        let passages = convert_parts::passages(request.into_inner().passages);
        let engine = self.edge.engine.clone();
        let model = engine.scorer().map_err(status::of)?.info.name.clone();
        let name = model.clone();
        let work = |listener| async move {
            let work = engine.prefiller.prefill(&call, passages, Some(listener));
            Ok(protocol::convert_models::warm_progress(&name, &answer(&call, Box::pin(work)).await?))
        };
        Ok(Response::new(with_answer(work, move |progress| protocol::convert_models::warm_progress(&model, &progress))))
    }
}
