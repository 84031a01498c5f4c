//! A request that was checked and tokenised.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::{Engine, EngineError, Limits, milliseconds, truncate};
use super::{Method, RerankEvent, RerankRequest, Usage, relay};
use crate::engine::prompt::{PassageTokens, query_tokens};
use crate::plan::{NodeId, Plan, Segment, Token};
use crate::scheduler;

/// Checks what can be checked without a model.
pub(super) fn check(request: &RerankRequest, limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if request.query.trim().is_empty() {
        return invalid("query".into(), "must not be empty".into());
    }
    if request.query.len() > limits.query_bytes {
        let problem = format!("has {} bytes, the limit is {}", request.query.len(), limits.query_bytes);
        return invalid("query".into(), problem);
    }
    if request.passages.is_empty() {
        return invalid("passages".into(), "must not be empty".into());
    }
    if request.passages.len() > limits.passages {
        let problem = format!("are {}, the limit is {}", request.passages.len(), limits.passages);
        return invalid("passages".into(), problem);
    }
    let mut seen = HashSet::new();
    for (index, passage) in request.passages.iter().enumerate() {
        let path = |field: &str| format!("passages[{index}].{field}");
        if passage.text.trim().is_empty() {
            return invalid(path("text"), "must not be empty".into());
        }
        let bytes = passage.text.len() + passage.title.len();
        if bytes > limits.passage_bytes {
            return invalid(path("text"), format!("has {bytes} bytes, the limit is {}", limits.passage_bytes));
        }
        if passage.retriever_score.is_some_and(|score| !score.is_finite()) {
            return invalid(path("retriever_score"), "must be a finite number".into());
        }
        if !seen.insert(passage.id.as_str()) {
            return invalid(path("id"), format!("{:?} stands there twice", passage.id));
        }
    }
    if request.score_threshold.is_some_and(|least| !(0.0..=1.0).contains(&least)) {
        return invalid("score_threshold".into(), "must lie between 0 and 1".into());
    }
    if request.method == Method::Moi {
        request.moi.check(request.passages.len(), limits)?;
    }
    Ok(())
}

/// A request with its tokens, and what happened to it so far.
pub(super) struct Prepared {
    pub request: RerankRequest,
    pub passages: Vec<Arc<[Token]>>,
    pub cut: Vec<usize>,
    pub query: Segment,
    pub query_tokens: usize,
    pub deadline: Option<Instant>,
    /// Tokens kept back for what is measured beside the ranking.
    pub reserved: usize,
    pub listener: Option<UnboundedSender<RerankEvent>>,
    pub usage: Usage,
    pub warnings: Vec<String>,
}

impl Prepared {
    /// Tokenises on a blocking thread, because large passages take milliseconds, and cuts what does not fit.
    pub async fn new(engine: &Engine, request: RerankRequest, started: Instant) -> Result<Self, EngineError> {
        let context = engine.context()?;
        let inner = engine.clone();
        let task = tokio::task::spawn_blocking(move || Self::tokenise(&inner, request, context, started));
        task.await.map_err(|error| EngineError::Internal(error.to_string()))?
    }

    fn tokenise(
        engine: &Engine,
        request: RerankRequest,
        context: usize,
        started: Instant,
    ) -> Result<Self, EngineError> {
        let tokenizer = engine.tokenizer.as_ref();
        let query = query_tokens(tokenizer, &request.query);
        let texts: Vec<PassageTokens> = request
            .passages
            .iter()
            .map(|passage| PassageTokens::new(tokenizer, &passage.title, &passage.text))
            .collect();
        let frame = engine.template.overhead() + query.len();
        let Some(available) = context.checked_sub(frame).filter(|left| *left > 0) else {
            let available = context.saturating_sub(engine.template.overhead());
            return Err(EngineError::TooLong { field: "query".into(), needed: query.len(), available });
        };
        let most = request.longest();
        let whole: Vec<usize> = texts.iter().map(PassageTokens::len).collect();
        let bounded: Vec<usize> =
            whole.iter().map(|&length| length.min(request.passage_tokens.unwrap_or(usize::MAX))).collect();
        let least: Vec<usize> = texts.iter().map(PassageTokens::least).collect();
        let cap = if request.truncate.unwrap_or(engine.limits.truncate) {
            truncate::common_cap(&bounded, &least, most, available).ok_or_else(|| {
                let needed = least.iter().sum();
                EngineError::TooLong { field: "passages".into(), needed, available }
            })?
        } else {
            truncate::refuse_long(&bounded, most, available)?;
            usize::MAX
        };
        let mut cut = Vec::with_capacity(texts.len());
        let mut passages = Vec::with_capacity(texts.len());
        for (text, bound) in texts.iter().zip(&bounded) {
            let (tokens, dropped) = text.cut(cap.min(*bound));
            passages.push(tokens.into());
            cut.push(dropped);
        }
        let mut warnings = Vec::new();
        let shortened = cut.iter().filter(|dropped| **dropped > 0).count();
        if shortened > 0 {
            warnings.push(format!("{shortened} passages were cut to fit; tokens_cut says by how much"));
        }
        let usage = Usage { tokenise_ms: milliseconds(started), ..Usage::default() };
        let query_tokens = query.len();
        let query = engine.template.query(&query);
        Ok(Self {
            request,
            passages,
            cut,
            query,
            query_tokens,
            deadline: None,
            reserved: 0,
            listener: None,
            usage,
            warnings,
        })
    }

