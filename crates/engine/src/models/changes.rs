//! Notice of changed states of models.

use std::pin::Pin;
use std::task::Poll;

use tokio::sync::watch;

use prefix_scheduler::model::Capacity;
use prefix_scheduler::model::entailment::EntailmentInfo;
use prefix_scheduler::model::reranker::RerankerInfo;
use prefix_scheduler::scheduler::Status;

/// Waits for changes of [`Models::states`](super::Models::states).
pub struct Changes {
    generators: Vec<watch::Receiver<Status<Capacity>>>,
    judge: Option<watch::Receiver<Status<EntailmentInfo>>>,
    scorers: Vec<watch::Receiver<Status<RerankerInfo>>>,
}

impl Changes {
    pub(super) fn new(
        generators: Vec<watch::Receiver<Status<Capacity>>>,
        judge: Option<watch::Receiver<Status<EntailmentInfo>>>,
        scorers: Vec<watch::Receiver<Status<RerankerInfo>>>,
    ) -> Self {
        Self { generators, judge, scorers }
    }

    /// Resolves when a model changes after the last call. The first call resolves at once if a model changed before
    /// it. Never resolves when all workers have ended.
    pub async fn next(&mut self) {
        let generators = self.generators.iter_mut().map(|status| -> Wait<'_> { Box::pin(changed(status)) });
        let judge = self.judge.iter_mut().map(|status| -> Wait<'_> { Box::pin(changed(status)) });
        let scorers = self.scorers.iter_mut().map(|status| -> Wait<'_> { Box::pin(changed(status)) });
        let mut waits: Vec<Wait<'_>> = generators.chain(judge).chain(scorers).collect();
        std::future::poll_fn(|context| {
            let done = waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready());
            if done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

async fn changed<T>(status: &mut watch::Receiver<T>) {
    if status.changed().await.is_err() {
        // The worker ended. Its state no longer changes.
        std::future::pending::<()>().await;
    }
}
