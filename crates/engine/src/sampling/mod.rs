//! Answers sampled from the generator, and the belief that they show.

mod drawing;
mod entailment;
pub(crate) mod measure;
mod options;
mod similarity;
pub(crate) mod stop;
pub(crate) mod texts;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::answers::Asked;
use super::estimate::Size;
use super::models::Models;
use super::rerank::Blanks;
use crate::checks::{check_orders, check_references, check_texts};
use crate::types::{BeliefEvent, BeliefRequest, EngineError, Limits, Sampled, Usage, milliseconds};
pub(super) use drawing::Drawing;
use drawing::log_likelihoods;
pub use entailment::{BeliefMeter, measure_answers};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan};
use prefix_scheduler::scheduler::generator::{Event, Outcome};
pub(super) use stop::TextStop;

/// The nodes of one context.
struct Nodes {
    samples: Vec<NodeId>,
    labels: Vec<NodeId>,
    references: Vec<NodeId>,
}

impl BeliefRequest {
    /// The request, with the task's answer length if it sets none.
    fn with_defaults(self) -> Self {
        Self { options: self.task.sampling(self.options), ..self }
    }

    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        check_texts(&self.question, &self.passages, limits)?;
        if self.contexts.len() > limits.orders {
            let problem = format!("{} given, at most {} allowed", self.contexts.len(), limits.orders);
            return Err(EngineError::invalid("contexts", problem));
        }
        check_orders("contexts", &self.contexts, self.passages.len())?;
        check_references(&self.references, limits)?;
        self.task.check()?;
        self.options.check()
    }
}

/// Samples answers from the generator.
#[derive(Debug, Clone)]
pub struct Sampler {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl Sampler {
    /// Samples answers in every context. All contexts share one plan, so each prompt and each common prefix is
    /// evaluated once. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work if possible.
    pub async fn sample(
        &self,
        call: &Call,
        request: BeliefRequest,
        listener: Option<UnboundedSender<BeliefEvent>>,
    ) -> Result<Sampled, EngineError> {
        let started = Instant::now();
        let request = request.with_defaults();
        request.check(&self.limits)?;
        let admitted = Size::of_samples(&request, self.limits.tokens).admit(call, self.models.generator(None)?)?;
        let (sampler, inner) = (self.clone(), request.clone());
        let (mut drawing, contexts) = call.compute(move |call| sampler.lay_samples_out(call, &inner)).await?;
        let tokenise_ms = milliseconds(started);
        let unread = Blanks::unread(&request.passages);
        let numbered = |(context, nodes): (usize, &Nodes)| {
            nodes.samples.iter().enumerate().map(move |(number, node)| (*node, (context, number))).collect::<Vec<_>>()
        };
        let of: HashMap<NodeId, (usize, usize)> = contexts.iter().enumerate().flat_map(numbered).collect();
        let plan = std::mem::take(&mut drawing.plan);
        let tell = listener.map(|listener| {
            let (drawing, of) = (&drawing, &of);
            move |event: Event| {
                let progress = match event {
                    Event::Sampled(node, sample) => of
                        .get(&node)
                        .map(|&(context, number)| BeliefEvent::Sampled(context, number, drawing.answer(&sample))),
                    Event::Progress { done, total } => Some(BeliefEvent::Progress(done, total)),
                    Event::Scored(..) => None,
                };
                if let Some(progress) = progress {
                    let _ = listener.send(progress);
                }
            }
        });
        let (outcome, mut usage) = self.run(call, plan, request.token_budget, tell).await?;
        let decode = move |_: &Call| {
            let drawn = |nodes: &Nodes| nodes.samples.iter().map(|node| drawing.answer_at(&outcome, *node)).collect();
            let answers = contexts.iter().map(drawn).collect::<Result<_, EngineError>>()?;
            usage.naive_tokens = drawing.naive_tokens(&outcome);
            let labels = contexts.iter().map(|nodes| drawing.label_probabilities(&outcome, &nodes.labels)).collect();
            let references = contexts.iter().map(|nodes| log_likelihoods(&outcome, &nodes.references)).collect();
            Ok::<_, EngineError>(Sampled { answers, labels, references, cut: drawing.cut, unread, usage })
        };
        let mut sampled = call.compute(decode).await?;
        admitted.learn_from(call);
        sampled.usage.tokenise_ms = tokenise_ms;
        sampled.usage.total_ms = milliseconds(started);
        Ok(sampled)
    }

