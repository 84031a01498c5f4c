//! Whoever does the work: a server or this process.

use super::Failure;
use crate::app;
use crate::call::Call;
use crate::config::Config;
use crate::engine::evaluate::EvaluateRequest;
use crate::engine::rerank::RerankRequest;
use crate::engine::utility::UtilityRequest;
use crate::engine::{Engine, EngineError};
use crate::rpc::client::{self, ClientError};
use crate::rpc::v1;

/// A server, or an engine of our own.
pub(super) enum Backend {
    Server { address: String, message_bytes: usize },
    Here(Box<Engine>),
}

/// What results depend on beside the request.
pub(super) struct Models {
    /// SHA-256 of the generator's file.
    pub generator: String,
    /// SHA-256 of the entailment model; empty where there is none.
    pub entailment: String,
    /// Version of the prompts.
    pub prompts: String,
}

/// Why a question has no answer.
pub(super) enum Refusal {
    /// The question is at fault; others may be answered.
    Question(String),
    /// No question can be answered.
    Fatal(Failure),
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

impl Backend {
    /// The server at this address, or where there is none the models of the configuration, loaded.
    pub async fn open(server: Option<&String>, config: &Config) -> Result<Self, Failure> {
        Ok(match server {
            Some(address) => Self::Server { address: address.clone(), message_bytes: config.server.message_bytes },
            None => Self::Here(Box::new(app::engine(config).await?)),
        })
    }

    /// The models that answer.
    pub async fn models(&self) -> Result<Models, Failure> {
        Ok(match self {
            Self::Server { address, .. } => {
                let info = client::server_info(address).await?;
                Models {
                    generator: info.generator.map(|model| model.sha256).unwrap_or_default(),
                    entailment: info.entailment.map(|model| model.sha256).unwrap_or_default(),
                    prompts: info.template_version,
                }
            }
            Self::Here(engine) => Models {
                generator: engine.generator()?.info.sha256.clone(),
                entailment: engine
                    .models()
                    .judge_if_any()
                    .map(|judge| judge.model().sha256.clone())
                    .unwrap_or_default(),
                prompts: crate::engine::prompt::TEMPLATE_VERSION.to_owned(),
            },
        })
    }

    pub async fn rerank(&self, request: &RerankRequest) -> Result<v1::RerankResponse, Refusal> {
        Ok(match self {
            Self::Server { address, message_bytes } => {
                client::rerank(address, request, *message_bytes, |_, _| {}).await?
            }
            Self::Here(engine) => {
                let answer = engine.rerank(&Call::local(), request.clone(), None).await?;
                client::local_response(answer, request, &engine.generator()?.info)
            }
        })
    }

    pub async fn utility(
        &self,
        request: &UtilityRequest,
        answers: bool,
    ) -> Result<v1::MeasureUtilityResponse, Refusal> {
        Ok(match self {
            Self::Server { address, message_bytes } => {
                client::utility(address, request, answers, *message_bytes).await?
            }
            Self::Here(engine) => {
                let report = engine.utility(&Call::local(), request.clone(), None).await?;
                client::local_utility(&report, answers, &engine.generator()?.info)
            }
        })
    }

    pub async fn evaluate(
        &self,
        request: &EvaluateRequest,
        answers: bool,
    ) -> Result<v1::EvaluateRetrievalResponse, Refusal> {
        Ok(match self {
            Self::Server { address, message_bytes } => {
                client::evaluate(address, request, answers, *message_bytes).await?
            }
            Self::Here(engine) => {
                let report = engine.evaluate(&Call::local(), request.clone()).await?;
                client::local_evaluation(&report, request, answers, &engine.generator()?.info)
            }
        })
    }
}
