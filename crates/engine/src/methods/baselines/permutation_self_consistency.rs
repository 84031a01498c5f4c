//! Permutation self-consistency: ranks several orders of the list, and returns the ranking that disagrees least
//! with the results (Tang et al., 2024).
//!
//! The authors shuffle and decode 20 lists. Here the list is rotated 5 times, by a fifth of its length each time,
//! so that every passage appears, and is labelled, at five positions spread over the list; the gains of more orders
//! "sharply diminish". FIRST's row of labels with its "N/A" correction (`first`) ranks each order. It needs no
//! decoding, so a list of 20 costs 100 passage evaluations and 10 cues, and the labels cannot be malformed.
//!
//! The central ranking is Kemeny's (`fit::aggregate`): exact up to 20 passages, by local search above. It has no
//! scale: the utility of a passage is minus its rank. `outranks_next` is the share of the orders that rank the
//! passage above the next one.

use std::sync::Arc;

use super::super::{Budget, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use super::first::{FirstRow, shape};
use super::windows::Sliding;
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use ::moi::aggregate::Votes;
use numeric::Interrupt;
use prefix_scheduler::call::Call;

/// Orders to rank.
const ORDERS: usize = 5;

/// Utility is minus the rank.
pub(super) struct PermutationSelfConsistency;

impl Method for PermutationSelfConsistency {
    fn name(&self) -> &'static str {
        "permutation-self-consistency"
    }

    fn summary(&self) -> &'static str {
        "the ranking nearest to those of 5 rotations of the list by FIRST (permutation self-consistency; Tang et al.)"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(shape(request, language))
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let orders = rotations(task.passages.len());
        Ok(Box::new(Central(Sliding::new(FirstRow::new(task)?, orders))))
    }
}

/// Rotations of the input order by equal parts of its length; all rotations if there are fewer passages than
/// [`ORDERS`].
fn rotations(passages: usize) -> Vec<Vec<usize>> {
    let orders = ORDERS.min(passages);
    let rotated = |number: usize| {
        let shift = number * passages / orders;
        (0..passages).map(|place| (place + shift) % passages).collect()
    };
    (0..orders).map(rotated).collect()
}

struct Central(Sliding<FirstRow>);

impl Ranking for Central {
    fn next(&mut self, budget: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(self.0.next_window(budget))
    }

    fn fits(&self) -> bool {
        true
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        self.0.sort_window(scores);
        Ok(())
    }

    fn finish(&mut self, call: &Call) -> Result<Scored, EngineError> {
        if !self.0.warnings.is_empty() {
            // Rotations with unranked windows would vote for their own order.
            let given: Vec<usize> = (0..self.0.orders.first().map_or(0, Vec::len)).collect();
            let warning =
                "the token budget does not suffice to rank every rotation: the given order is kept".to_owned();
            return Ok(Scored { warnings: vec![warning], ..Scored::by_rank(given) });
        }
        let (ranking, shares) = central(&self.0.orders, &|| call.is_stopped())?;
        Ok(Scored { outranks_next: Some(shares), ..Scored::by_rank(ranking) })
    }
}

/// The central ranking, and the share of the rankings that agree with each pair of neighbours in it.
fn central(rankings: &[Vec<usize>], interrupt: Interrupt<'_>) -> Result<(Vec<usize>, Vec<f64>), EngineError> {
    let votes = Votes::new(rankings.first().map_or(0, Vec::len), rankings);
    let ranking = votes.kemeny(interrupt)?;
    let shares = ranking.windows(2).map(|pair| votes.share(pair[0], pair[1])).collect();
    Ok((ranking, shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_spread_every_passage_over_the_list() {
        assert_eq!(rotations(1), [[0]]);
        assert_eq!(rotations(2), [[0, 1], [1, 0]]);
        assert_eq!(rotations(5).len(), 5);
        for passages in [5, 12, 20, 100] {
            let orders = rotations(passages);
            for passage in 0..passages {
                let mut places: Vec<usize> =
                    orders.iter().map(|order| order.iter().position(|other| *other == passage).unwrap()).collect();
                places.sort_unstable();
                let parts = places.windows(2).map(|pair| pair[1] - pair[0]);
                assert!(
                    parts.into_iter().all(|part| part == passages / 5 || part == passages.div_ceil(5)),
                    "{places:?}"
                );
            }
        }
    }

    /// Three lists A B C and two B C A: the central ranking is A B C. A is above B in 3 of 5, B above C in all.
    #[test]
    fn hand_worked() {
        let rankings = [vec![vec![0, 1, 2]; 3], vec![vec![1, 2, 0]; 2]].concat();
        let (ranking, shares) = central(&rankings, &|| false).unwrap();
        assert_eq!((ranking, shares), (vec![0, 1, 2], vec![0.6, 1.0]));
        assert_eq!(central(&[vec![0]], &|| false).unwrap(), (vec![0], vec![]));
    }
}
