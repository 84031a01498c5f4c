//! Drawing the next token from a row of logits.
//!
//! The log-probability of a draw belongs to the distribution at the sampling temperature before the cuts by `top_k`,
//! `top_p` and `min_p`. Sequence likelihoods are sums of these values. A greedy draw (temperature 0) reports the
//! log-probability at temperature 1. The caller passes the random number, so equal seeds give equal samples whatever
//! else is drawn.

use super::logspace::logsumexp;
use super::real;

/// Parameters of a draw. The cuts apply in the order of the fields, each to the tokens that the previous cut left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits, 0 to 100; 0 takes the likeliest token.
    pub temperature: f64,
    /// Keep only the `top_k` likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set of likeliest tokens whose total probability reaches this value, in (0, 1]; 1 keeps all.
    pub top_p: f64,
    /// Keep tokens with at least this fraction of the likeliest token's probability, between 0 and 1; 0 keeps all.
    pub min_p: f64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 }
    }
}

impl Sampling {
    /// Checks that every field is within its range.
    ///
    /// # Errors
    /// `(field, range)` of the first field that is out of range.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if !(self.temperature.is_finite() && (0.0..=100.0).contains(&self.temperature)) {
            return Err(("temperature", "must lie between 0 and 100"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(("top_p", "must be above 0 and at most 1"));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(("min_p", "must lie between 0 and 1"));
        }
        Ok(())
    }
}

/// A drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// Index of the token in the row.
    pub token: usize,
    /// Natural log-probability at the sampling temperature, before the cuts.
    pub log_probability: f64,
}

/// Draws a token from `logits` by inversion: the first token at which the cumulative probability exceeds `uniform`, a
/// number in [0, 1). Tokens are cumulated likeliest first if the distribution was cut, otherwise in the order of the
/// row. `None` if the row is empty or has no finite logit.
#[must_use]
pub fn draw(logits: &[f32], how: &Sampling, uniform: f64) -> Option<Drawn> {
    let likeliest = (0..logits.len())
        .filter(|&i| logits[i].is_finite())
        .reduce(|best, i| if logits[i] > logits[best] { i } else { best })?;
    let of = |token: usize, log_probability: f64| Drawn { token, log_probability };
    if how.temperature == 0.0 {
        return Some(of(likeliest, f64::from(logits[likeliest]) - logsumexp(logits)));
    }
    let scaled: Vec<f32> = if (how.temperature - 1.0).abs() < f64::EPSILON {
        logits.to_vec()
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "logits are single precision")]
        let scale = ((1.0 / how.temperature) as f32).min(f32::MAX);
        // The shift comes first, so that a small temperature does not turn finite logits into infinities. An infinite scale
        // would make the likeliest token's 0 a NaN.
        logits.iter().map(|logit| (logit - logits[likeliest]) * scale).collect()
    };
    let normaliser = logsumexp(&scaled);
    let log_probability = |token: usize| f64::from(scaled[token]) - normaliser;
    let kept = cut(&scaled, how, &log_probability);
    let mass: f64 = match &kept {
        None => 1.0,
        Some(tokens) => tokens.iter().map(|&token| log_probability(token).exp()).sum(),
    };
    let aim = uniform * mass;
    let mut below = 0.0;
    let mut last = likeliest;
    let mut pick = |token: usize| {
        if scaled[token].is_finite() {
            below += log_probability(token).exp();
            last = token;
        }
        below > aim
    };
    let found = match &kept {
        None => (0..scaled.len()).find(|&token| pick(token)),
        Some(tokens) => tokens.iter().copied().find(|&token| pick(token)),
    };
    // Rounding may leave the total slightly below the aim. The last candidate is then drawn.
    let token = found.unwrap_or(last);
    Some(of(token, log_probability(token)))
}

/// [`draw`] from the tokens `allowed` alone, which are renormalised: the log-probability is that among them. Of equally
/// likely tokens the first allowed one counts as the likeliest. Tokens outside the row are ignored. `None` if no allowed
/// token has a finite logit.
#[must_use]
pub fn draw_among(logits: &[f32], allowed: &[usize], how: &Sampling, uniform: f64) -> Option<Drawn> {
    let candidates: Vec<usize> = allowed.iter().copied().filter(|&token| token < logits.len()).collect();
    let row: Vec<f32> = candidates.iter().map(|&token| logits[token]).collect();
    let drawn = draw(&row, how, uniform)?;
    Some(Drawn { token: candidates[drawn.token], ..drawn })
}

