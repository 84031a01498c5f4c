//! Opens the backend of a command.

use super::Failure;
use crate::app;
use crate::backend::{Backend, BackendError};
use crate::config::Config;

/// Selects the server at `server`. If it is `None`, starts an engine in this process with the configured models.
pub(super) async fn open(server: Option<&String>, config: &Config) -> Result<Backend, Failure> {
    Ok(match server {
        Some(address) => Backend::Server { address: address.clone(), message_bytes: config.server.message_bytes },
        None => Backend::Local(Box::new(app::engine(config).await?)),
    })
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Client(error) => error.into(),
            BackendError::Engine(error) => error.into(),
            error @ BackendError::Unsuitable(_) => Self::Other(error.into()),
        }
    }
}
