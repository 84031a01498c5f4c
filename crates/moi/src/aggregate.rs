//! One ranking out of several rankings of the same items.
//!
//! The Kemeny ranking disagrees least with the input rankings: `argmin_π Σ_i K(π, π_i)`, with `K` the number of
//! pairs that two rankings order differently (Kendall's distance; Tang et al., *Found in the Middle*, section 2).
//! Borda sorts by mean rank.
//!
//! A Kemeny ranking need not be unique. Ties are broken by the mean rank of the first item, then of the second, and
//! so on; for equal mean ranks by the lower index.
//!
//! Up to [`EXACT`] items the search is exact: `best[S] = min_{i in S} best[S \ i] + cost(i before S)`, over all
//! subsets S of the items as bit sets, 2^N · N steps and 4 bytes per subset. Above, it starts with Borda and moves
//! single items by up to [`REACH`] places while that lowers the distance.

use super::{FitError, check};
use numeric::{Interrupt, real};

/// Most items for which the Kemeny ranking is exact.
pub const EXACT: usize = 20;

/// Most places by which the local search moves an item.
pub const REACH: usize = 20;

/// How rankings order each pair of items.
#[derive(Debug, Clone, PartialEq)]
pub struct Votes {
    items: usize,
    rankings: usize,
    /// `above[i * items + j]`: number of rankings with `i` above `j`.
    above: Vec<u32>,
    /// Sum of the ranks of each item, from 0.
    ranks: Vec<usize>,
}

impl Votes {
    /// Counts the votes of rankings, each a permutation of `0..items`, best first.
    #[must_use]
    pub fn new(items: usize, rankings: &[Vec<usize>]) -> Self {
        let mut votes = Self { items, rankings: rankings.len(), above: vec![0; items * items], ranks: vec![0; items] };
        for ranking in rankings {
            for (rank, &item) in ranking.iter().enumerate() {
                votes.ranks[item] += rank;
                for &below in &ranking[rank + 1..] {
                    votes.above[item * items + below] += 1;
                }
            }
        }
        votes
    }

    fn above(&self, item: usize, other: usize) -> u32 {
        self.above[item * self.items + other]
    }

    /// Share of the rankings with `item` above `other`; one half without rankings.
    #[must_use]
    pub fn share(&self, item: usize, other: usize) -> f64 {
        if self.rankings == 0 { 0.5 } else { f64::from(self.above(item, other)) / real(self.rankings) }
    }

    /// Sum of Kendall's distances from `ranking` to the input rankings.
    #[cfg(test)]
    fn distance(&self, ranking: &[usize]) -> u32 {
        let against = |(rank, &item): (usize, &usize)| -> u32 {
            ranking[rank + 1..].iter().map(|&below| self.above(below, item)).sum()
        };
        ranking.iter().enumerate().map(against).sum()
    }

    /// Items by ascending mean rank; ties by the lower index.
    #[must_use]
    pub fn borda(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.items).collect();
        order.sort_by_key(|&item| self.ranks[item]);
        order
    }

    /// The ranking that disagrees least with the input rankings: exact up to [`EXACT`] items, by local search
    /// above.
    ///
    /// # Errors
    /// [`FitError::Interrupted`].
    pub fn kemeny(&self, interrupt: Interrupt<'_>) -> Result<Vec<usize>, FitError> {
        if self.items <= EXACT { self.exact(interrupt) } else { self.local_search(interrupt) }
    }

    fn exact(&self, interrupt: Interrupt<'_>) -> Result<Vec<usize>, FitError> {
        // By mean rank, so that the first of several minima is the right one.
        let order = self.borda();
        let costs: Vec<RowSums> = (0..order.len()).map(|item| self.row_sums(&order, item)).collect();
        let mut best = vec![0_u32; 1 << order.len()];
        for set in 1..best.len() {
            if set % (1 << 16) == 0 {
                check(interrupt)?;
            }
            let cost = |item: usize| best[set ^ (1 << item)] + costs[item].of(set);
            best[set] = members(set).map(cost).min().unwrap_or(0);
        }
        let mut set = best.len() - 1;
        let mut ranking = Vec::with_capacity(order.len());
        while let Some(first) = members(set).find(|&item| best[set] == best[set ^ (1 << item)] + costs[item].of(set)) {
            ranking.push(order[first]);
            set ^= 1 << first;
        }
        Ok(ranking)
    }

    /// The cost of putting an item before each set of items: the votes of these items against the item.
    fn row_sums(&self, order: &[usize], item: usize) -> RowSums {
        let half = |from: usize, to: usize| {
            let mut sums = vec![0_u32; 1 << (to - from)];
            for set in 1..sums.len() {
                let lowest = from + set.trailing_zeros() as usize;
                sums[set] = sums[set & (set - 1)] + self.above(order[lowest], order[item]);
            }
            sums
        };
        let middle = order.len().min(HALF);
        RowSums { low: half(0, middle), high: half(middle, order.len()) }
    }

    fn local_search(&self, interrupt: Interrupt<'_>) -> Result<Vec<usize>, FitError> {
        let mut ranking = self.borda();
        loop {
            let mut moved = false;
            for from in 0..ranking.len() {
                check(interrupt)?;
                // Every move lowers the distance, a whole number, so the search ends.
                if let Some(to) = self.better_place(&ranking, from) {
                    let item = ranking.remove(from);
                    ranking.insert(to, item);
                    moved = true;
                }
            }
            if !moved {
                return Ok(ranking);
            }
        }
    }

    /// The place within reach at which the item at `from` disagrees least; `None` if no place is better than the
    /// present one.
    fn better_place(&self, ranking: &[usize], from: usize) -> Option<usize> {
        let item = ranking[from];
        let pass = |other: usize| i64::from(self.above(other, item)) - i64::from(self.above(item, other));
        let mut best = (0_i64, None);
        let mut change = 0;
        for to in (from.saturating_sub(REACH)..from).rev() {
            change += pass(ranking[to]);
            if change < best.0 {
                best = (change, Some(to));
            }
        }
        change = 0;
        for (to, &other) in ranking.iter().enumerate().skip(from + 1).take(REACH) {
            change -= pass(other);
            if change < best.0 {
                best = (change, Some(to));
            }
        }
        best.1
    }
}

