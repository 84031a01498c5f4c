//! LongLLMLingua: which texts stay, and how much and which units of each.
//!
//! Coarse, budget and fine follow the authors' program where it differs from the paper, because the program
//! produced the published results. Texts stay until they exceed the target by 100 tokens (paper: twice the target).
//! Budgets fall evenly from +δτ to -δτ over the ranks (paper: 1 - 2I/K', which does not sum to zero). Two
//! properties of the program are left out: its mask at token i uses the loss of token i + 1, and its last segment
//! stays whole.

use super::Valued;
use numeric::{count, descending, real};

/// Tokens beyond the target up to which whole texts stay, before each is cut (`context_budget` of the program).
const CONTEXT_BUDGET: f64 = 100.0;

/// How many texts stay, best first; `lengths` are in tokens. The last that stays is the first to exceed the target
/// by more than 100 tokens.
#[must_use]
pub fn coarse(lengths: &[usize], target: f64) -> usize {
    let mut total = 0.0;
    for (rank, length) in lengths.iter().enumerate() {
        total += real(*length);
        if total > target + CONTEXT_BUDGET {
            return rank + 1;
        }
    }
    lengths.len()
}

/// The addition to the share of each of `texts`, best first: evenly from `spread` to -`spread`.
#[must_use]
pub fn offsets(texts: usize, spread: f64) -> Vec<f64> {
    let steps = real(texts.saturating_sub(1).max(1));
    let offset = |rank: usize| if texts > 1 { spread - 2.0 * spread * real(rank) / steps } else { 0.0 };
    (0..texts).map(offset).collect()
}

/// The share of each text to keep, best first, in [0, 1]: a common base plus the offsets. The base makes the shares
/// keep `target` tokens in total. The program's base is target / Σ lengths, which is the same if the texts have one
/// length and no share is clipped, and misses the target otherwise.
#[must_use]
pub fn shares(lengths: &[usize], target: f64, spread: f64) -> Vec<f64> {
    let offsets = offsets(lengths.len(), spread);
    let with = |base: f64| offsets.iter().map(move |offset| (base + offset).clamp(0.0, 1.0));
    let kept = |base: f64| lengths.iter().zip(with(base)).map(|(length, share)| real(*length) * share).sum::<f64>();
    let (mut low, mut high) = (-spread, 1.0 + spread);
    if target >= kept(high) {
        return vec![1.0; lengths.len()];
    }
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if kept(middle) < target { low = middle } else { high = middle }
    }
    with(high).collect()
}

/// The units of a text to keep for a budget of tokens: the most valuable, up to the one that reaches the budget.
/// Equal ones are taken in text order. With `first`, the first unit comes before all others.
#[must_use]
pub fn keep(units: &[Valued], budget: usize, first: bool) -> Vec<bool> {
    let mut kept = vec![false; units.len()];
    let mut total = 0;
    let by_value = descending(&units.iter().map(|unit| unit.value).collect::<Vec<_>>());
    for unit in first.then_some(0).into_iter().chain(by_value).filter(|unit| *unit < units.len()) {
        if total >= budget {
            break;
        }
        if !kept[unit] {
            kept[unit] = true;
            total += units[unit].tokens;
        }
    }
    kept
}

