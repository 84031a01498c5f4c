//! TLS over real sockets: certificates, mutual TLS, rotation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{certificates, common};
use certificates::{Authority, install};
use common::{Running, Scripted, wire};
use protocol::client::{self, Client, ClientError};
use protocol::connect::Server;
use protocol::v1::rerank_service_client::RerankServiceClient;
use server::rpc::server::ServerOptions;
use server::transport::{Access, AccessFiles, TlsFiles};
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

fn access(tls: TlsFiles) -> Access {
    Access::load(&AccessFiles { tls: Some(tls), tokens: None }).unwrap_or_else(|faults| panic!("{faults:?}"))
}

async fn serve(access: &Access) -> Running {
    Scripted::default().serve_with(ServerOptions { access: access.clone(), ..ServerOptions::default() }).await
}

fn trusting(server: &Running, ca: &str) -> Server {
    Server { ca: Some(ca.as_bytes().to_vec()), ..server.address.as_str().into() }
}

async fn info(server: Server) -> Result<(), ClientError> {
    Client::new(server, usize::MAX).server_info().await.map(drop)
}

async fn channel(server: &Running, ca: &str) -> Result<Channel, tonic::transport::Error> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    let endpoint = Channel::from_shared(format!("https://{}", server.address)).unwrap().tls_config(tls).unwrap();
    endpoint.connect().await
}

#[tokio::test]
async fn calls_travel_encrypted_and_only_to_a_server_that_is_trusted() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = serve(&access(install(folder.path(), &authority, None))).await;
    let trusted = trusting(&server, &authority.pem);
    client::wait_until_serving(&trusted, Duration::from_secs(10)).await.unwrap();
    let mut reranker = RerankServiceClient::new(channel(&server, &authority.pem).await.unwrap());
    assert_eq!(reranker.rerank(wire("ab", &["ab", "cd"])).await.unwrap().into_inner().results.len(), 2);
    let stranger = info(trusting(&server, &Authority::new().pem)).await.unwrap_err();
    assert!(
        stranger.to_string().contains("not reachable") && stranger.to_string().contains("certificate"),
        "{stranger}"
    );
    let public = Server { address: format!("https://{}", server.address), ..server.address.as_str().into() };
    assert!(info(public).await.is_err(), "a private authority is not a public one");
    assert!(info(server.address.as_str().into()).await.is_err(), "plain text is refused");
    let muddled = Server { address: format!("http://{}", server.address), ..trusted };
    assert!(info(muddled).await.unwrap_err().to_string().contains("https://"));
    server.stop().await;
}

#[tokio::test]
async fn mutual_tls_accepts_only_certificates_of_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new(), Authority::new());
    let server = serve(&access(install(folder.path(), &servers, Some(&clients)))).await;
    let with = |identity| Server { identity, ..trusting(&server, &servers.pem) };
    info(with(Some(clients.identity()))).await.unwrap();
    assert!(info(with(None)).await.is_err(), "no certificate");
    assert!(info(with(Some(Authority::new().identity()))).await.is_err(), "another authority");
    assert!(info(with(Some(servers.identity()))).await.is_err(), "the server's own authority");
    info(with(Some(clients.identity()))).await.unwrap();
    server.stop().await;
}

/// Existing connections go on, new ones get the new certificate, and a broken pair changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_rotated_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let access = access(install(folder.path(), &old, None));
    let server = Arc::new(serve(&access).await);
    let both = format!("{}{}", old.pem, new.pem);
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut load = tokio::task::JoinSet::new();
    for renews in [false, false, true] {
        let (server, both, done, answered) =
            (Arc::clone(&server), both.clone(), Arc::clone(&done), Arc::clone(&answered));
        load.spawn(async move {
            let mut reranker = RerankServiceClient::new(channel(&server, &both).await.unwrap());
            while !done.load(Ordering::SeqCst) {
                if renews {
                    reranker = RerankServiceClient::new(channel(&server, &both).await.unwrap());
                }
                reranker.rerank(wire("ab", &["ab", "cd"])).await.unwrap();
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    common::wait_for("the load begins", || answered.load(Ordering::SeqCst) > 0).await;
    assert!(channel(&server, &old.pem).await.is_ok() && channel(&server, &new.pem).await.is_err());
    // With the key of another certificate the old pair stays in use.
    std::fs::write(folder.path().join("server.key"), new.issue().1).unwrap();
    let faults = access.reload(false);
    assert!(faults.len() == 1 && faults[0].to_string().contains("server.key"), "{faults:?}");
    assert!(channel(&server, &old.pem).await.is_ok());
    install(folder.path(), &new, None);
    assert!(access.reload(false).is_empty());
    assert!(channel(&server, &new.pem).await.is_ok() && channel(&server, &old.pem).await.is_err());
    let before = answered.load(Ordering::SeqCst);
    common::wait_for("the load goes on", || answered.load(Ordering::SeqCst) > before + 3).await;
    done.store(true, Ordering::SeqCst);
    while let Some(outcome) = load.join_next().await {
        outcome.unwrap();
    }
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let files = install(folder.path(), &authority, Some(&authority));
    let fault = |files: TlsFiles| {
        let faults = Access::load(&AccessFiles { tls: Some(files), tokens: None }).err().unwrap();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("|")
    };
    let missing = folder.path().join("nowhere.pem");
    assert!(fault(TlsFiles { certificate: missing.clone(), ..files.clone() }).contains("nowhere.pem"));
    assert!(fault(TlsFiles { key: files.certificate.clone(), ..files.clone() }).contains("no private key"));
    assert!(fault(TlsFiles { certificate: files.key.clone(), ..files.clone() }).contains("contains no certificate"));
    let both = AccessFiles { tls: Some(TlsFiles { key: missing.clone(), ..files }), tokens: Some(missing) };
    assert_eq!(Access::load(&both).err().unwrap().len(), 2, "all faults at once");
}
