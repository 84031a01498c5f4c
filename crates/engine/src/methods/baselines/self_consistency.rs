//! Self-consistency over orders: the generator answers with many orders of the passages, and the most frequent
//! answer wins (the baseline of Lee et al., section 4.1, after Wang et al., 2023).
//!
//! 30 random orders, one greedy answer each. Answers are compared by their normalised words, like exact match
//! (`metrics::lexical`). Ties: the larger sum of log-likelihoods, then the earlier answer.
//!
//! The baseline gives an answer, not a ranking. The ranking is ours: a passage is useful if the generator gives the
//! consensus more often when the passage is early in the prompt.
//!
//! ```text
//! utility of passage p = correlation, over the orders, of [p stands in the first half] and [the answer is the consensus]
//! ```
//!
//! Between -1 and 1; 0 if every order gives the same answer. With 30 orders the standard error is near 0.18 for a
//! passage without effect. The warnings report the share of the consensus.

use std::sync::Arc;

use super::super::{Budget, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::answers::{self, AnswerPrompts};
use crate::prompt::Language;
use crate::sampling::stop::TextStop;
use crate::types::{EngineError, Limits, RerankRequest, SampleOptions};
use ::moi::design::{Design, factorial, orders};
use numeric::real;
use prefix_scheduler::call::Call;
use rag_metrics::lexical::words;

/// Orders to answer with; fewer if the list has fewer.
const ORDERS: usize = 30;

/// Utility is a correlation.
pub(super) struct SelfConsistency;

impl Method for SelfConsistency {
    fn name(&self) -> &'static str {
        "self-consistency"
    }

    fn summary(&self) -> &'static str {
        "correlation of standing early with the answer given most often over 30 random orders (after Lee et al.'s baseline)"
    }

    fn check(&self, request: &RerankRequest, limits: &Limits) -> Result<(), EngineError> {
        let needed = needed(request.passages.len());
        if needed > limits.orders {
            let problem = format!("{needed} orders needed, at most {} allowed", limits.orders);
            return Err(EngineError::invalid("method", problem));
        }
        Ok(())
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let overhead = answers::overhead(language) + SampleOptions::greedy().most_tokens();
        Some(PromptShape { longest: request.passages.len(), overhead })
    }

    fn drawn(&self, request: &RerankRequest) -> usize {
        needed(request.passages.len()).saturating_mul(SampleOptions::greedy().most_tokens())
    }

    fn reads_own_answer(&self) -> bool {
        true
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let stop = SampleOptions::greedy().text_stop(task.language()?);
        Ok(Box::new(Answering { task, stop, orders: None, answers: Vec::new() }))
    }
}

/// Orders to answer with for a list of `passages`.
fn needed(passages: usize) -> usize {
    ORDERS.min(factorial(passages))
}

struct Answering {
    task: Arc<Task>,
    stop: Arc<TextStop>,
    /// `None` before the first round.
    orders: Option<Vec<Vec<usize>>>,
    answers: Vec<Answer>,
}

/// The compared part of an answer.
struct Answer {
    text: String,
    /// Sum over its tokens, in nats.
    log_likelihood: f64,
}

impl Answering {
    fn prompts(&self, orders: &[Vec<usize>]) -> Result<Vec<Prompt>, EngineError> {
        let language = self.task.language()?;
        let prompts = AnswerPrompts::new(language, &self.task.query, self.task.passages.iter().cloned());
        let grow = SampleOptions::greedy().grow(&self.task.request.query, 0, &self.stop);
        Ok(orders.iter().map(|order| Prompt::grown(prompts.prompt(order), grow.clone())).collect())
    }
}

impl Ranking for Answering {
    fn next(&mut self, _: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        let passages = self.task.passages.len();
        if self.orders.is_some() || passages < 2 {
            return Ok(None);
        }
        let seed = self.task.request.moi.seed;
        let drawn = orders(Design::Random, passages, ORDERS, seed, &|| call.is_stopped())?;
        let prompts = self.prompts(&drawn)?;
        self.orders = Some(drawn);
        Ok(Some(prompts))
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        let answer = |prompt: usize| {
            let sample = scores.sample(prompt).ok_or_else(|| EngineError::Internal("a sample is missing".into()))?;
            let (text, tokens) = self.stop.text(sample);
            Ok(Answer { text, log_likelihood: sample.log_probabilities[..tokens].iter().sum() })
        };
        self.answers = (0..scores.len()).map(answer).collect::<Result<_, EngineError>>()?;
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let orders = self.orders.take().unwrap_or_default();
        let agrees = consensus(&self.answers);
        let mut scored = Scored::by_utility(utilities(self.task.passages.len(), &orders, &agrees), 1.0);
        if let Some(first) = agrees.iter().position(|agrees| *agrees) {
            let (count, all) = (agrees.iter().filter(|agrees| **agrees).count(), agrees.len());
            scored.warnings.push(format!("{count} of {all} orders gave the answer {:?}", self.answers[first].text));
            if count == all {
                scored.warnings.push("every order gave the same answer: the given order is kept".to_owned());
            }
        } else if !agrees.is_empty() {
            scored.warnings.push("no order gave an answer: the given order is kept".to_owned());
        }
        Ok(scored)
    }
}

