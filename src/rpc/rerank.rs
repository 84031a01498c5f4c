//! gRPC handlers of RerankService.

use tonic::{Request, Response, Status};

use super::edge::{Edge, answer};
use super::events::{Events, with_answer};
use super::v1::rerank_service_server::RerankService;
use super::{admit, convert, status, v1};
use crate::engine::EngineError;
use crate::engine::rerank::{RerankRequest, Reranked};

pub(super) struct Service {
    pub edge: Edge,
}

fn read(wire: v1::RerankRequest) -> Result<(RerankRequest, convert::Sent), Status> {
    let whole = wire.return_passages;
    let request = convert::request(wire).map_err(|error| status::of(&error))?;
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

fn respond(edge: &Edge, reranked: Reranked, sent: &convert::Sent) -> Result<v1::RerankResponse, EngineError> {
    tracing::info!(
        passages = sent.passages.len(),
        tokens = reranked.usage.tokens,
        naive_tokens = reranked.usage.naive_tokens,
        milliseconds = reranked.usage.total_ms,
        "reranked"
    );
    Ok(convert::response(reranked, sent, &edge.engine.generator()?.info))
}

#[tonic::async_trait]
impl RerankService for Service {
    async fn rerank(&self, request: Request<v1::RerankRequest>) -> Result<Response<v1::RerankResponse>, Status> {
        let call = admit::call(&request)?;
        let (request, sent) = read(request.into_inner())?;
        let work = async { respond(&self.edge, self.edge.engine.rerank(&call, request, None).await?, &sent) };
        Ok(Response::new(answer(&call, Box::pin(work)).await?))
    }

    type WatchRerankStream = Events<v1::WatchRerankResponse>;

    async fn watch_rerank(
        &self,
        request: Request<v1::WatchRerankRequest>,
    ) -> Result<Response<Self::WatchRerankStream>, Status> {
        let call = admit::call(&request)?;
        let Some(wire) = request.into_inner().request else {
            return Err(status::of(&EngineError::invalid("request", "must be set")));
        };
        let (request, sent) = read(wire).map_err(|status| status::under("request", status))?;
        let edge = self.edge.clone();
        let work = |listener| async move {
            let work = async { respond(&edge, edge.engine.rerank(&call, request, Some(listener)).await?, &sent) };
            let answer = answer(&call, Box::pin(work)).await?;
            Ok(v1::WatchRerankResponse { event: Some(v1::watch_rerank_response::Event::Final(answer)) })
        };
        let message = |event| v1::WatchRerankResponse { event: Some(convert::event(event)) };
        Ok(Response::new(with_answer(work, message)))
    }
}
