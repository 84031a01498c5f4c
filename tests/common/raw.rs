//! A client without tonic, for requests that are sent in part.
#![allow(dead_code, reason = "every test file uses its own part")]

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::Code;

/// A connection. It closes when it is dropped.
pub struct Connection {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

/// A request whose body has begun.
pub struct Begun {
    pub answer: ResponseFuture,
    pub body: SendStream<Bytes>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The socket closes with the task that owns it, without a message to the server.
        self.driver.abort();
    }
}

impl Connection {
    pub async fn open(address: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = h2::client::handshake(socket).await.unwrap();
        Self { sender, driver: tokio::spawn(connection) }
    }

    /// Sends the headers and these bytes of the body, and leaves the body open.
    pub async fn begin(&mut self, path: &str, headers: &[(&str, &str)], bytes: &[u8]) -> Begun {
        let mut request = http::Request::post(format!("http://server{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.sender.clone().ready().await.unwrap();
        let (answer, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
        Begun { answer, body }
    }
}

/// The gRPC status of an answer, from its headers or its trailers.
pub async fn code(answer: Response<RecvStream>) -> Code {
    let read = |headers: &HeaderMap| {
        headers.get("grpc-status").map(|code| Code::from(code.to_str().unwrap().parse::<i32>().unwrap()))
    };
    if let Some(code) = read(answer.headers()) {
        return code;
    }
    let mut body = answer.into_body();
    while let Some(data) = body.data().await {
        let length = data.unwrap().len();
        body.flow_control().release_capacity(length).unwrap();
    }
    read(&body.trailers().await.unwrap().unwrap()).unwrap()
}

/// A gRPC message: a flag, the length, the bytes.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat()
}
