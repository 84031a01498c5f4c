//! A generator's scores of the orders of a list; a smaller generator learns from them to rank the same way
//! (preference distillation; Lee et al., section 3.3.2).
//!
//! The prompts are those of the method `moi` (`query_prompt`), so the scores match those of a ranking. Both parts
//! of the joint score of an order (Eq. 3) are returned separately: log P(query | order), and log P of the order's
//! passages.

use std::sync::Arc;

use super::checks::refuse_blank;
use super::methods::query_prompt::{QueryPrompt, overhead};
use super::models::Models;
use super::rerank::check_request;
use super::truncate::{Fit, fit_passages};
use crate::types::{CutSide, EngineError, Limits, Passage, RerankRequest};
use moi::design::{Design, orders};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan, Segment, Token};

/// The requested scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scored {
    /// Only the tokens.
    Tokens,
    /// The query after each single passage, and after none.
    Passages,
    /// The query after each passage, and this many distinct random orders of all passages; fewer if fewer exist.
    Orders(usize),
}

/// A question and the passages to score.
#[derive(Debug, Clone, PartialEq)]
pub struct PreferenceRequest {
    /// The query; not empty.
    pub query: String,
    /// The passages; at least one, with distinct ids.
    pub passages: Vec<Passage>,
    /// Most tokens of a passage; `None` for no bound. Passages are never cut to fit the context.
    pub passage_tokens: Option<usize>,
    /// The requested scores.
    pub scored: Scored,
    /// Seed of the orders.
    pub seed: u64,
}

/// The scores of a question, in nats, and the scored tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Preferences {
    /// Tokens of the query.
    pub query: Vec<Token>,
    /// Tokens of each passage, after truncation.
    pub passages: Vec<Arc<[Token]>>,
    /// Tokens truncated from each passage.
    pub cut: Vec<usize>,
    /// The random orders, as indices of passages.
    pub orders: Vec<Vec<usize>>,
    /// log P(query | order) of each order.
    pub query_after_order: Vec<f64>,
    /// log P(passages of the order) of each order, the separators included.
    pub passages_in_order: Vec<f64>,
    /// log P(query | passage) of each passage; empty if only the tokens are requested.
    pub query_after_passage: Vec<f64>,
    /// log P(query | no passage); `None` if only the tokens are requested.
    pub query_alone: Option<f64>,
}

/// The tokens around passages and query: `prefix`, passages, `cue`, query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptFrame {
    /// Beginning of sequence, chat template and instruction.
    pub prefix: Vec<Token>,
    /// End of the chat template, and the text that announces the query.
    pub cue: Vec<Token>,
}

/// The prompts of a question, and the nodes of their scores.
struct Prompts {
    plan: Plan,
    /// Paths of the random orders, then of each single passage, then of no passage.
    paths: Vec<Vec<NodeId>>,
    scores: Preferences,
}

/// Scores passages and orders of passages.
#[derive(Debug, Clone)]
pub struct PreferenceScorer {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl PreferenceScorer {
    /// The tokens around passages and query.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while the generator is loading.
    pub fn prompt_frame(&self) -> Result<PromptFrame, EngineError> {
        let generator = self.models.answering()?;
        let prompt = QueryPrompt::new(&generator.language, &[]);
        Ok(PromptFrame { prefix: prompt.prefix.tokens.to_vec(), cue: prompt.query.tokens.to_vec() })
    }

