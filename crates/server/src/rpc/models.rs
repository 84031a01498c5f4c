//! gRPC handlers of ModelService: server properties and position profiles.

use std::sync::atomic::Ordering;

use tonic::{Request, Response};

use super::edge::Edge;
use super::{Reply, status};
use crate::{features, target};
use engine::models::GeneratorModel;
use engine::prompt::{RANKING_VERSION, TEMPLATE_VERSION};
use engine::types::Role;
use moi::profile::Subject;
use prefix_scheduler::model::{GeneratorInfo, PromptFormat};
use prefix_scheduler::scheduler::Status as WorkerStatus;
use prefix_scheduler::scheduler::reranker::PassageScorer;
use prefix_scheduler::warm::Figures;
use protocol::convert_models::{adapter_to_wire, calibration_to_wire, profiles_to_wire, subject_to_wire};
use protocol::convert_parts::{known, narrow, wide};
use protocol::v1;
use protocol::v1::model_service_server::ModelService;

pub(super) struct Service {
    pub edge: Edge,
}

#[tonic::async_trait]
impl ModelService for Service {
    async fn get_server_info(&self, _: Request<v1::GetServerInfoRequest>) -> Reply<v1::GetServerInfoResponse> {
        let engine = &self.edge.engine;
        let limits = engine.limits();
        let generator = engine.models().generator(None).map_err(status::of)?;
        let capacity = generator.scheduler().capacity();
        Ok(Response::new(v1::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Before the generator is loaded, only its configured name is available.
            generator: Some(model_info_of(generator)),
            limits: Some(v1::Limits {
                passages: narrow(limits.passages),
                query_bytes: wide(limits.query_bytes),
                passage_bytes: wide(limits.passage_bytes),
                orders: narrow(limits.orders),
                tokens_per_request: wide(limits.tokens),
                message_bytes: wide(self.edge.message_bytes),
                queue_length: narrow(self.edge.admission.limit()),
                context_tokens: wide(capacity.map_or(0, |capacity| capacity.cells)),
                batch_tokens: narrow(capacity.map_or(0, |capacity| capacity.batch)),
            }),
            build: Some(v1::BuildInfo {
                target: target(),
                features: features().into_iter().map(str::to_owned).collect(),
            }),
            worker: Some(worker_info(generator)),
            template_version: TEMPLATE_VERSION.to_owned(),
            ranking_version: RANKING_VERSION.to_owned(),
            entailment: engine
                .models()
                .judge_if_any()
                .map(|judge| v1::EntailmentModelInfo { name: judge.model().name.clone(), sha256: judge.sha256() }),
            calibrations: calibrations_of(generator),
            scorer: engine.models().generators().get(1).map(scoring_generator),
            reranker: engine.models().scorer_if_any(Role::Reranker).map(scorer_info),
            embedding: engine.models().scorer_if_any(Role::Embedding).map(scorer_info),
            warm: generator.scheduler().store().map(|store| warm_info(&store.figures())),
        }))
    }
    async fn get_position_bias(&self, call: Request<v1::GetPositionBiasRequest>) -> Reply<v1::GetPositionBiasResponse> {
        let wire = call.into_inner();
        let only = match known("subject", wire.subject).map_err(status::of)? {
            v1::ProfileSubject::Unspecified => None,
            v1::ProfileSubject::Answer => Some(Subject::Answer),
            v1::ProfileSubject::Question => Some(Subject::Question),
        };
        let name = if wire.scorer.is_empty() { Role::Generator.name() } else { wire.scorer.as_str() };
        let found = self.edge.engine.models().scoring(name).and_then(GeneratorModel::get);
        let generator = found.map_err(status::of)?;
        let bias = &generator.position_bias;
        let profiles = profiles_to_wire(&bias.profiles());
        let wanted = |profile: &v1::PositionProfile| {
            only.is_none_or(|subject| profile.subject() == subject_to_wire(subject))
                && (wire.passages == 0 || profile.passages == wire.passages)
        };
        Ok(Response::new(v1::GetPositionBiasResponse {
            profiles: profiles.into_iter().filter(wanted).collect(),
            model_sha256: generator.info.sha256.clone(),
            adapter: generator.info.adapter.as_ref().map(adapter_to_wire),
            template_version: TEMPLATE_VERSION.to_owned(),
            problems: bias.problems(),
        }))
    }
}

