//! Verdicts of the entailment model, for a method that asks for them.

use super::driver::Driver;
use crate::engine::EngineError;
use crate::engine::methods::Scores;
use crate::model::entailment::TextPair;

impl Driver<'_> {
    /// Has pairs of texts judged. The pairs of all rounds count together.
    pub(super) async fn judge(&mut self, pairs: Vec<TextPair>) -> Result<Scores, EngineError> {
        self.pairs += pairs.len();
        if self.pairs > self.limits.pairs {
            return Err(EngineError::Pairs { allowed: self.limits.pairs });
        }
        let judged = self.models.judge()?.judge(pairs, self.call).await?;
        self.usage.pairs += judged.judged;
        Ok(Scores { verdicts: judged.verdicts, ..Scores::default() })
    }
}
