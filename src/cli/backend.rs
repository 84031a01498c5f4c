//! The client of a command: of a server, or of an engine in this process.

use super::Failure;
use super::connection::ConnectionArgs;
use crate::app;
use crate::config::Config;
#[cfg(feature = "lab")]
use lab::study::backend::Backend;
use protocol::client::Client;
use server::rpc::server::local;

/// A client of the server at `server`. Without one, an engine starts in this process with the configured models.
pub(super) async fn open(
    server: Option<&str>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Client, Failure> {
    Ok(match server {
        Some(address) => connection.client(address, config)?,
        None => local(app::engine(config).await?),
    })
}

/// The configuration for measurements. An interrupted and continued evaluation must give the same results as one without
/// interruption, to the last digit, so passages are not cached.
pub(super) fn for_measurements(config: &Config) -> Config {
    let mut forgetful = config.clone();
    forgetful.scheduler.warm = prefix_scheduler::warm::Options::default();
    // The time of a method must not profit from an earlier method's requests.
    if let Some(embedding) = &mut forgetful.rerankers.embedding {
        embedding.cache_entries = 0;
    }
    forgetful
}

/// [`for_measurements`], for results whose lines report the cost of a question: pairs that were judged for an earlier
/// question count again.
#[cfg(feature = "lab")]
pub(super) fn for_lines(config: &Config) -> Config {
    let mut forgetful = for_measurements(config);
    forgetful.entailment.worker.cache_entries = 0;
    forgetful
}

/// [`open`], for a study, which may need the engine itself.
#[cfg(feature = "lab")]
pub(super) async fn open_for_study(
    server: Option<&str>,
    connection: &ConnectionArgs,
    config: &Config,
) -> Result<Backend, Failure> {
    if server.is_some() {
        let client = open(server, connection, config).await?.patient();
        return Ok(Backend { client, engine: None });
    }
    let engine = app::engine(config).await?;
    Ok(Backend { client: local(engine.clone()).patient(), engine: Some(engine) })
}
