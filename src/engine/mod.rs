//! Use cases: what a caller asks for, done with plans, scores and measures. Nothing here knows a wire format or a runtime.

mod answers;
pub mod belief;
pub mod calibrate;
mod error;
pub mod evaluate;
pub mod position_bias;
pub mod prompt;
pub mod rerank;
mod truncate;
pub mod utility;

use std::sync::Arc;
use std::time::Instant;

pub use error::EngineError;
use position_bias::PositionBias;

use crate::engine::prompt::Template;
use crate::model::{GeneratorInfo, Tokenizer};
use crate::scheduler::Scheduler;
use crate::scheduler::entailment::{ConfiguredModel, Judge};

/// Bounds on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Passages.
    pub passages: usize,
    /// Bytes of a query.
    pub query_bytes: usize,
    /// Bytes of a passage, its title included.
    pub passage_bytes: usize,
    /// Orders of the passages.
    pub orders: usize,
    /// Tokens evaluated for one request.
    pub tokens: usize,
    /// Whether passages are cut to fit the context where the request does not say.
    pub truncate: bool,
}

/// A loaded generator with all that is needed to use it.
#[derive(Clone)]
pub struct Engine {
    scheduler: Scheduler,
    tokenizer: Arc<dyn Tokenizer>,
    template: Template,
    info: GeneratorInfo,
    limits: Limits,
    position_bias: Arc<PositionBias>,
    judge: Option<Judge>,
    context_free: Arc<utility::ContextFreeCache>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("info", &self.info).field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Engine {
    /// Puts the parts together; `info.chat` decides which frame the prompts take.
    #[must_use]
    pub fn new(scheduler: Scheduler, tokenizer: Arc<dyn Tokenizer>, info: GeneratorInfo, limits: Limits) -> Self {
        let template = Template::new(tokenizer.as_ref(), !info.chat);
        Self {
            scheduler,
            tokenizer,
            template,
            info,
            limits,
            position_bias: Arc::default(),
            judge: None,
            context_free: Arc::default(),
        }
    }

    /// The same with what is known of the generator's position bias.
    #[must_use]
    pub fn with_position_bias(mut self, known: PositionBias) -> Self {
        self.position_bias = Arc::new(known);
        self
    }

    /// The same with a way to an entailment model.
    #[must_use]
    pub fn with_judge(mut self, judge: Judge) -> Self {
        self.judge = Some(judge);
        self
    }

    /// The entailment model that is configured, loaded or not.
    #[must_use]
    pub fn entailment_model(&self) -> Option<&ConfiguredModel> {
        self.judge.as_ref().map(Judge::model)
    }

    /// The way to the entailment model.
    fn judge_or_refuse(&self) -> Result<&Judge, EngineError> {
        self.judge.as_ref().ok_or_else(no_judge)
    }

    /// What is known of the generator's position bias.
    #[must_use]
    pub fn position_bias(&self) -> &PositionBias {
        &self.position_bias
    }

    /// The generator.
    #[must_use]
    pub const fn info(&self) -> &GeneratorInfo {
        &self.info
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The generator's tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &dyn Tokenizer {
        self.tokenizer.as_ref()
    }

    /// The parts of its prompts.
    #[must_use]
    pub const fn template(&self) -> &Template {
        &self.template
    }

    /// The way to the generator.
    #[must_use]
    pub const fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Longest prompt in tokens: what the model was trained for and the cache can hold.
    fn context(&self) -> Result<usize, EngineError> {
        let capacity = self.scheduler.capacity().ok_or(EngineError::Unavailable)?;
        Ok(capacity.cells.min(self.info.trained_context))
    }
}

fn no_judge() -> EngineError {
    EngineError::Precondition("no entailment model is configured: set entailment.model".into())
}

/// Milliseconds since `start`.
fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
