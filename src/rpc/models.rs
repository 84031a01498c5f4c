//! ModelService.

use std::sync::atomic::Ordering;

use tonic::{Request, Response, Status};

use super::convert::{narrow, wide};
use super::v1;
use super::v1::model_service_server::ModelService;
use crate::engine::Engine;
use crate::model::prompt::TEMPLATE_VERSION;

pub(super) struct Service {
    pub engine: Engine,
    pub message_bytes: usize,
    pub queue_length: usize,
}

#[tonic::async_trait]
impl ModelService for Service {
    async fn get_server_info(
        &self,
        _: Request<v1::GetServerInfoRequest>,
    ) -> Result<Response<v1::GetServerInfoResponse>, Status> {
        let (info, limits) = (self.engine.info(), self.engine.limits());
        let scheduler = self.engine.scheduler();
        let (capacity, stats) = (scheduler.capacity(), scheduler.stats());
        let features = [
            ("cuda", cfg!(feature = "cuda")),
            ("metal", cfg!(feature = "metal")),
            ("vulkan", cfg!(feature = "vulkan")),
            ("portable", cfg!(feature = "portable")),
        ];
        Ok(Response::new(v1::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generator: Some(v1::ModelInfo {
                name: info.name.clone(),
                sha256: info.sha256.clone(),
                description: info.description.clone(),
                bytes: info.bytes,
                trained_context: narrow(info.trained_context),
                chat_template: info.chat,
                encoding: info.encoding.clone(),
                running_sha256: info.running_sha256.clone(),
            }),
            limits: Some(v1::Limits {
                passages: narrow(limits.passages),
                query_bytes: wide(limits.query_bytes),
                passage_bytes: wide(limits.passage_bytes),
                orders: narrow(limits.orders),
                tokens_per_request: wide(limits.tokens),
                message_bytes: wide(self.message_bytes),
                queue_length: narrow(self.queue_length),
                context_cells: wide(capacity.map_or(0, |capacity| capacity.cells)),
                batch_tokens: narrow(capacity.map_or(0, |capacity| capacity.batch)),
            }),
            build: Some(v1::BuildInfo {
                target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
                features: features.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect(),
            }),
            worker: Some(v1::WorkerInfo {
                ready: capacity.is_some(),
                active: narrow(stats.active.load(Ordering::Relaxed)),
                waiting: narrow(stats.waiting.load(Ordering::Relaxed)),
                tokens: stats.tokens.load(Ordering::Relaxed),
                cached_tokens: stats.cached_tokens.load(Ordering::Relaxed),
                tokens_per_second: stats.speed().unwrap_or(0.0),
                abandoned: stats.abandoned.load(Ordering::Relaxed),
            }),
            template_version: TEMPLATE_VERSION.to_owned(),
        }))
    }
}
