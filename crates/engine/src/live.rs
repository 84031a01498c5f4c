//! Retrieval on live traffic: by how much the passages of rankings reduce the semantic entropy of the generator's
//! answers.
//!
//! DeltaSePer (SePer, Eq. 11) needs reference answers, which live traffic does not have. The semantic entropy of
//! sampled answers (Eq. 5) needs none. Its reduction by the passages correlates with the utility of retrieval, but less
//! than DeltaSePer (Table 2: 0.49 and 0.77 on NQ), and passages that mislead the generator reduce it, too. So it
//! reveals a change of retrieval, and does not judge a single request.
//!
//! A sample of the answered rankings waits in memory. While the server is idle, [`LiveMeter::run`] measures one after
//! the other as `MeasureUtility` does, with short steps. The next request ends the measurement. Texts are dropped
//! after it, and never logged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{sleep, timeout};

use crate::types::{EngineError, Passage, RerankRequest, Reranked, UtilityReport, UtilityRequest};
use crate::utility::UtilityMeter;
use numeric::sampling::unit;
use prefix_scheduler::call::{Admission, Call};

/// Most rankings that wait.
const QUEUE: usize = 16;

/// Bytes of a passage, and of its title, that are measured. They bound the memory of the queue, and the time to read a
/// prompt.
const MOST_BYTES: usize = 2_048;

/// The server must be idle for this long before a measurement begins, so that none begins between the requests of a busy
/// client.
const QUIET: Duration = Duration::from_secs(1);

/// Rest after a measurement, as a multiple of its time: measurements take at most a quarter of the idle time.
const REST: u32 = 3;

/// Step of the sequence that selects requests: 2^64 over the golden ratio. Its multiples are spread evenly, and do not
/// follow a period of the traffic.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Upper bounds of buckets of the reduction, in nats. Ten answers have an entropy of at most 2.3.
pub const BOUNDS: [f64; 12] = [-2.0, -1.0, -0.5, -0.25, -0.1, -0.01, 0.01, 0.1, 0.25, 0.5, 1.0, 2.0];

/// Settings of the measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveOptions {
    /// Share of the rankings that are measured, above 0 and at most 1.
    pub sample_ratio: f64,
    /// Number of first passages that are measured.
    pub passages: usize,
}

/// Why a selected ranking was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// Other rankings wait already.
    QueueFull,
    /// It returned no passages with text.
    Empty,
    /// A request arrived during its measurement.
    Interrupted,
    /// The measurement failed.
    Failed,
}

impl Skip {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::Empty, Self::Interrupted, Self::Failed];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Empty => "empty",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// Results since the start.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveFigures {
    /// Number of reductions by bucket; the last one has no upper bound.
    pub reductions: [u64; BOUNDS.len() + 1],
    /// Sum of the reductions in nats.
    pub sum: f64,
    /// Number of rankings that were not measured, in the order of [`Skip::ALL`].
    pub skipped: [u64; Skip::ALL.len()],
}

impl LiveFigures {
    /// Number of measured rankings.
    #[must_use]
    pub fn measured(&self) -> u64 {
        self.reductions.iter().sum()
    }

    fn add(&mut self, reduction: f64) {
        self.reductions[BOUNDS.partition_point(|bound| *bound < reduction)] += 1;
        self.sum += reduction;
    }
}

/// Selects rankings once [`LiveMeter::run`] has begun.
#[derive(Debug)]
struct Feed {
    options: LiveOptions,
    sender: Sender<UtilityRequest>,
    /// Rankings so far.
    seen: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    feed: OnceLock<Feed>,
    figures: Mutex<LiveFigures>,
}

/// Measures rankings while the server is idle. Off until [`LiveMeter::run`].
#[derive(Debug, Clone)]
pub struct LiveMeter {
    utility: UtilityMeter,
    shared: Arc<Shared>,
}

impl LiveMeter {
    /// It shares no cached answers with requests, so that their answers do not depend on it.
    pub(crate) fn new(utility: UtilityMeter) -> Self {
        Self { utility: utility.without_cache(), shared: Arc::default() }
    }

