//! Counts of a call while it runs, and the observer that receives them.
//!
//! An [`Observer`] receives the numbers; without one they are dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::Call;

/// A part of the work of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Tokenising and planning.
    Tokenise,
    /// Waiting for the generator.
    Queue,
    /// From the first step of the generator to the last score.
    Score,
    /// Fitting.
    Fit,
}

impl Stage {
    /// Every stage, in the order of the work.
    pub const ALL: [Self; 4] = [Self::Tokenise, Self::Queue, Self::Score, Self::Fit];

    /// Its name in metrics and spans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokenise => "tokenise",
            Self::Queue => "queue",
            Self::Score => "score",
            Self::Fit => "fit",
        }
    }
}

/// Counts of a call. All work for the call adds to them. A call that is part of a stream also adds to the stream's
/// counts.
#[derive(Debug)]
pub struct Tally {
    passages: AtomicU64,
    /// Passages that were cut.
    cut: AtomicU64,
    tokens: AtomicU64,
    cached_tokens: AtomicU64,
    /// Turns of models other than the generator, and computations on the caller's data.
    turns: AtomicU64,
    /// Nanoseconds by stage; 0 for a stage that was not reached.
    stages: [AtomicU64; 4],
    /// By stage, the number in progress, and the start of the first.
    open: Mutex<[(usize, Option<Instant>); 4]>,
    /// Ranking method and model.
    subject: OnceLock<(&'static str, String)>,
    fit: OnceLock<&'static str>,
    trace: tracing::Span,
    whole: Option<Arc<Self>>,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new(tracing::Span::none())
    }
}

impl Tally {
    /// Counts of a request. `trace` is the parent of the spans of its stages.
    #[must_use]
    pub fn new(trace: tracing::Span) -> Self {
        Self {
            passages: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            stages: [const { AtomicU64::new(0) }; 4],
            open: Mutex::default(),
            subject: OnceLock::new(),
            fit: OnceLock::new(),
            trace,
            whole: None,
        }
    }

    /// Counts of a call that is, or is part of, the request `whole`.
    #[must_use]
    pub fn part_of(whole: &Arc<Self>) -> Self {
        Self { whole: Some(Arc::clone(whole)), ..Self::new(whole.trace.clone()) }
    }

    fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, number: u64) {
        counter(self).fetch_add(number, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.add(counter, number);
        }
    }

    /// Adds passages.
    pub fn add_passages(&self, number: usize) {
        self.add(|tally| &tally.passages, wide(number));
    }

    /// Adds passages that were cut to fit.
    pub fn add_cut(&self, number: usize) {
        self.add(|tally| &tally.cut, wide(number));
    }

    /// Adds tokens that the generator evaluated.
    pub fn add_tokens(&self, number: usize) {
        self.add(|tally| &tally.tokens, wide(number));
    }

    /// Adds tokens that were cached from an earlier request.
    pub fn add_cached_tokens(&self, number: usize) {
        self.add(|tally| &tally.cached_tokens, wide(number));
    }

    /// Removes tokens that only seemed to be cached from an earlier request.
    pub fn remove_cached_tokens(&self, number: usize) {
        self.add(|tally| &tally.cached_tokens, wide(number).wrapping_neg());
    }

    /// Adds a turn of a model other than the generator, or a computation on the caller's data.
    pub fn add_turn(&self) {
        self.add(|tally| &tally.turns, 1);
    }

    /// True if any work was done for the call. A missed deadline is then not a refusal.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.tokens() > 0 || self.turns.load(Ordering::Relaxed) > 0
    }

    /// Adds the time of a stage.
    pub fn add_time(&self, stage: Stage, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.add(|tally| &tally.stages[stage as usize], nanos);
    }

    fn open(&self) -> MutexGuard<'_, [(usize, Option<Instant>); 4]> {
        self.open.lock()
    }

    fn stage_begins(&self, stage: Stage) {
        let (number, since) = &mut self.open()[stage as usize];
        *number += 1;
        since.get_or_insert_with(Instant::now);
    }

    /// Plans of one call may run concurrently: overlapping time in a stage counts once.
    fn stage_ends(&self, stage: Stage) {
        let (number, since) = &mut self.open()[stage as usize];
        *number = number.saturating_sub(1);
        if *number == 0
            && let Some(since) = since.take()
        {
            self.add_time(stage, since.elapsed());
        }
    }

    /// Names the ranking method and the model. Only the first call counts.
    pub fn set_subject(&self, method: &'static str, model: &str) {
        let _ = self.subject.set((method, model.to_owned()));
    }

    /// Records how a fit ended, in one word. Only the first fit counts.
    pub fn set_fit(&self, status: &'static str) {
        let _ = self.fit.set(status);
    }

    /// Passages of the request.
    #[must_use]
    pub fn passages(&self) -> u64 {
        self.passages.load(Ordering::Relaxed)
    }

    /// Passages that were cut to fit.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Tokens that the generator evaluated.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Tokens that were cached from an earlier request.
    #[must_use]
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }

    /// Time in a stage; `None` for a stage that was not reached.
    #[must_use]
    pub fn time(&self, stage: Stage) -> Option<Duration> {
        let nanos = self.stages[stage as usize].load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Ranking method and model, if the call has them.
    #[must_use]
    pub fn subject(&self) -> Option<(&'static str, &str)> {
        self.subject.get().map(|(method, model)| (*method, model.as_str()))
    }

    /// How the fit ended; `None` without a fit.
    #[must_use]
    pub fn fit(&self) -> Option<&'static str> {
        self.fit.get().copied()
    }

    /// Parent of the spans of its stages. Disabled if nothing is traced.
    #[must_use]
    pub const fn trace(&self) -> &tracing::Span {
        &self.trace
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A stage in progress. Dropping it adds its time to the call's tally and ends its span.
#[derive(Debug)]
pub struct Timed {
    call: Call,
    stage: Stage,
    span: tracing::Span,
}

impl Timed {
    pub(super) fn begin(call: Call, stage: Stage) -> Self {
        // Only for traces: log lines do not show spans of this target.
        macro_rules! span {
            ($name:literal) => {
                tracing::info_span!(
                    target: "rerankd::trace",
                    parent: call.tally().trace(),
                    $name,
                    rerankd.tokens = tracing::field::Empty,
                    rerankd.cached_tokens = tracing::field::Empty,
                )
            };
        }
        let span = match stage {
            // A stage without a request would start a new trace.
            _ if call.tally().trace().is_disabled() => tracing::Span::none(),
            Stage::Tokenise => span!("tokenise"),
            Stage::Queue => span!("queue"),
            Stage::Score => span!("score"),
            Stage::Fit => span!("fit"),
        };
        call.tally().stage_begins(stage);
        Self { call, stage, span }
    }

    /// Records the tokens of the stage in its span: evaluated or to be evaluated, and cached.
    pub fn record_tokens(&self, tokens: usize, cached: usize) {
        // Traces store only signed numbers as numbers, and others as text.
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.span.record("rerankd.tokens", signed(tokens)).record("rerankd.cached_tokens", signed(cached));
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.call.tally().stage_ends(self.stage);
    }
}

/// A method of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// `unary`, `client_stream`, `server_stream` or `bidi_stream`.
    pub kind: &'static str,
    /// Service with its package, e.g. `rerankd.v1.RerankService`.
    pub service: String,
    /// Method, e.g. `Rerank`.
    pub method: String,
}

