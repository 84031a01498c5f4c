//! Who may connect, and within which bounds: TLS, bearer tokens, and the listener with its limits on connections.
//!
//! Nothing here knows gRPC. [`listener::serve`] serves any HTTP service, with the same bounds over HTTP/1.1 and HTTP/2, and
//! [`Authenticate`] is a tower layer that leaves the form of a refusal to its user.

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

/// How often files of certificates and tokens are checked for changes.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest time in which the message of a request must come. A caller that sends it slowly, or never, keeps its slot no longer.
pub const MESSAGE: Duration = Duration::from_secs(30);

/// Address of the connected client. The listener puts it into the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub std::net::SocketAddr);

/// Cancelled when the connection of a request takes no more requests: the server stops, or the connection is old. The listener
/// puts it into the extensions of each request, for those that would otherwise go on for as long as the client likes.
#[derive(Debug, Clone, Default)]
pub struct Closing(pub CancellationToken);

/// Files that decide who may connect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessFiles {
    /// Certificate and key of the server; `None` for plain text.
    pub tls: Option<TlsFiles>,
    /// File of tokens; `None` where no token is needed.
    pub tokens: Option<PathBuf>,
}

/// Who may connect. Clones share the certificates and tokens.
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

    /// Reads the files again that changed since they were read, or all of them where `all`. Files that cannot be used leave
    /// what is in use unchanged, and the log says why. Returns the faults.
    pub fn reload(&self, all: bool) -> Vec<FileFault> {
        let tls = self.tls.as_ref().and_then(|tls| tls.reload(all).err());
        tls.into_iter().chain(self.tokens.reload(all).err()).collect()
    }

    /// Takes up changed files until it is dropped, within `interval` of a change.
    pub async fn follow(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let access = self.clone();
            // Files may lie on a slow file system.
            let _ = tokio::task::spawn_blocking(move || access.reload(false)).await;
        }
    }
}
