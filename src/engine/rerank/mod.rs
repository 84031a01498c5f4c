//! Reranking: checks a request, tokenises it, and hands it to its method.

mod inline;
mod moi;
mod pointwise;
mod prepared;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

pub use inline::{Inline, InlineReport};
pub use moi::{MoiOptions, Outcome, Scheme};
use prepared::Prepared;

use super::position_bias::{Arrangement, ContextOrder};
use super::{Engine, EngineError};
use crate::fit::Orientation;
use crate::fit::uncertainty::Diagnostics;
use crate::numeric::{descending, sigmoid};
use crate::plan::Cost;
use crate::scheduler;

/// A passage to be placed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passage {
    /// The caller's name for it; unique in the request.
    pub id: String,
    /// Title, may be empty.
    pub title: String,
    /// Text; not empty.
    pub text: String,
    /// Score of the retriever, finite.
    pub retriever_score: Option<f64>,
}

/// How passages are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Mixture of Interventions over whole orders. The default.
    #[default]
    Moi,
    /// log P(query | passage), each passage alone (QG; Sachan et al.).
    QueryGeneration,
    /// log P(query | passage) + log P(passage) (Bayes saliency; Merth et al., Eq. 1 of MOI).
    BayesSaliency,
    /// Σ P·log P over the query's tokens (LongLLMLingua as MOI section 4.1 states it).
    LongLlmLingua,
    /// The retriever's own scores, or the given order where there are none. Evaluates nothing.
    Retriever,
}

/// A query and its passages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RerankRequest {
    /// The query.
    pub query: String,
    /// The passages in the retriever's order.
    pub passages: Vec<Passage>,
    /// The method.
    pub method: Method,
    /// Options of the MOI method.
    pub moi: MoiOptions,
    /// How many results to return; all where `None`.
    pub top_n: Option<usize>,
    /// Results with a lower score are left out.
    pub score_threshold: Option<f64>,
    /// Whether passages may be cut to fit; the server's default where `None`.
    pub truncate: Option<bool>,
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
    /// How the returned passages are arranged in a context.
    pub context_order: ContextOrder,
    /// What is to be measured beside the ranking.
    pub inline: Option<Inline>,
}

/// A passage in its new place.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Index in the request.
    pub index: usize,
    /// `sigmoid(utility per query token)`: in (0, 1), never rescaled to the list.
    pub score: f64,
    /// Utility in nats; for the retriever's method its score.
    pub utility: f64,
    /// Standard error of the utility in nats, where the method has one.
    pub standard_error: Option<f64>,
    /// Probability that it outranks the next one, where the method has one and there is a next.
    pub outranks_next: Option<f64>,
    /// Tokens cut from its end.
    pub tokens_cut: usize,
}

/// What the fit says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Position weights of each prompt length, ascending by length; each sums to one.
    pub bias: Vec<Vec<f64>>,
    /// Quality of the fit.
    pub diagnostics: Diagnostics,
    /// What settled the direction of the bias.
    pub orientation: Orientation,
    /// Correlation of the utilities with the one-passage scores.
    pub anchor_correlation: Option<f64>,
    /// Kendall tau to expect between this ranking and the true one.
    pub expected_tau: f64,
    /// Which prompts were scored.
    pub scheme: Scheme,
    /// Prompts that were scored.
    pub observations: usize,
    /// Passage blocks without sharing, and with leading blocks shared.
    pub blocks: (usize, usize),
    /// Passages in the longest prompt.
    pub depth: usize,
    /// Rounds of prompts, 1 but for an adaptive run.
    pub rounds: usize,
    /// Value of the objective, in the units of the fitted scores.
    pub objective: f64,
}

