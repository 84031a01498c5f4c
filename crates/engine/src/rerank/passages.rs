//! Scores of passages by a reranker or an embedding model, for a method that asks for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::unbounded_channel;

use super::copies::Copies;
use super::driver::Driver;
use crate::methods::{Scores, Task};
use crate::models::Models;
use crate::types::{CutSide, EngineError, FusionMode, RerankEvent, RerankRequest, Role, milliseconds};
use numeric::real;
use prefix_scheduler::call::{Stopped, Urgency};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::Shortening;
use prefix_scheduler::plan::{Cost, Token};
use prefix_scheduler::scheduler::ScheduleError;
use prefix_scheduler::scheduler::pace::FILL;
use prefix_scheduler::scheduler::reranker::{List, Progress, ScoreError, Scored, Unreadable};

/// The beginning of the warning that a ranking lacks the scores of a model.
pub const RANKED_WITHOUT: &str = "ranked without";

/// The scores of all passages, and the tokens cut from each.
pub(super) struct PassageScores {
    pub scores: Scores,
    pub cut: Vec<usize>,
    /// Warnings: the query was cut, or the model cannot read some texts.
    pub warnings: Vec<String>,
}

/// The warning that this many tokens of the query were cut for this model.
fn query_cut(role: Role, cut: usize) -> Option<String> {
    let words = || format!("the query was cut by {cut} tokens to fit the {} model", role.name());
    (cut > 0).then(words)
}

/// The texts that a model cannot read, as the end of a sentence that begins with the model; `None` if it can read
/// all. Includes copies.
fn unread_texts(unreadable: &Unreadable, copies: &Copies) -> Option<String> {
    let of_passages = copies.spread(&unreadable.passages);
    let (all, count) = (of_passages.len(), of_passages.iter().filter(|unreadable| **unreadable).count());
    let texts = match (unreadable.query, count) {
        (false, 0) => return None,
        (true, 0) => "the query".to_owned(),
        (false, count) => format!("{count} of {all} passages"),
        (true, count) => format!("the query and {count} of {all} passages"),
    };
    Some(format!("cannot read {texts}: most of the text is words that its vocabulary lacks"))
}

/// True if a list's scores are too poor to be mixed in: the model cannot read the query, most passages, or all but
/// one.
fn says_nothing(unreadable: &Unreadable) -> bool {
    let (all, count) = (unreadable.passages.len(), unreadable.count());
    unreadable.query || 2 * count > all || all - count < 2
}

/// The embedding model whose scores the method of a request mixes in, if the server has it and the request leaves
/// the fusion to the method.
fn mixed_model(models: &Models, request: &RerankRequest) -> Option<Role> {
    // A single passage has no rivals.
    let wanted = request.fusion.mode == FusionMode::ByMethod && request.passages.len() > 1;
    let role = request.method().mixed_model().filter(|_| wanted)?;
    models.scorer_if_any(role).map(|_| role)
}

/// The passages of a request for a reranker or an embedding model, with at most `tokens`.
fn list(request: &RerankRequest, truncate: bool, tokens: usize, until: Option<Instant>) -> List {
    List {
        query: request.query.as_str().into(),
        passages: request.passages.iter().map(|passage| passage.whole_text().trim().to_owned()).collect(),
        shortening: Shortening {
            passage_tokens: request.passage_tokens,
            truncate,
            from_start: request.cut_side == CutSide::Beginning,
        },
        tokens,
        until,
        preferred: Vec::new(),
    }
}

impl From<Scored> for Scores {
    /// No passage can be compared with a query that the model cannot read.
    fn from(scored: Scored) -> Self {
        let Unreadable { query, passages } = scored.unreadable;
        let unreadable = passages.into_iter().map(|passage| query || passage).collect();
        Self { passages: scored.scores, unreadable, ..Self::default() }
    }
}

/// SHA-256 that identifies the reranker or embedding model behind a request's scores: the one that the method asks
/// instead of the generator, or the one whose scores it mixes in.
pub(super) fn scores_sha256(models: &Models, request: &RerankRequest) -> Option<String> {
    let role = request.method().passage_model().or_else(|| mixed_model(models, request))?;
    Some(models.scorer_if_any(role)?.scores_sha256())
}

