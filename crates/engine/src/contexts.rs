//! Readings of several contexts of one question: the likelihood of a reference answer, the generator's answer, and
//! the distribution of its first token. One plan holds all contexts, and each prompt is evaluated once.

use std::collections::HashMap;
use std::sync::Arc;

use super::answers::{AnswerPrompts, Asked};
use super::checks::{check_orders, check_references, check_texts, refuse_blank};
use super::sampling::{Sampler, TextStop};
use crate::types::{EngineError, Limits, MOST_TOKENS, Passage, SampleOptions, Task};
use numeric::{descending, mean};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{Grow, NodeId, Plan, Segment};
use prefix_scheduler::scheduler::generator::Event;

/// A question, its passages and the contexts to read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContextsRequest {
    /// The question; not empty.
    pub question: String,
    /// The task of the generator.
    pub task: Task,
    /// The passages.
    pub passages: Vec<Passage>,
    /// Passage indices of each context, in prompt order; at least one context.
    pub contexts: Vec<Vec<usize>>,
    /// The reference answer whose likelihood is measured, if any.
    pub reference: Option<String>,
    /// Most tokens of a greedy answer, 1 to 512; `None` for no answer. A task with labels is answered with its
    /// likeliest label.
    pub answer_tokens: Option<usize>,
    /// True if [`ContextReading::first_token`] is wanted.
    pub first_token: bool,
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
}

/// The generator's reading of one context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContextReading {
    /// log P(reference | context, question) in nats, the mean over the tokens of the reference.
    pub reference: Option<f64>,
    /// The greedy answer; for a task with labels, the likeliest label.
    pub answer: Option<String>,
    /// Natural log-probability of each vocabulary token as the answer's first, at temperature 1; empty unless
    /// wanted.
    pub first_token: Vec<f32>,
}

/// The nodes of one context.
struct Nodes {
    reference: Option<NodeId>,
    sample: Option<NodeId>,
    /// One per label of the task, if an answer is wanted.
    labels: Vec<NodeId>,
}

struct Reading {
    plan: Plan,
    /// One per distinct context.
    nodes: Vec<Nodes>,
    /// For each context of the request, its index in `nodes`.
    place: Vec<usize>,
    stop: Arc<TextStop>,
    /// True if answers are wanted, not only first tokens.
    answers: bool,
}

impl ContextsRequest {
    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        check_texts(&self.question, &self.passages, limits)?;
        refuse_blank(&self.passages)?;
        if self.contexts.is_empty() || self.contexts.len() > limits.orders {
            let problem = format!("{} given, must be between 1 and {}", self.contexts.len(), limits.orders);
            return Err(EngineError::invalid("contexts", problem));
        }
        check_orders("contexts", &self.contexts, self.passages.len())?;
        check_references(self.reference.as_slice(), limits)?;
        self.task.check()?;
        if let Some(tokens) = self.answer_tokens.filter(|tokens| !(1..=MOST_TOKENS).contains(tokens)) {
            return Err(EngineError::invalid("answer_tokens", format!("{tokens} given, 1 to {MOST_TOKENS} allowed")));
        }
        if self.reference.is_none() && self.answer_tokens.is_none() && !self.first_token {
            return Err(EngineError::invalid("reference", "nothing is asked of the contexts"));
        }
        Ok(())
    }
}

/// Reads contexts.
#[derive(Debug, Clone)]
pub struct ContextReader {
    pub(crate) sampler: Sampler,
}

impl ContextReader {
    /// Reads every context; the readings are in the order of the request.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault. Invalid input and an exceeded token limit are refused before any evaluation.
    pub async fn read(&self, call: &Call, request: ContextsRequest) -> Result<Vec<ContextReading>, EngineError> {
        request.check(&self.sampler.limits)?;
        let (reader, task) = (self.clone(), request.task.clone());
        let mut reading = call.compute(move |call| reader.plan(call, &request)).await?;
        let plan = std::mem::take(&mut reading.plan);
        let (mut outcome, _) = self.sampler.run(call, plan, None, None::<fn(Event)>).await?;
        call.compute(move |_| {
            let missing = || EngineError::Internal("a sample is missing".into());
            let mut readings = Vec::with_capacity(reading.nodes.len());
            for nodes in &reading.nodes {
                let sample = nodes.sample.map(|node| outcome.samples.get(&node).ok_or_else(missing)).transpose()?;
                let sums: Vec<f64> = nodes.labels.iter().map(|node| outcome.scores[node.0].iter().sum()).collect();
                // The first of equal labels.
                let label = descending(&sums).first().copied();
                let greedy = || sample.filter(|_| reading.answers).map(|sample| reading.stop.text(sample).0);
                let answer = label.map(|label| task.labels()[label].clone()).or_else(greedy);
                readings.push(ContextReading {
                    reference: nodes.reference.map(|node| mean(&outcome.scores[node.0])),
                    answer: answer.map(|answer| task.measured(&answer)),
                    first_token: nodes.sample.and_then(|node| outcome.distributions.remove(&node)).unwrap_or_default(),
                });
            }
            Ok::<_, EngineError>(reading.place.iter().map(|&place| readings[place].clone()).collect())
        })
        .await
    }