/// Tokens that remain after the cuts, likeliest first; never empty. `None` if no cut applies.
fn cut(scaled: &[f32], how: &Sampling, log_probability: &impl Fn(usize) -> f64) -> Option<Vec<usize>> {
    if (how.top_k == 0 || how.top_k >= scaled.len()) && how.top_p >= 1.0 && how.min_p <= 0.0 {
        return None;
    }
    let mut order: Vec<usize> = (0..scaled.len()).filter(|&token| scaled[token].is_finite()).collect();
    let by_probability = |left: &usize, right: &usize| scaled[*right].total_cmp(&scaled[*left]).then(left.cmp(right));
    if how.top_k > 0 && how.top_k < order.len() {
        // Selecting the top_k tokens first is cheaper than sorting the whole vocabulary.
        order.select_nth_unstable_by(how.top_k - 1, by_probability);
        order.truncate(how.top_k);
    }
    order.sort_unstable_by(by_probability);
    if how.top_p < 1.0 {
        let total: f64 = order.iter().map(|&token| log_probability(token).exp()).sum();
        let mut sum = 0.0;
        let enough = order.iter().position(|&token| {
            sum += log_probability(token).exp();
            sum >= how.top_p * total
        });
        order.truncate(enough.map_or(order.len(), |at| at + 1));
    }
    if how.min_p > 0.0 {
        let least = log_probability(order[0]) + how.min_p.ln();
        let enough = order.iter().position(|&token| log_probability(token) < least);
        order.truncate(enough.unwrap_or(order.len()).max(1));
    }
    Some(order)
}

