//! Entropies of a belief, in nats. They need no reference answers.
//!
//! - Semantic entropy `SE = -Σ_c p_c ln p_c` over the masses of the clusters (Farquhar et al.).
//! - Its count version, with `p_c` the share of the samples in cluster `c`.
//! - Predictive entropy `PE = -(1/n) Σ L_i`.
//!
//! Both semantic entropies are plug-in estimates, biased low, because unseen clusters do not count.
//! [`super::corrected`] has the corrected count version. Standard errors are the jackknife's. If every answer is
//! its own cluster, the jackknife would give 0 (or, weighted, only reflect the weights), although such answers
//! leave the entropy unbounded: both then have no error. If all answers share a cluster it is 0, although other
//! clusters may exist.

use super::cluster::Clusters;
use super::{Estimate, Likelihood, Weighting};
use numeric::real;

fn entropy(masses: &[f64]) -> f64 {
    // p ln p goes to 0 with p. Adding 0 turns the -0 of a single cluster into 0.
    -masses.iter().filter(|mass| **mass > 0.0).map(|mass| mass * mass.ln()).sum::<f64>() + 0.0
}

/// Semantic entropy in nats: 0 if all responses mean the same, at most ln n.
#[must_use]
pub fn semantic(clusters: &Clusters, weights: &[f64]) -> Estimate {
    let others = real(weights.len().max(2) - 1);
    let left_out: Vec<f64> = (0..weights.len())
        .map(|out| {
            let mut rest = weights.to_vec();
            rest[out] = 0.0;
            // Even for a tiny rest: if one answer has nearly all the weight, the others are still a belief.
            let total: f64 = rest.iter().sum();
            for (_, weight) in rest.iter_mut().enumerate().filter(|(i, _)| *i != out) {
                *weight = if total > 0.0 { *weight / total } else { 1.0 / others };
            }
            entropy(&clusters.masses(&rest))
        })
        .collect();
    let value = entropy(&clusters.masses(weights));
    if clusters.founders.len() == weights.len() {
        return Estimate::with_error(value, None, left_out);
    }
    Estimate::jackknifed(value, left_out)
}

/// Semantic entropy of the shares of samples, in nats.
#[must_use]
pub fn semantic_by_count(clusters: &Clusters) -> Estimate {
    let n = clusters.of.len();
    semantic(clusters, &vec![1.0 / real(n.max(1)); n])
}

/// Predictive entropy in nats, by the log-likelihood of the weighting. [`Weighting::Frequency`] has none and uses
/// that of [`Weighting::Mean`].
#[must_use]
pub fn predictive(responses: &[Likelihood], weighting: Weighting) -> Estimate {
    let by = if weighting == Weighting::Frequency { Weighting::Mean } else { weighting };
    let values: Vec<f64> = responses.iter().map(|response| -by.log_likelihood(response)).collect();
    super::estimate::weighted(&vec![1.0 / real(values.len().max(1)); values.len()], &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::belief::Measured;

    /// The jackknife gave 1e-15: leaving out any one of ten different answers leaves nine different answers.
    #[test]
    fn answers_that_all_differ_have_no_error() {
        let clusters = Clusters { of: (0..10).collect(), founders: (0..10).collect() };
        let ten = Measured { value: semantic_by_count(&clusters).value, standard_error: None };
        assert_eq!(semantic_by_count(&clusters).measured(), ten);
        assert!((ten.value - 10.0_f64.ln()).abs() < 1e-12);
        let weights: Vec<f64> = (1..=10).map(|i| real(i) / 55.0).collect();
        assert_eq!(semantic(&clusters, &weights).standard_error, None);
    }

    /// It was 0: without the first answer the others had a weight of 1e-30, which was not scaled.
    #[test]
    fn an_answer_with_nearly_all_the_weight_leaves_a_belief_behind() {
        let clusters = Clusters { of: vec![0, 1, 2, 2], founders: vec![0, 1, 2] };
        let likelihoods = [-10.0, -80.0, -80.1, -80.1].map(|sum| Likelihood { sum, tokens: 20 });
        let entropy = semantic(&clusters, &Weighting::Sum.weights(&likelihoods));
        // Without it, the others have shares of 1 and 2 e^-0.1, 0.651 nats; three quarters of the square of that
        // remain.
        let share = 1.0 / (1.0 + 2.0 * (-0.1_f64).exp());
        let left = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
        assert!((entropy.standard_error.unwrap() - 0.75 * left).abs() < 1e-9, "{entropy:?}");
    }

    #[test]
    fn by_hand() {
        let halves = Clusters { of: vec![0, 0, 1, 1], founders: vec![0, 2] };
        assert!((semantic(&halves, &[0.25; 4]).value - 2.0_f64.ln()).abs() < 1e-12);
        assert!((semantic_by_count(&halves).value - 2.0_f64.ln()).abs() < 1e-12);
        let uneven = semantic(&halves, &[0.6, 0.3, 0.1, 0.0]).value;
        assert!((uneven - (-0.9 * 0.9_f64.ln() - 0.1 * 0.1_f64.ln())).abs() < 1e-12);
        let one = Clusters { of: vec![0, 0], founders: vec![0] };
        assert_eq!(semantic(&one, &[0.5, 0.5]).measured(), Measured { value: 0.0, standard_error: Some(0.0) });
        let responses = [Likelihood { sum: -2.0, tokens: 2 }, Likelihood { sum: -3.0, tokens: 1 }];
        assert!((predictive(&responses, Weighting::Mean).value - 2.0).abs() < 1e-12);
        assert!((predictive(&responses, Weighting::Sum).value - 2.5).abs() < 1e-12);
        assert!((predictive(&responses, Weighting::Frequency).value - 2.0).abs() < 1e-12);
    }
}
