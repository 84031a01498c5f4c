//! Direction of the bias: prompts with only some of the passages, the caller's prior, the paper's objective.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::prior::{Direction, geometric};
use crate::*;
use numeric::{real, standard_deviation};

/// Scores of prompts with noise, and single-passage scores with noise of the same size.
struct World {
    utilities: Vec<f64>,
    observations: Vec<Observation>,
    anchor: Vec<f64>,
}

struct Draws(ChaCha8Rng);

impl Draws {
    fn uniform(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// Standard normal (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        radius * angle.cos()
    }
}

/// `noise` is the standard deviation of the noise over that of the clean scores of `orders`.
fn world(n: usize, orders: &[Vec<usize>], direction: Direction, noise: f64, seed: u64) -> World {
    let mut draws = Draws(ChaCha8Rng::seed_from_u64(seed));
    let utilities: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
    let clean = |order: &Vec<usize>| -> f64 {
        order.iter().zip(geometric(order.len(), direction)).map(|(&p, weight)| weight * utilities[p]).sum()
    };
    let exact: Vec<f64> = orders.iter().map(clean).collect();
    let spread = noise * standard_deviation(&exact);
    let scored = |(order, score): (&Vec<usize>, f64)| Observation { order: order.clone(), score };
    let noisy: Vec<f64> = exact.iter().map(|score| score - 40.0 + spread * draws.normal()).collect();
    let anchor = utilities.iter().map(|utility| utility - 30.0 + spread * draws.normal()).collect();
    World { observations: orders.iter().zip(noisy).map(scored).collect(), utilities, anchor }
}

fn fit(world: &World, anchored: bool, settings: &Settings) -> Estimate {
    let anchor = anchored.then_some(world.anchor.as_slice());
    estimate(world.utilities.len(), &world.observations, anchor, settings, &|| false).unwrap()
}

fn kendall(left: &[f64], right: &[f64]) -> f64 {
    let n = left.len();
    let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
    pairs.map(|(i, j)| ((left[i] - left[j]) * (right[i] - right[j])).signum()).sum::<f64>() / (real(n * (n - 1)) / 2.0)
}

/// Mean Kendall tau over 40 worlds of rotations of 10 passages cut to 5.
fn tau_of_rotations(direction: Direction, noise: f64, settings: &Settings) -> f64 {
    let rotations = design::pruned(10, 5, None);
    let tau = |seed| {
        let world = world(10, &rotations, direction, noise, seed);
        let fitted = fit(&world, true, settings);
        assert_eq!(fitted.orientation, Orientation::OnePassageScores);
        assert_eq!(fitted.bias.iter().map(Vec::len).collect::<Vec<_>>(), vec![5]);
        kendall(&fitted.utilities, &world.utilities)
    };
    (0..40).map(tau).sum::<f64>() / 40.0
}

#[test]
fn one_passage_scores_are_fitted_with_cut_rotations() {
    for direction in [Direction::Recency, Direction::Primacy] {
        for (noise, least) in [(0.3, 0.85), (1.0, 0.64)] {
            let tau = tau_of_rotations(direction, noise, &Settings::default());
            assert!(tau >= least, "{direction:?} {noise}: {tau}");
        }
    }
}

#[test]
fn one_passage_scores_of_another_outcome_only_settle_the_direction() {
    let settings = Settings { anchors: Anchors::Direction, ..Settings::default() };
    for direction in [Direction::Recency, Direction::Primacy] {
        let tau = tau_of_rotations(direction, 0.3, &settings);
        assert!(tau >= 0.64, "{direction:?}: {tau}");
    }
}