impl Driver<'_> {
    /// Has all passages scored by the model of this role.
    pub(super) async fn score_passages(
        &mut self,
        role: Role,
        task: &Task,
        allowed: usize,
    ) -> Result<PassageScores, EngineError> {
        let scorer = self.models.scorer(role)?;
        let request = &task.request;
        // The request's other lists of pairs count, too.
        let spent = self.planned.max(self.quota.planned()) + self.reserved.tokens;
        let truncate = request.truncate.unwrap_or(self.limits.truncate);
        let list = list(request, truncate, allowed.saturating_sub(spent), None);
        let outcome = match &self.listener {
            None => scorer.score(list, self.call, None).await,
            Some(_) => {
                let (sender, mut events) = unbounded_channel();
                let mut work = std::pin::pin!(scorer.score(list, self.call, Some(sender)));
                let outcome = loop {
                    tokio::select! {
                        biased;
                        Some(progress) = events.recv() => self.tell_of(progress),
                        outcome = &mut work => break outcome,
                    }
                };
                // The answer may overtake events that were sent before it.
                while let Ok(progress) = events.try_recv() {
                    self.tell_of(progress);
                }
                outcome
            }
        };
        let scored = outcome.map_err(|error| match error {
            ScoreError::Budget { needed, .. } => EngineError::Budget { needed: needed + spent, allowed },
            other => self.copies.named(other.into()),
        })?;
        Ok(self.account(role, scored))
    }

    /// The embedding model whose scores the method of a request mixes in.
    pub(super) fn mixed_model(&self, request: &RerankRequest) -> Option<Role> {
        mixed_model(self.models, request)
    }

    /// Has passages scored by the model of this role, for a method that mixes them in: all passages, or only the
    /// first of the `preferred` if a latency budget does not suffice for all. The scores of the others are then not
    /// numbers. Empty if the model fails: the request is then answered without it. A warning reports both cases.
    /// The model's tokens do not count toward the generator's budget, but its time does.
    pub(super) async fn mix_in(
        &mut self,
        role: Role,
        (task, preferred): (&Task, Vec<usize>),
        warnings: &mut Vec<String>,
    ) -> Result<Scores, EngineError> {
        let scorer = self.models.scorer(role)?;
        let problem = if scorer.failed_just_now() {
            "it could not be loaded, and is left alone for a while".to_owned()
        } else {
            let started = Instant::now();
            let list = list(&task.request, true, self.limits.tokens, None);
            // Only a latency budget may be spent completely.
            let expected = task.request.latency_budget_ms.and_then(|budget| {
                let due = started.checked_add(Duration::try_from_secs_f64(budget / 1e3).ok()?);
                let due = self.call.deadline().into_iter().chain(due).min();
                scorer.expected(&list, Urgency::new(self.call.priority(), due))
            });
            let (time, in_part) = self.time_for_signal(task, expected);
            let list = if in_part { List { preferred, ..list } } else { list };
            let loading = scorer.time_to_load();
            let bound = time.into_iter().chain(loading).min();
            // A list that cannot end within the bound is refused or abandoned.
            let list = List { until: bound.and_then(|bound| started.checked_add(bound)), ..list };
            let work = scorer.score(list, self.call, None);
            let outcome = match bound {
                Some(bound) => tokio::time::timeout(bound, work).await,
                None => Ok(work.await),
            };
            self.reserved.other_ms += milliseconds(started);
            match outcome {
                Ok(Ok(scored)) => {
                    self.usage.embedding_tokens += scored.tokens;
                    self.usage.queue_ms += scored.queued.as_secs_f64() * 1e3;
                    self.usage.score_ms += scored.running.as_secs_f64() * 1e3;
                    warnings.extend(query_cut(role, scored.query_cut));
                    let (name, unread) = (role.name(), unread_texts(&scored.unreadable, &self.copies));
                    if let Some(problem) = unread.as_ref().filter(|_| says_nothing(&scored.unreadable)) {
                        format!("it {problem}")
                    } else {
                        let average = |problem| format!("the {name} model {problem}; it counts them as average");
                        warnings.extend(unread.map(average));
                        let scores = self.copies.spread(&scored.scores);
                        let (all, left_out) = (scores.len(), scores.iter().filter(|score| score.is_nan()).count());
                        if left_out > 0 {
                            let read = all - left_out;
                            warnings.push(format!(
                                "the {name} model had time for {read} of {all} passages; the others come last"
                            ));
                        }
                        return Ok(scored.into());
                    }
                }
                // The list's deadline is not the call's.
                Err(_) | Ok(Err(ScoreError::Schedule(ScheduleError::Stopped(Stopped::DeadlineExceeded)))) => {
                    let loads = loading.is_some() && scorer.info().is_none();
                    if loads { "it is not loaded yet" } else { "it cannot end within its share of the time" }.to_owned()
                }
                Ok(Err(ScoreError::Schedule(ScheduleError::Model(ModelError::Decode(error))))) => {
                    // Error details are for the operator, as with a method that asks only this model.
                    tracing::error!(%error, "the {} model failed", role.name());
                    "it failed; see the log".to_owned()
                }
                Ok(Err(error)) => error.to_string(),
            }
        };
        // A call that ended gets its own error.
        self.call.check()?;
        warnings.push(format!("{RANKED_WITHOUT} the {} model: {problem}", role.name()));
        Ok(Scores::default())
    }

    /// How long the model may take, `None` for no bound, and if the scores of a part suffice. By default, half of
    /// the rest of the latency budget and of the deadline, because the generator needs the other half. But cosines
    /// of many passages are worth more than the generator's scores of the few passages that it could evaluate
    /// meanwhile. So the model may take all of the budget, and most of the deadline, in two cases: its list is
    /// `expected` to end in that time, or it reads faster than the generator, and then the scores of the first
    /// passages suffice.
    fn time_for_signal(&self, task: &Task, expected: Option<Duration>) -> (Option<Duration>, bool) {
        let left = self.call.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let budget = task.request.latency_budget_ms.zip(self.speed).and_then(|(budget, speed)| {
            let reserved = real(self.reserved.tokens.saturating_sub(self.reserved.other_tokens)) / speed;
            Duration::try_from_secs_f64(((budget - self.reserved.other_ms) / 1e3 - reserved).max(0.0)).ok()
        });
        let half = budget.into_iter().chain(left).min().map(|time| time / 2);
        let whole = budget.map(|budget| left.map_or(budget, |left| budget.min(left.mul_f64(FILL))));
        let Some((whole, expected)) = whole.zip(expected) else { return (half, false) };
        let read = |passage: &Arc<[Token]>| passage.len() + task.query.len();
        let by_generator = real(task.passages.iter().map(read).sum()) / self.speed.unwrap_or(f64::INFINITY);
        let in_part = expected.as_secs_f64() < by_generator;
        (if in_part || expected <= whole { Some(whole) } else { half }, in_part)
    }

    /// Adds the cost of the scores to the request's usage.
    fn account(&mut self, role: Role, scored: Scored) -> PassageScores {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let all = scored.tokens + scored.known;
        self.planned += all;
        self.quota.add(all);
        self.usage.tokens += scored.tokens;
        self.usage.cached_tokens += scored.known;
        self.usage.naive_tokens += all;
        self.usage.steps += scored.steps;
        self.usage.pairs += scored.scores.len();
        self.usage.queue_ms += milliseconds(scored.queued);
        self.usage.score_ms += milliseconds(scored.running);
        let Unreadable { query, passages } = &scored.unreadable;
        let unread = unread_texts(&scored.unreadable, &self.copies).map(|problem| {
            let all = *query || passages.iter().all(|&unreadable| unreadable);
            let order =
                if all { "the given order is kept, and utilities and scores say nothing" } else { "they come last" };
            format!("the {} model {problem}; {order}", role.name())
        });
        let warnings = query_cut(role, scored.query_cut).into_iter().chain(unread).collect();
        PassageScores { cut: scored.cut.clone(), warnings, scores: scored.into() }
    }

    fn tell_of(&self, progress: Progress) {
        let Progress { done, total, longest } = progress;
        self.tell(match done {
            0 => RerankEvent::Planned(Cost {
                tokens: total,
                naive_tokens: total,
                path_cells: longest,
                ..Cost::default()
            }),
            done => RerankEvent::Progress { done, total },
        });
    }
}
