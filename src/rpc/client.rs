//! A client for the command line.

use std::time::{Duration, Instant};

use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::v1::model_service_client::ModelServiceClient;
use super::v1::rerank_service_client::RerankServiceClient;
use super::v1::utility_service_client::UtilityServiceClient;
use super::v1::watch_rerank_response::Event;
use super::{convert, convert_belief, convert_evaluate, v1};
use crate::engine::evaluate::{EvaluateReport, EvaluateRequest};
use crate::engine::rerank::RerankRequest;
use crate::engine::utility::{UtilityReport, UtilityRequest};
use crate::fit::profile::{Origin, Profiles};

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there.
    #[error("{address}: no server answers there: {problem}")]
    Unreachable {
        /// The address.
        address: String,
        /// The transport's words.
        problem: String,
    },
    /// The server refused; code and message are its own.
    #[error("{code}: {message}")]
    Refused {
        /// The status code's name.
        code: String,
        /// Whether the request itself is at fault.
        input: bool,
        /// The server's message.
        message: String,
    },
}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> Self {
        // A budget that is too small is a matter of the request; a full queue is not.
        let budget = tonic_types::StatusExt::get_details_quota_failure(&status).is_some();
        let input = status.code() == tonic::Code::InvalidArgument || budget;
        Self::Refused { code: format!("{:?}", status.code()), input, message: status.message().to_owned() }
    }
}

async fn connect(address: &str) -> Result<Channel, ClientError> {
    let full = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let unreachable = |problem: String| ClientError::Unreachable { address: address.to_owned(), problem };
    let endpoint = Channel::from_shared(full).map_err(|error| unreachable(error.to_string()))?;
    let endpoint = endpoint.connect_timeout(Duration::from_secs(5));
    endpoint.connect().await.map_err(|error| {
        // The outer error only says "transport error"; the cause says what.
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        unreachable(cause)
    })
}

/// Asks for the health of the server as a whole, again and again until it serves or `patience` ends.
///
/// # Errors
/// [`ClientError`] of the last attempt.
pub async fn wait_until_serving(address: &str, patience: Duration) -> Result<(), ClientError> {
    let end = Instant::now() + patience;
    loop {
        let outcome = check(address).await;
        if outcome.is_ok() || Instant::now() >= end {
            return outcome;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn check(address: &str) -> Result<(), ClientError> {
    let mut client = HealthClient::new(connect(address).await?);
    let answer = client.check(HealthCheckRequest { service: String::new() }).await?;
    match answer.into_inner().status() {
        ServingStatus::Serving => Ok(()),
        other => Err(ClientError::Refused {
            code: "Unavailable".into(),
            input: false,
            message: format!("the server is {}", other.as_str_name()),
        }),
    }
}

/// Sends a request and returns the answer; `on_progress` hears tokens done and in all.
///
/// # Errors
/// [`ClientError`].
pub async fn rerank(
    address: &str,
    request: &RerankRequest,
    message_bytes: usize,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<v1::RerankResponse, ClientError> {
    let mut client = RerankServiceClient::new(connect(address).await?).max_decoding_message_size(message_bytes);
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
    Err(ClientError::Refused { code: "Unavailable".into(), input: false, message })
}

/// Measures the utility of one question's passages; the answers come back with it where `return_answers`.
///
/// # Errors
/// [`ClientError`].
pub async fn utility(
    address: &str,
    request: &UtilityRequest,
    return_answers: bool,
    message_bytes: usize,
) -> Result<v1::MeasureUtilityResponse, ClientError> {
    let mut client = UtilityServiceClient::new(connect(address).await?).max_decoding_message_size(message_bytes);
    let wire = convert_belief::utility_request_to_wire(request, return_answers);
    Ok(client.measure_utility(wire).await?.into_inner())
}

/// Converts a report of the engine, so that both ways of running the command print the same.
#[must_use]
pub fn local_utility(
    report: &UtilityReport,
    return_answers: bool,
    model: &crate::model::GeneratorInfo,
) -> v1::MeasureUtilityResponse {
    convert_belief::utility_response(report, return_answers, model)
}

/// Evaluates the retrieval of one question; the answers come back with it where `return_answers`.
///
/// # Errors
/// [`ClientError`].
pub async fn evaluate(
    address: &str,
    request: &EvaluateRequest,
    return_answers: bool,
    message_bytes: usize,
) -> Result<v1::EvaluateRetrievalResponse, ClientError> {
    let mut client = UtilityServiceClient::new(connect(address).await?).max_decoding_message_size(message_bytes);
    let wire = convert_evaluate::request_to_wire(request, return_answers);
    Ok(client.evaluate_retrieval(wire).await?.into_inner())
}

/// Converts a report of the engine, so that both ways of running the command see the same.
#[must_use]
pub fn local_evaluation(
    report: &EvaluateReport,
    request: &EvaluateRequest,
    return_answers: bool,
    model: &crate::model::GeneratorInfo,
) -> v1::EvaluateRetrievalResponse {
    convert_evaluate::response(report, &request.metrics, request.threshold, return_answers, model)
}

/// Asks what the server runs.
///
/// # Errors
/// [`ClientError`].
pub async fn server_info(address: &str) -> Result<v1::GetServerInfoResponse, ClientError> {
    let mut client = ModelServiceClient::new(connect(address).await?);
    Ok(client.get_server_info(v1::GetServerInfoRequest::default()).await?.into_inner())
}

/// Asks for all position profiles of the server's generator.
///
/// # Errors
/// [`ClientError`].
pub async fn position_bias(address: &str) -> Result<v1::GetPositionBiasResponse, ClientError> {
    let mut client = ModelServiceClient::new(connect(address).await?);
    Ok(client.get_position_bias(v1::GetPositionBiasRequest::default()).await?.into_inner())
}

/// Profiles of this process, as a server would return them.
#[must_use]
pub fn local_profiles(profiles: &[(Origin, Profiles)]) -> Vec<v1::PositionProfile> {
    super::models::profiles_to_wire(profiles)
}

/// Converts an answer of the engine, so that both ways of running the command print the same.
#[must_use]
pub fn local_response(
    answer: crate::engine::rerank::Reranked,
    request: &RerankRequest,
    model: &crate::model::GeneratorInfo,
) -> v1::RerankResponse {
    let passages = convert::request_to_wire(request).passages;
    convert::response(answer, &convert::Sent { passages, whole: false }, model)
}
