//! Correlations of two lists of numbers: Kendall's tau-b and tau-c, Spearman's rho, Pearson's r, each with the
//! two-sided p-value of the null hypothesis of independence. Values and p-values agree with `scipy.stats`.
//!
//! - tau-b = (C - D) / sqrt((n0 - n1)(n0 - n2)), n0 = n(n-1)/2, n1 and n2 the tied pairs of each side;
//!   tau-c = 2 (C - D) / (n^2 (m - 1) / m), m the fewer distinct values of the two sides. C - D is found by merge sort
//!   (Knight, 1966). p is exact for untied lists of at most 33, or with at most one discordant pair. Otherwise it is the
//!   normal approximation with the variance for ties.
//! - rho is Pearson's r of mid-ranks. The p-values of rho and r come from Student's t with n - 2 degrees of
//!   freedom.
//!
//! A list without spread, or of fewer than two numbers, has no correlation. For two pairs rho has no p-value and r's is 1.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use numeric::{mid_ranks, pearson, real, same};

/// Longest untied list whose p-value is exact.
const EXACT: usize = 33;

/// A correlation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correlation {
    /// Kendall's tau-b.
    KendallB,
    /// Kendall's tau-c (Stuart).
    KendallC,
    /// Spearman's rho.
    Spearman,
    /// Pearson's r.
    Pearson,
}

/// A correlation's value and its support.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// In [-1, 1].
    pub value: f64,
    /// Two-sided p-value of independence, if defined.
    pub p_value: Option<f64>,
    /// Pairs.
    pub pairs: usize,
}

impl std::fmt::Display for Correlation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::KendallB => "Kendall's tau-b",
            Self::KendallC => "Kendall's tau-c",
            Self::Spearman => "Spearman's rho",
            Self::Pearson => "Pearson's r",
        })
    }
}

impl Correlation {
    /// All four.
    pub const ALL: [Self; 4] = [Self::KendallB, Self::KendallC, Self::Spearman, Self::Pearson];

    /// The correlation of two lists of the same length; `None` if undefined. Numbers must be finite.
    #[must_use]
    pub fn of(self, left: &[f64], right: &[f64]) -> Option<Agreement> {
        if left.len() != right.len() || left.len() < 2 {
            return None;
        }
        match self {
            Self::KendallB | Self::KendallC => kendall(left, right, self),
            Self::Spearman => {
                let value = pearson(&mid_ranks(left), &mid_ranks(right))?;
                let p_value = (left.len() > 2).then(|| student(value, left.len()));
                Some(Agreement { value, p_value, pairs: left.len() })
            }
            Self::Pearson => {
                let value = pearson(left, right)?;
                let p_value = if left.len() > 2 { student(value, left.len()) } else { 1.0 };
                Some(Agreement { value, p_value: Some(p_value), pairs: left.len() })
            }
        }
    }
}

fn student(r: f64, n: usize) -> f64 {
    let degrees = real(n - 2);
    let t = r.abs() * (degrees / ((1.0 + r) * (1.0 - r))).sqrt();
    if t.is_infinite() {
        return 0.0;
    }
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::NAN, |distribution| (2.0 * distribution.sf(t)).min(1.0))
}

/// Sums over groups of c equal values: c(c-1)/2, c(c-1)(c-2), c(c-1)(2c+5).
#[derive(Debug, Clone, Copy, Default)]
struct Ties {
    pairs: f64,
    triples: f64,
    variance: f64,
    groups: usize,
}

impl Ties {
    fn of(groups: impl Iterator<Item = usize>) -> Self {
        groups.map(real).fold(Self::default(), |sum, c| Self {
            pairs: sum.pairs + c * (c - 1.0) / 2.0,
            triples: sum.triples + c * (c - 1.0) * (c - 2.0),
            variance: sum.variance + c * (c - 1.0) * (2.0 * c + 5.0),
            groups: sum.groups + 1,
        })
    }
}

fn kendall(left: &[f64], right: &[f64], variant: Correlation) -> Option<Agreement> {
    let n = left.len();
    // Adding 0 turns -0 into 0, so that the total order ties equal values.
    let mut pairs: Vec<(f64, f64)> = left.iter().zip(right).map(|(l, r)| (l + 0.0, r + 0.0)).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let lefts = Ties::of(pairs.chunk_by(|a, b| same(a.0, b.0)).map(<[_]>::len));
    let both = Ties::of(pairs.chunk_by(|a, b| same(a.0, b.0) && same(a.1, b.1)).map(<[_]>::len));
    let mut rights: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
    let discordant = sort_counting_inversions(&mut rights);
    let rights = Ties::of(rights.chunk_by(|a, b| same(*a, *b)).map(<[_]>::len));
    let all = real(n) * (real(n) - 1.0) / 2.0;
    if same(lefts.pairs, all) || same(rights.pairs, all) {
        return None;
    }
    let balance = all - lefts.pairs - rights.pairs + both.pairs - 2.0 * discordant;
    let value = if variant == Correlation::KendallC {
        let fewer = real(lefts.groups.min(rights.groups));
        2.0 * balance / (real(n) * real(n) * (fewer - 1.0) / fewer)
    } else {
        balance / (all - lefts.pairs).sqrt() / (all - rights.pairs).sqrt()
    };
    let untied = lefts.pairs + rights.pairs < 0.5;
    let fewest = discordant.min(all - discordant);
    let p_value = if untied && (n <= EXACT || fewest <= 1.0) {
        exact_p_value(n, fewest)
    } else {
        let m = real(n) * (real(n) - 1.0);
        let variance = (m * (2.0 * real(n) + 5.0) - lefts.variance - rights.variance) / 18.0
            + 2.0 * lefts.pairs * rights.pairs / m
            + lefts.triples * rights.triples / (9.0 * m * (real(n) - 2.0));
        2.0 * Normal::standard().sf(balance.abs() / variance.sqrt())
    };
    Some(Agreement { value: value.clamp(-1.0, 1.0), p_value: Some(p_value.min(1.0)), pairs: n })
}

