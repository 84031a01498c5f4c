//! Opens the backend of a command.

use super::Failure;
use super::connection::ConnectionArgs;
use crate::app;
use crate::config::Config;
use protocol::backend::{Backend, BackendError};

/// Selects the server at `server`. Without one, starts an engine in this process with the configured models, for
/// measurements.
pub(super) async fn open(
    server: Option<&String>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Backend, Failure> {
    // An interrupted and continued evaluation must give the same results as one without interruption, to the last digit.
    let mut forgetful = config.clone();
    forgetful.scheduler.warm = prefix_scheduler::warm::Options::default();
    // No cached vectors: the time of a method must not profit from an earlier method's requests.
    if let Some(embedding) = &mut forgetful.rerankers.embedding {
        embedding.cache_entries = 0;
    }
    open_for_work(server, connection, &forgetful).await
}

/// Like [`open`], for results whose lines report the cost of a question: pairs that were judged for an earlier question
/// count again.
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

/// Like [`open`], for regular use: an engine in this process caches states of passages and vectors, as a server does.
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
