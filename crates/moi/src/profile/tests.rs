//! Profiles: arithmetic by hand, properties, and the error rates of the test on streams with and without an effect.

use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn of(rows: &[Vec<f64>]) -> Profile {
    let mut profile = Profile::new(rows[0].len());
    assert!(rows.iter().all(|row| profile.observe(row)));
    profile
}

/// A sum of twelve uniform numbers: approximately normal, with tails that end at six.
fn gauss(source: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| source.random::<f64>()).sum::<f64>() - 6.0
}

/// An observation with the same sum as `truth`, like a fit or a centred likelihood.
fn noisy(truth: &[f64], spread: f64, source: &mut ChaCha8Rng) -> Vec<f64> {
    let noise: Vec<f64> = truth.iter().map(|_| spread * gauss(source)).collect();
    let centre = mean(&noise);
    truth.iter().zip(&noise).map(|(value, noise)| value + noise - centre).collect()
}

#[test]
fn by_hand() {
    let profile = of(&[vec![1.0, 0.0], vec![3.0, 4.0]]);
    assert_eq!(profile.means(), &[2.0, 2.0]);
    // Variances 2 and 8 over two observations.
    assert_eq!(profile.standard_errors().unwrap(), vec![1.0, 2.0]);
    assert_eq!(of(&[vec![0.0, 1.0]]).interpolated(5), vec![0.0, 0.25, 0.5, 0.75, 1.0]);
    assert_eq!(of(&[vec![5.0, 1.0, 7.0]]).interpolated(2), vec![5.0, 7.0]);
    assert_eq!(of(&[vec![5.0, 1.0, 7.0]]).interpolated(3), vec![5.0, 1.0, 7.0]);
    assert!(of(&[vec![5.0, 1.0]]).interpolated(0).is_empty());
}

/// Means -1 and 1. Two observations with standard errors 0.5: F = 2 / (2 * 0.25) = 4, below 161.4 (one and one degrees of
/// freedom). Four observations with standard errors 0.25: F = 2 / (2 * 0.0625) = 16, above 10.1 (one and three).
#[test]
fn the_test_by_hand() {
    let rows = |half: f64, times: usize| -> Vec<Vec<f64>> {
        (0..times).flat_map(|_| [vec![-1.0 - half, 1.0 + half], vec![-1.0 + half, 1.0 - half]]).collect()
    };
    let two = of(&rows(0.5, 1));
    assert_eq!(two.standard_errors().unwrap(), vec![0.5, 0.5]);
    assert!(!two.has_effect(Subject::Answer, Origin::Calibrated));
    let four = of(&rows(0.25 * 3.0_f64.sqrt(), 2));
    assert!((four.standard_errors().unwrap()[0] - 0.25).abs() < 1e-12);
    assert!(four.has_effect(Subject::Answer, Origin::Calibrated));
    assert!(!four.has_effect(Subject::Answer, Origin::Learnt), "four fits are too few for a Bayes factor of 20");
    assert!(!of(&[vec![0.0, 1.0]]).has_effect(Subject::Answer, Origin::Calibrated), "one observation has no error");
}

#[test]
fn the_best_stands_where_the_weight_is_largest() {
    assert_eq!(arrange(&[4, 2, 9], &[0.1, 0.2, 0.7]), vec![9, 2, 4]);
    assert_eq!(arrange(&[4, 2, 9], &[0.5, 0.1, 0.4]), vec![4, 9, 2]);
    assert_eq!(arrange(&[4, 2, 9], &[1.0, 1.0, 1.0]), vec![4, 2, 9]);
    assert!(arrange(&[], &[]).is_empty());
}

#[test]
fn invalid_observations_are_refused() {
    let mut profiles = Profiles::default();
    assert!(!profiles.observe(Subject::Answer, &[1.0]));
    assert!(!profiles.observe(Subject::Answer, &[1.0, f64::NAN]));
    assert!(profiles.is_empty());
    assert!(profiles.observe(Subject::Answer, &[1.0, -1.0]));
    assert!(profiles.serving(Subject::Question, 2, 1).is_none() && profiles.serving(Subject::Answer, 2, 2).is_none());
    assert_eq!(profiles.serving(Subject::Answer, 2, 1).unwrap().positions(), 2);
    assert!(!Profile::new(2).is_valid(2));
    let mut spoilt = of(&[vec![1.0, 2.0]]);
    assert!(spoilt.is_valid(2) && !spoilt.is_valid(3));
    spoilt.squares[1] = -1.0;
    assert!(!spoilt.is_valid(2));
}

