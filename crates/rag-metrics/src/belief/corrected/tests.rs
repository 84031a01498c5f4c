//! By hand, and by simulation: bias against other estimators, and the coverage of the standard error.

use proptest::prelude::*;

use super::*;
use crate::belief::entropy;

/// Clusters of these sizes, their answers one after the other.
fn of_sizes(sizes: &[usize]) -> Clusters {
    let of: Vec<usize> = sizes.iter().enumerate().flat_map(|(cluster, &size)| vec![cluster; size]).collect();
    let founders = (0..sizes.len()).map(|cluster| sizes[..cluster].iter().sum()).collect();
    Clusters { of, founders }
}

fn value(sizes: &[usize]) -> f64 {
    semantic(&of_sizes(sizes)).unwrap().value
}

fn error(sizes: &[usize]) -> Option<f64> {
    semantic(&of_sizes(sizes)).unwrap().standard_error
}

#[test]
fn by_hand() {
    // n = 4, f1 = 2, f2 = 1, A = 1/4: 1/2 · 5/6 + 2 · 1/4 · 11/6 + 1/2 · (4/3)³ · (ln 4 - 3/4 - 9/32 - 9/64).
    let undrawn = (4.0_f64 / 3.0).powi(3) * (4.0_f64.ln() - 1.171_875) / 2.0;
    assert!((value(&[2, 1, 1]) - (4.0 / 3.0 + undrawn)).abs() < 1e-12);
    assert!((value(&[2, 1, 1]) - 1.587_460_4).abs() < 1e-6);
    // No singletons: 2 · 1/2 · (1/2 + 1/3).
    assert!((value(&[2, 2]) - 5.0 / 6.0).abs() < 1e-12);
    assert!(value(&[7]).abs() < 1e-15);
    assert_eq!(semantic(&of_sizes(&[1])), None);
    assert_eq!(semantic(&of_sizes(&[])), None);
}

#[test]
fn all_distinct_is_a_value_that_depends_on_n_alone_and_has_no_error() {
    for (n, expected) in [(2, 1.22), (5, 2.92), (10, 4.20), (20, 5.50)] {
        assert!((value(&vec![1; n]) - expected).abs() < 0.005, "{n}: {}", value(&vec![1; n]));
        assert_eq!(error(&vec![1; n]), None);
        assert_eq!(entropy::semantic_by_count(&of_sizes(&vec![1; n])).standard_error, None, "{n}");
    }
}

#[test]
fn equal_answers_do_not_prove_certainty() {
    let errors = [3, 10, 50].map(|n| error(&[n]).unwrap());
    assert!((errors[1] - 0.24).abs() < 0.03, "{errors:?}");
    assert!(errors[0] > errors[1] && errors[1] > errors[2] && errors[2] > 0.05, "{errors:?}");
}

