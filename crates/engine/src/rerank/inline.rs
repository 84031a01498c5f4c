//! Inline utility: measures how the returned passages change the generator's belief, in the given and in the new order.

use super::quota::Quota;
use super::{RerankRequest, Reranked};
use crate::belief::{SampleOptions, check_references};
use crate::truncate::tokenise;
use crate::utility::{Utility, UtilityRequest};
use crate::{Engine, EngineError, Limits};
use prefix_scheduler::call::Call;
use rag_metrics::belief::{Estimate, Measured};

/// The given order, the new one, and none.
const CONTEXTS: usize = 3;

/// Options of the inline utility.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inline {
    /// Reference answers; if empty, only entropies are measured.
    pub references: Vec<String>,
    /// How answers are sampled.
    pub sampling: SampleOptions,
}

/// The measured inline utility.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineReport {
    /// Utility of the first passages of the request, as many as are returned, in the order of the request.
    pub given: Utility,
    /// Utility of the returned passages in their context order.
    pub arranged: Utility,
    /// Context-free soft SePer; `None` without references.
    pub without: Option<Measured>,
    /// Number of pairs that the entailment model judged.
    pub judged_pairs: usize,
}

impl Inline {
    /// Refuses what the measurement after the ranking would refuse, by the fields of the ranking's request.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        if limits.orders < CONTEXTS {
            let problem =
                format!("its answers have {CONTEXTS} contexts, and the server allows {} orders", limits.orders);
            return Err(EngineError::invalid("utility", problem));
        }
        check_references(&self.references, limits).map_err(own_field)
    }

    /// Refuses options that no list could be measured with.
    pub(super) fn check_options(&self) -> Result<(), EngineError> {
        let blank = self.references.iter().position(|reference| reference.trim().is_empty());
        if let Some(index) = blank {
            return Err(EngineError::invalid(format!("utility.references[{index}]"), "must not be empty"));
        }
        self.sampling.check().map_err(own_field)
    }
}

/// An error of a measurement with the field of the ranking's request.
fn own_field(error: EngineError) -> EngineError {
    let own = |field: String| match field.strip_prefix("sampling.") {
        Some(option) => format!("utility.{option}"),
        None if field.starts_with("references") => format!("utility.{field}"),
        None if field == "question" => "query".to_owned(),
        None => field,
    };
    match error {
        EngineError::Invalid { field, problem } => EngineError::Invalid { field: own(field), problem },
        EngineError::TooLong { field, needed, available } => {
            EngineError::TooLong { field: own(field), needed, available }
        }
        other => other,
    }
}

impl Engine {
    /// Upper bound on the tokens of the measurement; 0 if the request does not ask for one. The new order is not known
    /// yet: it may hold the longest passages, and it is counted in full, as if it shared no prefix with the given order.
    pub(super) async fn inline_cost(&self, call: &Call, request: &RerankRequest) -> Result<usize, EngineError> {
        let Some(inline) = &request.inline else { return Ok(0) };
        // The ranking comes first: a model that cannot be loaded must not cost it.
        self.models().judge()?.load(call).await?;
        let returned = request.top_n.unwrap_or(usize::MAX).min(request.passages.len());
        let cost = async |context: Vec<usize>| {
            let asked = utility(request, inline, vec![context]).belief();
            self.sampling_cost(call, asked).await.map_err(own_field)
        };
        let given = cost((0..returned).collect()).await?;
        let arranged = if returned == request.passages.len() {
            given
        } else {
            cost(self.longest(call, request, returned).await?).await?
        };
        Ok(given + arranged + cost(Vec::new()).await?)
    }

    /// The passages of which the most tokens are read, so many of them.
    async fn longest(&self, call: &Call, request: &RerankRequest, count: usize) -> Result<Vec<usize>, EngineError> {
        let mut order: Vec<usize> = (0..request.passages.len()).collect();
        let (generator, passages) = (self.generator()?, request.passages.clone());
        let texts = call.compute(move |call| tokenise(&generator.language, &passages, call)).await?;
        let lengths: Vec<usize> = texts.iter().map(|text| text.len_within(request.passage_tokens)).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
        order.truncate(count);
        Ok(order)
    }

    /// Measures both orders and adds the report and its cost to the answer, if the request asks for it. The method may have
    /// spent a part of the pairs.
    pub(super) async fn measure_inline(
        &self,
        call: &Call,
        request: &RerankRequest,
        answer: &mut Reranked,
        quota: &Quota,
    ) -> Result<(), EngineError> {
        let Some(inline) = &request.inline else { return Ok(()) };
        let order = answer.arrangement.order.clone();
        let given: Vec<usize> = (0..order.len()).collect();
        let allowed = self.limits().pairs;
        let pair_budget = Some(allowed.saturating_sub(quota.pairs()));
        let asked = UtilityRequest { pair_budget, ..utility(request, inline, vec![given, order]) };
        let report = self.utility(call, asked, None).await.map_err(|error| match error {
            EngineError::Pairs { .. } => EngineError::Pairs { allowed },
            other => own_field(other),
        })?;
        let usage = &mut answer.usage;
        usage.tokens += report.usage.tokens;
        usage.naive_tokens += report.usage.naive_tokens;
        usage.cached_tokens += report.usage.cached_tokens;
        usage.steps += report.usage.steps;
        usage.tokenise_ms += report.usage.tokenise_ms;
        usage.queue_ms += report.usage.queue_ms;
        usage.score_ms += report.usage.score_ms;
        // The prompt of the ranking may hold fewer passages than that of the answers, and cut none.
        if report.shortened > 0 {
            answer.warnings.push(format!("utility: {} passages were cut to fit", report.shortened));
        }
        answer.warnings.extend(report.too_long.map(|warning| format!("utility: {warning}")));
        let without = report.context_free.seper_soft.as_ref().map(Estimate::measured);
        let judged_pairs = report.judged_pairs;
        let mut utilities = report.utilities.into_iter();
        let both = utilities.next().zip(utilities.next());
        answer.inline = both.map(|(given, arranged)| InlineReport { given, arranged, without, judged_pairs });
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It was refused after the ranking, with a field that a ranking has not.
    #[test]
    fn a_server_of_two_orders_measures_no_utility() {
        let check = |orders| Inline::default().check(&Limits { orders, ..Limits::WIDE });
        assert_eq!(check(3), Ok(()));
        let EngineError::Invalid { field, problem } = check(2).unwrap_err() else { panic!("another error") };
        assert_eq!((field.as_str(), problem.contains("the server allows 2 orders")), ("utility", true), "{problem}");
    }
}
