//! Answers drawn from many prompts in one plan.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::unbounded_channel;

use super::stop::TextStop;
use super::{Answer, SampleOptions};
use crate::call::Call;
use crate::engine::answers::{AnswerPrompts, Asked};
use crate::engine::models::ServedGenerator;
use crate::engine::rerank::Usage;
use crate::engine::{Engine, EngineError};
use crate::plan::{Grow, NodeId, Plan, Stop};
use crate::scheduler::generator::{Event, Outcome, Sample};

/// A plan under construction, and which prompt each of its samples follows.
pub(in crate::engine) struct Drawing {
    /// The plan; prompts of another kind may be added to it.
    pub plan: Plan,
    /// The prompts for answers, passages cut to fit.
    pub prompts: AnswerPrompts,
    stop: Arc<TextStop>,
    /// Tokens of the prompt before each sample.
    before: HashMap<NodeId, usize>,
}

impl Drawing {
    /// `longest` is the number of passages in the longest prompt, `room` the tokens that must be left after it.
    pub fn new(
        engine: &Engine,
        model: &ServedGenerator,
        asked: Asked<'_>,
        (longest, room): (usize, usize),
        options: &SampleOptions,
    ) -> Result<Self, EngineError> {
        let prompts = AnswerPrompts::new(model, engine.limits(), asked, longest, room)?;
        let stop = Arc::new(TextStop::new(Arc::clone(&model.language.tokenizer), options.stops()));
        Ok(Self { plan: Plan::new(), prompts, stop, before: HashMap::new() })
    }

    /// Adds the prompt with these passages in this order and draws answers from it, by their numbers.
    pub fn draw(&mut self, question: &str, order: &[usize], options: &SampleOptions) -> Vec<NodeId> {
        let segments = self.prompts.prompt(order);
        let tokens = segments.iter().map(|segment| segment.tokens.len()).sum();
        let path = self.plan.add(&segments);
        let leaf = path[path.len() - 1];
        let sample = |number: usize| {
            let grow = Grow {
                sampling: options.sampling,
                most: options.most_tokens(),
                seed: options.seed_of(question, number),
                stop: Arc::clone(&self.stop) as Arc<dyn Stop>,
            };
            let node = self.plan.sample(leaf, grow);
            self.before.insert(node, tokens);
            node
        };
        (0..options.count()).map(sample).collect()
    }

    /// What a sample says.
    pub fn answer(&self, sample: &Sample) -> Answer {
        let (text, tokens) = self.stop.text(sample);
        Answer { text, log_probabilities: sample.log_probabilities[..tokens].to_vec(), finish: sample.finish }
    }

    /// The answer at a node of a finished plan.
    pub fn answer_at(&self, outcome: &Outcome, node: NodeId) -> Result<Answer, EngineError> {
        let missing = || EngineError::Internal("a sample is missing".into());
        Ok(self.answer(outcome.samples.get(&node).ok_or_else(missing)?))
    }

    /// Tokens that the samples would take, each run from its prompt's beginning.
    pub fn naive_tokens(&self, outcome: &Outcome) -> usize {
        let taken = |(node, before): (&NodeId, &usize)| Some(before + outcome.samples.get(node)?.tokens.len() - 1);
        self.before.iter().filter_map(taken).sum()
    }
}

impl Engine {
    /// Has a plan carried out within its bounds. `tell` hears what happens on the way; without it nothing is reported.
    pub(in crate::engine) async fn carry_out(
        &self,
        call: &Call,
        plan: Plan,
        token_budget: Option<usize>,
        mut tell: Option<impl FnMut(Event)>,
    ) -> Result<(Outcome, Usage), EngineError> {
        let allowed = self.limits.tokens.min(token_budget.unwrap_or(usize::MAX));
        let needed = plan.cost().tokens;
        if needed > allowed {
            return Err(EngineError::Budget { needed, allowed });
        }
        let (sender, mut events) = unbounded_channel();
        let listened = tell.is_some().then_some(sender);
        let generator = self.generator()?;
        let mut work = std::pin::pin!(generator.scheduler.run(Arc::new(plan), call, listened));
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
