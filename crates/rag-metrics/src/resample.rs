//! Intervals and tests by resampling. The same numbers and seed give the same result.
//!
//! - [`interval`]: percentile bootstrap (Efron and Tibshirani, 1993) of any statistic of the queries.
//! - [`paired`]: compares two systems on the same queries. The randomisation test swaps the two values of each
//!   query at random (Smucker et al., 2007), which flips the sign of their difference: it is the paired permutation
//!   test. The bootstrap test draws queries with replacement and shifts the mean difference to 0. Both are
//!   two-sided with p = (1 + resamples at least as extreme) / (1 + resamples), so p is never 0.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{InvalidInput, never};
use numeric::{Interrupt, mean, real};

/// Most resamples that [`Statistics`] takes.
const MOST_RESAMPLES: usize = 1_000_000;

/// How an interval is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// Number of resamples.
    pub resamples: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Confidence of the interval, in (0, 1).
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

/// Percentile interval of a statistic of `n` observations. The statistic gets the indices of each resample and may
/// be undefined on it. `None` for fewer than two observations, if the statistic is undefined on more than half of
/// the resamples, and when interrupted.
#[must_use]
pub fn interval(
    n: usize,
    how: Resampling,
    interrupt: Interrupt<'_>,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<Interval> {
    if n < 2 || how.resamples == 0 {
        return None;
    }
    let mut generator = ChaCha8Rng::seed_from_u64(how.seed);
    let mut indices = Vec::with_capacity(n);
    let mut values: Vec<f64> = Vec::with_capacity(how.resamples);
    for _ in 0..how.resamples {
        if interrupt() {
            return None;
        }
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

/// Percentile interval of the mean; `None` as for [`interval`].
#[must_use]
pub fn mean_interval(values: &[f64], how: Resampling, interrupt: Interrupt<'_>) -> Option<Interval> {
    let of = |indices: &[usize]| Some(indices.iter().map(|&index| values[index]).sum::<f64>() / real(indices.len()));
    interval(values.len(), how, interrupt, of)
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
    /// Swap the two values of each query at random.
    #[default]
    Randomisation,
    /// Draw queries with replacement.
    Bootstrap,
}

impl Test {
    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Randomisation => "randomisation",
            Self::Bootstrap => "bootstrap",
        }
    }
}

/// One system against another on the same queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// Mean of the second system minus mean of the first.
    pub difference: f64,
    /// Bootstrap interval of the difference.
    pub interval: Option<Interval>,
    /// Two-sided p-value; `None` for fewer than two queries.
    pub p_value: Option<f64>,
    /// Queries on which the second system is better.
    pub wins: usize,
    /// Queries on which they differ by at most 1e-12.
    pub ties: usize,
    /// Queries on which the second system is worse.
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
        // Resamples that equal the difference up to rounding count as extreme.
        extreme += usize::from(resampled.abs() >= difference.abs() - 1e-12);
    }
    let enough = differences.len() >= 2 && how.resamples > 0;
    Compared {
        difference,
        interval: mean_interval(&differences, how, &never),
        p_value: enough.then(|| real(1 + extreme) / real(1 + how.resamples)),
        wins,
        ties: differences.len() - wins - losses,
        losses,
    }
}

/// Intervals and tests of one evaluation or comparison of runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Resamples of intervals of means; 0 for no intervals.
    pub resamples: usize,
    /// Resamples of p-values.
    pub test_resamples: usize,
    /// Confidence of intervals, in (0, 1).
    pub confidence: f64,
    /// Test of differences.
    pub test: Test,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Statistics {
    fn default() -> Self {
        Self { resamples: 1_000, test_resamples: 10_000, confidence: 0.95, test: Test::default(), seed: 0 }
    }
}