/// Sorts by merging and returns the number of inversions, the pairs that were out of order.
fn sort_counting_inversions(values: &mut [f64]) -> f64 {
    let n = values.len();
    let (mut buffer, mut inversions, mut width) = (values.to_vec(), 0.0, 1);
    while width < n {
        for start in (0..n).step_by(2 * width) {
            let (middle, end) = ((start + width).min(n), (start + 2 * width).min(n));
            let (mut l, mut r) = (start, middle);
            for slot in &mut buffer[start..end] {
                if l < middle && (r == end || values[l] <= values[r]) {
                    *slot = values[l];
                    l += 1;
                } else {
                    *slot = values[r];
                    inversions += real(middle - l);
                    r += 1;
                }
            }
        }
        values.copy_from_slice(&buffer);
        width *= 2;
    }
    inversions
}

/// Two-sided probability that at most `fewest` of the n(n-1)/2 pairs are discordant when all permutations are equally
/// likely. The distribution grows by one element at a time: the i-th adds 0 to i - 1 discordant pairs, equally likely.
fn exact_p_value(n: usize, fewest: f64) -> f64 {
    let mut chances = vec![1.0];
    for i in 2..=n {
        // Counts beyond `fewest` are never needed.
        let next = (0..chances.len() + i - 1).take_while(|count| real(*count) <= fewest).map(|count| {
            let from = (count + 1).saturating_sub(i);
            chances[from.min(chances.len())..(count + 1).min(chances.len())].iter().sum::<f64>() / real(i)
        });
        chances = next.collect();
    }
    2.0 * chances.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(correlation: Correlation, left: &[f64], right: &[f64]) -> f64 {
        correlation.of(left, right).unwrap().value
    }

    #[test]
    fn hand_worked_four() {
        let (left, right) = ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]);
        // One of six pairs is out of order; 4 of 24 orders have at most one, so p = 2 * 4 / 24.
        let tau = Correlation::KendallB.of(&left, &right).unwrap();
        assert!((tau.value - 4.0 / 6.0).abs() < 1e-15);
        assert!((tau.p_value.unwrap() - 8.0 / 24.0).abs() < 1e-15);
        assert!((value(Correlation::Spearman, &left, &right) - 0.8).abs() < 1e-12);
        assert!((value(Correlation::KendallC, &left, &right) - 4.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn ties_share_ranks_and_pairs() {
        assert_eq!(mid_ranks(&[2.0, 1.0, 2.0, -0.0, 0.0]), [4.5, 3.0, 4.5, 1.5, 1.5]);
        // (1,1) (1,2) (2,3) (3,2): of six pairs three agree, one does not, one is tied on each side.
        let (left, right) = ([1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 2.0]);
        let expected = (3.0 - 1.0) / (5.0_f64.sqrt() * 5.0_f64.sqrt());
        assert!((value(Correlation::KendallB, &left, &right) - expected).abs() < 1e-12);
    }

    #[test]
    fn without_spread_there_is_none() {
        for correlation in Correlation::ALL {
            assert_eq!(correlation.of(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
            // Its mean is rounded, so deviations from it are not 0.
            assert_eq!(correlation.of(&[0.1; 3], &[1.0, 2.0, 3.0]), None);
            assert_eq!(correlation.of(&[1.0, 2.0, 3.0], &[0.1; 3]), None);
            assert_eq!(correlation.of(&[1.0], &[1.0]), None);
            assert_eq!(correlation.of(&[1.0, 2.0], &[1.0]), None);
        }
        assert_eq!(Correlation::Spearman.of(&[1.0, 2.0], &[1.0, 2.0]).unwrap().p_value, None);
    }

    proptest::proptest! {
        #[test]
        fn bounded_symmetric_and_odd(pairs in proptest::collection::vec((0..6_i32, 0..6_i32), 2..60)) {
            let left: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.0)).collect();
            let right: Vec<f64> = pairs.iter().map(|pair| f64::from(pair.1)).collect();
            let mirrored: Vec<f64> = right.iter().map(|value| -value).collect();
            for correlation in Correlation::ALL {
                let Some(agreement) = correlation.of(&left, &right) else { continue };
                proptest::prop_assert!(agreement.value.abs() <= 1.0);
                proptest::prop_assert!(agreement.p_value.is_none_or(|p| (0.0..=1.0).contains(&p)));
                proptest::prop_assert!((value(correlation, &right, &left) - agreement.value).abs() < 1e-12);
                proptest::prop_assert!((value(correlation, &left, &mirrored) + agreement.value).abs() < 1e-12);
            }
        }
    }
}
