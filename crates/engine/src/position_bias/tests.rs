//! Streams of synthetic requests through real fits, and the effect of the profiles on each requested order.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::types::Scheme;
use moi::design::{self, Design};
use moi::prior::{Direction, geometric};
use moi::{Observation, Orientation, Settings, estimate};

fn repeated(subject: Subject, values: &[f64], times: u64) -> Profiles {
    let mut profiles = Profiles::default();
    let last = values.len() - 1;
    for index in 0..times {
        // A spread of 0.02 around the values, in opposite directions at both ends, so that the sums stay.
        let step = if index % 2 == 0 { 0.02 } else { -0.02 };
        let mut row = values.to_vec();
        row[0] += step;
        row[last] -= step;
        assert!(profiles.observe(subject, &row));
    }
    profiles
}

fn calibrated(profiles: Profiles) -> PositionBias {
    PositionBias::new(profiles, Profiles::default(), Box::new(|_| Ok(())), Vec::new())
}

fn learnt(profiles: Profiles) -> PositionBias {
    PositionBias::new(Profiles::default(), profiles, Box::new(|_| Ok(())), Vec::new())
}

fn learning() -> PositionBias {
    let position_bias = PositionBias::default();
    position_bias.set_learning(true);
    position_bias.set_use_learnt(true);
    position_bias
}

fn count(position_bias: &PositionBias) -> u64 {
    let [_, (_, learnt), _] = position_bias.profiles();
    learnt.iter().map(|(_, _, profile)| profile.count()).sum()
}

fn gauss(source: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| source.random::<f64>()).sum::<f64>() - 6.0
}

/// A request on `orders` by a generator with these position weights; shorter prompts use the first of them.
fn request(orders: &[Vec<usize>], weights: &[f64], noise: f64, seed: u64) -> FitReport {
    let mut source = ChaCha8Rng::seed_from_u64(seed);
    let n = weights.len();
    let utilities: Vec<f64> = (0..n).map(|_| 2.0 * gauss(&mut source)).collect();
    let score = |order: &Vec<usize>, source: &mut ChaCha8Rng| {
        let total: f64 = weights[..order.len()].iter().sum();
        let mean: f64 = order.iter().zip(weights).map(|(&p, weight)| utilities[p] * weight / total).sum();
        mean - 20.0 + noise * gauss(source)
    };
    let observations: Vec<Observation> =
        orders.iter().map(|order| Observation { order: order.clone(), score: score(order, &mut source) }).collect();
    let anchor: Vec<f64> = utilities.iter().map(|utility| utility + 0.5 * gauss(&mut source)).collect();
    let fitted = estimate(n, &observations, Some(&anchor), &Settings::default(), &|| false).unwrap();
    FitReport {
        bias: fitted.bias,
        diagnostics: fitted.diagnostics,
        orientation: fitted.orientation,
        anchor_correlation: fitted.anchor_correlation,
        expected_tau: fitted.expected_tau,
        scheme: Scheme::Random,
        observations: observations.len(),
        blocks: (0, 0),
        depth: n,
        rounds: 1,
        objective: fitted.objective,
    }
}

fn random(n: usize, seed: u64) -> Vec<Vec<usize>> {
    design::orders(Design::Random, n, 3 * n, seed, &|| false).unwrap()
}

/// Only the prior shapes fits of N cyclic or Latin orders; learnt, it would look like a measurement.
#[test]
fn fits_that_the_prior_decided_are_not_learnt() {
    for design in [Design::Cyclic, Design::Latin] {
        let position_bias = learning();
        for seed in 0..20 {
            let fit = request(
                &design::orders(design, 10, 10, seed, &|| false).unwrap(),
                &geometric(10, Direction::Recency),
                0.05,
                seed,
            );
            assert_eq!(refusal(&fit, Origin::Learnt), Some(Refusal::NotIdentifiable));
            assert!(!position_bias.learn(&fit));
        }
        assert_eq!(count(&position_bias), 0, "{design:?}");
    }
    let fit = request(&random(5, 1), &geometric(5, Direction::Recency), 0.05, 1);
    assert_eq!(refusal(&fit, Origin::Learnt), None);
    let open = FitReport { anchor_correlation: Some(0.2), ..fit.clone() };
    assert_eq!(refusal(&open, Origin::Calibrated), Some(Refusal::NoDirection));
    let given = FitReport { orientation: Orientation::CallerPrior, ..fit.clone() };
    assert_eq!(refusal(&given, Origin::Learnt), Some(Refusal::NoDirection));
    let mut weak = fit;
    weak.diagnostics.signal = 2.0;
    assert_eq!(refusal(&weak, Origin::Calibrated), None);
    assert_eq!(refusal(&weak, Origin::Learnt), Some(Refusal::NoSignal));
}

