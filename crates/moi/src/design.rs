//! Designs: which orders of the passages are scored.
//!
//! A design is a list of orders over `0..n`. It only depends on its parameters and a seed. Orders may be shorter
//! than `n`; [`prefixes`] lists the prefixes of whole orders.

use nalgebra::{DMatrix, DVector, SymmetricEigen};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::prior::{Direction, geometric};
use super::{FitError, check};
use numeric::{Interrupt, real};

/// A family of whole orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// Distinct orders drawn uniformly; 3N of them by default (MOI, section 3.2.1).
    Random,
    /// The N rotations of the input order (MOI, section 3.2.2). They do not identify the position bias.
    Cyclic,
    /// Latin squares, each the best of several draws: every passage is at every position equally often. N orders by default.
    Latin,
    /// A Latin square and copies of it that share its first `shared` columns and permute the others.
    Trie {
        /// Leading columns that all copies share.
        shared: usize,
        /// Copies, including the square itself.
        copies: usize,
    },
}

impl Design {
    /// Number of orders if the caller gives none.
    #[must_use]
    pub const fn default_orders(self, n: usize) -> usize {
        match self {
            Self::Random => 3 * n,
            Self::Cyclic | Self::Latin => n,
            Self::Trie { copies, .. } => n * copies,
        }
    }
}

/// Generates up to `count` distinct whole orders of `n` passages; fewer if fewer exist.
///
/// # Errors
/// [`FitError::Interrupted`].
pub fn orders(
    design: Design,
    n: usize,
    count: usize,
    seed: u64,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    match design {
        Design::Cyclic => Ok(rotations(n).take(count).collect()),
        Design::Random => random(n, count, &mut source, interrupt),
        Design::Latin => latin(n, count, &mut source, interrupt),
        Design::Trie { shared, copies } => {
            let base = latin(n, n, &mut source, interrupt)?;
            Ok(trie(&base, count, shared, copies, &mut source))
        }
    }
}

fn rotations(n: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..n).map(move |shift| (0..n).map(|j| (shift + j) % n).collect())
}

fn random(
    n: usize,
    count: usize,
    source: &mut ChaCha8Rng,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let all = factorial(n);
    let wanted = count.min(all);
    // Rejection is slow if most orders are wanted. Then there are few orders, and they are enumerated.
    if wanted.saturating_mul(2) >= all {
        let mut every = enumerate(n);
        every.shuffle(source);
        every.truncate(wanted);
        return Ok(every);
    }
    let mut seen = std::collections::HashSet::new();
    let mut drawn = Vec::with_capacity(wanted);
    while drawn.len() < wanted {
        check(interrupt)?;
        let order = shuffled(n, source);
        if seen.insert(order.clone()) {
            drawn.push(order);
        }
    }
    Ok(drawn)
}

/// Stacked Latin squares. Each is the draw that, together with the earlier squares, conditions the fit best:
/// largest harmonic mean of the eigenvalues of `Z(d0)'Z(d0)` on centred utilities, with `d0` the prior minus its
/// mean.
fn latin(
    n: usize,
    count: usize,
    source: &mut ChaCha8Rng,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let wanted = count.min(factorial(n));
    let mut stacked: Vec<Vec<usize>> = Vec::new();
    // If nearly all orders are wanted, a square may hold no new one.
    let mut fruitless = 0;
    while stacked.len() < wanted && fruitless < 50 {
        let before = stacked.len();
        let mut best: Option<(f64, Vec<Vec<usize>>)> = None;
        for _ in 0..draws(n) {
            check(interrupt)?;
            let mut square = square(n, source);
            square.retain(|order| !stacked.contains(order));
            let together: Vec<Vec<usize>> = stacked.iter().chain(&square).cloned().collect();
            let quality = conditioning(&together, n);
            if best.as_ref().is_none_or(|(known, _)| quality > *known) {
                best = Some((quality, square));
            }
        }
        stacked.extend(best.into_iter().flat_map(|(_, square)| square));
        fruitless = if stacked.len() > before { 0 } else { fruitless + 1 };
    }
    stacked.truncate(wanted);
    Ok(stacked)
}

/// Draws per square: many if an eigenvalue problem is cheap.
const fn draws(n: usize) -> usize {
    match n {
        0..=2 => 1,
        3..=12 => 40,
        13..=30 => 10,
        _ => 2,
    }
}

/// A random Latin square: the rotations with rows, columns and symbols permuted.
fn square(n: usize, source: &mut ChaCha8Rng) -> Vec<Vec<usize>> {
    let (rows, columns, symbols) = (shuffled(n, source), shuffled(n, source), shuffled(n, source));
    rows.iter().map(|row| columns.iter().map(|column| symbols[(row + column) % n]).collect()).collect()
}

