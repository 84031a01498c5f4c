//! `rerankd health`

use std::time::Duration;

use clap::Args;

use super::connection::ConnectionArgs;
use super::{Failure, SettingsArgs, output};
use crate::rpc::client;

/// Check whether a server is serving; the exit code is 0 if it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd health --server 127.0.0.1:50051 --wait 60")]
pub(super) struct HealthArgs {
    /// Address of the server; by default `server.listen` of the configuration.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Seconds to wait until the server is serving.
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    wait: u64,
}

pub(super) async fn run(args: HealthArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let address = match args.server {
        Some(address) => address,
        None => {
            let config = settings.load(Vec::new())?;
            let scheme = if config.security.files.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", config.server.listen)
        }
    };
    let server = args.connection.server(&address)?;
    client::wait_until_serving(&server, Duration::from_secs(args.wait)).await?;
    output::print("SERVING\n")
}