    fn plan(&self, call: &Call, request: &ContextsRequest) -> Result<Reading, EngineError> {
        let generator = self.sampler.models.answering()?;
        let language = &generator.language;
        // A label is scored, not drawn, and its room is that of the longest label. Only a first token may also be
        // drawn.
        let most = request.answer_tokens.filter(|_| request.task.labels().is_empty()).unwrap_or(1);
        let options = SampleOptions { max_tokens: Some(most), ..SampleOptions::greedy() };
        let stop = options.text_stop(language);
        let reference = request.reference.as_ref().map(|reference| language.query(reference));
        let asked = Asked {
            task: &request.task,
            question: &request.question,
            passages: &request.passages,
            passage_tokens: request.passage_tokens,
            truncate: Some(true),
            references: &[],
        };
        let longest = request.contexts.iter().map(Vec::len).max().unwrap_or(0);
        let room = reference.as_ref().map_or(0, Vec::len).max(most);
        let (prompts, _) =
            AnswerPrompts::fitted((language, generator.context()?), &self.sampler.limits, call, asked, longest, room)?;
        let (mut plan, mut nodes) = (Plan::new(), Vec::new());
        let mut first_seen: HashMap<&[usize], usize> = HashMap::new();
        let mut place = Vec::with_capacity(request.contexts.len());
        for order in &request.contexts {
            if let Some(&earlier) = first_seen.get(&order[..]) {
                place.push(earlier);
                continue;
            }
            let mut segments = prompts.prompt(order);
            let path = plan.add(&segments);
            let scored: Vec<Vec<Segment>> = request.answer_tokens.map(|_| prompts.labelled(order)).unwrap_or_default();
            let labels: Vec<NodeId> = scored.iter().filter_map(|label| plan.add(label).last().copied()).collect();
            let sampled = (request.answer_tokens.is_some() && labels.is_empty()) || request.first_token;
            let sample = sampled.then(|| {
                let grow: Grow = options.grow(&request.question, 0, &stop);
                let node = plan.sample(path[path.len() - 1], grow);
                if request.first_token {
                    plan.keep_distribution(node);
                }
                node
            });
            let reference = reference.as_ref().and_then(|reference| {
                segments.push(Segment::scored(reference.clone(), 0));
                plan.add(&segments).last().copied()
            });
            first_seen.insert(order, nodes.len());
            place.push(nodes.len());
            nodes.push(Nodes { reference, sample, labels });
        }
        Ok(Reading { plan, nodes, place, stop, answers: request.answer_tokens.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equally_likely_labels() {
        assert_eq!(descending(&[-2.0, -1.0, -1.0]).first(), Some(&1));
        assert_eq!(descending(&[]).first(), None);
    }

    #[test]
    fn bad_input_names_its_field() {
        let limits = Limits { passages: 10, query_bytes: 100, passage_bytes: 100, orders: 3, ..Limits::WIDE };
        let good = ContextsRequest {
            task: Task::default(),
            question: "Who?".into(),
            passages: vec![Passage::untitled(0, "Ada".into()), Passage::untitled(1, "Bo".into())],
            contexts: vec![vec![0, 1], vec![1, 0], vec![]],
            reference: Some("Ada".into()),
            answer_tokens: Some(5),
            first_token: true,
            passage_tokens: None,
        };
        assert!(good.check(&limits).is_ok());
        let refused = |change: &dyn Fn(&mut ContextsRequest)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.check(&limits).unwrap_err().to_string()
        };
        assert!(refused(&|bad| bad.question = " ".into()).starts_with("question"));
        assert!(refused(&|bad| bad.passages[1].text.clear()).starts_with("passages[1].text"));
        assert!(refused(&|bad| bad.contexts.clear()).starts_with("contexts"));
        assert!(refused(&|bad| bad.contexts.push(vec![0])).contains("4 given"));
        assert!(refused(&|bad| bad.contexts[1] = vec![0, 0]).starts_with("contexts[1]"));
        assert!(refused(&|bad| bad.contexts[2] = vec![2]).starts_with("contexts[2]"));
        assert!(refused(&|bad| bad.reference = Some(String::new())).starts_with("references[0]"));
        assert!(refused(&|bad| bad.answer_tokens = Some(0)).starts_with("answer_tokens"));
        assert!(refused(&|bad| bad.answer_tokens = Some(513)).starts_with("answer_tokens"));
        let nothing = |bad: &mut ContextsRequest| {
            (bad.reference, bad.answer_tokens, bad.first_token) = (None, None, false);
        };
        assert!(refused(&nothing).starts_with("reference"));
    }
}
