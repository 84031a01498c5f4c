//! Greedy choice of a list (Bayes saliency over lists; Merth et al.; MOI, Eq. 2).
//!
//! ```text
//! step t:  p_t = argmax over the rest of  log P(q | p_1..p_{t-1}; p)
//! gain of p at step t  =  log P(q | p_1..p_{t-1}; p) − log P(q | p_1..p_{t-1})
//! ```
//!
//! Eq. 2 also prints the prior log P(p_1; ..; p_N). It is the same for every candidate, so it drops out and is not
//! evaluated. In the first step the second term is the prompt with no passage.
//!
//! The choice stops when the best gain is not above 0, or after the tenth place. The other passages follow by their
//! gain at the last step. A passage that repeats a chosen one gains about nothing, as intended: passages that
//! complement each other come first. An early mistake stays.
//!
//! **Utility**: the gain in nats at the last step that scored the passage; for a chosen passage, the step that
//! chose it. Zero means "adds nothing to the passages chosen before". Gains of different steps have different
//! references and do not descend along the ranking: a second passage may gain more than the first if it can only be
//! understood after it. The ranking is the order of choice.
//!
//! **Cost**: step t evaluates t − 1 chosen and N − t + 1 other passages, N² for N steps. If they are cached, a step
//! restores the chosen ones ([`Ranking::shares`]).
//!
//! **Budget**: the driver refuses a request whose first step exceeds it. If a later step exceeds it, the choice
//! ends with a warning.

use std::sync::Arc;

use super::query_prompt::{QueryPrompt, overhead_with};
use super::{Budget, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::real;
use prefix_scheduler::call::Call;

/// Most passages to choose.
const PLACES: usize = 10;

/// Utility in nats: the passage's gain over those chosen before.
pub(super) struct ListwiseBayes;

impl Method for ListwiseBayes {
    fn name(&self) -> &'static str {
        "listwise-bayes"
    }

    fn summary(&self) -> &'static str {
        "greedy choice of the passage that adds most to log P(query | those chosen before) (MOI, Eq. 2), ten steps"
    }

    fn takes_prefix(&self) -> bool {
        true
    }

    /// If a document was chosen, its copy adds nothing.
    fn tells_copies_apart(&self, _: &RerankRequest) -> bool {
        true
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape {
            longest: request.passages.len().min(PLACES),
            overhead: overhead_with(&request.prefix, language),
        })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let passages = task.passages.len();
        Ok(Box::new(Greedy {
            task,
            prompt,
            chosen: Vec::new(),
            candidates: (0..passages).collect(),
            gains: vec![0.0; passages],
            reference: None,
            done: false,
            warnings: Vec::new(),
        }))
    }
}

struct Greedy {
    task: Arc<Task>,
    prompt: QueryPrompt,
    /// Passages in the order of choice.
    chosen: Vec<usize>,
    /// The others, in input order.
    candidates: Vec<usize>,
    /// Gain of each passage at the last step that scored it, in nats.
    gains: Vec<f64>,
    /// log P(query | chosen passages), in nats; `None` before the first step.
    reference: Option<f64>,
    done: bool,
    warnings: Vec<String>,
}

impl Ranking for Greedy {
    fn next(&mut self, budget: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        call.check()?;
        if self.done {
            return Ok(None);
        }
        let with = |passage: &usize| self.prompt.with(&self.task, &[&self.chosen[..], &[*passage]].concat(), false);
        let mut prompts: Vec<Prompt> = self.candidates.iter().map(with).collect();
        if self.reference.is_none() {
            prompts.push(self.prompt.with(&self.task, &[], false));
        } else if !budget.affords(&prompts) {
            self.warnings.push(format!(
                "the token budget ended the choice after {} passages: the others follow by their last gain",
                self.chosen.len()
            ));
            return Ok(None);
        }
        Ok(Some(prompts))
    }

