//! Checks of a request that need no model.

use std::collections::HashSet;

use super::Blanks;
use crate::types::{EngineError, Inline, Limits, Passage, RerankRequest, unmarked};
use rag_metrics::quoted;

/// Refuses a request that cannot be served, with the field at fault.
pub(crate) fn check_request(request: &RerankRequest, limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if unmarked(&request.query).trim().is_empty() {
        return invalid("query".into(), "must not be empty".into());
    }
    if request.query.len() > limits.query_bytes {
        let problem = format!("{} bytes given, at most {} allowed", request.query.len(), limits.query_bytes);
        return invalid("query".into(), problem);
    }
    if request.passages.is_empty() {
        return invalid("passages".into(), "must not be empty".into());
    }
    if request.passages.len() > limits.passages {
        let problem = format!("{} given, at most {} allowed", request.passages.len(), limits.passages);
        return invalid("passages".into(), problem);
    }
    for (index, passage) in request.passages.iter().enumerate() {
        let path = |field: &str| format!("passages[{index}].{field}");
        let bytes = passage.text.len() + passage.title.len();
        if bytes > limits.passage_bytes {
            let problem = format!("{bytes} bytes given, at most {} allowed", limits.passage_bytes);
            return invalid(path("text"), problem);
        }
        if passage.retriever_score.is_some_and(|score| !score.is_finite()) {
            return invalid(path("retriever_score"), "must be a finite number".into());
        }
    }
    request.prefix.check(limits)?;
    request.check_options()?;
    request.inline.as_ref().map_or(Ok(()), |inline| inline.check(limits))?;
    let blanks = Blanks::of(&request.passages, Passage::is_blank);
    let Some(first) = blanks.places().first() else { return request.method().check(request, limits) };
    if request.moi.position_prior.is_some() {
        let problem = "must not be empty with moi.position_prior, which has a weight for each passage";
        return invalid(format!("passages[{first}].text"), problem.into());
    }
    // The method ranks only passages with text.
    let mut read = request.clone();
    Blanks::take(&mut read.passages, Passage::is_blank);
    if read.passages.is_empty() {
        return Ok(());
    }
    read.method().check(&read, limits).map_err(|error| blanks.named(error))
}

/// The warning that an id occurs twice. The indices still distinguish the results.
pub(super) fn repeated_id(passages: &[Passage]) -> Option<String> {
    let mut seen = HashSet::new();
    let (index, passage) = passages.iter().enumerate().find(|(_, passage)| !seen.insert(passage.id.as_str()))?;
    let id = quoted(&passage.id);
    Some(format!("passages[{index}].id: {id} occurs twice: original_index tells the results apart"))
}

impl RerankRequest {
    /// Refuses options that are invalid for every list. For commands, which would otherwise fail with each list.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check_options(&self) -> Result<(), EngineError> {
        let invalid = |field: &str, problem: String| Err(EngineError::invalid(field, problem));
        if self.score_threshold.is_some_and(|least| !(0.0..=1.0).contains(&least)) {
            return invalid("score_threshold", "must lie between 0 and 1".into());
        }
        if self.latency_budget_ms.is_some_and(|budget| !(budget.is_finite() && budget > 0.0)) {
            return invalid("latency_budget_ms", "must be a finite number above 0".into());
        }
        let method = self.method();
        if self.latency_budget_ms.is_some() && !method.takes_latency_budget() {
            let problem =
                format!("is measured at the speed of the generator, and {} asks another model", method.name());
            return invalid("latency_budget_ms", problem);
        }
        // The generator may be such a reranker, which is only known when its prompts are built.
        let taken = method.takes_prefix() || (self.prefix.examples.is_empty() && method.knows_rerankers());
        if !self.prefix.is_built_in() && !taken {
            let problem =
                format!("{} does not take it: its prompts have words of their own, or it has none", method.name());
            return invalid(self.prefix.field(), problem);
        }
        self.fusion.check()?;
        self.moi.check_options()?;
        method.check_options(self)?;
        self.inline.as_ref().map_or(Ok(()), Inline::check_options)?;
        self.compression.map_or(Ok(()), |compression| compression.check())?;
        self.dedup.map_or(Ok(()), |dedup| dedup.check())
    }
}