/// The answers equal to the consensus.
fn consensus(answers: &[Answer]) -> Vec<bool> {
    let normalised: Vec<Vec<String>> = answers.iter().map(|answer| words(&answer.text)).collect();
    let mut best: Option<(usize, f64, usize)> = None;
    // An empty answer agrees with nothing: passages that lead to none are not useful.
    for (first, text) in normalised.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        let same = || normalised.iter().zip(answers).filter(|(other, _)| *other == text);
        let (count, likelihood) = (same().count(), same().map(|(_, answer)| answer.log_likelihood).sum::<f64>());
        if best.is_none_or(|(most, largest, _)| count > most || (count == most && likelihood > largest)) {
            best = Some((count, likelihood, first));
        }
    }
    normalised.iter().map(|text| best.is_some_and(|(_, _, first)| *text == normalised[first])).collect()
}

/// Correlation (phi) of being in the first half, rounded up, with agreement; 0 if either is constant over the
/// orders. Computed from counts, so that passages with the same counts tie: rounding of sums of deviations would
/// depend on the seed.
fn utilities(passages: usize, orders: &[Vec<usize>], agrees: &[bool]) -> Vec<f64> {
    let (all, agreeing) = (real(orders.len()), real(agrees.iter().filter(|agrees| **agrees).count()));
    let correlation = |passage: usize| {
        let is_early = |order: &[usize]| order[..passages.div_ceil(2)].contains(&passage);
        let early = || orders.iter().zip(agrees).filter(|(order, _)| is_early(order));
        let (count, both) = (real(early().count()), real(early().filter(|(_, agrees)| **agrees).count()));
        let scale = (count * (all - count) * agreeing * (all - agreeing)).sqrt();
        if scale > 0.0 { (all * both - count * agreeing) / scale } else { 0.0 }
    };
    (0..passages).map(correlation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(texts: &[(&str, f64)]) -> Vec<Answer> {
        texts.iter().map(|(text, log)| Answer { text: (*text).to_owned(), log_likelihood: *log }).collect()
    }

    /// A limit of 20 orders refused three passages, which have six.
    #[test]
    fn few_passages_have_few_orders() {
        assert_eq!([1, 2, 3, 4, 5, 40].map(needed), [1, 2, 6, 24, 30, 30]);
    }

    #[test]
    fn consensus_by_hand() {
        assert_eq!(consensus(&answers(&[("paris", -1.0), ("Paris.", -2.0), ("lyon", -0.1)])), [true, true, false]);
        let tie = [("lyon", -2.0), ("the Paris", -1.0), ("Lyon!", -2.0), ("paris", -1.5)];
        assert_eq!(consensus(&answers(&tie)), [false, true, false, true], "the likelier of two");
        assert_eq!(consensus(&answers(&[("a b", -1.0), ("c", -1.0)])), [true, false], "the first of equals");
        assert!(consensus(&[]).is_empty());
        assert_eq!(consensus(&answers(&[("", -1.0), ("", -1.0), ("a b", -9.0)])), [false, false, true]);
        assert_eq!(consensus(&answers(&[("", -1.0)])), [false]);
    }

    /// Passage 0 early: Paris in two of two; passage 1 early: in one of two; passage 2 late in both.
    #[test]
    fn utilities_by_hand() {
        let orders = [vec![0, 1, 2, 3], vec![0, 2, 1, 3], vec![3, 1, 2, 0], vec![3, 2, 1, 0]];
        let agrees = [true, true, false, false];
        assert_eq!(utilities(4, &orders, &agrees), [1.0, 0.0, 0.0, -1.0]);
        assert_eq!(utilities(4, &orders, &[true; 4]), [0.0; 4]);
        assert_eq!(utilities(2, &[vec![0, 1], vec![1, 0]], &[false, true]), [-1.0, 1.0]);
        assert_eq!(utilities(1, &[], &[]), [0.0]);
    }

    /// Passages 0 and 1 are early in four orders each, three of which agree: phi is 2/8 for both.
    #[test]
    fn equal_correlations_tie() {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].map(Vec::from);
        let utilities = utilities(3, &orders, &[true, true, true, true, false, false]);
        assert_eq!(utilities, [0.25, 0.25, -0.5]);
    }
}
