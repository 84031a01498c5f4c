//! Entropies of a belief: what a caller without reference answers can have.
//!
//! - semantic entropy `SE = -Σ_c p_c ln p_c` over the masses of the clusters (Farquhar et al.), in nats
//! - its count version, with `p_c` the share of the samples in `c`
//! - predictive entropy `PE = -(1/n) Σ L_i`, in nats

use super::cluster::Clusters;
use super::{Likelihood, Measured, Weighting, jackknife};
use crate::numeric::real;

fn entropy(masses: &[f64]) -> f64 {
    // A cluster without mass adds nothing: p ln p goes to 0. Adding 0 turns the -0 of a single cluster into 0.
    -masses.iter().filter(|mass| **mass > 0.0).map(|mass| mass * mass.ln()).sum::<f64>() + 0.0
}

/// Semantic entropy in nats: 0 where all responses mean the same, at most ln n.
#[must_use]
pub fn semantic(clusters: &Clusters, weights: &[f64]) -> Measured {
    let left_out: Vec<f64> = (0..weights.len())
        .map(|out| {
            let mut rest = weights.to_vec();
            rest[out] = 0.0;
            let total: f64 = rest.iter().sum();
            if total > 1e-12 {
                for weight in &mut rest {
                    *weight /= total;
                }
            }
            entropy(&clusters.masses(&rest))
        })
        .collect();
    Measured { value: entropy(&clusters.masses(weights)), standard_error: jackknife(&left_out) }
}

/// Semantic entropy of the shares of samples, in nats.
#[must_use]
pub fn semantic_by_count(clusters: &Clusters) -> Measured {
    let n = clusters.of.len();
    semantic(clusters, &vec![1.0 / real(n.max(1)); n])
}

/// Predictive entropy in nats, by the chosen log-likelihood (`Frequency` has none and takes the mean's).
#[must_use]
pub fn predictive(responses: &[Likelihood], weighting: Weighting) -> Measured {
    let by = if weighting == Weighting::Frequency { Weighting::Mean } else { weighting };
    let values: Vec<f64> = responses.iter().map(|response| -by.log_likelihood(response)).collect();
    super::weighted(&vec![1.0 / real(values.len().max(1)); values.len()], &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let halves = Clusters { of: vec![0, 0, 1, 1], founders: vec![0, 2] };
        assert!((semantic(&halves, &[0.25; 4]).value - 2.0_f64.ln()).abs() < 1e-12);
        assert!((semantic_by_count(&halves).value - 2.0_f64.ln()).abs() < 1e-12);
        let uneven = semantic(&halves, &[0.6, 0.3, 0.1, 0.0]).value;
        assert!((uneven - (-0.9 * 0.9_f64.ln() - 0.1 * 0.1_f64.ln())).abs() < 1e-12);
        let one = Clusters { of: vec![0, 0], founders: vec![0] };
        assert_eq!(semantic(&one, &[0.5, 0.5]), Measured { value: 0.0, standard_error: Some(0.0) });
        let responses = [Likelihood { sum: -2.0, tokens: 2 }, Likelihood { sum: -3.0, tokens: 1 }];
        assert!((predictive(&responses, Weighting::Mean).value - 2.0).abs() < 1e-12);
        assert!((predictive(&responses, Weighting::Sum).value - 2.5).abs() < 1e-12);
        assert!((predictive(&responses, Weighting::Frequency).value - 2.0).abs() < 1e-12);
    }
}