#[test]
fn two_positions_are_never_stretched_and_four_at_most_to_twice_their_length() {
    let serves = |own: usize| -> Vec<usize> { (0..30).filter(|n| Profile::new(own).serves(*n)).collect() };
    assert_eq!(serves(2), vec![2]);
    assert_eq!(serves(3), vec![3]);
    assert_eq!(serves(4), vec![2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(serves(10), (5..=20).collect::<Vec<_>>());
    let mut profiles = Profiles::default();
    for length in [2, 4, 10] {
        assert!(profiles.observe(Subject::Question, &vec![0.0; length]));
    }
    let nearest = |n| profiles.serving(Subject::Question, n, 1).map(Profile::positions);
    assert_eq!([1, 2, 3, 7, 8, 20, 21].map(nearest), [None, Some(2), Some(4), Some(10), Some(10), Some(10), None]);
}

/// A passing difference in one position pair does not justify shuffling a profile that confirms best first.
#[test]
fn a_primacy_profile_confirms_best_first() {
    let mut source = ChaCha8Rng::seed_from_u64(5);
    let truth = [1.5, 0.0, 0.0, 0.0, 0.0, 0.0];
    let profile = of(&(0..40).map(|_| noisy(&truth, 0.3, &mut source)).collect::<Vec<_>>());
    assert!(!profile.means().is_sorted_by(|left, right| left >= right), "noise leaves the flat positions unsorted");
    let ranking = [3, 1, 4, 0, 5, 2];
    assert_eq!(profile.propose(&ranking, Subject::Answer, Origin::Calibrated).unwrap(), ranking);
}

/// Letter (g) of the review: 32 fits with weights 0.499 and 0.501 once reversed every context.
#[test]
fn a_thousandth_of_weight_is_not_an_effect() {
    let tiny = of(&vec![vec![0.499, 0.501]; 32]);
    let mut source = ChaCha8Rng::seed_from_u64(6);
    let exact = of(&(0..1_000).map(|_| noisy(&[0.499, 0.501], 1e-4, &mut source)).collect::<Vec<_>>());
    let repeated = of(&vec![vec![0.2, 0.8]; 500]);
    for origin in [Origin::Calibrated, Origin::Learnt] {
        assert_eq!(tiny.propose(&[0, 1], Subject::Question, origin), None);
        assert_eq!(exact.propose(&[0, 1], Subject::Question, origin), None);
        assert_eq!(repeated.propose(&[0, 1], Subject::Question, origin), None, "one request asked 500 times");
    }
}

/// Over a flat truth, at most 5 % of the streams rearrange even one of their 1,000 requests.
#[test]
fn a_flat_stream_changes_no_order() {
    for positions in [2, 4, 10] {
        let truth = vec![1.0 / real(positions); positions];
        let streams = 200;
        let mut false_streams = 0;
        for seed in 0..streams {
            let mut source = ChaCha8Rng::seed_from_u64(seed);
            let mut profile = Profile::new(positions);
            let arranged = (0..1_000).any(|_| {
                assert!(profile.observe(&noisy(&truth, 0.6 / real(positions), &mut source)));
                profile.count() >= 2 && profile.has_effect(Subject::Question, Origin::Learnt)
            });
            false_streams += usize::from(arranged);
        }
        assert!(false_streams <= 10, "{positions} positions: {false_streams} of {streams} streams");
    }
}

/// A calibration is tested once. Sorting by its noise would arrange nearly every flat profile.
#[test]
fn a_flat_calibration_changes_no_order() {
    for (positions, questions) in [(2, 8), (10, 8), (10, 30)] {
        let truth = vec![0.0; positions];
        let runs = 600;
        let mut source = ChaCha8Rng::seed_from_u64(9);
        let ranking: Vec<usize> = (0..positions).collect();
        let moved = (0..runs)
            .filter(|_| {
                let profile = of(&(0..questions).map(|_| noisy(&truth, 1.0, &mut source)).collect::<Vec<_>>());
                profile.propose(&ranking, Subject::Answer, Origin::Calibrated).is_some_and(|order| order != ranking)
            })
            .count();
        assert!(real(moved) < 0.05 * real(runs), "{positions} positions, {questions} questions: {moved} of {runs}");
    }
}

#[test]
fn a_recency_profile_is_taken_up() {
    let truth = crate::prior::geometric(6, crate::prior::Direction::Recency);
    let mut source = ChaCha8Rng::seed_from_u64(2);
    let rows: Vec<Vec<f64>> = (0..32).map(|_| noisy(&truth, 0.08, &mut source)).collect();
    for origin in [Origin::Calibrated, Origin::Learnt] {
        let order = of(&rows).propose(&[0, 1, 2, 3, 4, 5], Subject::Question, origin).unwrap();
        assert_eq!((order[5], order[4]), (0, 1), "best last, second best before it");
        let longer = of(&rows).propose(&(0..12).collect::<Vec<_>>(), Subject::Question, origin).unwrap();
        assert_eq!(longer[11], 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Observing in two parts and merging equals observing everything at once.
    #[test]
    fn parts_merge(rows in proptest::collection::vec(proptest::collection::vec(-5.0_f64..5.0, 4), 2..20), at in 1_usize..19) {
        let at = at.min(rows.len() - 1);
        let (whole, mut left, right) = (of(&rows), of(&rows[..at]), of(&rows[at..]));
        left.merge(&right);
        prop_assert_eq!(left.count(), whole.count());
        let errors = left.standard_errors().unwrap();
        for (j, error) in whole.standard_errors().unwrap().into_iter().enumerate() {
            prop_assert!((left.means()[j] - whole.means()[j]).abs() < 1e-12);
            prop_assert!((errors[j] - error).abs() < 1e-9);
        }
    }

    /// The order in which callers' requests arrive has no influence.
    #[test]
    fn arrival_order_does_not_matter(rows in proptest::collection::vec(proptest::collection::vec(-1.0_f64..1.0, 5), 8..40), seed in 0_u64..1_000) {
        let mut shuffled = rows.clone();
        shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let (left, right) = (of(&rows), of(&shuffled));
        for (l, r) in left.means().iter().zip(right.means()) {
            prop_assert!((l - r).abs() < 1e-12);
        }
        for origin in [Origin::Calibrated, Origin::Learnt] {
            let order = |profile: &Profile| profile.propose(&[0, 1, 2, 3, 4], Subject::Answer, origin);
            prop_assert_eq!(order(&left), order(&right));
        }
    }

    /// Renaming the passages renames the arrangement; it stays a permutation.
    #[test]
    fn names_of_passages_do_not_matter(weights in proptest::collection::vec(-1.0_f64..1.0, 5), shift in 0_usize..5) {
        let plain = arrange(&[0, 1, 2, 3, 4], &weights);
        let renamed: Vec<usize> = (0..5).map(|p| (p + shift) % 5).collect();
        let moved: Vec<usize> = plain.iter().map(|p| (p + shift) % 5).collect();
        prop_assert_eq!(arrange(&renamed, &weights), moved);
    }

    /// No other arrangement has a larger sum of utility times weight.
    #[test]
    fn rearrangement_inequality(utilities in proptest::collection::vec(-5.0_f64..5.0, 4), weights in proptest::collection::vec(-1.0_f64..1.0, 4)) {
        let value = |order: &[usize]| order.iter().zip(&weights).map(|(p, w)| utilities[*p] * w).sum::<f64>();
        let best = value(&arrange(&descending(&utilities), &weights));
        for a in 0..4 { for b in 0..4 { for c in 0..4 { for d in 0..4 {
            let order = [a, b, c, d];
            if (0..4).all(|p| order.contains(&p)) { prop_assert!(value(&order) <= best + 1e-12); }
        }}}}
    }
}

#[test]
fn a_shape_has_no_strength() {
    let close = |left: &[f64], right: &[f64]| left.iter().zip(right).all(|(l, r)| (l - r).abs() < 1e-12);
    let strong = shape(&[0.6, 0.3, 0.1]);
    let weak: Vec<f64> = [0.6, 0.3, 0.1].iter().map(|weight| 1.0 / 3.0 + 0.01 * (weight - 1.0 / 3.0)).collect();
    assert!(close(&strong, &shape(&weak)));
    assert!((strong.iter().map(|value| value * value).sum::<f64>() - 1.0).abs() < 1e-12);
    assert!(strong.iter().sum::<f64>().abs() < 1e-12);
    assert_eq!(shape(&[0.25; 4]), [0.0; 4]);
}
