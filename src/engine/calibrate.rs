//! The likelihood of a reference answer under orders of the passages, and from labelled questions its position profile.

use std::sync::Arc;

use super::rerank::Passage;
use super::{Engine, EngineError, truncate};
use crate::measure::{mean, real};
use crate::model::prompt::{PassageTokens, query_tokens};
use crate::plan::{NodeId, Plan, Segment, Token};

/// A question whose answer and answering passages are known.
#[derive(Debug, Clone, PartialEq)]
pub struct Labelled {
    /// The question.
    pub question: String,
    /// The reference answer.
    pub answer: String,
    /// The passages.
    pub passages: Vec<Passage>,
    /// For each passage, whether it helps to the answer.
    pub gold: Vec<bool>,
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
}

impl Engine {
    /// log P(answer | passages in this order, question) in nats, for each order of passage indices. Leading passages that
    /// orders share are evaluated once.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn answer_likelihoods(&self, task: &Labelled, orders: &[Vec<usize>]) -> Result<Vec<f64>, EngineError> {
        for (field, text) in [("question", &task.question), ("answer", &task.answer)] {
            if text.trim().is_empty() {
                return Err(EngineError::invalid(field, "must not be empty"));
            }
        }
        let context = self.context()?;
        let (engine, task, orders) = (self.clone(), task.clone(), orders.to_vec());
        let laid_out = tokio::task::spawn_blocking(move || engine.lay_answers_out(&task, &orders, context));
        let (plan, answers) = laid_out.await.map_err(|error| EngineError::Internal(error.to_string()))??;
        let needed = plan.cost().tokens;
        if needed > self.limits.tokens {
            return Err(EngineError::Budget { needed, allowed: self.limits.tokens });
        }
        let outcome = self.scheduler.run(Arc::new(plan), None, None).await?;
        Ok(answers.iter().map(|node| outcome.scores[node.0].iter().sum()).collect())
    }

    fn lay_answers_out(
        &self,
        task: &Labelled,
        orders: &[Vec<usize>],
        context: usize,
    ) -> Result<(Plan, Vec<NodeId>), EngineError> {
        let tokenizer = self.tokenizer.as_ref();
        let question = query_tokens(tokenizer, &task.question);
        let answer = query_tokens(tokenizer, &task.answer);
        let texts: Vec<PassageTokens> =
            task.passages.iter().map(|passage| PassageTokens::new(tokenizer, &passage.title, &passage.text)).collect();
        let frame = self.template.answer_overhead() + question.len() + answer.len();
        let available = context.saturating_sub(frame);
        let bounded: Vec<usize> =
            texts.iter().map(|text| text.len().min(task.passage_tokens.unwrap_or(usize::MAX))).collect();
        let least: Vec<usize> = texts.iter().map(PassageTokens::least).collect();
        let longest = orders.iter().map(Vec::len).max().unwrap_or(0);
        let cap = truncate::common_cap(&bounded, &least, longest, available).ok_or_else(|| EngineError::TooLong {
            field: "passages".into(),
            needed: least.iter().sum(),
            available,
        })?;
        let passages: Vec<Arc<[Token]>> =
            texts.iter().zip(&bounded).map(|(text, &bound)| text.cut(cap.min(bound)).0.into()).collect();
        let mut plan = Plan::new();
        let answers = orders.iter().map(|order| {
            let mut segments = vec![self.template.answer_opening()];
            segments.extend(order.iter().map(|&index| Segment::context(Arc::clone(&passages[index]))));
            segments.push(self.template.answer_cue(&question));
            segments.push(Segment::scored(answer.clone(), 0));
            let path = plan.add(&segments);
            path[path.len() - 1]
        });
        let answers = answers.collect();
        Ok((plan, answers))
    }

    /// What each position is worth for this question: the answer's log-likelihood with the answering passage there and the
    /// others around it in their given order, less the mean over the positions; in nats, first position to last. Where
    /// several passages help, the mean over them.
    ///
    /// # Errors
    /// As [`Engine::answer_likelihoods`]; and where no passage is marked, or there are fewer than two.
    pub async fn answer_profile(&self, task: &Labelled) -> Result<Vec<f64>, EngineError> {
        let n = task.passages.len();
        if n < 2 {
            return Err(EngineError::invalid("passages", "must be two or more for positions to differ"));
        }
        let helpful: Vec<usize> = (0..n).filter(|&index| task.gold.get(index).copied().unwrap_or(false)).collect();
        if helpful.is_empty() {
            return Err(EngineError::invalid("passages", "none is marked as supporting the answer"));
        }
        let orders: Vec<Vec<usize>> =
            helpful.iter().flat_map(|&gold| (0..n).map(move |at| moved(n, gold, at))).collect();
        let scores = self.answer_likelihoods(task, &orders).await?;
        let at = |position: usize| scores.iter().skip(position).step_by(n).sum::<f64>() / real(helpful.len());
        let values: Vec<f64> = (0..n).map(at).collect();
        let centre = mean(&values);
        Ok(values.into_iter().map(|value| value - centre).collect())
    }
}

/// The given order with passage `gold` moved to position `at`.
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
