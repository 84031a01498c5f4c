//! The gRPC server: services, health, reflection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::{Service, http};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower_layer::Layer;

use super::admit::Admitted;
use super::edge::Edge;
use super::operations::Operations;
use super::readable::Readable;
use super::record::Recorder;
use super::{belief, metrics, models, rerank, tei, utility};
use crate::transport::{Access, Authenticate, Bounds, InFlight, Protocol, Refused, listener};
use engine::Engine;
use engine::types::MethodRef;
use prefix_scheduler::call::Admission;
use protocol::DESCRIPTORS;
use protocol::client::Client;
use protocol::tei_v1::info_server::{self as tei_info, InfoServer};
use protocol::tei_v1::rerank_server::{self as tei_rerank, RerankServer};
use protocol::v1::belief_service_server::{self, BeliefServiceServer};
use protocol::v1::metrics_service_server::{self, MetricsServiceServer};
use protocol::v1::model_service_server::{self, ModelServiceServer};
use protocol::v1::rerank_service_server::{self, RerankServiceServer};
use protocol::v1::utility_service_server::{self, UtilityServiceServer};

/// Options of the server.
#[derive(Clone)]
pub struct ServerOptions {
    /// Largest message in bytes, both ways.
    pub message_bytes: usize,
    /// Longest drain of a stopping server. Remaining calls are cancelled shortly before its end.
    pub drain: Duration,
    /// Time for which a stopping server still accepts calls before it drains. Health is NOT_SERVING meanwhile.
    pub lame_duck: Duration,
    /// True if reflection is served.
    pub reflection: bool,
    /// Bounds on connections.
    pub bounds: Bounds,
    /// Access control.
    pub access: Access,
    /// Turns true after a trial of the generator. Until then health is NOT_SERVING.
    pub warm: watch::Receiver<bool>,
    /// Method of tei.v1; `None` for the default.
    pub tei: Option<MethodRef>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            message_bytes: 4 << 20,
            drain: Duration::from_secs(20),
            lame_duck: Duration::ZERO,
            reflection: true,
            bounds: Bounds::default(),
            access: Access::default(),
            warm: watch::channel(true).1,
            tei: None,
        }
    }
}

/// The end of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every accepted call was answered.
    Answered,
    /// The drain was too short. The number of cancelled calls.
    Cut(usize),
}

impl Ended {
    /// By the number of calls of any protocol that were cancelled at the end of the drain.
    pub fn of(admission: &Admission) -> Self {
        match admission.cut() {
            0 => Self::Answered,
            calls => Self::Cut(calls),
        }
    }
}

/// Names of the services whose health follows the generator's; the empty name is the whole server.
const SERVICES: [&str; 7] = [
    "",
    rerank_service_server::SERVICE_NAME,
    belief_service_server::SERVICE_NAME,
    utility_service_server::SERVICE_NAME,
    model_service_server::SERVICE_NAME,
    tei_info::SERVICE_NAME,
    tei_rerank::SERVICE_NAME,
];

/// Bounds on messages and compression, equal for every service. A macro, because the services have different types.
macro_rules! bounded {
    ($service:expr, $options:expr) => {
        $service
            .max_decoding_message_size($options.message_bytes)
            .max_encoding_message_size($options.message_bytes)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
    };
}

/// Largest message of a request that needs no slot. Such a request contains at most a name, and may come without a
/// token.
const SMALL: usize = 16 << 10;

