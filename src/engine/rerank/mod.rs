//! Reranking: `check` refuses invalid requests, `driver` runs the method (`super::methods`), and `inline` measures
//! utility. This file applies threshold and count to the ranking and arranges the context.

mod check;
mod driver;
mod inline;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

pub use super::methods::moi::{MoiOptions, Outcome, Scheme};
use driver::{Driven, Driver};
pub use inline::{Inline, InlineReport};

use super::methods::{MethodRef, Scored};
use super::models::ServedGenerator;
use super::position_bias::{Arrangement, ContextOrder};
use super::{Engine, EngineError};
use crate::call::Call;
use crate::fit::Orientation;
use crate::fit::uncertainty::Diagnostics;
use crate::numeric::sigmoid;
use crate::plan::Cost;
use crate::scheduler::generator::Outcome as PlanOutcome;

/// A passage to be ranked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passage {
    /// Identifier that the caller chooses; unique in the request.
    pub id: String,
    /// Title, set before the text in prompts; may be empty.
    pub title: String,
    /// Text; not empty.
    pub text: String,
    /// Score of the retriever; finite. Higher is better.
    pub retriever_score: Option<f64>,
}

/// A query, the passages to rerank, and options.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RerankRequest {
    /// The query; not empty.
    pub query: String,
    /// The passages in the retriever's order.
    pub passages: Vec<Passage>,
    /// Method that scores the passages.
    pub method: MethodRef,
    /// Options of the MOI method. Its token budget applies to every method.
    pub moi: MoiOptions,
    /// Most results to return, best first; `None` returns all.
    pub top_n: Option<usize>,
    /// Results with a lower score are omitted; in [0, 1].
    pub score_threshold: Option<f64>,
    /// Whether passages may be truncated to fit the context; `None` selects the configured default.
    pub truncate: Option<bool>,
    /// Most tokens per passage; if `None`, only the context bounds them.
    pub passage_tokens: Option<usize>,
    /// Order of the returned passages in the generator's context.
    pub context_order: ContextOrder,
    /// Utility to measure in addition to the ranking; `None` measures nothing.
    pub inline: Option<Inline>,
}

/// A ranked passage.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Index of the passage in the request.
    pub index: usize,
    /// `sigmoid(utility / unit)`, in (0, 1) and not normalised over the list. The method sets the unit: the number of
    /// query tokens for sums over the query, 1 for means over tokens.
    pub score: f64,
    /// Utility in the method's unit: nats, nats per token, or the retriever's score.
    pub utility: f64,
    /// Standard error of the utility in nats; `None` if the method does not estimate it.
    pub standard_error: Option<f64>,
    /// Probability that this passage outranks the next result, or the share of several rankings that agree; `None` for the
    /// last one and for methods that estimate neither.
    pub outranks_next: Option<f64>,
    /// Tokens truncated from the end of its text.
    pub tokens_cut: usize,
}

/// Position bias, quality and size of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Position weights for each prompt length, ascending by length; each vector sums to 1.
    pub bias: Vec<Vec<f64>>,
    /// Quality of the fit.
    pub diagnostics: Diagnostics,
    /// What determined the direction of the position bias.
    pub orientation: Orientation,
    /// Pearson correlation of the utilities with the one-passage scores; `None` if undefined or not scored.
    pub anchor_correlation: Option<f64>,
    /// Expected Kendall tau between this ranking and the true one, in [0, 1].
    pub expected_tau: f64,
    /// Design of the prompts.
    pub scheme: Scheme,
    /// Number of prompts that were scored.
    pub observations: usize,
    /// Number of passage blocks: without prefix sharing, and with it.
    pub blocks: (usize, usize),
    /// Number of passages in the longest prompt.
    pub depth: usize,
    /// Rounds of prompts; 1 unless the design is adaptive.
    pub rounds: usize,
    /// Value of the objective, in squared units of the fitted scores.
    pub objective: f64,
}

/// Cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Tokens that the generator evaluated.
    pub tokens: usize,
    /// Tokens of all prompts if every prompt were evaluated from its beginning.
    pub naive_tokens: usize,
    /// Tokens reused from the cached prefixes of earlier requests.
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
    /// Milliseconds in total.
    pub total_ms: f64,
}

/// The result of a rerank request.
#[derive(Debug, Clone, PartialEq)]
pub struct Reranked {
    /// Passages from best to worst; ties keep the order of the request.
    pub passages: Vec<Ranked>,
    /// The fit; `None` for methods without one.
    pub fit: Option<FitReport>,
    /// The returned passages in the order of the generator's context.
    pub arrangement: Arrangement,
    /// The measured utility; `None` if not requested.
    pub inline: Option<InlineReport>,
    /// Cost of the request.
    pub usage: Usage,
    /// Warnings for the caller, such as truncated passages.
    pub warnings: Vec<String>,
}

