//! What a request takes, before it is done.

use super::copies::Copies;
use super::driver::{Driver, Round, Step, lock};
use super::{Blanks, Passage, RerankRequest, check};
use crate::methods::Budget;
use crate::models::{GeneratorModel, Role};
use crate::{Engine, EngineError};
use numeric::{count, real};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::Cost;

/// Most tokens that a request may evaluate, what is reserved included.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    pub tokens: usize,
    /// The same without the bound of a latency budget.
    pub counted: usize,
}

/// Tokens that a generator of this speed reads in what is left of the latency budget of a request, `elsewhere` milliseconds less;
/// `None` without a budget, or without a speed.
pub(super) fn tokens_in_time(request: &RerankRequest, speed: Option<f64>, elsewhere: f64) -> Option<usize> {
    let (budget, speed) = request.latency_budget_ms.zip(speed)?;
    Some(count(speed * (budget - elsewhere).max(0.0) / 1e3))
}

impl Driver<'_> {
    pub(super) fn allowed(&self, request: &RerankRequest) -> Allowed {
        let (tokens, milliseconds) = self.elsewhere;
        let within = tokens_in_time(request, self.speed, milliseconds).map(|own| own.saturating_add(tokens));
        let counted = self.limits.tokens.min(request.moi.token_budget.unwrap_or(usize::MAX));
        Allowed { tokens: within.unwrap_or(usize::MAX).min(counted), counted }
    }

    /// Tokens planned and reserved so far that take time.
    pub(super) fn evaluated(&self) -> usize {
        self.planned - self.spared + self.reserved
    }

    /// That a round is more than what is left.
    pub(super) fn exceeded(&self, round: &Round, allowed: Allowed) -> EngineError {
        let counted = self.planned + self.reserved + round.cost.tokens;
        if counted > allowed.counted {
            return EngineError::Budget { needed: counted, allowed: allowed.counted };
        }
        let needed = self.evaluated() + round.cost.tokens - round.spared;
        EngineError::Budget { needed, allowed: allowed.tokens }
    }

    /// What is left for the next round. States that are kept help where the time is the bound, and not where the number of tokens is, so
    /// that equal requests get equal rounds. What a compression wants scored is read again where its state has no scores.
    pub(super) fn left(&self, allowed: Allowed, context: usize) -> Budget {
        let counted = allowed.counted.saturating_sub(self.planned + self.reserved);
        let tokens = allowed.tokens.saturating_sub(self.evaluated()).min(counted);
        let bound_by_time =
            self.model.as_ref().filter(|_| allowed.tokens < allowed.counted && self.alone.wanted().is_none());
        let kept = bound_by_time.and_then(|model| model.scheduler.kept(self.rounds.as_ref()));
        Budget { tokens, counted, context, kept }
    }

    /// The first round of a request; nothing is evaluated.
    pub async fn first_round(&mut self, request: RerankRequest) -> Result<Cost, EngineError> {
        let allowed = self.allowed(&request);
        let begun = self.begin(request, None).await?;
        let fits = lock(&begun.ranking).fits();
        Ok(match self.step(&begun.ranking, None, allowed, fits).await? {
            Step::Score(round) => round.cost,
            // What passages cost another model is known when its worker has tokenised them.
            Step::ScorePassages(_) | Step::Judge(_) | Step::Done(_) => Cost::default(),
        })
    }
}

impl RerankRequest {
    /// Whether a time, or a number of tokens that so many are near to, may have left something unread. What was read then says
    /// nothing of what all takes.
    pub(super) fn was_bounded(&self, tokens: usize) -> bool {
        self.latency_budget_ms.is_some() || self.moi.token_budget.is_some_and(|budget| tokens > budget / 2)
    }
}

impl Engine {
    /// Tokens reserved for the utility, and what of them is not the work of the model that scores: tokens, and milliseconds of the
    /// generator.
    pub(super) async fn inline_reserve(
        &self,
        call: &Call,
        scoring: &GeneratorModel,
        request: &RerankRequest,
    ) -> Result<(usize, (usize, f64)), EngineError> {
        let tokens = self.inline_cost(call, request).await?;
        if scoring.role() == Role::Generator {
            return Ok((tokens, (0, 0.0)));
        }
        let speed = self.models().generator(None)?.scheduler().stats().reading_speed();
        Ok((tokens, (tokens, speed.map_or(0.0, |speed| real(tokens) / speed * 1e3))))
    }

    /// Computes the cost of the first round of prompts without evaluating anything.
    ///
    /// # Errors
    /// As [`Engine::rerank`] before any work.
    pub async fn cost(&self, call: &Call, mut request: RerankRequest) -> Result<Cost, EngineError> {
        check::check(&request, self.limits())?;
        request.tidy();
        let blanks = Blanks::take(&mut request.passages, Passage::is_blank);
        if request.passages.is_empty() {
            return Ok(Cost::default());
        }
        let copies = Copies::of(&request);
        let request = copies.without(&request);
        let scorer = self.scoring_model(&request)?.get()?;
        let cost = self.driver(call, &request, &scorer, copies).first_round(request).await;
        cost.map_err(|error| blanks.named(error))
    }
}
