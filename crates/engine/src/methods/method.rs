//! The interface of ranking methods.

use std::sync::Arc;

use super::{Budget, Prompt, PromptShape, Scored, Scores};
use crate::prompt::{Language, PassageForm};
use crate::types::{EngineError, Limits, RerankRequest, Role};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::plan::Token;

/// A way to rank passages.
pub trait Method: Send + Sync {
    /// Its name on the command line and in files: lower case, words joined by `-`.
    fn name(&self) -> &'static str;

    /// One line for `--help`: what is scored, and the source.
    fn summary(&self) -> &'static str;

    /// Refuses unsupported options, before any work.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    fn check(&self, _request: &RerankRequest, _limits: &Limits) -> Result<(), EngineError> {
        Ok(())
    }

    /// Refuses options that are invalid for every list.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    fn check_options(&self, _request: &RerankRequest) -> Result<(), EngineError> {
        Ok(())
    }

    /// Rewrites texts that its prompts would misread, before they are tokenised.
    fn prepare(&self, _request: &mut RerankRequest) {}

    /// The shape of its prompts; `None` for a method that asks no generator.
    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape>;

    /// True if its prompts begin with the caller's instruction and examples. Other methods have fixed prompts and
    /// refuse them.
    fn takes_prefix(&self) -> bool {
        false
    }

    /// True if it has other prompts for causal rerankers: without the chat template, and with the caller's
    /// instruction.
    fn knows_rerankers(&self) -> bool {
        false
    }

    /// The form of passages in its prompts.
    fn passage_form(&self, _language: &Language) -> PassageForm {
        PassageForm::Labelled
    }

    /// True if its prompts use the model's chat template.
    fn has_frame(&self) -> bool {
        true
    }

    /// Most tokens of its drawn answers, for the estimate of a request's work.
    fn drawn(&self, _request: &RerankRequest) -> usize {
        0
    }

    /// The reranker or embedding model that it asks instead of the generator; a server need not have one.
    fn passage_model(&self) -> Option<Role> {
        None
    }

    /// True if `outranks_next` is a function of the difference of two values, which can be learnt
    /// ([`crate::fusion::certainty`]).
    fn outranks_by_value(&self) -> bool {
        false
    }

    /// Why a calibration of the method does not hold for its utilities in this request: the rest of a sentence that
    /// begins with the method. `None` if it does.
    fn uncalibrated(&self, _request: &RerankRequest) -> Option<&'static str> {
        None
    }

    /// True if it treats passages with equal text as different passages. Other methods treat them as one document
    /// (`rerank::copies`).
    fn tells_copies_apart(&self, _request: &RerankRequest) -> bool {
        false
    }

    /// The embedding model whose scores it mixes in, if the server has one.
    fn mixed_model(&self) -> Option<Role> {
        None
    }

    /// True if it asks the entailment model, which a server need not have.
    fn asks_judge(&self) -> bool {
        false
    }

    /// True if it asks the generator.
    fn asks_generator(&self) -> bool {
        self.passage_model().is_none()
    }

    /// True if it attributes the generator's own answer. A scorer then never replaces the generator.
    fn reads_own_answer(&self) -> bool {
        false
    }

    /// Starts a request.
    ///
    /// # Errors
    /// [`EngineError`], before any work.
    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError>;
}

/// A request after checks, tokenisation and cutting.
#[derive(Debug)]
pub struct Task {
    /// The request.
    pub request: RerankRequest,
    /// Vocabulary and prompt format of the generator.
    pub language: Option<Language>,
    /// The passages in the form of the prompts; empty for a method that asks no model.
    pub passages: Vec<Arc<[Token]>>,
    /// The query as it follows a cue.
    pub query: Vec<Token>,
    /// [`Method::mixed_model`], if the server has the model and the request does not set the fusion itself.
    pub mixed_model: Option<Role>,
}

impl Task {
    /// Vocabulary and prompt format of the generator, for a method with prompts.
    pub(super) fn language(&self) -> Result<&Language, EngineError> {
        self.language.as_ref().ok_or_else(|| EngineError::Internal("the method has no prompts".into()))
    }
}

/// The next need of a ranking.
#[derive(Debug, Clone)]
pub enum Needs {
    /// Scores and continuations of prompts, by the generator.
    Prompts(Vec<Prompt>),
    /// A score of every passage of the request, by the model of this role.
    PassageScores(Role),
    /// Verdicts on pairs of texts, by the entailment model.
    Verdicts(Vec<TextPair>),
}

/// A ranking in progress. All of its work runs off the reactor; long work asks the call if it should go on.
pub trait Ranking: Send {
    /// The prompts whose scores it needs next; `None` when it is done.
    ///
    /// # Errors
    /// [`EngineError::Budget`] if not even the smallest design fits.
    fn next(&mut self, _budget: &Budget, _call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(None)
    }

    /// Its next need; `None` when it is done. Only rankings that ask models other than the generator override this;
    /// the others implement [`Ranking::next`].
    ///
    /// # Errors
    /// As [`Ranking::next`].
    fn needs(&mut self, budget: &Budget, call: &Call) -> Result<Option<Needs>, EngineError> {
        Ok(self.next(budget, call)?.map(Needs::Prompts))
    }

    /// How many segments after the prompt prefix the prompts of later rounds may share with the prompts that
    /// [`Ranking::needs`] returned last. These segments stay in the KV cache for the later rounds. A passage is one
    /// segment if none precedes it. 0 if hardly any later prompt shares a beginning.
    fn shares(&self) -> usize {
        0
    }

    /// Passages in the order in which scores by another model matter. If a latency budget does not suffice for all
    /// scores, the last passages have none.
    fn preferred(&self) -> &[usize] {
        &[]
    }

    /// True if it has an answer without the scores of the prompts that [`Ranking::needs`] returned last.
    fn is_optional(&self) -> bool {
        false
    }

    /// Goes on without these scores, because they would come after the deadline. Only if they are optional.
    fn skip(&mut self) {}

    /// True if its next step, a design or the absorption of scores, may take seconds. It then takes turns with
    /// fits.
    fn fits(&self) -> bool {
        false
    }

    /// Adds the scores for the last result of [`Ranking::needs`], in its order.
    ///
    /// # Errors
    /// The fit failed, or the call stopped.
    fn absorb(&mut self, scores: &Scores, call: &Call) -> Result<(), EngineError>;

    /// The order so far, from a part of the scores; `None` if the method cannot give one.
    fn interim(&self, _partial: &Scores, _call: &Call) -> Option<Interim> {
        None
    }

    /// The ranking.
    ///
    /// # Errors
    /// The call stopped.
    fn finish(&mut self, call: &Call) -> Result<Scored, EngineError>;
}

/// An order that more scores may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interim {
    /// Passage indices, best first.
    pub order: Vec<usize>,
    /// Number of scores that it is based on.
    pub observations: usize,
}