/// An event of a running request, sent to its listener.
#[derive(Debug, Clone, PartialEq)]
pub enum RerankEvent {
    /// The first round is planned and fits the limits.
    Planned(Cost),
    /// A step of the generator ended.
    Progress {
        /// Tokens evaluated so far.
        done: usize,
        /// Total number of tokens.
        total: usize,
    },
    /// The current ranking.
    Interim {
        /// Passage indices from best to worst.
        order: Vec<usize>,
        /// Number of scores that it is based on.
        observations: usize,
    },
}

impl Usage {
    /// Adds the cost of a plan.
    pub(super) fn add(&mut self, outcome: &PlanOutcome) {
        self.tokens += outcome.tokens;
        self.cached_tokens += outcome.cached_tokens;
        self.steps += outcome.steps;
        self.queue_ms += outcome.queued.as_secs_f64() * 1e3;
        self.score_ms += outcome.running.as_secs_f64() * 1e3;
    }
}

impl Engine {
    /// Reranks the passages of one query. The work ends when the call stops.
    ///
    /// # Errors
    /// [`EngineError`], which names the field at fault. Invalid requests are refused before any work.
    pub async fn rerank(
        &self,
        call: &Call,
        request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
    ) -> Result<Reranked, EngineError> {
        let started = Instant::now();
        check::check(&request, self.limits())?;
        let generator = self.generator()?;
        generator.position_bias.check(request.context_order)?;
        let reserved = self.inline_cost(call, &request).await?;
        let mut driver = self.driver(call, &request, &generator);
        driver.reserved = reserved;
        driver.listener = listener;
        let Driven { scored, cut } = driver.drive(request.clone()).await?;
        let usage = driver.usage;
        if let Some(fit) = &scored.fit
            && request.moi.is_plain()
            && generator.position_bias.learn(fit)
        {
            // Saving runs in the background, so that a slow or full disk does not delay or fail the request.
            let bias = Arc::clone(&generator.position_bias);
            tokio::task::spawn_blocking(move || bias.save());
        }
        let mut placed = place(&generator, &request, scored, &cut, usage)?;
        if !placed.passages.is_empty() {
            placed.inline = self.measure_inline(call, &request, &placed.arrangement, &mut placed.usage).await?;
        }
        placed.usage.total_ms = super::milliseconds(started);
        Ok(placed)
    }

    /// Computes the cost of the first round of prompts without evaluating anything.
    ///
    /// # Errors
    /// As [`Engine::rerank`] before any work.
    pub async fn cost(&self, call: &Call, request: RerankRequest) -> Result<Cost, EngineError> {
        check::check(&request, self.limits())?;
        let generator = self.generator()?;
        self.driver(call, &request, &generator).first_round(request).await
    }

    fn driver<'a>(&self, call: &'a Call, request: &RerankRequest, generator: &Arc<ServedGenerator>) -> Driver<'a> {
        let asks_model = request.method.prompts(request, &generator.language).is_some();
        Driver {
            call,
            model: asks_model.then(|| Arc::clone(generator)),
            limits: self.limits,
            reserved: 0,
            listener: None,
            usage: Usage::default(),
            passages: request.passages.len(),
        }
    }
}

/// Applies threshold and count to a ranking and arranges the remaining passages for the generator.
fn place(
    generator: &ServedGenerator,
    request: &RerankRequest,
    scored: Scored,
    cut: &[usize],
    usage: Usage,
) -> Result<Reranked, EngineError> {
    let ranked = scored.ranking.iter().enumerate().map(|(rank, &index)| Ranked {
        index,
        score: sigmoid(scored.utilities[index] / scored.unit),
        utility: scored.utilities[index],
        standard_error: scored.standard_errors.as_ref().map(|errors| errors[index]),
        outranks_next: scored.outranks_next.as_ref().and_then(|next| next.get(rank).copied()),
        tokens_cut: cut.get(index).copied().unwrap_or(0),
    });
    let mut passages: Vec<Ranked> = ranked
        .filter(|passage| request.score_threshold.is_none_or(|least| passage.score >= least))
        .take(request.top_n.unwrap_or(usize::MAX))
        .collect();
    if let Some(last) = passages.last_mut() {
        // The next passage of the ranking is not among the results.
        last.outranks_next = None;
    }
    let returned: Vec<usize> = passages.iter().map(|passage| passage.index).collect();
    let arrangement = generator.position_bias.arrange(&returned, request.context_order)?;
    Ok(Reranked { passages, fit: scored.fit, arrangement, inline: None, usage, warnings: scored.warnings })
}
