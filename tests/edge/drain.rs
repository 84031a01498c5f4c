//! The end of a server on gRPC and HTTP/JSON: calls that outlast the drain are cancelled on both.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common;
use common::{Scripted, wait_for, wire};
use engine::Engine;
use protocol::client;
use protocol::v1::rerank_service_client::RerankServiceClient;
use rerankd::app::{self, Control, Listeners, Operator};
use rerankd::config::Config;
use serde_json::json;
use server::rpc::server::Ended;
use server::transport::Access;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::Code;

/// A server on both ports, with a generator that takes longer than the drain for [`text`].
struct Server {
    engine: Engine,
    grpc: String,
    json: String,
    operator: Operator,
    serving: JoinHandle<Ended>,
}

fn text() -> String {
    "the looms were driven by the river ".repeat(90)
}

async fn serve(drain_seconds: u64) -> Server {
    let (engine, ..) = Scripted { delay: Duration::from_millis(3), ..Scripted::default() }.engine().await;
    let settings = [("server.drain_seconds".to_owned(), drain_seconds.to_string())];
    let config = Config::from_parts(None, &[], &settings).unwrap();
    let (grpc, http) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
    let (grpc_url, json_url) = (url(&grpc), url(&http));
    let (operator, control) = Control::new();
    let served = engine.clone();
    let serving = tokio::spawn(async move {
        app::serve(&config, served, Access::default(), Listeners { grpc, http: Some(http) }, control).await.unwrap()
    });
    // A serving server has finished the trial of its generator.
    let address = grpc_url.trim_start_matches("http://").into();
    client::wait_until_serving(&address, Duration::from_mins(1)).await.unwrap();
    Server { engine, grpc: grpc_url, json: json_url, operator, serving }
}

impl Server {
    /// Waits until the generator has this many requests.
    async fn has(&self, requests: usize) {
        let scheduler = common::generator(&self.engine).scheduler.clone();
        let stats = scheduler.stats();
        wait_for("the requests are in flight", || {
            stats.active.load(Ordering::SeqCst) + stats.waiting.load(Ordering::SeqCst) == requests
        })
        .await;
    }

    fn over_http(&self) -> JoinHandle<u16> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let method = "query-generation";
        let body = json!({ "query": "what drove them?", "documents": [text(), "bread"], "rerankd_method": method });
        let request = client.post(format!("{}/rerank", self.json)).body(body.to_string());
        tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
    }

    fn over_grpc(&self) -> JoinHandle<Code> {
        let address = self.grpc.clone();
        tokio::spawn(async move {
            let mut client = RerankServiceClient::connect(address).await.unwrap();
            client.rerank(wire("what drove them?", &[&text(), "bread"])).await.unwrap_err().code()
        })
    }
}

/// Such connections need no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_request_do_not_hold_the_end() {
    let server = serve(30).await;
    let address = server.json.trim_start_matches("http://").to_owned();
    let mut half = TcpStream::connect(&address).await.unwrap();
    half.write_all(b"GET /h").await.unwrap();
    let silent = TcpStream::connect(&address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.operator.stop();
    let ended = tokio::time::timeout(Duration::from_secs(10), server.serving).await;
    assert_eq!(ended.expect("the drain was waited for").unwrap(), Ended::Answered);
    drop((half, silent));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_http_is_answered_at_the_end_of_the_drain() {
    let server = serve(2).await;
    let call = server.over_http();
    server.has(1).await;
    server.operator.stop();
    assert_eq!(call.await.unwrap(), 503);
    assert_eq!(server.serving.await.unwrap(), Ended::Cut(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_both_protocols_are_cancelled_and_counted() {
    let server = serve(2).await;
    let (json, grpc) = (server.over_http(), server.over_grpc());
    server.has(2).await;
    server.operator.stop();
    assert_eq!((json.await.unwrap(), grpc.await.unwrap()), (503, Code::Cancelled));
    assert_eq!(server.serving.await.unwrap(), Ended::Cut(2));
}