impl Statistics {
    /// Refuses numbers out of range. Fields are named as on the command line.
    ///
    /// # Errors
    /// [`InvalidInput`] with the field at fault.
    pub fn check(&self) -> Result<(), InvalidInput> {
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            let problem = format!("must lie between 0 and 1, is {}", self.confidence);
            return Err(InvalidInput::new("--confidence", problem));
        }
        for (field, given) in [("--resamples", self.resamples), ("--test-resamples", self.test_resamples)] {
            if given > MOST_RESAMPLES {
                return Err(InvalidInput::new(field, format!("{given} given, at most {MOST_RESAMPLES} allowed")));
            }
        }
        Ok(())
    }

    /// How intervals of means are drawn; `None` if not wanted.
    #[must_use]
    pub fn intervals(&self) -> Option<Resampling> {
        let how = Resampling { resamples: self.resamples, seed: self.seed, confidence: self.confidence };
        Some(how).filter(|how| how.resamples > 0)
    }

    /// [`Self::intervals`] for correlations, with a fifth of the resamples because each resample is sorted.
    #[must_use]
    pub fn correlation_intervals(&self) -> Option<Resampling> {
        self.intervals().map(|how| Resampling { resamples: how.resamples.div_ceil(5), ..how })
    }

    /// The least p-value of the randomisation test for this many queries: if all of them differ with the same sign,
    /// only two sign patterns are as extreme, the observed one and its reverse. `None` for the other test, which
    /// has no such bound.
    #[must_use]
    pub fn least_p_value(&self, queries: usize) -> Option<f64> {
        let signs = (1..queries).fold(1.0, |share, _| share / 2.0);
        let drawn = 1.0 / real(1 + self.test_resamples);
        (self.test == Test::Randomisation).then(|| f64::max(signs, drawn))
    }

    /// Compares values of the same queries, in the same order.
    #[must_use]
    pub fn compare(&self, first: &[f64], second: &[f64]) -> Compared {
        let how = Resampling { resamples: self.test_resamples, seed: self.seed, confidence: self.confidence };
        let compared = paired(first, second, self.test, how);
        Compared { interval: compared.interval.filter(|_| self.resamples > 0), ..compared }
    }
}

/// A p-value with as many digits as needed; a dash if there is none.
#[must_use]
pub fn format_p_value(p: Option<f64>) -> String {
    match p {
        None => "–".to_owned(),
        Some(p) if p < 1e-15 => "<1e-15".to_owned(),
        Some(p) if p < 0.001 => format!("{p:.1e}"),
        Some(p) => format!("{p:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_has_an_interval_of_no_width() {
        let interval = mean_interval(&[0.5; 20], Resampling::default(), &never).unwrap();
        assert!((interval.low - 0.5).abs() < 1e-12 && (interval.high - 0.5).abs() < 1e-12);
        assert_eq!(mean_interval(&[0.5], Resampling::default(), &never), None);
    }

    #[test]
    fn the_interval_of_a_coin_is_about_two_standard_errors() {
        let values: Vec<f64> = (0..400).map(|index| f64::from(index % 2)).collect();
        let interval = mean_interval(&values, Resampling::default(), &never).unwrap();
        // Standard error 0.5 / 20 = 0.025.
        assert!((interval.low - 0.451).abs() < 0.01 && (interval.high - 0.549).abs() < 0.01, "{interval:?}");
        assert_eq!(mean_interval(&values, Resampling::default(), &never).unwrap(), interval);
    }

    #[test]
    fn quantiles_interpolate() {
        assert!((quantile(&[1.0, 2.0, 4.0], 0.75) - 3.0).abs() < 1e-12);
        assert!((quantile(&[1.0, 2.0, 4.0], 1.0) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn sign_flips_by_hand() {
        // Two of the eight sums of ±1 ±2 ±3 are as far from 0 as 6; all four sums of ±1 ±3 are at least as far as
        // -1 + 3 = 2.
        let how = Resampling { resamples: 40_000, ..Resampling::default() };
        let p = |differences: &[f64]| {
            let zeros = vec![0.0; differences.len()];
            paired(&zeros, differences, Test::Randomisation, how).p_value.unwrap()
        };
        assert!((p(&[1.0, 2.0, 3.0]) - 2.0 / 8.0).abs() < 0.01);
        assert!((p(&[-1.0, 3.0]) - 1.0).abs() < 1e-12);
        // A query without a difference changes nothing: still 2 / 8.
        assert!((p(&[1.0, 0.0, 2.0, 3.0]) - 2.0 / 8.0).abs() < 0.01);
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
