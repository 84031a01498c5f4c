//! The gRPC server: services, health, reflection.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::v1::belief_service_server::{self, BeliefServiceServer};
use super::v1::metrics_service_server::{self, MetricsServiceServer};
use super::v1::model_service_server::{self, ModelServiceServer};
use super::v1::rerank_service_server::{self, RerankServiceServer};
use super::v1::utility_service_server::{self, UtilityServiceServer};
use super::{DESCRIPTORS, belief, metrics, models, rerank, utility};
use crate::engine::Engine;
use crate::scheduler::Status;

/// What the edge needs to know beside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Largest message in bytes.
    pub message_bytes: usize,
    /// Requests in the system at once, to be reported.
    pub queue_length: usize,
    /// How long a stopping server waits for requests in flight.
    pub drain: Duration,
}

/// Names of the services whose health follows the generator's; the empty one is the server as a whole.
const SERVICES: [&str; 5] = [
    "",
    rerank_service_server::SERVICE_NAME,
    belief_service_server::SERVICE_NAME,
    utility_service_server::SERVICE_NAME,
    model_service_server::SERVICE_NAME,
];

/// Serves on `listener` until `stop` resolves, then turns health to NOT_SERVING and finishes what is in flight, no longer
/// than the drain allows.
///
/// # Errors
/// The transport's error.
pub async fn serve(
    engine: Engine,
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let (health, health_service) = tonic_health::server::health_reporter();
    // Arithmetic needs no model.
    health.set_service_status(metrics_service_server::SERVICE_NAME, ServingStatus::Serving).await;
    let mut watched = engine.scheduler().status();
    let reporter = health.clone();
    let follow = tokio::spawn(async move {
        loop {
            let ready = matches!(*watched.borrow_and_update(), Status::Ready(_));
            report(&reporter, ready).await;
            if watched.changed().await.is_err() {
                return;
            }
        }
    });
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
    let with_health = || reflection().register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let bound = settings.message_bytes;
    let rerank = RerankServiceServer::new(rerank::Service { engine: engine.clone() })
        .max_decoding_message_size(bound)
        .max_encoding_message_size(bound)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let beliefs = BeliefServiceServer::new(belief::Service { engine: engine.clone() })
        .max_decoding_message_size(bound)
        .max_encoding_message_size(bound)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let utilities = UtilityServiceServer::new(utility::Service { engine: engine.clone() })
        .max_decoding_message_size(bound)
        .max_encoding_message_size(bound)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let metrics = MetricsServiceServer::new(metrics::Service::new(bound))
        .max_decoding_message_size(bound)
        .max_encoding_message_size(bound)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let models = models::Service { engine, message_bytes: bound, queue_length: settings.queue_length };
    let models = ModelServiceServer::new(models)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tonic::transport::Server::builder()
        .add_service(health_service)
        .add_service(with_health().build_v1()?)
        .add_service(with_health().build_v1alpha()?)
        .add_service(rerank)
        .add_service(beliefs)
        .add_service(utilities)
        .add_service(metrics)
        .add_service(models)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
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
    match tokio::time::timeout(settings.drain, server).await {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            tracing::warn!("requests were still in flight when the drain ended");
            Ok(())
        }
    }
}

async fn report(health: &HealthReporter, ready: bool) {
    let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
