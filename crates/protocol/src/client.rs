//! The gRPC client of the command line, and the conversion of local results to the messages of a server.

use std::time::{Duration, Instant};

use tokio_stream::StreamExt;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::connect::Server;
use super::v1::belief_service_client::BeliefServiceClient;
use super::v1::model_service_client::ModelServiceClient;
use super::v1::rerank_service_client::RerankServiceClient;
use super::v1::utility_service_client::UtilityServiceClient;
use super::v1::watch_rerank_response::Event;
use super::{convert, convert_belief, convert_citation, convert_evaluate, v1};
use engine::citations::{CitationReport, CitationRequest};
use engine::fusion::calibration::Calibration;
use engine::prefill::PrefillProgress;
use engine::types::{EvaluateReport, EvaluateRequest, Passage, RerankRequest, UtilityReport, UtilityRequest};
use moi::profile::{Origin, Profiles};
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::scheduler::entailment::Judged;

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
    #[error("{code}: {message}")]
    Refused {
        /// The status code's name.
        code: String,
        /// True if the request is at fault.
        input: bool,
        /// Error message of the server.
        message: String,
        /// Delay after which the same request may be answered; `None` if unknown.
        retry: Option<Duration>,
    },
}

impl ClientError {
    /// A refusal that a retry does not change.
    pub(super) fn refused(code: &str, input: bool, message: String) -> Self {
        Self::Refused { code: code.to_owned(), input, message, retry: None }
    }

    /// True if the server is not set up for the request: FAILED_PRECONDITION, like [`EngineError::Precondition`] of the
    /// engine in this process.
    ///
    /// [`EngineError::Precondition`]: engine::types::EngineError::Precondition
    #[must_use]
    pub fn is_precondition(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == format!("{:?}", tonic::Code::FailedPrecondition))
    }
}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> Self {
        // Quota details say that the request exceeds its budget. A full queue has the same code without these details.
        let budget = tonic_types::StatusExt::get_details_quota_failure(&status).is_some();
        // OUT_OF_RANGE: the message is larger than the server accepts.
        let input = matches!(status.code(), tonic::Code::InvalidArgument | tonic::Code::OutOfRange) || budget;
        let told = tonic_types::StatusExt::get_details_retry_info(&status).and_then(|info| info.retry_delay);
        let retry = told.or_else(|| (status.code() == tonic::Code::Unavailable).then_some(UNTOLD));
        Self::Refused { code: format!("{:?}", status.code()), input, message: status.message().to_owned(), retry }
    }
}

/// The code of a server that has no slot or no time for a request.
pub(crate) const BUSY: &str = "ResourceExhausted";

/// Delay before a retry if the server does not state one.
pub(crate) const UNTOLD: Duration = Duration::from_secs(1);

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
        other => Err(ClientError::refused("Unavailable", false, format!("the server is {}", other.as_str_name()))),
    }
}