fn conditioning(orders: &[Vec<usize>], n: usize) -> f64 {
    let prior = geometric(n, Direction::Primacy);
    let mut z = DMatrix::zeros(orders.len(), n);
    for (i, order) in orders.iter().enumerate() {
        for (j, &p) in order.iter().enumerate() {
            z[(i, p)] = prior[j] - 1.0 / real(n);
        }
    }
    // Utilities are centred. The constant direction gets the eigenvalue 1, so that the others have an inverse.
    let constant = DVector::from_element(n, 1.0 / real(n).sqrt());
    let eigen = SymmetricEigen::new(z.transpose() * &z + &constant * constant.transpose());
    1.0 / eigen.eigenvalues.iter().map(|value| 1.0 / value.max(1e-12)).sum::<f64>()
}

fn trie(base: &[Vec<usize>], count: usize, shared: usize, copies: usize, source: &mut ChaCha8Rng) -> Vec<Vec<usize>> {
    let n = base.first().map_or(0, Vec::len);
    let fixed = shared.min(n);
    let mut seen = std::collections::HashSet::new();
    let mut drawn: Vec<Vec<usize>> = Vec::new();
    for copy in 0..copies.max(1) {
        if drawn.len() >= count {
            break;
        }
        let mut tail: Vec<usize> = (fixed..n).collect();
        if copy > 0 {
            tail.shuffle(source);
        }
        for row in base {
            let order: Vec<usize> = (0..fixed).chain(tail.iter().copied()).map(|column| row[column]).collect();
            if seen.insert(order.clone()) {
                drawn.push(order);
            }
        }
    }
    drawn.truncate(count);
    drawn
}

