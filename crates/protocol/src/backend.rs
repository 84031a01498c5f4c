//! The backend of a command: a server, or an engine in this process. Both answer with the protocol's types, so that a
//! command shows the same output for either.

mod identity;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::client::{self, ClientError};
use crate::convert_task::kind_to_wire;
use crate::{connect, v1};
use engine::Engine;
use engine::types::{EngineError, EvaluateRequest, RerankRequest, Task, TaskKind, UtilityRequest};
pub use identity::ModelIdentity;
use prefix_scheduler::call::Call;
use prefix_scheduler::model::PromptFormat;
use prefix_scheduler::model::entailment::TextPair;

/// A server or an engine in this process.
pub enum Backend {
    Server(Box<Remote>),
    Local(Box<Engine>),
}

/// A server that a command asks.
pub struct Remote {
    server: connect::Server,
    /// Most bytes of a response.
    message_bytes: usize,
    /// True after the first response. Before it, an unreachable address is a mistake rather than a restarting server.
    met: AtomicBool,
    /// Time of the last response.
    answered: Mutex<Option<Instant>>,
    /// Number of requests that the server is working on.
    asking: AtomicUsize,
    /// Longest wait for a server that is busy or briefly unreachable.
    patience: Duration,
}

/// A backend that cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The server refused or is not reachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine in this process failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backend answered a different request than was sent.
    #[error("{0}")]
    Unsuitable(String),
}

impl BackendError {
    /// True if the backend is not set up for the request.
    pub fn is_precondition(&self) -> bool {
        match self {
            Self::Client(error) => error.is_precondition(),
            Self::Engine(error) => matches!(error, EngineError::Precondition(_)),
            Self::Unsuitable(_) => false,
        }
    }
}

/// The reason why a question has no answer.
#[derive(Debug)]
pub enum Refusal {
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

/// [`Remote::patience`] of commands.
const PATIENCE: Duration = Duration::from_mins(1);

/// If all concurrent requests are refused at the same moments, each looks as if the server worked on the others. After
/// this many times the patience without any response, that no longer counts.
const SILENT: u32 = 10;

impl Remote {
    /// Repeats a request if the server says that it may be answered later, or becomes unreachable after an earlier
    /// response: a busy or restarting server must not end the work on a file. Also returns the time that the last attempt
    /// took.
    ///
    /// A server refuses those of many concurrent requests that would wait too long for the others. While it answers some
    /// of them, it does not count as busy for too long.
    async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<(T, Duration), ClientError> {
        let (mut refused, mut since) = (None, None);
        loop {
            let before = self.asking.load(Ordering::Relaxed);
            let (asking, begun) = (Asking::begin(&self.asking), Instant::now());
            let error = match ask().await {
                Ok(answer) => {
                    self.met.store(true, Ordering::Relaxed);
                    *self.answered() = Some(Instant::now());
                    return Ok((answer, begun.elapsed()));
                }
                Err(error) => error,
            };
            drop(asking);
            let delay = match &error {
                ClientError::Refused { input: false, retry, .. } => *retry,
                ClientError::Unreachable { .. } if self.met.load(Ordering::Relaxed) => Some(client::UNTOLD),
                _ => None,
            };
            // Measured from the first refusal, because a request itself may take longer.
            let now = Instant::now();
            let (first, since) = (*refused.get_or_insert(now), since.get_or_insert(now));
            let busy = matches!(&error, ClientError::Refused { code, .. } if *code == client::BUSY);
            // The server's work then includes other requests of this process.
            let with_others = busy && before.max(self.asking.load(Ordering::Relaxed)) > 0;
            let progress = self.answered().map_or(first, |answered| answered.max(first));
            if with_others && now.saturating_duration_since(progress) < self.patience * SILENT {
                *since = now;
            } else if busy {
                *since = progress.max(*since);
            }
            let left = (*since + self.patience).saturating_duration_since(now);
            let delay = delay.map(|delay| if with_others { delay.min(left) } else { delay });
            let Some(delay) = delay.filter(|delay| *delay <= left && !left.is_zero()) else { return Err(error) };
            self.met.store(true, Ordering::Relaxed);
            tokio::time::sleep(delay).await;
        }
    }

