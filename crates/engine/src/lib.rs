//! The use cases of rerankd. They know neither wire formats nor runtimes.
//!
//! [`types`] is the data of requests and results. It depends on no other module, and every module may use it. Each
//! use case is a struct over the models and limits that it needs, and [`Engine`] holds one of each. A use case
//! takes the [`Call`](prefix_scheduler::call::Call) that it works for.
//!
//! | module | what it does |
//! |---|---|
//! | [`rerank`] | ranks passages with a method of [`methods`], then compresses them and measures their utility |
//! | [`context_builder`] | writes the most valuable passages that fit a prompt |
//! | [`sampling`] | samples answers and measures the generator's belief |
//! | [`utility`] | measures by how much passages change that belief |
//! | [`evaluate`] | labels passages by the answers that they lead to |
//! | [`citations`] | checks the passages that an answer cites |
//! | [`live`] | measures the utility of rankings on live traffic while the server is idle |
//! | [`prefill`] | evaluates passages into the cache ahead of requests |
//! | [`calibrate`], [`contexts`], [`preferences`] | scores for calibration, studies and distillation |
#![warn(missing_docs)]

mod answers;
pub mod calibrate;
mod calibrations;
mod checks;
pub mod citations;
pub mod compress;
pub mod context_builder;
pub mod contexts;
mod duplicates;
mod estimate;
pub mod evaluate;
pub mod fusion;
mod judgement;
pub mod live;
pub mod methods;
pub mod models;
pub mod position_bias;
pub mod preferences;
pub mod prefill;
pub mod prompt;
mod prompt_prefix;
pub mod rerank;
pub mod sampling;
mod task;
mod truncate;
pub mod types;
pub mod utility;

use std::ops::Deref;
use std::sync::Arc;

use calibrate::PositionMeter;
use citations::CitationChecker;
use context_builder::ContextBuilder;
use contexts::ContextReader;
use evaluate::{BertScorer, Evaluator};
use live::LiveMeter;
use models::{Models, ServedGenerator};
use preferences::PreferenceScorer;
use prefill::Prefiller;
use rerank::Reranker;
use sampling::{BeliefMeter, Sampler};
use types::{EngineError, Limits};
use utility::UtilityMeter;

/// The use cases over the models of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Engine(Arc<UseCases>);

/// The use cases, each over the models and limits that it needs.
#[derive(Debug)]
pub struct UseCases {
    models: Models,
    limits: Limits,
    /// Ranks passages.
    pub reranker: Reranker,
    /// Builds contexts.
    pub context_builder: ContextBuilder,
    /// Samples answers.
    pub sampler: Sampler,
    /// Measures the utility of passages.
    pub utility: UtilityMeter,
    /// Measures the utility of rankings while the server is idle.
    pub live: LiveMeter,
    /// Judges and clusters texts.
    pub belief: BeliefMeter,
    /// Evaluates retrieval.
    pub evaluator: Evaluator,
    /// Compares texts by BERTScore.
    pub bert: BertScorer,
    /// Checks citations.
    pub citations: CitationChecker,
    /// Evaluates passages ahead of requests.
    pub prefiller: Prefiller,
    /// Reads contexts.
    pub contexts: ContextReader,
    /// Measures answers by the position of their passage.
    pub positions: PositionMeter,
    /// Scores orders of passages.
    pub preferences: PreferenceScorer,
}

impl Deref for Engine {
    type Target = UseCases;

    fn deref(&self) -> &UseCases {
        &self.0
    }
}

impl Engine {
    /// Builds the use cases. The models need not be loaded yet.
    #[must_use]
    pub fn new(models: Models, limits: Limits) -> Self {
        Self::over(UtilityMeter::new(Sampler { models, limits }))
    }

    fn over(utility: UtilityMeter) -> Self {
        let sampler = utility.sampler.clone();
        let (models, limits) = (sampler.models.clone(), sampler.limits);
        let every = || models.clone();
        let live = LiveMeter::new(utility.clone());
        Self(Arc::new(UseCases {
            reranker: Reranker::new(utility.clone(), live.clone()),
            context_builder: ContextBuilder { models: every(), reranker: Reranker::new(utility.clone(), live.clone()) },
            utility,
            live,
            belief: BeliefMeter { models: every(), limits },
            evaluator: Evaluator { sampler: sampler.clone() },
            bert: BertScorer { models: every() },
            citations: CitationChecker { models: every(), limits },
            prefiller: Prefiller { models: every(), limits },
            contexts: ContextReader { sampler: sampler.clone() },
            positions: PositionMeter { models: every(), limits },
            preferences: PreferenceScorer { models: every(), limits },
            sampler,
            models,
            limits,
        }))
    }

    /// This engine without cached context-free answers. Answers sampled together with other prompts differ in their
    /// last digits, so cached answers would make equal requests differ.
    #[must_use]
    pub fn without_cached_answers(&self) -> Self {
        Self::over(self.utility.clone().without_cache())
    }
}

impl UseCases {
    /// The models.
    #[must_use]
    pub const fn models(&self) -> &Models {
        &self.models
    }

    /// The default generator.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loading.
    pub fn generator(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.models.answering()
    }

    /// The generator for requests that name no scorer: the scorer, or the default generator.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while it is loading.
    pub fn scorer(&self) -> Result<Arc<ServedGenerator>, EngineError> {
        self.models.scorer_by_default()
    }

    /// The device of the generator that scores: `cpu`, or the kind of the accelerator; `cpu` until it is loaded.
    #[must_use]
    pub fn compute(&self) -> String {
        self.scorer().map_or_else(|_| "cpu".to_owned(), |served| served.info.compute.clone())
    }

    /// The bounds.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
}
