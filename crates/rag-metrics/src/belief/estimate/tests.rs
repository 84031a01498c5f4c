//! Errors by hand, and against the spread of simulated differences.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::belief::cluster::Clusters;
use crate::belief::seper::{self, Against, Aggregate};
use crate::belief::{Likelihood, Verdict, Weighting, corrected, entropy};
use numeric::standard_deviation;

#[test]
fn jackknife_of_equal_weights_is_the_error_of_a_mean() {
    let estimate = weighted(&[0.25; 4], &[1.0, 0.0, 0.0, 1.0]);
    assert!((estimate.value - 0.5).abs() < 1e-12);
    // Sample variance 1/3 over 4.
    assert!((estimate.standard_error.unwrap() - (1.0_f64 / 12.0).sqrt()).abs() < 1e-12);
    assert_eq!(weighted(&[1.0], &[0.3]).standard_error, None);
}

/// Means of four pairs: the paired error is that of the mean of the differences, 1/√12 · √(sample variance · 3).
#[test]
fn differences_by_hand() {
    let left = weighted(&[0.25; 4], &[1.0, 0.0, 0.0, 1.0]);
    let right = weighted(&[0.25; 4], &[1.0, 0.0, 0.0, 0.0]);
    let error = |left: &Estimate, right: &Estimate, pairing| left.minus(right, pairing).standard_error.unwrap();
    // Differences 0, 0, 0, 1: sample variance 1/4 over 4.
    assert!((error(&left, &right, Pairing::Paired) - 0.25).abs() < 1e-12);
    // Sample variances 1/3 and 1/4 over 4.
    assert!((error(&left, &right, Pairing::Independent) - (7.0_f64 / 48.0).sqrt()).abs() < 1e-12);
    let same = left.minus(&left, Pairing::Paired);
    assert_eq!(same, Measured { value: 0.0, standard_error: Some(0.0) });
    let shorter = weighted(&[0.5; 2], &[1.0, 0.0]);
    assert_eq!(left.minus(&shorter, Pairing::Paired), left.minus(&shorter, Pairing::Independent));
    let one = weighted(&[1.0], &[1.0]);
    assert_eq!(left.minus(&one, Pairing::Paired).standard_error, None);
}

#[test]
fn errors_of_another_source_take_the_correlation_of_the_jackknife() {
    let jackknifed = weighted(&[0.25; 4], &[1.0, 0.0, 0.0, 1.0]);
    let twice =
        Estimate::with_error(0.5, jackknifed.standard_error.map(|error| 2.0 * error), jackknifed.left_out.clone());
    let difference = twice.minus(&jackknifed, Pairing::Paired).standard_error.unwrap();
    assert!((difference - jackknifed.standard_error.unwrap()).abs() < 1e-12, "fully correlated errors subtract");
    let constant = Estimate::with_error(1.0, Some(0.3), vec![1.0; 4]);
    let difference = constant.minus(&jackknifed, Pairing::Paired).standard_error.unwrap();
    assert!((difference - 0.3_f64.hypot(jackknifed.standard_error.unwrap())).abs() < 1e-12);
}

const SAMPLES: usize = 10;

/// SePer of answers drawn by inversion: the answer to the random number `u` is right if `right` is true for it.
fn seper(uniforms: &[f64], right: impl Fn(f64) -> bool) -> Estimate {
    let verdict = |&u: &f64| {
        let entailment = if right(u) { 0.9 } else { 0.05 };
        Some(Verdict { entailment, neutral: 1.0 - entailment, contradiction: 0.0 })
    };
    let against = Against { response_entails: uniforms.iter().map(verdict).collect(), ..Against::default() };
    let likelihoods: Vec<_> = uniforms.iter().map(|u| Likelihood { sum: -1.0 - u, tokens: 1 }).collect();
    seper::soft(&Weighting::Mean.weights(&likelihoods), &[against], false, Aggregate::Mean).unwrap()
}

