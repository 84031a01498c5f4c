//! SePer: the belief mass on reference answers (Dai et al., section 4).
//!
//! - Soft, for one reference `a`: `Σ w_i · k_i` with `k_i = E(r_i, a)` (Algorithm 1), or with `either_direction`
//!   `k_i = max(E(r_i, a), E(a, r_i))` (the authors' code).
//! - Hard: the mass of the clusters that mean the same as `a` under [`Rule::Loose`], judged by their first member.
//! - Several references: the mean (Eq. 10) or maximum (the authors' code) over them.
//! - `DeltaSePer = SePer(with context) - SePer(context-free)`, in [-1, 1]; see [`Estimate::minus`].

use super::cluster::Clusters;
use super::estimate::weighted;
use super::{Estimate, Rule, Verdict};

/// How the values for several references are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregate {
    /// Their mean (Eq. 10). The default.
    #[default]
    Mean,
    /// Their maximum (the authors' code).
    Max,
}

/// Verdicts between one reference answer and the responses. Verdicts that the chosen measures do not need may be absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Against {
    /// For each response: response as premise, reference as hypothesis.
    pub response_entails: Vec<Option<Verdict>>,
    /// For each response: reference as premise, response as hypothesis.
    pub reference_entails: Vec<Option<Verdict>>,
}

/// Combines per-response kernels or memberships, one row per reference. The jackknife of the maximum keeps the
/// reference that is best for all responses.
fn aggregate(rows: &[Vec<f64>], weights: &[f64], how: Aggregate) -> Option<Estimate> {
    if rows.is_empty() || weights.is_empty() {
        return None;
    }
    match how {
        Aggregate::Mean => {
            // The mean of weighted sums is the weighted sum of means, and so is its jackknife.
            let n = numeric::real(rows.len());
            let means: Vec<f64> = (0..weights.len()).map(|i| rows.iter().map(|row| row[i]).sum::<f64>() / n).collect();
            Some(weighted(weights, &means))
        }
        Aggregate::Max => rows
            .iter()
            .map(|row| weighted(weights, row))
            .reduce(|best, next| if next.value > best.value { next } else { best }),
    }
}

/// Soft SePer. `None` if there are no responses or references, or a verdict is missing.
#[must_use]
pub fn soft(weights: &[f64], references: &[Against], either_direction: bool, how: Aggregate) -> Option<Estimate> {
    let kernel = |against: &Against, i: usize| {
        let forward = against.response_entails.get(i).copied().flatten()?.entailment;
        if !either_direction {
            return Some(forward);
        }
        Some(forward.max(against.reference_entails.get(i).copied().flatten()?.entailment))
    };
    let row = |against: &Against| (0..weights.len()).map(|i| kernel(against, i)).collect::<Option<Vec<f64>>>();
    aggregate(&references.iter().map(row).collect::<Option<Vec<_>>>()?, weights, how)
}

/// Soft SePer against references of different weight: `Σ_a share_a Σ_i w_i E(r_i, a)`, with one share per
/// reference. `None` as for [`soft`].
#[must_use]
pub fn shared(weights: &[f64], references: &[Against], shares: &[f64]) -> Option<Estimate> {
    if weights.is_empty() || references.is_empty() || references.len() != shares.len() {
        return None;
    }
    let kernel = |i: usize| {
        let of = |(against, share): (&Against, &f64)| {
            Some(share * against.response_entails.get(i).copied().flatten()?.entailment)
        };
        references.iter().zip(shares).map(of).sum::<Option<f64>>()
    };
    // A weighted sum of weighted sums is the weighted sum of these sums, and so is its jackknife.
    Some(weighted(weights, &(0..weights.len()).map(kernel).collect::<Option<Vec<f64>>>()?))
}

