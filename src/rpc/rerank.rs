//! RerankService.

use std::pin::Pin;
use std::time::Instant;

use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::deadline::within;
use super::v1::rerank_service_server::RerankService;
use super::{convert, deadline, status, v1};
use crate::engine::rerank::{RerankRequest, Reranked};
use crate::engine::{Engine, EngineError};

pub(super) struct Service {
    pub engine: Engine,
}

impl Service {
    fn read(wire: v1::RerankRequest) -> Result<(RerankRequest, convert::Sent), Status> {
        let whole = wire.return_passages;
        let request = convert::request(wire).map_err(|error| status::of(&error))?;
        let passages = request.passages.iter().map(|passage| v1::Passage {
            id: passage.id.clone(),
            // The text is copied only for a caller who wants it back.
            text: if whole { passage.text.clone() } else { String::new() },
            title: if whole { passage.title.clone() } else { String::new() },
            retriever_score: passage.retriever_score,
        });
        let passages = passages.collect();
        Ok((request, convert::Sent { passages, whole }))
    }

    fn answer(
        &self,
        outcome: Result<Reranked, EngineError>,
        sent: &convert::Sent,
    ) -> Result<v1::RerankResponse, Status> {
        let answer = outcome.map_err(|error| status::of(&error))?;
        tracing::info!(
            passages = sent.passages.len(),
            tokens = answer.usage.tokens,
            naive_tokens = answer.usage.naive_tokens,
            milliseconds = answer.usage.total_ms,
            "reranked"
        );
        Ok(convert::response(answer, sent, self.engine.info()))
    }
}

#[tonic::async_trait]
impl RerankService for Service {
    async fn rerank(&self, call: Request<v1::RerankRequest>) -> Result<Response<v1::RerankResponse>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        let (request, sent) = Self::read(call.into_inner())?;
        let outcome = within(until, self.engine.rerank(request, until, None)).await;
        Ok(Response::new(self.answer(outcome, &sent)?))
    }

    type WatchRerankStream = Pin<Box<dyn Stream<Item = Result<v1::WatchRerankResponse, Status>> + Send>>;

    async fn watch_rerank(
        &self,
        call: Request<v1::WatchRerankRequest>,
    ) -> Result<Response<Self::WatchRerankStream>, Status> {
        let until = deadline::of(call.metadata(), Instant::now());
        let Some(wire) = call.into_inner().request else {
            return Err(status::of(&EngineError::invalid("request", "must be set")));
        };
        let (request, sent) = Self::read(wire).map_err(|status| status::under("request", status))?;
        let (sender, events) = unbounded_channel();
        let engine = self.engine.clone();
        let service = Self { engine: self.engine.clone() };
        let told = tokio_stream::wrappers::UnboundedReceiverStream::new(events)
            .map(|event| Ok(v1::WatchRerankResponse { event: Some(convert::event(event)) }));
        let (last, answered) = tokio::sync::oneshot::channel();
        let answer = tokio_stream::once(answered)
            .then(|answered| async { answered.await.unwrap_or_else(|_| Err(Status::internal("no answer"))) });
        // The work lives in the stream, beside its events: a caller that leaves drops both. The answer waits until all
        // events are told.
        let work = async move {
            let outcome = within(until, engine.rerank(request, until, Some(sender))).await;
            let event =
                |answer| v1::WatchRerankResponse { event: Some(v1::watch_rerank_response::Event::Final(answer)) };
            let _ = last.send(service.answer(outcome, &sent).map(event));
        };
        let silent = tokio_stream::once(work).then(|work| work).filter_map(|()| None);
        Ok(Response::new(Box::pin(told.chain(answer).merge(silent))))
    }
}