    /// Measures selected rankings until the future is dropped. Only the first call has an effect.
    pub async fn run(&self, options: LiveOptions, admission: &Admission) {
        let (sender, mut waiting) = channel(QUEUE);
        if self.shared.feed.set(Feed { options, sender, seen: AtomicU64::new(0) }).is_err() {
            return;
        }
        while let Some(request) = waiting.recv().await {
            let call = idle_call(admission).await;
            let began = Instant::now();
            self.record(&call.run(Box::pin(self.utility.measure(&call, request, None))).await);
            sleep(began.elapsed() * REST).await;
        }
    }

    fn record(&self, outcome: &Result<UtilityReport, EngineError>) {
        let skipped = match outcome {
            Ok(report) => {
                let reductions = report.utilities.iter().map(|one| one.semantic_entropy_reduction.value);
                let mut figures = self.shared.figures.lock();
                return reductions.for_each(|reduction| figures.add(reduction));
            }
            Err(EngineError::Cancelled) => Skip::Interrupted,
            Err(error) => {
                // The message of a panic may contain a part of a text.
                let problem =
                    if matches!(error, EngineError::Internal(_)) { "internal error".into() } else { error.to_string() };
                tracing::debug!(problem, "a ranking was not measured");
                Skip::Failed
            }
        };
        self.skip(skipped);
    }

    fn skip(&self, reason: Skip) {
        self.shared.figures.lock().skipped[reason as usize] += 1;
    }

    /// The passages of a request if it is selected, for [`LiveMeter::offer`].
    pub(crate) fn select(&self, request: &RerankRequest) -> Option<UtilityRequest> {
        let feed = self.shared.feed.get()?;
        let place = unit(feed.seen.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN));
        let passage = |passage: &Passage| Passage {
            title: beginning(&passage.title),
            text: beginning(&passage.text),
            ..Passage::default()
        };
        (place < feed.options.sample_ratio).then(|| UtilityRequest {
            question: beginning(&request.query),
            passages: request.passages.iter().map(passage).collect(),
            list: true,
            truncate: Some(true),
            ..UtilityRequest::default()
        })
    }

    /// Has the first passages of an answer measured later. Never waits.
    pub(crate) fn offer(&self, mut selected: UtilityRequest, answer: &Reranked) {
        let Some(feed) = self.shared.feed.get() else { return };
        let ranked = answer.passages.iter().map(|ranked| &selected.passages[ranked.index]);
        selected.passages = ranked.filter(|one| !one.is_blank()).take(feed.options.passages).cloned().collect();
        if selected.passages.is_empty() {
            self.skip(Skip::Empty);
        } else if feed.sender.try_send(selected).is_err() {
            self.skip(Skip::QueueFull);
        }
    }

    /// Results since the start.
    #[must_use]
    pub fn figures(&self) -> LiveFigures {
        self.shared.figures.lock().clone()
    }
}

/// Waits until the server has been idle for [`QUIET`].
async fn idle_call(admission: &Admission) -> Call {
    loop {
        if let Some(call) = admission.while_idle("MeasureLive")
            && timeout(QUIET, call.stopped()).await.is_err()
        {
            return call;
        }
        sleep(QUIET).await;
    }
}

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let mut figures = LiveFigures::default();
        for reduction in [-3.0, -2.0, 0.0, 0.01, 0.02, 2.5] {
            figures.add(reduction);
        }
        assert_eq!(figures.reductions, [2, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 1]);
        assert!((figures.sum + 2.47).abs() < 1e-12 && figures.measured() == 6, "{figures:?}");
    }

    #[test]
    fn skips_stand_in_their_order() {
        assert_eq!(Skip::ALL.map(|skip| skip as usize), [0, 1, 2, 3]);
    }

    /// Every other request of a client may differ from the rest.
    #[test]
    fn the_selection_has_its_share_in_every_part_of_periodic_traffic() {
        let chosen = |number: &u64| unit(number.wrapping_mul(GOLDEN)) < 0.1;
        for period in 1..=10 {
            for offset in 0..period {
                let numbers = (0..1_000).map(|turn| turn * period + offset);
                let count = numbers.filter(chosen).count();
                assert!((80..=120).contains(&count), "{count} of 1,000 at {offset} of {period}");
            }
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(beginning(&"é".repeat(2_000)).len(), MOST_BYTES);
        assert_eq!(beginning(&"北".repeat(2_000)).len(), MOST_BYTES - 2);
        assert_eq!(beginning("short"), "short");
    }
}
