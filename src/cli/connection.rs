//! Options for the connection to a server.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use crate::config::{self, Config};
use protocol::client::Client;
use protocol::connect::Server;

/// Connection settings.
#[derive(Debug, Args)]
pub(super) struct ConnectionArgs {
    /// PEM file with the certificate authority of the server's certificate; by default the public authorities.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with a client certificate, for a server that requires one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file with the private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// File that holds the bearer token; by default the variable RERANKD_TOKEN.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ConnectionArgs {
    /// A client of the server at `address`.
    pub(super) fn client(&self, address: &str, config: &Config) -> Result<Client, Failure> {
        Ok(Client::new(self.server(address)?, config.server.message_bytes))
    }

    /// The server at `address`, which is `HOST:PORT` or a URL.
    pub(super) fn server(&self, address: &str) -> Result<Server, Failure> {
        let identity = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let token = match &self.token_file {
            Some(path) => {
                let text = String::from_utf8(read(path)?).unwrap_or_default();
                let token = text.trim();
                if token.is_empty() || token.contains(char::is_whitespace) {
                    return Err(Failure::Input(format!("{}: must hold one token", path.display())));
                }
                Some(token.to_owned())
            }
            None => config::client_token().map_err(Failure::Input)?,
        };
        Ok(Server { address: address.to_owned(), ca: self.ca.as_deref().map(read).transpose()?, identity, token })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}