/// Why a request was answered with an error before any work was done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All slots are in use, or the admitted work takes too long.
    QueueFull,
    /// It needs more tokens or judgements than allowed.
    Budget,
    /// The work cannot end before the deadline.
    Deadline,
    /// A field is invalid.
    Invalid,
    /// The server is stopping.
    Draining,
    /// The model is loading, or restarting after a fault.
    Unavailable,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::QueueFull, Self::Budget, Self::Deadline, Self::Invalid, Self::Draining, Self::Unavailable];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Invalid => "invalid",
            Self::Draining => "draining",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Receives the counts of requests. Every function runs on the path of a request and must not block.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// The server has this method.
    fn offered(&self, _operation: &Operation) {}

    /// A request arrived.
    fn started(&self, _operation: &Operation) {}

    /// A request was answered with the status `code`, a name of gRPC's such as `InvalidArgument`.
    fn handled(&self, _operation: &Operation, _code: &'static str, _elapsed: Duration) {}

    /// A question of a stream of this operation was answered with the status `code`.
    fn question_handled(&self, _operation: &str, _code: &'static str) {}

    /// A request, or a question of a stream, was refused.
    fn refused(&self, _reason: Refusal) {}

    /// The last work of a call ended. `operation` comes from its [`Terms`](super::Terms).
    fn ended(&self, _operation: &str, _tally: &Tally) {}
}

/// Ignores all counts.
#[derive(Debug)]
pub(super) struct NoObserver;

impl Observer for NoObserver {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_counts_for_its_stream() {
        let stream = Arc::new(Tally::default());
        let questions = [Tally::part_of(&stream), Tally::part_of(&stream)];
        for (number, question) in questions.iter().enumerate() {
            question.add_tokens(10 + number);
            question.add_time(Stage::Score, Duration::from_millis(5));
        }
        assert_eq!((questions[1].tokens(), stream.tokens()), (11, 21));
        assert_eq!(stream.time(Stage::Score), Some(Duration::from_millis(10)));
        assert_eq!(questions[0].time(Stage::Fit), None);
    }

    #[test]
    fn a_stage_that_took_no_time_was_still_reached() {
        let tally = Tally::default();
        tally.add_time(Stage::Queue, Duration::ZERO);
        assert!(tally.time(Stage::Queue).is_some());
    }

    #[test]
    fn the_first_naming_of_method_and_fit_counts() {
        let tally = Tally::default();
        tally.set_subject("moi", "a");
        tally.set_subject("setwise", "b");
        assert_eq!((tally.subject(), tally.fit()), (Some(("moi", "a")), None));
    }
}
