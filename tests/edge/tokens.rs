//! Tokens over real sockets.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common;
use common::{Running, Scripted, wire};
use protocol::client::{self, Client, ClientError};
use protocol::connect::Server;
use server::rpc::server::ServerOptions;
use server::transport::{Access, AccessFiles, NewToken};
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1 as reflection;

fn tokens(folder: &Path, lines: &[&NewToken]) -> PathBuf {
    let path = folder.join("tokens");
    let lines: Vec<&str> = lines.iter().map(|new| new.line.as_str()).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn access(path: PathBuf) -> Access {
    Access::load(&AccessFiles { tls: None, tokens: Some(path) }).unwrap_or_else(|faults| panic!("{faults:?}"))
}

async fn serve(access: &Access) -> Running {
    Scripted::default().serve_with(ServerOptions { access: access.clone(), ..ServerOptions::default() }).await
}

async fn ask(server: &Running, token: Option<&str>) -> Result<(), ClientError> {
    let server = Server { token: token.map(str::to_owned), ..server.address.as_str().into() };
    Client::new(server, usize::MAX).server_info().await.map(drop)
}

fn is_unauthenticated(outcome: &Result<(), ClientError>) -> bool {
    matches!(outcome, Err(ClientError::Refused { code, .. }) if *code == Code::Unauthenticated)
}

async fn services(server: &Running) -> Result<usize, Status> {
    let mut client = reflection::server_reflection_client::ServerReflectionClient::new(server.channel().await);
    let list = reflection::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = reflection::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await?.into_inner();
    match answers.next().await.unwrap()?.message_response.unwrap() {
        reflection::server_reflection_response::MessageResponse::ListServicesResponse(list) => Ok(list.service.len()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn everything_but_health_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let (search, indexer) = (NewToken::new("search").unwrap(), NewToken::new("indexer").unwrap());
    let server = serve(&access(tokens(folder.path(), &[&search, &indexer]))).await;
    client::wait_until_serving(&server.address.as_str().into(), Duration::from_secs(10)).await.unwrap();
    for new in [&search, &indexer] {
        ask(&server, Some(&new.token)).await.unwrap();
    }
    let hash = search.line.split_once(':').unwrap().1;
    for wrong in [None, Some("wrong"), Some(hash), Some(&search.token[1..])] {
        let refused = ask(&server, wrong).await;
        assert!(is_unauthenticated(&refused), "{refused:?}");
    }
    let status = server.client().await.rerank(wire("ab", &["ab", "cd"])).await.unwrap_err();
    assert_eq!((status.code(), server.admission.in_flight()), (Code::Unauthenticated, 0));
    assert_eq!(services(&server).await.unwrap_err().code(), Code::Unauthenticated);
    let mut request = Request::new(wire("ab", &["ab", "cd"]));
    request.metadata_mut().insert("authorization", format!("Bearer {}", search.token).parse().unwrap());
    assert_eq!(server.client().await.rerank(request).await.unwrap().into_inner().results.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_changed_file_is_reloaded_and_a_removed_token_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (NewToken::new("search").unwrap(), NewToken::new("search").unwrap());
    let access = access(tokens(folder.path(), &[&first]));
    let server = serve(&access).await;
    let following = access.clone();
    let follow = tokio::spawn(async move { following.follow(Duration::from_millis(20)).await });
    assert!(ask(&server, Some(&first.token)).await.is_ok() && ask(&server, Some(&second.token)).await.is_err());
    tokens(folder.path(), &[&first, &second]);
    let end = Instant::now() + Duration::from_secs(10);
    while ask(&server, Some(&second.token)).await.is_err() {
        assert!(Instant::now() < end, "the new token is not loaded");
    }
    assert!(ask(&server, Some(&first.token)).await.is_ok(), "two tokens of one caller overlap");
    tokens(folder.path(), &[&second]);
    while !is_unauthenticated(&ask(&server, Some(&first.token)).await) {
        assert!(Instant::now() < end, "the removed token is still accepted");
    }
    // The file is unreadable, so the tokens in use stay.
    std::fs::write(folder.path().join("tokens"), "search\n").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(ask(&server, Some(&second.token)).await.is_ok());
    follow.abort();
    server.stop().await;
}

#[tokio::test]
async fn reflection_can_be_switched_off() {
    let open = Scripted::default().serve().await;
    assert!(services(&open).await.unwrap() >= 6);
    open.stop().await;
    let options = ServerOptions { reflection: false, ..ServerOptions::default() };
    let closed = Scripted::default().serve_with(options).await;
    assert_eq!(services(&closed).await.unwrap_err().code(), Code::Unimplemented);
    ask(&closed, None).await.unwrap();
    closed.stop().await;
}
