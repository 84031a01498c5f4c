//! Access to the server: TLS, bearer tokens, and the listener with its limits on connections.
//!
//! This module does not depend on gRPC. [`listener::serve`] serves any HTTP service, with the same bounds over HTTP/1.1
//! and HTTP/2. [`Authenticate`] is a tower layer whose user formats the refusals.

mod authenticate;
pub mod connection;
mod in_flight;
pub mod listener;
mod response;
mod tls;
mod tokens;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use authenticate::{Authenticate, LearnsCaller};
pub use connection::{Bounds, Protocol};
pub use in_flight::InFlight;
pub use tls::{Tls, TlsFiles};
pub use tokens::{Caller, NewToken, Refused, Tokens};
pub use watched::FileFault;

/// Interval between checks of certificate and token files for changes.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time for the message of a request to arrive. A slow caller does not keep its slot longer.
pub const MESSAGE: Duration = Duration::from_secs(30);

/// Address of the connected client; an extension of each request, set by the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub std::net::SocketAddr);

/// Cancelled when the connection of a request accepts no more requests, because the server stops or the connection is
/// old. An extension of each request, set by the listener. Requests without a natural end should then end.
#[derive(Debug, Clone, Default)]
pub struct Closing(pub CancellationToken);

/// Files for access control.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessFiles {
    /// Certificate and key of the server; `None` for plain text.
    pub tls: Option<TlsFiles>,
    /// File of tokens; `None` if no token is needed.
    pub tokens: Option<PathBuf>,
}

/// Access control. Clones share the certificates and tokens.
#[derive(Clone, Default)]
pub struct Access {
    /// TLS settings of new connections; `None` for plain text.
    pub tls: Option<Arc<Tls>>,
    /// Tokens that calls must carry.
    pub tokens: Arc<Tokens>,
}

impl Access {
    /// Reads certificates and tokens.
    ///
    /// # Errors
    /// One fault for the TLS files and one for the tokens.
    pub fn load(files: &AccessFiles) -> Result<Self, Vec<FileFault>> {
        let tls = files.tls.clone().map(Tls::load).transpose();
        let tokens = files.tokens.as_deref().map_or_else(|| Ok(Tokens::default()), Tokens::load);
        match (tls, tokens) {
            (Ok(tls), Ok(tokens)) => Ok(Self { tls: tls.map(Arc::new), tokens: Arc::new(tokens) }),
            (tls, tokens) => Err(tls.err().into_iter().chain(tokens.err()).collect()),
        }
    }

    /// Reloads the files that changed, or all of them if `all`. If files cannot be used, the values in use stay
    /// unchanged, and the log says why. Returns the faults.
    pub fn reload(&self, all: bool) -> Vec<FileFault> {
        let tls = self.tls.as_ref().and_then(|tls| tls.reload(all).err());
        tls.into_iter().chain(self.tokens.reload(all).err()).collect()
    }

    /// Reloads changed files until it is dropped, within `interval` of a change.
    pub async fn follow(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let access = self.clone();
            // Files may be on a slow file system.
            let _ = tokio::task::spawn_blocking(move || access.reload(false)).await;
        }
    }
}