/// The units of each text to keep, best text first, so that about `target` tokens are left: at least one unit of
/// the best text. With `first`, every text that keeps a unit keeps its first.
#[must_use]
pub fn fine(texts: &[Vec<Valued>], target: f64, spread: f64, first: bool) -> Vec<Vec<bool>> {
    let lengths: Vec<usize> = texts.iter().map(|units| units.iter().map(|unit| unit.tokens).sum()).collect();
    let shares = shares(&lengths, target, spread);
    let budget = |(share, length): (&f64, &usize)| count((share * real(*length)).round());
    let mut budgets: Vec<usize> = shares.iter().zip(&lengths).map(budget).collect();
    // A small share of short texts rounds to zero tokens. One token keeps one unit.
    if let Some(best) = lengths.iter().position(|length| *length > 0) {
        budgets[best] = budgets[best].max(1);
    }
    texts.iter().zip(budgets).map(|(units, budget)| keep(units, budget, first)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tokens;
    use super::*;

    fn single(values: &[f64]) -> Vec<Valued> {
        values.iter().map(|&value| Valued { tokens: 1, value }).collect()
    }

    /// The hand-worked cases of the design notes.
    #[test]
    fn the_texts_that_cross_the_budget_stay() {
        assert_eq!(coarse(&[90, 90, 90, 90], 50.0), 2, "180 are the first above 150");
        assert_eq!(coarse(&[90, 60, 90], 50.0), 3, "150 are not");
        assert_eq!((coarse(&[500], 10.0), coarse(&[], 10.0)), (1, 0));
    }

    #[test]
    fn budgets_lie_evenly_and_keep_the_target() {
        let four = offsets(4, 0.3);
        assert!(four.iter().zip([0.3, 0.1, -0.1, -0.3]).all(|(ours, hand)| (ours - hand).abs() < 1e-12));
        assert_eq!((offsets(1, 0.3), offsets(0, 0.3)), (vec![0.0], vec![]));
        let shares = shares(&[100; 4], 200.0, 0.3);
        assert!(shares.iter().zip([0.8, 0.6, 0.4, 0.2]).all(|(ours, hand)| (ours - hand).abs() < 1e-9), "{shares:?}");
    }

    /// At 0.9 of the tokens the first texts cannot get more than all of theirs: the program would keep 0.85 of the
    /// total.
    #[test]
    fn a_clipped_share_is_given_to_the_others() {
        let shares = shares(&[100; 4], 360.0, 0.3);
        assert_eq!((shares[0], shares[1]), (1.0, 1.0));
        assert!((shares.iter().sum::<f64>() - 3.6).abs() < 1e-9);
        assert!((shares[2] - shares[3] - 0.2).abs() < 1e-9, "{shares:?}");
    }

    #[test]
    fn the_most_valuable_tokens_stay() {
        let units = single(&[0.5, 0.1, 0.9, 0.3, 0.2]);
        assert_eq!(keep(&units, 3, true), vec![true, false, true, true, false]);
        let late = single(&[0.1, 0.5, 0.9, 0.3, 0.2]);
        assert_eq!(keep(&late, 3, true), vec![true, true, true, false, false], "the first is kept for its place");
        assert_eq!(keep(&late, 3, false), vec![false, true, true, true, false]);
        assert_eq!(keep(&late, 0, true), vec![false; 5], "a text without a budget is dropped");
        assert_eq!(keep(&single(&[1.0, 1.0, 1.0]), 2, false), vec![true, true, false], "ties in their order");
        assert_eq!(keep(&[], 4, true), Vec::<bool>::new());
    }

    #[test]
    fn something_of_the_best_text_stays_whatever_the_target() {
        let texts = vec![vec![], single(&[0.1, 0.9]), single(&[0.5])];
        for target in [0.0, 0.01] {
            assert_eq!(fine(&texts, target, 0.0, false), vec![vec![], vec![false, true], vec![false]]);
        }
        assert_eq!(fine(&[vec![]], 1.0, 0.3, true), vec![Vec::<bool>::new()]);
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_meet_the_target(
            lengths in proptest::collection::vec(1_usize..200, 1..20), ratio in 0.0..1.0_f64, spread in 0.0..1.0_f64,
        ) {
            let all = real(lengths.iter().sum::<usize>());
            let shares = shares(&lengths, ratio * all, spread);
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            prop_assert!(shares.is_sorted_by(|left, right| left >= right));
            let kept: f64 = lengths.iter().zip(&shares).map(|(length, share)| real(*length) * share).sum();
            prop_assert!((kept - ratio * all).abs() < 1e-6, "{kept} {}", ratio * all);
        }

        #[test]
        fn a_text_keeps_its_budget_to_a_unit_and_more_of_more(
            units in proptest::collection::vec((1_usize..9, -5.0..5.0_f64), 1..60),
            budgets in (0_usize..300, 0_usize..300), first: bool,
        ) {
            let units: Vec<Valued> = units.into_iter().map(|(tokens, value)| Valued { tokens, value }).collect();
            let all: usize = units.iter().map(|unit| unit.tokens).sum();
            let longest = units.iter().map(|unit| unit.tokens).max().unwrap_or(0);
            let (less, more) = (budgets.0.min(budgets.1), budgets.0.max(budgets.1));
            let kept = keep(&units, less, first);
            let length = tokens(&units, &kept);
            prop_assert!(length >= less.min(all) && length < less + longest, "{length} for {less} of {all}");
            prop_assert!(kept.iter().zip(keep(&units, more, first)).all(|(less, more)| !less || more));
            prop_assert!(keep(&units, all, first).iter().all(|kept| *kept));
            prop_assert!(!first || less == 0 || kept[0]);
        }
    }
}