/// A uniform number in [0, 1) from 64 random bits.
#[must_use]
pub fn unit(bits: u64) -> f64 {
    let kept = usize::try_from(bits >> 11).unwrap_or(0);
    real(kept) / real(1_usize << 53)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn logs(probabilities: &[f64]) -> Vec<f32> {
        #[allow(clippy::cast_possible_truncation)]
        probabilities.iter().map(|p| (p.ln() + 3.0) as f32).collect()
    }

    fn tokens(probabilities: &[f64], how: &Sampling) -> Vec<usize> {
        (0..100).map(|i| draw(&logs(probabilities), how, f64::from(i) / 100.0).unwrap().token).collect()
    }

    fn count(drawn: &[usize], token: usize) -> usize {
        drawn.iter().filter(|t| **t == token).count()
    }

    const ROW: [f64; 4] = [0.1, 0.5, 0.15, 0.25];

    #[test]
    fn draws_follow_the_distribution() {
        let drawn = tokens(&ROW, &Sampling::default());
        for (token, expected) in [10, 50, 15, 25].into_iter().enumerate() {
            assert!(count(&drawn, token).abs_diff(expected) <= 1, "{token}: {}", count(&drawn, token));
        }
        let first = draw(&logs(&ROW), &Sampling::default(), 0.3).unwrap();
        assert_eq!(first.token, 1);
        assert!((first.log_probability - 0.5_f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn cuts_by_hand() {
        let k = tokens(&ROW, &Sampling { top_k: 2, ..Sampling::default() });
        assert_eq!((count(&k, 0), count(&k, 2)), (0, 0));
        assert!(count(&k, 1).abs_diff(67) <= 1);
        let p = tokens(&ROW, &Sampling { top_p: 0.7, ..Sampling::default() });
        assert_eq!(count(&p, 1) + count(&p, 3), 100);
        let one = tokens(&ROW, &Sampling { top_p: 0.01, ..Sampling::default() });
        assert_eq!(count(&one, 1), 100);
        let m = tokens(&ROW, &Sampling { min_p: 0.4, ..Sampling::default() });
        assert_eq!(count(&m, 1) + count(&m, 3), 100);
        // The log-probability is that of the distribution before the cut.
        let cut = draw(&logs(&ROW), &Sampling { top_k: 1, ..Sampling::default() }, 0.9).unwrap();
        assert!((cut.log_probability - 0.5_f64.ln()).abs() < 1e-6);
    }

    #[test]
    fn temperatures() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let drawn = draw(&logs(&ROW), &greedy, 0.99).unwrap();
        assert_eq!(drawn.token, 1);
        assert!((drawn.log_probability - 0.5_f64.ln()).abs() < 1e-6);
        let cold = tokens(&ROW, &Sampling { temperature: 1e-3, ..Sampling::default() });
        assert_eq!(count(&cold, 1), 100);
        let hot = tokens(&ROW, &Sampling { temperature: 100.0, ..Sampling::default() });
        assert!(count(&hot, 0) >= 23);
        // p^2 over its sum: 0.01, 0.25, 0.0225, 0.0625 of 0.345.
        let drawn = draw(&logs(&ROW), &Sampling { temperature: 0.5, ..Sampling::default() }, 0.0).unwrap();
        assert!((drawn.log_probability - (0.01_f64 / 0.345).ln()).abs() < 1e-5);
    }

    /// 1/temperature exceeds single precision, and for the last ones double precision.
    #[test]
    fn temperatures_next_to_zero_take_the_likeliest() {
        for temperature in [1e-30, 1e-39, f64::MIN_POSITIVE, 5e-324] {
            for cuts in [Sampling::default(), Sampling { top_k: 2, top_p: 0.9, min_p: 0.1, ..Sampling::default() }] {
                let drawn = draw(&logs(&ROW), &Sampling { temperature, ..cuts }, 0.99).unwrap();
                assert_eq!((drawn.token, drawn.log_probability), (1, 0.0), "{temperature}");
                let equal = draw(&[2.0, 1.0, 2.0], &Sampling { temperature, ..cuts }, 0.75).unwrap();
                assert_eq!(equal.token, 2, "{temperature}");
                assert!((equal.log_probability - 0.5_f64.ln()).abs() < 1e-12, "{temperature}");
            }
        }
    }

    /// Tokens 0 and 3 have 0.1 and 0.25: among themselves 2/7 and 5/7.
    #[test]
    fn allowed_tokens_are_renormalised() {
        let row = logs(&ROW);
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let best = draw_among(&row, &[3, 0, 99], &greedy, 0.9).unwrap();
        assert_eq!(best.token, 3);
        assert!((best.log_probability - (5.0_f64 / 7.0).ln()).abs() < 1e-6);
        let drawn = |uniform| draw_among(&row, &[0, 3], &Sampling::default(), uniform).unwrap().token;
        assert_eq!([drawn(0.0), drawn(0.28), drawn(0.29), drawn(0.99)], [0, 0, 3, 3]);
        let forced = draw_among(&row, &[2], &Sampling::default(), 0.5).unwrap();
        assert_eq!((forced.token, forced.log_probability), (2, 0.0));
        assert_eq!(draw_among(&row, &[], &greedy, 0.0), None);
        assert_eq!(draw_among(&[f32::NAN, 1.0], &[0], &greedy, 0.0), None);
    }

    #[test]
    fn rows_that_cannot_be_drawn_from() {
        assert_eq!(draw(&[], &Sampling::default(), 0.5), None);
        assert_eq!(draw(&[f32::NAN, f32::NEG_INFINITY], &Sampling::default(), 0.5), None);
        let masked = [f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY];
        assert_eq!(draw(&masked, &Sampling::default(), 0.999_999).unwrap().token, 1);
        for (bad, field) in [
            (Sampling { temperature: f64::NAN, ..Sampling::default() }, "temperature"),
            (Sampling { temperature: -1.0, ..Sampling::default() }, "temperature"),
            (Sampling { top_p: 0.0, ..Sampling::default() }, "top_p"),
            (Sampling { min_p: 1.5, ..Sampling::default() }, "min_p"),
        ] {
            assert_eq!(bad.check().unwrap_err().0, field);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// For any row, the draw is a token of the row with a valid log-probability, and equal random numbers give
        /// equal draws.
        #[test]
        fn any_row(row in proptest::collection::vec(-40.0_f32..40.0, 1..200), bits in any::<u64>(), t in 0.05_f64..5.0, k in 0_usize..50, p in 0.05_f64..1.0, m in 0.0_f64..0.9) {
            let how = Sampling { temperature: t, top_k: k, top_p: p, min_p: m };
            let drawn = draw(&row, &how, unit(bits)).unwrap();
            prop_assert!(drawn.token < row.len() && drawn.log_probability <= 1e-6 && drawn.log_probability.is_finite());
            prop_assert_eq!(draw(&row, &how, unit(bits)), Some(drawn));
        }
    }
}