/// Every request of a flat stream, with whole orders or prefixes, is arranged best first.
#[test]
fn a_thousand_flat_requests_change_no_order() {
    for whole in [true, false] {
        let position_bias = learning();
        for seed in 0..1_000 {
            let beginnings = || design::prefixes(&design::orders(Design::Latin, 4, 4, seed, &|| false).unwrap(), 2);
            let orders = if whole { random(4, seed) } else { beginnings() };
            position_bias.learn(&request(&orders, &[0.25; 4], 0.5, seed));
            for n in [2, 4, 10] {
                let ranking: Vec<usize> = (0..n).rev().collect();
                assert_eq!(position_bias.arrange(&ranking, ContextOrder::Auto).unwrap().order, ranking);
            }
        }
        assert!(whole || count(&position_bias) > 500, "beginnings of flat prompts are identifiable and learnt");
    }
}

#[test]
fn a_recency_stream_is_learnt_in_any_order_of_its_requests() {
    let fits: Vec<FitReport> =
        (0..60).map(|seed| request(&random(4, seed), &geometric(4, Direction::Recency), 0.1, seed)).collect();
    let (forward, backward) = (learning(), learning());
    for (fit, last) in fits.iter().zip(fits.iter().rev()) {
        forward.learn(fit);
        backward.learn(last);
        forward.learn(fit);
    }
    assert!(count(&forward) >= LEAST_FITS && count(&forward) <= 60, "a repeated request counts once");
    assert_eq!(count(&forward), count(&backward));
    for position_bias in [forward, backward] {
        let arranged = position_bias.arrange(&[7, 5, 3, 1], ContextOrder::Auto).unwrap();
        assert_eq!((arranged.order, arranged.applied), (vec![1, 3, 5, 7], ContextOrder::ByPositionBias));
        assert!(matches!(arranged.ground, Ground::Profile(Basis { origin: Origin::Learnt, passages: 4, .. })));
    }
}

/// Other callers' traffic affects an order only if the operator or the caller asks for it.
#[test]
fn learnt_profiles_need_the_operator_or_the_caller() {
    let position_bias = learnt(repeated(Subject::Question, &[0.1, 0.2, 0.7], 40));
    let arranged = position_bias.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
    assert_eq!((arranged.order, arranged.ground), (vec![5, 3, 8], Ground::NoProfile));
    let arranged = position_bias.arrange(&[5, 3, 8], ContextOrder::ByPositionBias).unwrap();
    let basis = Basis { subject: Subject::Question, origin: Origin::Learnt, passages: 3, observations: 40 };
    assert_eq!((arranged.order, arranged.ground), (vec![8, 3, 5], Ground::Profile(basis)));
    position_bias.set_use_learnt(true);
    assert_eq!(position_bias.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap().order, vec![8, 3, 5]);
    position_bias.recalibrate(repeated(Subject::Question, &[0.7, 0.2, 0.1], 40));
    let arranged = position_bias.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
    let basis = Basis { origin: Origin::Calibrated, ..basis };
    assert_eq!((arranged.order, arranged.ground), (vec![5, 3, 8], Ground::Profile(basis)), "the calibrated one wins");
}

/// Among answer profiles the operator's measurement counts first, then the program's. Profiles of the question come
/// after both.
#[test]
fn a_built_in_profile_counts_where_no_answer_profile_is_calibrated() {
    let built_in = repeated(Subject::Answer, &[-1.0, 0.0, 1.0], LEAST_LABELLED);
    let position_bias = learnt(repeated(Subject::Question, &[0.6, 0.3, 0.1], 40)).with_built_in(built_in);
    let arranged = |order| position_bias.arrange(&[5, 3, 8], order).unwrap();
    let basis = Basis { subject: Subject::Answer, origin: Origin::BuiltIn, passages: 3, observations: LEAST_LABELLED };
    position_bias.set_use_learnt(true);
    for order in [ContextOrder::Auto, ContextOrder::ByPositionBias] {
        let arranged = arranged(order);
        assert_eq!((arranged.order, arranged.ground), (vec![8, 3, 5], Ground::Profile(basis)));
    }
    let five = position_bias.arrange(&[5, 3, 8, 1, 0], ContextOrder::Auto).unwrap();
    assert_eq!(five.ground, Ground::NoProfile, "three positions say nothing of five");
    // The likelihood of a question is weaker evidence for an arrangement than that of an answer, whoever measured
    // it.
    let mut own = repeated(Subject::Question, &[0.7, 0.2, 0.1], 40);
    position_bias.recalibrate(own.clone());
    assert_eq!(arranged(ContextOrder::Auto).ground, Ground::Profile(basis));
    own.merge(&repeated(Subject::Answer, &[0.0, 0.01, 0.0], LEAST_LABELLED));
    position_bias.recalibrate(own);
    let calibrated = arranged(ContextOrder::Auto);
    let basis = Basis { origin: Origin::Calibrated, ..basis };
    assert_eq!((calibrated.order, calibrated.ground), (vec![5, 3, 8], Ground::EffectWithinError(basis)));
    assert_eq!(
        position_bias.profiles().map(|(origin, _)| origin),
        [Origin::Calibrated, Origin::Learnt, Origin::BuiltIn]
    );
}