    /// The most tokens that [`Sampler::sample`] may evaluate. Evaluates nothing.
    pub(super) async fn cost(&self, call: &Call, request: BeliefRequest) -> Result<usize, EngineError> {
        let request = request.with_defaults();
        request.check(&self.limits)?;
        let sampler = self.clone();
        call.compute(move |call| Ok(sampler.lay_samples_out(call, &request)?.0.plan.cost().tokens)).await
    }

    /// The plan, and the nodes of each context.
    fn lay_samples_out(&self, call: &Call, request: &BeliefRequest) -> Result<(Drawing, Vec<Nodes>), EngineError> {
        let longest = request.contexts.iter().map(Vec::len).max().unwrap_or(0);
        let asked = Asked {
            task: &request.task,
            question: &request.question,
            passages: &request.passages,
            passage_tokens: request.passage_tokens,
            truncate: request.truncate,
            references: &request.references,
        };
        let options = &request.options;
        let room = (longest, options.most_tokens());
        let mut drawing = Drawing::new(&self.limits, &*self.models.answering()?, call, asked, room, options)?;
        let draw = |order: &Vec<usize>| {
            call.check()?;
            Ok(drawing.draw(&request.question, order, options))
        };
        let samples = request.contexts.iter().map(draw).collect::<Result<Vec<_>, EngineError>>()?;
        // Checked before every reference is added after every context, which takes seconds if both are many. Counts
        // drawn tokens, and the tokens of the references in each distinct context. Equal contexts share their
        // nodes, and so do equal references.
        let distinct: HashSet<&Vec<usize>> = request.contexts.iter().collect();
        let scored = drawing.prompts.reference_tokens().saturating_mul(distinct.len());
        let (needed, allowed) = (drawing.plan.cost().tokens.saturating_add(scored), self.limits.tokens);
        if needed > allowed {
            return Err(EngineError::Budget { needed, allowed });
        }
        let mut contexts = Vec::with_capacity(samples.len());
        for (samples, order) in samples.into_iter().zip(&request.contexts) {
            call.check()?;
            let (labels, references) = (drawing.score_labels(order), drawing.score_references(order));
            contexts.push(Nodes { samples, labels, references });
        }
        Ok((drawing, contexts))
    }

    /// Runs a plan within its bounds. `tell` is called with every event; if it is `None`, the scheduler reports none.
    pub(crate) async fn run(
        &self,
        call: &Call,
        plan: Plan,
        token_budget: Option<usize>,
        mut tell: Option<impl FnMut(Event)>,
    ) -> Result<(Outcome, Usage), EngineError> {
        let allowed = self.limits.tokens.min(token_budget.unwrap_or(usize::MAX));
        let plan = Arc::new(plan);
        let costed = Arc::clone(&plan);
        let needed = call.compute(move |_| Ok::<_, EngineError>(costed.cost().tokens)).await?;
        if needed > allowed {
            return Err(EngineError::Budget { needed, allowed });
        }
        let (sender, mut events) = unbounded_channel();
        let listened = tell.is_some().then_some(sender);
        let generator = self.models.answering()?;
        let mut work = std::pin::pin!(generator.scheduler.run(plan, call, listened));
        let mut tell = move |event: Event| tell.as_mut().map_or((), |tell| tell(event));
        let outcome = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => tell(event),
                outcome = &mut work => break outcome?,
            }
        };
        while let Ok(event) = events.try_recv() {
            tell(event);
        }
        let mut usage = Usage::default();
        usage.add(&outcome);
        Ok((outcome, usage))
    }
}
