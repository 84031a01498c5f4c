//! Verdicts of the entailment model, for a method that asks for them.

use super::driver::Driver;
use crate::methods::Scores;
use crate::sampling::measure::{too_long, verdict};
use crate::types::EngineError;
use prefix_scheduler::model::entailment::TextPair;

impl Driver<'_> {
    /// Takes the rest of the call's estimate back, because this list needs the generator no more. Tokens may be reserved
    /// for the utility, and other lists of the request may still need it.
    pub(super) fn release_estimate(&mut self) {
        if self.reserved.tokens == 0
            && let Some(model) = self.model.as_ref()
            && self.quota.asks_no_more()
        {
            model.scheduler.release_estimate(self.call);
        }
    }

    /// Has pairs of texts judged. The pairs of all rounds and of all lists of the request count together.
    pub(super) async fn judge(
        &mut self,
        pairs: Vec<TextPair>,
        warnings: &mut Vec<String>,
    ) -> Result<Scores, EngineError> {
        if self.quota.add_pairs(pairs.len()) > self.limits.pairs {
            return Err(EngineError::Pairs { allowed: self.limits.pairs });
        }
        self.release_estimate();
        let judged = self.models.judge()?.judge(pairs, self.call).await?;
        let warning = judged.long.then(|| too_long(&judged.model, true));
        warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
        self.usage.pairs += judged.judged;
        self.usage.queue_ms += judged.queued.as_secs_f64() * 1e3;
        self.usage.score_ms += judged.running.as_secs_f64() * 1e3;
        Ok(Scores { verdicts: judged.verdicts.into_iter().map(verdict).collect(), ..Scores::default() })
    }
}
