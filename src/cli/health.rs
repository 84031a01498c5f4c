//! `rerankd health`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;

use super::connection::ConnectionArgs;
use super::{Failure, SettingsArgs, output};
use protocol::client;

/// Check if a server is serving; the exit code is 0 if it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd health --server 127.0.0.1:50051 --wait 60")]
pub(super) struct HealthArgs {
    /// Address of the server; by default `server.listen` of the configuration, or loopback if that is a wildcard address.
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
            format!("{scheme}://{}", reached_from_here(config.server.listen))
        }
    };
    let server = args.connection.server(&address)?;
    client::wait_until_serving(&server, Duration::from_secs(args.wait)).await?;
    output::print("SERVING\n")
}

/// The address for reaching, from the same machine, a server that listens on `listen`.
fn reached_from_here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_asked_on_loopback() {
        let asked = |listen: &str| reached_from_here(listen.parse().unwrap()).to_string();
        assert_eq!(asked("0.0.0.0:50051"), "127.0.0.1:50051");
        assert_eq!(asked("[::]:6000"), "[::1]:6000");
        assert_eq!(asked("10.0.3.9:50051"), "10.0.3.9:50051");
    }
}
