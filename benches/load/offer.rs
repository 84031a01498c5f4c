//! Sends requests at their times and records the outcomes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use protocol::v1;
use protocol::v1::rerank_service_client::RerankServiceClient;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use super::caller::Caller;
use super::http::{self, Peer};

/// The destination of requests.
#[derive(Debug, Clone)]
pub enum Target {
    /// rerankd over gRPC at this address.
    Grpc(String),
    /// Any server of the rerank API at this URL, with an optional model name in the body.
    Http { url: String, model: Option<String> },
}

/// When requests are sent.
#[derive(Debug, Clone, Copy)]
pub enum Arrivals {
    /// Open loop: this many per second, independently of each other and of the answers.
    Poisson(f64),
    /// Closed loop: this many in flight, each sent after the answer to the one before.
    Closed(usize),
}

/// One request and its answer.
#[derive(Debug, Clone)]
pub struct Shot {
    pub caller: Arc<str>,
    /// When it was due to be sent, on the wall clock.
    pub date: SystemTime,
    due: Instant,
    ended: Instant,
    pub code: Code,
    pub message: String,
}

impl Shot {
    /// From the time at which it was due.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }
}

#[derive(Clone)]
enum Connection {
    Grpc(Channel),
    Http(Peer),
}

/// A request that is made and not yet sent.
#[allow(clippy::large_enum_variant, reason = "each is on the stack of its own task")]
enum Ready {
    Grpc(Channel, Request<v1::RerankRequest>),
    Http(reqwest::RequestBuilder),
}

/// A caller and its connection.
#[derive(Clone)]
struct Client {
    caller: Caller,
    connection: Connection,
}

impl Client {
    fn new(caller: &Caller, connection: Connection) -> anyhow::Result<Self> {
        let client = Self { caller: caller.clone(), connection };
        client.request(0, 0)?;
        Ok(client)
    }

    fn request(&self, seed: u64, number: u64) -> anyhow::Result<Ready> {
        let request = self.caller.request(seed, number);
        match &self.connection {
            Connection::Http(peer) => Ok(Ready::Http(peer.request(&self.caller, &request)?)),
            Connection::Grpc(channel) => {
                let mut request = Request::new(request);
                for (key, value) in self.caller.metadata()? {
                    request.metadata_mut().insert(key, value);
                }
                Ok(Ready::Grpc(channel.clone(), request))
            }
        }
    }

    async fn shoot(self, due: Instant, date: SystemTime, seed: u64, number: u64) -> Shot {
        let request = self.request(seed, number).expect("checked before the first request");
        tokio::time::sleep_until(due.into()).await;
        let left = self.caller.deadline.map(|deadline| (due + deadline).saturating_duration_since(Instant::now()));
        let (code, message) = match request {
            Ready::Http(request) => http::send(request, self.caller.passages, left).await,
            Ready::Grpc(channel, mut request) => {
                if let Some(left) = left {
                    request.set_timeout(left);
                }
                match RerankServiceClient::new(channel).rerank(request).await {
                    Ok(_) => (Code::Ok, String::new()),
                    Err(status) => (status.code(), status.message().to_owned()),
                }
            }
        };
        let ended = Instant::now();
        // The client's clock decides: an answer after the deadline does not count.
        let late = code == Code::Ok && self.caller.deadline.is_some_and(|deadline| ended > due + deadline);
        let (code, message) = if late { (Code::DeadlineExceeded, "answered late".to_owned()) } else { (code, message) };
        Shot { caller: self.caller.name, date, due, ended, code, message }
    }
}

/// Offers load for a period and waits for all answers.
pub async fn run(
    target: &Target,
    callers: &[Caller],
    arrivals: Arrivals,
    seed: u64,
    period: Duration,
) -> anyhow::Result<Vec<Shot>> {
    let mut clients = Vec::new();
    for caller in callers {
        let connection = match target {
            Target::Grpc(address) => {
                let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
                Connection::Grpc(endpoint.local_address(caller.from).connect().await?)
            }
            Target::Http { url, model } => Connection::Http(Peer::new(url, model.as_deref(), caller.from)?),
        };
        clients.push(Client::new(caller, connection)?);
    }
    match arrivals {
        Arrivals::Poisson(rate) => open(&clients, rate, seed, period).await,
        Arrivals::Closed(number) => closed(&clients, number, seed, period).await,
    }
}

/// A client by weight; `place` is in [0, 1).
fn pick(clients: &[Client], place: f64) -> &Client {
    let mut left = place * clients.iter().map(|client| client.caller.weight).sum::<f64>();
    let found = clients.iter().find(|client| {
        left -= client.caller.weight;
        left < 0.0
    });
    found.unwrap_or(&clients[clients.len() - 1])
}

async fn open(clients: &[Client], rate: f64, seed: u64, period: Duration) -> anyhow::Result<Vec<Shot>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (start, clock) = (Instant::now() + Duration::from_millis(50), SystemTime::now() + Duration::from_millis(50));
    let (mut at, mut number, mut shots) = (0.0, 0, JoinSet::new());
    loop {
        let uniform: f64 = random.random();
        at -= (1.0 - uniform).ln() / rate;
        if at >= period.as_secs_f64() {
            break;
        }
        let client = pick(clients, random.random());
        let offset = Duration::from_secs_f64(at);
        // Requests are made a little ahead, not all at once, because 10 times a fast server is many.
        tokio::time::sleep_until((start + offset).checked_sub(Duration::from_millis(20)).unwrap_or(start).into()).await;
        shots.spawn(client.clone().shoot(start + offset, clock + offset, seed, number));
        number += 1;
    }
    Ok(shots.join_all().await)
}

async fn closed(clients: &[Client], number: usize, seed: u64, period: Duration) -> anyhow::Result<Vec<Shot>> {
    let end = Instant::now() + period;
    let mut loops = JoinSet::new();
    for place in 0..number {
        let client = pick(clients, (place as f64 + 0.5) / number as f64).clone();
        loops.spawn(async move {
            let mut shots = Vec::new();
            while Instant::now() < end {
                let request = ((place as u64) << 32) | shots.len() as u64;
                shots.push(client.clone().shoot(Instant::now(), SystemTime::now(), seed, request).await);
            }
            shots
        });
    }
    // Requests that ended after the period do not count for the capacity.
    Ok(loops.join_all().await.into_iter().flatten().filter(|shot| shot.ended <= end).collect())
}
