//! TLS of the server: certificate, key, and the authority of client certificates, reloaded while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::connection::Protocol;
use super::watched::{FileFault, Watched, content};

/// PEM files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Certificates of the authorities for client certificates; `None` if clients need none.
    pub client_ca: Option<PathBuf>,
}

/// Equal except for ALPN, which states the one protocol of the port.
struct Configs {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
}

/// The TLS settings in use.
pub struct Tls {
    watched: Watched<Configs>,
    mutual: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The file at fault.
    pub fn load(files: TlsFiles) -> Result<Self, FileFault> {
        let paths = [&files.certificate, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        let mutual = files.client_ca.is_some();
        let watched = Watched::new("TLS certificates", paths, Box::new(move || config(&files)))?;
        Ok(Self { watched, mutual })
    }

    /// Performs handshakes with the current settings, for a port of this protocol. Existing connections keep theirs.
    pub fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let configs = self.watched.get();
        TlsAcceptor::from(Arc::clone(match protocol {
            Protocol::Http1 => &configs.http1,
            Protocol::Http2 => &configs.http2,
        }))
    }

    /// True if clients must present a certificate.
    pub const fn asks_for_certificates(&self) -> bool {
        self.mutual
    }

    pub(super) fn reload(&self, always: bool) -> Result<(), FileFault> {
        self.watched.reload(always)
    }
}

fn config(files: &TlsFiles) -> Result<Configs, FileFault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&content(&files.key, true)?)
        .map_err(|error| FileFault::new(&files.key, &format!("no private key in PEM: {error}")))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| FileFault::new(&files.certificate, &error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| FileFault::new(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| FileFault::new(path, &error))?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        FileFault::new(&files.certificate, &format!("does not match {}: {error}", files.key.display()))
    })?;
    let mut http1 = config.clone();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Configs { http2: Arc::new(config), http1: Arc::new(http1) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let text = content(path, false)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| FileFault::new(path, &format!("no certificates in PEM: {error}")))?;
    if read.is_empty() {
        return Err(FileFault::new(path, &"contains no certificate"));
    }
    Ok(read)
}
