//! Transformation of log-probabilities before the fit, and of utilities back to nats.
//!
//! A fit to `αs + β` with `α > 0` gives the same weights and ranking. A domain therefore matters only if it is not
//! affine: it treats outliers (`LogWinsorZ`, `RankNormal`) or is exponential (`Softmax`). Each length is centred on
//! its own mean, because longer prompts have different means. All lengths share one scale, because a passage has
//! one utility.

use statrs::distribution::{ContinuousCDF, Normal};

use numeric::{mean, real, standard_deviation};

/// The scale on which scores are fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    /// Log-probabilities, clipped at median ± 3 · 1.4826 · MAD of their length, then standardised.
    LogWinsorZ,
    /// Log-probabilities, standardised.
    LogZ,
    /// Normal scores of the ranks.
    RankNormal,
    /// `exp(s / T)` normalised over the observations of one length, standardised; T in nats.
    Softmax {
        /// Temperature in nats; above 0.
        temperature: f64,
    },
    /// The scores unchanged. The default of the paper's objective.
    AsIs,
}

/// Transformed scores, with the affine map back: `nats = value · scale + centre`.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// One value per observation.
    pub values: Vec<f64>,
    /// Nats per unit of `values`; 0 if the scores are constant.
    pub scale: f64,
    /// Mean of the scores of the shortest prompts, in nats; 0 for [`Domain::AsIs`].
    pub centre: f64,
}

/// Applies `domain` to `scores`, where `group[i]` is the length class of observation `i`.
#[must_use]
pub fn prepare(scores: &[f64], group: &[usize], domain: Domain) -> Prepared {
    if domain == Domain::AsIs {
        return Prepared { values: scores.to_vec(), scale: 1.0, centre: 0.0 };
    }
    let classes = group.iter().copied().max().map_or(0, |last| last + 1);
    let mut raw_centred = vec![0.0; scores.len()];
    let mut values = vec![0.0; scores.len()];
    let mut centre = 0.0;
    for class in 0..classes {
        let members: Vec<usize> = (0..scores.len()).filter(|&i| group[i] == class).collect();
        let raw: Vec<f64> = members.iter().map(|&i| scores[i]).collect();
        let class_mean = mean(&raw);
        if class == 0 {
            centre = class_mean;
        }
        let shaped = shape(&raw, domain);
        let shaped_mean = mean(&shaped);
        for (slot, &i) in members.iter().enumerate() {
            raw_centred[i] = raw[slot] - class_mean;
            values[i] = shaped[slot] - shaped_mean;
        }
    }
    let spread = standard_deviation(&values);
    // The unit is the spread of the clipped scores in the domains of log-probabilities, and of the raw scores in
    // the others.
    let nats = match domain {
        Domain::LogWinsorZ | Domain::LogZ | Domain::AsIs => spread,
        Domain::RankNormal | Domain::Softmax { .. } => standard_deviation(&raw_centred),
    };
    if spread <= 1e-9 * centre.abs().max(1.0) && !matches!(domain, Domain::Softmax { .. } | Domain::RankNormal)
        || spread <= 1e-300
    {
        return Prepared { values: vec![0.0; scores.len()], scale: 0.0, centre };
    }
    for value in &mut values {
        *value /= spread;
    }
    Prepared { values, scale: nats, centre }
}

fn shape(scores: &[f64], domain: Domain) -> Vec<f64> {
    match domain {
        Domain::AsIs | Domain::LogZ => scores.to_vec(),
        Domain::LogWinsorZ => winsor(scores),
        Domain::RankNormal => normal_scores(scores),
        Domain::Softmax { temperature } => {
            let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exponentials: Vec<f64> = scores.iter().map(|score| ((score - peak) / temperature).exp()).collect();
            let total: f64 = exponentials.iter().sum();
            exponentials.into_iter().map(|value| value / total).collect()
        }
    }
}

fn winsor(scores: &[f64]) -> Vec<f64> {
    let centre = median(scores);
    let deviations: Vec<f64> = scores.iter().map(|score| (score - centre).abs()).collect();
    let reach = 3.0 * 1.4826 * median(&deviations);
    // More than half of the scores are equal: the median deviation carries no information about the rest.
    if reach <= 0.0 {
        return scores.to_vec();
    }
    scores.iter().map(|score| score.clamp(centre - reach, centre + reach)).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// `Φ⁻¹((rank - 3/8) / (n + 1/4))` with average ranks for ties (Blom).
fn normal_scores(scores: &[f64]) -> Vec<f64> {
    let normal = Normal::standard();
    let n = real(scores.len());
    let rank = |score: f64| {
        let below = scores.iter().filter(|other| **other < score).count();
        // A positive and a negative zero are equal here.
        let equal = scores.iter().filter(|other| **other <= score).count() - below;
        real(below) + f64::midpoint(real(equal), 1.0)
    };
    scores.iter().map(|&score| normal.inverse_cdf((rank(score) - 0.375) / (n + 0.25))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_is_clipped_but_keeps_its_side() {
        let scores = [-1.0, -2.0, -3.0, -4.0, -500.0];
        let clipped = winsor(&scores);
        assert!((clipped[4] - (-3.0 - 3.0 * 1.4826)).abs() < 1e-12);
        assert_eq!(&clipped[..4], &scores[..4]);
    }

    #[test]
    fn affine_changes_of_the_scores_change_nothing() {
        let scores = [-3.0, 1.0, 0.5, -7.0];
        let moved: Vec<f64> = scores.iter().map(|score| 37.0 * score - 3000.0).collect();
        for domain in [Domain::LogWinsorZ, Domain::LogZ, Domain::RankNormal] {
            let (plain, affine) = (prepare(&scores, &[0; 4], domain), prepare(&moved, &[0; 4], domain));
            for (left, right) in plain.values.iter().zip(&affine.values) {
                assert!((left - right).abs() < 1e-9, "{domain:?}");
            }
            assert!((affine.scale / plain.scale - 37.0).abs() < 1e-9);
        }
    }

    #[test]
    fn constant_scores_have_no_scale() {
        let prepared = prepare(&[-42.0; 5], &[0; 5], Domain::LogWinsorZ);
        assert_eq!((prepared.scale, prepared.centre), (0.0, -42.0));
        assert!(prepared.values.iter().all(|value| *value == 0.0));
    }

    #[test]
    fn lengths_are_centred_apart() {
        let prepared = prepare(&[0.0, 2.0, -100.0, -98.0], &[0, 0, 1, 1], Domain::LogZ);
        assert_eq!(prepared.values, vec![-1.0, 1.0, -1.0, 1.0]);
    }

    #[test]
    fn ties_share_their_rank() {
        let scores = normal_scores(&[1.0, 1.0, 5.0]);
        assert!((scores[0] - scores[1]).abs() < 1e-15 && scores[2] > scores[0]);
        assert_eq!(normal_scores(&[0.0, -0.0, 5.0]), scores);
    }
}
