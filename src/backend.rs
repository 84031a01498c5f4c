//! Where a command's requests are answered: by a server, or by an engine in this process. Both answer in the protocol's types,
//! so that a command shows the same for either.

mod identity;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::engine::belief::TextPair;
use crate::engine::evaluate::EvaluateRequest;
use crate::engine::prompt::Frame;
use crate::engine::rerank::RerankRequest;
use crate::engine::task::{Task, TaskKind};
use crate::engine::utility::UtilityRequest;
use crate::engine::{Engine, EngineError};
use crate::rpc::client::{self, ClientError};
use crate::rpc::convert_task::kind_to_wire;
use crate::rpc::{connect, v1};
pub(crate) use identity::ModelIdentity;

/// A server or an engine in this process.
pub(crate) enum Backend {
    Server(Box<Remote>),
    Local(Box<Engine>),
}

/// A server that a command asks.
pub(crate) struct Remote {
    server: connect::Server,
    /// Most bytes of an answer.
    message_bytes: usize,
    /// Whether it answered before: an address at which nobody ever was is a mistake, and not a server that starts again.
    met: AtomicBool,
}

/// A backend that cannot answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// The server refused or is not reachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine in this process failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backend answered, but not what was asked for.
    #[error("{0}")]
    Unsuitable(String),
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The question is at fault. Other questions may be answered.
    Question(String),
    /// The backend cannot answer any question.
    Fatal(BackendError),
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Invalid { .. }
            | EngineError::TooLong { .. }
            | EngineError::Budget { .. }
            | EngineError::Pairs { .. } => Self::Question(error.to_string()),
            other => Self::Fatal(other.into()),
        }
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { message, input: true, .. } => Self::Question(message),
            other => Self::Fatal(other.into()),
        }
    }
}

/// Longest wait for a server that is busy or away for a moment.
const PATIENCE: Duration = Duration::from_mins(1);

impl Remote {
    /// Asks again where the server says that the same request may be answered later, and where it is away after it answered: one
    /// busy moment, or a server that starts again, must not end the work on a file. The answer comes with the time that it took
    /// itself.
    async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<(T, Duration), ClientError> {
        let mut end = None;
        loop {
            let begun = Instant::now();
            let error = match ask().await {
                Ok(answer) => {
                    self.met.store(true, Ordering::Relaxed);
                    return Ok((answer, begun.elapsed()));
                }
                Err(error) => error,
            };
            let delay = match &error {
                ClientError::Refused { input: false, retry, .. } => *retry,
                ClientError::Unreachable { .. } if self.met.load(Ordering::Relaxed) => Some(client::UNTOLD),
                _ => None,
            };
            // From the first refusal on: a request itself may have taken longer.
            let end = *end.get_or_insert_with(|| Instant::now() + PATIENCE);
            let Some(delay) = delay.filter(|delay| Instant::now() + *delay < end) else { return Err(error) };
            self.met.store(true, Ordering::Relaxed);
            tokio::time::sleep(delay).await;
        }
    }
}

/// Refuses an answer to another task. A server without the field `task` ignores it.
fn check_task(asked: &Task, answered: v1::Task) -> Result<(), Refusal> {
    if asked.kind == TaskKind::default() || kind_to_wire(asked.kind) == answered {
        return Ok(());
    }
    let problem = format!("the server does not know the task {}: it is older than this program", asked.kind.name());
    Err(Refusal::Fatal(BackendError::Unsuitable(problem)))
}

impl Backend {
    /// A server. Answers of more bytes are refused.
    pub fn server(server: connect::Server, message_bytes: usize) -> Self {
        Self::Server(Box::new(Remote { server, message_bytes, met: AtomicBool::new(false) }))
    }

    /// Whether the generator can take prompts of this frame. Only an engine in this process can be asked.
    pub fn try_frame(&self, frame: Frame) -> Result<(), BackendError> {
        match self {
            Self::Server(_) => Err(BackendError::Unsuitable("a server has one frame".to_owned())),
            Self::Local(engine) => Ok(engine.generator()?.with_frame(Some(frame)).map(drop)?),
        }
    }

    /// For a manifest: what of the engine in this process decides which requests it takes, how it cuts passages, and what a cell of
    /// its cache is. `None` for a server, which does not tell.
    pub fn bounds(&self) -> Result<Option<serde_json::Value>, BackendError> {
        let Self::Local(engine) = self else { return Ok(None) };
        let limits = engine.limits();
        let mut models = serde_json::Map::new();
        for model in engine.models().generators() {
            let served = model.get()?;
            let of_cells = serde_json::json!({ "cells": served.info.cell_type, "context": served.context()? });
            models.insert(model.role().name().to_owned(), of_cells);
        }
        Ok(Some(serde_json::json!({
            "models": models,
            "tokens": limits.tokens,
            "orders": limits.orders,
            "passages": limits.passages,
            "passage_bytes": limits.passage_bytes,
            "query_bytes": limits.query_bytes,
            "pairs": limits.pairs,
            "truncate": limits.truncate,
        })))
    }

