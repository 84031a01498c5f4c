//! Sorting in rounds by the generator's comparisons.
//!
//! A sort is a pure function of the comparisons made so far. It starts from the input order, goes as far as they
//! allow, and returns the comparisons it needs next. After each round it runs again from the start: that costs
//! look-ups but no tokens, and no comparison is made twice. Comparisons needed at the same time are independent, so
//! one round holds all of them.
//!
//! Every round adds comparisons and a sort needs a bounded number of them, so the rounds are bounded.
//!
//! **Budget.** The driver refuses a request whose first round exceeds it. If a later round exceeds it, the ranking
//! is the order so far, with a warning.

use std::sync::Arc;

use super::super::{Budget, Prompt, Ranking, Scored, Scores, Task};
use super::label_prompt::{LabelPrompt, LabelRows};
use crate::types::EngineError;
use prefix_scheduler::call::Call;

/// A sort as far as the comparisons allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sorted {
    /// All passages, best first as far as known.
    pub order: Vec<usize>,
    /// Orders of passages whose labels are needed next; empty when the sort is done.
    pub missing: Vec<Vec<usize>>,
}

/// Sorts this many passages by these comparisons.
pub(super) type Sort = fn(usize, &LabelRows) -> Sorted;

/// A sort in progress.
pub(super) struct Sorting {
    task: Arc<Task>,
    prompt: LabelPrompt,
    sort: Sort,
    /// Most passages of a comparison; at least 1.
    compared: usize,
    rows: LabelRows,
    /// The comparisons whose scores are awaited.
    asked: Vec<Vec<usize>>,
    order: Vec<usize>,
    warnings: Vec<String>,
}

impl Sorting {
    /// A sort by comparisons of at most `compared` passages at a time.
    pub fn begin(task: Arc<Task>, compared: usize, sort: Sort) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = LabelPrompt::of(&task, compared)?;
        let (rows, asked, order, warnings) = (LabelRows::default(), Vec::new(), Vec::new(), Vec::new());
        Ok(Box::new(Self { task, prompt, sort, compared: compared.max(1), rows, asked, order, warnings }))
    }
}

impl Ranking for Sorting {
    fn next(&mut self, budget: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        call.check()?;
        let sorted = (self.sort)(self.task.passages.len(), &self.rows);
        self.order = sorted.order;
        if sorted.missing.is_empty() {
            return Ok(None);
        }
        let prompts: Vec<Prompt> =
            sorted.missing.iter().flat_map(|order| self.prompt.with(&self.task, order)).collect();
        let made = self.rows.len();
        if made > 0 && !budget.affords(&prompts) {
            self.warnings.push(format!(
                "the token budget ended the sort after {made} comparisons: the ranking is the order so far"
            ));
            return Ok(None);
        }
        self.asked = sorted.missing;
        Ok(Some(prompts))
    }

    /// No comparison is made twice, so prompts differ at least in their last passage.
    fn shares(&self) -> usize {
        self.compared - 1
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        let made = self.rows.len();
        self.rows.absorb(&self.asked, scores);
        if self.rows.len() == made {
            // Without progress the same round would repeat forever.
            return Err(EngineError::Internal("a round of a sort has no scores".into()));
        }
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let (ranking, warnings) = (std::mem::take(&mut self.order), std::mem::take(&mut self.warnings));
        Ok(Scored { warnings, ..Scored::by_rank(ranking) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{by_table, run};
    use super::super::{pairwise_sliding::PairwiseSliding, setwise::Setwise};
    use super::*;
    use crate::methods::Method;

    const METHODS: [&dyn Method; 2] = [&PairwiseSliding, &Setwise];

    #[test]
    fn a_sort_ends_with_a_warning_where_the_budget_ends() {
        let table: Vec<f64> = (0..12).map(f64::from).collect();
        for method in METHODS {
            let whole = run(method, 12, usize::MAX, &by_table(&table));
            assert!(whole.scored.warnings.is_empty() && whole.rounds.len() > 3);
            let first = Budget::cost(&whole.rounds[0]).tokens;
            let short = run(method, 12, first + Budget::cost(&whole.rounds[1]).tokens, &by_table(&table));
            assert_eq!((short.rounds.len(), short.scored.warnings.len()), (2, 1), "{}", method.name());
            let mut ranking = short.scored.ranking.clone();
            ranking.sort_unstable();
            assert_eq!(ranking, (0..12).collect::<Vec<_>>());
            // The first round is always requested; the driver refuses it.
            let mut none = method.begin(super::super::super::tests::task(12)).unwrap();
            let asked = none
                .next(&Budget { tokens: 0, context: 4_096, counted: usize::MAX, kept: None }, &Call::local())
                .unwrap();
            assert_eq!(asked.map(|prompts| prompts.len()), Some(whole.rounds[0].len()));
        }
    }

    #[test]
    fn utilities_are_ranks_and_scores_differ() {
        for method in METHODS {
            let ran = run(method, 3, usize::MAX, &by_table(&[0.0, 2.0, 1.0]));
            assert_eq!(ran.scored.ranking, vec![1, 2, 0], "{}", method.name());
            assert_eq!((ran.scored.utilities, ran.scored.unit), (vec![1.0, 3.0, 2.0], 3.0));
        }
    }

    #[test]
    fn a_round_without_scores_is_an_error_and_not_a_loop() {
        let mut ranking = Setwise.begin(super::super::super::tests::task(3)).unwrap();
        ranking
            .next(&Budget { tokens: usize::MAX, context: usize::MAX, counted: usize::MAX, kept: None }, &Call::local())
            .unwrap();
        assert!(matches!(ranking.absorb(&Scores::default(), &Call::local()), Err(EngineError::Internal(_))));
    }
}
