//! Likelihood of a reference answer under orders of the passages, and the position profile of a labelled question.

use std::sync::Arc;

use super::answers::{AnswerPrompts, Asked};
use super::models::Models;
use crate::types::Limits;
use crate::types::{EngineError, Passage, Task};
use numeric::{mean, real};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan, Segment};

/// A question with a reference answer and marked passages.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// Must not be empty.
    pub question: String,
    /// The reference answer whose likelihood is measured. Must not be empty.
    pub answer: String,
    /// Passages in input order.
    pub passages: Vec<Passage>,
    /// For each passage, if it supports the answer. Missing entries count as false.
    pub gold: Vec<bool>,
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
}

/// Measures how likely an answer is after passages at different positions.
#[derive(Debug, Clone)]
pub struct PositionMeter {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl PositionMeter {
    /// log P(answer | passages in this order, question) in nats, for each order of passage indices. An order may
    /// leave passages out. Leading passages that several orders share are evaluated once.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault. Invalid input and an exceeded token limit are refused before any evaluation.
    pub async fn likelihoods(
        &self,
        call: &Call,
        task: &Labelled,
        orders: &[Vec<usize>],
    ) -> Result<Vec<f64>, EngineError> {
        for (field, text) in [("question", &task.question), ("answer", &task.answer)] {
            if text.trim().is_empty() {
                return Err(EngineError::invalid(field, "must not be empty"));
            }
        }
        let (meter, task, orders) = (self.clone(), task.clone(), orders.to_vec());
        let (plan, answers) = call.compute(move |call| meter.plan(call, &task, &orders)).await?;
        let needed = plan.cost().tokens;
        if needed > self.limits.tokens {
            return Err(EngineError::Budget { needed, allowed: self.limits.tokens });
        }
        let outcome = self.models.answering()?.scheduler.run(Arc::new(plan), call, None).await?;
        Ok(answers.iter().map(|node| outcome.scores[node.0].iter().sum()).collect())
    }

    fn plan(&self, call: &Call, task: &Labelled, orders: &[Vec<usize>]) -> Result<(Plan, Vec<NodeId>), EngineError> {
        let generator = self.models.answering()?;
        let answer = generator.language.query(&task.answer);
        let (question, passages) = (task.question.as_str(), task.passages.as_slice());
        let short = Task::default();
        let passage_tokens = task.passage_tokens;
        let asked = Asked { task: &short, question, passages, passage_tokens, truncate: Some(true), references: &[] };
        let longest = orders.iter().map(Vec::len).max().unwrap_or(0);
        let (prompts, _) = AnswerPrompts::fitted(
            (&generator.language, generator.context()?),
            &self.limits,
            call,
            asked,
            longest,
            answer.len(),
        )?;
        let mut plan = Plan::new();
        let answers = orders.iter().map(|order| {
            let mut segments = prompts.prompt(order);
            segments.push(Segment::scored(answer.clone(), 0));
            let path = plan.add(&segments);
            path[path.len() - 1]
        });
        let answers = answers.collect();
        Ok((plan, answers))
    }

    /// The position profile of one question, in nats, first position to last. An entry is the answer's
    /// log-likelihood with the supporting passage at that position and the others in input order, minus the mean
    /// over the positions. Several supporting passages are averaged.
    ///
    /// # Errors
    /// As [`PositionMeter::likelihoods`]; also if no passage is marked as supporting, or there are fewer than two
    /// passages.
    pub async fn profile(&self, call: &Call, task: &Labelled) -> Result<Vec<f64>, EngineError> {
        let n = task.passages.len();
        if n < 2 {
            return Err(EngineError::invalid("passages", "at least two are needed, or positions do not differ"));
        }
        if n > self.limits.passages {
            let problem = format!("{n} given, at most {} allowed", self.limits.passages);
            return Err(EngineError::invalid("passages", problem));
        }
        let supporting: Vec<usize> = (0..n).filter(|&index| task.gold.get(index).copied().unwrap_or(false)).collect();
        if supporting.is_empty() {
            return Err(EngineError::invalid("passages", "none is marked as supporting the answer"));
        }
        let orders: Vec<Vec<usize>> =
            supporting.iter().flat_map(|&gold| (0..n).map(move |at| moved(n, gold, at))).collect();
        let scores = self.likelihoods(call, task, &orders).await?;
        let at = |position: usize| scores.iter().skip(position).step_by(n).sum::<f64>() / real(supporting.len());
        let values: Vec<f64> = (0..n).map(at).collect();
        let centre = mean(&values);
        Ok(values.into_iter().map(|value| value - centre).collect())
    }
}

/// The order 0..n with passage `gold` moved to position `at`.
fn moved(n: usize, gold: usize, at: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).filter(|&index| index != gold).collect();
    order.insert(at, gold);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_passage_moves_and_the_others_keep_their_order() {
        assert_eq!(moved(4, 2, 0), vec![2, 0, 1, 3]);
        assert_eq!(moved(4, 2, 3), vec![0, 1, 3, 2]);
        assert_eq!(moved(2, 0, 0), vec![0, 1]);
    }
}