/// Both forms of the undrawn part, in the range where the closed form is precise.
#[test]
fn the_series_continues_the_closed_form() {
    for n in [12, 50, 400] {
        let estimator = Estimator::new(n);
        let edge = 1.0 - (-CLOSED_FORM / real(n - 1)).exp();
        let (below, above) = (estimator.undrawn(edge * (1.0 - 1e-9)), estimator.undrawn(edge * (1.0 + 1e-9)));
        assert!((below / above - 1.0).abs() < 3e-8, "{n}: {below} and {above}");
        assert!(estimator.undrawn(0.9) < 1.0 / real(n));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The order of answers and clusters does not matter; the estimate is never below the plug-in entropy.
    #[test]
    fn by_sizes_alone(mut sizes in proptest::collection::vec(1_usize..6, 1..8)) {
        prop_assume!(sizes.iter().sum::<usize>() > 1);
        let (one, plug_in) = (semantic(&of_sizes(&sizes)).unwrap(), entropy::semantic_by_count(&of_sizes(&sizes)).value);
        prop_assert!(one.value >= plug_in - 1e-12);
        prop_assert_eq!(one.standard_error.is_none(), sizes.iter().all(|size| *size == 1));
        prop_assert!(one.standard_error.is_none_or(|error| error > 0.0 && error.is_finite()));
        sizes.reverse();
        let other = semantic(&of_sizes(&sizes)).unwrap();
        prop_assert!((one.value - other.value).abs() < 1e-12);
        prop_assert_eq!(one.standard_error, other.standard_error);
    }
}

fn uniform(clusters: usize) -> Vec<f64> {
    vec![1.0 / real(clusters); clusters]
}

fn zipf(clusters: usize, exponent: f64) -> Vec<f64> {
    let masses: Vec<f64> = (1..=clusters).map(|rank| real(rank).powf(-exponent)).collect();
    let sum: f64 = masses.iter().sum();
    masses.iter().map(|mass| mass / sum).collect()
}

fn entropy_of(distribution: &[f64]) -> f64 {
    -distribution.iter().map(|p| p * p.ln()).sum::<f64>()
}

/// Sizes of the clusters of `n` answers.
fn draw(distribution: &[f64], n: usize, source: &mut ChaCha8Rng) -> Vec<usize> {
    let mut sizes = vec![0; distribution.len()];
    for _ in 0..n {
        let mut rest: f64 = source.random();
        let cluster = distribution.iter().position(|p| {
            rest -= p;
            rest < 0.0
        });
        sizes[cluster.unwrap_or(distribution.len() - 1)] += 1;
    }
    sizes.retain(|size| *size > 0);
    sizes
}

/// Entropy from the sizes of the clusters.
type Rival<'a> = &'a dyn Fn(&[usize]) -> f64;

fn plug_in(sizes: &[usize]) -> f64 {
    let n = real(sizes.iter().sum());
    -sizes.iter().map(|&size| real(size) / n * (real(size) / n).ln()).sum::<f64>()
}

fn miller_madow(sizes: &[usize]) -> f64 {
    plug_in(sizes) + real(sizes.len() - 1) / (2.0 * real(sizes.iter().sum()))
}

/// *Entropy estimates from insufficient samplings*, 2003: `ln n - Σ x/n G(x)`, `G(1) = -γ - ln 2`, `G(2) = 2 + G(1)`,
/// `G(2k+1) = G(2k)`, `G(2k+2) = G(2k) + 2/(2k+1)`.
fn grassberger(sizes: &[usize]) -> f64 {
    let first = -0.577_215_664_901_532_9 - 2.0_f64.ln();
    let g = |x: usize| first + (0..x / 2).map(|k| 2.0 / real(2 * k + 1)).sum::<f64>();
    let n = real(sizes.iter().sum());
    n.ln() - sizes.iter().map(|&size| real(size) / n * g(size)).sum::<f64>()
}

/// *Nonparametric estimation of Shannon's index of diversity when there are unseen species*, 2003; with one
/// singleton fewer if all clusters are singletons.
fn chao_shen(sizes: &[usize]) -> f64 {
    let n = real(sizes.iter().sum());
    let coverage = 1.0 - clusters_of(sizes, 1).min(n - 1.0) / n;
    let term = |&size: &usize| {
        let p = coverage * real(size) / n;
        p * p.ln() / (1.0 - (1.0 - p).powf(n))
    };
    -sizes.iter().map(term).sum::<f64>()
}

/// The table of the module's documentation.
#[test]
fn five_estimators_over_sixteen_distributions() {
    let mut distributions: Vec<Vec<f64>> = [1, 2, 3, 5, 10, 20, 30, 100].into_iter().map(uniform).collect();
    for exponent in [1.0, 2.0] {
        distributions.extend([5, 10, 30, 100].map(|clusters| zipf(clusters, exponent)));
    }
    let own = |sizes: &[usize]| Estimator::new(sizes.iter().sum()).entropy(sizes);
    let estimators: [Rival<'_>; 5] = [&plug_in, &miller_madow, &grassberger, &chao_shen, &own];
    let mut source = ChaCha8Rng::seed_from_u64(3);
    for n in [5, 10, 20] {
        let mut totals = [(0.0, 0.0); 5];
        for distribution in &distributions {
            let truth = entropy_of(distribution);
            let samples: Vec<Vec<usize>> = (0..1_500).map(|_| draw(distribution, n, &mut source)).collect();
            for (estimator, total) in estimators.iter().zip(&mut totals) {
                let errors: Vec<f64> = samples.iter().map(|sizes| estimator(sizes) - truth).collect();
                let squares: Vec<f64> = errors.iter().map(|error| error * error).collect();
                total.0 += mean(&errors).abs() / real(distributions.len());
                total.1 += mean(&squares).sqrt() / real(distributions.len());
            }
        }
        let (bias, spread) = totals[4];
        for (bias_of_other, spread_of_other) in &totals[..3] {
            assert!(bias < bias_of_other + 0.05 && spread < spread_of_other + 0.02, "n = {n}: {totals:?}");
        }
        assert!(spread < totals[3].1 + 0.03, "n = {n}: {totals:?}");
    }
}

/// The fault: 2.1 nats for a true 3.4.
#[test]
fn ten_answers_of_thirty_clusters() {
    let (mut plug_ins, mut values, mut source) = (Vec::new(), Vec::new(), ChaCha8Rng::seed_from_u64(5));
    for _ in 0..4_000 {
        let sizes = draw(&uniform(30), 10, &mut source);
        plug_ins.push(plug_in(&sizes));
        values.push(Estimator::new(10).entropy(&sizes));
    }
    assert!((mean(&plug_ins) - 2.1).abs() < 0.05, "{}", mean(&plug_ins));
    assert!((mean(&values) - 30.0_f64.ln()).abs() < 0.1, "{}", mean(&values));
}

#[test]
fn the_error_is_the_spread_and_its_interval_holds_the_truth() {
    let cases = [
        (uniform(3), 10, 0.9),
        (uniform(10), 10, 0.9),
        (uniform(20), 10, 0.85),
        (zipf(10, 1.0), 10, 0.8),
        (zipf(5, 2.0), 10, 0.65),
        (vec![0.9, 0.1], 10, 0.85),
        (vec![0.95, 0.05], 10, 0.9),
        (uniform(20), 20, 0.9),
        (zipf(10, 2.0), 20, 0.75),
    ];
    let mut source = ChaCha8Rng::seed_from_u64(7);
    for (distribution, n, least) in cases {
        let truth = entropy_of(&distribution);
        let drawn = (0..200).map(|_| semantic(&of_sizes(&draw(&distribution, n, &mut source))).unwrap());
        let estimates: Vec<(f64, f64)> = drawn.filter_map(|one| Some((one.value, one.standard_error?))).collect();
        let held = estimates.iter().filter(|(value, error)| (value - truth).abs() <= 1.96 * error).count();
        let held = real(held) / real(estimates.len());
        let values: Vec<f64> = estimates.iter().map(|(value, _)| *value).collect();
        let errors: Vec<f64> = estimates.iter().map(|(_, error)| *error).collect();
        let ratio = mean(&errors) / numeric::standard_deviation(&values);
        assert!(held >= least, "{} clusters, n = {n}: {held}", distribution.len());
        assert!((0.65..1.7).contains(&ratio), "{} clusters, n = {n}: {ratio}", distribution.len());
    }
}
