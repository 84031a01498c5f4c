//! The cost of a ranking, before the work.

use super::budget::{Allowed, Reserved, tokens_in_time};
use super::driver::{Driver, Given, Round, Step, lock};
use crate::methods::Budget;
use crate::types::{EngineError, RerankRequest};
use prefix_scheduler::plan::Cost;

impl Driver<'_> {
    pub(super) fn allowed(&self, request: &RerankRequest) -> Allowed {
        let Reserved { other_tokens, other_ms, .. } = self.reserved;
        let within = tokens_in_time(request, self.speed, other_ms).map(|own| own.saturating_add(other_tokens));
        let counted = self.limits.tokens.min(request.token_budget.unwrap_or(usize::MAX));
        Allowed { tokens: within.unwrap_or(usize::MAX).min(counted), counted }
    }

    /// Planned and reserved tokens that take time.
    pub(super) fn evaluated(&self) -> usize {
        self.planned - self.spared + self.reserved.tokens
    }

    /// The error of a round that exceeds the rest of the budget.
    pub(super) fn exceeded(&self, round: &Round, allowed: Allowed) -> EngineError {
        let counted = self.planned + self.reserved.tokens + round.cost.tokens;
        if counted > allowed.counted {
            return EngineError::Budget { needed: counted, allowed: allowed.counted };
        }
        let needed = self.evaluated() + round.cost.tokens - round.spared;
        EngineError::Budget { needed, allowed: allowed.tokens }
    }

    /// The budget of the next round. Cached tokens are free if time is the bound. They count if the number of
    /// tokens is the bound, so that equal requests get equal rounds. Passages that a compression wants scored are
    /// evaluated again if they are cached without scores.
    pub(super) fn left(&self, allowed: Allowed, context: usize) -> Budget {
        let counted = allowed.counted.saturating_sub(self.planned + self.reserved.tokens);
        let tokens = allowed.tokens.saturating_sub(self.evaluated()).min(counted);
        let bound_by_time =
            self.model.as_ref().filter(|_| allowed.tokens < allowed.counted && self.single.wanted().is_none());
        let kept = bound_by_time.and_then(|model| model.scheduler.kept(self.rounds.as_ref()));
        Budget { tokens, counted, context, kept }
    }

    /// The first round of a request, without evaluation.
    pub async fn first_round(&mut self, request: RerankRequest) -> Result<Cost, EngineError> {
        let allowed = self.allowed(&request);
        let begun = self.begin(request, None).await?;
        let fits = lock(&begun.ranking).fits();
        Ok(match self.step(&begun.ranking, Given::Nothing, allowed, fits).await? {
            Step::Score(round) => round.cost,
            // The cost of another model is known when its worker has tokenised the passages.
            Step::ScorePassages(_) | Step::Judge(_) | Step::Done(_) => Cost::default(),
        })
    }
}
