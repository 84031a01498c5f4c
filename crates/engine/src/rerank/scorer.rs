//! Which generator scores the passages of a request: the one that answers, or the scorer in its place.

use super::RerankRequest;
use super::cost::tokens_in_time;
use crate::estimate::{Admitted, Size};
use crate::methods::MethodRef;
use crate::models::{GeneratorModel, Role};
use crate::{Engine, EngineError, quoted};
use prefix_scheduler::call::Call;

impl Engine {
    /// The generator that scores the passages of a request: the one it names, or the scorer where one is configured. What is
    /// said of the generator's own answer is said by the generator.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for `scorer` where there is none of this name, or it has nothing to do: the method cannot be asked
    /// of it, and nothing is compressed.
    pub fn scoring_model(&self, request: &RerankRequest) -> Result<&GeneratorModel, EngineError> {
        let (method, named) = (request.method(), self.models().scoring(&request.scorer)?);
        if method.asks_generator() && !method.reads_own_answer() {
            return Ok(named);
        }
        let compresses = !method.asks_generator() && request.compression.is_some();
        if named.role() == Role::Scorer && !request.scorer.is_empty() && !compresses {
            let problem = match method.beside() {
                Some(role) => format!("the method {} asks the {} model", method.name(), role.name()),
                None if method.reads_own_answer() => {
                    format!("the method {} asks for the generator's own answer", method.name())
                }
                None => format!("the method {} asks no generator", method.name()),
            };
            return Err(EngineError::invalid("scorer", format!("is {}, but {problem}", quoted(&request.scorer))));
        }
        self.models().generator(None)
    }

    /// The generator that reads what is compressed: the one that scores, also where the method asks none.
    pub(super) fn reading_model<'a>(
        &'a self,
        request: &RerankRequest,
        scoring: &'a GeneratorModel,
    ) -> Result<&'a GeneratorModel, EngineError> {
        let apart = !request.method().asks_generator() && request.compression.is_some();
        if apart { self.models().scoring(&request.scorer) } else { Ok(scoring) }
    }

    /// Name of the model that a method asks where a request does not name its scorer: the one beside the generator, or the
    /// generator that scores; `None` for a method that asks none.
    #[must_use]
    pub fn model_of(&self, method: MethodRef) -> Option<String> {
        self.model_of_request(&RerankRequest { method: Some(method), ..RerankRequest::default() })
    }

    /// The same for a request.
    #[must_use]
    pub fn model_of_request(&self, request: &RerankRequest) -> Option<String> {
        let method = request.method();
        if let Some(role) = method.beside() {
            return self.models().scorer_if_any(role).map(|scorer| scorer.model().name.clone());
        }
        let model = self.scoring_model(request).ok().filter(|_| method.asks_generator())?;
        Some(model.get().map_or_else(|_| model.name().to_owned(), |served| served.info.name.clone()))
    }

    /// Admits a ranking to the queue of the generator that scores it, and what is measured beside it to that of the generator
    /// that answers. `None` for a ranking that no generator works on.
    pub(super) fn admit_ranking(
        &self,
        call: &Call,
        scoring: &GeneratorModel,
        request: &RerankRequest,
    ) -> Result<Option<Admitted>, EngineError> {
        let works = request.method().asks_generator() || request.compression_reads();
        let limit = self.limit_of(scoring, request);
        if works && scoring.role() == Role::Generator {
            return Size::of_rerank(request, limit).admit(call, scoring).map(Some);
        }
        self.admit_inline(call, request)?;
        works.then(|| Size::of_ranking(request, limit).admit(call, scoring)).transpose()
    }

    /// Admits the utility beside a ranking that the answering generator has no part in; nothing where none is measured.
    fn admit_inline(&self, call: &Call, request: &RerankRequest) -> Result<(), EngineError> {
        let Some(inline) = &request.inline else { return Ok(()) };
        let generator = self.models().generator(None)?;
        Size::of_inline(request, inline, self.limit_of(generator, request)).admit(call, generator).map(drop)
    }

    /// Most tokens of a request. What does not fit a latency budget is not read, so it does not make a request too late.
    fn limit_of(&self, model: &GeneratorModel, request: &RerankRequest) -> usize {
        let in_time = tokens_in_time(request, model.scheduler().stats().reading_speed(), 0.0);
        self.limits().tokens.min(in_time.unwrap_or(usize::MAX))
    }
}