#[test]
fn random_cut_orders_settle_the_direction_and_rotations_do_not() {
    let mut taus = [0.0; 2];
    for seed in 0..20 {
        let whole = design::orders(design::Design::Random, 10, 20, seed, &|| false).unwrap();
        let cut: Vec<Vec<usize>> = whole.iter().map(|order| order[..5].to_vec()).collect();
        for (tau, direction) in taus.iter_mut().zip([Direction::Recency, Direction::Primacy]) {
            let world = world(10, &cut, direction, 0.3, seed);
            let fitted = fit(&world, false, &Settings::default());
            assert_eq!(fitted.orientation, Orientation::Subsets);
            *tau += kendall(&fitted.utilities, &world.utilities) / 20.0;
        }
        let world = world(10, &design::pruned(10, 5, None), Direction::Recency, 0.3, seed);
        assert_eq!(fit(&world, false, &Settings::default()).orientation, Orientation::DefaultPrior);
        let paper = Settings { objective: Objective::Paper, ..Settings::default() };
        assert_eq!(fit(&world, false, &paper).orientation, Orientation::DefaultPrior);
        assert_eq!(fit(&world, true, &paper).orientation, Orientation::OnePassageScores);
    }
    assert!(taus.iter().all(|tau| *tau >= 0.64), "{taus:?}");
}

#[test]
fn prompts_of_one_passage_have_no_direction() {
    let alone: Vec<Vec<usize>> = (0..5).map(|p| vec![p]).collect();
    let world = world(5, &alone, Direction::Primacy, 0.1, 0);
    let fitted = fit(&world, true, &Settings::default());
    assert_eq!(fitted.orientation, Orientation::None);
    assert!(fitted.diagnostics.identifiable);
}

#[test]
fn a_prior_for_all_passages_applies_to_every_length() {
    let whole = design::orders(design::Design::Latin, 6, 6, 0, &|| false).unwrap();
    let world = world(6, &design::prefixes(&whole, 3), Direction::Recency, 0.3, 1);
    let plain = fit(&world, false, &Settings::default());
    assert_eq!(plain.orientation, Orientation::Lengths);
    let prior = |weights: [f64; 6]| Settings { prior: Some(weights.to_vec()), ..Settings::default() };
    let agreeing = fit(&world, false, &prior([0.05, 0.05, 0.1, 0.1, 0.2, 0.5]));
    assert_ne!(agreeing.bias, plain.bias, "the prior is applied");
    assert_eq!(agreeing.orientation, Orientation::Lengths, "the data have the same direction without the prior");
    let opposed = fit(&world, false, &prior([0.9, 0.08, 0.02, 0.0, 0.0, 0.0]));
    assert!(opposed.bias[2][0] > opposed.bias[2][2]);
    assert_eq!(opposed.orientation, Orientation::CallerPrior);
    // The first two and three weights are 0: equal weights replace them.
    let equal = fit(&world, false, &prior([0.0, 0.0, 0.0, 0.0, 0.5, 0.5]));
    assert_eq!((equal.bias, equal.orientation), (plain.bias, Orientation::Lengths));
}

#[test]
fn a_prior_for_all_passages_applies_to_cut_rotations() {
    let world = world(10, &design::pruned(10, 5, None), Direction::Recency, 0.3, 2);
    let given = |direction| Settings { prior: Some(geometric(10, direction)), ..Settings::default() };
    let late = fit(&world, false, &given(Direction::Recency));
    assert_eq!(late.orientation, Orientation::CallerPrior, "rotations do not decide the direction");
    assert!(late.bias[0][4] > late.bias[0][0]);
    let anchored = fit(&world, true, &given(Direction::Recency));
    assert_eq!(anchored.orientation, Orientation::OnePassageScores, "it is the same without the prior");
    assert!(anchored.bias[0][4] > anchored.bias[0][0]);
    let short = Settings { prior: Some(vec![0.6, 0.4]), ..Settings::default() };
    let error = estimate(10, &world.observations, None, &short, &|| false).unwrap_err();
    assert_eq!(error.to_string(), "a0: must have 5 weights, has 2");
}