/// Items in the lower half of a bit set. Two tables of 2^10 sums are fast to make and stay in the cache.
const HALF: usize = 10;

/// Sums over subsets, as two tables over the lower and the higher items of the set.
struct RowSums {
    low: Vec<u32>,
    high: Vec<u32>,
}

impl RowSums {
    fn of(&self, set: usize) -> u32 {
        self.low[set % (1 << HALF)] + self.high[set >> HALF]
    }
}

/// The members of a bit set, ascending.
fn members(set: usize) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let lowest = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(lowest)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEVER: Interrupt<'static> = &|| false;

    /// Three lists A B C and two B C A: their Kemeny and Borda rankings differ.
    #[test]
    fn hand_worked() {
        let lists = [vec![vec![0, 1, 2]; 3], vec![vec![1, 2, 0]; 2]].concat();
        let votes = Votes::new(3, &lists);
        assert_eq!(votes.kemeny(NEVER).unwrap(), [0, 1, 2]);
        assert_eq!((votes.borda(), votes.ranks.clone()), (vec![1, 0, 2], vec![4, 3, 8]), "means .8, .6, 1.6");
        assert_eq!((votes.distance(&[0, 1, 2]), votes.distance(&[1, 0, 2])), (4, 5));
        assert!((votes.share(0, 1) - 0.6).abs() < 1e-12 && (votes.share(1, 2) - 1.0).abs() < 1e-12);
    }

    /// The example in the README of the authors' library.
    #[test]
    fn the_authors_example() {
        let votes = Votes::new(4, &[vec![1, 2, 0, 3], vec![1, 2, 3, 0], vec![1, 2, 0, 3]]);
        let ranking = votes.kemeny(NEVER).unwrap();
        assert_eq!((ranking.clone(), votes.distance(&ranking)), (vec![1, 2, 0, 3], 1));
    }

    #[test]
    fn ties_go_to_the_mean_rank_and_then_to_the_given_order() {
        // Two opposite lists: every ranking disagrees equally often, and all mean ranks are equal.
        assert_eq!(Votes::new(4, &[vec![3, 1, 0, 2], vec![2, 0, 1, 3]]).kemeny(NEVER).unwrap(), [0, 1, 2, 3]);
        assert_eq!(Votes::new(3, &[]).kemeny(NEVER).unwrap(), [0, 1, 2]);
        assert_eq!(Votes::new(1, &[vec![0]]).kemeny(NEVER).unwrap(), [0]);
        // 0 and 2 have equal votes and equal mean ranks.
        let votes = Votes::new(3, &[vec![1, 0, 2], vec![1, 2, 0]]);
        assert_eq!(votes.kemeny(NEVER).unwrap(), [1, 0, 2]);
    }

    #[test]
    fn the_largest_sizes_end_and_can_be_interrupted() {
        let rotations = |items: usize| -> Vec<Vec<usize>> {
            (0..5).map(|shift| (0..items).map(|place| (place + shift) % items).collect()).collect()
        };
        for items in [EXACT, EXACT + 1, 100] {
            let votes = Votes::new(items, &rotations(items));
            let ranking = votes.kemeny(NEVER).unwrap();
            assert!(votes.distance(&ranking) <= votes.distance(&votes.borda()));
            assert_eq!(votes.kemeny(&|| true), Err(FitError::Interrupted));
        }
    }

    fn every(items: usize) -> Vec<Vec<usize>> {
        if items == 0 {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for shorter in every(items - 1) {
            for place in 0..items {
                let mut longer = shorter.clone();
                longer.insert(place, items - 1);
                all.push(longer);
            }
        }
        all
    }

    fn lists(most: usize) -> impl Strategy<Value = (usize, Vec<Vec<usize>>)> {
        (1..=most).prop_flat_map(|items| {
            let list = Just((0..items).collect::<Vec<usize>>()).prop_shuffle();
            (Just(items), proptest::collection::vec(list, 1..7))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// The dynamic programme agrees with brute force; among several minima it takes the first by mean rank and
        /// index.
        #[test]
        fn exact_is_the_best_of_all_permutations((items, lists) in lists(7)) {
            let votes = Votes::new(items, &lists);
            let place = |ranking: &[usize]| -> Vec<(usize, usize)> {
                ranking.iter().map(|&item| (votes.ranks[item], item)).collect()
            };
            let brute = every(items).into_iter().min_by_key(|ranking| (votes.distance(ranking), place(ranking))).unwrap();
            prop_assert_eq!(votes.kemeny(NEVER).unwrap(), brute);
        }

        /// The local search gives a permutation that is at least as good as Borda, and never better than the optimum.
        #[test]
        fn local_search_lies_between_borda_and_the_optimum((items, lists) in lists(9)) {
            let votes = Votes::new(items, &lists);
            let found = votes.local_search(NEVER).unwrap();
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..items).collect::<Vec<_>>());
            prop_assert!(votes.distance(&found) <= votes.distance(&votes.borda()));
            prop_assert!(votes.distance(&found) >= votes.distance(&votes.exact(NEVER).unwrap()));
        }
    }
}