/// Rotations of the input order, cut to their first passages (MOI, section 3.3.1). They are cut to `length`. With a
/// retriever score per passage, they are cut to the shortest prefix with `length / n` of the softmax mass of the
/// scores, so rotations that begin with high scores are shorter. The paper gives no formula for variable pruning;
/// this one is ours.
#[must_use]
pub fn pruned(n: usize, length: usize, retriever: Option<&[f64]>) -> Vec<Vec<usize>> {
    let fixed = length.clamp(1, n.max(1));
    let mass = retriever.map(softmax);
    rotations(n)
        .map(|order| {
            let kept = mass.as_ref().map_or(fixed, |mass| {
                let target = real(fixed) / real(n) - 1e-12;
                let held = |length: usize| order[..length].iter().map(|&p| mass[p]).sum::<f64>();
                (1..n).find(|&length| held(length) >= target).unwrap_or(n)
            });
            order[..kept.clamp(1, n)].to_vec()
        })
        .collect()
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    // The squares of very large scores, and their differences, are not finite.
    let largest = scores.iter().map(|score| score.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let scaled: Vec<f64> = scores.iter().map(|score| score / largest).collect();
    let spread = numeric::standard_deviation(&scaled).max(1e-12 / largest);
    let peak = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let raw: Vec<f64> = scaled.iter().map(|score| ((score - peak) / spread).exp()).collect();
    let total: f64 = raw.iter().sum();
    raw.into_iter().map(|value| value / total).collect()
}

/// Every distinct prefix of `orders` of up to `depth` passages, shorter ones first.
#[must_use]
pub fn prefixes(orders: &[Vec<usize>], depth: usize) -> Vec<Vec<usize>> {
    let mut seen = std::collections::HashSet::new();
    let longest = orders.iter().map(Vec::len).max().unwrap_or(0).min(depth);
    (1..=longest)
        .flat_map(|length| orders.iter().filter_map(move |order| order.get(..length)))
        .filter(|prefix| seen.insert(prefix.to_vec()))
        .map(<[usize]>::to_vec)
        .collect()
}

fn shuffled(n: usize, source: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.shuffle(source);
    order
}

/// `n!`, saturating.
pub fn factorial(n: usize) -> usize {
    (1..=n).fold(1, usize::saturating_mul)
}

fn enumerate(n: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..n {
        orders = orders
            .into_iter()
            .flat_map(|prefix: Vec<usize>| {
                (0..n).filter(|p| !prefix.contains(p)).map(|p| [prefix.as_slice(), &[p]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    orders
}

/// Passage evaluations: `(without prefix sharing, with prefix sharing)`.
#[must_use]
pub fn blocks(orders: &[Vec<usize>]) -> (usize, usize) {
    let prefixes: std::collections::HashSet<&[usize]> =
        orders.iter().flat_map(|order| (1..=order.len()).map(move |length| &order[..length])).collect();
    (orders.iter().map(Vec::len).sum(), prefixes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(design: Design, n: usize, count: usize, seed: u64) -> Vec<Vec<usize>> {
        super::orders(design, n, count, seed, &|| false).unwrap()
    }

    /// Their squares and differences are not finite.
    #[test]
    fn very_large_scores_prune_as_small_ones_do() {
        let pruned = |scores: &[f64]| pruned(3, 1, Some(scores));
        assert_eq!(pruned(&[1e200, 0.0, 0.0]), pruned(&[1.0, 0.0, 0.0]));
        assert_eq!(pruned(&[1.7e308, -1.7e308, 0.0]), pruned(&[1.0, -1.0, 0.0]));
        assert_ne!(pruned(&[1.0, 0.0, 0.0]), pruned(&[0.0, 0.0, 0.0]));
    }

    fn is_permutation(order: &[usize]) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted == (0..order.len()).collect::<Vec<_>>()
    }

    fn balanced(orders: &[Vec<usize>], n: usize) -> bool {
        let mut counts = vec![vec![0; n]; n];
        for order in orders {
            for (j, &p) in order.iter().enumerate() {
                counts[j][p] += 1;
            }
        }
        counts.iter().flatten().all(|&count| count == orders.len() / n)
    }

    #[test]
    fn orders_are_distinct_permutations_and_repeat_under_one_seed() {
        let families = [Design::Random, Design::Cyclic, Design::Latin, Design::Trie { shared: 1, copies: 3 }];
        for design in families {
            for n in [1, 2, 3, 4, 7, 10] {
                let count = design.default_orders(n);
                let drawn = orders(design, n, count, 11);
                assert!(drawn.iter().all(|order| order.len() == n && is_permutation(order)));
                let distinct: std::collections::HashSet<_> = drawn.iter().collect();
                assert_eq!(distinct.len(), drawn.len(), "{design:?} {n}");
                assert!(!drawn.is_empty() && drawn.len() <= count);
                assert_eq!(drawn, orders(design, n, count, 11));
            }
        }
        assert_eq!(orders(Design::Random, 10, 30, 1).len(), 30);
        assert_ne!(orders(Design::Random, 10, 30, 1), orders(Design::Random, 10, 30, 2));
        // More than fifty squares, and every existing order.
        assert_eq!(orders(Design::Latin, 6, 400, 0).len(), 400);
        assert_eq!(orders(Design::Latin, 4, 99, 0).len(), 24);
    }

    #[test]
    fn latin_and_cyclic_designs_are_balanced() {
        for n in [2, 5, 10] {
            assert!(balanced(&orders(Design::Cyclic, n, n, 0), n));
            assert!(balanced(&orders(Design::Latin, n, n, 5), n));
        }
        assert!(balanced(&orders(Design::Latin, 6, 12, 5), 6));
        assert_eq!(blocks(&orders(Design::Cyclic, 5, 5, 0)), (25, 25));
    }

    #[test]
    fn a_trie_shares_its_leading_columns_and_stays_balanced() {
        let drawn = orders(Design::Trie { shared: 3, copies: 2 }, 6, 12, 1);
        assert_eq!((drawn.len(), balanced(&drawn, 6)), (12, true));
        // The bound of the design notes: N (l + k (N - l)).
        assert!(blocks(&drawn).1 <= 6 * (3 + 2 * 3));
        assert_eq!(blocks(&drawn).0, 72);
    }

    #[test]
    fn optimised_squares_condition_the_fit_better_than_rotations() {
        let chosen = conditioning(&orders(Design::Latin, 10, 10, 3), 10);
        let rotations = conditioning(&orders(Design::Cyclic, 10, 10, 0), 10);
        assert!(chosen > 1.2 * rotations, "{chosen} {rotations}");
    }

    #[test]
    fn pruned_rotations_keep_their_first_passages() {
        assert_eq!(pruned(4, 2, None), vec![vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 0]]);
        let variable = pruned(4, 2, Some(&[9.0, 0.0, 0.0, 0.0]));
        assert_eq!(variable[0], vec![0], "one passage of high score holds half of the mass");
        assert_eq!(variable[1], vec![1, 2, 3, 0]);
        assert_eq!(pruned(1, 5, None), vec![vec![0]]);
    }

    #[test]
    fn prefixes_are_listed_once_and_by_length() {
        let whole = vec![vec![0, 1, 2], vec![0, 2, 1], vec![1, 0, 2]];
        assert_eq!(prefixes(&whole, 2), vec![vec![0], vec![1], vec![0, 1], vec![0, 2], vec![1, 0]]);
        assert_eq!(prefixes(&whole, 9).len(), 8);
    }

    #[test]
    fn a_design_can_be_interrupted() {
        for design in [Design::Random, Design::Latin, Design::Trie { shared: 1, copies: 3 }] {
            assert_eq!(super::orders(design, 12, 1_024, 0, &|| true), Err(FitError::Interrupted), "{design:?}");
        }
    }

    #[test]
    fn copies_of_a_trie_beyond_the_count_are_not_made() {
        let few = orders(Design::Trie { shared: 1, copies: 3 }, 30, 60, 0);
        assert_eq!(few, orders(Design::Trie { shared: 1, copies: 1_000_000 }, 30, 60, 0));
    }
}
