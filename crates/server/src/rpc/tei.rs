//! gRPC handlers of tei.v1, the reranking part of text-embeddings-inference's protocol.

use std::time::Duration;

use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, Streaming};

use super::edge::{Edge, answer};
use super::{Reply, admit, status};
use crate::peers::{self, characters, cost_headers, in_a_header, tokens};
use crate::transport::MESSAGE;
use engine::types::{CutSide, EngineError, Limits, MethodRef, Pair, Passage, RerankRequest, Usage};
use numeric;
use prefix_scheduler::call::Call;
use protocol::convert_parts::{known, narrow, wide};
use protocol::tei_v1;
use protocol::tei_v1::info_server::Info;
use protocol::tei_v1::rerank_server::Rerank;

/// Longest wait for the next message of a stream.
const NEXT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Service {
    pub edge: Edge,
    /// Ranks the texts; `None` is the default method.
    pub method: Option<MethodRef>,
}

/// The texts of an answer, and the caller's options for them.
struct Shown {
    /// Empty unless texts are returned.
    texts: Vec<String>,
    raw_scores: bool,
    characters: usize,
}

/// A text's index, score and utility.
type Ranked = (usize, f64, f64);

impl Service {
    /// The answer with texts in this order.
    fn response(
        &self,
        call: &Call,
        ranked: &[Ranked],
        usage: &Usage,
        warnings: impl Iterator<Item = String>,
        shown: &Shown,
    ) -> Response<tei_v1::RerankResponse> {
        #[expect(clippy::cast_possible_truncation, reason = "the protocol has single precision")]
        let rank = |&(index, score, utility): &Ranked| tei_v1::Rank {
            index: narrow(index),
            text: shown.texts.get(index).cloned(),
            score: if shown.raw_scores { utility } else { score } as f32,
        };
        let nanoseconds = |milliseconds: f64| wide(numeric::count(milliseconds * 1e6));
        let metadata = tei_v1::Metadata {
            compute_chars: narrow(shown.characters),
            compute_tokens: narrow(tokens(usage)),
            total_time_ns: nanoseconds(usage.total_ms),
            tokenization_time_ns: nanoseconds(usage.tokenise_ms),
            queue_time_ns: nanoseconds(usage.queue_ms),
            inference_time_ns: nanoseconds(usage.score_ms),
        };
        call.in_span(|| {
            tracing::debug!(
                texts = ranked.len(),
                tokens = tokens(usage),
                milliseconds = usage.total_ms,
                "texts reranked"
            );
        });
        let ranks = ranked.iter().map(rank).collect();
        let mut response = Response::new(tei_v1::RerankResponse { ranks, metadata: Some(metadata) });
        for (key, value) in cost_headers(shown.characters, usage, &self.edge.engine.compute()) {
            if let Ok(value) = value.parse() {
                response.metadata_mut().insert(key, value);
            }
        }
        for warning in warnings {
            if let Ok(value) = in_a_header(&warning).parse() {
                response.metadata_mut().append(peers::WARNING, value);
            }
        }
        response
    }

    async fn ranked(&self, call: &Call, wire: tei_v1::RerankRequest) -> Reply<tei_v1::RerankResponse> {
        let cut_side = cut_side(wire.truncation_direction).map_err(status::of)?;
        let (count, most) = (wire.texts.len(), self.edge.engine.limits().passages);
        if count > most {
            let problem = format!("{count} given, at most {most} allowed");
            return Err(status::of(EngineError::invalid("texts", problem)));
        }
        let shown = Shown {
            characters: characters(&wire.query, wire.texts.iter().map(String::as_str)),
            texts: if wire.return_text { wire.texts.clone() } else { Vec::new() },
            raw_scores: wire.raw_scores,
        };
        let passages = wire.texts.into_iter().enumerate().map(|(index, text)| Passage::untitled(index, text));
        let passages: Vec<Passage> = passages.collect();
        let request = RerankRequest {
            query: wire.query,
            passages,
            method: self.method,
            truncate: Some(wire.truncate),
            cut_side,
            ..RerankRequest::default()
        };
        let work = async {
            let ranked = self.edge.engine.reranker.rerank(call, request, None).await;
            ranked.map_err(|error| peers::named(error, |field| peers::texts_called("texts", field)))
        };
        let answer = answer::<_, EngineError>(call, Box::pin(work)).await?;
        let each = answer.passages.iter();
        let ranked: Vec<Ranked> = each.map(|passage| (passage.index, passage.score, passage.utility)).collect();
        let warnings = answer.warnings.iter().map(|warning| warning.replace("passages[", "texts["));
        Ok(self.response(call, &ranked, &answer.usage, warnings, &shown))
    }

