//! What the passages do for the generator, measured beside a ranking: in the given order and in the new one.

use super::{Arrangement, RerankRequest};
use crate::belief::{Estimate, Measured};
use crate::call::Call;
use crate::engine::belief::SampleOptions;
use crate::engine::rerank::Usage;
use crate::engine::utility::{Utility, UtilityRequest};
use crate::engine::{Engine, EngineError};

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inline {
    /// Reference answers; without them only entropies are measured.
    pub references: Vec<String>,
    /// How answers are sampled.
    pub sampling: SampleOptions,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineReport {
    /// As many passages as are returned, in the given order.
    pub given: Utility,
    /// The returned passages in their context order.
    pub arranged: Utility,
    /// SePer without passages, soft.
    pub without: Option<Measured>,
    /// Pairs that the entailment model judged.
    pub judged_pairs: usize,
}

impl Engine {
    /// The most tokens that measuring will take, before any work; 0 where nothing is to be measured. The new order is not
    /// known yet: it is taken to share nothing with the given one.
    pub(super) async fn inline_cost(&self, call: &Call, request: &RerankRequest) -> Result<usize, EngineError> {
        let Some(inline) = &request.inline else { return Ok(0) };
        self.models().judge()?;
        let returned = request.top_n.unwrap_or(usize::MAX).min(request.passages.len());
        let given: Vec<usize> = (0..returned).collect();
        let (once, without) = (vec![given], vec![Vec::new()]);
        let one = self.sampling_cost(call, utility(request, inline, once).belief()).await?;
        let other = self.sampling_cost(call, utility(request, inline, without).belief()).await?;
        Ok(2 * one + other)
    }

    /// Measures both orders and adds what it took to `usage`.
    pub(super) async fn measure_inline(
        &self,
        call: &Call,
        request: &RerankRequest,
        arrangement: &Arrangement,
        usage: &mut Usage,
    ) -> Result<Option<InlineReport>, EngineError> {
        let Some(inline) = &request.inline else { return Ok(None) };
        let given: Vec<usize> = (0..arrangement.order.len()).collect();
        let report = self.utility(call, utility(request, inline, vec![given, arrangement.order.clone()]), None).await?;
        usage.tokens += report.usage.tokens;
        usage.naive_tokens += report.usage.naive_tokens;
        usage.cached_tokens += report.usage.cached_tokens;
        usage.steps += report.usage.steps;
        usage.tokenise_ms += report.usage.tokenise_ms;
        usage.queue_ms += report.usage.queue_ms;
        usage.score_ms += report.usage.score_ms;
        let without = report.context_free.seper_soft.as_ref().map(Estimate::measured);
        let judged_pairs = report.judged_pairs;
        let mut utilities = report.utilities.into_iter();
        let both = utilities.next().zip(utilities.next());
        Ok(both.map(|(given, arranged)| InlineReport { given, arranged, without, judged_pairs }))
    }
}

fn utility(request: &RerankRequest, inline: &Inline, subsets: Vec<Vec<usize>>) -> UtilityRequest {
    UtilityRequest {
        question: request.query.clone(),
        passages: request.passages.clone(),
        references: inline.references.clone(),
        subsets,
        sampling: inline.sampling.clone(),
        passage_tokens: request.passage_tokens,
        truncate: request.truncate,
        ..UtilityRequest::default()
    }
}