/// Sends a request and returns the response. `on_progress` receives the tokens done and the total number of tokens.
///
/// # Errors
/// [`ClientError`].
pub async fn rerank(
    server: &Server,
    request: &RerankRequest,
    message_bytes: usize,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<v1::RerankResponse, ClientError> {
    let mut client = RerankServiceClient::new(server.connect().await?).max_decoding_message_size(message_bytes);
    let wire = v1::WatchRerankRequest { request: Some(convert::request_to_wire(request)) };
    let mut events = client.watch_rerank(wire).await?.into_inner();
    while let Some(event) = events.next().await {
        match event?.event {
            Some(Event::Progress(progress)) => on_progress(progress.tokens_done, progress.tokens_total),
            Some(Event::Final(answer)) => return Ok(answer),
            Some(Event::Planned(_) | Event::Interim(_)) | None => {}
        }
    }
    let message = "the stream ended without an answer".to_owned();
    Err(ClientError::refused("Unavailable", false, message))
}

/// Measures the utility of one question's passages. The response includes the answers if `return_answers` is set.
///
/// # Errors
/// [`ClientError`].
pub async fn utility(
    server: &Server,
    request: &UtilityRequest,
    return_answers: bool,
    message_bytes: usize,
) -> Result<v1::MeasureUtilityResponse, ClientError> {
    let mut client = UtilityServiceClient::new(server.connect().await?).max_decoding_message_size(message_bytes);
    let wire = convert_belief::utility_request_to_wire(request, return_answers);
    Ok(client.measure_utility(wire).await?.into_inner())
}

/// Converts a report of a local engine to the message that a server would send.
#[must_use]
pub fn local_utility(
    report: &UtilityReport,
    return_answers: bool,
    model: &prefix_scheduler::model::GeneratorInfo,
) -> v1::MeasureUtilityResponse {
    convert_belief::utility_response(report, return_answers, model)
}

/// Evaluates the retrieval of one question. The response includes the answers if `return_answers` is set.
///
/// # Errors
/// [`ClientError`].
pub async fn evaluate(
    server: &Server,
    request: &EvaluateRequest,
    return_answers: bool,
    message_bytes: usize,
) -> Result<v1::EvaluateRetrievalResponse, ClientError> {
    let mut client = UtilityServiceClient::new(server.connect().await?).max_decoding_message_size(message_bytes);
    let wire = convert_evaluate::request_to_wire(request, return_answers);
    Ok(client.evaluate_retrieval(wire).await?.into_inner())
}

/// Converts a report of a local engine to the message that a server would send.
#[must_use]
pub fn local_evaluation(
    report: &EvaluateReport,
    request: &EvaluateRequest,
    return_answers: bool,
    model: &prefix_scheduler::model::GeneratorInfo,
) -> v1::EvaluateRetrievalResponse {
    convert_evaluate::response(report, &request.metrics, request.threshold, return_answers, model)
}

/// Judges pairs of texts, each text after the question. Returns one verdict per pair, in input order.
///
/// # Errors
/// [`ClientError`].
pub async fn entail(
    server: &Server,
    pairs: &[TextPair],
    question: &str,
) -> Result<Vec<v1::EntailmentVerdict>, ClientError> {
    let mut client = BeliefServiceClient::new(server.connect().await?);
    let pair = |pair: &TextPair| v1::EntailmentPair {
        premise: pair.premise.to_string(),
        hypothesis: pair.hypothesis.to_string(),
    };
    let wire = v1::EntailRequest { pairs: pairs.iter().map(pair).collect(), question: question.to_owned() };
    let verdicts = client.entail(wire).await?.into_inner().verdicts;
    if verdicts.len() == pairs.len() {
        return Ok(verdicts);
    }
    let message = format!("{} verdicts for {} pairs", verdicts.len(), pairs.len());
    Err(ClientError::refused("Internal", false, message))
}

/// Converts verdicts of a local engine to the messages that a server would send.
#[must_use]
pub fn local_verdicts(judged: &Judged) -> Vec<v1::EntailmentVerdict> {
    judged.verdicts.iter().map(convert_belief::verdict).collect()
}

/// Checks the citations of an answer.
///
/// # Errors
/// [`ClientError`].
pub async fn check_citations(
    server: &Server,
    request: &CitationRequest,
    message_bytes: usize,
) -> Result<v1::CheckCitationsResponse, ClientError> {
    let mut client = BeliefServiceClient::new(server.connect().await?).max_decoding_message_size(message_bytes);
    Ok(client.check_citations(convert_citation::request_to_wire(request)).await?.into_inner())
}

/// Converts a report of this process to the message that a server would send.
#[must_use]
pub fn local_citations(report: CitationReport) -> v1::CheckCitationsResponse {
    convert_citation::response(report)
}

/// Evaluates passages for the cache. `on_progress` receives the progress so far; the last message is returned.
///
/// # Errors
/// [`ClientError`].
pub async fn warm(
    server: &Server,
    passages: &[Passage],
    mut on_progress: impl FnMut(&v1::WarmPassagesResponse),
) -> Result<v1::WarmPassagesResponse, ClientError> {
    let mut client = RerankServiceClient::new(server.connect().await?);
    let wire = v1::WarmPassagesRequest { passages: convert::passages_to_wire(passages) };
    let mut events = client.warm_passages(wire).await?.into_inner();
    let mut last = v1::WarmPassagesResponse::default();
    while let Some(progress) = events.next().await {
        last = progress?;
        on_progress(&last);
    }
    Ok(last)
}

/// Converts progress of a local engine to the message that a server would send.
#[must_use]
pub fn local_warm(model: &str, progress: &PrefillProgress) -> v1::WarmPassagesResponse {
    super::convert_models::warm_progress(model, progress)
}

/// Fetches version, models, limits and state of the server.
///
/// # Errors
/// [`ClientError`].
pub async fn server_info(server: &Server) -> Result<v1::GetServerInfoResponse, ClientError> {
    let mut client = ModelServiceClient::new(server.connect().await?);
    Ok(client.get_server_info(v1::GetServerInfoRequest::default()).await?.into_inner())
}

/// Fetches all position profiles of the server's generator.
///
/// # Errors
/// [`ClientError`].
pub async fn position_bias(server: &Server) -> Result<v1::GetPositionBiasResponse, ClientError> {
    let mut client = ModelServiceClient::new(server.connect().await?);
    Ok(client.get_position_bias(v1::GetPositionBiasRequest::default()).await?.into_inner())
}

/// Converts local profiles to the messages that a server would send.
#[must_use]
pub fn local_profiles(profiles: &[(Origin, Profiles)]) -> Vec<v1::PositionProfile> {
    super::convert_models::profiles_to_wire(profiles)
}

/// Converts local calibrations to the messages that a server would send.
#[must_use]
pub fn local_calibrations(calibrations: &[Calibration]) -> Vec<v1::RankingCalibration> {
    calibrations.iter().map(super::convert_models::calibration_to_wire).collect()
}

/// Converts a local generator's adapter to the message that a server would send.
#[must_use]
pub fn local_adapter(adapter: &prefix_scheduler::model::AdapterInfo) -> v1::AdapterInfo {
    super::convert_models::adapter_to_wire(adapter)
}

/// Converts an answer of a local engine to the message that a server would send.
#[must_use]
pub fn local_response(answer: engine::types::Reranked, request: &RerankRequest) -> v1::RerankResponse {
    let passages = convert::request_to_wire(request).passages;
    convert::response(answer, &convert::Sent { passages, whole: false })
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
        let full = tonic::Status::with_error_details(tonic::Code::ResourceExhausted, "full", busy);
        assert_eq!(told(full), (false, Some(Duration::from_secs(3))));
        assert_eq!(told(tonic::Status::unavailable("loading")), (false, Some(UNTOLD)));
        assert_eq!(told(tonic::Status::out_of_range("20 MiB")), (true, None));
        assert_eq!(told(tonic::Status::internal("fault")), (false, None));
    }
}