    /// Scores a question's passages, singly and in random orders.
    ///
    /// # Errors
    /// [`EngineError`], which names the field at fault. Before any evaluation, refuses an invalid question, one
    /// whose longest prompt does not fit the context, and one that exceeds the token limit of a request.
    pub async fn score(&self, call: &Call, request: PreferenceRequest) -> Result<Preferences, EngineError> {
        let checked = RerankRequest {
            query: request.query.clone(),
            passages: request.passages.clone(),
            ..RerankRequest::default()
        };
        check_request(&checked, &self.limits)?;
        // Its scores become examples, and every passage has a place in the prompts.
        refuse_blank(&request.passages)?;
        check_orders(request.scored, &self.limits)?;
        let scorer = self.clone();
        let Prompts { plan, paths, mut scores } = call.compute(move |call| scorer.prompts(call, &request)).await?;
        if paths.is_empty() {
            return Ok(scores);
        }
        let (needed, allowed) = (plan.cost().tokens, self.limits.tokens);
        if needed > allowed {
            return Err(EngineError::Budget { needed, allowed });
        }
        let outcome = self.models.answering()?.scheduler.run(Arc::new(plan), call, None).await?;
        let sum = |nodes: &[NodeId]| nodes.iter().flat_map(|node| &outcome.scores[node.0]).sum::<f64>();
        let query = |path: &Vec<NodeId>| sum(&path[path.len().saturating_sub(1)..]);
        let (whole, rest) = paths.split_at(scores.orders.len());
        let (alone, none) = rest.split_at(scores.passages.len());
        scores.query_after_order = whole.iter().map(query).collect();
        // The prompt prefix is the first node, and each passage is one.
        let places = 1..=scores.passages.len();
        scores.passages_in_order = whole.iter().map(|path| sum(&path[places.clone()])).collect();
        scores.query_after_passage = alone.iter().map(query).collect();
        scores.query_alone = none.first().map(query);
        Ok(scores)
    }

    fn prompts(&self, call: &Call, request: &PreferenceRequest) -> Result<Prompts, EngineError> {
        let generator = self.models.answering()?;
        let language = &generator.language;
        let query = language.query(&request.query);
        let (context, n) = (generator.context()?, request.passages.len());
        let around = overhead(language) + query.len();
        let Some(available) = context.checked_sub(around).filter(|left| *left > 0) else {
            let available = context.saturating_sub(overhead(language));
            return Err(EngineError::TooLong { field: "query".into(), needed: query.len(), available });
        };
        let longest = if matches!(request.scored, Scored::Orders(_)) { n } else { 1 };
        let passage_tokens = request.passage_tokens;
        let fit = Fit { available, longest, passage_tokens, truncate: false, side: CutSide::End };
        let fitted = fit_passages(language, &request.passages, fit, call)?;
        let drawn = match request.scored {
            Scored::Orders(count) => orders(Design::Random, n, count, request.seed, &|| call.is_stopped())?,
            Scored::Tokens | Scored::Passages => Vec::new(),
        };
        let prompt = QueryPrompt::new(language, &query);
        let mut plan = Plan::new();
        let mut add = |order: &[usize], joint: bool| {
            let passage = |&index: &usize| {
                let tokens = Arc::clone(&fitted.tokens[index]);
                if joint { Segment::scored(tokens, 0) } else { Segment::context(tokens) }
            };
            plan.add(&prompt.around(order.iter().map(passage)))
        };
        let mut paths: Vec<Vec<NodeId>> = drawn.iter().map(|order| add(order, true)).collect();
        if request.scored != Scored::Tokens {
            paths.extend((0..n).map(|passage| add(&[passage], false)));
            paths.push(add(&[], false));
        }
        let scores = Preferences {
            query,
            passages: fitted.tokens,
            cut: fitted.cut,
            orders: drawn,
            query_after_order: Vec::new(),
            passages_in_order: Vec::new(),
            query_after_passage: Vec::new(),
            query_alone: None,
        };
        Ok(Prompts { plan, paths, scores })
    }
}

fn check_orders(scored: Scored, limits: &Limits) -> Result<(), EngineError> {
    match scored {
        Scored::Orders(count) if count == 0 || count > limits.orders => {
            let problem = format!("{count} given, must be between 1 and {}", limits.orders);
            Err(EngineError::invalid("permutations", problem))
        }
        _ => Ok(()),
    }
}
