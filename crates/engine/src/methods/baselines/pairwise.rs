//! All pairs in both orders (pairwise ranking prompting; Qin et al., 2023), with soft shares instead of wins and ties.
//!
//! ```text
//! share of i  =  mean over j of  ½ (P(i | i first) + P(i | j first))
//! ```
//!
//! P(i) is the probability of i's label among the two labels. A preference for the first position adds as much to
//! one order as it takes from the other, so it cancels. The paper counts a win if both orders agree and half a win
//! otherwise; without this threshold a narrow preference stays narrow. The utility is the logit of the share: 0
//! means that a passage beats half of the list. It depends on the list, unlike the utility of a method with
//! single-passage prompts.
//!
//! All pairs are one round; the driver refuses it if it exceeds the budget. First passages are shared: N² passage
//! evaluations.

use std::sync::Arc;

use super::super::{Budget, Interim, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use super::label_prompt::{LabelPrompt, LabelRows, overhead};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::{descending, real, sigmoid};
use prefix_scheduler::call::Call;

/// A share counts as at least this, and at most 1 minus this: utilities lie within ±13.8.
const EPSILON: f64 = 1e-6;

/// Utility in nats: log-odds of the share.
pub(super) struct Pairwise;

impl Method for Pairwise {
    fn name(&self) -> &'static str {
        "pairwise"
    }

    fn summary(&self) -> &'static str {
        "all pairs in both orders: log-odds of the mean share of comparisons won (Qin et al., soft): N squared blocks"
    }

    fn prompts(&self, _: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 2, overhead: overhead(language, 2) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = LabelPrompt::of(&task, 2)?;
        Ok(Box::new(AllPairs { task, prompt, pairs: Vec::new(), rows: LabelRows::default() }))
    }
}

struct AllPairs {
    task: Arc<Task>,
    prompt: LabelPrompt,
    /// The requested pairs, each in both orders; empty before the first round.
    pairs: Vec<Vec<usize>>,
    rows: LabelRows,
}

/// P(i | i first) − P(j | j first), in [−1, 1]: twice the mean share of i against j, minus 1. Passages with the
/// same text get exactly 0 and so keep the input order; a sum of shares might differ in its last digit.
fn advantage(rows: &LabelRows, i: usize, j: usize) -> Option<f64> {
    Some(sigmoid(rows.log_odds(i, j)?) - sigmoid(rows.log_odds(j, i)?))
}

/// Mean advantage of each passage over the others that it was compared with; 0 if there are none.
fn mean_advantages(passages: usize, rows: &LabelRows) -> Vec<f64> {
    let mean = |i: usize| {
        let rivals = (0..passages).filter(|&j| j != i).filter_map(|j| advantage(rows, i, j));
        let (sum, count) = rivals.fold((0.0, 0), |(sum, count), advantage| (sum + advantage, count + 1));
        sum / real(count.max(1))
    };
    (0..passages).map(mean).collect()
}

/// Logit of the share (1 + advantage) / 2.
fn utility(advantage: f64) -> f64 {
    let share = f64::midpoint(1.0, advantage).clamp(EPSILON, 1.0 - EPSILON);
    (share / (1.0 - share)).ln()
}

impl Ranking for AllPairs {
    fn next(&mut self, budget: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        let passages = self.task.passages.len();
        if !self.pairs.is_empty() || passages < 2 {
            return Ok(None);
        }
        // Each prompt has its own last token. Thousands of passages would need gigabytes and always exceed the
        // budget.
        let least = passages.saturating_mul(passages - 1).saturating_mul(2);
        if least > budget.tokens {
            return Err(EngineError::Budget { needed: least, allowed: budget.tokens });
        }
        let mut prompts = Vec::with_capacity(2 * passages * passages);
        for first in 0..passages {
            call.check()?;
            for second in (0..passages).filter(|&second| second != first) {
                self.pairs.push(vec![first, second]);
                prompts.extend(self.prompt.with(&self.task, &[first, second]));
            }
        }
        Ok(Some(prompts))
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        self.rows.absorb(&self.pairs, scores);
        Ok(())
    }

