//! Reranking: `check` refuses what cannot be served, `driver` carries out the method (`super::methods`), and this file places,
//! cuts and arranges the result.

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

/// A query and its passages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RerankRequest {
    /// The query.
    pub query: String,
    /// The passages in the retriever's order.
    pub passages: Vec<Passage>,
    /// How they are scored.
    pub method: MethodRef,
    /// Options of the MOI method; its token budget holds for every method.
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
    /// `sigmoid(utility / unit)` in (0, 1), never rescaled to the list. The unit is the method's: the number of query tokens
    /// for sums over the query, 1 for means over tokens.
    pub score: f64,
    /// Utility in the method's unit: nats, nats a token, or the retriever's score.
    pub utility: f64,
    /// Standard error of the utility in nats, where the method has one.
    pub standard_error: Option<f64>,
    /// Probability that it outranks the next result; absent for the last and where the method has none.
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

impl Usage {
    /// Adds what a plan took.
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
    /// [`EngineError`] with the field at fault, before any work where that is possible.
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
            // A disk that is slow or full is no caller's concern.
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

    /// What the first round of prompts would cost; nothing is evaluated.
    ///
    /// # Errors
    /// As [`Engine::rerank`], before any work.
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

/// Applies threshold and count to a ranking, and arranges what is left for the generator.
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
        // There is no next result, even where the ranking went on.
        last.outranks_next = None;
    }
    let returned: Vec<usize> = passages.iter().map(|passage| passage.index).collect();
    let arrangement = generator.position_bias.arrange(&returned, request.context_order)?;
    Ok(Reranked { passages, fit: scored.fit, arrangement, inline: None, usage, warnings: scored.warnings })
}
