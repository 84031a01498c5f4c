//! Which orders of the passages are scored.
//!
//! A design is a list of orders over `0..n`. It is generated from `(n, seed)` alone, so equal input gives equal orders.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// A family of orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// Distinct orders drawn uniformly; 3N of them by default (MOI, section 3.2.1).
    Random,
    /// The N rotations of the given order (MOI, section 3.2.2). They do not identify the position bias.
    Cyclic,
}

impl Design {
    /// The number of orders used where the caller names none.
    #[must_use]
    pub const fn default_orders(self, n: usize) -> usize {
        match self {
            Self::Random => 3 * n,
            Self::Cyclic => n,
        }
    }
}

/// Generates up to `count` distinct orders of `n` passages; fewer where fewer exist.
#[must_use]
pub fn orders(design: Design, n: usize, count: usize, seed: u64) -> Vec<Vec<usize>> {
    match design {
        Design::Cyclic => (0..n.min(count)).map(|shift| (0..n).map(|j| (shift + j) % n).collect()).collect(),
        Design::Random => random(n, count, seed),
    }
}

fn random(n: usize, count: usize, seed: u64) -> Vec<Vec<usize>> {
    let all = factorial(n);
    let wanted = count.min(all);
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    // Rejection is slow when nearly every order is wanted; few passages are enumerated instead.
    if wanted.saturating_mul(2) >= all {
        let mut every = enumerate(n);
        every.shuffle(&mut source);
        every.truncate(wanted);
        return every;
    }
    let mut seen = std::collections::HashSet::new();
    let mut drawn = Vec::with_capacity(wanted);
    while drawn.len() < wanted {
        let mut order: Vec<usize> = (0..n).collect();
        order.shuffle(&mut source);
        if seen.insert(order.clone()) {
            drawn.push(order);
        }
    }
    drawn
}

/// `n!`, saturating.
fn factorial(n: usize) -> usize {
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

/// Passage blocks to evaluate: `(without sharing, with leading blocks shared)`.
#[must_use]
pub fn blocks(orders: &[Vec<usize>]) -> (usize, usize) {
    let prefixes: std::collections::HashSet<&[usize]> =
        orders.iter().flat_map(|order| (1..=order.len()).map(move |length| &order[..length])).collect();
    (orders.iter().map(Vec::len).sum(), prefixes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_orders_are_distinct_permutations_and_repeat_under_one_seed() {
        for n in [1, 2, 3, 4, 7, 10] {
            let drawn = orders(Design::Random, n, 3 * n, 11);
            assert_eq!(drawn.len(), (3 * n).min(factorial(n)));
            for order in &drawn {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            }
            let distinct: std::collections::HashSet<_> = drawn.iter().collect();
            assert_eq!(distinct.len(), drawn.len());
            assert_eq!(drawn, orders(Design::Random, n, 3 * n, 11));
        }
        assert_ne!(orders(Design::Random, 10, 30, 1), orders(Design::Random, 10, 30, 2));
    }

    #[test]
    fn cyclic_orders_put_every_passage_everywhere_once() {
        let drawn = orders(Design::Cyclic, 5, 5, 0);
        for position in 0..5 {
            let column: std::collections::BTreeSet<usize> = drawn.iter().map(|order| order[position]).collect();
            assert_eq!(column.len(), 5);
        }
        assert_eq!(blocks(&drawn), (25, 25));
    }
}
