//! Opens the backend of a command.

use super::Failure;
use super::connection::ConnectionArgs;
use crate::app;
use crate::config::Config;
use protocol::backend::{Backend, BackendError};

/// Selects the server at `server`. If it is `None`, starts an engine in this process with the configured models, for
/// measurements.
pub(super) async fn open(
    server: Option<&String>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Backend, Failure> {
    // An evaluation that was broken off and continued must give the results of one that was not, to the last digit.
    let mut forgetful = config.clone();
    forgetful.scheduler.warm = prefix_scheduler::warm::Options::default();
    // The seconds of a method are then its own, and not those of a method that asked for the same vectors before.
    if let Some(embedding) = &mut forgetful.rerankers.embedding {
        embedding.cache_entries = 0;
    }
    open_for_work(server, connection, &forgetful).await
}

/// The same for results whose lines say what a question took: pairs that were judged for an earlier one count again.
#[cfg(feature = "lab")]
pub(super) async fn open_for_lines(
    server: Option<&String>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Backend, Failure> {
    let mut forgetful = config.clone();
    forgetful.entailment.worker.cache_entries = 0;
    open(server, connection, &forgetful).await
}

/// The same for work itself: an engine in this process keeps states of passages and vectors, as a server does.
pub(super) async fn open_for_work(
    server: Option<&String>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Backend, Failure> {
    Ok(match server {
        Some(address) => Backend::server(connection.server(address)?, config.server.message_bytes),
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