/// Letter (g): weights of 0.499 and 0.501 over two positions reversed a context of ten.
#[test]
fn two_positions_say_nothing_of_ten() {
    let ranking: Vec<usize> = (0..10).collect();
    for weights in [[0.499, 0.501], [0.2, 0.8]] {
        let position_bias = calibrated(repeated(Subject::Question, &weights, 64));
        let arranged = position_bias.arrange(&ranking, ContextOrder::Auto).unwrap();
        assert_eq!((arranged.order, arranged.ground), (ranking.clone(), Ground::NoProfile));
        let arranged = position_bias.arrange(&ranking, ContextOrder::ByPositionBias).unwrap();
        assert_eq!(arranged.order, ranking);
        let pair = position_bias.arrange(&[4, 2], ContextOrder::Auto).unwrap();
        let basis = Basis { subject: Subject::Question, origin: Origin::Calibrated, passages: 2, observations: 64 };
        let (order, ground) = if weights[1] > 0.6 {
            (vec![2, 4], Ground::Profile(basis))
        } else {
            (vec![4, 2], Ground::EffectWithinError(basis))
        };
        assert_eq!((pair.order, pair.ground), (order, ground));
    }
}

#[test]
fn an_answer_profile_wins_over_a_question_profile_and_few_observations_do_not_count() {
    let mut both = repeated(Subject::Answer, &[-1.0, 0.0, 1.0], LEAST_LABELLED);
    both.merge(&repeated(Subject::Question, &[0.7, 0.2, 0.1], LEAST_FITS));
    let arranged = calibrated(both).arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
    assert_eq!((arranged.order, arranged.applied), (vec![8, 3, 5], ContextOrder::ByPositionBias));
    let few = calibrated(repeated(Subject::Answer, &[-1.0, 0.0, 1.0], LEAST_LABELLED - 1));
    let arranged = few.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
    assert_eq!((arranged.order, arranged.ground), (vec![5, 3, 8], Ground::NoProfile));
    assert_eq!(few.arrange(&[5, 3, 8], ContextOrder::ByPositionBias).unwrap().order, vec![8, 3, 5]);
    assert_eq!(few.arrange(&[3, 0, 2], ContextOrder::Input).unwrap().order, vec![0, 2, 3]);
    assert_eq!(few.arrange(&[3, 0, 2], ContextOrder::Reverse).unwrap().order, vec![2, 0, 3]);
}

#[test]
fn a_profile_is_refused_only_where_there_is_none() {
    let none = PositionBias::default();
    assert!(matches!(none.check(ContextOrder::ByPositionBias), Err(EngineError::Precondition(_))));
    assert!(none.check(ContextOrder::Auto).is_ok());
    let one = calibrated(repeated(Subject::Answer, &[0.0, 1.0, 0.5], 1));
    one.check(ContextOrder::ByPositionBias).unwrap();
    let arranged = one.arrange(&[1, 0, 2], ContextOrder::ByPositionBias).unwrap();
    assert_eq!((arranged.order, arranged.ground), (vec![1, 0, 2], Ground::NoProfile), "one observation has no error");
}

/// A hanging write wrote earlier profiles over later ones, and the end of the process did not wait for it.
#[test]
fn the_last_profiles_are_written_last() {
    let (hang, hanging) = std::sync::mpsc::channel::<()>();
    let (entered, enter) = std::sync::mpsc::channel::<()>();
    let hanging = Mutex::new(Some(hanging));
    let written = Arc::new(Mutex::new(Vec::new()));
    let counts = Arc::clone(&written);
    let keeper = move |profiles: &Profiles| {
        let first = lock(&hanging).take();
        if let Some(hanging) = first {
            entered.send(()).unwrap();
            let _ = hanging.recv();
        }
        lock(&counts).push(profiles.iter().map(|(_, _, profile)| profile.count()).sum::<u64>());
        Ok(())
    };
    let bias = PositionBias::new(Profiles::default(), Profiles::default(), Box::new(keeper), Vec::new());
    bias.set_learning(true);
    let fit = |seed| request(&random(5, seed), &geometric(5, Direction::Recency), 0.05, seed);
    let (fit, other) = (fit(1), fit(2));
    std::thread::scope(|scope| {
        bias.learn(&fit);
        let first = scope.spawn(|| bias.save());
        enter.recv().unwrap();
        bias.learn(&other);
        // A request does not wait for the hanging write: this would not return.
        bias.save_unless_busy();
        let last = scope.spawn(|| bias.save());
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(hang);
        first.join().unwrap();
        last.join().unwrap();
    });
    let written = lock(&written).clone();
    assert!(written.len() == 2 && written[0] < written[1], "{written:?}");
}