/// Hard SePer. `None` as for [`soft`]. Only uses the verdicts of cluster founders.
#[must_use]
pub fn hard(weights: &[f64], clusters: &Clusters, references: &[Against], how: Aggregate) -> Option<Estimate> {
    let member = |against: &Against, i: usize| {
        let founder = clusters.founders[clusters.of[i]];
        let forward = against.response_entails.get(founder).copied().flatten()?;
        let backward = against.reference_entails.get(founder).copied().flatten()?;
        Some(f64::from(u8::from(Rule::Loose.equivalent(&forward, &backward))))
    };
    let row = |against: &Against| (0..weights.len()).map(|i| member(against, i)).collect::<Option<Vec<f64>>>();
    aggregate(&references.iter().map(row).collect::<Option<Vec<_>>>()?, weights, how)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::verdict;
    use super::super::{Likelihood, Pairing, Weighting};
    use super::*;

    fn right() -> Verdict {
        verdict(1.0, 0.0, 0.0)
    }

    fn wrong() -> Verdict {
        verdict(0.0, 0.0, 1.0)
    }

    /// One reference, entailed by the marked responses.
    fn marked(marks: &[bool]) -> Against {
        let verdicts: Vec<_> = marks.iter().map(|&mark| Some(if mark { right() } else { wrong() })).collect();
        Against { response_entails: verdicts.clone(), reference_entails: verdicts }
    }

    /// As in the paper's Tables 6 and 7: none, all, or seven of ten answers are right.
    #[test]
    fn tables_six_and_seven() {
        for (count, expected) in [(0, 0.0), (10, 1.0), (7, 0.7)] {
            let marks: Vec<bool> = (0..10).map(|i| i < count).collect();
            let weights = Weighting::Mean.weights(&[Likelihood { sum: -2.0, tokens: 4 }; 10]);
            let (any_right, any_wrong) = (usize::from(count > 0), usize::from(count < 10));
            let clusters = Clusters {
                of: marks.iter().map(|mark| usize::from(!mark) * any_right).collect(),
                founders: if any_right + any_wrong == 2 { vec![0, count] } else { vec![0] },
            };
            let reference = [marked(&marks)];
            assert!((soft(&weights, &reference, false, Aggregate::Mean).unwrap().value - expected).abs() < 1e-12);
            assert!((hard(&weights, &clusters, &reference, Aggregate::Mean).unwrap().value - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn references_by_hand() {
        let weights = [0.5, 0.3, 0.2];
        let references = [marked(&[true, false, false]), marked(&[true, true, false])];
        let value = |how| soft(&weights, &references, false, how).unwrap().value;
        assert!((value(Aggregate::Mean) - 0.65).abs() < 1e-12);
        assert!((value(Aggregate::Max) - 0.8).abs() < 1e-12);
        assert_eq!(soft(&weights, &[], false, Aggregate::Mean), None);
        assert_eq!(soft(&[], &references, false, Aggregate::Mean), None);
    }

    /// Equal shares are the mean over references; a full share selects one reference.
    #[test]
    fn shares_by_hand() {
        let weights = [0.5, 0.3, 0.2];
        let references = [marked(&[true, false, false]), marked(&[true, true, false])];
        let of = |shares: &[f64]| shared(&weights, &references, shares);
        assert_eq!(of(&[0.5, 0.5]), soft(&weights, &references, false, Aggregate::Mean));
        assert!((of(&[0.25, 0.75]).unwrap().value - (0.25 * 0.5 + 0.75 * 0.8)).abs() < 1e-12);
        assert_eq!(of(&[0.0, 1.0]), soft(&weights, &references[1..], false, Aggregate::Mean));
        assert_eq!((of(&[1.0]), shared(&[], &references, &[0.5, 0.5]), shared(&weights, &[], &[])), (None, None, None));
        let missing = Against { response_entails: vec![None; 3], ..Against::default() };
        assert_eq!(shared(&weights, &[missing], &[1.0]), None);
    }

    #[test]
    fn either_direction_takes_the_better_one() {
        let against = Against {
            response_entails: vec![Some(verdict(0.2, 0.8, 0.0))],
            reference_entails: vec![Some(verdict(0.9, 0.1, 0.0))],
        };
        let value = |either| soft(&[1.0], std::slice::from_ref(&against), either, Aggregate::Mean).unwrap().value;
        assert_eq!((value(false), value(true)), (0.2, 0.9));
        let one_way = Against { reference_entails: vec![None], ..against };
        assert_eq!(soft(&[1.0], &[one_way], true, Aggregate::Mean), None, "a missing verdict is not 0");
    }

    #[test]
    fn hard_reads_the_founders_only() {
        let clusters = Clusters { of: vec![0, 0, 1], founders: vec![0, 2] };
        let half = |mark: Option<bool>| mark.map(|mark| if mark { right() } else { wrong() });
        let verdicts = vec![half(Some(true)), None, half(Some(false))];
        let against = Against { response_entails: verdicts.clone(), reference_entails: verdicts };
        let value = hard(&[0.3, 0.3, 0.4], &clusters, &[against], Aggregate::Mean).unwrap().value;
        assert!((value - 0.6).abs() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// In [0, 1], for any order of the samples.
        #[test]
        fn bounded_and_independent_of_order(
            rows in proptest::collection::vec((-30.0_f64..0.0, 1_usize..20, 0.0_f64..1.0, 0.0_f64..1.0), 1..12),
            turn in 0_usize..12, either in any::<bool>(),
        ) {
            let measure = |rows: &[(f64, usize, f64, f64)]| {
                let likelihoods: Vec<Likelihood> = rows.iter().map(|(sum, tokens, _, _)| Likelihood { sum: *sum, tokens: *tokens }).collect();
                let of = |p: f64| Some(verdict(p, 1.0 - p, 0.0));
                let against = Against {
                    response_entails: rows.iter().map(|row| of(row.2)).collect(),
                    reference_entails: rows.iter().map(|row| of(row.3)).collect(),
                };
                soft(&Weighting::Mean.weights(&likelihoods), &[against], either, Aggregate::Mean).unwrap()
            };
            let straight = measure(&rows);
            let mut turned = rows.clone();
            turned.rotate_left(turn % rows.len());
            let turned = measure(&turned);
            prop_assert!((-1e-12..=1.0 + 1e-12).contains(&straight.value));
            prop_assert!((straight.value - turned.value).abs() < 1e-9);
            let errors = straight.standard_error.zip(turned.standard_error);
            prop_assert!(errors.is_none_or(|(one, other)| (one - other).abs() < 1e-9));
            let delta = straight.minus(&turned, Pairing::Independent);
            prop_assert!(delta.value.abs() < 1e-9, "equal beliefs have no difference");
            let same = straight.minus(&straight, Pairing::Paired);
            prop_assert!(same.value == 0.0 && same.standard_error.is_none_or(|error| error == 0.0));
        }
    }
}