/// Serves on `listener` until `stop` resolves. Then turns health to NOT_SERVING, and after the lame-duck time drains.
/// Requests that outlast the drain are cancelled.
///
/// # Errors
/// The descriptors of the protocol cannot be read.
pub async fn serve(
    engine: Engine,
    admission: Admission,
    options: ServerOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<Ended> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // Arithmetic needs no model.
    health.set_service_status(metrics_service_server::SERVICE_NAME, ServingStatus::Serving).await;
    let (reporter, watched, mut warm) = (health.clone(), engine.clone(), options.warm.clone());
    let ready = watched.models().serve() && *warm.borrow_and_update();
    report(&reporter, ready).await;
    let mut changes = engine.models().changes();
    let follow = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::select! {
                () = changes.next() => {}
                // Without a sender the value never changes.
                () = async { if warm.changed().await.is_err() { std::future::pending().await } } => {}
            }
            let ready = watched.models().serve() && *warm.borrow();
            report(&reporter, ready).await;
        }
    }));
    let recorder = Recorder::new(admission.observer(), Operations::read(DESCRIPTORS)?);
    let mut routes =
        routes(engine, admission.clone(), &options, false).add_service(health_service.max_decoding_message_size(SMALL));
    if options.reflection {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        routes = routes
            .add_service(reflection().build_v1()?.max_decoding_message_size(SMALL))
            .add_service(reflection().build_v1alpha()?.max_decoding_message_size(SMALL));
    }
    let gate = Authenticate::layer(Arc::clone(&options.access.tokens), is_open, unauthenticated as fn(Refused) -> _);
    let (requests, stopping) = (InFlight::default(), CancellationToken::new());
    let connections = listener::Options {
        protocol: Protocol::Http2,
        bounds: options.bounds,
        tls: options.access.tls.clone(),
        requests: requests.clone(),
        endless: is_endless,
    };
    // The recorder is outermost, so that requests refused by the gate are counted.
    let service = recorder.layer(gate.layer(Readable(routes.prepare())));
    let mut server = std::pin::pin!(listener::serve(listener, service, connections, stopping.clone()));
    // The listener itself never ends before `stop`.
    tokio::select! {
        () = &mut server => {}
        () = stop => {}
    }
    recorder.stop();
    follow.abort();
    let _ = follow.await;
    report(&health, false).await;
    health.set_service_status(metrics_service_server::SERVICE_NAME, ServingStatus::NotServing).await;
    if !options.lame_duck.is_zero() {
        tracing::info!(
            seconds = options.lame_duck.as_secs(),
            "stopping: health is NOT_SERVING, calls are still accepted"
        );
        let _ = tokio::time::timeout(options.lame_duck, &mut server).await;
    }
    stopping.cancel();
    listener::finish(server, &requests, options.drain, || admission.cancel_all()).await;
    Ok(Ended::of(&admission))
}

/// The services of the protocols. Their calls take slots, except those with small requests.
fn routes(engine: Engine, admission: Admission, options: &ServerOptions, local: bool) -> Routes {
    let edge = Edge { engine, admission, local, message_bytes: options.message_bytes, idle: options.bounds.idle };
    let rerank = bounded!(RerankServiceServer::new(rerank::Service { edge: edge.clone() }), options);
    let beliefs = bounded!(BeliefServiceServer::new(belief::Service { edge: edge.clone() }), options);
    let utilities = bounded!(UtilityServiceServer::new(utility::Service { edge: edge.clone() }), options);
    let metrics_service = metrics::Service { message_bytes: options.message_bytes };
    let metrics = bounded!(MetricsServiceServer::new(metrics_service), options);
    let models = models::Service { edge: edge.clone() };
    let models = bounded!(ModelServiceServer::new(models), options).max_decoding_message_size(SMALL);
    let tei = tei::Service { edge: edge.clone(), method: options.tei };
    let info = bounded!(InfoServer::new(tei.clone()), options).max_decoding_message_size(SMALL);
    let tei_rerank = bounded!(RerankServer::new(tei), options);
    Routes::default()
        .add_service(Admitted::new(rerank, edge.clone()))
        .add_service(Admitted::new(beliefs, edge.clone()))
        .add_service(Admitted::new(utilities, edge.clone()))
        .add_service(Admitted::new(metrics, edge.clone()))
        .add_service(models)
        .add_service(info)
        .add_service(Admitted::new(tei_rerank, edge))
}

/// A client of an engine in this process. Its calls need no slot, and its messages may be of any size.
#[must_use]
pub fn local(engine: Engine) -> Client {
    let options = ServerOptions { message_bytes: usize::MAX, ..ServerOptions::default() };
    Client::in_process(Readable(routes(engine, Admission::new(0), &options, true).prepare()))
}

/// The services of the protocols without a listener: a request goes in as an HTTP message, and its answer comes out. There is no
/// health, no reflection and no check of tokens.
pub fn in_process(
    engine: Engine,
    admission: Admission,
    options: &ServerOptions,
) -> impl Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future: Send> + Clone + use<>
{
    Readable(routes(engine, admission, options, false).prepare())
}

/// Health needs no token, because probes have none.
fn is_open(path: &str) -> bool {
    path.starts_with("/grpc.health.v1.Health/")
}

/// Streams that clients keep open while they are connected.
fn is_endless(path: &str) -> bool {
    path == "/grpc.health.v1.Health/Watch" || path.starts_with("/grpc.reflection.")
}

fn unauthenticated(refused: Refused) -> http::Response<Body> {
    Status::unauthenticated(refused.to_string()).into_http()
}

async fn report(health: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