    /// Adds the prompt of `order` to `plan`; the last node is the query's. Passages are scored too where `joint`.
    pub fn add_prompt(&self, engine: &Engine, plan: &mut Plan, order: &[usize], joint: bool) -> Vec<NodeId> {
        let passage = |&index: &usize| {
            let tokens = Arc::clone(&self.passages[index]);
            if joint { Segment::scored(tokens, 0) } else { Segment::context(tokens) }
        };
        let opening = std::iter::once(engine.template.opening());
        let segments: Vec<Segment> =
            opening.chain(order.iter().map(passage)).chain(std::iter::once(self.query.clone())).collect();
        plan.add(&segments)
    }

    /// Most tokens the request may evaluate.
    pub fn budget(&self, engine: &Engine) -> usize {
        let allowed = engine.limits.tokens.min(self.request.moi.token_budget.unwrap_or(usize::MAX));
        allowed.saturating_sub(self.reserved)
    }

    /// Checks the cost, tells it, and has the plan carried out.
    pub async fn run(
        &mut self,
        engine: &Engine,
        plan: Plan,
        mut on_scored: impl FnMut(NodeId, f64) -> Option<RerankEvent>,
    ) -> Result<scheduler::Outcome, EngineError> {
        let cost = plan.cost();
        let allowed = self.budget(engine);
        if self.usage.tokens + cost.tokens > allowed {
            let needed = self.usage.tokens + cost.tokens + self.reserved;
            return Err(EngineError::Budget { needed, allowed: allowed + self.reserved });
        }
        self.tell(RerankEvent::Planned(cost));
        let plan = Arc::new(plan);
        let outcome = if self.listener.is_some() {
            let (sender, mut events) = unbounded_channel();
            let mut work = std::pin::pin!(engine.scheduler.run(plan, self.deadline, Some(sender)));
            let mut hear = |task: &Self, event: &scheduler::Event| {
                let heard = match event {
                    scheduler::Event::Scored(node, scores) => on_scored(*node, scores.iter().sum()),
                    scheduler::Event::Progress { .. } | scheduler::Event::Sampled(..) => relay(event),
                };
                if let Some(heard) = heard {
                    task.tell(heard);
                }
            };
            let outcome = loop {
                tokio::select! {
                    biased;
                    Some(event) = events.recv() => hear(self, &event),
                    outcome = &mut work => break outcome?,
                }
            };
            // The answer may have overtaken events that were sent before it.
            while let Ok(event) = events.try_recv() {
                hear(self, &event);
            }
            outcome
        } else {
            engine.scheduler.run(plan, self.deadline, None).await?
        };
        self.usage.tokens += outcome.tokens;
        self.usage.naive_tokens += cost.naive_tokens;
        self.usage.cached_tokens += outcome.cached_tokens;
        self.usage.steps += outcome.steps;
        self.usage.queue_ms += outcome.queued.as_secs_f64() * 1e3;
        self.usage.score_ms += outcome.running.as_secs_f64() * 1e3;
        Ok(outcome)
    }

    fn tell(&self, event: RerankEvent) {
        if let Some(listener) = &self.listener {
            // A listener that left is the caller's business; the work goes on until its future is dropped.
            let _ = listener.send(event);
        }
    }
}