    fn interim(&self, partial: &Scores, _: &Call) -> Option<Interim> {
        let mut rows = LabelRows::default();
        rows.absorb(&self.pairs, partial);
        let order = descending(&mean_advantages(self.task.passages.len(), &rows));
        Some(Interim { order, observations: rows.len() })
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let advantages = mean_advantages(self.task.passages.len(), &self.rows);
        // By the shares themselves, because clamped utilities tie.
        let ranking = descending(&advantages);
        let share = |pair: &[usize]| f64::midpoint(1.0, advantage(&self.rows, pair[0], pair[1]).unwrap_or(0.0));
        let outranks_next = Some(ranking.windows(2).map(share).collect());
        let utilities = advantages.into_iter().map(utility).collect();
        Ok(Scored { ranking, outranks_next, ..Scored::by_utility(utilities, 1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{blocks, by_table, label, order, run, task};
    use super::*;

    /// The pairs of thousands of passages take gigabytes, and always exceed a request's token limit.
    #[test]
    fn pairs_beyond_the_budget_are_not_laid_out() {
        let mut ranking = Pairwise.begin(task(100_000)).unwrap();
        let budget = Budget { tokens: 262_144, context: usize::MAX, counted: usize::MAX, kept: None };
        let refused = ranking.next(&budget, &Call::local()).unwrap_err();
        assert!(matches!(refused, EngineError::Budget { allowed: 262_144, .. }), "{refused}");
    }

    /// The worked case of the design notes: 1 beats 2 in both orders, 1 and 3 win one order each, 3 beats 2 in both. Sums of
    /// wins 1.5, 0 and 1.5 of 2: shares 0.75, 0, 0.75.
    #[test]
    fn wins_splits_and_losses_make_shares() {
        let first_wins = |order: &[usize]| matches!(order, [0, 1 | 2] | [2, 0 | 1]);
        let answer = |prompt: &Prompt| {
            let order = order(prompt);
            if first_wins(&order) == (label(prompt) == 0) { 0.0 } else { -50.0 }
        };
        let ran = run(&Pairwise, 3, usize::MAX, &answer);
        assert_eq!(ran.scored.ranking, vec![0, 2, 1]);
        let utilities = &ran.scored.utilities;
        assert!((utilities[0] - 3.0_f64.ln()).abs() < 1e-9 && (utilities[2] - 3.0_f64.ln()).abs() < 1e-9);
        assert!((utilities[1] - (EPSILON / (1.0 - EPSILON)).ln()).abs() < 1e-9, "{}", utilities[1]);
        assert_eq!(ran.scored.outranks_next.map(|next| next.len()), Some(2));
    }

    #[test]
    fn the_order_is_that_of_the_scores_whatever_the_first_place_is_worth() {
        let table = [0.3, -1.0, 2.0, 0.9, -0.2, 1.4];
        for bonus in [-3.0, 0.0, 3.0] {
            let answer = |prompt: &Prompt| by_table(&table)(prompt) + if label(prompt) == 0 { bonus } else { 0.0 };
            let ran = run(&Pairwise, table.len(), usize::MAX, &answer);
            assert_eq!(ran.scored.ranking, descending(&table), "{bonus}");
            let next = ran.scored.outranks_next.unwrap();
            assert!(next.len() == 5 && next.iter().all(|share| *share > 0.5 && *share < 1.0));
            // Utilities above 0 are shares above one half: about half of the list.
            let above = ran.scored.utilities.iter().filter(|utility| **utility > 0.0).count();
            assert!((2..=4).contains(&above), "{:?}", ran.scored.utilities);
        }
    }

    /// Costs of the design notes: 2 N (N − 1) passage evaluations without sharing, N² shared, all in one round.
    #[test]
    fn first_passages_are_shared() {
        for n in [2, 10, 20] {
            let ran = run(&Pairwise, n, usize::MAX, &|_| -1.0);
            assert_eq!(ran.rounds.len(), 1);
            // Two labels per prompt.
            assert_eq!(ran.rounds[0].len(), 2 * n * (n - 1));
            assert_eq!(blocks(&ran.rounds[0]), n * n);
            assert_eq!(ran.scored.ranking, (0..n).collect::<Vec<_>>(), "ties keep the given order");
            assert!(ran.scored.utilities.iter().all(|utility| utility.abs() < 1e-12));
        }
    }

    #[test]
    fn one_passage_needs_no_prompt() {
        let ran = run(&Pairwise, 1, usize::MAX, &|_| -1.0);
        assert_eq!((ran.rounds.len(), ran.scored.ranking, ran.scored.utilities), (0, vec![0], vec![0.0]));
    }
}
