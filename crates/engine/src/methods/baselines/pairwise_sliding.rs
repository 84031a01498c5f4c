//! Bubble sort with a few passes from the bottom (pairwise ranking prompting, sliding-K; Qin et al., 2023).
//!
//! Each pass goes from the last pair of neighbours to the first, and swaps two if both orders of their prompt
//! prefer the lower one. Disagreement is a tie and keeps the order. After k passes the first k places are final.
//! The ranking depends on the input order; utilities are ranks (N − place) and have no zero.
//!
//! No pair is compared twice. A pass starts two places behind the pass before it, when that pass can no longer
//! change them. The result is that of sequential passes, in at most N − 1 + 2 (k − 1) rounds; one comparison per
//! round would take about k N rounds. Budget: see `sorting`.

use std::sync::Arc;

use super::super::{Method, PromptShape, Ranking, Task};
use super::label_prompt::{LabelRows, overhead};
use super::sorting::{Sorted, Sorting};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};

/// Passes, and so final places; at most N − 1.
const PASSES: usize = 10;

/// Utility in ranks: N − place.
pub(super) struct PairwiseSliding;

impl Method for PairwiseSliding {
    fn name(&self) -> &'static str {
        "pairwise-sliding"
    }

    fn summary(&self) -> &'static str {
        "ten passes from the bottom that swap neighbours where both orders of a pair agree (Qin et al.): ranks only"
    }

    fn prompts(&self, _: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 2, overhead: overhead(language, 2) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        Sorting::begin(task, 2, |passages, rows| slide(passages, PASSES, rows))
    }
}

/// True if the lower of two neighbours wins in both orders; `None` before both orders were compared.
fn swaps(rows: &LabelRows, upper: usize, lower: usize) -> Option<bool> {
    Some(rows.log_odds(lower, upper)? > 0.0 && rows.log_odds(upper, lower)? < 0.0)
}

fn slide(passages: usize, passes: usize, rows: &LabelRows) -> Sorted {
    let mut order: Vec<usize> = (0..passages).collect();
    let mut missing = Vec::new();
    let last = passages.saturating_sub(1);
    // Place of the lower neighbour of the next pair of a pass. The pass ends when it equals the number of the pass:
    // the places above are final.
    let mut above = None;
    for pass in 0..passes.min(last) {
        let mut next = last;
        while next > pass && above.is_none_or(|above: usize| above + 2 <= next) {
            let (upper, lower) = (order[next - 1], order[next]);
            match swaps(rows, upper, lower) {
                Some(true) => order.swap(next - 1, next),
                Some(false) => {}
                None => {
                    missing.extend([vec![upper, lower], vec![lower, upper]]);
                    break;
                }
            }
            next -= 1;
        }
        above = Some(next);
    }
    Sorted { order, missing }
}

#[cfg(test)]
mod tests {
    use super::super::super::Prompt;
    use super::super::super::tests::{blocks, by_table, noise, run};
    use super::*;
    use numeric::descending;

    /// One pass after the other, like the paper's program.
    fn one_by_one(passages: usize, passes: usize, wins: &dyn Fn(usize, usize) -> bool) -> Vec<usize> {
        let mut order: Vec<usize> = (0..passages).collect();
        for pass in 0..passes.min(passages - 1) {
            for at in (pass + 1..passages).rev() {
                if wins(order[at], order[at - 1]) {
                    order.swap(at - 1, at);
                }
            }
        }
        order
    }

    /// Comparisons without a consistent order, including cycles and ties.
    #[test]
    fn passes_at_once_sort_as_passes_one_after_the_other() {
        for seed in 0..200 {
            let mut random = noise(seed);
            let n = 2 + usize::try_from(seed % 15).unwrap();
            let odds: Vec<f64> = (0..n * n).map(|_| random() - 0.5).collect();
            let (mut rows, mut rounds) = (LabelRows::default(), 0);
            let sorted = loop {
                let sorted = slide(n, 4, &rows);
                if sorted.missing.is_empty() {
                    break sorted;
                }
                rounds += 1;
                for pair in sorted.missing {
                    let row = vec![odds[pair[0] * n + pair[1]], 0.0];
                    rows.insert(pair, row);
                }
            };
            let wins = |lower: usize, upper: usize| odds[lower * n + upper] > 0.0 && odds[upper * n + lower] < 0.0;
            assert_eq!(sorted.order, one_by_one(n, 4, &wins), "seed {seed}");
            assert!(rounds <= n - 1 + 2 * 3, "{rounds} rounds of {n}");
        }
    }

    /// The worked case of all pairs, sorted: (1,2) both for 1, (1,3) split, (2,3) both for 3. Only 2 and 3 are
    /// swapped.
    #[test]
    fn a_split_pair_keeps_its_order() {
        let mut rows = LabelRows::default();
        for (pair, odds) in [([0, 1], 9.0), ([1, 0], -9.0), ([0, 2], 9.0), ([2, 0], 9.0), ([1, 2], -9.0), ([2, 1], 9.0)]
        {
            rows.insert(pair.to_vec(), vec![odds, 0.0]);
        }
        assert_eq!(slide(3, 10, &rows), Sorted { order: vec![0, 2, 1], missing: Vec::new() });
    }

    #[test]
    fn the_order_is_that_of_the_scores() {
        let mut random = noise(7);
        for n in [2, 5, 11, 20] {
            let table: Vec<f64> = (0..n).map(|_| random()).collect();
            let ran = run(&PairwiseSliding, n, usize::MAX, &by_table(&table));
            let settled = PASSES.min(n);
            assert_eq!(ran.scored.ranking[..settled], descending(&table)[..settled]);
            assert_eq!(ran.scored.warnings, Vec::<String>::new());
        }
    }

    /// Costs of the design notes, for a list that needs all comparisons (worst first): 180 / 580 passage
    /// evaluations without sharing, and at most 100 / 310 shared if rounds share the KV cache.
    #[test]
    fn comparisons_are_made_once() {
        for (n, naive, shared) in [(10, 180, 100), (20, 580, 310)] {
            let table: Vec<f64> = (0..n).map(f64::from).collect();
            let ran = run(&PairwiseSliding, table.len(), usize::MAX, &by_table(&table));
            let all: Vec<Prompt> = ran.rounds.iter().flatten().cloned().collect();
            // Two labels and two passages per comparison.
            assert_eq!(all.len(), naive);
            assert!(blocks(&all) <= shared, "{}", blocks(&all));
            assert!(ran.rounds.len() <= table.len() - 1 + 2 * (PASSES.min(table.len() - 1) - 1));
        }
    }

    #[test]
    fn one_passage_needs_no_prompt_and_equals_keep_their_order() {
        let ran = run(&PairwiseSliding, 1, usize::MAX, &|_| -1.0);
        assert_eq!((ran.rounds.len(), ran.scored.ranking, ran.scored.utilities), (0, vec![0], vec![1.0]));
        let ran = run(&PairwiseSliding, 6, usize::MAX, &|_| -1.0);
        assert_eq!(ran.scored.ranking, (0..6).collect::<Vec<_>>());
    }
}
