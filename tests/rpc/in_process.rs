//! The client of an engine in this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::{Scripted, serve, wait_for, wire};
use engine::types::RerankRequest;
use futures_util::future::join_all;
use protocol::client::Client;
use protocol::{convert, v1};
use server::rpc::server::local;

fn request(query: &str, texts: &[&str]) -> RerankRequest {
    convert::request(wire(query, texts)).unwrap()
}

#[tokio::test]
async fn an_engine_in_this_process_answers_like_a_server() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let own = local(engine.clone());
    let server = serve(engine, observed, queue_length).await;
    let remote = Client::new(server.address.as_str().into(), 4 << 20);
    let answer = async |client: &Client| {
        let answer = client.rerank(&request("ab", &["ab", "cd", "abc"])).await.unwrap();
        v1::RerankResponse { usage: None, ..answer }
    };
    assert_eq!(answer(&own).await, answer(&remote).await);
    let refusal = async |client: &Client, query| client.rerank(&request(query, &["ab"])).await.unwrap_err().to_string();
    let told = refusal(&own, " ").await;
    assert!(told.starts_with("query: "), "{told}");
    assert_eq!(refusal(&remote, " ").await, told);
    server.stop().await;
}

/// The engine has its own limits.
#[tokio::test]
async fn messages_in_this_process_may_be_of_any_size() {
    let client = local(Scripted::default().engine().await.0);
    let told = client.rerank(&request("ab", &["ab", &"x".repeat(20 << 20)])).await.unwrap_err().to_string();
    assert!(told.starts_with("passages[1].text: "), "{told}");
}

#[tokio::test]
async fn no_call_in_this_process_is_refused_for_the_others() {
    let slow = Scripted { delay: Duration::from_millis(1), longest_wait: Some(Duration::ZERO), ..Scripted::default() };
    let (client, request) = (local(slow.engine().await.0), request("ab", &["ab", "cd"]));
    for answer in join_all((0..50).map(|_| client.rerank(&request))).await {
        assert_eq!(answer.unwrap().results.len(), 2);
    }
}

#[tokio::test]
async fn work_ends_when_its_caller_leaves() {
    let slow = Scripted { delay: Duration::from_millis(200), ..Scripted::default() };
    let engine = slow.engine().await.0;
    let client = local(engine.clone());
    let generator = engine.generator().unwrap();
    let stats = generator.scheduler.stats();
    let request = request("ab", &["ab", "cd"]);
    tokio::select! {
        answer = client.rerank(&request) => panic!("{answer:?}"),
        () = wait_for("a request", || stats.active.load(Ordering::Relaxed) > 0) => {}
    }
    wait_for("the end of the work", || stats.active.load(Ordering::Relaxed) == 0).await;
    assert_eq!(stats.abandoned.load(Ordering::Relaxed), 1);
}
