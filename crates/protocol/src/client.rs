//! The gRPC client of the command line, for a server and for the services in this process.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::connect::{Server, Services};
use super::v1::belief_service_client::BeliefServiceClient;
use super::v1::model_service_client::ModelServiceClient;
use super::v1::rerank_service_client::RerankServiceClient;
use super::v1::utility_service_client::UtilityServiceClient;
use super::v1::watch_rerank_response::Event;
use super::{convert, convert_belief, convert_citation, convert_context, convert_evaluate, convert_parts, v1};
use engine::citations::CitationRequest;
use engine::types::EvaluateRequest;
use engine::types::UtilityRequest;
use engine::types::{ContextRequest, Passage, RerankRequest};
use prefix_scheduler::model::entailment::TextPair;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection could be made.
    #[error("{address}: server not reachable: {problem}")]
    Unreachable {
        /// The address as the user gave it.
        address: String,
        /// The cause that the transport reports.
        problem: String,
    },
    /// The address and the files for its connection do not fit each other, or are invalid.
    #[error("{address}: {problem}")]
    Misused {
        /// The address as the user gave it.
        address: String,
        /// The problem.
        problem: String,
    },
    /// The server answered with an error status, or is not serving.
    #[error("{}{message}", label(*code, *input))]
    Refused {
        /// The status code.
        code: Code,
        /// True if the request is at fault.
        input: bool,
        /// Error message of the server.
        message: String,
        /// Delay after which the same request may be answered; `None` if unknown.
        retry: Option<Duration>,
    },
}

/// The code before an error message, unless the request or the configuration is at fault: then the message says enough.
fn label(code: Code, input: bool) -> String {
    if input || code == Code::FailedPrecondition { String::new() } else { format!("{code:?}: ") }
}

impl ClientError {
    /// A request that is at fault.
    #[must_use]
    pub const fn input(message: String) -> Self {
        Self::refused(Code::InvalidArgument, true, message)
    }

    /// A refusal that a retry does not change.
    const fn refused(code: Code, input: bool, message: String) -> Self {
        Self::Refused { code, input, message, retry: None }
    }

    /// True if the request is at fault. Other requests may be answered.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        matches!(self, Self::Refused { input: true, .. })
    }

    /// The error with paths of fields inside the request that a message holds in its field `parent`.
    fn within(mut self, parent: &str) -> Self {
        if let Self::Refused { message, .. } = &mut self
            && let Some(rest) = message.strip_prefix(parent)
        {
            *message = rest.to_owned();
        }
        self
    }

    /// True if the server is not set up for the request.
    #[must_use]
    pub const fn is_precondition(&self) -> bool {
        matches!(self, Self::Refused { code: Code::FailedPrecondition, .. })
    }
}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> Self {
        // Quota details say that the request exceeds its budget. A full queue has the same code without these details.
        let budget = tonic_types::StatusExt::get_details_quota_failure(&status).is_some();
        // OUT_OF_RANGE: the message is larger than the server accepts.
        let input = matches!(status.code(), Code::InvalidArgument | Code::OutOfRange) || budget;
        let told = tonic_types::StatusExt::get_details_retry_info(&status).and_then(|info| info.retry_delay);
        let retry = told.or_else(|| (status.code() == Code::Unavailable).then_some(UNTOLD));
        Self::Refused { code: status.code(), input, message: status.message().to_owned(), retry }
    }
}

/// Delay before a retry if the server does not state one.
const UNTOLD: Duration = Duration::from_secs(1);

/// Minimum timeout of a health check.
const ONE_CHECK: Duration = Duration::from_secs(5);

fn silent(server: &Server, waited: Duration) -> ClientError {
    let problem = format!("it accepts connections and does not answer within {} s", waited.as_secs());
    ClientError::Unreachable { address: server.address.clone(), problem }
}

