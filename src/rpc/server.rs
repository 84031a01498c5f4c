//! The gRPC server: services, health, reflection.

use std::time::Duration;

use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::admit::Admitted;
use super::edge::Edge;
use super::v1::belief_service_server::{self, BeliefServiceServer};
use super::v1::metrics_service_server::{self, MetricsServiceServer};
use super::v1::model_service_server::{self, ModelServiceServer};
use super::v1::rerank_service_server::{self, RerankServiceServer};
use super::v1::utility_service_server::{self, UtilityServiceServer};
use super::{DESCRIPTORS, belief, metrics, models, rerank, utility};
use crate::call::Admission;
use crate::engine::Engine;
use crate::engine::models::{ModelState, Role};

/// What the server needs to know beside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// Largest message in bytes, both ways.
    pub message_bytes: usize,
    /// How long a stopping server takes at most to end its calls. What is left shortly before is cancelled.
    pub drain: Duration,
}

/// After a cancelled call this long is left for its last step: a computation looks at its call every few milliseconds, the
/// generator before every step.
const LAST_STEP: Duration = Duration::from_secs(1);

/// Names of the services whose health follows the generator's; the empty one is the server as a whole.
const SERVICES: [&str; 5] = [
    "",
    rerank_service_server::SERVICE_NAME,
    belief_service_server::SERVICE_NAME,
    utility_service_server::SERVICE_NAME,
    model_service_server::SERVICE_NAME,
];

/// Bounds on messages and compression, the same for every service. A macro, because each service has a type of its own.
macro_rules! bounded {
    ($service:expr, $options:expr) => {
        $service
            .max_decoding_message_size($options.message_bytes)
            .max_encoding_message_size($options.message_bytes)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
    };
}

/// Serves on `listener` until `stop` resolves, then turns health to NOT_SERVING and finishes what is in flight; what the drain
/// does not suffice for is cancelled.
///
/// # Errors
/// The transport's error.
pub async fn serve(
    engine: Engine,
    admission: Admission,
    options: ServerOptions,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // Arithmetic needs no model.
    health.set_service_status(metrics_service_server::SERVICE_NAME, ServingStatus::Serving).await;
    report(&health, serves(&engine)).await;
    let (reporter, watched) = (health.clone(), engine.clone());
    let mut changes = engine.models().changes();
    let follow = tokio::spawn(async move {
        loop {
            changes.next().await;
            report(&reporter, serves(&watched)).await;
        }
    });
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let with_health = || reflection().register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let edge = Edge { engine, admission: admission.clone() };
    let rerank = bounded!(RerankServiceServer::new(rerank::Service { edge: edge.clone() }), options);
    let beliefs = bounded!(BeliefServiceServer::new(belief::Service { edge: edge.clone() }), options);
    let utilities = bounded!(UtilityServiceServer::new(utility::Service { edge: edge.clone() }), options);
    let metrics_service = metrics::Service { message_bytes: options.message_bytes };
    let metrics = bounded!(MetricsServiceServer::new(metrics_service), options);
    let models = models::Service { edge: edge.clone(), message_bytes: options.message_bytes };
    let models = bounded!(ModelServiceServer::new(models), options);
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    // Small answers must not wait for the acknowledgement of the ones before them.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tonic::transport::Server::builder()
        .add_service(health_service)
        .add_service(with_health().build_v1()?)
        .add_service(with_health().build_v1alpha()?)
        .add_service(Admitted::new(rerank, edge.clone()))
        .add_service(Admitted::new(beliefs, edge.clone()))
        .add_service(Admitted::new(utilities, edge.clone()))
        .add_service(Admitted::new(metrics, edge.clone()))
        .add_service(models)
        .serve_with_incoming_shutdown(incoming, async move {
            let _ = stopped.await;
        });
    let mut server = std::pin::pin!(server);
    tokio::select! {
        ended = &mut server => return Ok(ended?),
        () = stop => {}
    }
    follow.abort();
    report(&health, false).await;
    health.set_service_status(metrics_service_server::SERVICE_NAME, ServingStatus::NotServing).await;
    drop(stopping);
    // The last step is part of the drain, so that whoever sends SIGTERM can count on it.
    let last_step = LAST_STEP.min(options.drain / 5);
    if let Ok(ended) = tokio::time::timeout(options.drain.saturating_sub(last_step), &mut server).await {
        return Ok(ended?);
    }
    tracing::warn!(calls = admission.in_flight(), "calls were still in flight near the end of the drain: cancelled");
    admission.cancel_all();
    let _ = tokio::time::timeout(last_step, server).await;
    Ok(())
}

/// Whether a request would be served: every model is there, or is loaded when it is needed.
fn serves(engine: &Engine) -> bool {
    let generators = |state: &ModelState| state.role == Role::Generator;
    engine.models().states().iter().filter(|state| generators(state)).all(|state| state.serves)
}

async fn report(health: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