    /// The next prompts begin with the chosen passages and one of these candidates.
    fn shares(&self) -> usize {
        let places = self.chosen.len() + 1;
        if places < PLACES && self.candidates.len() > 1 { places } else { 0 }
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        // In the first step the prompt with no passage comes last.
        let reference = self.reference.unwrap_or_else(|| scores.sum_from(self.candidates.len(), 0));
        let mut best: Option<(usize, f64)> = None;
        for (number, &passage) in self.candidates.iter().enumerate() {
            let score = scores.sum_from(number, 0);
            self.gains[passage] = score - reference;
            if best.is_none_or(|(_, highest)| score > highest) {
                best = Some((passage, score));
            }
        }
        self.reference = Some(reference);
        match best.filter(|(_, score)| *score > reference) {
            Some((passage, score)) => {
                self.chosen.push(passage);
                self.candidates.retain(|candidate| *candidate != passage);
                self.reference = Some(score);
                self.done = self.candidates.is_empty() || self.chosen.len() == PLACES;
            }
            None => self.done = true,
        }
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let gains = std::mem::take(&mut self.gains);
        let (mut ranking, mut rest) = (std::mem::take(&mut self.chosen), std::mem::take(&mut self.candidates));
        rest.sort_by(|&left, &right| gains[right].total_cmp(&gains[left]));
        ranking.append(&mut rest);
        let warnings = std::mem::take(&mut self.warnings);
        let unit = real(self.task.query.len().max(1));
        Ok(Scored { ranking, warnings, ..Scored::against_none(gains, unit) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{blocks, order, run};
    use super::*;
    use numeric::descending;

    fn assert_close(values: &[f64], expected: &[f64]) {
        let near = values.iter().zip(expected).all(|(value, wanted)| (value - wanted).abs() < 1e-9);
        assert!(near && values.len() == expected.len(), "{values:?}, not {expected:?}");
    }

    /// The worked case of the design notes: singles A -2, B -3, C -4; [A,B] -1.9, [A,C] -1.2. The order is A C B,
    /// and the gains of step 2 are 0.1 and 0.8. Here no passage has -2.5, and B after A and C has `last`.
    fn worked(last: f64) -> impl Fn(&Prompt) -> f64 {
        move |prompt| match order(prompt)[..] {
            [] => -2.5,
            [0] => -2.0,
            [1] => -3.0,
            [2] => -4.0,
            [0, 1] => -1.9,
            [0, 2] => -1.2,
            [0, 2, 1] => last,
            _ => panic!("not asked for: {:?}", order(prompt)),
        }
    }

    #[test]
    fn what_complements_the_first_comes_second() {
        let ran = run(&ListwiseBayes, 3, usize::MAX, &worked(-1.3));
        assert_eq!(ran.scored.ranking, vec![0, 2, 1]);
        // A over no passage, C over A; B, which is not chosen, over A and C. The second gains more than the first.
        assert_close(&ran.scored.utilities, &[0.5, -0.1, 0.8]);
        let gaining = run(&ListwiseBayes, 3, usize::MAX, &worked(-1.1));
        assert_eq!(gaining.scored.ranking, vec![0, 2, 1]);
        assert_close(&gaining.scored.utilities, &[0.5, 0.1, 0.8]);
    }

    #[test]
    fn the_choice_stops_where_nothing_gains() {
        // One passage helps. After it the others lower the score by different amounts; the last step orders them.
        let answer = |prompt: &Prompt| match order(prompt)[..] {
            [] => -5.0,
            [3] => -1.0,
            [3, other] => -1.0 - [0.3, 0.0, 0.2, 9.0, 0.0][other],
            _ => -6.0,
        };
        let ran = run(&ListwiseBayes, 5, usize::MAX, &answer);
        assert_eq!((ran.rounds.len(), ran.scored.ranking), (2, vec![3, 1, 4, 2, 0]));
        assert_close(&ran.scored.utilities, &[-0.3, 0.0, -0.2, 4.0, 0.0]);
        // No passage helps: the order of the singles.
        let ran = run(&ListwiseBayes, 3, usize::MAX, &|prompt| {
            [-1.0, -3.0, -2.0, -2.0][order(prompt).first().map_or(0, |p| p + 1)]
        });
        assert_eq!((ran.rounds.len(), ran.scored.ranking), (1, vec![1, 2, 0]));
    }

    /// Every passage adds its own share: the order is by share, in as many steps as there are places.
    #[test]
    fn shares_that_add_up_are_taken_from_the_largest() {
        let table = [0.3, 0.9, 0.1, 0.5, 0.7];
        let ran =
            run(&ListwiseBayes, 5, usize::MAX, &|prompt| order(prompt).iter().map(|&p| table[p]).sum::<f64>() - 9.0);
        assert_eq!(ran.scored.ranking, descending(&table));
        assert_close(&ran.scored.utilities, &table);
    }

    /// Costs of the design notes: N (N + 1) (N + 2) / 6 passage evaluations without sharing and N² shared within
    /// the rounds, for ten steps. With twenty passages the tenth place ends the choice.
    #[test]
    fn steps_cost_what_they_should() {
        let gaining = |prompt: &Prompt| f64::from(u32::try_from(order(prompt).len()).unwrap());
        let ran = run(&ListwiseBayes, 10, usize::MAX, &gaining);
        let passages = |prompts: &Vec<Prompt>| prompts.iter().map(|prompt| order(prompt).len()).sum::<usize>();
        assert_eq!(ran.rounds.iter().map(passages).sum::<usize>(), 220);
        assert_eq!(ran.rounds.iter().map(|prompts| blocks(prompts)).sum::<usize>(), 100);
        // Steps of 10, 9, .. 1 prompts, and one with no passage.
        assert_eq!(ran.rounds.iter().map(Vec::len).sum::<usize>(), 55 + 1);
        assert_eq!(ran.scored.ranking, (0..10).collect::<Vec<_>>(), "ties keep the given order");
        let ran = run(&ListwiseBayes, 20, usize::MAX, &gaining);
        assert_eq!(ran.rounds.len(), 10);
        let all: Vec<Prompt> = ran.rounds.into_iter().flatten().collect();
        assert_eq!(blocks(&all), 10 * 20 - 45, "as many as with cells that are kept");
    }

    #[test]
    fn a_budget_ends_the_choice_with_a_warning() {
        let gaining = |prompt: &Prompt| f64::from(u32::try_from(order(prompt).len()).unwrap());
        let whole = run(&ListwiseBayes, 6, usize::MAX, &gaining);
        let two = whole.rounds[..2].iter().map(|round| Budget::cost(round).tokens).sum();
        let short = run(&ListwiseBayes, 6, two, &gaining);
        assert_eq!((short.rounds.len(), short.scored.warnings.len()), (2, 1));
        assert_eq!(short.scored.ranking, whole.scored.ranking);
    }

    #[test]
    fn one_passage_is_compared_with_none() {
        let ran = run(&ListwiseBayes, 1, usize::MAX, &|prompt| if order(prompt).is_empty() { -3.0 } else { -1.0 });
        assert_eq!((ran.rounds.len(), ran.rounds[0].len(), ran.scored.ranking), (1, 2, vec![0]));
        assert_close(&ran.scored.utilities, &[2.0]);
    }
}