/// Polls the health of the whole server every 100 ms until it is serving or `patience` has passed. Makes at least one
/// check.
///
/// # Errors
/// The [`ClientError`] of the last attempt.
pub async fn wait_until_serving(server: &Server, patience: Duration) -> Result<(), ClientError> {
    let Some(end) = Instant::now().checked_add(patience) else {
        let problem = format!("{} s are more than can be waited for", patience.as_secs());
        return Err(ClientError::Misused { address: server.address.clone(), problem });
    };
    loop {
        // A server that accepts and does not answer must not exceed the caller's patience.
        let left = end.saturating_duration_since(Instant::now()).max(ONE_CHECK);
        let outcome = tokio::time::timeout(left, check(server)).await.unwrap_or_else(|_| Err(silent(server, left)));
        if outcome.is_ok() || Instant::now() >= end {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn check(server: &Server) -> Result<(), ClientError> {
    let mut client = HealthClient::new(server.connect().await?);
    let answer = client.check(HealthCheckRequest { service: String::new() }).await?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        other => Err(ClientError::refused(Code::Unavailable, false, format!("the server is {}", other.as_str_name()))),
    }
}

/// A client of a server, or of the services in this process.
pub struct Client {
    peer: Peer,
    /// Most bytes of a response.
    message_bytes: usize,
    /// Longest wait for a server that is busy or briefly unreachable.
    patience: Duration,
    /// True after the first response. Before it, an unreachable address is a mistake rather than a restarting server.
    met: AtomicBool,
    /// Time of the last response.
    answered: Mutex<Option<Instant>>,
    /// Number of requests that the server is working on.
    asking: AtomicUsize,
}

enum Peer {
    Server(Box<Server>),
    Process(Services),
}

/// [`Client::patience`] of commands that send many requests.
const PATIENCE: Duration = Duration::from_mins(1);

/// If all concurrent requests are refused at the same moments, each looks as if the server worked on the others. After
/// this many times the patience without any response, that no longer counts.
const SILENT: u32 = 10;

impl Client {
    /// A client of a server. Larger responses than `message_bytes` are refused.
    #[must_use]
    pub fn new(server: Server, message_bytes: usize) -> Self {
        Self::of(Peer::Server(Box::new(server)), message_bytes)
    }

    /// A client of services in this process.
    pub fn in_process<S>(services: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self::of(Peer::Process(BoxCloneSyncService::new(services.map_err(|never| match never {}))), usize::MAX)
    }

    fn of(peer: Peer, message_bytes: usize) -> Self {
        let (met, answered, asking) = (AtomicBool::new(false), Mutex::new(None), AtomicUsize::new(0));
        Self { peer, message_bytes, patience: Duration::ZERO, met, answered, asking }
    }

    /// Makes the client wait up to a minute for a busy or restarting server, so that the server does not end the work on a
    /// file. The services in this process serve nobody else, so waiting for them helps nothing.
    #[must_use]
    pub fn patient(self) -> Self {
        let patience = if matches!(self.peer, Peer::Server(_)) { PATIENCE } else { Duration::ZERO };
        Self { patience, ..self }
    }

    /// Every request to a server has a separate connection.
    async fn services(&self) -> Result<Services, ClientError> {
        match &self.peer {
            Peer::Server(server) => server.connect().await,
            Peer::Process(services) => Ok(services.clone()),
        }
    }

    /// Reranks passages.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn rerank(&self, request: &RerankRequest) -> Result<v1::RerankResponse, ClientError> {
        Ok(self.watch_rerank(request, |_, _| {}).await?.0)
    }

    /// Reranks passages. Also returns the time from request to response, without the waiting for a busy server.
    /// `on_progress` receives the tokens done and the total number of tokens.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn watch_rerank(
        &self,
        request: &RerankRequest,
        on_progress: impl Fn(u64, u64),
    ) -> Result<(v1::RerankResponse, Duration), ClientError> {
        self.timed(|| async {
            let mut client =
                RerankServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            let wire = v1::WatchRerankRequest { request: Some(convert::request_to_wire(request)) };
            let mut events = client.watch_rerank(wire).await?.into_inner();
            while let Some(event) = events.next().await {
                match event?.event {
                    Some(Event::Progress(progress)) => on_progress(progress.tokens_done, progress.tokens_total),
                    Some(Event::Final(answer)) => return Ok(answer),
                    Some(Event::Planned(_) | Event::Interim(_)) | None => {}
                }
            }
            Err(ClientError::refused(Code::Unavailable, false, "the stream ended without an answer".to_owned()))
        })
        .await
        .map_err(|error| error.within("request."))
    }

    /// Builds the context of a prompt.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn build_context(&self, request: &ContextRequest) -> Result<v1::BuildContextResponse, ClientError> {
        self.patiently(|| async {
            let mut client =
                RerankServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            Ok(client.build_context(convert_context::request_to_wire(request)).await?.into_inner())
        })
        .await
        .map_err(|error| error.within("request."))
    }

    /// Measures the utility of one question's passages. The response includes the answers if `return_answers` is set.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn utility(
        &self,
        request: &UtilityRequest,
        return_answers: bool,
    ) -> Result<v1::MeasureUtilityResponse, ClientError> {
        self.patiently(|| async {
            let mut client =
                UtilityServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            let wire = convert_belief::utility_request_to_wire(request, return_answers);
            Ok(client.measure_utility(wire).await?.into_inner())
        })
        .await
    }

    /// Evaluates the retrieval of one question. The response includes the answers if `return_answers` is set.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn evaluate(
        &self,
        request: &EvaluateRequest,
        return_answers: bool,
    ) -> Result<v1::EvaluateRetrievalResponse, ClientError> {
        self.patiently(|| async {
            let mut client =
                UtilityServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            let wire = convert_evaluate::request_to_wire(request, return_answers);
            Ok(client.evaluate_retrieval(wire).await?.into_inner())
        })
        .await
    }

    /// Judges pairs of texts, each text after the question. Returns one verdict per pair, in input order.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn entail(&self, pairs: &[TextPair], question: &str) -> Result<Vec<v1::EntailmentVerdict>, ClientError> {
        let pair = |pair: &TextPair| v1::EntailmentPair {
            premise: pair.premise.to_string(),
            hypothesis: pair.hypothesis.to_string(),
        };
        self.patiently(|| async {
            let mut client =
                BeliefServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            let wire = v1::EntailRequest { pairs: pairs.iter().map(pair).collect(), question: question.to_owned() };
            let verdicts = client.entail(wire).await?.into_inner().verdicts;
            if verdicts.len() == pairs.len() {
                return Ok(verdicts);
            }
            let message = format!("{} verdicts for {} pairs", verdicts.len(), pairs.len());
            Err(ClientError::refused(Code::Internal, false, message))
        })
        .await
    }

    /// Checks the citations of an answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn check_citations(&self, request: &CitationRequest) -> Result<v1::CheckCitationsResponse, ClientError> {
        self.patiently(|| async {
            let mut client =
                BeliefServiceClient::new(self.services().await?).max_decoding_message_size(self.message_bytes);
            Ok(client.check_citations(convert_citation::request_to_wire(request)).await?.into_inner())
        })
        .await
    }

    /// Evaluates passages for the cache. `on_progress` receives the progress so far; the last message is returned.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn warm(
        &self,
        passages: &[Passage],
        on_progress: impl Fn(&v1::WarmPassagesResponse),
    ) -> Result<v1::WarmPassagesResponse, ClientError> {
        self.patiently(|| async {
            let mut client = RerankServiceClient::new(self.services().await?);
            let wire = v1::WarmPassagesRequest { passages: convert_parts::passages_to_wire(passages) };
            let mut events = client.warm_passages(wire).await?.into_inner();
            let mut last = v1::WarmPassagesResponse::default();
            while let Some(progress) = events.next().await {
                last = progress?;
                on_progress(&last);
            }
            Ok(last)
        })
        .await
    }

    /// Fetches version, models, limits and state of the server.
    ///
    /// # Errors
    /// [`ClientError`], also if the server has not read its generators yet.
    pub async fn server_info(&self) -> Result<v1::GetServerInfoResponse, ClientError> {
        self.patiently(|| async {
            let mut client = ModelServiceClient::new(self.services().await?);
            known(client.get_server_info(v1::GetServerInfoRequest::default()).await?.into_inner())
        })
        .await
    }

    /// Fetches all position profiles of the server's generator.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn position_bias(&self) -> Result<v1::GetPositionBiasResponse, ClientError> {
        self.patiently(|| async {
            let mut client = ModelServiceClient::new(self.services().await?);
            Ok(client.get_position_bias(v1::GetPositionBiasRequest::default()).await?.into_inner())
        })
        .await
    }

    async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        Ok(self.timed(ask).await?.0)
    }

    /// Repeats a request if the server says that it may be answered later, or becomes unreachable after an earlier
    /// response: a busy or restarting server must not end the work on a file. Also returns the time that the last attempt
    /// took.
    ///
    /// A server refuses those of many concurrent requests that would wait too long for the others. While it answers some
    /// of them, it does not count as busy for too long.
    async fn timed<T, F>(&self, ask: impl Fn() -> F) -> Result<(T, Duration), ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let (mut refused, mut since) = (None, None);
        loop {
            let before = self.asking.load(Ordering::Relaxed);
            let (asking, begun) = (Asking::begin(&self.asking), Instant::now());
            let error = match ask().await {
                Ok(answer) => {
                    self.met.store(true, Ordering::Relaxed);
                    *self.answered.lock() = Some(Instant::now());
                    return Ok((answer, begun.elapsed()));
                }
                Err(error) => error,
            };
            drop(asking);
            let delay = match &error {
                ClientError::Refused { input: false, retry, .. } => *retry,
                ClientError::Unreachable { .. } if self.met.load(Ordering::Relaxed) => Some(UNTOLD),
                _ => None,
            };
            // Measured from the first refusal, because a request itself may take longer.
            let now = Instant::now();
            let (first, since) = (*refused.get_or_insert(now), since.get_or_insert(now));
            // The server has no slot or no time for the request.
            let busy = matches!(&error, ClientError::Refused { code: Code::ResourceExhausted, .. });
            // The server's work then includes other requests of this process.
            let with_others = busy && before.max(self.asking.load(Ordering::Relaxed)) > 0;
            let progress = self.answered.lock().map_or(first, |answered| answered.max(first));
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

/// Reads the server's model information. The server listens before it has read its generators, and then reports no files
/// and calibrations, which no result belongs to.
fn known(info: v1::GetServerInfoResponse) -> Result<v1::GetServerInfoResponse, ClientError> {
    let scorer = info.scorer.as_ref().and_then(|scorer| scorer.model.as_ref());
    if info.generator.iter().chain(scorer).all(|model| !model.sha256.is_empty()) {
        return Ok(info);
    }
    let message = "the server has not read its generator yet".to_owned();
    Err(ClientError::Refused { code: Code::Unavailable, input: false, message, retry: Some(UNTOLD) })
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    /// A busy server and a list that is too large must not end the work on a file of lists.
    #[test]
    fn a_refusal_says_whose_fault_it_is_and_whether_to_try_again() {
        let told = |status: tonic::Status| match ClientError::from(status) {
            ClientError::Refused { input, retry, .. } => (input, retry),
            other => unreachable!("{other}"),
        };
        let busy = ErrorDetails::with_retry_info(Some(Duration::from_secs(3)));
        let full = tonic::Status::with_error_details(Code::ResourceExhausted, "full", busy);
        assert_eq!(told(full), (false, Some(Duration::from_secs(3))));
        assert_eq!(told(tonic::Status::unavailable("loading")), (false, Some(UNTOLD)));
        assert_eq!(told(tonic::Status::out_of_range("20 MiB")), (true, None));
        assert_eq!(told(tonic::Status::internal("fault")), (false, None));
    }

    /// A server that restarts between two lists of a file must not end the command.
    #[tokio::test]
    async fn a_server_that_answered_once_may_be_away_for_a_moment() {
        let away = || ClientError::Unreachable { address: "h:1".into(), problem: "refused".into() };
        let answers = Mutex::new(vec![Ok(2), Err(away()), Ok(1), Err(away())]);
        let ask = || async { answers.lock().pop().unwrap() };
        let client = Client::new("h:1".into(), 1).patient();
        assert!(matches!(client.patiently(ask).await, Err(ClientError::Unreachable { .. })), "nobody was ever there");
        assert_eq!(client.patiently(ask).await.unwrap(), 1);
        assert_eq!(client.patiently(ask).await.unwrap(), 2);
        assert!(answers.lock().is_empty());
    }

    /// The server may refuse one of many concurrent requests for a minute while it answers the others.
    #[tokio::test]
    async fn a_server_that_answers_the_others_is_not_busy_for_too_long() {
        let mut client = Client::new("h:1".into(), 1).patient();
        client.patience = Duration::from_secs(1);
        let refusal = |code, delay| ClientError::Refused {
            code,
            message: "not now".into(),
            input: false,
            retry: Some(Duration::from_millis(delay)),
        };
        let busy = || refusal(Code::ResourceExhausted, 60_000);
        let until = |end: Instant| move || async move { if Instant::now() < end { Err(busy()) } else { Ok(()) } };
        let in_hand = async |end: Instant| {
            let answer = async || {
                tokio::time::sleep_until(end.into()).await;
                Ok(())
            };
            client.patiently(answer).await.unwrap();
        };
        let begun = Instant::now();
        assert!(client.patiently(until(begun + Duration::from_millis(2_500))).await.is_err(), "nobody else is asked");
        assert!(begun.elapsed() < Duration::from_secs(1), "a minute is more than can be waited for");
        let end = Instant::now() + Duration::from_millis(2_500);
        assert!(tokio::join!(in_hand(end), client.patiently(until(end))).1.is_ok());
        // After that it may be briefly unreachable, too.
        let (end, away) = (Instant::now() + Duration::from_millis(2_500), AtomicBool::new(true));
        let restarts = async || {
            if Instant::now() < end {
                return Err(refusal(Code::ResourceExhausted, 20));
            }
            if away.swap(false, Ordering::Relaxed) { Err(refusal(Code::Unavailable, 20)) } else { Ok(()) }
        };
        assert!(tokio::join!(in_hand(end), client.patiently(restarts)).1.is_ok());
        // A server that fails for this question is not asked for ever just because it answers others.
        let end = Instant::now() + Duration::from_millis(2_500);
        let broken = async {
            let answer = client.patiently(async || Err::<(), _>(refusal(Code::Unavailable, 20))).await;
            (answer, Instant::now())
        };
        let ((), (broken, ended)) = tokio::join!(in_hand(end), broken);
        assert!(broken.is_err() && ended < end);
        // Nor is a server that refuses all requests asked for ever.
        client.patience = Duration::from_millis(50);
        let refused = async || {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Err::<(), _>(refusal(Code::ResourceExhausted, 20))
        };
        let both = async { tokio::join!(client.patiently(refused), client.patiently(refused)) };
        let (left, right) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        assert!(left.is_err() && right.is_err());
    }

    /// Results of a server that is still reading its files would belong to no model and be discarded later.
    #[tokio::test]
    async fn a_server_that_reads_its_models_is_asked_again() {
        let of = |generator: &str, scorer: Option<&str>| {
            let model = |sha256: &str| v1::ModelInfo { sha256: sha256.to_owned(), ..v1::ModelInfo::default() };
            let scorer =
                scorer.map(|sha256| v1::ScorerInfo { model: Some(model(sha256)), ..v1::ScorerInfo::default() });
            v1::GetServerInfoResponse { generator: Some(model(generator)), scorer, ..Default::default() }
        };
        let answers = Mutex::new(vec![of("ab", Some("cd")), of("ab", Some("")), of("", None)]);
        let ask = || async { known(answers.lock().pop().unwrap()) };
        let client = Client::new("h:1".into(), 1).patient();
        assert_eq!(client.patiently(ask).await.unwrap(), of("ab", Some("cd")));
        assert!(known(of("ab", None)).is_ok());
    }
}
