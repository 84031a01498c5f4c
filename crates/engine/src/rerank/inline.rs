//! Inline utility: measures how the returned passages change the generator's belief, in input order and in the new
//! order.

use super::budget::Reserved;
use super::quota::Quota;
use crate::checks::check_references;
use crate::models::{GeneratorModel, Models};
use crate::truncate::tokenise;
use crate::types::{EngineError, Inline, InlineReport, Limits, RerankRequest, Reranked, Role, UtilityRequest};
use crate::utility::UtilityMeter;
use numeric::real;
use prefix_scheduler::call::Call;
use rag_metrics::belief::Estimate;

/// The input order, the new one, and none.
const CONTEXTS: usize = 3;

impl Inline {
    /// Refuses a measurement that would fail after the ranking, with the field names of the ranking's request.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        if limits.orders < CONTEXTS {
            let problem =
                format!("its answers have {CONTEXTS} contexts, and the server allows {} orders", limits.orders);
            return Err(EngineError::invalid("utility", problem));
        }
        check_references(&self.references, limits).map_err(own_field)
    }

    /// Refuses options that are invalid for every list.
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

/// Reserves tokens for the measurement.
pub(super) async fn reserve(
    meter: &UtilityMeter,
    call: &Call,
    scoring: &GeneratorModel,
    request: &RerankRequest,
) -> Result<Reserved, EngineError> {
    let tokens = inline_cost(meter, call, request).await?;
    if scoring.role() == Role::Generator {
        return Ok(Reserved { tokens, ..Reserved::default() });
    }
    let speed = meter.sampler.models.generator(None)?.scheduler().stats().reading_speed();
    Ok(Reserved { tokens, other_tokens: tokens, other_ms: speed.map_or(0.0, |speed| real(tokens) / speed * 1e3) })
}

/// Upper bound on the tokens of the measurement; 0 if the request does not ask for one. The new order is not known
/// yet: it may hold the longest passages, and it counts in full, as if it shared no prefix with the input order.
pub(super) async fn inline_cost(
    meter: &UtilityMeter,
    call: &Call,
    request: &RerankRequest,
) -> Result<usize, EngineError> {
    let Some(inline) = &request.inline else { return Ok(0) };
    // The ranking must not fail because the entailment model cannot be loaded.
    meter.sampler.models.judge()?.load(call).await?;
    let returned = request.top_n.unwrap_or(usize::MAX).min(request.passages.len());
    let cost = async |context: Vec<usize>| {
        let asked = utility(request, inline, vec![context]).belief();
        meter.sampler.cost(call, asked).await.map_err(own_field)
    };
    let given = cost((0..returned).collect()).await?;
    let arranged = if returned == request.passages.len() {
        given
    } else {
        cost(longest(&meter.sampler.models, call, request, returned).await?).await?
    };
    Ok(given + arranged + cost(Vec::new()).await?)
}

/// The `most` passages with the most tokens in the prompt.
async fn longest(
    models: &Models,
    call: &Call,
    request: &RerankRequest,
    count: usize,
) -> Result<Vec<usize>, EngineError> {
    let mut order: Vec<usize> = (0..request.passages.len()).collect();
    let (generator, passages) = (models.answering()?, request.passages.clone());
    let texts = call.compute(move |call| tokenise(&generator.language, &passages, call)).await?;
    let lengths: Vec<usize> = texts.iter().map(|text| text.len_within(request.passage_tokens)).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    order.truncate(count);
    Ok(order)
}

/// Measures both orders and adds the report and its cost to the answer, if the request asks for it. The method may
/// have used a part of the pairs.
pub(super) async fn measure_inline(
    meter: &UtilityMeter,
    call: &Call,
    request: &RerankRequest,
    answer: &mut Reranked,
    quota: &Quota,
) -> Result<(), EngineError> {
    let Some(inline) = &request.inline else { return Ok(()) };
    let order = answer.arrangement.order.clone();
    let given: Vec<usize> = (0..order.len()).collect();
    let allowed = meter.sampler.limits.pairs;
    let pair_budget = Some(allowed.saturating_sub(quota.pairs()));
    let asked = UtilityRequest { pair_budget, ..utility(request, inline, vec![given, order]) };
    let report = meter.measure(call, asked, None).await.map_err(|error| match error {
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
    // The prompt of the ranking may hold fewer passages than the answer prompt, and cut none.
    if report.shortened > 0 {
        answer.warnings.push(format!("utility: {} passages were cut to fit", report.shortened));
    }
    answer.warnings.extend(report.too_long.map(|warning| format!("utility: {warning}")));
    let without = report.context_free.seper_soft.as_ref().map(Estimate::measured);
    let judged_pairs = report.judged_pairs;
    let mut utilities = report.utilities.into_iter();
    let both = utilities.next().zip(utilities.next());
    answer.inline = both.map(|(input, arranged)| InlineReport { input, arranged, without, judged_pairs });
    Ok(())
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

    /// It was refused after the ranking, with a field that a ranking does not have.
    #[test]
    fn a_server_of_two_orders_measures_no_utility() {
        let check = |orders| Inline::default().check(&Limits { orders, ..Limits::WIDE });
        assert_eq!(check(3), Ok(()));
        let EngineError::Invalid { field, problem } = check(2).unwrap_err() else { panic!("another error") };
        assert_eq!((field.as_str(), problem.contains("the server allows 2 orders")), ("utility", true), "{problem}");
    }
}
