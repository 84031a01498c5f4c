//! Intervals and tests by resampling, with a seed: the same numbers and seed give the same answer.
//!
//! - [`interval`]: percentile bootstrap (Efron and Tibshirani, 1993) of any statistic of the queries.
//! - [`paired`]: two systems on the same queries. The randomisation test swaps each query's two values at random (Smucker
//!   et al., 2007), the bootstrap test draws queries with replacement and shifts the mean difference to 0; both two-sided,
//!   p = (1 + as extreme) / (1 + resamples), so never 0.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::numeric::{mean, real};

/// How much is resampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// Resamples.
    pub resamples: usize,
    /// Seed.
    pub seed: u64,
    /// Confidence of intervals, in (0, 1).
    pub confidence: f64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { resamples: 1000, seed: 0, confidence: 0.95 }
    }
}

/// Ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

fn draw(generator: &mut impl Rng, n: usize, into: &mut Vec<usize>) {
    into.clear();
    into.extend((0..n).map(|_| generator.random_range(0..n)));
}

/// Percentile interval of a statistic of `n` things, which gets the indices of each resample. `None` for fewer than two
/// things, or where more than half of the resamples have no value.
#[must_use]
pub fn interval(n: usize, how: Resampling, statistic: impl Fn(&[usize]) -> Option<f64>) -> Option<Interval> {
    if n < 2 || how.resamples == 0 {
        return None;
    }
    let mut generator = ChaCha8Rng::seed_from_u64(how.seed);
    let mut indices = Vec::with_capacity(n);
    let mut values: Vec<f64> = Vec::with_capacity(how.resamples);
    for _ in 0..how.resamples {
        draw(&mut generator, n, &mut indices);
        values.extend(statistic(&indices));
    }
    if 2 * values.len() < how.resamples {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - how.confidence) / 2.0;
    Some(Interval { low: quantile(&values, tail), high: quantile(&values, 1.0 - tail) })
}

/// Percentile interval of the mean.
#[must_use]
pub fn mean_interval(values: &[f64], how: Resampling) -> Option<Interval> {
    let of = |indices: &[usize]| Some(indices.iter().map(|&index| values[index]).sum::<f64>() / real(indices.len()));
    interval(values.len(), how, of)
}

/// Quantile of sorted values by linear interpolation.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * real(sorted.len() - 1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the indices")]
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - real(below)) * (sorted[above] - sorted[below])
}

/// How the null hypothesis of no difference is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Test {
    /// Swapping each query's values.
    #[default]
    Randomisation,
    /// Drawing queries with replacement.
    Bootstrap,
}

/// One system against another on the same queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Mean of the second less that of the first.
    pub difference: f64,
    /// Bootstrap interval of the difference.
    pub interval: Option<Interval>,
    /// Two-sided p-value; `None` for fewer than two queries.
    pub p_value: Option<f64>,
    /// Queries on which the second is better.
    pub wins: usize,
    /// Queries on which they are equal to 1e-12.
    pub ties: usize,
    /// Queries on which the second is worse.
    pub losses: usize,
}

/// Compares values of the same queries, in the same order.
#[must_use]
pub fn paired(first: &[f64], second: &[f64], test: Test, how: Resampling) -> Compared {
    let differences: Vec<f64> = second.iter().zip(first).map(|(second, first)| second - first).collect();
    let count = |holds: fn(f64) -> bool| differences.iter().filter(|difference| holds(**difference)).count();
    let (wins, losses) = (count(|d| d > 1e-12), count(|d| d < -1e-12));
    let difference = mean(&differences);
    let mut generator = ChaCha8Rng::seed_from_u64(how.seed);
    let mut indices = Vec::new();
    let mut extreme = 0;
    for _ in 0..how.resamples {
        let resampled = match test {
            Test::Randomisation => {
                let signed = differences.iter().map(|d| if generator.random::<bool>() { *d } else { -d });
                signed.sum::<f64>() / real(differences.len().max(1))
            }
            Test::Bootstrap => {
                draw(&mut generator, differences.len(), &mut indices);
                let drawn = indices.iter().map(|&index| differences[index] - difference);
                drawn.sum::<f64>() / real(differences.len().max(1))
            }
        };
        // A resample that is equal but for rounding is as extreme.
        extreme += usize::from(resampled.abs() >= difference.abs() - 1e-12);
    }
    let enough = differences.len() >= 2 && how.resamples > 0;
    Compared {
        difference,
        interval: mean_interval(&differences, how),
        p_value: enough.then(|| real(1 + extreme) / real(1 + how.resamples)),
        wins,
        ties: differences.len() - wins - losses,
        losses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_has_an_interval_of_no_width() {
        let interval = mean_interval(&[0.5; 20], Resampling::default()).unwrap();
        assert!((interval.low - 0.5).abs() < 1e-12 && (interval.high - 0.5).abs() < 1e-12);
        assert_eq!(mean_interval(&[0.5], Resampling::default()), None);
    }

    #[test]
    fn the_interval_of_a_coin_is_about_two_standard_errors() {
        let values: Vec<f64> = (0..400).map(|index| f64::from(index % 2)).collect();
        let interval = mean_interval(&values, Resampling::default()).unwrap();
        // Standard error .5 / 20 = .025.
        assert!((interval.low - 0.451).abs() < 0.01 && (interval.high - 0.549).abs() < 0.01, "{interval:?}");
        assert_eq!(mean_interval(&values, Resampling::default()).unwrap(), interval);
    }

    #[test]
    fn quantiles_interpolate() {
        assert!((quantile(&[1.0, 2.0, 4.0], 0.75) - 3.0).abs() < 1e-12);
        assert!((quantile(&[1.0, 2.0, 4.0], 1.0) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn ten_wins_of_one_size_are_one_chance_in_512() {
        let how = Resampling { resamples: 20_000, ..Resampling::default() };
        let compared = paired(&[0.0; 10], &[1.0; 10], Test::Randomisation, how);
        assert_eq!((compared.wins, compared.ties, compared.losses), (10, 0, 0));
        assert!((compared.p_value.unwrap() - 2.0 / 1024.0).abs() < 0.001, "{compared:?}");
    }

    #[test]
    fn equal_systems_do_not_differ_and_turning_them_round_turns_the_sign() {
        for test in [Test::Randomisation, Test::Bootstrap] {
            let (first, second) = ([0.1, 0.5, 0.9, 0.3], [0.2, 0.4, 0.9, 0.8]);
            assert!((paired(&first, &first, test, Resampling::default()).p_value.unwrap() - 1.0).abs() < 1e-12);
            let forth = paired(&first, &second, test, Resampling::default());
            let back = paired(&second, &first, test, Resampling::default());
            assert!((forth.difference + back.difference).abs() < 1e-12);
            assert_eq!((forth.wins, forth.losses), (back.losses, back.wins));
            assert_eq!(forth.p_value, back.p_value);
        }
        let empty = paired(&[], &[], Test::Randomisation, Resampling::default());
        assert_eq!((empty.p_value, empty.wins), (None, 0));
    }
}