/// What a request took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Tokens evaluated.
    pub tokens: usize,
    /// Tokens a program would evaluate that runs every prompt from its beginning.
    pub naive_tokens: usize,
    /// Tokens taken from the prefixes of earlier requests.
    pub cached_tokens: usize,
    /// Steps of the generator in which the request took part.
    pub steps: usize,
    /// Milliseconds spent tokenising and planning.
    pub tokenise_ms: f64,
    /// Milliseconds in the queue.
    pub queue_ms: f64,
    /// Milliseconds from admission to the last score.
    pub score_ms: f64,
    /// Milliseconds in the fit.
    pub fit_ms: f64,
    /// Milliseconds over all.
    pub total_ms: f64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reranked {
    /// Passages from best to worst; ties keep the given order.
    pub passages: Vec<Ranked>,
    /// The fit, for methods that have one.
    pub fit: Option<FitReport>,
    /// The returned passages in the order in which they are to be read.
    pub arrangement: Arrangement,
    /// What was measured beside the ranking.
    pub inline: Option<InlineReport>,
    /// What it took.
    pub usage: Usage,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// Something that happened on the way.
#[derive(Debug, Clone, PartialEq)]
pub enum RerankEvent {
    /// The work is known.
    Planned(Cost),
    /// A step ended.
    Progress {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// The order so far, by passage index, from the first `observations` scores.
    Interim {
        /// Indices from best to worst.
        order: Vec<usize>,
        /// Scores it rests on.
        observations: usize,
    },
}

/// Scores of passages before they are ranked.
struct Scored {
    utilities: Vec<f64>,
    standard_errors: Option<Vec<f64>>,
    ranking: Vec<usize>,
    outranks_next: Option<Vec<f64>>,
    fit: Option<FitReport>,
}

impl Engine {
    /// Reranks the passages of one query. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn rerank(
        &self,
        request: RerankRequest,
        deadline: Option<Instant>,
        listener: Option<UnboundedSender<RerankEvent>>,
    ) -> Result<Reranked, EngineError> {
        let started = Instant::now();
        prepared::check(&request, self.limits())?;
        self.position_bias.check(request.context_order)?;
        let reserved = self.inline_cost(&request).await?;
        let allowed = self.limits.tokens.min(request.moi.token_budget.unwrap_or(usize::MAX));
        if reserved > allowed {
            return Err(EngineError::Budget { needed: reserved, allowed });
        }
        if request.method == Method::Retriever {
            let (scored, warnings) = by_retriever(&request);
            let placed = place(self, &request, scored, &[], 1.0, (Usage::default(), warnings))?;
            return self.complete(&request, placed, deadline, started).await;
        }
        let mut task = Prepared::new(self, request, started).await?;
        task.listener = listener;
        task.deadline = deadline;
        task.reserved = reserved;
        let scored = match task.request.method {
            Method::Moi => moi::score(self, &mut task).await?,
            _ => pointwise::score(self, &mut task).await?,
        };
        let query_tokens = crate::numeric::real(task.query_tokens.max(1));
        if let Some(fit) = &scored.fit
            && self.position_bias.learn(fit)
        {
            // A disk that is slow or full is no caller's concern.
            let known = Arc::clone(&self.position_bias);
            tokio::task::spawn_blocking(move || known.save());
        }
        let placed = place(self, &task.request, scored, &task.cut, query_tokens, (task.usage, task.warnings))?;
        self.complete(&task.request, placed, deadline, started).await
    }

    /// Measures what is asked for beside the ranking, and closes the account.
    async fn complete(
        &self,
        request: &RerankRequest,
        mut placed: Reranked,
        deadline: Option<Instant>,
        started: Instant,
    ) -> Result<Reranked, EngineError> {
        if !placed.passages.is_empty() {
            let measured = self.measure_inline(request, &placed.arrangement, &mut placed.usage, deadline).await;
            placed.inline = measured?;
        }
        placed.usage.total_ms = super::milliseconds(started);
        Ok(placed)
    }
}

impl Engine {
    /// What the first round of a MOI request would cost; nothing is evaluated.
    ///
    /// # Errors
    /// As [`Engine::rerank`], before any work.
    pub async fn cost(&self, request: RerankRequest) -> Result<Cost, EngineError> {
        prepared::check(&request, self.limits())?;
        let task = Prepared::new(self, request, Instant::now()).await?;
        Ok(moi::plan(self, &task)?.cost())
    }
}

fn place(
    engine: &Engine,
    request: &RerankRequest,
    scored: Scored,
    cut: &[usize],
    unit: f64,
    (usage, warnings): (Usage, Vec<String>),
) -> Result<Reranked, EngineError> {
    let ranked = scored.ranking.iter().enumerate().map(|(rank, &index)| Ranked {
        index,
        score: sigmoid(scored.utilities[index] / unit),
        utility: scored.utilities[index],
        standard_error: scored.standard_errors.as_ref().map(|errors| errors[index]),
        outranks_next: scored.outranks_next.as_ref().and_then(|next| next.get(rank).copied()),
        tokens_cut: cut.get(index).copied().unwrap_or(0),
    });
    let passages: Vec<Ranked> = ranked
        .filter(|passage| request.score_threshold.is_none_or(|least| passage.score >= least))
        .take(request.top_n.unwrap_or(usize::MAX))
        .collect();
    let returned: Vec<usize> = passages.iter().map(|passage| passage.index).collect();
    let arrangement = engine.position_bias.arrange(&returned, request.context_order)?;
    Ok(Reranked { passages, fit: scored.fit, arrangement, inline: None, usage, warnings })
}

fn by_retriever(request: &RerankRequest) -> (Scored, Vec<String>) {
    let count = request.passages.len();
    let given: Option<Vec<f64>> = request.passages.iter().map(|passage| passage.retriever_score).collect();
    let mut warnings = Vec::new();
    let utilities = given.unwrap_or_else(|| {
        warnings.push("not every passage has a retriever_score: the given order is kept".to_owned());
        (0..count).map(|index| -crate::numeric::real(index)).collect()
    });
    let ranking = descending(&utilities);
    (Scored { utilities, standard_errors: None, ranking, outranks_next: None, fit: None }, warnings)
}

/// Turns what the scheduler tells into what the caller hears.
fn relay(event: &scheduler::Event) -> Option<RerankEvent> {
    match event {
        scheduler::Event::Progress { done, total } => Some(RerankEvent::Progress { done: *done, total: *total }),
        scheduler::Event::Scored(..) | scheduler::Event::Sampled(..) => None,
    }
}
