//! The generator that scores the passages of a request: the answering one, or the scorer.

use super::budget::tokens_in_time;
use crate::estimate::{Admitted, Size};
use crate::models::{GeneratorModel, Models};
use crate::types::{EngineError, Limits, RerankRequest, Role};
use prefix_scheduler::call::Call;
use rag_metrics::quoted;

/// The generator that scores the passages of a request: the named one, or the scorer if one is configured. A method
/// that reads the generator's own answer asks the answering generator.
///
/// # Errors
/// [`EngineError::Invalid`] for `scorer` if no generator has this name, or the named scorer would have nothing to do.
pub(super) fn scoring_model<'a>(
    models: &'a Models,
    request: &RerankRequest,
) -> Result<&'a GeneratorModel, EngineError> {
    let (method, named) = (request.method(), models.scoring(&request.scorer)?);
    if method.asks_generator() && !method.reads_own_answer() {
        return Ok(named);
    }
    let compresses = !method.asks_generator() && request.compression.is_some();
    if named.role() == Role::Scorer && !request.scorer.is_empty() && !compresses {
        let problem = match method.passage_model() {
            Some(role) => format!("the method {} asks the {} model", method.name(), role.name()),
            None if method.reads_own_answer() => {
                format!("the method {} asks for the generator's own answer", method.name())
            }
            None => format!("the method {} asks no generator", method.name()),
        };
        return Err(EngineError::invalid("scorer", format!("is {}, but {problem}", quoted(&request.scorer))));
    }
    models.generator(None)
}

/// The generator that reads passages for the compression: the one that scores, or would score if the method asked a
/// generator.
pub(super) fn reading_model<'a>(
    models: &'a Models,
    request: &RerankRequest,
    scoring: &'a GeneratorModel,
) -> Result<&'a GeneratorModel, EngineError> {
    let compression_only = !request.method().asks_generator() && request.compression.is_some();
    if compression_only { models.scoring(&request.scorer) } else { Ok(scoring) }
}

/// Name of the model that a request's method asks: a reranker, an embedding model, or the generator that scores; `None` for a method
/// that asks none.
pub(super) fn model_name(models: &Models, request: &RerankRequest) -> Option<String> {
    let method = request.method();
    if let Some(role) = method.passage_model() {
        return models.scorer_if_any(role).map(|scorer| scorer.model().name.clone());
    }
    let model = scoring_model(models, request).ok().filter(|_| method.asks_generator())?;
    Some(model.get().map_or_else(|_| model.name().to_owned(), |served| served.info.name.clone()))
}

/// Admits rankings to the queues of the generators.
pub(super) struct Admission<'a> {
    pub models: &'a Models,
    pub limits: &'a Limits,
}

impl Admission<'_> {
    /// Admits a ranking to the queue of the generator that scores it, and its utility to the queue of the answering
    /// generator. `None` for a ranking without a generator.
    pub fn admit(
        &self,
        call: &Call,
        scoring: &GeneratorModel,
        request: &RerankRequest,
    ) -> Result<Option<Admitted>, EngineError> {
        let works = request.method().asks_generator() || request.compression_reads();
        let limit = self.limit(scoring, request);
        if works && scoring.role() == Role::Generator {
            return Size::of_rerank(request, limit).admit(call, scoring).map(Some);
        }
        self.admit_inline(call, request)?;
        works.then(|| Size::of_ranking(request, limit).admit(call, scoring)).transpose()
    }

    /// Admits the utility of a ranking that the answering generator does not score.
    fn admit_inline(&self, call: &Call, request: &RerankRequest) -> Result<(), EngineError> {
        let Some(inline) = &request.inline else { return Ok(()) };
        let generator = self.models.generator(None)?;
        Size::of_inline(request, inline, self.limit(generator, request)).admit(call, generator).map(drop)
    }

    /// Most tokens of a request. A latency budget bounds them, too, so that it does not count as a missed deadline.
    fn limit(&self, model: &GeneratorModel, request: &RerankRequest) -> usize {
        let in_time = tokens_in_time(request, model.scheduler().stats().reading_speed(), 0.0);
        self.limits.tokens.min(in_time.unwrap_or(usize::MAX))
    }
}
