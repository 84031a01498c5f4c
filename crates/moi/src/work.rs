//! Estimated cost of a fit, before any scoring.
//!
//! With `M` prompts, `P` position weights and `W` linear unknowns (passages and intercepts), a step costs matrix products of
//! `4MW² + 2MPW + 2MP² + W³ + 2W²P` operations and a quadratic programme of about 15 iterations, each
//! `P³/2 + 170P² + 3600P + 14000`. The diagnostics cost `4Mn² + 2n³ + 10 min(M, N)³`, `n = P + W`.
//!
//! The weights were fitted to the processor time of 62 fits (10 to 100 passages, 10 to 5000 prompts, 3 to 465
//! position weights) on one core of an Intel Xeon server: 10^10 of these operations take a second. The number of
//! steps is the largest observed, so most fits of whole orders take a quarter to all of the estimate, and fits of
//! prefixes about the estimate. The paper's objective took up to three times the estimate, because its number of
//! steps varies most.

use std::collections::BTreeMap;

use super::{Anchors, Objective, Settings, varpro::Starts};

/// Most work of a fit for a waiting caller: about ten seconds of one core. It admits 3N orders of 100 passages, and
/// the prefixes of 100 orders of 100 passages down to depth 35.
pub const LARGEST: u64 = 100_000_000_000;

/// Iterations of one quadratic programme.
const INTERIOR_POINT: u128 = 15;

/// Floating-point operations of [`super::estimate`] for prompts as pairs of length and count; `anchored` if there
/// are also single-passage scores.
#[must_use]
pub fn estimate(
    passages: usize,
    prompts: impl IntoIterator<Item = (usize, usize)>,
    anchored: bool,
    settings: &Settings,
) -> u64 {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (length, count) in prompts.into_iter().filter(|(_, count)| *count > 0) {
        *counts.entry(length).or_default() += count;
    }
    let paper = settings.objective == Objective::Paper;
    let partial = counts.keys().any(|length| *length < passages);
    if anchored && partial && !paper && settings.anchors == Anchors::Observations {
        let alone = counts.entry(1).or_default();
        *alone = passages.max(*alone);
    }
    let several = counts.len() > 1;
    let starts = match (several, paper) {
        (true, _) => 1,
        (false, true) => Starts::Many.count(),
        (false, false) => settings.starts.count(),
    };
    // As observed. Several lengths are better conditioned; the paper's objective is the worst and is solved more
    // exactly.
    let steps = match (several, paper) {
        (true, _) => 10,
        (false, false) => 45,
        (false, true) => 120,
    };
    let directions = match (several, settings.prior.is_some()) {
        (true, false) => 1,
        (false, true) if !partial => 1,
        (false, false) | (true, true) => 2,
        (false, true) => 3,
    };
    // Products of three counts of 2^32 do not overflow.
    let wide = |count: usize| u128::try_from(count).map_or(1 << 32, |count| count.min(1 << 32));
    let n = wide(passages);
    let m = counts.values().map(|count| wide(*count)).sum::<u128>().min(1 << 32);
    let p = counts.keys().map(|length| wide(*length)).sum::<u128>().min(1 << 32);
    let w = n + wide(counts.len().saturating_sub(1));
    let products = 4 * m * w * w + 2 * m * p * w + 2 * m * p * p + w * w * w + 2 * w * w * p;
    let programme = INTERIOR_POINT * (p * p * p / 2 + 170 * p * p + 3_600 * p + 14_000);
    let columns = p + w;
    let smaller = m.min(n);
    let diagnostics = 4 * m * columns * columns + 2 * columns.pow(3) + 10 * smaller.pow(3);
    let total = directions * u128::from(starts) * steps * (products + programme) + diagnostics;
    u64::try_from(total).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(passages: usize, depth: usize) -> u64 {
        estimate(passages, (1..=depth).map(|length| (length, passages)), true, &Settings::default())
    }

    #[test]
    fn fits_of_minutes_exceed_the_largest_and_fits_of_seconds_do_not() {
        let settings = Settings::default();
        assert!(prefixes(10, 2) < LARGEST / 10_000, "a default request");
        assert!(prefixes(100, 2) < LARGEST / 100);
        assert!(estimate(100, [(100, 300)], true, &settings) < LARGEST / 10);
        assert!(prefixes(100, 35) < LARGEST);
        assert!(prefixes(100, 100) > 100 * LARGEST, "what a budget of 100 passages admits");
        assert!(estimate(10_000, [(10_000, 1_000_000)], true, &settings) > LARGEST);
        assert_eq!(estimate(usize::MAX, [(usize::MAX, usize::MAX)], false, &settings), u64::MAX);
    }

    #[test]
    fn prompts_may_be_counted_one_by_one() {
        let settings = Settings::default();
        let one_by_one = std::iter::repeat_n((5, 1), 20).chain([(7, 0)]);
        assert_eq!(estimate(5, one_by_one, false, &settings), estimate(5, [(5, 20)], false, &settings));
    }

    #[test]
    fn the_settings_count() {
        let plain = Settings::default();
        let (many, paper) = (
            Settings { starts: Starts::Many, ..plain.clone() },
            Settings { objective: Objective::Paper, ..plain.clone() },
        );
        let of = |settings: &Settings| estimate(20, [(20, 60)], true, settings);
        assert!(of(&many) > 10 * of(&plain) && of(&paper) > 2 * of(&many));
        let given = Settings { prior: Some(vec![0.05; 20]), ..plain.clone() };
        assert!(of(&given) < of(&plain), "one direction instead of two");
        // Single-passage scores become rows of shorter prompts.
        assert!(estimate(20, [(10, 20)], true, &given) > estimate(20, [(1, 20), (10, 20)], false, &plain));
    }
}