    /// Leaves out calibrations of the engine in this process.
    pub fn without_calibrations(&self) -> Result<(), BackendError> {
        if let Self::Local(engine) = self {
            for model in engine.models().generators() {
                model.get()?.calibrations.replace(Vec::new());
            }
        }
        Ok(())
    }

    /// Reranks passages.
    pub async fn rerank(&self, request: &RerankRequest) -> Result<v1::RerankResponse, Refusal> {
        Ok(self.timed_rerank(request).await?.0)
    }

    /// The same, and the time from the request to its answer. What passed before a busy server took the request is no part of it.
    pub async fn timed_rerank(&self, request: &RerankRequest) -> Result<(v1::RerankResponse, Duration), Refusal> {
        Ok(match self {
            Self::Server(remote) => {
                let Remote { server, message_bytes, .. } = &**remote;
                remote.patiently(|| client::rerank(server, request, *message_bytes, |_, _| {})).await?
            }
            Self::Local(engine) => {
                let begun = Instant::now();
                let answer = engine.rerank(&Call::local(), request.clone(), None).await?;
                (client::local_response(answer, request), begun.elapsed())
            }
        })
    }

    /// Measures the utility of one question's passages; the sampled answers come with it where `answers`.
    pub async fn utility(
        &self,
        request: &UtilityRequest,
        answers: bool,
    ) -> Result<v1::MeasureUtilityResponse, Refusal> {
        Ok(match self {
            Self::Server(remote) => {
                let Remote { server, message_bytes, .. } = &**remote;
                let answer = remote.patiently(|| client::utility(server, request, answers, *message_bytes)).await?.0;
                check_task(&request.task, answer.task())?;
                answer
            }
            Self::Local(engine) => {
                let report = engine.utility(&Call::local(), request.clone(), None).await?;
                client::local_utility(&report, answers, &engine.generator()?.info)
            }
        })
    }

    /// Judges pairs of texts, each text after the question. One verdict a pair, in their order.
    pub async fn entail(&self, pairs: Vec<TextPair>, question: &str) -> Result<Vec<v1::EntailmentVerdict>, Refusal> {
        Ok(match self {
            Self::Server(remote) => remote.patiently(|| client::entail(&remote.server, &pairs, question)).await?.0,
            Self::Local(engine) => client::local_verdicts(&engine.entail(&Call::local(), pairs, question).await?),
        })
    }

    /// BERTScore of texts against their best reference. `None` where it cannot be computed: over a server, whose protocol has it for
    /// answers of its generator only, without an embedding model that gives states of tokens, and for more tokens than are compared.
    pub async fn bert_scores(&self, texts: &[String], references: &[String]) -> Result<Option<Vec<f64>>, Refusal> {
        let Self::Local(engine) = self else { return Ok(None) };
        match engine.bert_scores(&Call::local(), texts, references).await {
            Ok(scores) => Ok(Some(scores)),
            Err(EngineError::Precondition(_) | EngineError::Invalid { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Evaluates the retrieval of one question; the answers come with it where `answers`.
    pub async fn evaluate(
        &self,
        request: &EvaluateRequest,
        answers: bool,
    ) -> Result<v1::EvaluateRetrievalResponse, Refusal> {
        Ok(match self {
            Self::Server(remote) => {
                let Remote { server, message_bytes, .. } = &**remote;
                let answer = remote.patiently(|| client::evaluate(server, request, answers, *message_bytes)).await?.0;
                check_task(&request.task, answer.task())?;
                answer
            }
            Self::Local(engine) => {
                let report = engine.evaluate(&Call::local(), request.clone()).await?;
                client::local_evaluation(&report, request, answers, &engine.generator()?.info)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A server that restarts between two lists of a file ended the command.
    #[tokio::test]
    async fn a_server_that_answered_once_may_be_away_for_a_moment() {
        let away = || ClientError::Unreachable { address: "h:1".into(), problem: "refused".into() };
        let answers = Mutex::new(vec![Ok(2), Err(away()), Ok(1), Err(away())]);
        let ask = || async { answers.lock().unwrap().pop().unwrap() };
        let Backend::Server(remote) = Backend::server("h:1".into(), 1) else { panic!() };
        assert!(matches!(remote.patiently(ask).await, Err(ClientError::Unreachable { .. })), "nobody was ever there");
        assert_eq!(remote.patiently(ask).await.unwrap().0, 1);
        assert_eq!(remote.patiently(ask).await.unwrap().0, 2);
        assert!(answers.lock().unwrap().is_empty());
    }
}
