//! Connections of the command line to a server: address, TLS and token.

use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::client::ClientError;

/// A server and the credentials for it.
#[derive(Clone)]
pub struct Server {
    /// `HOST:PORT`, or a URL with `http` or `https`. Without a scheme, TLS is used if `ca` or `identity` is set.
    pub address: String,
    /// PEM certificates of the server's certificate authorities; `None` for the public ones.
    pub ca: Option<Vec<u8>>,
    /// PEM certificate and private key for a server that requires them (mutual TLS).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub token: Option<String>,
}

impl From<&str> for Server {
    fn from(address: &str) -> Self {
        Self { address: address.to_owned(), ca: None, identity: None, token: None }
    }
}

/// Timeout of connecting and of keep-alive pings, and the interval between pings.
const ALIVE: Duration = Duration::from_secs(30);

/// The services of a server, at the other end of a connection or in this process.
pub(super) type Services = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

impl Server {
    pub(super) async fn connect(&self) -> Result<Services, ClientError> {
        let unreachable = |problem: String| {
            let problem = format!("{problem}; {}", advice(&problem, &self.address));
            ClientError::Unreachable { address: self.address.clone(), problem }
        };
        let misused = |problem: String| ClientError::Misused { address: self.address.clone(), problem };
        let secret = self.ca.is_some() || self.identity.is_some();
        let scheme = if secret { "https" } else { "http" };
        let url =
            if self.address.contains("://") { self.address.clone() } else { format!("{scheme}://{}", self.address) };
        let encrypted = url.starts_with("https://");
        let path = url.parse::<http::Uri>().map_or_else(|_| String::new(), |url| url.path().to_owned());
        if !matches!(path.as_str(), "" | "/") {
            return Err(misused(format!("must be HOST:PORT or a URL without a path, has the path {path}")));
        }
        if secret && !encrypted {
            return Err(misused("certificates are set, but the address does not begin with https://".to_owned()));
        }
        let endpoint = Channel::from_shared(url)
            .map_err(|error| misused(format!("{error}; must be HOST:PORT or a URL, such as 127.0.0.1:50051")))?;
        // A response may take hours, so keep-alive pings check the server meanwhile.
        let mut endpoint =
            endpoint.connect_timeout(Duration::from_secs(5)).http2_keep_alive_interval(ALIVE).keep_alive_timeout(ALIVE);
        if encrypted {
            let tls = ClientTlsConfig::new();
            let tls = match &self.ca {
                Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
                None => tls.with_webpki_roots(),
            };
            let tls = match &self.identity {
                Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
                None => tls,
            };
            endpoint = endpoint.tls_config(tls).map_err(|error| unreachable(causes(&error)))?;
        }
        let channel = tokio::time::timeout(ALIVE, endpoint.connect()).await;
        let late = || unreachable(format!("no connection within {} s", ALIVE.as_secs()));
        let channel = channel.map_err(|_| late())?.map_err(|error| unreachable(causes(&error)))?;
        let token = self.bearer()?;
        let with_token = move |mut request: http::Request<Body>| {
            if let Some(token) = &token {
                request.headers_mut().insert(AUTHORIZATION, token.clone());
            }
            request
        };
        let address = self.address.clone();
        let broken = move |error: tonic::transport::Error| {
            let problem = causes(&error);
            let advice =
                "if the server runs, give its gRPC port (50051 by default, not that of HTTP), and https:// for TLS";
            Status::new(Status::from_error(error.into()).code(), format!("{address}: {problem}; {advice}"))
        };
        Ok(BoxCloneSyncService::new(channel.map_request(with_token).map_err(broken)))
    }

    fn bearer(&self) -> Result<Option<HeaderValue>, ClientError> {
        let Some(token) = &self.token else { return Ok(None) };
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ClientError::Misused {
            address: self.address.clone(),
            problem: "the token, of --token-file or RERANKD_TOKEN, must be printable ASCII".to_owned(),
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The next step for a connection that failed.
fn advice(problem: &str, address: &str) -> String {
    let host = address.split_once("://").map_or(address, |(_, host)| host).trim_end_matches('/');
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if problem.contains("InvalidContentType") {
        return format!("the server does not use TLS: give http://{host}");
    }
    if problem.contains("certificate") {
        return "--ca names the PEM file of its authority".to_owned();
    }
    if host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()) && !has_port) {
        return "its port must be a number from 1 to 65535".to_owned();
    }
    if !has_port {
        return format!("the address has no port: give {host}:50051, the default of gRPC");
    }
    "is the server running? `rerankd serve` listens on 127.0.0.1:50051 by default".to_owned()
}

/// The causes of an error. The outermost error says only "transport error".
fn causes(error: &tonic::transport::Error) -> String {
    let first = std::error::Error::source(error);
    let causes: Vec<String> = std::iter::successors(first, |cause| cause.source()).map(ToString::to_string).collect();
    match causes.last() {
        Some(last) if causes.len() > 1 && causes[0] != *last => format!("{}: {last}", causes[0]),
        Some(last) => last.clone(),
        None => error.to_string(),
    }
}