/// Clusters of answers drawn by inversion from a distribution over cluster numbers.
fn clusters(uniforms: &[f64], distribution: &[f64]) -> Clusters {
    let draw = |&u: &f64| {
        let mut rest = u;
        distribution
            .iter()
            .position(|p| {
                rest -= p;
                rest < 0.0
            })
            .unwrap_or(distribution.len() - 1)
    };
    let drawn: Vec<usize> = uniforms.iter().map(draw).collect();
    let mut clusters = Clusters { of: Vec::new(), founders: Vec::new() };
    for (answer, number) in drawn.iter().enumerate() {
        let known = clusters.founders.iter().position(|founder| drawn[*founder] == *number);
        clusters.of.push(known.unwrap_or(clusters.founders.len()));
        if known.is_none() {
            clusters.founders.push(answer);
        }
    }
    clusters
}

/// Over many draws: the standard deviation of the difference, and the root mean square of its paired and
/// independent error.
fn simulate(difference: impl Fn(&[f64]) -> Option<(Estimate, Estimate)>) -> (f64, f64, f64) {
    let mut source = ChaCha8Rng::seed_from_u64(1);
    let (mut values, mut paired, mut independent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2_000 {
        let uniforms: Vec<f64> = (0..SAMPLES).map(|_| source.random()).collect();
        let Some((left, right)) = difference(&uniforms) else { continue };
        let (one, other) = (left.minus(&right, Pairing::Paired), left.minus(&right, Pairing::Independent));
        let Some((one_error, other_error)) = one.standard_error.zip(other.standard_error) else { continue };
        values.push(one.value);
        paired.push(one_error);
        independent.push(other_error);
    }
    assert!(values.len() > 1_800, "{} differences with an error", values.len());
    let rms = |errors: &[f64]| norm(errors) / real(errors.len()).sqrt();
    (standard_deviation(&values), rms(&paired), rms(&independent))
}

#[test]
fn the_paired_error_is_the_spread_of_delta_seper() {
    // Answers that are right without context are right with it: the random numbers move both sides together.
    let (spread, paired, independent) = simulate(|u| Some((seper(u, |u| u < 0.7), seper(u, |u| u < 0.4))));
    assert!((paired / spread - 1.0).abs() < 0.08, "{paired} for {spread}");
    assert!(independent / spread > 1.3, "{independent} for {spread}");
    // Answers that are right without context tend to be wrong with it.
    let (spread, paired, independent) = simulate(|u| Some((seper(u, |u| u < 0.7), seper(u, |u| u > 0.6))));
    assert!((paired / spread - 1.0).abs() < 0.08, "{paired} for {spread}");
    assert!(independent / spread < 0.8, "{independent} for {spread}");
}

/// An entropy from random numbers and distribution.
type Measure<'a> = &'a dyn Fn(&[f64], &[f64]) -> Option<Estimate>;

/// The jackknife of an entropy is itself somewhat large (Efron and Stein), so the bounds are wider here.
#[test]
fn the_paired_error_is_nearer_the_spread_of_entropy_reductions() {
    let plug_in = |uniforms: &[f64], p: &[f64]| Some(entropy::semantic_by_count(&clusters(uniforms, p)));
    let corrected = |uniforms: &[f64], p: &[f64]| corrected::semantic(&clusters(uniforms, p));
    let measures: [Measure<'_>; 2] = [&plug_in, &corrected];
    for measure in measures {
        // Nearly the same distribution: the two entropies rise and fall together.
        let (one, other) = ([0.5, 0.2, 0.2, 0.1], [0.6, 0.2, 0.1, 0.1]);
        let (spread, paired, independent) = simulate(|u| measure(u, &one).zip(measure(u, &other)));
        assert!((0.95..1.3).contains(&(paired / spread)), "{paired} for {spread}");
        assert!(independent / spread > 1.7, "{independent} for {spread}");
        // Low numbers draw the frequent cluster of one and a rare cluster of the other.
        let (one, other) = ([0.8, 0.1, 0.1], [0.1, 0.1, 0.8]);
        let (spread, paired, independent) = simulate(|u| measure(u, &one).zip(measure(u, &other)));
        assert!((0.8..1.3).contains(&(paired / spread)), "{paired} for {spread}");
        assert!(independent < 0.96 * spread && independent < 0.96 * paired, "{independent} for {spread}");
    }
}
