//! The passages of a context: the greatest total value within a budget.
//!
//! This is a knapsack problem. Two greedy orders are tried, by value per token and by value, and the better total wins.
//! Without a bound per source, value per token is the best order if the last passage may be cut. If it may not, the
//! better total is at least half of the optimum. An exact solution would be no better: values are estimates, and the cost of a passage depends a little on
//! its neighbours.

use std::collections::HashMap;

use numeric::{descending, real};

/// A passage that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate<'a> {
    /// Its value; above 0.
    pub value: f64,
    /// Tokens or characters that it adds.
    pub cost: usize,
    /// Passages of one source share its bound. An empty source has no bound.
    pub source: &'a str,
}

/// The chosen candidates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Choice {
    /// Candidates that fit, ascending.
    pub whole: Vec<usize>,
    /// The candidate that gets the rest of the budget.
    pub cut: Option<usize>,
}

/// Chooses at most `most` candidates of each source. One of them may be cut if at least `least_cut` of the budget is
/// left for it; `None` for no cut. Its value is then a share. Ties take the earlier candidate.
pub(super) fn choose(candidates: &[Candidate<'_>], budget: usize, most: usize, least_cut: Option<usize>) -> Choice {
    let density: Vec<f64> = candidates.iter().map(|one| one.value / real(one.cost.max(1))).collect();
    let value: Vec<f64> = candidates.iter().map(|one| one.value).collect();
    let filled = [density, value].map(|key| fill(candidates, &descending(&key), budget, most, least_cut));
    let [(dense, of_dense), (valuable, of_valuable)] = filled;
    if of_dense > of_valuable { dense } else { valuable }
}

/// Takes the candidates in this order, and skips those that do not fit. Also returns their total value.
fn fill(
    candidates: &[Candidate<'_>],
    order: &[usize],
    budget: usize,
    most: usize,
    least_cut: Option<usize>,
) -> (Choice, f64) {
    let (mut choice, mut total, mut left) = (Choice::default(), 0.0, budget);
    let mut taken: HashMap<&str, usize> = HashMap::new();
    for &index in order {
        let Candidate { value, cost, source } = candidates[index];
        let of_source = taken.entry(source).or_default();
        if !source.is_empty() && *of_source >= most {
            continue;
        }
        if cost <= left {
            choice.whole.push(index);
            (left, total) = (left - cost, total + value);
            *of_source += 1;
        } else if least_cut.is_some_and(|least| left >= least) {
            choice.cut = Some(index);
            total += value * real(left) / real(cost);
            break;
        }
    }
    choice.whole.sort_unstable();
    (choice, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(value: f64, cost: usize) -> Candidate<'static> {
        Candidate { value, cost, source: "" }
    }

    fn chosen(candidates: &[Candidate<'_>], budget: usize, most: usize) -> Vec<usize> {
        choose(candidates, budget, most, None).whole
    }

    #[test]
    fn two_short_passages_may_be_worth_more_than_a_long_one() {
        let list = [candidate(3.0, 100), candidate(2.0, 50), candidate(2.0, 50)];
        assert_eq!(chosen(&list, 100, usize::MAX), [1, 2]);
        assert_eq!(chosen(&list, 150, usize::MAX), [0, 1], "5 of value; by value per token it would be 4");
        assert_eq!(chosen(&list, 200, usize::MAX), [0, 1, 2]);
        assert!(chosen(&list, 49, usize::MAX).is_empty());
        // A short passage of little value must not take the place of a long one.
        assert_eq!(chosen(&[candidate(1.0, 5), candidate(10.0, 100)], 100, usize::MAX), [1]);
    }

    #[test]
    fn a_source_has_at_most_its_share_and_passages_without_a_source_are_free() {
        let of = |value, source| Candidate { value, cost: 10, source };
        let list = [of(5.0, "a"), of(4.0, "a"), of(3.0, "b"), of(2.0, ""), of(1.0, "")];
        assert_eq!(chosen(&list, 50, 1), [0, 2, 3, 4]);
        assert_eq!(chosen(&list, 30, 1), [0, 2, 3]);
        assert_eq!(chosen(&list, 50, 2), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_last_passage_may_be_cut() {
        let list = [candidate(3.0, 100), candidate(2.0, 50), candidate(1.0, 100)];
        let cut = |budget| choose(&list, budget, usize::MAX, Some(16));
        assert_eq!(cut(120), Choice { whole: vec![1], cut: Some(0) }, "2 + 0.7 · 3 of value");
        assert_eq!(cut(150), Choice { whole: vec![0, 1], cut: None });
        assert_eq!(cut(65), Choice { whole: vec![1], cut: None }, "15 are too few");
        assert_eq!(cut(30), Choice { whole: vec![], cut: Some(1) });
    }

    proptest! {
        #[test]
        fn at_least_half_of_the_optimum_within_the_budget(
            list in prop::collection::vec((1_u32..100, 1_usize..30), 0..9),
            budget in 0_usize..120,
        ) {
            let list: Vec<_> = list.into_iter().map(|(value, cost)| candidate(f64::from(value), cost)).collect();
            let measured = |chosen: &[bool]| list.iter().zip(chosen).filter(|(_, chosen)| **chosen)
                .fold((0.0, 0), |(value, cost), (one, _)| (value + one.value, cost + one.cost));
            let subsets = (0_u32..1 << list.len()).map(|bits| (0..list.len()).map(|at| bits >> at & 1 == 1).collect());
            let best = subsets.map(|subset: Vec<bool>| measured(&subset)).filter(|(_, cost)| *cost <= budget)
                .fold(0.0, |best: f64, (value, _)| best.max(value));
            let whole = choose(&list, budget, usize::MAX, None).whole;
            let (value, cost) = measured(&(0..list.len()).map(|at| whole.contains(&at)).collect::<Vec<_>>());
            prop_assert!(cost <= budget && value >= best / 2.0);
        }
    }
}
