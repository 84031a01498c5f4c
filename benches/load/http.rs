//! Requests over HTTP to any server of the rerank API that Cohere, Jina, llama-server, vLLM and rerankd share.
//!
//! Outcomes are gRPC statuses, so figures and reports are comparable with those over gRPC.

use std::net::IpAddr;
use std::time::Duration;

use protocol::v1;
use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Value, json};
use tonic::Code;

use super::caller::Caller;

/// The deadline, for servers that read it. Others see the end of the connection.
const TIMEOUT: &str = "x-request-timeout-ms";

/// Score that llama-server gives to a document that it could not read, in an answer of status 200.
const FAILED: f64 = -1e6;

/// Most bytes of an answer that go into the report of an error.
const MESSAGE_BYTES: usize = 200;

/// A server and the path that ranks.
#[derive(Debug, Clone)]
pub struct Peer {
    client: reqwest::Client,
    url: String,
    model: Option<String>,
}

impl Peer {
    /// A client that calls from this address, and names this model in its requests.
    pub fn new(url: &str, model: Option<&str>, from: Option<IpAddr>) -> anyhow::Result<Self> {
        // A new connection per request: a server may close an idle one just as it is used again, and that failure says
        // nothing of the load.
        let builder = reqwest::Client::builder().no_proxy().tcp_nodelay(true).pool_max_idle_per_host(0);
        let client = builder.local_address(from).build()?;
        client.post(url).build()?;
        Ok(Self { client, url: url.to_owned(), model: model.map(str::to_owned) })
    }

    /// The request, without its deadline.
    pub fn request(&self, caller: &Caller, request: &v1::RerankRequest) -> anyhow::Result<RequestBuilder> {
        let mut post = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
        for (key, value) in caller.metadata()? {
            let key = if key == "authorization" { AUTHORIZATION.as_str() } else { key };
            post = post.header(key, value.to_str()?);
        }
        Ok(post.body(body(request, self.model.as_deref()).to_string()))
    }
}

/// A body that all of these servers read, without empty fields.
fn body(request: &v1::RerankRequest, model: Option<&str>) -> Value {
    let documents: Vec<&str> = request.passages.iter().map(|passage| passage.text.as_str()).collect();
    let mut body = json!({ "query": request.query, "documents": documents });
    if let Some(model) = model {
        body["model"] = model.into();
    }
    if request.method() != v1::Method::Unspecified {
        let name = request.method().as_str_name().trim_start_matches("METHOD_");
        body["rerankd_method"] = name.to_lowercase().replace('_', "-").into();
    }
    body
}

/// Sends a request with this many documents and this time left. Returns its outcome.
pub async fn send(request: RequestBuilder, documents: usize, left: Option<Duration>) -> (Code, String) {
    let request = match left {
        // The server requires a whole number above 0.
        Some(left) => request.timeout(left).header(TIMEOUT, left.as_millis().max(1).to_string()),
        None => request,
    };
    let read = async {
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok::<_, reqwest::Error>((status, response.bytes().await?))
    };
    match read.await {
        Ok((status, bytes)) => outcome(status, &bytes, documents),
        Err(error) if error.is_timeout() => (Code::DeadlineExceeded, "no answer in time".to_owned()),
        Err(error) => (Code::Unavailable, error.to_string()),
    }
}

/// The outcome of an answer. Only a ranking of all documents counts as answered.
pub fn outcome(status: u16, bytes: &[u8], documents: usize) -> (Code, String) {
    if status == 200 {
        return match ranking(bytes, documents) {
            Ok(()) => (Code::Ok, String::new()),
            Err(problem) => (Code::DataLoss, problem),
        };
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE_BYTES)]);
    (code(status), format!("{status}: {text}"))
}

/// rerankd's gRPC status for an HTTP status. 503 is a refusal, because other servers send it when they are full.
fn code(status: u16) -> Code {
    match status {
        400 | 413 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        408 | 504 => Code::DeadlineExceeded,
        429 | 503 => Code::ResourceExhausted,
        499 => Code::Cancelled,
        500 => Code::Internal,
        501 => Code::Unimplemented,
        _ => Code::Unknown,
    }
}

/// Checks that each document has its score.
fn ranking(bytes: &[u8], documents: usize) -> Result<(), String> {
    let answer: Value = serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    let results = answer["results"].as_array().ok_or("no results")?;
    let mut seen = vec![false; documents];
    for result in results {
        let index = result["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let place = index.and_then(|index| seen.get_mut(index)).ok_or("a result without an index of the list")?;
        let score = result["relevance_score"].as_f64().ok_or("a result without a score")?;
        if score <= FAILED {
            return Err("a document was not scored".to_owned());
        }
        *place = true;
    }
    if seen.contains(&false) {
        return Err(format!("{} results for {documents} documents", results.len()));
    }
    Ok(())
}
