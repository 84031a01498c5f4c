//! gRPC handlers of MetricsService. They compute on the threads of the arithmetic lane and use no model.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tonic::{Request, Response};

use super::edge::answer;
use super::{Reply, admit, status};
use engine::types::EngineError;
use moi::task::fit_moi;
use numeric::Interrupt;
use prefix_scheduler::call::{Call, Lane};
use protocol::convert_metrics as convert;
use protocol::v1;
use protocol::v1::metrics_service_server::MetricsService;
use rag_metrics::input;

#[derive(Clone)]
pub(super) struct Service {
    /// Largest response in bytes (`server.message_bytes`).
    pub message_bytes: usize,
}

impl Service {
    /// Runs `work` on a thread of the arithmetic lane. If the call ends before a thread is free, `work` is not run. If
    /// the call ends later, `work` is interrupted.
    async fn compute<Q: Send + 'static, T: Send + 'static>(
        &self,
        request: Request<Q>,
        work: impl FnOnce(Q, Interrupt<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Reply<T> {
        let call = admit::call(&request)?;
        let wire = request.into_inner();
        let work = move |call: &Call| in_arithmetic_pool(|| work(wire, &|| call.is_stopped()));
        let work = call.compute_in(Lane::Arithmetic, work);
        Ok(Response::new(answer(&call, work).await?))
    }
}

/// Runs work on half of the cores, in a separate thread pool. The generator reads logits on rayon's global pool: behind
/// a bootstrap in that pool, every request would wait for seconds.
fn in_arithmetic_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = ThreadPoolBuilder::new().num_threads(cores.div_ceil(2)).thread_name(|_| "arithmetic".into());
        threads.build().inspect_err(|error| tracing::error!(%error, "cannot start the arithmetic threads")).ok()
    });
    match &*THREADS {
        Some(threads) => threads.install(work),
        None => work(),
    }
}

#[tonic::async_trait]
impl MetricsService for Service {
    async fn evaluate_ranking(
        &self,
        request: Request<v1::EvaluateRankingRequest>,
    ) -> Reply<v1::EvaluateRankingResponse> {
        convert::check_sizes(request.get_ref()).map_err(status::of)?;
        let message_bytes = self.message_bytes;
        self.compute(request, move |wire, interrupt| {
            let task = convert::ranking_task(wire, message_bytes)?;
            let reading = (task.grading, task.ties);
            let table = input::evaluate_rankings(&task.lists, &task.metrics, reading, task.resampling, interrupt);
            Ok(convert::ranking_response(&task, &table.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn correlate(&self, request: Request<v1::CorrelateRequest>) -> Reply<v1::CorrelateResponse> {
        let message_bytes = self.message_bytes;
        self.compute(request, move |wire, interrupt| {
            let task = convert::correlation_task(wire, message_bytes)?;
            let rows = input::correlate(&task.target, &task.series, &task.kinds, task.resampling, interrupt);
            Ok(convert::correlation_response(&task, &rows.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn choose_alpha(&self, request: Request<v1::ChooseAlphaRequest>) -> Reply<v1::ChooseAlphaResponse> {
        self.compute(request, |wire, interrupt| {
            let (samples, family, correlation) = convert::alpha_task(wire)?;
            let chosen = input::choose_alpha(&samples, family, correlation, interrupt);
            Ok(convert::alpha_response(&chosen.map_err(convert::metrics_error)?))
        })
        .await
    }

    async fn fit_moi(&self, request: Request<v1::FitMoiRequest>) -> Reply<v1::FitMoiResponse> {
        self.compute(request, |wire, interrupt| {
            let task = convert::fit_task(wire)?;
            let fitted = fit_moi(&task, interrupt).map_err(convert::fit_error)?;
            Ok(convert::fit_response(fitted))
        })
        .await
    }
}
