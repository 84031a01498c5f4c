//! The models that a study asks.

use super::StudyError;
use engine::Engine;
use engine::types::EngineError;
use prefix_scheduler::call::Call;
use prefix_scheduler::model::PromptFormat;
use protocol::client::{Client, ClientError};
use serde_json::{Map, Value, json};

/// A server, or an engine in this process.
pub struct Backend {
    pub client: Client,
    /// The engine behind the client if it is in this process, for studies that need more than messages carry.
    pub engine: Option<Engine>,
}

/// The reason why a question has no answer.
#[derive(Debug)]
pub enum Refusal {
    /// The question is at fault. Other questions may be answered.
    Question(String),
    /// No question can be answered.
    Fatal(StudyError),
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        if error.is_input() { Self::Question(error.to_string()) } else { Self::Fatal(error.into()) }
    }
}

impl From<StudyError> for Refusal {
    fn from(error: StudyError) -> Self {
        Self::Fatal(error)
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        if error.is_input() { Self::Question(error.to_string()) } else { Self::Fatal(error.into()) }
    }
}

impl Backend {
    /// The engine in this process, for `user`, which needs more than messages carry.
    ///
    /// # Errors
    /// The models are on a server.
    pub fn engine(&self, user: &str) -> Result<&Engine, StudyError> {
        let problem =
            format!("{user} needs what the protocol does not carry; run it without --server, where the model is");
        self.engine.as_ref().ok_or_else(|| StudyError::Other(anyhow::anyhow!(problem)))
    }

    /// Checks that the generator supports prompts of this format. Only possible for an engine in this process.
    pub fn try_frame(&self, frame: PromptFormat) -> Result<(), StudyError> {
        let Some(engine) = &self.engine else { return Err(StudyError::Input("a server has one frame".to_owned())) };
        Ok(engine.generator()?.with_frame(Some(frame)).map(drop)?)
    }

    /// For a manifest: settings of the engine in this process that affect which requests it accepts, how it truncates
    /// passages, and the KV cache's number format. `None` for a server, which does not report them.
    pub fn bounds(&self) -> Result<Option<Value>, EngineError> {
        let Some(engine) = &self.engine else { return Ok(None) };
        let limits = engine.limits();
        let mut models = Map::new();
        for model in engine.models().generators() {
            let served = model.get()?;
            let of_cells = json!({ "cells": served.info.cell_type, "context": served.context()? });
            models.insert(model.role().name().to_owned(), of_cells);
        }
        Ok(Some(json!({
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
    pub fn without_calibrations(&self) -> Result<(), EngineError> {
        for model in self.engine.iter().flat_map(|engine| engine.models().generators()) {
            model.get()?.calibrations.replace(Vec::new());
        }
        Ok(())
    }

    /// BERTScore of texts against their best reference. `None` over a server, whose protocol only offers it for
    /// answers of its generator; without an embedding model that gives token embeddings; for more tokens than the
    /// limit; and for texts that the model cannot read. The last two are logged.
    pub async fn bert_scores(&self, texts: &[String], references: &[String]) -> Result<Option<Vec<f64>>, Refusal> {
        let Some(engine) = &self.engine else { return Ok(None) };
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
}
