//! Sampled answers of many prompts in one plan.

use std::collections::HashMap;
use std::sync::Arc;

use super::stop::TextStop;
use crate::answers::{AnswerPrompts, Asked};
use crate::models::ServedGenerator;
use crate::types::{Answer, EngineError, LabelProbability, Limits, SampleOptions};
use numeric::logspace::log_sum_exp;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{Finish, NodeId, Plan, Segment};
use prefix_scheduler::scheduler::generator::{Outcome, Sample};

/// A plan under construction, with the length of the prompt before each of its samples.
pub(crate) struct Drawing {
    /// The plan. Prompts of other kinds may be added to it.
    pub plan: Plan,
    /// The prompts for answers; their passages are cut to fit.
    pub prompts: AnswerPrompts,
    /// Number of tokens cut from the end of each passage.
    pub cut: Vec<usize>,
    stop: Arc<TextStop>,
    /// Number of tokens of the prompt before each sample.
    before: HashMap<NodeId, usize>,
    /// Tokens of the prompts of labels and references without sharing.
    scored_tokens: usize,
    /// The task's labels.
    labels: Vec<String>,
}

impl Drawing {
    /// `longest` is the number of passages in the longest prompt, `room` the number of tokens that must fit after it.
    pub fn new(
        limits: &Limits,
        model: &ServedGenerator,
        call: &Call,
        asked: Asked<'_>,
        (longest, room): (usize, usize),
        options: &SampleOptions,
    ) -> Result<Self, EngineError> {
        let (prompts, cut) =
            AnswerPrompts::fitted((&model.language, model.context()?), limits, call, asked, longest, room)?;
        let stop = options.text_stop(&model.language);
        let labels = asked.task.labels().into_owned();
        Ok(Self { plan: Plan::new(), prompts, cut, stop, before: HashMap::new(), scored_tokens: 0, labels })
    }

    /// Adds the prompt with these passages in this order, and its samples. Returns the nodes of the samples.
    pub fn draw(&mut self, question: &str, order: &[usize], options: &SampleOptions) -> Vec<NodeId> {
        let segments = self.prompts.prompt(order);
        let tokens = segments.iter().map(|segment| segment.tokens.len()).sum();
        let path = self.plan.add(&segments);
        let leaf = path[path.len() - 1];
        let sample = |number: usize| {
            let node = self.plan.sample(leaf, options.grow(question, number, &self.stop));
            self.before.insert(node, tokens);
            node
        };
        (0..options.count()).map(sample).collect()
    }

    /// Adds the prompt with these passages in this order before each of the task's labels. Returns the nodes of the
    /// labels; none for a task without labels.
    pub fn score_labels(&mut self, order: &[usize]) -> Vec<NodeId> {
        self.score(self.prompts.labelled(order))
    }

    /// Adds the prompt with these passages in this order before each reference. Returns the nodes of the references.
    pub fn score_references(&mut self, order: &[usize]) -> Vec<NodeId> {
        self.score(self.prompts.referenced(order))
    }

    /// Adds prompts whose last segment is scored. Returns its node for each.
    fn score(&mut self, prompts: Vec<Vec<Segment>>) -> Vec<NodeId> {
        let add = |segments: Vec<Segment>| {
            // The last token is predicted, not evaluated.
            self.scored_tokens += segments.iter().map(|segment| segment.tokens.len()).sum::<usize>() - 1;
            let path = self.plan.add(&segments);
            path[path.len() - 1]
        };
        prompts.into_iter().map(add).collect()
    }

    /// The labels at these nodes of a finished plan, with their probabilities among each other.
    pub fn label_probabilities(&self, outcome: &Outcome, nodes: &[NodeId]) -> Vec<LabelProbability> {
        let sums = log_likelihoods(outcome, nodes);
        let normaliser = log_sum_exp(&sums);
        let probability = |(label, sum): (&String, &f64)| (label.clone(), (sum - normaliser).exp());
        self.labels.iter().zip(&sums).map(probability).collect()
    }

    /// The likeliest label as an answer, the first of equal ones; `None` without labels.
    pub fn likeliest_label(&self, outcome: &Outcome, nodes: &[NodeId]) -> Option<Answer> {
        let sum = |node: &NodeId| token_scores(outcome, *node).iter().sum::<f64>();
        let answers = self.labels.iter().zip(nodes).rev();
        let (label, node) = answers.max_by(|(_, left), (_, right)| sum(left).total_cmp(&sum(right)))?;
        let log_probabilities = token_scores(outcome, *node).to_vec();
        Some(Answer { text: label.clone(), log_probabilities, finish: Finish::EndOfTurn })
    }

    /// The answer in a sample, cut at its first stop string.
    pub fn answer(&self, sample: &Sample) -> Answer {
        let (text, tokens) = self.stop.text(sample);
        Answer { text, log_probabilities: sample.log_probabilities[..tokens].to_vec(), finish: sample.finish }
    }

    /// The answer at a node of a finished plan.
    pub fn answer_at(&self, outcome: &Outcome, node: NodeId) -> Result<Answer, EngineError> {
        let missing = || EngineError::Internal("a sample is missing".into());
        Ok(self.answer(outcome.samples.get(&node).ok_or_else(missing)?))
    }

    /// Tokens to evaluate if every sample evaluated its prompt from the beginning.
    pub fn naive_tokens(&self, outcome: &Outcome) -> usize {
        let tokens = |(node, before): (&NodeId, &usize)| Some(before + outcome.samples.get(node)?.tokens.len() - 1);
        self.scored_tokens + self.before.iter().filter_map(tokens).sum::<usize>()
    }
}

/// log P of the answers at these nodes of a finished plan, in nats: sums over their tokens.
pub(super) fn log_likelihoods(outcome: &Outcome, nodes: &[NodeId]) -> Vec<f64> {
    nodes.iter().map(|node| token_scores(outcome, *node).iter().sum()).collect()
}

/// Log-probabilities of the tokens of a label or reference.
fn token_scores(outcome: &Outcome, node: NodeId) -> &[f64] {
    outcome.scores.get(node.0).map_or(&[], |scores| &scores[..])
}