/// Before a generator is loaded, only its configured name is available.
fn model_info_of(generator: &GeneratorModel) -> v1::ModelInfo {
    generator.get().map_or_else(
        |_| v1::ModelInfo { name: generator.name().to_owned(), ..v1::ModelInfo::default() },
        |served| model_info(&served.info),
    )
}

fn worker_info(generator: &GeneratorModel) -> v1::WorkerInfo {
    let stats = generator.scheduler().stats();
    v1::WorkerInfo {
        ready: generator.scheduler().capacity().is_some(),
        active: narrow(stats.active.load(Ordering::Relaxed)),
        waiting: narrow(stats.waiting.load(Ordering::Relaxed)),
        tokens: stats.tokens.load(Ordering::Relaxed),
        cached_tokens: stats.cached_tokens.load(Ordering::Relaxed),
        tokens_per_second: stats.speed().unwrap_or(0.0),
        abandoned: stats.abandoned.load(Ordering::Relaxed),
    }
}

fn calibrations_of(generator: &GeneratorModel) -> Vec<v1::RankingCalibration> {
    let served = generator.get();
    served.map(|served| served.calibrations.all().iter().map(calibration_to_wire).collect()).unwrap_or_default()
}

fn scoring_generator(scorer: &GeneratorModel) -> v1::ScorerInfo {
    let capacity = scorer.scheduler().capacity();
    v1::ScorerInfo {
        model: Some(model_info_of(scorer)),
        name: scorer.name().to_owned(),
        worker: Some(worker_info(scorer)),
        calibrations: calibrations_of(scorer),
        warm: scorer.scheduler().store().map(|store| warm_info(&store.figures())),
        context_tokens: wide(capacity.map_or(0, |capacity| capacity.cells)),
        batch_tokens: narrow(capacity.map_or(0, |capacity| capacity.batch)),
    }
}

fn scorer_info(scorer: &PassageScorer) -> v1::RerankerModelInfo {
    let (configured, info) = (scorer.model(), scorer.info());
    let problem = match &*scorer.status().borrow() {
        WorkerStatus::Failed(problem) => problem.clone(),
        _ => String::new(),
    };
    let loaded = info.is_some();
    let info = info.unwrap_or_default();
    v1::RerankerModelInfo {
        name: configured.name.clone(),
        sha256: if loaded { info.sha256 } else { configured.sha256.clone() },
        loaded,
        description: info.description,
        output: info.output,
        max_tokens: narrow(info.most_tokens),
        problem,
        scored: scorer.scored(),
        scores_sha256: scorer.scores_sha256(),
    }
}

const fn warm_info(figures: &Figures) -> v1::WarmInfo {
    v1::WarmInfo {
        states: figures.states,
        bytes: figures.bytes,
        bytes_limit: figures.limit,
        hits: figures.hits,
        misses: figures.misses,
        evictions: figures.evictions,
        read_from_disk: figures.read,
    }
}

fn model_info(info: &GeneratorInfo) -> v1::ModelInfo {
    v1::ModelInfo {
        name: info.name.clone(),
        sha256: info.sha256.clone(),
        description: info.description.clone(),
        bytes: info.bytes,
        trained_context: narrow(info.trained_context),
        chat_template: info.chat,
        yes_no_prompt: info.yes_no.name().to_owned(),
        encoding: info.encoding.clone(),
        running_sha256: info.running_sha256.clone(),
        adapter: info.adapter.as_ref().map(adapter_to_wire),
        jinja: info.frame_in_use() == PromptFormat::Jinja,
        compute: info.compute.clone(),
    }
}