/// The printed objective has no scale: outliers are not clipped, and the objective is in squared nats.
#[test]
fn the_paper_objective_takes_the_scores_as_they_are() {
    let orders = design::orders(design::Design::Random, 5, 15, 4, &|| false).unwrap();
    let mut world = world(5, &orders, Direction::Primacy, 0.5, 3);
    world.observations[7].score -= 60.0;
    let paper = Settings { objective: Objective::Paper, ..Settings::default() };
    let by_default = fit(&world, true, &paper);
    let as_is = fit(&world, true, &Settings { domain: Some(Domain::AsIs), ..paper.clone() });
    assert_eq!(by_default.utilities, as_is.utilities);
    assert_eq!(by_default.objective.to_bits(), as_is.objective.to_bits());
    let predicted = |order: &[usize]| -> f64 {
        order.iter().zip(&by_default.bias[0]).map(|(&p, weight)| weight * by_default.utilities[p]).sum()
    };
    let squares: f64 = world.observations.iter().map(|o| (predicted(&o.order) - o.score).powi(2)).sum();
    assert!((squares - by_default.objective).abs() < 1e-8 * squares, "{squares} {}", by_default.objective);
    // The level of log-probabilities is far from 0; the fit does not depend on it.
    for observation in &mut world.observations {
        observation.score -= 3_000.0;
    }
    let moved = fit(&world, true, &paper);
    assert!((moved.objective - by_default.objective).abs() < 1e-6 * by_default.objective);
    assert_eq!(moved.ranking, by_default.ranking);
}

#[test]
fn a_fit_can_be_interrupted_at_every_stage() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let orders = design::orders(design::Design::Random, 8, 24, 0, &|| false).unwrap();
    let world = world(8, &orders, Direction::Primacy, 0.5, 0);
    let asked = AtomicUsize::new(0);
    let run = |most: usize| {
        asked.store(0, Ordering::Relaxed);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) >= most;
        estimate(8, &world.observations, Some(&world.anchor), &Settings::default(), &stop)
    };
    run(usize::MAX).unwrap();
    let stages = asked.load(Ordering::Relaxed);
    assert!(stages > 10, "{stages}");
    for most in 0..stages {
        assert_eq!(run(most).unwrap_err(), FitError::Interrupted);
    }
}

#[test]
fn scores_whose_squares_overflow_are_refused() {
    let observations = [Observation { order: vec![0, 1], score: 1.0 }, Observation { order: vec![1, 0], score: 1e200 }];
    let error = estimate(2, &observations, None, &Settings::default(), &|| false).unwrap_err();
    assert_eq!(error.to_string(), "scores[1]: must be a finite number, at most 1e100 in magnitude");
    assert!(estimate(2, &observations[..1], Some(&[1.0]), &Settings::default(), &|| false).is_err());
}

/// The recency prior violated the constraint, so it was not a valid start: no step lowered the objective, and the
/// fit was the prior.
#[test]
fn weights_that_must_not_increase_do_not() {
    let descends = |bias: &[f64]| bias.windows(2).all(|pair| pair[1] <= pair[0] + 1e-6);
    for (n, seed) in [(3, 1), (4, 2), (5, 3), (10, 4)] {
        let orders = design::orders(design::Design::Random, n, 3 * n, seed, &|| false).unwrap();
        let world = world(n, &orders, Direction::Recency, 0.3, seed);
        for objective in [Objective::Regularised, Objective::Paper] {
            let free = Settings { objective, ..Settings::default() };
            let bound = Settings { monotone: true, ..free.clone() };
            let (turned, kept) = (fit(&world, true, &free), fit(&world, true, &bound));
            assert!(!descends(&turned.bias[0]), "{n} {objective:?}: the scores say recency {:?}", turned.bias);
            assert!(descends(&kept.bias[0]), "{n} {objective:?}: {:?}", kept.bias);
            assert_eq!(kept.orientation, Orientation::CallerPrior);
        }
        let given = Settings { monotone: true, prior: Some(geometric(n, Direction::Recency)), ..Settings::default() };
        let refused = estimate(n, &world.observations, None, &given, &|| false).unwrap_err().to_string();
        assert!(refused.contains("must not increase"), "{refused}");
    }
}