    async fn streamed(
        &self,
        call: &Call,
        messages: Streaming<tei_v1::RerankStreamRequest>,
    ) -> Reply<tei_v1::RerankResponse> {
        let messages = collect(messages, self.edge.engine.limits(), self.edge.message_bytes);
        // For the whole stream: a caller that sends messages slowly must not keep its slot.
        let messages = tokio::time::timeout(MESSAGE, messages).await;
        let (pairs, shown) = messages.map_err(|_| status::stream_late())??;
        let work = async {
            let scored = self.edge.engine.reranker.score_pairs(call, pairs, self.method, "").await;
            scored.map_err(|error| peers::named(error, |field| field.replacen("pairs", "messages", 1)))
        };
        let scored = answer::<_, EngineError>(call, Box::pin(work)).await?;
        let each = scored.scores.iter().enumerate();
        let mut ranked: Vec<Ranked> = each.map(|(index, pair)| (index, pair.score, pair.utility)).collect();
        // Stable: ties keep the order of arrival.
        ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
        let warnings = scored.warnings.iter().map(|warning| warning.replace("pairs[", "messages["));
        Ok(self.response(call, &ranked, &scored.usage, warnings, &shown))
    }
}

/// Reads a stream to its end. Bounds its size like that of a request, and thereby its memory.
async fn collect(
    mut messages: Streaming<tei_v1::RerankStreamRequest>,
    limits: &Limits,
    most_bytes: usize,
) -> Result<(Vec<Pair>, Shown), Status> {
    let refused = |field: String, problem: String| Err(status::of(EngineError::Invalid { field, problem }));
    let mut pairs: Vec<Pair> = Vec::new();
    let mut shown = Shown { texts: Vec::new(), raw_scores: false, characters: 0 };
    let (mut return_text, mut bytes) = (false, 0_usize);
    loop {
        let next = tokio::time::timeout(NEXT, messages.next()).await;
        let next = next.map_err(|_| status::next_late())?;
        let Some(message) = next.transpose()? else { break };
        let index = pairs.len();
        if index == limits.passages {
            return refused("messages".into(), format!("more than {index} given, at most {index} allowed"));
        }
        for (field, text, most) in
            [("query", &message.query, limits.query_bytes), ("text", &message.text, limits.passage_bytes)]
        {
            if text.len() > most {
                let problem = format!("{} bytes given, at most {most} allowed", text.len());
                return refused(format!("messages[{index}].{field}"), problem);
            }
        }
        if message.query.trim().is_empty() {
            return refused(format!("messages[{index}].query"), "must not be empty".into());
        }
        bytes = bytes.saturating_add(message.query.len() + message.text.len());
        if bytes > most_bytes {
            return refused("messages".into(), format!("more than {most_bytes} bytes given"));
        }
        let cut_side = cut_side(message.truncation_direction)
            .map_err(|error| status::of(peers::named(error, |field| format!("messages[{index}].{field}"))))?;
        if index == 0 {
            (shown.raw_scores, return_text) = (message.raw_scores, message.return_text);
        }
        shown.characters += characters(&message.query, std::iter::once(message.text.as_str()));
        if return_text {
            shown.texts.push(message.text.clone());
        }
        let truncate = Some(message.truncate);
        pairs.push(Pair { query: message.query, text: message.text, truncate, cut_side, ..Pair::default() });
    }
    if pairs.is_empty() {
        return refused("messages".into(), "must not be empty".into());
    }
    Ok((pairs, shown))
}

fn cut_side(wire: i32) -> Result<CutSide, EngineError> {
    Ok(match known("truncation_direction", wire)? {
        tei_v1::TruncationDirection::Right => CutSide::End,
        tei_v1::TruncationDirection::Left => CutSide::Beginning,
    })
}

#[tonic::async_trait]
impl Rerank for Service {
    async fn rerank(&self, request: Request<tei_v1::RerankRequest>) -> Reply<tei_v1::RerankResponse> {
        let call = admit::call(&request)?;
        self.ranked(&call, request.into_inner()).await
    }

    async fn rerank_stream(
        &self,
        request: Request<Streaming<tei_v1::RerankStreamRequest>>,
    ) -> Reply<tei_v1::RerankResponse> {
        // The stream is one request: it gets its slot before its messages are read.
        let call = self.edge.admit(admit::terms(&request)?)?;
        let whole = self.streamed(&call, request.into_inner());
        tokio::select! {
            biased;
            answer = whole => answer,
            stopped = call.stopped() => Err(status::of(stopped.into())),
        }
    }
}

#[tonic::async_trait]
impl Info for Service {
    async fn info(&self, _: Request<tei_v1::InfoRequest>) -> Reply<tei_v1::InfoResponse> {
        let engine = &self.edge.engine;
        let model = peers::ServedModel::of(engine, self.method).map_err(status::of)?;
        Ok(Response::new(tei_v1::InfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sha: None,
            docker_label: None,
            model_id: model.name,
            model_sha: model.sha256,
            model_dtype: model.encoding,
            model_type: tei_v1::ModelType::Reranker.into(),
            max_concurrent_requests: narrow(self.edge.admission.limit()),
            max_input_length: narrow(model.longest_input),
            max_batch_tokens: narrow(model.batch),
            max_batch_requests: None,
            max_client_batch_size: narrow(engine.limits().passages),
            tokenization_workers: narrow(peers::tokenising_threads()),
        }))
    }
}