    fn answered(&self) -> MutexGuard<'_, Option<Instant>> {
        self.answered.lock()
    }
}

/// Counts a request while it is in the server's hands.
struct Asking<'a>(&'a AtomicUsize);

impl<'a> Asking<'a> {
    fn begin(asking: &'a AtomicUsize) -> Self {
        asking.fetch_add(1, Ordering::Relaxed);
        Self(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Refuses a response for another task. A server without the field `task` ignores it.
fn check_task(asked: &Task, answered: v1::Task) -> Result<(), Refusal> {
    if asked.kind == TaskKind::default() || kind_to_wire(asked.kind) == answered {
        return Ok(());
    }
    let problem = format!("the server does not know the task {}: it is older than this program", asked.kind.name());
    Err(Refusal::Fatal(BackendError::Unsuitable(problem)))
}

impl Backend {
    /// A server. Larger responses than `message_bytes` are refused.
    pub fn server(server: connect::Server, message_bytes: usize) -> Self {
        let (met, answered, asking) = (AtomicBool::new(false), Mutex::new(None), AtomicUsize::new(0));
        Self::Server(Box::new(Remote { server, message_bytes, met, answered, asking, patience: PATIENCE }))
    }

    /// Checks that the generator can take prompts of this format. Only possible for an engine in this process.
    pub fn try_frame(&self, frame: PromptFormat) -> Result<(), BackendError> {
        match self {
            Self::Server(_) => Err(BackendError::Unsuitable("a server has one frame".to_owned())),
            Self::Local(engine) => Ok(engine.generator()?.with_frame(Some(frame)).map(drop)?),
        }
    }

    /// For a manifest: settings of the engine in this process that affect which requests it accepts, how it truncates
    /// passages, and the KV cache's number format. `None` for a server, which does not report them.
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

    /// Reranks passages, and returns the time from request to response, without the waiting for a busy server.
    pub async fn timed_rerank(&self, request: &RerankRequest) -> Result<(v1::RerankResponse, Duration), Refusal> {
        Ok(match self {
            Self::Server(remote) => {
                let Remote { server, message_bytes, .. } = &**remote;
                remote.patiently(|| client::rerank(server, request, *message_bytes, |_, _| {})).await?
            }
            Self::Local(engine) => {
                let begun = Instant::now();
                let answer = engine.reranker.rerank(&Call::local(), request.clone(), None).await?;
                (client::local_response(answer, request), begun.elapsed())
            }
        })
    }

    /// Measures the utility of one question's passages; includes the sampled answers if `answers` is set.
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
                let report = engine.utility.measure(&Call::local(), request.clone(), None).await?;
                client::local_utility(&report, answers, &engine.generator()?.info)
            }
        })
    }

    /// Judges pairs of texts, each text after the question. Returns one verdict per pair, in input order.
    pub async fn entail(&self, pairs: Vec<TextPair>, question: &str) -> Result<Vec<v1::EntailmentVerdict>, Refusal> {
        Ok(match self {
            Self::Server(remote) => remote.patiently(|| client::entail(&remote.server, &pairs, question)).await?.0,
            Self::Local(engine) => {
                client::local_verdicts(&engine.belief.entail(&Call::local(), pairs, question).await?)
            }
        })
    }

    /// BERTScore of texts against their best reference. `None` if it cannot be computed: over a server, whose protocol
    /// offers it only for answers of its generator; without an embedding model that gives vectors of tokens; for more
    /// tokens than the limit; and for texts that the model cannot read. The last two are logged.
    pub async fn bert_scores(&self, texts: &[String], references: &[String]) -> Result<Option<Vec<f64>>, Refusal> {
        let Self::Local(engine) = self else { return Ok(None) };
        match engine.bert.scores(&Call::local(), texts, references).await {
            Ok(scores) => Ok(Some(scores)),
            Err(EngineError::Precondition(_)) => Ok(None),
            Err(error @ EngineError::Invalid { .. }) => {
                tracing::warn!(%error, "one question has no BERTScore");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Evaluates the retrieval of one question; includes the answers if `answers` is set.
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
                let report = engine.evaluator.evaluate(&Call::local(), request.clone()).await?;
                client::local_evaluation(&report, request, answers, &engine.generator()?.info)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that restarts between two lists of a file must not end the command.
    #[tokio::test]
    async fn a_server_that_answered_once_may_be_away_for_a_moment() {
        let away = || ClientError::Unreachable { address: "h:1".into(), problem: "refused".into() };
        let answers = Mutex::new(vec![Ok(2), Err(away()), Ok(1), Err(away())]);
        let ask = || async { answers.lock().pop().unwrap() };
        let Backend::Server(remote) = Backend::server("h:1".into(), 1) else { panic!() };
        assert!(matches!(remote.patiently(ask).await, Err(ClientError::Unreachable { .. })), "nobody was ever there");
        assert_eq!(remote.patiently(ask).await.unwrap().0, 1);
        assert_eq!(remote.patiently(ask).await.unwrap().0, 2);
        assert!(answers.lock().is_empty());
    }

    /// The server may refuse one of many concurrent requests for a minute while it answers the others.
    #[tokio::test]
    async fn a_server_that_answers_the_others_is_not_busy_for_too_long() {
        let Backend::Server(mut remote) = Backend::server("h:1".into(), 1) else { panic!() };
        remote.patience = Duration::from_secs(1);
        let refusal = |code: &str, delay| ClientError::Refused {
            code: code.into(),
            message: "not now".into(),
            input: false,
            retry: Some(Duration::from_millis(delay)),
        };
        let busy = || refusal(client::BUSY, 60_000);
        let until = |end: Instant| move || async move { if Instant::now() < end { Err(busy()) } else { Ok(()) } };
        let in_hand = async |end: Instant| {
            let answer = async || {
                tokio::time::sleep_until(end.into()).await;
                Ok(())
            };
            remote.patiently(answer).await.unwrap();
        };
        let begun = Instant::now();
        assert!(remote.patiently(until(begun + Duration::from_millis(2_500))).await.is_err(), "nobody else is asked");
        assert!(begun.elapsed() < Duration::from_secs(1), "a minute is more than can be waited for");
        let end = Instant::now() + Duration::from_millis(2_500);
        assert!(tokio::join!(in_hand(end), remote.patiently(until(end))).1.is_ok());
        // After that it may be briefly unreachable, too.
        let (end, away) = (Instant::now() + Duration::from_millis(2_500), AtomicBool::new(true));
        let restarts = async || {
            if Instant::now() < end {
                return Err(refusal(client::BUSY, 20));
            }
            if away.swap(false, Ordering::Relaxed) { Err(refusal("Unavailable", 20)) } else { Ok(()) }
        };
        assert!(tokio::join!(in_hand(end), remote.patiently(restarts)).1.is_ok());
        // A server that fails for this question is not asked for ever just because it answers others.
        let end = Instant::now() + Duration::from_millis(2_500);
        let broken = async {
            let answer = remote.patiently(async || Err::<(), _>(refusal("Unavailable", 20))).await;
            (answer, Instant::now())
        };
        let ((), (broken, ended)) = tokio::join!(in_hand(end), broken);
        assert!(broken.is_err() && ended < end);
        // Nor is a server that refuses all requests asked for ever.
        remote.patience = Duration::from_millis(50);
        let refused = async || {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Err::<(), _>(refusal(client::BUSY, 20))
        };
        let both = async { tokio::join!(remote.patiently(refused), remote.patiently(refused)) };
        let (left, right) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        assert!(left.is_err() && right.is_err());
    }
}
