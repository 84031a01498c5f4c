//! Plain data of requests and results. It depends on no other module of the engine.

mod belief;
mod context;
mod error;
mod evaluate;
mod method;
mod options;
mod passage;
mod rerank;
mod task;
mod utility;

use std::time::{Duration, Instant};

pub use belief::*;
pub use context::*;
pub use error::*;
pub use evaluate::*;
pub use method::*;
pub use options::*;
pub use passage::*;
pub use rerank::*;
pub use task::*;
pub use utility::*;

/// Bounds on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Passages.
    pub passages: usize,
    /// Bytes of a query.
    pub query_bytes: usize,
    /// Bytes of a passage, including its title.
    pub passage_bytes: usize,
    /// Orders of the passages.
    pub orders: usize,
    /// Tokens evaluated for one request.
    pub tokens: usize,
    /// Pairs of texts that the entailment model judges for one request.
    pub pairs: usize,
    /// True if passages are cut to fit the context unless the request sets otherwise.
    pub truncate: bool,
    /// Longest wait of a stream's question for its slot; `None` for no bound.
    pub permit_wait: Option<Duration>,
}

impl Limits {
    /// Bounds too wide for a unit test to reach, except those it sets.
    pub const WIDE: Self = Self {
        passages: 1_000,
        query_bytes: 1_000,
        passage_bytes: 60_000,
        orders: 1_000,
        tokens: 1_000_000,
        pairs: 10_000,
        truncate: true,
        permit_wait: None,
    };
}

/// The role of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Scores and samples text.
    Generator,
    /// Scores text instead of the generator; it never answers.
    Scorer,
    /// Judges entailment.
    Entailment,
    /// Scores pairs of query and passage.
    Reranker,
    /// Embeds query and passages separately.
    Embedding,
}

impl Role {
    /// Its name in logs and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Scorer => "scorer",
            Self::Entailment => "entailment",
            Self::Reranker => "reranker",
            Self::Embedding => "embedding",
        }
    }
}

/// Milliseconds since `start`.
pub(crate) fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
